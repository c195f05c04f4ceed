// SPDX-License-Identifier: Apache-2.0
//! For which threads the clock stands still, and until when.

use super::*;

/// Threads are waited for.
const WAITING: Settings = Settings {
    wake_limit_ns: 50,
    ..SETTINGS
};

#[test]
fn device_is_not_idle_before_those_who_are_to_run_have() {
    let mut arbiter = with_seats(WAITING, 2);
    let first = known(&mut arbiter, 0, 4);
    arbiter.advance(30);
    assert_eq!(arbiter.clock(), 4, "until the owner has learnt of the end");
    assert!(arbiter.take(0, first).is_some());
    arbiter.advance(40);
    assert_eq!(arbiter.clock(), 4, "until it has handed in the next or has none");
    let second = known(&mut arbiter, 0, 4);
    arbiter.woken(0);
    arbiter.advance(50);
    assert_eq!(arbiter.take(0, second).expect("complete").ended, 8);
    arbiter.woken(0);
    arbiter.advance(60);
    assert_eq!(arbiter.clock(), 18, "from here on it is idle");
    // A submission is waited for, but neither while others work nor beyond the limit.
    arbiter.wake(0);
    arbiter.advance(70);
    assert_eq!(arbiter.clock(), 18);
    let other = known(&mut arbiter, 1, 20);
    arbiter.advance(90);
    assert_eq!(arbiter.clock(), 38);
    assert!(arbiter.take(1, other).is_some());
    arbiter.woken(1);
    arbiter.advance(90 + 1000);
    assert_eq!(arbiter.clock(), 38 + 1000 - 20, "the wake began at 60 and may take 50");
    check(&arbiter);
    arbiter.wake(1);
    arbiter.reap(|_| true);
    arbiter.advance(2000);
    assert!(!arbiter.is_stalled());
}

#[test]
fn a_device_that_keeps_pace_waits_for_no_thread() {
    let settings = Settings {
        switch_tax_ns: 0,
        ..Settings::KEEPS_PACE
    };
    let mut arbiter = with_seats(settings, 2);
    let first = known(&mut arbiter, 0, 4);
    arbiter.announce(0, first, arbiter.serial(0, first));
    arbiter.wake(1);
    for wall in [3, 4, 30, 40] {
        arbiter.advance(wall);
        assert_eq!(arbiter.clock(), wall);
    }
    assert_eq!(arbiter.take(0, first).expect("complete").ended, 4);
    // What a kernel does to memory has to be computed all the same.
    let late = arbiter.begin(1, compute(Some(4))).expect("a place is free");
    arbiter.advance(100);
    assert!(arbiter.is_stalled());
    arbiter.finish(1, late, None);
    arbiter.advance(120);
    assert!(arbiter.take(1, late).is_some());
    check(&arbiter);
}

/// Two requests of the first seat that run beside each other, of 4 and 20 ns.
fn two_streams() -> (Small, [usize; 2]) {
    let settings = Settings {
        slice_ns: 100,
        ..WAITING
    };
    let mut arbiter = with_seats(settings, 2);
    let requests = [4, 20].map(|need| beside(&mut arbiter, need));
    (arbiter, requests)
}

/// A request of the first seat that leaves half of the device to others.
fn beside(arbiter: &mut Small, need: u64) -> usize {
    let half = Ask {
        demand: FULL as u32 / 2,
        ..compute(Some(need))
    };
    let request = arbiter.begin(0, half).expect("a place is free");
    arbiter.finish(0, request, None);
    request
}

