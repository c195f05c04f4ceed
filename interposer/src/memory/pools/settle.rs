// SPDX-License-Identifier: Apache-2.0
//! How U follows what the driver says of a pool.

use core::sync::atomic::Ordering;

use partage_protocol::pool::{Settled, Ticket};
use partage_protocol::reservation::Denial;

use super::entries::{remove, with};
use super::source::Reading;
use super::table::Source;
use crate::attachment;
use crate::guest::errno;
use crate::memory::account;
use crate::memory::charge::Charge;
use crate::memory::pools::table;
use crate::memory::tables;
use crate::state::State;

/// Readings of one pool before whoever reads it leaves the rest to the next one: each is spoiled by another thread's
/// progress only.
const READINGS: u32 = 64;

/// How far U may be raised by a settlement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Raise {
    /// As far as the broker allows.
    Asking,
    /// As far as is granted.
    Granted,
    /// Not.
    Never,
}

/// What a settlement did.
pub struct Outcome {
    /// Bytes that U fell by.
    pub given_back: u64,
    /// The pool had grown by more than was reserved.
    pub has_grown: bool,
    /// What is charged covers a reading.
    pub is_known: bool,
    /// The growth that U could not be raised for, and why.
    pub denial: Option<(Denial, u64)>,
}

/// Brings U to what the pool reserves, whatever else happens to the pool meanwhile.
#[inline]
pub fn settle(
    state: &State,
    id: u64,
    source: Source,
    charge: &Charge,
    ticket: &mut Ticket,
    mut reserved: u64,
    mut asked: u64,
    raise: Raise,
) -> Outcome {
    let mut outcome = Outcome {
        given_back: 0,
        has_grown: false,
        is_known: false,
        denial: None,
    };
    for _ in 0..READINGS {
        let reading = source.reserved();
        let mut held = tables::hold(state);
        let Some(entry) = held.pools.get(id) else {
            // Destroyed meanwhile: what was charged, this reservation included, went with it.
            return outcome;
        };
        let Reading::Bytes(bytes) = reading else {
            drop(held);
            match reading {
                Reading::Gone => outcome.given_back = close(state, id, charge),
                _ => give_up(state, id, reserved),
            }
            return outcome;
        };
        let former = entry.account.reserved();
        let settled = entry
            .account
            .settle(ticket, reserved, asked, bytes, raise != Raise::Never);
        if settled == Settled::Stale {
            continue;
        }
        if bytes < former {
            entry.blocks.forget();
        }
        drop(held);
        (reserved, asked) = (0, 0);
        outcome.is_known = true;
        match settled {
            Settled::Stale | Settled::Even => return outcome,
            Settled::Less(bytes) => {
                account::release(state, charge, bytes);
                outcome.given_back = outcome.given_back.saturating_add(bytes);
                return outcome;
            }
            Settled::More(bytes) => {
                outcome.has_grown = true;
                if own_growth(state, id, charge, ticket, bytes, raise, &mut outcome) {
                    return outcome;
                }
            }
        }
    }
    give_up(state, id, reserved);
    outcome
}

/// Nobody could say what the pool reserves now: what was reserved stays charged until the next look.
#[cold]
fn give_up(state: &State, id: u64, reserved: u64) {
    with(state, |table| {
        if let Some(entry) = table.get(id) {
            entry.account.give_up(reserved);
        }
    });
    table::pools(state).watched.store(1, Ordering::Relaxed);
}

/// There is no such pool any more. Answers the bytes that were charged for it.
#[cold]
fn close(state: &State, id: u64, charge: &Charge) -> u64 {
    let all = with(state, |table| {
        let all = table.get(id).map(|entry| entry.account.close(0))?;
        remove(state, table, id);
        Some(all)
    });
    // Another thread may have found out first.
    let all = all.unwrap_or(0);
    account::release(state, charge, all);
    all
}

/// Raises U by growth that no reservation covered. `true`: there is nothing more to do.
#[cold]
fn own_growth(
    state: &State,
    id: u64,
    charge: &Charge,
    ticket: &mut Ticket,
    bytes: u64,
    raise: Raise,
    outcome: &mut Outcome,
) -> bool {
    let raised = match raise {
        Raise::Asking => errno::preserving(|| account::reserve(state, charge, bytes)),
        Raise::Granted if account::reserve_granted(attachment::of(state), charge, bytes) => Ok(()),
        Raise::Granted | Raise::Never => Err(Denial::Limit),
    };
    with(state, |table| {
        let Some(entry) = table.get(id) else {
            // Destroyed meanwhile; what was raised is nobody's.
            return Err(raised.is_ok());
        };
        match raised {
            Ok(()) => Ok(entry.account.own(ticket, bytes)),
            Err(denial) => {
                entry.account.disown(bytes);
                outcome.denial = Some((denial, bytes));
                Ok(true)
            }
        }
    })
    .unwrap_or_else(|is_raised| {
        if is_raised {
            account::release(state, charge, bytes);
        }
        true
    })
}
