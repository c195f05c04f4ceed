// SPDX-License-Identifier: Apache-2.0
//! What the marks of a lane say, for every state that a stream with up to three batches can be in.

use std::sync::atomic::Ordering;

use partage_protocol::gate::Lane;

/// All-zero memory is a free lane.
fn lane() -> Box<Lane> {
    // SAFETY: a lane is atomics and numbers; all zero is a value of each.
    unsafe { Box::new(std::mem::zeroed()) }
}

/// The moments of a stream in order: each batch waits, begins and ends; the last may have no end mark yet.
fn at(batches: u64, moment: u64, unmarked: u64) -> Box<Lane> {
    let lane = lane();
    lane.submitted.store(batches, Ordering::Relaxed);
    lane.begun.store(moment.div_ceil(2), Ordering::Relaxed);
    lane.ended.store(moment / 2, Ordering::Relaxed);
    lane.unmarked.store(unmarked, Ordering::Relaxed);
    lane.unmarked_until_ns.store(1000, Ordering::Relaxed);
    lane
}

#[test]
fn marked_batches_are_busy_between_their_marks_and_in_flight_until_the_last() {
    for batches in 0..=3 {
        for moment in 0..=2 * batches {
            let lane = at(batches, moment, 0);
            let (is_running, is_over) = (moment % 2 == 1, moment == 2 * batches);
            for now in [0, 1000, 1001] {
                assert_eq!(lane.is_busy(now), is_running, "{batches} batches, moment {moment}");
            }
            assert_eq!(lane.is_in_flight(), !is_over, "{batches} batches, moment {moment}");
        }
    }
}

#[test]
fn a_last_batch_without_an_end_is_busy_as_long_as_it_is_expected_to_run() {
    for batches in 1..=3 {
        // The end of the last one is never written.
        for moment in 0..2 * batches {
            let lane = at(batches, moment, 5);
            assert!(lane.is_in_flight());
            let (is_running, is_last) = (moment % 2 == 1, moment >= 2 * batches - 2);
            assert_eq!(lane.is_busy(1000), is_running);
            assert_eq!(
                lane.is_busy(1001),
                is_running && !is_last,
                "{batches} batches, moment {moment}"
            );
        }
    }
}

#[test]
fn launches_without_any_mark_are_busy_as_long_as_they_are_expected_to_run() {
    for batches in 0..=3 {
        let lane = at(batches, 2 * batches, 1);
        assert!(lane.is_in_flight());
        assert!(lane.is_busy(1000) && !lane.is_busy(1001));
    }
}
