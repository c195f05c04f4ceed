// SPDX-License-Identifier: Apache-2.0
//! The commands that begin a passage, and the look before anything is touched.

use partage_policy::{
    Access, Caller, Event, Intent, Mark, Obstacle, Passage, Patience, Place, Plan, Process, Residence, Return,
    TargetQuery, Ticket, driver_answered, obstacles,
};
use partage_protocol::admin::{ErrorCode, ErrorView, Reply, Request};
use partage_protocol::units::{JobId, SECOND_NS};

use super::code;
use super::way::{Leaving, Phase, Purpose, SaveTo, Way};
use crate::clock::Now;
use crate::driver::requests::error_view;
use crate::driver::state_driver::StateDriver;
use crate::host::checkpoint::{Answer, Call, Outcome, State};

/// A state is known in a millisecond; a process that is locked by others may take their time.
const STATE_NS: u64 = 10 * SECOND_NS;

impl StateDriver {
    /// A command about where jobs' memory is.
    pub(in crate::driver) fn residence_request(&mut self, ticket: Ticket, caller: Caller, request: Request, now: Now) {
        // As for a `run`: a script that ends one job and moves another asks before the loop hears of the end.
        self.find_all_ended(now);
        match request {
            Request::Suspend {
                target,
                drain_timeout_ns,
            } => {
                let target = self.target(target);
                let patience = Patience::draining(drain_timeout_ns);
                self.suspend((ticket, patience), &caller, &target, now);
            }
            Request::Resume {
                target,
                wait,
                wait_timeout_ns,
            } => {
                let resume = Event::Resume {
                    ticket,
                    caller,
                    target: self.target(target),
                    is_patient: wait,
                    timeout_ns: wait_timeout_ns,
                };
                self.step(now, resume);
            }
            Request::Checkpoint {
                target,
                out,
                stop,
                keep,
                criu,
                drain_timeout_ns,
            } => {
                let patience = Patience::draining(drain_timeout_ns);
                let to = SaveTo {
                    folder: out.into(),
                    is_to_stop: stop,
                    keep,
                    criu: criu.map(Into::into),
                    is_periodic: false,
                };
                let target = self.target(target);
                self.save((ticket, patience), &caller, &target, to, now);
            }
            Request::Restore(request) => self.restore(ticket, caller, &request, now),
            Request::Migrate {
                target,
                to,
                from,
                dry_run,
                drain_timeout_ns,
            } => {
                let target = self.target(target);
                let asked = (ticket, Patience::draining(drain_timeout_ns));
                self.migrate(asked, &caller, &target, (from.as_deref(), &to, dry_run), now);
            }
            Request::Drain { gpu, drain_timeout_ns } => {
                let patience = Patience::draining(drain_timeout_ns);
                self.drain(ticket, &caller, (&gpu, Some(patience)), now);
            }
            Request::Undrain { gpu } => self.drain(ticket, &caller, (&gpu, None), now),
            _ => {}
        }
    }

    /// `partage suspend`.
    fn suspend(&mut self, (ticket, patience): (Ticket, Patience), caller: &Caller, target: &TargetQuery, now: Now) {
        let job = match self.policy.resolve(target, caller, Access::Change) {
            Ok(job) => job,
            Err(why) => return self.answer_ticket(ticket, Reply::Error(why)),
        };
        let residence = self
            .policy
            .residence(job)
            .map_or(Residence::Here, |mark| mark.residence);
        // One that left without a command is to stay suspended from now on.
        if let Some(way) = self.ways.by_job.get_mut(&job) {
            if way.purpose == Purpose::Suspend {
                way.tickets.push(ticket);
                return self.step(now, Event::Stays(job));
            }
            let under_way = way.under_way(residence);
            return self.refuse_way(ticket, &[Obstacle::NotHere(job, under_way)]);
        }
        if self.waits_to_start(job) {
            let message = format!("{job} waits in the queue to start: there is nothing to suspend");
            return self.answer_ticket(ticket, Reply::Error(error_view(ErrorCode::Failed, message, None)));
        }
        if residence == Residence::Away {
            self.step(now, Event::Stays(job));
            let message = format!("{job} is suspended already");
            return self.answer_ticket(ticket, Reply::Done { message });
        }
        self.begin_to_leave(job, Leaving::asked(Purpose::Suspend, (ticket, patience)), now);
    }

    pub(super) fn waits_to_start(&self, job: JobId) -> bool {
        let is_here = |mark: &Mark| mark.residence == Residence::Here;
        self.policy.residence(job).is_none_or(is_here) && self.policy.queue().any(|waiting| waiting == job)
    }

