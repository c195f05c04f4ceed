// SPDX-License-Identifier: Apache-2.0
//! A passage: one leave, come, move or save of one job, from its first step to its end.
//!
//! ```text
//!            Leave, Move, Save                 all checkpointed
//!   begin ───────────────────► Goal::Away ─────────────────────► over: away (leave); Running(Target) (move);
//!     │ Come                      │ a step fails                       Running(Source) (save, once dumped)
//!     ▼                           ▼
//!   Running(Source) ◄──────── Running(Source) ──► over: here
//!                               │  ▲ room again after a pause
//!              no room, no map  ▼  │
//!                            AwayAfterAll ──► over: away, poisoned
//! ```
//! What fails and is not in the way of another goal (an Unlock, a question for a state) is tried again after a pause
//! that grows: a process that is stopped, or a driver that hangs, keeps its job *stuck* and nobody else.

use partage_protocol::units::DeviceUuid;

use super::facts::{Facts, Known};
use super::goal::{self, Goal, Patience};
use super::mark::{InBooks, Mark};
use super::place::{Place, ProcessState, Target};
use super::recovery;
use super::stage::{Plan, Stage};
use super::state::{Next, Residence, Turn};
use super::step::{Answer, Step};
use super::trouble::{Trouble, code};
use crate::caller::Process;

/// Calls to one process that may come to nothing, one after the other, before that is a failure.
const TRIES: u32 = 3;
/// Pauses, the longest of them a second, after which a job is said to stand on its way.
const STUCK_TRIES: u32 = 3;

/// What a passage came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// All that lives of the job runs.
    Here,
    /// All of it is in host memory, and its room is free.
    Away,
    /// At least one process can never run again, and is charged until it ends; the others are in host memory.
    Poisoned,
}

/// A passage under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Passage {
    plan: Plan,
    patience: Patience,
    residence: Residence,
    goal: Goal,
    facts: Facts,
    target: Option<Target>,
    trouble: Option<Trouble>,
    /// Pauses so far.
    pauses: u32,
    pausing: Option<Trouble>,
    written: Mark,
    /// The disk may not have it, and must before anything follows.
    is_unwritten: bool,
    asked: Option<Step>,
    ending: Option<Outcome>,
    outcome: Option<Outcome>,
}

impl Passage {
    /// Begins what a caller asked for. Preconditions: nothing is under way, the job's mark is `mark`, and nothing is in
    /// the way ([`obstacles`](super::obstacles)). `devices` are the job's, slot 0 first; `processes` are all of the
    /// job that use the driver. Without one the job's promise leaves or moves alone; it is not saved.
    ///
    /// # Errors
    /// The job's residence, where the plan makes no sense there: `Leave` of a job that is away, `Come` of one that is
    /// here, a target in a slot that the job lacks.
    pub fn begin(
        plan: Plan,
        mark: &Mark,
        devices: &[DeviceUuid],
        processes: &[Process],
        patience: Patience,
    ) -> Result<Self, Residence> {
        let turn = match plan {
            Plan::Leave => Turn::Leave,
            Plan::Come => Turn::Come,
            Plan::Move(_) => Turn::Move,
            Plan::Save { .. } => Turn::Save,
        };
        let Next::To(residence) = mark.residence.after(turn) else {
            return Err(mark.residence);
        };
        let mut passage = if plan == Plan::Come {
            let mut passage = Self::recover(mark, devices, processes, patience);
            let known = Known::Is(ProcessState::Checkpointed);
            passage.facts = Facts::left(mark, processes, known, Some(InBooks::Left), false);
            if let Some((from, to)) = mark.target.and_then(|to| Some((*devices.get(to.slot)?, to.device))) {
                passage.facts.exchange(from, to);
            }
            passage.facts.note_hard();
            passage.goal = Goal::Running(Place::Source);
            passage
        } else {
            let facts = Facts::new(processes, Known::Is(ProcessState::Running));
            Self {
                residence,
                ..Self::new(plan, mark, facts, Goal::Away, patience)
            }
        };
        passage.facts.note_begun();
        if let Plan::Move(target) = plan {
            let from = devices.get(target.slot).ok_or(mark.residence)?;
            passage.facts.exchange(*from, target.device);
            passage.target = Some(target);
        }
        Ok(passage)
    }

    /// Goes on with what a broker before left: for each job whose record says anything but [`Residence::Here`]; also
    /// when a process of a job that is away or poisoned ended. `processes` are those of the job that live.
    #[must_use]
    pub fn recover(mark: &Mark, devices: &[DeviceUuid], processes: &[Process], patience: Patience) -> Self {
        let (plan, facts, goal) = recovery::begin(mark, devices, processes);
        Self {
            target: mark.target,
            ..Self::new(plan, mark, facts, goal, patience)
        }
    }

