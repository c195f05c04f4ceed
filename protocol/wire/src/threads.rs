// SPDX-License-Identifier: Apache-2.0
//! Assigns a client's [thread slots](crate::gate::ThreadSlot) to its threads.
//!
//! A thread takes a slot at its first launch and keeps it. A thread's end is not announced, so slots of dead threads
//! are taken back only when none is free. A slot is one thread's from the exchange of its id until that thread is dead,
//! so its word has one writer.

use core::sync::atomic::Ordering;

use crate::gate::ThreadSlot;

/// Finds a place for a thread; `None` when living threads have them all.
pub fn claim(slots: &[ThreadSlot], thread: u32, is_alive: impl Fn(u32) -> bool) -> Option<usize> {
    let take = |slot: &ThreadSlot, from: u32| {
        let is_taken = slot
            .thread
            .compare_exchange(from, thread, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if is_taken {
            // Its last owner may have died on the way through the driver.
            slot.word.store(0, Ordering::Release);
            slot.inside.store(0, Ordering::Release);
            slot.out.store(0, Ordering::Release);
        }
        is_taken
    };
    // An id that comes again is a new thread's: the one that had it is dead.
    let own = slots
        .iter()
        .position(|slot| slot.thread.load(Ordering::Relaxed) == thread && take(slot, thread));
    own.or_else(|| {
        slots
            .iter()
            .position(|slot| slot.thread.load(Ordering::Relaxed) == 0 && take(slot, 0))
    })
    .or_else(|| {
        slots.iter().position(|slot| {
            let owner = slot.thread.load(Ordering::Relaxed);
            !is_alive(owner) && take(slot, owner)
        })
    })
}
