// SPDX-License-Identifier: Apache-2.0
//! Runs passages on the model, one broker after the other, with faults at given steps.

use partage_policy::{Answer, Mark, Outcome, Passage, Patience, Plan, Process, ProcessState, Residence, Stage, Step};

use super::{Fault, Hold, TARGET, When, World, process};

/// Steps after which a run that has not ended hangs.
const STEPS: usize = 600;

pub fn plans() -> [Plan; 5] {
    [
        Plan::Leave,
        Plan::Come,
        Plan::Move(TARGET),
        Plan::Save { is_to_stop: false },
        Plan::Save { is_to_stop: true },
    ]
}

/// A run: the model, and what happened so far.
#[derive(Clone, Debug)]
pub struct Run {
    pub world: World,
    pub steps: Vec<Step>,
    pub outcome: Option<Outcome>,
    pub is_saved: bool,
    /// What the first passage came to, in how many steps, and how it left the processes.
    pub first: Option<Outcome>,
    pub length: usize,
    pub states: Vec<ProcessState>,
    /// What the first broker that died left: the stage of the record, and the processes.
    pub found: Option<(Stage, Vec<ProcessState>)>,
    faults: Vec<(usize, Fault)>,
}

enum Went {
    Answered(Answer),
    BrokerDied,
}

impl Run {
    /// A job of so many processes where the plan begins.
    pub fn before(plan: Plan, processes: usize) -> Self {
        let mut run = Self {
            world: World::new(processes),
            steps: Vec::new(),
            outcome: None,
            is_saved: false,
            first: None,
            length: 0,
            states: Vec::new(),
            found: None,
            faults: Vec::new(),
        };
        if plan == Plan::Come {
            run.go(Plan::Leave);
            assert_eq!(run.outcome, Some(Outcome::Away));
            run.steps.clear();
        }
        run
    }

    /// The plan, with these faults: each at the step of this number.
    pub fn with(plan: Plan, processes: usize, faults: &[(usize, Fault)]) -> Self {
        let mut run = Self::before(plan, processes);
        run.faults = faults.to_vec();
        run.go(plan);
        (run.first, run.length, run.states) = (run.outcome, run.steps.len(), run.states());
        run.check(plan);
        run
    }

    fn states(&self) -> Vec<ProcessState> {
        let alive = self.world.targets.iter().filter(|target| target.is_alive);
        alive.map(|target| target.state).collect()
    }

    fn begin(&self, plan: Plan) -> Passage {
        let world = &self.world;
        Passage::begin(
            plan,
            &world.mark,
            &world.devices(),
            &world.living(),
            Patience::default(),
        )
        .expect("it may begin")
    }

    fn go(&mut self, plan: Plan) {
        self.outcome = None;
        let mut passage = self.begin(plan);
        while let Some(step) = passage.next_step() {
            assert!(self.steps.len() < STEPS, "no end: {:#?}", &self.steps[STEPS - 40..]);
            let number = self.steps.len();
            self.steps.push(step.clone());
            let alive = self.world.living();
            match self.carry_out(number, &step, &mut passage) {
                Went::Answered(answer) => passage.take(answer),
                Went::BrokerDied => {
                    self.is_saved |= passage.is_saved();
                    if let (None, Some(stage)) = (&self.found, self.world.disk.0.stage) {
                        self.found = Some((stage, self.states()));
                    }
                    let Some(next) = self.next_broker() else { return };
                    passage = next;
                }
            }
            // Their pidfds say so.
            let is_gone = |process: &&Process| !self.world.living().contains(process);
            alive.iter().filter(is_gone).for_each(|process| passage.gone(*process));
            self.world.others();
            self.world.check();
        }
        self.outcome = passage.outcome();
        assert!(self.outcome.is_some(), "it neither goes on nor ends: {passage:#?}");
        self.is_saved |= passage.is_saved();
        assert_eq!(passage.residence(), self.world.mark.residence);
    }

    /// The broker died: the soft hold opens, room that was granted and not claimed is nobody's.
    fn next_broker(&mut self) -> Option<Passage> {
        let world = &mut self.world;
        world.granted = None;
        world.proved = None;
        (world.mark, world.device) = world.disk.clone();
        if world.hold == Hold::Soft {
            world.hold = Hold::Open;
        }
        world.others();
        world.check();
        if world.mark.residence == Residence::Here {
            assert_eq!(world.hold, Hold::Open);
            self.outcome = Some(Outcome::Here);
            return None;
        }
        let (devices, living) = (world.devices(), world.living());
        Some(Passage::recover(&world.mark, &devices, &living, Patience::default()))
    }

    fn carry_out(&mut self, number: usize, step: &Step, passage: &mut Passage) -> Went {
        let fault = self
            .faults
            .iter()
            .find(|(at, _)| *at == number)
            .map(|(_, fault)| *fault);
        let Some(fault) = fault else {
            return Went::Answered(self.world.carry_out(step, usize::MAX));
        };
        let world = &mut self.world;
        world.had_fault = true;
        match fault {
            Fault::Broker(When::Before) => return Went::BrokerDied,
            Fault::Broker(_) => {
                world.carry_out(step, usize::MAX);
                return Went::BrokerDied;
            }
            Fault::BrokerCut(cut) => {
                world.carry_out(step, cut);
                return Went::BrokerDied;
            }
            // The books do not see what is stolen: what a job was granted long ago it may take even now.
            Fault::Greedy if matches!(step, Step::Restore { .. }) && world.stolen != [0; 2] => world.is_gap = true,
            Fault::Greedy => {
                world.is_greedy = true;
                world.others();
            }
            Fault::Steal(_) | Fault::Gap if matches!(step, Step::Restore { .. }) => world.is_gap = true,
            Fault::Steal(device) => world.stolen[device] += world.free(device),
            Fault::Gap => {}
            Fault::Kill(who, when) => return Went::Answered(kill(world, passage, step, who, when)),
            Fault::Stop(who, When::Before) => {
                if let Some(target) = world.targets.get_mut(who) {
                    target.is_stopped = target.is_alive;
                }
            }
            Fault::Stop(..) | Fault::Late { .. } | Fault::Helper { .. } | Fault::Refuse(_) => {
                return Went::Answered(fail(world, step, fault));
            }
        }
        Went::Answered(world.carry_out(step, usize::MAX))
    }

