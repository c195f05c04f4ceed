// SPDX-License-Identifier: Apache-2.0
//! What is added to U and taken off it, and what the program is to believe of both.
//!
//! Nothing here knows what the bytes are for: a call of the driver reserves them through
//! [`Reservation`](crate::memory::reservation::Reservation).

use core::sync::atomic::Ordering;

use partage_protocol::message::NOTICE_DENIED;
use partage_protocol::reservation::{self, AskAnswer, ClientWords, Denial};

use crate::attachment::own_use::{overhead, own, process_limit, used_and_limit};
use crate::attachment::{self, Attachment};
use crate::explain;
use crate::job_word;
use crate::memory::charge::Charge;
use crate::memory::words::{Place, current_slot, take_off, with_line};
use crate::session;
use crate::state::{Phase, State};

/// Place of a broken invariant, in notices: more was given back than was charged.
const PLACE_REFUND: u64 = 1;

/// Adds `bytes` to U where `charge` stands, within the grant. Asks nobody.
///
/// Precondition: an [`Operation`] there is under way; the ledger is not held, unless the charge was made
/// attached.
pub fn reserve_granted(attachment: &Attachment, charge: &Charge, bytes: u64) -> bool {
    let [used, granted, _] = Place::words(attachment, charge.slot as usize, charge.is_standalone);
    let is_done = reservation::charge(&used, &granted, bytes) == reservation::Charged::Done;
    if is_done {
        count_managed(attachment, charge, bytes);
    }
    is_done
}

/// Adds `bytes` to U where `charge` stands, asking the broker beyond the grant. A denial is told to nobody: see
/// [`deny`].
pub fn reserve(state: &State, charge: &Charge, bytes: u64) -> Result<(), Denial> {
    let attachment = attachment::of(state);
    let [used, granted, settled] = Place::words(attachment, charge.slot as usize, charge.is_standalone);
    let words = ClientWords {
        used: &used,
        granted: &granted,
        settled: &settled,
    };
    let slot = charge.slot as usize;
    reservation::reserve(&words, bytes, |wanted| {
        ask(state, slot, charge.is_standalone, wanted, bytes)
    })?;
    count_managed(attachment, charge, bytes);
    Ok(())
}

/// Says that U where `charge` stands is as high as it is.
pub fn mark_peak(attachment: &Attachment, charge: &Charge) {
    with_line(attachment, charge.slot as usize, charge.is_standalone, |line| {
        line.peak
            .fetch_max(line.used.load(Ordering::Relaxed), Ordering::Relaxed);
    });
}

/// One allocation more stands where `charge` does, and U is as high as it is.
pub fn count_allocation(attachment: &Attachment, charge: &Charge) {
    with_line(attachment, charge.slot as usize, charge.is_standalone, |line| {
        line.peak
            .fetch_max(line.used.load(Ordering::Relaxed), Ordering::Relaxed);
        line.allocations.fetch_add(1, Ordering::Relaxed);
    });
}

fn count_managed(attachment: &Attachment, charge: &Charge, bytes: u64) {
    if charge.is_managed {
        with_line(attachment, charge.slot as usize, charge.is_standalone, |line| {
            line.managed.fetch_add(bytes, Ordering::Relaxed);
        });
    }
}

/// Takes off U what [`reserve`] or [`reserve_granted`] added.
pub fn release(state: &State, charge: &Charge, bytes: u64) {
    let [used, ..] = Place::words(attachment::of(state), charge.slot as usize, charge.is_standalone);
    if reservation::refund(&used, bytes).is_err() && used.is_counted() {
        session::turn_off(state, PLACE_REFUND);
    }
    if charge.is_managed {
        with_line(
            attachment::of(state),
            charge.slot as usize,
            charge.is_standalone,
            |line| {
                take_off(&line.managed, bytes);
            },
        );
    }
    if charge.is_standalone {
        job_word::lower(state);
    }
}

