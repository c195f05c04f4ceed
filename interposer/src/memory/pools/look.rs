// SPDX-License-Identifier: Apache-2.0
//! Reading pools again that may have given memory back, and having them give it back.

use core::sync::atomic::Ordering;

use super::entries::{leave, with};
use super::leaving::refund_arrived;
use super::settle::{Raise, settle};
use super::table::{Entry, Leaving, Source};
use crate::attachment;
use crate::guest::errno;
use crate::guest::sys;
use crate::memory::charge::Charge;
use crate::memory::pools::table;
use crate::memory::words::{Operation, numbering};
use crate::state::State;
use crate::stream::relaxed;

/// Whether a look is preceded by having the driver give back what nobody uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Trim {
    Yes,
    No,
}

/// Frees in stream order that have been refunded, and pools read again, once trimmed: bytes that U fell by.
#[cold]
pub fn look_again(state: &'static State, charge: &Charge, trim: Trim) -> u64 {
    let is_here = |other: &Charge| other.slot == charge.slot && other.is_standalone == charge.is_standalone;
    let left = wait_for_streams(state, &|leaving| is_here(&leaving.charge));
    left.saturating_add(look(state, trim, &|entry| is_here(&entry.charge)))
}

/// Refunds what streams have freed, and gives those that are about to come to it a millisecond. A stream that takes
/// longer keeps its memory, and the job its charge.
fn wait_for_streams(state: &'static State, is_meant: &dyn Fn(&Leaving) -> bool) -> u64 {
    for _ in 0..UNDO_LOOKS {
        let (given_back, is_left) = refund_arrived(state, is_meant);
        if given_back > 0 || !is_left {
            return given_back;
        }
        sys::sleep_ns(UNDO_WAIT_NS);
    }
    0
}

/// Makes room in a slot for an allocation that was denied there: bytes that U fell by.
#[cold]
pub fn make_room(state: &'static State, slot: usize) -> u64 {
    if table::pools(state).count.load(Ordering::Relaxed) == 0 && !with(state, |table| table.has_leaving()) {
        return 0;
    }
    let Some(is_standalone) = numbering(state) else {
        return 0;
    };
    errno::preserving(|| look_again(state, &Charge::nothing(slot, is_standalone), Trim::Yes))
}

/// Reads the pools that are meant. Answers the bytes that U fell by.
#[cold]
pub fn look(state: &'static State, trim: Trim, is_meant: &dyn Fn(&Entry) -> bool) -> u64 {
    let (mut after, mut given_back) = (0, 0_u64);
    loop {
        let found = with(state, |table| {
            let entry = table.next(after, |entry| entry.is_readable() && is_meant(entry))?;
            entry.users += 1;
            Some((*entry, entry.account.look()))
        });
        let Some((entry, mut ticket)) = found else {
            return given_back;
        };
        after = entry.id;
        let operation = Operation::begin_again(attachment::of(state), &entry.charge);
        if trim == Trim::Yes {
            trim_quietly(state, &entry.source);
        }
        let mut read = || {
            settle(
                state,
                entry.id,
                entry.source,
                &entry.charge,
                &mut ticket,
                0,
                0,
                Raise::Granted,
            )
        };
        let mut outcome = read();
        if trim == Trim::No && outcome.denial.is_some() {
            // More than is charged, and no room to charge it: what was undone in a busy stream is not to be kept.
            trim_quietly(state, &entry.source);
            outcome = read();
        }
        given_back = given_back.saturating_add(outcome.given_back);
        let reserved = with(state, |table| table.get(entry.id).map(|entry| entry.account.reserved()));
        // A graph's memory stays with the driver until it is trimmed.
        if !entry.source.is_graph()
            && let Some(reserved) = reserved
            && reserved > entry.threshold
            && entry.source.used().is_some_and(|used| used < reserved)
        {
            table::pools(state).watched.store(1, Ordering::Relaxed);
        }
        leave(state, entry.id);
        drop(operation);
    }
}

/// Trims without spoiling a capture.
fn trim_quietly(state: &State, source: &Source) {
    relaxed(state, source.library(), || source.trim());
}

/// Looks at a pool that has to shrink, at most so often.
const UNDO_LOOKS: u32 = 20;
/// Between two of those looks: what was undone is free when its stream gets there.
const UNDO_WAIT_NS: u64 = 50_000;

/// Gives back what a call that was undone made a pool grow by, as far as the driver lets it go within a millisecond.
#[cold]
pub fn shrink_after_undo(state: &'static State, source: Source) {
    errno::preserving(|| {
        for _ in 0..UNDO_LOOKS {
            look(state, Trim::Yes, &|entry| entry.source == source);
            let is_charged = with(state, |table| {
                table
                    .find(source)
                    .is_none_or(|entry| entry.account.reserved() <= entry.account.charged())
            });
            if is_charged {
                return;
            }
            sys::sleep_ns(UNDO_WAIT_NS);
        }
    });
}

/// The program trimmed a pool, or did something else that may have made it smaller.
pub fn changed(state: &'static State, source: Source) {
    if table::pools(state).count.load(Ordering::Relaxed) != 0 {
        errno::preserving(|| look(state, Trim::No, &|entry| entry.source == source));
    }
}

/// Something that the driver did may have made any pool smaller.
pub fn all_changed(state: &'static State) {
    if table::pools(state).count.load(Ordering::Relaxed) != 0 {
        errno::preserving(|| look(state, Trim::No, &|_| true));
    }
}