    /// What holds at the end, and later, when everything is well again.
    fn check(&mut self, plan: Plan) {
        self.world.check_end();
        let is_save = matches!(plan, Plan::Save { .. });
        assert!(is_save || !self.world.snapshot.is_begun);
        // A commit that nobody heard of is a snapshot more than was promised.
        let is_to_stop = plan == Plan::Save { is_to_stop: true };
        let snapshot = &self.world.snapshot;
        // The files of one that goes on are made whole behind its back.
        let is_there = if is_to_stop {
            snapshot.is_committed
        } else {
            snapshot.is_whole
        };
        assert!(!self.is_saved || is_save && is_there);
        let was_killed = self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Kill(..)));
        let is_empty = self.world.living().is_empty();
        let is_ended = is_to_stop && self.is_saved;
        assert!(!is_empty || is_ended || was_killed, "a process was lost: {self:#?}");
        self.world.heal();
        (self.world.greedy, self.world.is_greedy) = ([0; 2], false);
        self.faults.clear();
        if self.outcome == Some(Outcome::Poisoned) {
            // The way out: the lost process is killed, and the others come back.
            for at in 0..self.world.targets.len() {
                if self.world.targets[at].is_poisoned {
                    self.world.kill(at);
                }
            }
            self.recover();
        }
        if self.outcome == Some(Outcome::Away) {
            let alive = self.world.living().len();
            self.go(Plan::Come);
            assert_eq!(self.world.living().len(), alive, "it comes back whole");
        }
        assert_eq!(self.outcome, Some(Outcome::Here), "{self:#?}");
        self.world.check_end();
        assert_eq!(self.world.mark, Mark::default());
    }

    /// A broker takes up what the record says.
    fn recover(&mut self) {
        let Some(mut passage) = self.next_broker() else { return };
        while let Some(step) = passage.next_step() {
            let answer = self.world.carry_out(&step, usize::MAX);
            passage.take(answer);
            self.world.check();
        }
        self.outcome = passage.outcome();
        self.world.check_end();
    }
}

fn kill(world: &mut World, passage: &mut Passage, step: &Step, who: usize, when: When) -> Answer {
    let was_alive = world.targets.get(who).is_some_and(|target| target.is_alive);
    let is_it = step.process() == Some(process(who));
    let answer = match when {
        When::Before => {
            world.kill(who);
            if was_alive {
                passage.gone(process(who));
            }
            return match is_it {
                true => Answer::Gone,
                false => without(world, step),
            };
        }
        When::Inside if is_it => Answer::Gone,
        When::Inside | When::After => world.carry_out(step, usize::MAX),
    };
    world.kill(who);
    if was_alive && when == When::After {
        passage.gone(process(who));
    }
    // Inside a call to another process, the pidfd is heard after the answer.
    if was_alive && when == When::Inside && !is_it {
        passage.take(answer);
        passage.gone(process(who));
        // There is nothing under way any more: a second answer is ignored.
    }
    answer
}

/// Carries out a step that was asked before a process of it ended.
fn without(world: &mut World, step: &Step) -> Answer {
    world.carry_out(step, usize::MAX)
}

/// The step fails.
fn fail(world: &mut World, step: &Step, fault: Fault) -> Answer {
    let is_call = matches!(
        step,
        Step::Lock { .. } | Step::Checkpoint(_) | Step::Restore { .. } | Step::Unlock(_) | Step::State(_)
    );
    let of = step.process().filter(|_| is_call);
    let is_lost = matches!(fault, Fault::Refuse(_) | Fault::Late { completes: false });
    if let (Step::Write(mark), true) = (step, is_lost) {
        // The policy has it, the disk has not.
        world.write(mark.clone());
        world.is_behind |= mark.is_placed;
    }
    match fault {
        Fault::Refuse(code) => {
            // What the driver says of a process that it lost, or of one that can never be restored.
            if let Step::Restore { process, place, pair } = step
                && (matches!(code, 2 | 304) || code == 1 && pair.is_none())
            {
                let device = world.at(*place);
                let target = world.target(*process);
                (target.is_poisoned, target.device) = (true, device);
            }
            Answer::Refused(code)
        }
        Fault::Helper { completes } if is_call => {
            if completes {
                world.carry_out(step, usize::MAX);
            }
            Answer::HelperLost
        }
        Fault::Late { completes } => {
            if let Some(of) = of {
                let later = completes.then(|| step.clone());
                world.target(of).hanging = Some(later);
            } else if completes && !matches!(step, Step::RoomAsk(_)) {
                world.carry_out(step, usize::MAX);
            }
            Answer::TimedOut
        }
        Fault::Stop(who, _) if of == Some(process(who)) => {
            let target = world.target(process(who));
            (target.is_stopped, target.hanging) = (true, Some(Some(step.clone())));
            Answer::TimedOut
        }
        _ => world.carry_out(step, usize::MAX),
    }
}
