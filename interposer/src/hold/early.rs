// SPDX-License-Identifier: Apache-2.0
//! Calls that begin before this process is a client: nobody can hold them, but they may last until somebody wants to.
//!
//! Each has a place in memory of this process. Once it attaches, `ClientHead::early` says whether one of them is left;
//! no other call takes such a place from then on.

use core::sync::atomic::{Ordering, fence};

use partage_protocol::hold::ties::UNCOUNTED;
use partage_protocol::page::ClientFile;

use super::own_slot;
use super::process::{self, Gates};
use crate::attachment;
use crate::state::State;

/// A call begins. `false`: the process has become a client meanwhile, and the call has to be held like any other.
pub fn enter(state: &State, gates: &Gates) -> bool {
    match own_slot::borrow_nearby(&gates.early) {
        Some(place) => place.inside.store(1, Ordering::Release),
        None => gates.has_uncounted.store(true, Ordering::Release),
    }
    // Against the look in `attached`: one of the two sees the other.
    fence(Ordering::SeqCst);
    // The page that is published last: without it the call could not be held.
    if attachment::of(state).broker_page().is_none() {
        return true;
    }
    leave(state, gates);
    false
}

/// This thread's call ends, if it has such a place.
pub fn leave(state: &State, gates: &Gates) {
    let Some(place) = own_slot::nearby(&gates.early) else {
        return;
    };
    own_slot::give_back(place);
    if let Some(file) = attachment::of(state).client_file() {
        settle(gates, file);
    }
}

/// An outermost call of this thread stands at the hold: any such place that it has is done with, or was left by a jump.
pub fn forget(gates: &Gates, file: &ClientFile) {
    if file.page.head.early.load(Ordering::Relaxed) == 0 {
        return;
    }
    while let Some(place) = own_slot::nearby(&gates.early) {
        own_slot::give_back(place);
    }
    settle(gates, file);
}

/// The process has become a client: the pages are shown to every thread.
pub fn attached(file: &ClientFile) {
    let Some(gates) = process::get() else { return };
    file.page.head.early.store(1, Ordering::SeqCst);
    if gates.has_uncounted.load(Ordering::Acquire) {
        file.page.head.ties.fetch_or(UNCOUNTED, Ordering::AcqRel);
    }
    settle(gates, file);
}

/// Says so when the last of them has ended.
pub fn settle(gates: &Gates, file: &ClientFile) {
    fence(Ordering::SeqCst);
    let is_empty = gates
        .early
        .iter()
        .all(|place| place.thread.load(Ordering::Acquire) == 0);
    if is_empty {
        file.page.head.early.store(0, Ordering::Release);
    }
}
