// SPDX-License-Identifier: Apache-2.0
//! Two jobs whose streams stand in host functions most of the time, with more work behind those, beside one that always
//! wants the device: it has what the two leave, and the device is never idle.

use partage_scheduling::{
    Action, ClientId, Config, DeviceKey, DeviceTime, Event, JobId, Observation, Scheduler, Terms,
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const DEVICE: DeviceKey = DeviceKey(0);
const LOOK: u64 = 100 * US;

/// So much work on the device, then so long in a host function; a thread stands at the depth limit all the time.
#[derive(Clone, Copy)]
struct Pattern {
    work_ns: u64,
    host_ns: u64,
}

struct Program {
    pattern: Pattern,
    seen: Observation,
    used_ns: u64,
    is_open: bool,
    /// What is left of the work, or of the host function.
    left_ns: u64,
    is_on_host: bool,
}

impl Program {
    /// It has work that the device may do: what it brought before its gate closed ends.
    fn can_run(&self) -> bool {
        !self.is_on_host && (self.is_open || self.left_ns < self.pattern.work_ns)
    }

    /// The device gave it so much of this step.
    fn step(&mut self, given_ns: u64, step_ns: u64) {
        self.used_ns += given_ns;
        self.left_ns = self
            .left_ns
            .saturating_sub(if self.is_on_host { step_ns } else { given_ns });
        if self.left_ns == 0 {
            self.is_on_host = !self.is_on_host && self.pattern.host_ns > 0;
            self.left_ns = if self.is_on_host {
                self.pattern.host_ns
            } else {
                self.pattern.work_ns
            };
            self.seen.retired += 1;
        }
    }

    fn look(&mut self, is_running: bool) {
        self.seen.is_busy = is_running;
        self.seen.is_pending = self.is_on_host;
        self.seen.is_waiting = true;
        self.seen.device_time = DeviceTime {
            ns: self.used_ns,
            is_estimate: false,
        };
    }
}

/// The parts of the device that each had, in parts per thousand; the last is what nobody had. Without a scheduler each
/// gate is open.
fn parts(patterns: &[Pattern], mut scheduler: Option<Scheduler>) -> Vec<u64> {
    let mut programs: Vec<Program> = Vec::new();
    for (number, pattern) in (1..).zip(patterns) {
        let (client, job, device) = (ClientId(number), JobId(number), DEVICE);
        let mut out = Vec::new();
        if let Some(scheduler) = &mut scheduler {
            let terms = Terms::default();
            scheduler.step(0, Event::JobTerms { job, device, terms }, &mut out);
            scheduler.step(0, Event::ClientJoined { client, job, device }, &mut out);
        }
        programs.push(Program {
            pattern: *pattern,
            seen: Observation {
                unit_ns: 500 * US,
                ..Observation::idle(client)
            },
            used_ns: 0,
            is_open: scheduler.is_none() || out.iter().any(|command| matches!(command.action, Action::Open { .. })),
            left_ns: pattern.work_ns,
            is_on_host: false,
        });
    }
    let (mut now, mut idle_ns) = (0, 0);
    let end = 4_000 * MS;
    while now < end {
        now += LOOK;
        let running: Vec<bool> = programs.iter().map(Program::can_run).collect();
        let count = running.iter().filter(|runs| **runs).count() as u64;
        idle_ns += if count == 0 { LOOK } else { 0 };
        for (program, runs) in programs.iter_mut().zip(&running) {
            program.step(if *runs { LOOK / count } else { 0 }, LOOK);
        }
        let Some(scheduler) = &mut scheduler else { continue };
        let still_running: Vec<bool> = programs.iter().map(Program::can_run).collect();
        for (program, runs) in programs.iter_mut().zip(still_running) {
            program.look(runs);
        }
        let seen: Vec<Observation> = programs.iter().map(|program| program.seen).collect();
        let mut out = Vec::new();
        let observed = Event::Observe {
            device: DEVICE,
            seen: &seen,
        };
        scheduler.step(now, observed, &mut out);
        assert_eq!(scheduler.check(), []);
        for command in out {
            let (client, is_open) = match command.action {
                Action::Open { client, .. } => (client, true),
                Action::Close { client, .. } => (client, false),
                _ => continue,
            };
            let program = programs.iter_mut().find(|program| program.seen.client == client);
            program.expect("one of them").is_open = is_open;
        }
    }
    let used = programs.iter().map(|program| program.used_ns);
    used.chain([idle_ns]).map(|ns| ns * 1_000 / end).collect()
}

#[test]
fn who_waits_for_host_functions_leaves_the_device_to_others() {
    let always = Pattern {
        work_ns: MS,
        host_ns: 0,
    };
    // By work and host function, in microseconds: among them both sides of every patience of the broker.
    for (work, host) in [
        (3_000, 5_000),
        (3_000, 20_000),
        (900, 5_000),
        (15_000, 20_000),
        (300, 1_000),
        (1_000, 200_000),
    ] {
        let waits = Pattern {
            work_ns: work * US,
            host_ns: host * US,
        };
        let patterns = [waits, waits, always];
        let bare = parts(&patterns, None);
        let shared = parts(&patterns, Some(Scheduler::new(Config::default())));
        // What the two can use of the device is theirs up to their shares; all else is the third's.
        let alone = 1_000 * work / (work + host);
        let least = bare[2].min(1_000 - 2 * alone.min(333)).saturating_sub(20);
        assert!(
            shared[2] >= least,
            "{work}/{host}: {shared:?}, bare {bare:?}, at least {least}"
        );
        // A gate opens a look later than the device falls idle, once for each of the two.
        let late = 2 * 1_000 * LOOK / ((work + host) * US);
        assert!(
            shared[3] <= bare[3] + 20 + late,
            "{work}/{host}: {shared:?} idle, bare {bare:?}"
        );
    }
}
