// SPDX-License-Identifier: Apache-2.0
//! What each process of a job may use while no broker is there: the limit is the job's, not each process's.
//!
//! One file serves all jobs of a socket folder. Each process that has no broker has a *record* in it: the job by its
//! token, the process (pid, start time, pid namespace, program, copy of the library), and its grant on each device. A
//! process that wants more takes the file's lock, adds up the job's living records, and writes its own before it uses
//! what the limit leaves:
//!
//! ```text
//!   raise:  lock ── others + wanted <= limit? ── no ──► denied: the limit
//!                                 │ yes
//!           record := max(wanted, U), then G likewise ── unlock
//!   lower:  G := U, then record := G        (after a free; skipped while another process holds the lock)
//! ```
//! Invariants: 1. a process's G is never above its record. 2. Whenever a record rises, the living records of its job
//! are within the limit. A record of a process that is gone, however it died, counts for nothing, and the next process
//! takes it; the kernel takes the lock from a holder that dies. An attached process that finds its broker gone records
//! the grants that it keeps.

pub mod own_record;

use core::sync::atomic::Ordering;

use partage_protocol::message::MAX_DEVICES;
use partage_protocol::reservation::{AskAnswer, Denial};
use partage_records::raise::{self, Raise};

use crate::attachment::own_use;
use crate::attachment::{self, Attachment};
use crate::job_word::own_record::Share;
use crate::state::{Found, Phase, State};

/// Longest wait for another process's hold of the file, which takes microseconds unless it was stopped in between.
const LOCK_WAIT_NS: u64 = 1_000_000_000;

/// Raises this process's grant on a slot to `wanted`, if the job's limit and the other processes' grants leave that.
///
/// Precondition: nobody is there to ask.
pub fn raise(state: &State, slot: usize, wanted: u64) -> AskAnswer {
    if !state.settings().expects_broker() {
        // No job, no limit.
        own_use::set_granted(attachment::of(state), slot, u64::MAX);
        return AskAnswer::Retry;
    }
    // A job that began without a limit may have got one: then a process that was attached has it on record.
    let limit = state.settings().memory_limit.unwrap_or(u64::MAX);
    let mut record = own_record::of(state).hold();
    // Another thread may have attached, or raised the grant, while this one waited.
    if attachment::of(state).broker_page().is_some() || wanted <= attachment::of(state).own.granted(slot) {
        return AskAnswer::Retry;
    }
    let own = (
        attachment::of(state).own.granted(slot),
        attachment::of(state).own.used(slot),
    );
    let Some(mut file) = record.open(state.settings(), LOCK_WAIT_NS) else {
        if record.is_unreachable() && (state.found() == Found::Barred || limit == u64::MAX) {
            // No record of the job can be reached: the environment's limit is this process's own.
            return raise_to(state, slot, raise::raise(wanted, own, 0, limit), |_| true);
        }
        return AskAnswer::Denied(Denial::NoBroker);
    };
    if !file.find() {
        return AskAnswer::Denied(Denial::NoBroker);
    }
    let uuid = own_use::standalone_uuid(state, slot);
    let (others, told) = file.others(&uuid);
    if let Some(used) = attachment::of(state).last_job_used.get(slot) {
        used.store(others.saturating_add(own.1), Ordering::Relaxed);
    }
    let answer = raise::raise(wanted, own, others, limit.min(told));
    raise_to(state, slot, answer, |granted| {
        let mut shares = shares(state, |attachment, slot| attachment.own.granted(slot));
        if let Some(share) = shares.get_mut(slot) {
            share.granted = granted;
        }
        file.write(shares)
    })
}

/// This process's part of each standalone slot, as `granted` says.
fn shares(state: &State, granted: impl Fn(&Attachment, usize) -> u64) -> [Share; MAX_DEVICES] {
    core::array::from_fn(|slot| Share {
        uuid: own_use::standalone_uuid(state, slot),
        granted: granted(attachment::of(state), slot),
        limit: 0,
    })
}

/// Does what was decided: first what `record` writes, then G.
fn raise_to(state: &State, slot: usize, decided: Raise, record: impl FnOnce(u64) -> bool) -> AskAnswer {
    match decided {
        Raise::Enough => AskAnswer::Retry,
        Raise::Denied => AskAnswer::Denied(Denial::Limit),
        Raise::To(granted) if record(granted) => {
            own_use::set_granted(attachment::of(state), slot, granted);
            AskAnswer::Retry
        }
        Raise::To(_) => AskAnswer::Denied(Denial::NoBroker),
    }
}

/// Lowers this process's grants to what it uses, for the job's other processes to take. Never waits.
pub fn lower(state: &State) {
    if state.phase() != Phase::Standalone || !state.settings().expects_broker() {
        return;
    }
    let Some(mut record) = own_record::of(state).try_hold() else {
        return;
    };
    if !record.is_taken() || attachment::of(state).broker_page().is_some() {
        return;
    }
    let Some(mut file) = record.open(state.settings(), 0) else {
        return;
    };
    if !file.find() {
        return;
    }
    file.write(shares(state, own_use::lower_granted));
}

/// Records the grants that this attached process keeps while no broker is there. `false`: not now, to be tried again.
pub fn keep_grants(state: &State) -> bool {
    let (Some(job), Some(page)) = (attachment::of(state).job(), attachment::of(state).broker_page()) else {
        return true;
    };
    if !state.settings().expects_broker() {
        return true;
    }
    let mut record = own_record::of(state).hold();
    let Some(mut file) = record.open(state.settings(), LOCK_WAIT_NS) else {
        return false;
    };
    if !file.find() {
        return false;
    }
    let mut shares = [Share::default(); MAX_DEVICES];
    for ((share, device), line) in shares.iter_mut().zip(job.devices()).zip(&page.devices) {
        *share = Share {
            uuid: device.uuid(),
            granted: line.granted.load(Ordering::SeqCst),
            limit: line.limit.load(Ordering::Relaxed),
        };
    }
    file.write(shares)
}

/// Lets go of the file where a jump took its holder away, for the job's other processes.
pub fn let_go(state: &State) {
    own_record::of(state).hold().close();
}

/// This process has no record any more: as a restored one it has another start time.
pub fn forget(state: &State) {
    own_record::of(state).hold().forget();
}

/// What the job's other processes hold on a slot's device, for the program's eyes. `None`: that cannot be told now.
pub fn others(state: &State, slot: usize) -> Option<u64> {
    state.settings().memory_limit?;
    let mut record = own_record::of(state).try_hold()?;
    let mut file = record.open(state.settings(), 0)?;
    file.find()
        .then(|| file.others(&own_use::standalone_uuid(state, slot)).0)
}
