// SPDX-License-Identifier: Apache-2.0
//! Every short history, and random ones.

use proptest::prelude::*;

use super::*;

/// What a history may do.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begin {
        seat: usize,
        need: Option<u64>,
        engine: Engine,
        demand: u32,
        priority: i32,
    },
    Chain {
        seat: usize,
        need: u64,
        after: usize,
    },
    Successor {
        seat: usize,
        request: usize,
    },
    Finish {
        seat: usize,
        request: usize,
        need: u64,
    },
    Take {
        seat: usize,
        request: usize,
    },
    Cancel {
        seat: usize,
        request: usize,
    },
    Settle {
        seat: usize,
    },
    Wake {
        seat: usize,
    },
    Woken {
        seat: usize,
        is_start: bool,
    },
    Leave {
        seat: usize,
    },
    Join,
    Pass {
        wall: u64,
    },
}

/// Does a step as the owners would; returns the wall time after it.
fn apply(arbiter: &mut Small, wall: u64, step: Step, leap: bool) -> u64 {
    let is_taken = |arbiter: &Small, seat: usize| arbiter.seats[seat].taken != 0;
    match step {
        Step::Begin {
            seat,
            need,
            engine,
            demand,
            priority,
        } if is_taken(arbiter, seat) => {
            let _ = arbiter.begin(
                seat,
                Ask {
                    engine,
                    need_ns: need,
                    demand,
                    priority,
                },
            );
        }
        Step::Chain { seat, need, after } => drop(chain(arbiter, seat, need, after)),
        Step::Successor { seat, request } if arbiter.seats[seat].requests[request].state == ACTIVE => {
            announce(arbiter, seat, request);
        }
        Step::Finish { seat, request, need } => arbiter.finish(seat, request, Some(need)),
        Step::Take { seat, request } => drop(arbiter.take(seat, request)),
        Step::Cancel { seat, request } => arbiter.cancel(seat, request),
        Step::Settle { seat } => arbiter.settle(seat),
        Step::Wake { seat } => arbiter.wake(seat),
        Step::Woken { seat, is_start: false } => arbiter.woken(seat),
        Step::Woken { seat, is_start: true } => arbiter.started(seat),
        Step::Leave { seat } if is_taken(arbiter, seat) => arbiter.leave(seat),
        Step::Join => drop(arbiter.join(owner(9), 1)),
        Step::Pass { wall: length } => {
            if !leap {
                (1..length).for_each(|part| arbiter.advance(wall + part));
            }
            arbiter.advance(wall + length);
            return wall + length;
        }
        _ => {}
    }
    wall
}

