// SPDX-License-Identifier: Apache-2.0
//! The program gets memory after it was refused some: what it recovered from is no failure, and the broker hears so.

use partage_protocol::message::NOTICE_RECOVERED;

use crate::explain;
use crate::guest::errno;
use crate::session;
use crate::state::State;

/// The program gets memory.
#[inline(always)]
pub fn granted(state: &State) {
    if explain::is_any_open(state) {
        recovered(state);
    }
}

#[cold]
#[inline(never)] // one body for all the hooks that call it
fn recovered(state: &State) {
    let (slot, answers) = explain::close(state);
    if answers > 0 {
        errno::preserving(|| session::notice(state, NOTICE_RECOVERED, slot, answers.into()));
    }
}
