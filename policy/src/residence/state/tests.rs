// SPDX-License-Identifier: Apache-2.0
//! Every pair of residence and turn, and what the states mean.

use super::*;

const STATES: [Residence; 7] = [
    Residence::Here,
    Residence::Leaving,
    Residence::Away,
    Residence::Coming,
    Residence::Moving,
    Residence::Saving,
    Residence::Poisoned,
];
const TURNS: [Turn; COLUMNS] = [
    Turn::Leave,
    Turn::Come,
    Turn::Move,
    Turn::Save,
    Turn::Left,
    Turn::Back,
    Turn::NoRoom,
    Turn::Poisoned,
    Turn::Opened,
];

/// By name, so that the table's order is held against the names and not against itself.
fn expected(state: Residence, turn: Turn) -> Next {
    use Residence as R;
    use Turn as T;
    match (state, turn) {
        (R::Here, T::Leave) | (R::Coming | R::Moving, T::NoRoom) => Next::To(R::Leaving),
        (R::Here, T::Move) => Next::To(R::Moving),
        (R::Here, T::Save) => Next::To(R::Saving),
        (R::Leaving | R::Poisoned, T::Left) => Next::To(R::Away),
        (R::Away, T::Come) | (R::Leaving | R::Moving | R::Saving, T::Back) => Next::To(R::Coming),
        (R::Leaving | R::Away | R::Coming | R::Moving | R::Saving, T::Poisoned) => Next::To(R::Poisoned),
        (R::Away | R::Coming | R::Moving | R::Poisoned, T::Opened) => Next::To(R::Here),
        (R::Here, T::Come | T::Opened)
        | (R::Leaving, T::Leave)
        | (R::Away, T::Leave | T::Left)
        | (R::Coming, T::Come | T::Back)
        | (R::Moving, T::Move)
        | (R::Saving, T::Save)
        | (R::Poisoned, T::Poisoned | T::NoRoom) => Next::Already,
        _ => Next::Impossible,
    }
}

#[test]
fn every_turn_of_every_residence_is_as_named() {
    for state in STATES {
        for turn in TURNS {
            assert_eq!(state.after(turn), expected(state, turn), "{state:?} {turn:?}");
        }
    }
}

#[test]
fn every_residence_is_reached_and_every_one_leads_home() {
    let mut reached = vec![Residence::Here];
    let mut at = 0;
    while let Some(state) = reached.get(at).copied() {
        for turn in TURNS {
            if let Next::To(next) = state.after(turn)
                && !reached.contains(&next)
            {
                reached.push(next);
            }
        }
        at += 1;
    }
    assert_eq!(reached.len(), STATES.len());
    for start in STATES {
        let mut seen = vec![start];
        let mut at = 0;
        while let Some(state) = seen.get(at).copied() {
            for turn in TURNS {
                if let Next::To(next) = state.after(turn)
                    && !seen.contains(&next)
                {
                    seen.push(next);
                }
            }
            at += 1;
        }
        assert!(seen.contains(&Residence::Here), "{start:?} never runs again");
    }
}

#[test]
fn words_are_told_apart() {
    for (at, state) in STATES.iter().enumerate() {
        assert!(STATES[..at].iter().all(|other| other.word() != state.word()));
    }
}
