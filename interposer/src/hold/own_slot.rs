// SPDX-License-Identifier: Apache-2.0
//! Which place on the client's page the calling thread has.
//!
//! A thread takes a *slot* at its first call and keeps it; while living threads have them all it borrows a *spare
//! place* for the length of a call, under its id.

use core::sync::atomic::Ordering;

use partage_protocol::gate::ThreadSlot;
use partage_protocol::page::ClientFile;
use partage_protocol::threads;

use super::process::Gates;
use super::thread_tag::{Own, ThreadTag};
use super::waiting::stop_waiting;
use crate::guard;
use crate::guest::{lock, sys};

/// This thread's slot, taken now if it has none yet. `None`: living threads have them all, or it has borrowed a place.
pub fn take<'a>(gates: &Gates, file: &'a ClientFile) -> Option<&'a ThreadSlot> {
    let slots = &file.time.threads;
    let mut tag = ThreadTag::read(gates.generation.load(Ordering::Relaxed));
    let index = match tag.own() {
        Own::Slot(index) => return slots.get(index),
        Own::Crowded => None,
        // Inside under another name, which nobody would give back: it looks again once it has done so.
        Own::Unknown if borrowed(&file.time.spare).is_some() => return None,
        Own::Unknown => {
            let index = threads::claim(slots, sys::thread_id(), sys::has_thread);
            tag.set_own(index);
            index
        }
    };
    tag.keep();
    let slot = slots.get(index?)?;
    // Its last owner may have died at a gate or at the hold.
    stop_waiting(file, slot);
    count_out(file, slot);
    slot.home.store(guard::thread_key(), Ordering::Release);
    Some(slot)
}

/// The place that this thread has already: its slot, or a spare place.
pub fn known<'a>(gates: &Gates, file: &'a ClientFile) -> Option<&'a ThreadSlot> {
    let tag = ThreadTag::read(gates.generation.load(Ordering::Relaxed));
    file.time.threads.get(tag.slot()).or_else(|| borrowed(&file.time.spare))
}

/// The place among these that this thread has borrowed.
pub fn borrowed(places: &[ThreadSlot]) -> Option<&ThreadSlot> {
    let me = lock::thread();
    places.iter().find(|place| place.thread.load(Ordering::Relaxed) == me)
}

/// Borrows a place among these, the one that this thread has if it has one. `None`: living threads have them all.
pub fn borrow(places: &[ThreadSlot]) -> Option<&ThreadSlot> {
    let place = match borrowed(places) {
        Some(place) => place,
        None => places.get(threads::claim(places, lock::thread(), sys::has_thread)?)?,
    };
    place.home.store(guard::thread_key(), Ordering::Release);
    Some(place)
}

/// [`borrow`] for what is asked at every call: takes the first that is free or this thread's own, beginning elsewhere
/// than other threads do. What the thread left behind in a jump may be another one.
pub fn borrow_nearby(places: &[ThreadSlot]) -> Option<&ThreadSlot> {
    let me = lock::thread();
    let take = |place: &&ThreadSlot| match place.thread.load(Ordering::Relaxed) {
        0 => place
            .thread
            .compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok(),
        owner => owner == me,
    };
    let place = match in_own_order(places, me).find(take) {
        Some(place) => place,
        None => places.get(threads::claim(places, me, sys::has_thread)?)?,
    };
    place.home.store(guard::thread_key(), Ordering::Release);
    Some(place)
}

/// The first place among these that this thread has borrowed so.
pub fn nearby(places: &[ThreadSlot]) -> Option<&ThreadSlot> {
    let me = lock::thread();
    in_own_order(places, me).find(|place| place.thread.load(Ordering::Relaxed) == me)
}

/// All places, in a thread's own order.
fn in_own_order(places: &[ThreadSlot], thread: u32) -> impl Iterator<Item = &ThreadSlot> {
    let at = (thread as usize).checked_rem(places.len()).unwrap_or(0);
    let (before, after) = places.split_at_checked(at).unwrap_or_default();
    after.iter().chain(before)
}

/// Gives a borrowed place back.
pub fn give_back(place: &ThreadSlot) {
    place.inside.store(0, Ordering::Release);
    place.thread.store(0, Ordering::Release);
}

/// Counts a thread in that stands at the hold.
pub fn count_in(file: &ClientFile, place: &ThreadSlot) {
    if place.wants.swap(1, Ordering::AcqRel) == 0 {
        file.page.head.wants.fetch_add(1, Ordering::AcqRel);
    }
}

/// Counts a thread out that stands at the hold no more.
pub fn count_out(file: &ClientFile, place: &ThreadSlot) {
    if place.wants.swap(0, Ordering::AcqRel) != 0 {
        file.page.head.wants.fetch_sub(1, Ordering::AcqRel);
    }
}
