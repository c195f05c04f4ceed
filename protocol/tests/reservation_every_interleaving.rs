// SPDX-License-Identifier: Apache-2.0
//! Exhaustive search of the reservation protocol: every interleaving of three clients and a broker at the granularity
//! of one access to a shared word, with clients and broker killed at every step, a broker that starts again and adopts,
//! pins that run out, and a limit that changes.
//!
//! Amounts are units: limit 5, askers of 3, 3 and 2 stand for 60/60/40 %. What is checked in every state is in
//! `interleaving/search.rs`; here are the scenarios and what must hold when nothing can move any more.

#[path = "interleaving/replay.rs"]
mod replay;
#[path = "interleaving/search.rs"]
mod search;
#[path = "interleaving/state.rs"]
mod state;

use search::{Scenario, search};
use state::{Denial0, Move, Op, Outcome, Overhead, State};

const THREE: [&[Op]; 3] = [
    &[Op::Attach, Op::Allocate(3)],
    &[Op::Attach, Op::Allocate(3)],
    &[Op::Attach, Op::Allocate(2)],
];

/// The same, attached already: attaching at every step is covered with fewer kills or clients.
const THREE_ATTACHED: [&[Op]; 3] = [&[Op::Allocate(3)], &[Op::Allocate(3)], &[Op::Allocate(2)]];

fn succeeded(state: &State, client: usize) -> bool {
    state.clients[client].outcomes.last() == Some(&Outcome::Done)
}

/// Of two that ask 60 exactly one gets it, and 40 fits beside either.
fn one_of_the_large_and_the_small(state: &State) -> Result<(), String> {
    let large = usize::from(succeeded(state, 0)) + usize::from(succeeded(state, 1));
    match (large, succeeded(state, 2)) {
        (1, true) => Ok(()),
        (large, small) => Err(format!("{large} of two large asks and small={small}")),
    }
}

#[test]
fn of_60_60_and_40_one_large_and_the_small_succeed() {
    search(
        &Scenario {
            name: "60/60/40",
            programs: THREE,
            ..Scenario::default()
        },
        one_of_the_large_and_the_small,
    )
    .expect_no_violation();
}

#[test]
fn pins_that_run_out_change_nothing() {
    let scenario = Scenario {
        name: "60/60/40, pins run out twice",
        programs: THREE_ATTACHED,
        is_attached: true,
        expiries: 2,
        ..Scenario::default()
    };
    search(&scenario, one_of_the_large_and_the_small).expect_no_violation();
}

#[test]
fn of_two_askers_of_60_exactly_one_succeeds() {
    let programs: [&[Op]; 3] = [&[Op::Attach, Op::Allocate(3)], &[Op::Attach, Op::Allocate(3)], &[]];
    search(
        &Scenario {
            name: "60/60",
            programs,
            ..Scenario::default()
        },
        |state| match (succeeded(state, 0), succeeded(state, 1)) {
            (true, false) | (false, true) => Ok(()),
            both => Err(format!("successes {both:?}")),
        },
    )
    .expect_no_violation();
}

#[test]
fn what_was_freed_can_be_allocated_by_another() {
    // The first has freed everything before the second starts; a failed driver call is the same to the ledger.
    let programs: [&[Op]; 3] = [
        &[
            Op::Attach,
            Op::Allocate(4),
            Op::DriverFree(4),
            Op::Refund(4),
            Op::AllocateInVain(5),
        ],
        &[Op::Attach, Op::Await(0, 5), Op::Allocate(5)],
        &[],
    ];
    search(
        &Scenario {
            name: "free, fail, then another",
            programs,
            ..Scenario::default()
        },
        |state| {
            if succeeded(state, 1) {
                Ok(())
            } else {
                Err("a fitting ask was denied".into())
            }
        },
    )
    .expect_no_violation();
}

#[test]
fn two_threads_of_one_process_share_its_words() {
    let programs: [&[Op]; 3] = [&[Op::Attach, Op::Allocate(3)], &[Op::Await(0, 1), Op::Allocate(3)], &[]];
    let scenario = Scenario {
        name: "two threads",
        programs,
        words_of: [0, 0, 2],
        ..Scenario::default()
    };
    search(&scenario, |state| match (succeeded(state, 0), succeeded(state, 1)) {
        (true, false) | (false, true) => Ok(()),
        both => Err(format!("successes {both:?}")),
    })
    .expect_no_violation();
}

#[test]
fn two_threads_and_a_sibling() {
    // Two threads of the first process ask 60 and 40 while another process asks 60.
    let programs: [&[Op]; 3] = [
        &[Op::Attach, Op::Allocate(3)],
        &[Op::Await(0, 1), Op::Allocate(2)],
        &[Op::Attach, Op::Allocate(3)],
    ];
    let scenario = Scenario {
        name: "two threads and a sibling",
        programs,
        words_of: [0, 0, 2],
        ..Scenario::default()
    };
    search(&scenario, |state| {
        let large = usize::from(succeeded(state, 0)) + usize::from(succeeded(state, 2));
        if large == 1 {
            Ok(())
        } else {
            Err(format!("{large} of two large asks"))
        }
    })
    .expect_no_violation();
}

