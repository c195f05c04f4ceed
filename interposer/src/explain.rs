// SPDX-License-Identifier: Apache-2.0
//! Why an allocation, a context or a module was denied, in one line: with the numbers, and what to do about it.
//!
//! `3.2 GiB asked, limit 8 GiB, 6.1 GiB in use by j42 (GPU 0), raise with: partage set j42 mem=9.5GiB`
//! `1 GiB asked, process limit 4 GiB, 3.5 GiB in use by pid 77 (GPU 0), raise with: partage set process:77 mem=4.5GiB`
//!
//! The library makes this sentence; the broker sends none. The broker's answer brings the reason (limit, or card full)
//! and what the job uses. That no broker answers is a reason that the library finds by itself. While none has ever
//! answered, the numbers are what this process knows of the job, and the sentence says what was found in the broker's
//! place. `partage why` has sentences of its own (`policy/src/views/`).
//!
//! An allocation that is refused once may be an allocator's that frees its cache and asks again: it is said when the
//! next one on that device is refused too, or at the end of the process, and not at all after an allocation that
//! succeeded there ([`Refusals`]). The log has it at once. That no broker answers, and a context or module that has no
//! room, are said at once everywhere.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use partage_protocol::message::{MAX_DEVICES, NO_INDEX};
use partage_protocol::reservation::Denial;
use partage_protocol::units::{GIB, MIB};
use partage_records::refusals::Refusals;

use crate::attachment;
use crate::attachment::job::Job;
use crate::attachment::own_use;
use crate::guest::errno;
use crate::guest::sys;
use crate::guest::text::push_uuid;
use crate::note;
use crate::state::rooms::{Owner, Room};
use crate::state::{Found, State};

/// Longest silence between two lines about denials on a terminal: a caching allocator is denied often, by design.
const TELL_EVERY_NS: u64 = 10_000_000_000;
/// A proposed limit is a multiple of this.
const STEP: u64 = 256 * MIB;

/// What was explained. All-zero memory is "nothing".
struct Explained {
    /// When a denial was last told to the terminal.
    ns: AtomicU64,
    /// A thread writes a refusal; another that is refused meanwhile leaves it its own.
    is_busy: AtomicBool,
    /// By slot: what one device refuses is no word about another.
    devices: [Open; MAX_DEVICES],
}

/// What a device refused, until it is known whether that was a failure.
struct Open {
    /// [`Refusals`].
    refusals: AtomicU32,
    /// The reason of the last, and the process of [`Denial::Unfreed`] above [`REASON_BITS`].
    why: AtomicU32,
    /// The last: bytes, used, limit.
    numbers: [AtomicU64; 3],
}

/// A process identifier has 22 bits.
const REASON_BITS: u32 = 3;

// SAFETY: all-zero memory is a number, or false; nothing else lies in this room.
unsafe impl Room for Explained {
    const OWNER: Owner = Owner::Explained;
}

fn explained(state: &State) -> &Explained {
    state.room()
}

/// The clock is another: what is told next is the first.
pub fn forget_time(state: &State) {
    explained(state).ns.store(0, Ordering::Relaxed);
}

/// Says why `bytes` were denied on a slot, now or when it is known to be a failure. `used` is what this process has
/// there, `limit` the job's.
#[cold]
pub fn denial(state: &State, slot: usize, bytes: u64, numbers: (u64, u64), why: Denial) {
    let refusal = Refusal::new(state, slot, bytes, numbers, why);
    let line = refusal.line(state);
    if why == Denial::NoBroker {
        return say(state, &line);
    }
    let Some(open) = explained(state).devices.get(slot) else {
        return say(state, &line);
    };
    open.remember(&explained(state).is_busy, &refusal);
    let mut is_said = false;
    open.step(|refusals| {
        let (next, is_said_now) = refusals.refused();
        is_said = is_said_now;
        next
    });
    if is_said {
        say(state, &line);
    } else {
        note::explain(state, &line, note::Loudness::Log);
    }
}

/// The broker denied something on a slot, and counted it.
#[cold]
pub fn answered(state: &State, slot: usize) {
    if let Some(open) = explained(state).devices.get(slot) {
        open.step(Refusals::answered);
    }
}

/// Is a refusal of a slot open?
#[inline(always)]
pub fn is_open(state: &State, slot: usize) -> bool {
    let open = explained(state).devices.get(slot);
    open.is_some_and(|open| open.refusals.load(Ordering::Relaxed) != 0)
}

