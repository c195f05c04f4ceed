// SPDX-License-Identifier: Apache-2.0
//! The arbitration checked by examples; `histories` has all short ones and random ones.

mod histories;
mod stalls;
mod wakes;

use super::meter::WINDOW;
use super::state::CHAINED;
use super::*;

const SEATS: usize = 3;
const REQUESTS: usize = 3;
type Small = Arbiter<SEATS, REQUESTS>;

const SETTINGS: Settings = Settings {
    slice_ns: 10,
    switch_tax_ns: 0,
    transit_limit_ns: 50,
    effects_limit_ns: 200,
    wake_limit_ns: 0,
};

fn owner(pid: u64) -> Owner {
    Owner {
        pid,
        start: 1,
        stack: 1,
        ..Owner::default()
    }
}

fn compute(need_ns: Option<u64>) -> Ask {
    Ask {
        engine: Engine::Compute,
        need_ns,
        demand: FULL as u32,
        priority: 0,
    }
}

fn with_seats(settings: Settings, count: u64) -> Small {
    let mut arbiter = Small::new(settings, 0);
    for pid in 0..count {
        arbiter.join(owner(pid), 1).expect("a seat is free");
    }
    arbiter
}

/// A request whose effects are done at once.
fn known(arbiter: &mut Small, seat: usize, need: u64) -> usize {
    let request = arbiter.begin(seat, compute(Some(need))).expect("a place is free");
    arbiter.finish(seat, request, None);
    request
}

fn announce(arbiter: &mut Small, seat: usize, request: usize) {
    arbiter.announce(seat, request, arbiter.serial(seat, request));
}

fn check(arbiter: &Small) {
    let mut left = arbiter.clone();
    left.repair();
    assert_eq!(&left, arbiter, "a state reached without a death needs no repair");
    for engine in 0..ENGINES {
        let is_wanted = (0..SEATS).any(|seat| arbiter.is_runnable(seat, engine));
        assert_eq!(
            is_wanted,
            arbiter.engines[engine].holder != 0,
            "an engine is idle exactly if nobody wants it"
        );
        let seats: u64 = arbiter.seats.iter().map(|seat| seat.busy[engine]).sum();
        assert!(seats <= arbiter.engines[engine].busy);
        assert!(arbiter.engines[engine].busy + arbiter.engines[engine].switching <= arbiter.clock);
    }
    for (seat, place) in arbiter.seats.iter().enumerate() {
        for (index, request) in place.requests.iter().enumerate() {
            let is_behind_something = arbiter.ahead_of(seat, index).is_some();
            assert_eq!(request.state == CHAINED, is_behind_something && request.follows != 0);
        }
    }
    for request in arbiter.seats.iter().flat_map(|seat| &seat.requests) {
        assert!(request.served <= request.need);
        assert!(request.state != DONE || request.ended <= arbiter.clock);
        assert!(request.state != ACTIVE || request.queued <= arbiter.clock);
    }
}

#[test]
fn completion_time_is_exact_however_late_the_owner_looks() {
    let mut arbiter = with_seats(SETTINGS, 1);
    arbiter.advance(5);
    let request = known(&mut arbiter, 0, 7);
    arbiter.advance(100_000);
    assert_eq!(
        arbiter.take(0, request),
        Some(Span {
            queued: 5,
            started: 5,
            ended: 12
        })
    );
    assert_eq!(arbiter.clock(), 100_000);
}

#[test]
fn contexts_take_turns_of_one_slice() {
    let mut arbiter = with_seats(SETTINGS, 3);
    let requests: Vec<usize> = (0..3).map(|seat| known(&mut arbiter, seat, 25)).collect();
    arbiter.advance(1000);
    let ends: Vec<u64> = (0..3)
        .map(|seat| arbiter.take(seat, requests[seat]).expect("complete").ended)
        .collect();
    assert_eq!(ends, [65, 70, 75]);
}