#[test]
fn clients_die_at_every_step() {
    let scenario = Scenario {
        name: "60/60/40, clients killed",
        programs: THREE_ATTACHED,
        is_attached: true,
        client_kills: 3,
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn the_broker_dies_at_every_step() {
    let scenario = Scenario {
        name: "60/60/40, broker killed twice",
        programs: THREE_ATTACHED,
        is_attached: true,
        broker_kills: 2,
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn the_broker_dies_twice_between_two_clients() {
    let programs: [&[Op]; 3] = [
        &[Op::Attach, Op::Allocate(3), Op::Allocate(1)],
        &[Op::Attach, Op::Allocate(2), Op::Allocate(2)],
        &[],
    ];
    let scenario = Scenario {
        name: "two clients, broker killed twice",
        programs,
        broker_kills: 2,
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn broker_and_client_die_in_any_order() {
    let programs: [&[Op]; 3] = [
        &[Op::Attach, Op::Allocate(3)],
        &[Op::Attach, Op::Allocate(3), Op::DriverFree(3), Op::Refund(3)],
        &[],
    ];
    let scenario = Scenario {
        name: "broker and clients killed",
        programs,
        broker_kills: 2,
        client_kills: 2,
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn a_limit_set_below_use_takes_nothing_away() {
    let programs: [&[Op]; 3] = [
        &[
            Op::Attach,
            Op::Allocate(3),
            Op::DriverFree(3),
            Op::Refund(3),
            Op::Allocate(3),
        ],
        &[Op::Attach, Op::Allocate(2)],
        &[],
    ];
    let scenario = Scenario {
        name: "limit lowered",
        programs,
        new_limit: Some(2),
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn a_limit_set_below_use_survives_the_broker() {
    let programs: [&[Op]; 3] = [
        &[Op::Allocate(3), Op::DriverFree(3), Op::Refund(3), Op::Allocate(3)],
        &[Op::Allocate(2)],
        &[],
    ];
    let scenario = Scenario {
        name: "limit lowered, broker killed",
        programs,
        is_attached: true,
        new_limit: Some(2),
        broker_kills: 1,
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn overhead_that_changes_at_any_step_counts_like_a_lowered_limit() {
    // A context of 2 appears while one process asks 3 of 5 and the other frees what it took; later it is gone.
    let programs: [&[Op]; 3] = [
        &[Op::Allocate(3), Op::DriverFree(3), Op::Refund(3), Op::Allocate(2)],
        &[Op::Allocate(2)],
        &[],
    ];
    let scenario = Scenario {
        name: "overhead grows and falls",
        programs,
        is_attached: true,
        overheads: &[
            Overhead::Measured(0, 2),
            Overhead::Measured(1, 1),
            Overhead::Measured(0, 0),
        ],
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn overhead_survives_the_broker_and_goes_with_its_process() {
    let programs: [&[Op]; 3] = [&[Op::Allocate(3)], &[Op::Allocate(2)], &[]];
    let scenario = Scenario {
        name: "overhead, broker and client killed",
        programs,
        is_attached: true,
        broker_kills: 1,
        client_kills: 1,
        overheads: &[Overhead::Measured(0, 2), Overhead::Measured(0, 1)],
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn of_two_announced_contexts_and_an_ask_no_more_than_the_limit_is_granted() {
    // Two processes announce a context of 2 each beside an ask of 3 of 5: the invariant is checked in every state.
    let programs: [&[Op]; 3] = [&[Op::Allocate(3)], &[Op::Allocate(1)], &[]];
    let scenario = Scenario {
        name: "announced contexts",
        programs,
        is_attached: true,
        broker_kills: 1,
        overheads: &[Overhead::Announced(0, 2), Overhead::Announced(1, 2)],
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

/// A client of 3 and one of 1, and what the second asks once the first is away: 4 of 5 in all.
const ONE_LEAVES: [&[Op]; 3] = [
    &[Op::Allocate(3), Op::Allocate(1)],
    &[Op::Allocate(1), Op::Allocate(3)],
    &[],
];
const LEAVES_AND_RETURNS: [Move; 3] = [Move::Leave(0), Move::MakeReturn(0), Move::CameBack(0)];

#[test]
fn what_left_the_device_is_handed_on_and_comes_back_or_stays_away() {
    let scenario = Scenario {
        name: "one leaves and returns",
        programs: ONE_LEAVES,
        is_attached: true,
        moves: &LEAVES_AND_RETURNS,
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn leaving_and_returning_survive_brokers_killed_at_every_access() {
    let scenario = Scenario {
        name: "one leaves and returns, broker killed twice",
        programs: [&[Op::Allocate(3)], &[Op::Allocate(2)], &[]],
        is_attached: true,
        broker_kills: 2,
        moves: &LEAVES_AND_RETURNS,
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn leaving_and_returning_survive_clients_and_brokers_killed_at_every_access() {
    let scenario = Scenario {
        name: "one with overhead leaves and returns, broker and client killed",
        programs: [&[Op::Allocate(3)], &[Op::Allocate(1)], &[]],
        is_attached: true,
        broker_kills: 1,
        client_kills: 1,
        moves: &LEAVES_AND_RETURNS,
        overheads: &[Overhead::Measured(0, 1)],
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn a_restore_that_was_refused_gives_its_room_back() {
    let scenario = Scenario {
        name: "room, refused, away again, back",
        programs: [&[Op::Allocate(3)], &[Op::Allocate(2)], &[]],
        is_attached: true,
        broker_kills: 1,
        moves: &[
            Move::Leave(0),
            Move::MakeReturn(0),
            // The driver refused: what it had given out is away again.
            Move::Leave(0),
            Move::MakeReturn(0),
            Move::CameBack(0),
        ],
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn two_that_are_away_return_only_as_far_as_there_is_room() {
    let scenario = Scenario {
        name: "two leave, a third takes the room",
        programs: [
            &[Op::Allocate(2)],
            &[Op::Allocate(2)],
            &[Op::Allocate(1), Op::Allocate(3)],
        ],
        is_attached: true,
        moves: &[
            Move::Leave(0),
            Move::Leave(1),
            Move::MakeReturn(1),
            Move::CameBack(1),
            Move::MakeReturn(0),
            Move::CameBack(0),
        ],
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn a_process_gets_its_own_limit_and_no_more() {
    let scenario = Scenario {
        name: "a limit of one process",
        own_limits: [Some(3), None, None],
        programs: [&[Op::Attach, Op::Allocate(4)], &[Op::Attach, Op::Allocate(2)], &[]],
        ..Scenario::default()
    };
    search(&scenario, |state| {
        let denied = state.clients[0].outcomes.last() == Some(&Outcome::Denied(Denial0::ProcessLimit));
        match (denied, succeeded(state, 1)) {
            (true, true) => Ok(()),
            other => Err(format!("denied by its own limit, and the sibling got its 2: {other:?}")),
        }
    })
    .expect_no_violation();
}

#[test]
fn threads_of_a_limited_process_and_a_sibling_race_while_brokers_die() {
    let scenario = Scenario {
        name: "threads of a limited process and a sibling",
        own_limits: [Some(3), None, None],
        programs: [
            &[Op::Allocate(2), Op::DriverFree(2), Op::Refund(2)],
            &[Op::Allocate(2)],
            &[Op::Allocate(3)],
        ],
        words_of: [0, 0, 2],
        is_attached: true,
        broker_kills: 1,
        client_kills: 1,
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn a_process_limit_set_at_any_step_takes_nothing_away_and_outlives_the_broker() {
    let scenario = Scenario {
        programs: [
            &[Op::Allocate(3), Op::DriverFree(3), Op::Refund(3), Op::Allocate(3)],
            &[Op::Allocate(2)],
            &[],
        ],
        is_attached: true,
        broker_kills: 1,
        overheads: &[Overhead::Limited(0, 2)],
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn overhead_counts_against_a_processs_own_limit() {
    let scenario = Scenario {
        own_limits: [Some(3), None, None],
        programs: [&[Op::Allocate(2), Op::Allocate(1)], &[Op::Allocate(2)], &[]],
        is_attached: true,
        broker_kills: 1,
        overheads: &[
            Overhead::Announced(0, 1),
            Overhead::Measured(0, 2),
            Overhead::Measured(0, 0),
        ],
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

#[test]
fn a_limited_process_leaves_its_device_and_returns() {
    let scenario = Scenario {
        own_limits: [Some(3), None, None],
        programs: [&[Op::Allocate(3)], &[Op::Allocate(2)], &[]],
        is_attached: true,
        broker_kills: 1,
        moves: &LEAVES_AND_RETURNS,
        overheads: &[Overhead::Limited(0, 2)],
        ..Scenario::default()
    };
    search(&scenario, |_| Ok(())).expect_no_violation();
}

/// The search can fail: a client that does not load G again after its exchange is caught.
#[test]
fn a_client_that_does_not_look_twice_is_caught() {
    let programs: [&[Op]; 3] = [
        &[Op::Attach, Op::AllocateCarelessly(3)],
        &[Op::Attach, Op::Allocate(3)],
        &[],
    ];
    let found = search(
        &Scenario {
            name: "careless client",
            programs,
            ..Scenario::default()
        },
        |_| Ok(()),
    );
    let violation = found.violation.expect("the search must find the missing second look");
    assert!(
        violation.contains("limit") || violation.contains("ledger"),
        "{violation}"
    );
}
