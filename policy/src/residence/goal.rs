// SPDX-License-Identifier: Apache-2.0
//! The next step: the first thing that a goal still lacks.

use partage_protocol::terms::DRAIN_TIMEOUT_NS;
use partage_protocol::units::SECOND_NS;

use super::facts::{Facts, Hold, Known, Member};
use super::mark::InBooks;
use super::place::{Place, ProcessState};
use super::stage::Plan;
use super::step::Step;
use crate::caller::Process;

/// What a passage is after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Goal {
    /// Another broker's passage: what it came to is asked first.
    Undecided,
    /// Everything checkpointed, as the plan wants it.
    Away,
    /// Everything checkpointed, because there is no way back now.
    AwayAfterAll,
    /// Everything runs there.
    Running(Place),
}

/// How long a passage waits, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Patience {
    /// Until no thread is inside a driver call.
    pub inside_ns: u64,
    /// For a process's work in flight, at Lock.
    pub lock_ns: u64,
    /// Before what failed is tried again; doubled each time, up to 64 times this.
    pub pause_ns: u64,
}

impl Patience {
    /// With so long for work in flight, in nanoseconds: that of threads inside driver calls, and then that of the
    /// device. Within the bounds of [`DRAIN_TIMEOUT_NS`]; none: as the default has it.
    #[must_use]
    pub fn draining(ns: Option<u64>) -> Self {
        let patience = Self::default();
        let bounded = |ns: u64| ns.clamp(*DRAIN_TIMEOUT_NS.start(), *DRAIN_TIMEOUT_NS.end());
        Self {
            inside_ns: ns.map_or(patience.inside_ns, bounded),
            lock_ns: ns.map_or(patience.lock_ns, bounded),
            ..patience
        }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            inside_ns: 10 * SECOND_NS,
            lock_ns: 10 * SECOND_NS,
            pause_ns: SECOND_NS / 4,
        }
    }
}

/// The next step towards the goal; none once it is reached.
pub(super) fn next_step(goal: Goal, plan: &Plan, facts: &Facts, patience: &Patience) -> Option<Step> {
    // A stopped process answers no question.
    if facts.are_stopped && goal != Goal::Away && !facts.is_empty() {
        return Some(Step::Continue);
    }
    if let Some(process) = facts.unknown() {
        return Some(Step::State(process));
    }
    if let Some(process) = facts.unlocated() {
        return Some(Step::Locate(process));
    }
    // Whoever closed it: nothing may be checkpointed without.
    if facts.any(ProcessState::Checkpointed) && facts.hold != Hold::Hard {
        return Some(Step::HoldHard);
    }
    match goal {
        Goal::Undecided => None,
        Goal::Away => towards_away(plan, facts, patience),
        Goal::AwayAfterAll => out(false, facts, patience).or_else(|| give_up_room(facts)),
        Goal::Running(place) => towards_running(place, facts),
    }
}

fn towards_away(plan: &Plan, facts: &Facts, patience: &Patience) -> Option<Step> {
    match plan {
        Plan::Leave | Plan::Come => out(false, facts, patience)
            .or_else(|| hold_unattached(facts, patience))
            .or_else(|| give_up_room(facts)),
        Plan::Move(_) => {
            if let Some(step) = hold_unattached(facts, patience) {
                return Some(step);
            }
            let is_locked = !facts.any(ProcessState::Running);
            if is_locked && !facts.any(ProcessState::Checkpointed) && !facts.has_target_room {
                return Some(Step::RoomAsk(Place::Target));
            }
            out(false, facts, patience)
        }
        // The room stays the job's own: others may see it in NVML before it is free, and none is waited for.
        Plan::Save { is_to_stop } => out(true, facts, patience).or_else(|| {
            let is_to_stop = *is_to_stop;
            if facts.books != Some(InBooks::Left) {
                Some(Step::LedgerLeave(facts.checkpointed()))
            } else if !facts.is_dumped {
                Some(Step::Dump { is_to_stop })
            } else if is_to_stop && !facts.is_committed {
                // Nothing but the snapshot brings it back. One that goes on does so while its files are made whole.
                Some(Step::Commit)
            } else {
                (is_to_stop && !facts.is_empty()).then_some(Step::End)
            }
        }),
    }
}