    /// Another program restored a process of an away job: it is taken in where there is room, else sent away again.
    #[must_use]
    pub fn restored_behind(mark: &Mark, devices: &[DeviceUuid], processes: &[Process], patience: Patience) -> Self {
        let mut passage = Self::recover(mark, devices, processes, patience);
        passage.facts.note_returned();
        passage
    }

    fn new(plan: Plan, mark: &Mark, facts: Facts, goal: Goal, patience: Patience) -> Self {
        Self {
            plan,
            patience,
            residence: mark.residence,
            goal,
            facts,
            target: None,
            trouble: None,
            pauses: 0,
            pausing: None,
            written: mark.clone(),
            is_unwritten: false,
            asked: None,
            ending: None,
            outcome: None,
        }
    }

    /// The driver is asked for the state of this process before anything is done to it.
    pub fn ask_first(&mut self, process: Process) {
        self.facts.know(process, Known::Nothing);
    }

    /// Where the job's memory is by now.
    #[must_use]
    pub const fn residence(&self) -> Residence {
        self.residence
    }

    /// What it came to; none while it is under way.
    #[must_use]
    pub const fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// The first failure: why a job is not where it was to be.
    #[must_use]
    pub const fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// Has CRIU all of the job? Where it is to end, the snapshot is whole, too, and the newest.
    #[must_use]
    pub const fn is_saved(&self) -> bool {
        self.facts.is_saved(self.plan)
    }

    /// What it has tried again [`STUCK_TRIES`] times, without another way out: the driver does not answer, or a process
    /// is stopped. Once is nothing: a process that was killed answers nothing either, until it is gone.
    #[must_use]
    pub fn stuck(&self) -> Option<&Trouble> {
        self.pausing.as_ref().filter(|_| self.pauses >= STUCK_TRIES)
    }

    /// The step to carry out now; none while one is under way, and once it is over.
    pub fn next_step(&mut self) -> Option<Step> {
        while self.asked.is_none() && self.outcome.is_none() {
            if self.pausing.is_some() {
                let ns = self.patience.pause_ns << self.pauses.min(6);
                self.pauses = self.pauses.saturating_add(1);
                return self.ask(Step::Pause { ns });
            }
            if let Some(ending) = self.ending {
                let mark = self.mark(None);
                if self.is_unwritten || mark != self.written {
                    return self.ask(Step::Write(mark));
                }
                self.outcome = Some(ending);
                break;
            }
            match goal::next_step(self.goal, &self.plan, &self.facts, &self.patience) {
                // Room is asked for before anything says that it is claimed.
                Some(step @ Step::RoomAsk(_)) => return self.ask(step),
                Some(step) => {
                    // Nothing comes between the proof of room and the restore.
                    let stage = step.stage().map(|stage| match stage {
                        Stage::RoomProve => Stage::Restore,
                        stage => stage,
                    });
                    let mark = stage.map(|stage| self.mark(Some(stage)));
                    return match mark.filter(|mark| self.is_unwritten || *mark != self.written) {
                        Some(mark) => self.ask(Step::Write(mark)),
                        None => self.ask(step),
                    };
                }
                None => self.reach(),
            }
        }
        None
    }

    fn ask(&mut self, step: Step) -> Option<Step> {
        self.asked = Some(step.clone());
        Some(step)
    }

    /// What is to be written before this stage; none: at the end.
    fn mark(&self, stage: Option<Stage>) -> Mark {
        if self.residence == Residence::Here {
            return Mark::default();
        }
        // Once written, the job has the target: there is nothing to exchange any more.
        let is_placed = stage == Some(Stage::Placement) && self.goal == Goal::Running(Place::Target);
        let is_to_stop = matches!(self.plan, Plan::Save { is_to_stop: true }) && self.residence == Residence::Saving;
        let on_target = self.facts.on_target();
        let is_exchanged = self.facts.has_target_room || !on_target.is_empty() || self.residence == Residence::Moving;
        Mark {
            residence: self.residence,
            stage,
            books: self.facts.books.unwrap_or(InBooks::Coming),
            target: self.target.filter(|_| is_exchanged),
            holds_target: self.facts.has_target_room,
            on_target,
            poisoned: self.facts.poisoned(),
            is_parked: self.facts.is_parked || stage == Some(Stage::Park),
            is_to_stop,
            are_stopped: self.facts.are_stopped || is_to_stop && stage == Some(Stage::Dump),
            is_placed,
        }
    }