    /// The policy sends a job off its devices, without a command.
    pub(in crate::driver) fn leave_by_itself(&mut self, job: JobId, now: Now) {
        if self.ways.has(job) {
            let why = "its memory is on the way already".to_owned();
            return self.step(now, Event::NotLeft { job, why });
        }
        self.begin_to_leave(job, Leaving::unasked(Purpose::Suspend), now);
    }

    /// What speaks against it, as far as it is known without the driver.
    fn found_against(&self, job: JobId, purpose: Purpose) -> Vec<Obstacle> {
        match purpose {
            Purpose::Move(exchange) => {
                let facts = self.job_facts(job, Some(exchange.target.device));
                obstacles(&self.policy.move_intent(job, exchange), &facts)
            }
            _ => obstacles(&Intent::Leave, &self.job_facts(job, None)),
        }
    }

    /// Nothing speaks against it: `None`; else what is said of it.
    pub(super) fn why_not(&self, job: JobId, purpose: Purpose) -> Option<ErrorView> {
        let found = self.found_against(job, purpose);
        if !found.is_empty() {
            return Some(in_the_way(&found));
        }
        match purpose {
            Purpose::Move(_) if self.takes_map(job) == Some(false) && !self.processes_with_library(job).is_empty() => {
                Some(self.map_refused(job))
            }
            Purpose::Move(exchange) => self.policy.room_to_move(job, exchange, &self.clients).err(),
            _ => None,
        }
    }

    /// Begins to suspend a job, or to move it.
    pub(super) fn begin_to_leave(&mut self, job: JobId, leaving: Leaving, now: Now) {
        let purpose = leaving.purpose;
        if let Purpose::Move(exchange) = purpose {
            // Asked for the sake of what gives way to it.
            let _ = self.ask_room(job, Place::Target, Some(exchange.target), now);
        }
        if let Some(why_not) = self.why_not(job, purpose) {
            return self.not_begun(job, purpose, &leaving.tickets, &why_not, now);
        }
        let left = self.processes_with_library(job);
        let Some(first) = left.first().copied() else {
            let way = Way::new(Phase::asking(left), leaving, now.ns);
            return self.leave(job, way, &[], now);
        };
        if let Purpose::Move(exchange) = purpose
            && self.takes_map(job).is_none()
        {
            let way = Way::new(Phase::Trying { left }, leaving, now.ns);
            self.ways.by_job.insert(job, way);
            return self.try_map(job, exchange.target.device);
        }
        let way = Way::new(Phase::asking(left), leaving, now.ns);
        self.ways.by_job.insert(job, way);
        self.ask_state(job, first);
    }

    /// Has the driver asked in which state a process is.
    pub(super) fn ask_state(&mut self, job: JobId, process: Process) {
        self.call(job, process, Call::State, STATE_NS);
    }

    pub(super) fn refuse_way(&mut self, ticket: Ticket, found: &[Obstacle]) {
        self.answer_ticket(ticket, Reply::Error(in_the_way(found)));
    }

    /// It ends before anything was touched: the commands that wait hear why, and the policy, where it asked.
    pub(super) fn not_begun(&mut self, job: JobId, purpose: Purpose, tickets: &[Ticket], error: &ErrorView, now: Now) {
        for ticket in tickets {
            self.answer_ticket(*ticket, Reply::Error(error.clone()));
        }
        match purpose {
            Purpose::Suspend => {
                let why = error.message.clone();
                self.step(now, Event::NotLeft { job, why });
            }
            Purpose::Save if tickets.is_empty() => self.not_saved(job, &error.message, now),
            Purpose::Move(exchange) => {
                let why = (error.message.clone(), error.hint.clone());
                self.ways.note_ended_move(job, exchange, Some(Err(why)));
            }
            _ => {}
        }
    }

    /// The driver said in which state a process is, before anything is touched.
    pub(super) fn take_state(&mut self, job: JobId, mut way: Way, outcome: Outcome, now: Now) {
        let Phase::Asking { left, found } = &mut way.phase else {
            return;
        };
        let process = left.remove(0);
        let why = match outcome {
            Outcome::Answered(Answer::State(State::Running)) => {
                found.push(process);
                None
            }
            // It looks at NVML alone, or ended.
            Outcome::Answered(Answer::Code(code::NOT_INITIALIZED) | Answer::Gone) => None,
            Outcome::Answered(Answer::Stopped) => Some(Obstacle::Stopped(process.pid).to_string()),
            Outcome::Answered(Answer::NoDriver(why)) => Some(why),
            Outcome::Answered(Answer::State(state)) => Some(format!(
                "pid {} is {} by another program",
                process.pid,
                match state {
                    State::Checkpointed => "checkpointed",
                    _ => "locked",
                }
            )),
            Outcome::Answered(Answer::Code(code)) => Some(format!("pid {}: {}", process.pid, driver_answered(code))),
            Outcome::Answered(other) => Some(format!("the helper answered {other:?} about pid {}", process.pid)),
            Outcome::Late => Some(format!("the driver does not answer about pid {}", process.pid)),
            Outcome::Failed(why) => Some(format!("the helper that asks the driver failed: {why}")),
        };
        if let Some(message) = why {
            let error = error_view(ErrorCode::Failed, message, None);
            return self.not_begun(job, way.purpose, &way.tickets, &error, now);
        }
        if let Some(next) = left.first().copied() {
            self.ask_state(job, next);
            self.ways.by_job.insert(job, way);
            return;
        }
        let processes = std::mem::take(found);
        self.leave(job, way, &processes, now);
    }

