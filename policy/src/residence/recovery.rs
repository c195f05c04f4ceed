// SPDX-License-Identifier: Apache-2.0
//! What the next broker does with what one before it left in the middle.
//!
//! | died in | finds | does |
//! |---|---|---|
//! | hold, barrier, nobody inside | all running | opens |
//! | Lock | some locked | unlocks those, opens |
//! | Checkpoint | locked and checkpointed | finishes leaving; a save comes back |
//! | after the last, before P | all checkpointed, L as before | waits for NVML, P, L := 0 |
//! | away | all checkpointed, P, L = 0 | nothing |
//! | L := P, Restore | checkpointed, some locked | goes on; of a move, NVML says where they landed |
//! | Unlock | locked and running | unlocks the rest, placement, opens |
//! | Dump, Commit | frozen: calls hang | waits for the dump's outcome before it asks anything |
//! | poisoned | poisoned, others checkpointed | nothing |

use partage_protocol::units::DeviceUuid;

use super::facts::{Facts, Known};
use super::goal::Goal;
use super::mark::{InBooks, Mark};
use super::place::{Place, ProcessState};
use super::stage::{Plan, Stage};
use super::state::{Residence, Turn};
use crate::caller::Process;

/// What is known at the start, and the goal. `devices` are the job's, slot 0 first.
pub(super) fn begin(mark: &Mark, devices: &[DeviceUuid], processes: &[Process]) -> (Plan, Facts, Goal) {
    let is_dumping = matches!(mark.stage, Some(Stage::Dump | Stage::Commit | Stage::End));
    let is_dumping = is_dumping && mark.residence == Residence::Saving;
    // The words may be ahead of the mark by the stage that it names, never behind it.
    let books = match (mark.books, mark.stage) {
        (InBooks::Here | InBooks::Left, Some(Stage::LedgerLeave | Stage::LedgerCome)) | (InBooks::Coming, _) => None,
        (books, _) => Some(books),
    };
    // A mark that the disk refused may have come after this one: of a move it is asked wherever its memory can be.
    let is_restored = matches!(
        mark.stage,
        Some(Stage::RoomProve | Stage::Restore | Stage::LedgerBack | Stage::Unlock | Stage::Placement | Stage::Open)
    );
    let has_landed = is_restored || mark.target.is_some();
    let known = if is_dumping {
        Known::Is(ProcessState::Checkpointed)
    } else {
        Known::Nothing
    };
    let mut facts = Facts::left(mark, processes, known, books, has_landed);
    if let Some(target) = mark.target
        && let Some(from) = devices.get(target.slot)
    {
        facts.exchange(*from, target.device);
    }
    let plan = match (mark.residence, mark.target) {
        (Residence::Saving, _) => Plan::Save {
            is_to_stop: mark.is_to_stop,
        },
        (Residence::Moving, Some(target)) => Plan::Move(target),
        (Residence::Leaving, _) => Plan::Leave,
        _ => Plan::Come,
    };
    let goal = if is_dumping { Goal::Away } else { Goal::Undecided };
    (plan, facts, goal)
}

/// The goal, once the state of every process is known.
pub(super) fn decide(residence: Residence, facts: &Facts) -> (Goal, Option<Turn>) {
    let any_away = facts.any(ProcessState::Checkpointed);
    let is_astray = !facts.on_target().is_empty();
    let back = (Goal::Running(Place::Source), Some(Turn::Back));
    match residence {
        // Nothing may claim room before it was asked for, and nothing is to come.
        Residence::Away | Residence::Poisoned if facts.is_empty() => (Goal::Running(Place::Source), None),
        _ if facts.is_empty() => back,
        Residence::Leaving if any_away => (Goal::AwayAfterAll, None),
        Residence::Away
            if facts
                .living()
                .all(|member| member.known == Known::Is(ProcessState::Checkpointed)) =>
        {
            (Goal::AwayAfterAll, None)
        }
        Residence::Away => (Goal::Running(Place::Source), None),
        Residence::Moving if facts.exchange.is_some() && (any_away || is_astray) => {
            (Goal::Running(Place::Target), None)
        }
        Residence::Poisoned => (Goal::AwayAfterAll, None),
        _ => back,
    }
}
