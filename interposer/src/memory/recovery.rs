// SPDX-License-Identifier: Apache-2.0
//! The program gets memory after it was refused some: what it recovered from is no failure, and the broker hears so.

use partage_protocol::message::NOTICE_RECOVERED;

use crate::attachment;
use crate::explain;
use crate::guest::errno;
use crate::memory::charge::Charge;
use crate::memory::words;
use crate::session;
use crate::state::State;

/// The program gets memory where `charge` stands.
#[inline(always)]
pub fn granted(state: &State, charge: &Charge) {
    let slot = if charge.is_standalone {
        slot_now(state, charge)
    } else {
        charge.slot as usize
    };
    if explain::is_open(state, slot) {
        recovered(state, slot);
    }
}

/// The slot of a charge that was made before a broker answered.
#[cold]
fn slot_now(state: &State, charge: &Charge) -> usize {
    let slot = charge.slot as usize;
    words::current_slot(attachment::of(state), slot, true).unwrap_or(slot)
}

#[cold]
#[inline(never)] // one body for all the hooks that call it
fn recovered(state: &State, slot: usize) {
    let answers = explain::close(state, slot);
    if answers > 0 {
        errno::preserving(|| session::notice(state, NOTICE_RECOVERED, slot, answers.into()));
    }
}