    fn leave(&mut self, job: JobId, way: Way, processes: &[Process], now: Now) {
        let purpose = way.purpose;
        // Without a process on a GPU the promise leaves, or moves, alone. There is nothing to save, and a job that has
        // ended has nothing at all.
        if processes.is_empty() && (purpose == Purpose::Save || self.policy.processes(job).is_empty()) {
            return self.not_begun(job, purpose, &way.tickets, &nothing_there(job, purpose), now);
        }
        // Time went by.
        let why_not = self.why_not(job, purpose);
        let plan = match purpose {
            Purpose::Move(exchange) => Plan::Move(exchange.target),
            Purpose::Save => Plan::Save {
                is_to_stop: way.save_to.as_ref().is_some_and(|to| to.is_to_stop),
            },
            _ => Plan::Leave,
        };
        let mark = self.policy.residence(job).cloned().unwrap_or_default();
        let devices = self.jobs.devices(job);
        let passage = Passage::begin(plan, &mark, &devices, processes, way.patience);
        let why_not = why_not.or_else(|| Some(in_the_way(&[Obstacle::NotHere(job, passage.as_ref().err().copied()?)])));
        match (passage, why_not) {
            (Ok(passage), None) => {
                let passing = Way::passing(passage, purpose, processes.to_vec(), now.ns);
                let Way {
                    tickets,
                    patience,
                    save_to,
                    ..
                } = way;
                let way = Way {
                    tickets,
                    patience,
                    save_to,
                    ..passing
                };
                self.follow(job, way, now);
            }
            (_, why_not) => {
                let why_not = why_not.unwrap_or_else(|| nothing_there(job, purpose));
                self.not_begun(job, purpose, &way.tickets, &why_not, now);
            }
        }
    }

    /// There is room for a job that is away: its way back begins, and claims the room. While something else is under
    /// way with it, that ends first.
    pub(in crate::driver) fn come(&mut self, job: JobId, now: Now) {
        if self.ways.has(job) {
            self.ways.to_come.insert(job);
            return;
        }
        let mark = self.policy.residence(job).cloned().unwrap_or_default();
        let (devices, processes) = (self.jobs.devices(job), self.processes_with_library(job));
        if let Some(why) = self.lacks(job) {
            return self.step(
                now,
                Event::Returned {
                    job,
                    end: Return::NoRoom(why),
                },
            );
        }
        let is_stopped = |process: &&Process| self.processes.stat(process.pid).is_some_and(|stat| stat.is_stopped);
        if let Some(stopped) = processes.iter().find(is_stopped) {
            // The driver would wait for it without end, and the room be kept from others.
            let pid = stopped.pid;
            let end = Return::NoRoom(format!("pid {pid} is stopped: kill -CONT {pid} lets it go on"));
            return self.step(now, Event::Returned { job, end });
        }
        match Passage::begin(Plan::Come, &mark, &devices, &processes, Patience::default()) {
            Ok(mut passage) => {
                // One that began meanwhile waits before it has any CUDA: it is not to be restored.
                for process in &processes {
                    if self.owed(job, *process, Place::Source).is_empty() {
                        passage.ask_first(*process);
                    }
                }
                self.follow(job, Way::passing(passage, Purpose::Resume, processes, now.ns), now);
            }
            Err(Residence::Here) => {
                let text = format!("{job} runs again");
                let end = Return::Back(text);
                self.step(now, Event::Returned { job, end });
            }
            Err(residence) => {
                let end = Return::Never(format!("{job} is {} now", residence.word()));
                self.step(now, Event::Returned { job, end });
            }
        }
    }
}

pub(super) fn in_the_way(found: &[Obstacle]) -> ErrorView {
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    ErrorView {
        code: ErrorCode::Failed,
        message: texts.join("; "),
        hint: found.first().map(Obstacle::remedy),
        holders: Vec::new(),
    }
}

fn nothing_there(job: JobId, purpose: Purpose) -> ErrorView {
    let what = match purpose {
        Purpose::Move(_) => "move",
        Purpose::Save => "save",
        _ => "suspend",
    };
    let message = format!("no process of {job} uses a GPU: there is nothing to {what}");
    error_view(ErrorCode::Failed, message, None)
}
