// SPDX-License-Identifier: Apache-2.0
//! Programs that clients run.

use super::client::{Program, Step};
use super::gpu::Kind;
use super::{MS, kernel};

/// Launches kernels of one length without pause.
pub fn saturating(length_ns: u64) -> Program {
    Box::new(move |_, _| kernel(length_ns))
}

/// The same, but after so many kernels, more or less, the next launch is late by some time.
pub fn late(length_ns: u64, kernels: u64, by_ns: (u64, u64)) -> Program {
    let mut left = kernels;
    Box::new(move |_, random| {
        if left > 0 {
            left -= 1;
            return kernel(length_ns);
        }
        left = random.between(kernels / 2, kernels * 3 / 2);
        Step::Cpu(random.between(by_ns.0, by_ns.1))
    })
}

/// A fixed amount of work without pause.
pub fn amount(length_ns: u64, count: u64) -> Program {
    bursts(length_ns, count, 0, 1)
}

/// So many times: a burst of kernels, a synchronisation, a pause of the processor (±10 %).
pub fn bursts(length_ns: u64, kernels: u64, pause_ns: u64, times: u64) -> Program {
    let (mut launched, mut done, mut is_synced) = (0, 0, false);
    Box::new(move |_, random| {
        if done == times {
            Step::Done
        } else if launched < kernels {
            launched += 1;
            kernel(length_ns)
        } else if !is_synced {
            is_synced = true;
            Step::Sync
        } else {
            (launched, is_synced) = (0, false);
            done += 1;
            Step::Cpu(random.between(pause_ns * 9 / 10, pause_ns * 11 / 10))
        }
    })
}

/// A request of some kernels every `every_ns`, one after another with a synchronisation; latencies are kept.
pub fn requests(every_ns: u64, length_ns: u64, kernels: u64, times: u64) -> Program {
    let (mut at, mut done, mut due) = (0, 0, 10 * MS);
    Box::new(move |now, random| {
        at += 1;
        match at - 1 {
            0 if done == times => Step::Done,
            0 => Step::Cpu(due.saturating_sub(now) + random.between(0, 300_000)),
            1 => Step::Begin,
            n if n < kernels + 2 => kernel(length_ns),
            n if n == kernels + 2 => Step::Sync,
            _ => {
                (at, done, due) = (0, done + 1, due + every_ns);
                Step::End
            }
        }
    })
}

/// The same at times that nobody can foresee, every `every_ns` in the mean, and with a pause after each kernel.
pub fn random_requests(every_ns: u64, length_ns: u64, kernels: u64, pause_ns: u64) -> Program {
    let mut at = 0;
    Box::new(move |_, random| {
        at += 1;
        match at - 1 {
            0 => Step::Cpu(random.between(every_ns / 10, every_ns * 19 / 10)),
            1 => Step::Begin,
            n if n < 3 * kernels + 2 => match n % 3 {
                2 => kernel(length_ns),
                0 => Step::Sync,
                _ => Step::Cpu(pause_ns),
            },
            _ => {
                at = 0;
                Step::End
            }
        }
    })
}

/// One rank of a job: so many collectives with the peers of the same base number, each after a pause of the processor.
pub fn rank(base: u64, parts: u32, length_ns: u64, pauses: Vec<u64>) -> Program {
    let (mut at, mut has_paused) = (0, false);
    Box::new(move |_, _| {
        let Some(pause) = pauses.get(at) else {
            // The last collective is waited for.
            at += 1;
            return if at == pauses.len() + 1 { Step::Sync } else { Step::Done };
        };
        if !has_paused && *pause > 0 {
            has_paused = true;
            return Step::Cpu(*pause);
        }
        has_paused = false;
        let collective = base + at as u64;
        at += 1;
        Step::Launch {
            stream: 0,
            length_ns,
            kind: Kind::Part { collective, parts },
        }
    })
}

/// So many times: a kernel on one stream that spins until one that is launched later on another stream has ended.
pub fn crossed_streams(base: u64, length_ns: u64, times: u64) -> Program {
    let mut at = 0;
    Box::new(move |_, _| {
        let (round, step) = (at / 3, at % 3);
        at += 1;
        let tag = base + round;
        match step {
            _ if round == times => Step::Done,
            0 => Step::Launch {
                stream: 0,
                length_ns,
                kind: Kind::Waiter { tag },
            },
            1 => Step::Launch {
                stream: 1,
                length_ns,
                kind: Kind::Signal { tag },
            },
            _ => Step::Sync,
        }
    })
}

/// A few kernels, then one that never ends, then more.
pub fn hanging(length_ns: u64, before: u64) -> Program {
    let mut at = 0;
    Box::new(move |_, _| {
        at += 1;
        Step::Launch {
            stream: 0,
            length_ns,
            kind: if at == before { Kind::Hung } else { Kind::Plain },
        }
    })
}

/// Sleeps first.
pub fn after(delay_ns: u64, mut program: Program) -> Program {
    let mut has_slept = false;
    Box::new(move |now, random| {
        if !has_slept {
            has_slept = true;
            return Step::Cpu(delay_ns);
        }
        program(now, random)
    })
}