#[test]
fn every_short_history_keeps_the_invariants() {
    let ask = |seat, need, engine| Step::Begin {
        seat,
        need,
        engine,
        demand: 700,
        priority: 0,
    };
    let mut steps = vec![
        Step::Pass { wall: 3 },
        Step::Pass { wall: 15 },
        Step::Pass { wall: 60 },
        Step::Join,
    ];
    for seat in 0..2 {
        steps.extend([
            ask(seat, Some(4), Engine::Compute),
            ask(seat, None, Engine::Compute),
            ask(seat, Some(4), Engine::Upload),
            Step::Chain {
                seat,
                need: 4,
                after: 0,
            },
            Step::Successor { seat, request: 0 },
            Step::Finish {
                seat,
                request: 0,
                need: 6,
            },
            Step::Take { seat, request: 0 },
            Step::Settle { seat },
            Step::Leave { seat },
        ]);
    }
    fn search(arbiter: &Small, wall: u64, steps: &[Step], depth: usize, count: &mut usize) {
        *count += 1;
        check(arbiter);
        if depth == 0 {
            return;
        }
        for &step in steps {
            let mut next = arbiter.clone();
            let wall = apply(&mut next, wall, step, true);
            search(&next, wall, steps, depth - 1, count);
        }
    }
    for wake_limit_ns in [0, 30] {
        let settings = Settings {
            switch_tax_ns: 2,
            wake_limit_ns,
            ..SETTINGS
        };
        let mut count = 0;
        search(&with_seats(settings, 2), 0, &steps, 4, &mut count);
        assert_eq!(count, (0..=4).map(|depth| steps.len().pow(depth)).sum::<usize>());
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let engine = prop_oneof![Just(Engine::Compute), Just(Engine::Upload), Just(Engine::Download)];
    let (seat, request) = (0..SEATS, 0..REQUESTS);
    prop_oneof![
        4 => (seat.clone(), proptest::option::of(0..40u64), engine, 0..1025u32, -2..2i32).prop_map(
            |(seat, need, engine, demand, priority)| Step::Begin { seat, need, engine, demand, priority }
        ),
        2 => (seat.clone(), 0..40u64, request.clone())
            .prop_map(|(seat, need, after)| Step::Chain { seat, need, after }),
        1 => (seat.clone(), request.clone()).prop_map(|(seat, request)| Step::Successor { seat, request }),
        3 => (seat.clone(), request.clone(), 0..40u64)
            .prop_map(|(seat, request, need)| Step::Finish { seat, request, need }),
        2 => (seat.clone(), request.clone()).prop_map(|(seat, request)| Step::Take { seat, request }),
        1 => (seat.clone(), request).prop_map(|(seat, request)| Step::Cancel { seat, request }),
        1 => seat.clone().prop_map(|seat| Step::Settle { seat }),
        1 => seat.clone().prop_map(|seat| Step::Wake { seat }),
        2 => (seat.clone(), any::<bool>()).prop_map(|(seat, is_start)| Step::Woken { seat, is_start }),
        1 => seat.prop_map(|seat| Step::Leave { seat }),
        1 => Just(Step::Join),
        5 => (1..80u64).prop_map(|wall| Step::Pass { wall }),
    ]
}

proptest! {
    /// Looking often or rarely makes no difference: this is what makes lazy replay exact.
    #[test]
    fn looking_more_often_changes_nothing(
        steps in proptest::collection::vec(any_step(), 1..60),
        tax in 0..5u64,
        wake_limit_ns in prop_oneof![Just(0), 1..80u64],
    ) {
        let settings = Settings { switch_tax_ns: tax, wake_limit_ns, ..SETTINGS };
        let (mut rare, mut often) = (with_seats(settings, 2), with_seats(settings, 2));
        let mut wall = 0;
        for step in steps {
            apply(&mut often, wall, step, false);
            wall = apply(&mut rare, wall, step, true);
            check(&rare);
            prop_assert_eq!(&rare, &often);
        }
        stalls::assert_nobody_is_waited_for_beyond_his_limit(&mut rare, wall);
    }

    /// Whoever always has work gets the same time as any other, up to a slice, whatever the lengths.
    #[test]
    fn backlogged_contexts_get_equal_time(
        lengths in proptest::collection::vec(1..60u64, SEATS),
        tax in 0..4u64,
        rounds in 50..200u64,
    ) {
        let mut arbiter = with_seats(Settings { switch_tax_ns: tax, ..SETTINGS }, SEATS as u64);
        let mut running: Vec<usize> = (0..SEATS).map(|seat| known(&mut arbiter, seat, lengths[seat])).collect();
        (0..SEATS).for_each(|seat| announce(&mut arbiter, seat, running[seat]));
        let mut wall = 0;
        while arbiter.clock() < rounds * 10 {
            wall += 1;
            arbiter.advance(wall);
            for seat in 0..SEATS {
                if arbiter.take(seat, running[seat]).is_some() {
                    running[seat] = known(&mut arbiter, seat, lengths[seat]);
                    announce(&mut arbiter, seat, running[seat]);
                }
            }
        }
        let truth = arbiter.truth();
        let busy: Vec<u64> = truth.seats.iter().map(|seat| seat.busy_ns[0]).collect();
        let spread = busy.iter().max().unwrap() - busy.iter().min().unwrap();
        prop_assert!(spread <= SETTINGS.slice_ns, "{busy:?}");
        prop_assert_eq!(truth.busy_ns[0] + truth.switching_ns[0], truth.clock, "never idle");
    }

    /// An owner that sleeps until the earliest completion, and again, is never late and always gets there.
    #[test]
    fn sleeping_until_the_earliest_completion_loses_nothing(lengths in proptest::collection::vec(1..90u64, SEATS)) {
        let mut arbiter = with_seats(SETTINGS, SEATS as u64);
        let requests: Vec<usize> = (0..SEATS).map(|seat| known(&mut arbiter, seat, lengths[seat])).collect();
        let mut exact = arbiter.clone();
        exact.advance(10_000);
        let ends: Vec<u64> =
            (0..SEATS).map(|seat| exact.take(seat, requests[seat]).expect("complete").ended).collect();
        for seat in 0..SEATS {
            let mut mine = arbiter.clone();
            let mut wakes = 0;
            while mine.take(seat, requests[seat]).is_none() {
                let bound = mine.earliest_completion(seat, requests[seat]).expect("known length");
                prop_assert!(bound > 0 && mine.clock() + bound <= ends[seat], "woke after the completion");
                mine.advance(mine.clock() + bound);
                wakes += 1;
            }
            prop_assert_eq!(mine.clock(), ends[seat]);
            prop_assert!(wakes <= 3 + 90 / SETTINGS.slice_ns, "woke {} times", wakes);
        }
    }

    /// Whatever a dying process left half written, repair makes it a state that obeys the invariants and goes on.
    #[test]
    fn repair_restores_the_invariants(
        steps in proptest::collection::vec(any_step(), 1..40),
        torn in proptest::collection::vec((0..SEATS, 0..REQUESTS, 0..8u32, any::<u32>()), 1..6),
    ) {
        let mut arbiter = with_seats(SETTINGS, 2);
        let mut wall = 0;
        for step in steps {
            wall = apply(&mut arbiter, wall, step, true);
        }
        for (seat, request, field, value) in torn {
            let place = &mut arbiter.seats[seat];
            match field {
                0 => place.taken ^= 1,
                1 => place.active[0] = value,
                2 => place.transit = value,
                3 => place.requests[request].state = value % 6,
                4 => place.requests[request].served = u64::from(value),
                5 => arbiter.engines[request % ENGINES].holder = value,
                6 => arbiter.engines[request % ENGINES].last = value,
                _ => arbiter.high = value,
            }
        }
        arbiter.repair();
        let again = { let mut again = arbiter.clone(); again.repair(); again };
        prop_assert_eq!(&again, &arbiter);
        arbiter.advance(wall + 100_000);
        let again = { let mut again = arbiter.clone(); again.repair(); again };
        prop_assert_eq!(&again, &arbiter);
        arbiter.reap(|_| true);
        prop_assert!(arbiter.truth().seats.is_empty());
        let seat = arbiter.join(owner(1), 1).expect("all seats are free");
        let request = known(&mut arbiter, seat, 5);
        arbiter.advance(wall + 200_000);
        prop_assert!(arbiter.take(seat, request).is_some());
    }
}
