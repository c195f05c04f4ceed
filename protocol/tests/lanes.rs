// SPDX-License-Identifier: Apache-2.0
//! What the marks of a lane say, for every state that a stream with up to three batches can be in.

use std::sync::atomic::Ordering;

use partage_protocol::gate::{Lane, TimePage};

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

#[test]
fn a_client_has_work_since_the_first_of_its_lanes_has_if_all_say_so() {
    // Since when lanes have work, `None` for one that has none, and since when the client has, if not before 100.
    let cases: [(&[Option<u64>], Option<u64>); 8] = [
        (&[], None),
        (&[None], None),
        (&[Some(100)], Some(100)),
        (&[Some(200), None, Some(150)], Some(150)),
        (&[Some(200), Some(99)], None),
        (&[Some(0), Some(150)], None),
        (&[Some(300)], Some(300)),
        (&[Some(301)], None),
    ];
    for (lanes, since) in cases {
        // SAFETY: a page is atomics and numbers; all zero is a value of each.
        let page: Box<TimePage> = unsafe { Box::new(std::mem::zeroed()) };
        for (lane, since) in page.lanes.iter().zip(lanes) {
            lane.stream.store(1, Ordering::Relaxed);
            lane.submitted.store(5, Ordering::Relaxed);
            lane.begun.store(5, Ordering::Relaxed);
            lane.ended.store(5 - u64::from(since.is_some()), Ordering::Relaxed);
            lane.since_ns.store(since.unwrap_or(120), Ordering::Relaxed);
        }
        assert_eq!(page.since(100, 300), since, "{lanes:?}");
        // Nor does anybody know of work without a lane, or of a lane whose last work has no marks.
        page.unlaned.store(1, Ordering::Relaxed);
        assert_eq!(page.since(100, 300), None, "{lanes:?}");
        page.unlaned_ended.store(1, Ordering::Relaxed);
        let unmarked = &page.lanes[3];
        unmarked.stream.store(1, Ordering::Relaxed);
        unmarked.unmarked.store(1, Ordering::Relaxed);
        unmarked.unmarked_until_ns.store(300, Ordering::Relaxed);
        unmarked.since_ns.store(200, Ordering::Relaxed);
        let has_all = lanes.len() == 3;
        assert_eq!(page.since(100, 300), since.filter(|_| !has_all), "{lanes:?}");
    }
}
