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

use core::sync::atomic::{AtomicU64, Ordering};

use partage_protocol::message::NO_INDEX;
use partage_protocol::reservation::Denial;
use partage_protocol::units::{GIB, MIB};

use crate::attachment;
use crate::attachment::job::Job;
use crate::attachment::own_use;
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
}

// SAFETY: all-zero memory is a number; nothing else lies in this room.
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

/// Says why `bytes` were denied on a slot. `used` is what this process has there, `limit` the job's.
#[cold]
pub fn denial(state: &State, slot: usize, bytes: u64, numbers: (u64, u64), why: Denial) {
    let mut line = note::Line::new();
    line.push_amount(bytes).push(" asked, ");
    finish(state, slot, line, bytes, numbers, why);
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
    finish(state, slot, line, bytes.max(least), (used, limit), why);
}

fn finish(state: &State, slot: usize, mut line: note::Line, bytes: u64, (used, limit): (u64, u64), why: Denial) {
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
    match attachment::of(state).job() {
        Some(job) => push_job(&mut line, job, slot, bytes, (used, limit), why),
        None => push_alone(state, &mut line, (used, limit), why),
    }
    say(state, &line);
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
    if state.settings().is_quiet {
        return note::explain(state, line, note::Loudness::Log);
    }
    let now = sys::now_ns();
    let told_ns = &explained(state).ns;
    let told = told_ns.load(Ordering::Relaxed);
    let is_due = (told == 0 || now.wrapping_sub(told) > TELL_EVERY_NS)
        && told_ns
            .compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
    // Off a terminal a log file keeps every line: the first says that there are denials, `partage why` the rest.
    let loudness = match (is_due, told) {
        (false, _) => note::Loudness::Log,
        (true, 0) => note::Loudness::Everywhere,
        (true, _) => note::Loudness::Terminal,
    };
    note::explain(state, line, loudness);
}