/// The program gets memory of a slot after refusals: how many of the broker's answers are no failures.
#[cold]
pub fn close(state: &State, slot: usize) -> u32 {
    let mut answers = 0;
    if let Some(open) = explained(state).devices.get(slot) {
        open.step(|refusals| {
            let (next, recovered) = refusals.granted();
            answers = recovered;
            next
        });
    }
    answers
}

/// The process ends: says what each device refused last, if it was neither said nor recovered from.
pub fn at_exit(state: &State) {
    for (slot, open) in explained(state).devices.iter().enumerate() {
        if Refusals::of(open.refusals.load(Ordering::Relaxed)).is_pending() {
            errno::preserving(|| {
                let line = open.recall(slot).line(state);
                let loudness = loudness(state);
                note::speak(state, &line, loudness);
            });
        }
    }
}

/// Says why something that no call names the bytes of had to go: `what` needs `bytes`, or as much as nobody knows (0).
#[cold]
pub fn excess(state: &State, slot: usize, what: &str, bytes: u64, (used, limit): (u64, u64), why: Denial) {
    let mut line = note::Line::new();
    line.push(what);
    if why == Denial::NoBroker {
        line.push(" is denied, ");
    } else if bytes > 0 {
        line.push(" needs ").push_amount(bytes).push(", ");
    } else {
        line.push(" does not fit, ");
    }
    // Unknown: whatever is left did not do.
    let least = limit.saturating_sub(used).saturating_add(1);
    Refusal::new(state, slot, bytes.max(least), (used, limit), why).finish(state, &mut line);
    say(state, &line);
}

/// What was refused, with the numbers of that moment.
struct Refusal {
    slot: usize,
    bytes: u64,
    used: u64,
    limit: u64,
    why: Denial,
}

impl Refusal {
    fn new(state: &State, slot: usize, bytes: u64, (used, limit): (u64, u64), why: Denial) -> Self {
        // The answer to the ask that ended here, or the sum that was made in its place, said what the whole job uses.
        let used = attachment::of(state)
            .last_job_used
            .get(slot)
            .map_or(used, |last| last.load(Ordering::Relaxed).max(used));
        let (used, limit) = match why {
            Denial::ProcessLimit => (
                own_use::own(state, slot),
                own_use::process_limit(attachment::of(state), slot),
            ),
            _ => (used, limit),
        };
        Self {
            slot,
            bytes,
            used,
            limit,
            why,
        }
    }

    /// Of an allocation.
    fn line(&self, state: &State) -> note::Line {
        let mut line = note::Line::new();
        line.push_amount(self.bytes).push(" asked, ");
        self.finish(state, &mut line);
        line
    }

    fn finish(&self, state: &State, line: &mut note::Line) {
        let numbers = (self.used, self.limit);
        match attachment::of(state).job() {
            Some(job) => push_job(line, job, self.slot, self.bytes, numbers, self.why),
            None => push_alone(state, line, numbers, self.why),
        }
    }
}

impl Open {
    fn step(&self, mut next: impl FnMut(Refusals) -> Refusals) {
        let _ = self
            .refusals
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
                Some(next(Refusals::of(word)).word())
            });
    }

    fn remember(&self, is_busy: &AtomicBool, refusal: &Refusal) {
        if is_busy.swap(true, Ordering::Acquire) {
            return;
        }
        let (why, pid) = match refusal.why {
            Denial::Limit => (0, 0),
            Denial::ProcessLimit => (1, 0),
            Denial::CardFull => (2, 0),
            Denial::Unfreed(pid) => (3, pid),
            Denial::Invalid => (4, 0),
            Denial::NoBroker => (5, 0),
        };
        self.why.store(why | pid << REASON_BITS, Ordering::Relaxed);
        let [bytes, used, limit] = &self.numbers;
        bytes.store(refusal.bytes, Ordering::Relaxed);
        used.store(refusal.used, Ordering::Relaxed);
        limit.store(refusal.limit, Ordering::Relaxed);
        is_busy.store(false, Ordering::Release);
    }

    fn recall(&self, slot: usize) -> Refusal {
        let [bytes, used, limit] = self.numbers.each_ref().map(|word| word.load(Ordering::Relaxed));
        let why = self.why.load(Ordering::Relaxed);
        let pid = why >> REASON_BITS;
        let why = match why & ((1 << REASON_BITS) - 1) {
            0 => Denial::Limit,
            1 => Denial::ProcessLimit,
            2 => Denial::CardFull,
            3 => Denial::Unfreed(pid),
            4 => Denial::Invalid,
            _ => Denial::NoBroker,
        };
        Refusal {
            slot,
            bytes,
            used,
            limit,
            why,
        }
    }
}

