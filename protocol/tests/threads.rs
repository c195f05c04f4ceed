// SPDX-License-Identifier: Apache-2.0
//! Slots of threads: taken once, kept, and taken back from the dead only.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use partage_protocol::gate::ThreadSlot;
use partage_protocol::threads::claim;

fn slots(count: usize) -> Vec<ThreadSlot> {
    (0..count).map(|_| ThreadSlot::default()).collect()
}

#[test]
fn each_thread_has_one_place_and_finds_it_again() {
    let slots = slots(4);
    for thread in 1..=4 {
        assert_eq!(claim(&slots, thread, |_| true), Some(thread as usize - 1));
    }
    assert_eq!(claim(&slots, 5, |_| true), None);
    assert_eq!(claim(&slots, 3, |_| true), Some(2));
}

#[test]
fn a_place_of_the_dead_is_taken_only_when_none_is_free_and_is_clean() {
    let slots = slots(2);
    assert_eq!(claim(&slots, 1, |_| false), Some(0));
    slots[0].word.store(3, Ordering::Relaxed);
    slots[0].inside.store(1, Ordering::Relaxed);
    slots[0].out.store(9, Ordering::Relaxed);
    assert_eq!(claim(&slots, 2, |_| false), Some(1));
    assert_eq!(claim(&slots, 7, |thread| thread != 1), Some(0));
    assert_eq!(slots[0].word.load(Ordering::Relaxed), 0);
    assert!(!slots[0].is_inside());
    assert_eq!(slots[0].out.load(Ordering::Relaxed), 0);
    assert_eq!(slots[0].thread.load(Ordering::Relaxed), 7);
}

#[test]
fn threads_that_claim_at_once_get_different_places() {
    for _ in 0..200 {
        let slots = slots(8);
        // All places belong to the dead.
        for (index, slot) in slots.iter().enumerate() {
            slot.thread.store(100 + index as u32, Ordering::Relaxed);
        }
        let found = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 1..=12 {
                let (slots, found) = (&slots, &found);
                scope.spawn(move || {
                    let place = claim(slots, thread, |owner| owner < 100);
                    found.lock().expect("no claim panics").extend(place);
                });
            }
        });
        let found = found.into_inner().expect("no claim panics");
        assert_eq!(found.len(), 8);
        assert_eq!(found.iter().collect::<HashSet<_>>().len(), 8);
    }
}