    /// The goal is reached: what comes after it.
    fn reach(&mut self) {
        match (self.goal, self.plan) {
            (Goal::Undecided, _) => {
                let (goal, turn) = recovery::decide(self.residence, &self.facts);
                self.goal = goal;
                turn.into_iter().for_each(|turn| self.turn(turn));
            }
            (Goal::Away, Plan::Move(_)) if !self.facts.is_spent() => self.goal = Goal::Running(Place::Target),
            (Goal::Away, Plan::Save { .. } | Plan::Move(_)) => self.go_back(),
            (Goal::Away | Goal::AwayAfterAll, _) if self.facts.is_spent() => self.go_back(),
            (Goal::Away | Goal::AwayAfterAll, _) => {
                self.facts.give_up_target();
                if self.facts.is_poisoned() {
                    self.ending = Some(Outcome::Poisoned);
                } else {
                    self.turn(Turn::Left);
                    self.ending = Some(Outcome::Away);
                }
            }
            (Goal::Running(_), _) => {
                self.turn(Turn::Opened);
                self.ending = Some(Outcome::Here);
            }
        }
    }

    fn turn(&mut self, turn: Turn) {
        if let Next::To(residence) = self.residence.after(turn) {
            self.residence = residence;
        }
    }

    /// Everything is to run at home.
    fn go_back(&mut self) {
        self.goal = Goal::Running(Place::Source);
        // A job that is away claims no room before it asked.
        if self.residence != Residence::Away {
            self.turn(Turn::Back);
        }
    }

    /// A process of the job ended, as its pidfd says. The step that is under way is answered all the same.
    pub fn gone(&mut self, process: Process) {
        if !self.facts.lose(process) {
            return;
        }
        // What was about to end is decided once more.
        self.ending = None;
        let has_left = self.facts.any(ProcessState::Checkpointed);
        let is_spoilt = match self.plan {
            Plan::Save { .. } => !self.is_saved(),
            _ => !has_left,
        };
        if self.goal == Goal::Away && is_spoilt {
            self.fail(Trouble::gone(process));
        }
    }

    /// What the step under way came to.
    pub fn take(&mut self, answer: Answer) {
        let Some(step) = self.asked.take() else { return };
        if let Answer::Gone = answer {
            // Whatever was to be done to it: it is done with.
            return match step.process() {
                Some(process) => self.gone(process),
                None => self.fail(Trouble::of(&step, answer)),
            };
        }
        match &step {
            Step::Write(mark) => self.written(&step, mark.clone(), answer),
            Step::Pause { .. } => self.pausing = None,
            Step::State(process) => self.take_state(&step, *process, answer),
            Step::Locate(process) => match answer {
                Answer::At(place) => self.facts.locate(*process, place),
                _ => self.pause(Trouble::of(&step, answer)),
            },
            _ if answer == Answer::Done => self.carry_out(&step),
            Step::Lock { process, .. } => self.lock_failed(&step, *process, answer),
            Step::Checkpoint(process) => self.checkpoint_failed(&step, *process, answer),
            Step::Restore { process, .. } => self.restore_failed(&step, *process, answer),
            Step::Unlock(process) => {
                self.facts.know(*process, Known::Nothing);
                self.try_again(&step, *process, answer);
            }
            Step::RoomProve { process, .. } if answer != Answer::NoRoom => self.try_again(&step, *process, answer),
            _ => {
                self.facts.half_do(&step);
                self.fail(Trouble::of(&step, answer));
            }
        }
    }

    fn carry_out(&mut self, step: &Step) {
        self.facts.carry_out(step);
        match step {
            Step::RoomAsk(Place::Source) => self.turn(Turn::Come),
            Step::LedgerLeave(_) | Step::Open => self.pauses = 0,
            _ => {}
        }
    }

    fn written(&mut self, step: &Step, mark: Mark, answer: Answer) {
        // Without the mark the next broker could not tell L of P from memory that is there, or of which devices a copy
        // is.
        let is_telling = matches!(mark.stage, Some(Stage::LedgerCome | Stage::Checkpoint));
        let is_needed = self.ending.is_none() && (is_telling || self.goal == Goal::Away);
        // The policy has it in any case; any other mark that the disk has leads the next broker to as safe an end.
        self.is_unwritten = answer != Answer::Done && is_needed;
        let stage = mark.stage;
        // Time went by: what was shown to be free need not be.
        self.facts.carry_out(step);
        self.written = mark;
        if self.is_unwritten {
            return self.fail(Trouble {
                stage,
                ..Trouble::of(step, answer)
            });
        }
        if self.written.is_placed {
            self.facts.settle_on_target();
            self.target = None;
            self.goal = Goal::Running(Place::Source);
            self.written = self.mark(Some(Stage::Placement));
        }
    }