/// Off the devices.
fn out(is_to_park: bool, facts: &Facts, patience: &Patience) -> Option<Step> {
    if let Some(running) = facts.first(ProcessState::Running) {
        let step = match facts.hold {
            Hold::Open | Hold::Unknown => Step::HoldSoft,
            _ if !facts.is_fenced => Step::Barrier,
            _ if !facts.is_quiet => {
                let within_ns = patience.inside_ns;
                Step::NobodyInside { within_ns }
            }
            // A parked library sees no heartbeat: only a hard hold holds it. What it gives up it must have unregistered
            // before the lock.
            Hold::Soft if is_to_park => Step::HoldHard,
            _ if is_to_park && !facts.is_parked => Step::Park,
            _ => Step::Lock {
                process: running.process,
                timeout_ns: patience.lock_ns,
            },
        };
        return Some(step);
    }
    let locked = facts.first(ProcessState::Locked)?;
    if facts.hold == Hold::Hard {
        Some(Step::Checkpoint(locked.process))
    } else {
        Some(Step::HoldHard)
    }
}

/// A job without a process on a device leaves no memory behind. A process that begins meanwhile waits at the hold, and
/// one that had begun just before is found.
fn hold_unattached(facts: &Facts, patience: &Patience) -> Option<Step> {
    if !facts.is_unattached() {
        return None;
    }
    Some(match facts.hold {
        Hold::Hard => return None,
        Hold::Open | Hold::Unknown => Step::HoldSoft,
        Hold::Soft if !facts.is_fenced => Step::Barrier,
        Hold::Soft if !facts.is_quiet => {
            let within_ns = patience.inside_ns;
            Step::NobodyInside { within_ns }
        }
        Hold::Soft => Step::HoldHard,
    })
}

/// Nothing is handed on before NVML shows it as free and L fell.
fn give_up_room(facts: &Facts) -> Option<Step> {
    let left = facts.checkpointed();
    match facts.books {
        Some(InBooks::Left) if facts.has_returned && !facts.is_clear => Some(Step::NvmlClear(left)),
        Some(InBooks::Left) => None,
        _ if facts.is_unattached() => Some(Step::LedgerLeave(left)),
        _ if left.is_empty() => None,
        _ if !facts.is_clear => Some(Step::NvmlClear(left)),
        _ => Some(Step::LedgerLeave(left)),
    }
}

/// Back onto the devices of a place.
fn towards_running(place: Place, facts: &Facts) -> Option<Step> {
    let is_elsewhere = |member: &&Member| member.on != place;
    let came: Vec<Process> = facts.living().map(|member| member.process).collect();
    let has_books = !came.is_empty() || facts.is_unattached();
    if matches!(facts.books, None | Some(InBooks::Left)) && has_books {
        // What all of them have on the device already is theirs, whatever a broker before wrote last. A promise is not.
        if !facts.has_room && facts.lacks_room() {
            return Some(Step::RoomAsk(Place::Source));
        }
        return Some(Step::LedgerCome(came));
    }
    // Some arrived where not all can: they leave again.
    let mut locked = facts
        .living()
        .filter(|member| member.known == Known::Is(ProcessState::Locked));
    if let Some(astray) = locked.find(is_elsewhere) {
        let is_hard = facts.hold == Hold::Hard;
        return Some(if is_hard {
            Step::Checkpoint(astray.process)
        } else {
            Step::HoldHard
        });
    }
    if let Some(away) = facts.first(ProcessState::Checkpointed) {
        return Some(restore(place, away, facts));
    }
    if facts.books == Some(InBooks::Coming) && has_books {
        return Some(Step::LedgerBack);
    }
    if let Some(locked) = facts.first(ProcessState::Locked) {
        return Some(Step::Unlock(locked.process));
    }
    if facts.is_parked && !facts.is_empty() {
        return Some(Step::Unpark);
    }
    if facts.is_to_place || facts.exchange.is_some() && place == Place::Target {
        return Some(Step::Placement);
    }
    (facts.hold != Hold::Open).then_some(Step::Open)
}

fn restore(place: Place, away: &Member, facts: &Facts) -> Step {
    let process = away.process;
    if facts.proved != Some((process, place)) {
        return Step::RoomProve { process, place };
    }
    let pair = match (away.on, place) {
        (Place::Source, Place::Target) => facts.exchange,
        (Place::Target, Place::Source) => facts.exchange.map(|(from, to)| (to, from)),
        _ => None,
    };
    Step::Restore { process, pair, place }
}