#[test]
fn streams_of_the_holder_stand_still_while_one_is_to_end_or_to_begin() {
    let (mut arbiter, [short, long]) = two_streams();
    arbiter.advance(30);
    assert_eq!(
        arbiter.clock(),
        4,
        "until somebody has learnt that the short one is over"
    );
    assert!(arbiter.take(0, short).is_some());
    arbiter.advance(40);
    assert_eq!(arbiter.clock(), 14);
    arbiter.woken(0);
    // What was launched into an idle stream runs at once, however late the thread that hands it in.
    arbiter.wake(0);
    arbiter.advance(60);
    assert_eq!(arbiter.clock(), 14);
    let next = beside(&mut arbiter, 2);
    arbiter.started(0);
    arbiter.advance(62);
    let span = arbiter.take(0, next).expect("complete");
    assert_eq!((span.started, span.ended), (14, 16));
    arbiter.woken(0);
    arbiter.advance(66);
    assert_eq!(arbiter.take(0, long).expect("complete").ended, 20);
    arbiter.woken(0);
    // Who holds nothing stalls nobody.
    let other = known(&mut arbiter, 1, 30);
    arbiter.wake(0);
    arbiter.advance(96);
    assert_eq!(arbiter.take(1, other).expect("complete").ended, 50);
    arbiter.woken(1);
    check(&arbiter);
}

#[test]
fn what_is_followed_is_not_waited_for() {
    let mut arbiter = with_seats(WAITING, 1);
    let first = known(&mut arbiter, 0, 4);
    let second = chain(&mut arbiter, 0, 6, first).expect("two of three are free");
    arbiter.advance(8);
    assert_eq!(arbiter.clock(), 8, "the second began as the first ended");
    arbiter.advance(40);
    assert_eq!(arbiter.clock(), 10, "here the device would be idle");
    assert_eq!(arbiter.take(0, first).expect("complete").ended, 4);
    assert_eq!(arbiter.take(0, second).expect("complete").ended, 10);
    check(&arbiter);
}

#[test]
fn what_comes_to_be_followed_is_no_longer_waited_for() {
    let mut arbiter = with_seats(WAITING, 1);
    let first = known(&mut arbiter, 0, 4);
    arbiter.advance(10);
    assert_eq!(arbiter.clock(), 4);
    let second = chain(&mut arbiter, 0, 6, first).expect("two of three are free");
    arbiter.advance(14);
    assert_eq!(arbiter.clock(), 8);
    assert_eq!(arbiter.take(0, first).expect("complete").ended, 4);
    arbiter.woken(0);
    arbiter.advance(40);
    let span = arbiter.take(0, second).expect("complete");
    assert_eq!((span.started, span.ended), (4, 10));
    check(&arbiter);
}

/// As of a stopped process: each end, each launch and the idle device wait for it once.
#[test]
fn nobody_is_waited_for_beyond_the_limit() {
    let (mut arbiter, [short, long]) = two_streams();
    arbiter.advance(54);
    assert_eq!(arbiter.clock(), 4);
    arbiter.advance(64);
    assert_eq!(arbiter.clock(), 14);
    arbiter.wake(0);
    arbiter.advance(114);
    assert_eq!(arbiter.clock(), 14);
    arbiter.advance(120);
    assert_eq!(arbiter.clock(), 20);
    arbiter.advance(170);
    assert_eq!(arbiter.clock(), 20, "the device would be idle");
    arbiter.advance(180);
    assert_eq!(arbiter.clock(), 30);
    assert!(!arbiter.is_stalled());
    check(&arbiter);
    assert_eq!(arbiter.take(0, short).expect("complete").ended, 4);
    assert_eq!(arbiter.take(0, long).expect("complete").ended, 20);
}

#[test]
fn running_ahead_of_the_clock_on_the_wall_stops_where_somebody_is_to_run() {
    let (mut arbiter, [short, _]) = two_streams();
    arbiter.run_ahead(10);
    assert_eq!(
        (arbiter.clock(), arbiter.wall()),
        (4, 4),
        "nobody is late before it is that late"
    );
    assert!(arbiter.take(0, short).is_some());
    arbiter.run_ahead(10);
    assert_eq!((arbiter.clock(), arbiter.wall()), (10, 10));
}