/// The numbers while no broker has answered, and what was found in its place.
fn push_alone(state: &State, line: &mut note::Line, (used, limit): (u64, u64), why: Denial) {
    if limit != u64::MAX {
        line.push("limit ").push_amount(limit).push(", ");
    }
    line.push_amount(used).push(" in use by this job; ");
    if state.found() == Found::Barred {
        line.push("no permission to enter ")
            .push(state.settings().socket_dir.as_bytes())
            .push(": ");
    }
    line.push(match (why, state.found()) {
        (Denial::NoBroker, Found::Unserving) => {
            "the broker is there and does not answer: memory stays closed until it does"
        }
        (Denial::NoBroker, Found::Unable) => {
            "this process has no descriptor or no memory left to reach the broker: memory stays closed until it has"
        }
        (Denial::NoBroker, Found::Refusal) => "the broker refuses this process: it gets no memory",
        (Denial::NoBroker, Found::Nobody) => "no broker is there, and /tmp cannot hold what the job uses",
        (Denial::NoBroker, Found::Barred) => "no broker can be asked, and /tmp cannot hold what the job uses",
        (_, Found::Barred) => "no broker can be asked to raise it",
        _ => "no broker is there to raise it",
    });
}

/// The job's numbers on a device, or this process's where its own limit denied, and what to do.
fn push_job(line: &mut note::Line, job: &Job, slot: usize, bytes: u64, (used, limit): (u64, u64), why: Denial) {
    let device = job.devices().get(slot);
    let total = device.map_or(u64::MAX, |device| device.total.load(Ordering::Relaxed));
    let (of, by, raise, number) = match why {
        Denial::ProcessLimit => (
            "process ",
            " in use by pid ",
            ", raise with: partage set process:",
            sys::pid().into(),
        ),
        _ => ("", " in use by j", ", raise with: partage set j", job.number()),
    };
    line.push(of)
        .push("limit ")
        .push_amount(limit)
        .push(", ")
        .push_amount(used);
    line.push(by).push_number(number);
    if let Some(device) = device {
        line.push(" (");
        let index = device.index.load(Ordering::Relaxed);
        if index == NO_INDEX {
            push_uuid(line, &device.uuid(), device.is_mig());
        } else {
            line.push("GPU ").push_number(index.into());
        }
        line.push(")");
    }
    match why {
        Denial::Limit | Denial::ProcessLimit | Denial::Invalid => {
            let needed = used
                .saturating_add(bytes)
                .checked_next_multiple_of(STEP)
                .unwrap_or(u64::MAX);
            if needed > total {
                line.push("; the whole GPU has ").push_amount(total);
            } else {
                line.push(raise).push_number(number).push(" mem=");
                if needed.is_multiple_of(GIB) {
                    line.push_number(needed / GIB).push("GiB");
                } else {
                    line.push_number(needed / MIB).push("MiB");
                }
            }
        }
        Denial::CardFull => {
            line.push("; a higher limit alone would not help, see: partage why j")
                .push_number(job.number());
        }
        Denial::Unfreed(pid) => {
            line.push("; pid ")
                .push_number(pid.into())
                .push(" has ended and the driver has not freed its memory yet: try again");
        }
        Denial::NoBroker => {
            line.push("; no broker answers, so the job's share cannot grow");
        }
    }
}

fn say(state: &State, line: &note::Line) {
    let loudness = loudness(state);
    note::explain(state, line, loudness);
}

/// How loud what is said now is.
fn loudness(state: &State) -> note::Loudness {
    if state.settings().is_quiet {
        return note::Loudness::Log;
    }
    let now = sys::now_ns();
    let told_ns = &explained(state).ns;
    let told = told_ns.load(Ordering::Relaxed);
    let is_due = (told == 0 || now.wrapping_sub(told) > TELL_EVERY_NS)
        && told_ns
            .compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
    // Off a terminal a log file keeps every line: the first says that there are denials, `partage why` the rest.
    match (is_due, told) {
        (false, _) => note::Loudness::Log,
        (true, 0) => note::Loudness::Everywhere,
        (true, _) => note::Loudness::Terminal,
    }
}