#[test]
fn switching_costs_the_tax_and_nobody_is_served_meanwhile() {
    let mut arbiter = with_seats(
        Settings {
            switch_tax_ns: 3,
            ..SETTINGS
        },
        2,
    );
    let (first, second) = (known(&mut arbiter, 0, 20), known(&mut arbiter, 1, 10));
    arbiter.advance(1000);
    assert_eq!(arbiter.take(0, first).expect("complete").ended, 10 + 3 + 10 + 3 + 10);
    assert_eq!(arbiter.take(1, second).expect("complete").ended, 10 + 3 + 10);
    let truth = arbiter.truth();
    assert_eq!(
        (truth.busy_ns[0], truth.switching_ns[0], truth.handovers[0]),
        (30, 6, 2)
    );
    assert_eq!(truth.idle_ns()[0], 1000 - 36);
}

#[test]
fn what_a_process_used_is_remembered_when_its_contexts_end() {
    let mut arbiter = with_seats(SETTINGS, 2);
    let second = arbiter.join(owner(0), 2).expect("a seat is free");
    for (seat, need) in [(0, 10), (1, 20), (second, 5)] {
        known(&mut arbiter, seat, need);
    }
    arbiter.advance(100);
    let busy = |arbiter: &Small| [0, 1].map(|pid| arbiter.truth().busy_of(pid)[0]);
    assert_eq!(busy(&arbiter), [15, 20]);
    arbiter.leave(second);
    arbiter.reap(|owner| owner.pid == 1);
    assert_eq!(busy(&arbiter), [15, 20]);
    assert_eq!(arbiter.truth().departed[0].clock, 100);
    // Of those that ended the latest are kept, and idle ones are none of them.
    for _ in 0..REMEMBERED {
        let seat = arbiter.join(owner(7), 1).expect("a seat is free");
        arbiter.leave(seat);
    }
    assert_eq!(busy(&arbiter), [15, 20]);
    for _ in 0..REMEMBERED {
        let seat = arbiter.join(owner(7), 1).expect("a seat is free");
        known(&mut arbiter, seat, 1);
        arbiter.advance(arbiter.wall() + 1);
        arbiter.leave(seat);
    }
    assert_eq!(busy(&arbiter), [10, 0]);
    assert_eq!(arbiter.truth().busy_of(7)[0], REMEMBERED as u64);
}

#[test]
fn small_requests_of_one_context_overlap_and_large_ones_share() {
    let mut arbiter = with_seats(SETTINGS, 1);
    let half = Ask {
        demand: FULL as u32 / 2,
        ..compute(Some(10))
    };
    for _ in 0..2 {
        let request = arbiter.begin(0, half).expect("a place is free");
        arbiter.finish(0, request, None);
    }
    arbiter.advance(10);
    assert_eq!(
        [0, 1].map(|request| arbiter.take(0, request).expect("complete").ended),
        [10, 10]
    );
    let (first, second) = (known(&mut arbiter, 0, 10), known(&mut arbiter, 0, 10));
    arbiter.advance(100);
    assert_eq!(
        [first, second].map(|request| arbiter.take(0, request).expect("complete").ended),
        [30, 30]
    );
    assert_eq!(arbiter.truth().busy_ns[0], 30, "busy is the union, not the sum");
}

#[test]
fn higher_priority_goes_first_inside_a_context() {
    let mut arbiter = with_seats(SETTINGS, 1);
    let low = known(&mut arbiter, 0, 10);
    let high = arbiter
        .begin(
            0,
            Ask {
                priority: -5,
                ..compute(Some(10))
            },
        )
        .expect("a place is free");
    arbiter.finish(0, high, None);
    arbiter.advance(100);
    assert_eq!(arbiter.take(0, high).expect("complete").ended, 10);
    assert_eq!(arbiter.take(0, low).expect("complete").ended, 20);
}

#[test]
fn engines_work_beside_each_other() {
    let mut arbiter = with_seats(SETTINGS, 1);
    let kernel = known(&mut arbiter, 0, 10);
    let copies = [Engine::Upload, Engine::Download].map(|engine| {
        let request = arbiter
            .begin(
                0,
                Ask {
                    engine,
                    ..compute(Some(10))
                },
            )
            .expect("a place is free");
        arbiter.finish(0, request, None);
        request
    });
    arbiter.advance(10);
    assert!(
        [kernel, copies[0], copies[1]]
            .iter()
            .all(|&request| arbiter.take(0, request).is_some())
    );
}