    fn take_state(&mut self, step: &Step, process: Process, answer: Answer) {
        match answer {
            Answer::Is(ProcessState::Failed) => self.poison(step, process, answer),
            Answer::Is(state) => self.facts.know(process, Known::Is(state)),
            Answer::Refused(code::NOT_INITIALIZED) => self.facts.know(process, Known::Without),
            // Nobody can tell: on the way out that is a reason to turn round.
            _ if self.goal == Goal::Away => {
                self.fail(Trouble::of(step, answer));
                self.pause(Trouble::of(step, answer));
            }
            _ => self.pause(Trouble::of(step, answer)),
        }
    }

    fn lock_failed(&mut self, step: &Step, process: Process, answer: Answer) {
        match answer {
            Answer::Refused(code::NOT_INITIALIZED) => return self.facts.know(process, Known::Without),
            Answer::Refused(code::NOT_READY) | Answer::Stopped => {}
            _ => self.facts.know(process, Known::Nothing),
        }
        match answer {
            Answer::Refused(code::ILLEGAL_STATE) | Answer::HelperLost => self.try_again(step, process, answer),
            _ => self.fail(Trouble::of(step, answer)),
        }
    }

    fn checkpoint_failed(&mut self, step: &Step, process: Process, answer: Answer) {
        // What it came to, the driver says: a checkpoint goes on without whoever called.
        self.facts.know(process, Known::Nothing);
        match answer {
            Answer::Refused(code::ILLEGAL_STATE) | Answer::HelperLost => self.try_again(step, process, answer),
            _ => self.fail(Trouble::of(step, answer)),
        }
    }

    fn restore_failed(&mut self, step: &Step, process: Process, answer: Answer) {
        let Step::Restore { pair, .. } = step else {
            return;
        };
        match answer {
            // The driver keeps what it had restored so far, and every later restore answers 304.
            Answer::Refused(code::OUT_OF_MEMORY | code::OPERATING_SYSTEM) => {
                self.poison(step, process, answer);
            }
            // An importer, where there were no pairs to be wrong.
            Answer::Refused(code::INVALID_VALUE) if pair.is_none() => {
                self.poison(step, process, answer);
            }
            Answer::Refused(code::INVALID_VALUE) => self.fail(Trouble::of(step, answer)),
            _ => {
                self.facts.know(process, Known::Nothing);
                if pair.is_some() || self.facts.exchange.is_some() {
                    self.facts.lose_place(process);
                }
                self.try_again(step, process, answer);
            }
        }
    }

    fn poison(&mut self, step: &Step, process: Process, answer: Answer) {
        self.facts.know(process, Known::Poisoned);
        // Where it lost its memory, nobody knows for certain: room that is claimed at the target stays claimed.
        if self.facts.has_target_room {
            self.facts.locate(process, Place::Target);
        }
        self.note(Trouble::of(step, answer));
        self.goal = Goal::AwayAfterAll;
        self.turn(Turn::Poisoned);
    }

    /// Again, unless it came to nothing too often.
    fn try_again(&mut self, step: &Step, process: Process, answer: Answer) {
        if self.facts.count_try(process) >= TRIES {
            self.facts.forget_tries();
            self.fail(Trouble::of(step, answer));
        } else if answer == Answer::Stopped {
            self.pause(Trouble::of(step, answer));
        }
    }

    fn note(&mut self, trouble: Trouble) {
        self.trouble.get_or_insert(trouble);
    }

    fn pause(&mut self, trouble: Trouble) {
        self.pausing = Some(trouble);
    }

    /// A step failed for good: another goal, or a pause where there is none.
    fn fail(&mut self, trouble: Trouble) {
        self.note(trouble);
        let is_about_room = matches!(
            trouble.stage,
            Some(Stage::RoomAsk | Stage::LedgerCome | Stage::RoomProve | Stage::Restore)
        );
        match self.goal {
            // The snapshot is there: the job is to end.
            Goal::Away if trouble.stage == Some(Stage::End) => self.pause(trouble),
            Goal::Away => self.go_back(),
            Goal::Running(Place::Target) if is_about_room => self.go_back(),
            // What all of them have on the device already, they keep.
            Goal::Running(Place::Source) if is_about_room && self.facts.lacks_room() => {
                self.goal = Goal::AwayAfterAll;
                self.facts.give_up_room();
                self.turn(Turn::NoRoom);
            }
            Goal::AwayAfterAll => {
                self.pause(trouble);
                if !self.facts.is_poisoned() {
                    self.go_back();
                }
            }
            Goal::Undecided | Goal::Running(_) => self.pause(trouble),
        }
    }
}