/// Gives the charge of an allocation back: the driver freed the memory, or never gave it.
#[inline(never)] // one body for all hooks: the library is mapped by every process of a job
pub fn refund(state: &State, charge: Charge) {
    release(state, &charge, charge.bytes);
    with_line(
        attachment::of(state),
        charge.slot as usize,
        charge.is_standalone,
        |line| {
            take_off(&line.allocations, 1);
        },
    );
}

#[cold]
fn ask(state: &State, slot: usize, is_standalone: bool, wanted: u64, bytes: u64) -> AskAnswer {
    let Some(slot) = current_slot(attachment::of(state), slot, is_standalone) else {
        return AskAnswer::Retry;
    };
    if attachment::of(state).broker_page().is_none() {
        return session::ask_alone(state, slot, wanted);
    }
    let answer = session::ask(state, slot, wanted, bytes);
    if let AskAnswer::Denied(Denial::Limit | Denial::ProcessLimit | Denial::CardFull | Denial::Unfreed(_)) = answer {
        explain::answered(state, slot);
    }
    answer
}

/// Counts and explains a denial of [`reserve`] that the program is going to see.
#[cold]
pub fn deny(state: &State, charge: &Charge, bytes: u64, denial: Denial) {
    let slot = charge.slot as usize;
    with_line(attachment::of(state), slot, charge.is_standalone, |line| {
        let count = if denial == Denial::CardFull {
            &line.denied_full
        } else {
            &line.denied_limit
        };
        if denial != Denial::NoBroker {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let now_slot = current_slot(attachment::of(state), slot, charge.is_standalone).unwrap_or(slot);
    match denial {
        Denial::NoBroker => session::note_refusal(state, now_slot),
        Denial::Limit | Denial::ProcessLimit | Denial::Unfreed(_) | Denial::Invalid => {
            session::notice(state, NOTICE_DENIED, now_slot, bytes)
        }
        Denial::CardFull => {}
    }
    let (used, limit) = used_and_limit(state, now_slot);
    let used = used.saturating_add(overhead(attachment::of(state), now_slot));
    explain::denial(state, now_slot, bytes, (used, limit), denial);
}

/// What the program is to believe about a slot: a total and what of it is used, overhead included. The total is the
/// job's limit or this process's own, whichever is less, and what is left of it is what both leave. `None`: the whole
/// truth.
pub fn view(state: &State, slot: usize, is_this_process_all: bool) -> Option<(u64, u64)> {
    match state.phase() {
        Phase::Attached => {}
        Phase::Standalone if state.settings().memory_limit.is_some() => {
            let (used, limit) = used_and_limit(state, slot);
            let others = if state.found().is_alone() {
                job_word::others(state, slot)
            } else {
                None
            };
            return Some((limit, used.saturating_add(others.unwrap_or(0))));
        }
        _ => return None,
    }
    let (own, limit) = (own(state, slot), used_and_limit(state, slot).1);
    let is_alone = attachment::of(state)
        .broker_page()
        .is_some_and(|page| page.head.clients_in_job.load(Ordering::Relaxed) <= 1);
    let mut used = own;
    if !(is_alone && is_this_process_all) {
        let last = attachment::of(state).last_job_used.get(slot)?;
        if let Some(used) = session::job_used(state, slot) {
            last.store(used, Ordering::Relaxed);
        }
        used = last.load(Ordering::Relaxed).max(own);
    }
    let process_limit = process_limit(attachment::of(state), slot);
    let total = limit.min(process_limit);
    let free = limit.saturating_sub(used).min(process_limit.saturating_sub(own));
    Some((total, total - free))
}

/// The limit in a slot, the job's or this process's own, whichever is less. `None`: the device's own size.
pub fn limit(state: &State, slot: usize) -> Option<u64> {
    match state.phase() {
        Phase::Attached => Some(
            used_and_limit(state, slot)
                .1
                .min(process_limit(attachment::of(state), slot)),
        ),
        Phase::Standalone => state.settings().memory_limit,
        Phase::Fresh | Phase::Off => None,
    }
}