#[test]
fn clock_waits_for_late_effects_and_charges_only_the_service() {
    let mut arbiter = with_seats(SETTINGS, 2);
    let late = arbiter.begin(0, compute(Some(5))).expect("a place is free");
    let other = known(&mut arbiter, 1, 5);
    arbiter.advance(100);
    assert!(arbiter.is_stalled());
    assert_eq!((arbiter.clock(), arbiter.take(1, other)), (5, None));
    arbiter.finish(0, late, None);
    arbiter.advance(105);
    assert_eq!(arbiter.take(0, late).expect("complete").ended, 5);
    assert_eq!(arbiter.take(1, other).expect("complete").ended, 10);
}

#[test]
fn effects_later_than_the_limit_hold_nobody_up() {
    let mut arbiter = with_seats(SETTINGS, 2);
    let late = arbiter.begin(0, compute(Some(5))).expect("a place is free");
    let other = known(&mut arbiter, 1, 5);
    arbiter.advance(1000);
    assert_eq!(arbiter.take(1, other).expect("complete").ended, 10);
    arbiter.finish(0, late, None);
    assert_eq!(arbiter.take(0, late).expect("complete").ended, arbiter.clock());
    check(&arbiter);
}

#[test]
fn announced_successor_is_served_without_a_gap() {
    let mut arbiter = with_seats(SETTINGS, 2);
    let first = known(&mut arbiter, 0, 4);
    announce(&mut arbiter, 0, first);
    known(&mut arbiter, 1, 4);
    arbiter.advance(20);
    assert_eq!(arbiter.clock(), 4, "the clock waits for the successor");
    let first = arbiter.take(0, first).expect("complete");
    let second = known(&mut arbiter, 0, 4);
    arbiter.advance(100);
    assert_eq!(arbiter.take(0, second).expect("complete").started, first.ended);
}

#[test]
fn successor_that_does_not_come_stalls_until_settled_or_the_limit() {
    for settles in [true, false] {
        let mut arbiter = with_seats(SETTINGS, 2);
        let first = known(&mut arbiter, 0, 4);
        announce(&mut arbiter, 0, first);
        let other = known(&mut arbiter, 1, 4);
        arbiter.advance(20);
        if settles {
            arbiter.settle(0);
            arbiter.advance(24);
        } else {
            arbiter.advance(4 + SETTINGS.transit_limit_ns + 4);
        }
        assert_eq!(arbiter.take(1, other).expect("complete").ended, 8);
    }
}

fn chain(arbiter: &mut Small, seat: usize, need: u64, after: usize) -> Option<usize> {
    arbiter.chain(seat, compute(Some(need)), after, arbiter.serial(seat, after))
}

#[test]
fn what_is_chained_is_served_without_a_gap_and_without_its_owner() {
    let mut arbiter = with_seats(SETTINGS, 2);
    let first = known(&mut arbiter, 0, 4);
    announce(&mut arbiter, 0, first);
    let second = chain(&mut arbiter, 0, 3, first).expect("half of the places are free");
    let other = known(&mut arbiter, 1, 4);
    check(&arbiter);
    assert_eq!(arbiter.earliest_completion(0, second), Some(7));
    arbiter.advance(100);
    assert_eq!(arbiter.clock(), 100, "nobody is waited for where wakes have no limit");
    let ends = [(0, first), (0, second), (1, other)].map(|(seat, request)| {
        let span = arbiter.take(seat, request).expect("complete");
        (span.queued, span.started, span.ended)
    });
    assert_eq!(ends, [(0, 0, 4), (0, 4, 7), (0, 7, 11)]);
    check(&arbiter);
}

