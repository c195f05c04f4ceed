// SPDX-License-Identifier: Apache-2.0
//! Finds the threads that say that they are inside and are not: those that died in a call, and those that left one by a
//! jump and called nothing since.
//!
//! Done by our own thread while the hold is closed. A thread outside is noted with the hold word ([`hold`]): whoever
//! comes in under that word stands, so the note stays true until the word changes. A thread is outside when it is dead;
//! or when it sleeps in the kernel and its stack ends above the hook that it was in. One that runs, or sleeps below the
//! place of that hook, is taken to be inside.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use partage_protocol::gate::ThreadSlot;
use partage_protocol::hold::{self, is_closed};
use partage_protocol::page::ClientFile;

use super::early;
use super::own_slot;
use super::process::{self, Gates};
use crate::attachment;
use crate::guard;
use crate::guest::{mappings, sys};
use crate::state::State;

/// Is the hold of this process closed?
pub fn is_held(state: &State) -> bool {
    let word = |page: &partage_protocol::page::BrokerPage| page.head.hold.load(Ordering::Relaxed);
    attachment::of(state)
        .broker_page()
        .is_some_and(|page| is_closed(word(page)))
}

/// Notes every thread that is outside.
pub fn note(state: &State) {
    let (Some(broker), Some(file), Some(gates)) = (
        attachment::of(state).broker_page(),
        attachment::of(state).client_file(),
        process::get(),
    ) else {
        return;
    };
    count_out_early(gates, file);
    let word = broker.head.hold.load(Ordering::Acquire);
    if !is_closed(word) {
        return;
    }
    for place in file.time.places() {
        let thread = place.thread.load(Ordering::Acquire);
        let is_noted = place.out.load(Ordering::Relaxed) == word;
        let is_to_note = place.is_inside() && !is_noted;
        let says_waiting = place.wants.load(Ordering::Acquire) != 0;
        if thread == 0 || !(is_to_note || says_waiting) {
            continue;
        }
        if is_to_note {
            place.out.store(hold::judging(word), Ordering::SeqCst);
        }
        if is_outside(thread, place) {
            // A thread that stands at the hold is inside its hook, and counts itself in again should this be wrong.
            own_slot::count_out(file, place);
            if is_to_note {
                // A call from below that hook, which took itself for a nested one, has cleared it: it is inside.
                let (from, to) = (hold::judging(word), word);
                let _ = place
                    .out
                    .compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed);
            }
        }
    }
}

/// Calls that began before this process was a client end for good: nobody takes such a place any more.
fn count_out_early(gates: &Gates, file: &ClientFile) {
    if file.page.head.early.load(Ordering::Relaxed) == 0 {
        return;
    }
    for place in &gates.early {
        let thread = place.thread.load(Ordering::Acquire);
        if thread != 0 && is_outside(thread, place) {
            own_slot::give_back(place);
        }
    }
    early::settle(gates, file);
}

/// Has a thread that says that it is in a call died in it, or left it by a jump?
pub fn is_outside(thread: u32, place: &ThreadSlot) -> bool {
    if !sys::has_thread(thread) {
        return true;
    }
    let Some(end) = sys::stack_pointer_of(thread) else {
        return false;
    };
    let Some(now) = word_at(place.home.load(Ordering::Acquire)) else {
        return false;
    };
    // Outside of hooks the word is no address.
    match guard::frame_in(now) {
        None => true,
        Some(frame) => end > frame && mappings::is_one_mapping(frame, end),
    }
}

/// A word of this process's memory, read by the kernel: the thread that it belongs to may end meanwhile.
fn word_at(address: u64) -> Option<u64> {
    if address == 0 {
        return None;
    }
    let fd = c_int::try_from(sys::open_own(c"mem", libc::O_RDONLY)).ok()?;
    if fd < 0 {
        return None;
    }
    let mut word = [0; 8];
    let length = sys::read_at(fd, &mut word, address.wrapping_add(guard::NOW as u64));
    sys::close(fd);
    (length == 8).then(|| u64::from_ne_bytes(word))
}
