// SPDX-License-Identifier: Apache-2.0
//! Every pair of state and happening, and random orders of happenings.

use proptest::prelude::*;

use super::*;
use crate::caller::Ticket;
use crate::job::Wait;
use crate::request::{GpuChoice, RunSpec};
use crate::rules::{AskedTerms, Facts, Judge};
use crate::terms::Terms;

fn queued() -> Queued {
    let spec = RunSpec {
        mem: None,
        mem_request: None,
        process_mem: None,
        aliases: None,
        preset: None,
        asked_terms: AskedTerms::default(),
        facts: Facts::default(),
        judge: Judge::default(),
        totals: Vec::new(),
        gpu: GpuChoice::Auto(1),
        visible_devices: None,
        wait: true,
        terms: Terms::default(),
    };
    Queued {
        wait: Wait::new(Ticket(1), 0, None),
        spec,
        mem_text: None,
    }
}

fn in_state(state: State) -> Life {
    match state {
        State::Waiting => Life::waiting(queued()),
        State::Running => Life::running(),
        State::Lingering => {
            let mut life = Life::running();
            assert!(life.linger(5));
            life
        }
        State::Ended => Life::ended(9),
    }
}

/// Lets it happen as the policy does; answers the life that follows, or none for a job that is removed.
fn happen(mut life: Life, what: Happening) -> Option<Life> {
    match what {
        Happening::Admitted => drop(life.admit()),
        Happening::RoomTaken => drop(life.put_back(Box::new(queued()))),
        Happening::GivenUp => {
            let is_waiting = life.state() == State::Waiting;
            if life.clone().give_up().is_some() {
                assert!(is_waiting);
                return None;
            }
        }
        Happening::Emptied => drop(life.linger(5)),
        Happening::Resumed => drop(life.resume()),
        Happening::EmptiedStopping | Happening::LingerOver | Happening::PlaceWanted => drop(life.end(what, 9)),
        Happening::Expired => {
            if life.is_expired(u64::MAX) {
                return None;
            }
        }
    }
    Some(life)
}

#[test]
fn every_pair_of_state_and_happening_does_what_the_table_says() {
    for (row, state) in State::ALL.into_iter().enumerate() {
        assert_eq!(row, state as usize, "the table's rows are in the order of the states");
        for (column, what) in Happening::ALL.into_iter().enumerate() {
            assert_eq!(
                column, what as usize,
                "the table's columns are in the order of the happenings"
            );
            let before = in_state(state);
            let after = happen(before.clone(), what);
            match state.after(what) {
                Next::To(next) => assert_eq!(after.map(|life| life.state()), Some(next), "{state:?} {what:?}"),
                Next::Stays | Next::Impossible => assert_eq!(after, Some(before), "{state:?} {what:?}"),
                Next::Forgotten => assert_eq!(after, None, "{state:?} {what:?}"),
            }
        }
    }
}

#[test]
fn every_state_is_reached_and_every_happening_is_possible_somewhere() {
    let mut reached = vec![State::Waiting];
    let mut at = 0;
    while let Some(state) = reached.get(at).copied() {
        for what in Happening::ALL {
            if let Next::To(next) = state.after(what)
                && !reached.contains(&next)
            {
                reached.push(next);
            }
        }
        at += 1;
    }
    assert_eq!(reached.len(), State::ALL.len());
    for what in Happening::ALL {
        let is_possible = |state: &State| state.after(what) != Next::Impossible;
        assert!(State::ALL.iter().any(is_possible), "{what:?}");
    }
}

#[test]
fn questions_agree_with_one_another() {
    for state in State::ALL {
        assert!(!state.is_running() || state.holds_memory(), "{state:?}");
        assert!(!state.counts_as_promised() || state.takes_name(), "{state:?}");
        assert!(!(state.is_running() && state.is_over()), "{state:?}");
        let of_memory = (state.holds_memory(), state.counts_as_promised());
        assert_eq!(of_memory, (state.may_get_time(), state.takes_processes()), "{state:?}");
    }
    assert!(State::Lingering.holds_memory() && State::Lingering.is_over());
    assert!(State::Waiting.takes_name() && !State::Waiting.holds_memory());
}

#[test]
fn a_late_child_is_waited_for_anew_only_while_the_job_lingers() {
    for state in State::ALL {
        let mut life = in_state(state);
        life.linger_on(77);
        let until_ns = (state == State::Lingering).then_some(77);
        assert_eq!(life.linger_until_ns(), until_ns, "{state:?}");
    }
}

proptest! {
    #[test]
    fn no_order_of_happenings_brings_an_ended_job_back(order in prop::collection::vec(0..COLUMNS, 1..40)) {
        let mut life = Some(in_state(State::Waiting));
        let mut has_ended = false;
        for at in order {
            let Some(now) = life else { break };
            let before = now.state();
            life = happen(now, Happening::ALL[at]);
            let after = life.as_ref().map(Life::state);
            has_ended |= after == Some(State::Ended);
            prop_assert!(!has_ended || after.is_none_or(|state| state == State::Ended), "{before:?} {after:?}");
            // Only what waits, or ended, is forgotten: nobody's memory is.
            prop_assert!(after.is_some() || !before.holds_memory());
        }
    }
}