#[test]
fn a_chained_request_begins_at_once_behind_one_that_is_over() {
    let mut arbiter = with_seats(SETTINGS, 1);
    let first = known(&mut arbiter, 0, 4);
    announce(&mut arbiter, 0, first);
    arbiter.advance(10);
    let second = chain(&mut arbiter, 0, 3, first).expect("complete, and not taken");
    arbiter.advance(13);
    assert_eq!(arbiter.clock(), 7, "nothing else is waited for");
    assert_eq!(arbiter.take(0, second).expect("complete").ended, 7);
    arbiter.advance(100);
    // Nothing is chained to what was taken, late, or of another place in the order.
    arbiter.take(0, first);
    assert_eq!(chain(&mut arbiter, 0, 3, first), None);
    let late = arbiter.begin(0, compute(Some(5))).expect("a place is free");
    assert_eq!(
        arbiter.chain(0, compute(Some(3)), late, arbiter.serial(0, late) - 1),
        None
    );
    assert_eq!(arbiter.chain(0, compute(None), late, arbiter.serial(0, late)), None);
    assert_eq!(chain(&mut arbiter, 0, 0, late), None);
    arbiter.advance(100 + 5 + SETTINGS.effects_limit_ns);
    assert_eq!(chain(&mut arbiter, 0, 3, late), None);
}

#[test]
fn chained_requests_leave_half_of_the_places_and_wait_for_late_effects() {
    let mut arbiter = with_seats(SETTINGS, 1);
    let late = arbiter.begin(0, compute(Some(5))).expect("a place is free");
    let second = chain(&mut arbiter, 0, 3, late).expect("two of three are free");
    assert_eq!(chain(&mut arbiter, 0, 3, second), None);
    arbiter.advance(5 + SETTINGS.effects_limit_ns + 10);
    check(&arbiter);
    assert_eq!(arbiter.take(0, second), None, "what it follows is not over");
    arbiter.finish(0, late, None);
    arbiter.advance(arbiter.wall() + 3);
    assert_eq!(arbiter.take(0, second).expect("complete").started, arbiter.clock() - 3);
    // What follows a request that is dropped does not wait for it.
    let first = known(&mut arbiter, 0, 50);
    arbiter.cancel(0, late);
    let second = chain(&mut arbiter, 0, 3, first).expect("two of three are free");
    arbiter.cancel(0, first);
    check(&arbiter);
    arbiter.advance(arbiter.wall() + 3);
    assert!(arbiter.take(0, second).is_some());
}

#[test]
fn unknown_length_takes_turns_until_the_effects_tell_it() {
    let mut arbiter = with_seats(SETTINGS, 2);
    let measured = arbiter.begin(0, compute(None)).expect("a place is free");
    let other = known(&mut arbiter, 1, 10);
    arbiter.advance(25);
    assert_eq!(arbiter.take(1, other).expect("complete").ended, 20);
    arbiter.finish(0, measured, Some(40));
    arbiter.advance(1000);
    assert_eq!(arbiter.take(0, measured).expect("complete").ended, 50);
}

#[test]
fn dead_holder_is_skipped() {
    let mut arbiter = with_seats(SETTINGS, 2);
    arbiter.begin(0, compute(None)).expect("a place is free");
    let other = known(&mut arbiter, 1, 10);
    arbiter.advance(5);
    assert_eq!(arbiter.reap(|owner| owner.pid == 0), 1);
    arbiter.advance(15);
    assert_eq!(arbiter.take(1, other).expect("complete").ended, 15);
    assert_eq!(arbiter.truth().seats.len(), 1);
    check(&arbiter);
}

#[test]
fn utilisation_is_the_busy_part_of_the_last_window() {
    let settings = Settings {
        slice_ns: 2_000_000,
        ..SETTINGS
    };
    let mut arbiter = with_seats(settings, 1);
    known(&mut arbiter, 0, WINDOW / 4);
    arbiter.advance(WINDOW);
    assert_eq!(arbiter.truth().seats[0].compute_permille, 250);
    arbiter.advance(3 * WINDOW);
    assert_eq!(arbiter.truth().busy_permille[0], 0);
    let request = known(&mut arbiter, 0, 3 * WINDOW);
    arbiter.advance(5 * WINDOW + WINDOW / 2);
    assert_eq!(arbiter.truth().busy_permille[0], 1000);
    arbiter.cancel(0, request);
}
