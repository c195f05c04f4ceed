// SPDX-License-Identifier: Apache-2.0
//! For which threads the clock stands still, and until when.

use super::*;

#[test]
fn device_is_not_idle_before_those_who_are_to_run_have() {
    let settings = Settings {
        wake_limit_ns: 50,
        ..SETTINGS
    };
    let mut arbiter = with_seats(settings, 2);
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
fn streams_of_the_holder_stand_still_until_its_threads_have_run() {
    let settings = Settings {
        slice_ns: 100,
        wake_limit_ns: 50,
        ..SETTINGS
    };
    let half = |need| Ask {
        demand: FULL as u32 / 2,
        ..compute(Some(need))
    };
    let mut arbiter = with_seats(settings, 2);
    let [short, long] = [4, 20].map(|need| {
        let request = arbiter.begin(0, half(need)).expect("a place is free");
        arbiter.finish(0, request, None);
        request
    });
    arbiter.advance(30);
    assert_eq!(
        arbiter.clock(),
        4,
        "until the mark behind the short one can have been written"
    );
    assert!(arbiter.take(0, short).is_some());
    arbiter.woken(0);
    arbiter.advance(40);
    assert_eq!(arbiter.clock(), 14);
    // A launch is in the other stream at once, however late the thread that hands it in.
    arbiter.wake(0);
    arbiter.advance(60);
    assert_eq!(arbiter.clock(), 14);
    let next = arbiter.begin(0, half(2)).expect("a place is free");
    arbiter.finish(0, next, None);
    arbiter.woken(0);
    arbiter.advance(62);
    assert_eq!(arbiter.take(0, next).expect("complete").started, 14);
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

/// A stopped process: its queue goes on as a device's would, but for one limit.
#[test]
fn who_let_the_limit_pass_is_not_waited_for_until_it_runs() {
    let settings = Settings {
        wake_limit_ns: 50,
        ..SETTINGS
    };
    let mut arbiter = with_seats(settings, 1);
    let first = known(&mut arbiter, 0, 4);
    let second = chain(&mut arbiter, 0, 4, first).expect("two of three are free");
    arbiter.advance(54);
    assert_eq!(arbiter.clock(), 4);
    arbiter.advance(70);
    assert_eq!(arbiter.clock(), 20, "waited for once");
    arbiter.wake(0);
    arbiter.advance(80);
    assert_eq!(arbiter.clock(), 30);
    check(&arbiter);
    assert_eq!(arbiter.take(0, first).expect("complete").ended, 4);
    assert_eq!(arbiter.take(0, second).expect("complete").ended, 8);
    arbiter.woken(0);
    arbiter.wake(0);
    arbiter.advance(90);
    assert_eq!(arbiter.clock(), 30, "it runs again");
}
