// SPDX-License-Identifier: Apache-2.0
//! The look before anything is touched: what speaks against it, and the state of each process.

use partage_policy::{Event, Intent, Obstacle, Passage, Place, Plan, Process, Ticket, driver_answered, obstacles};
use partage_protocol::admin::{ErrorCode, ErrorView, Reply};
use partage_protocol::units::JobId;

use super::answers::in_the_way;
use super::code;
use super::engine::Engine;
use super::facts::processes_with_library;
use super::maps::{map_refused, try_map};
use super::steps::ask_state;
use super::way::{Leaving, Phase, Purpose, Way};
use crate::host::checkpoint::{Answer, Outcome, State};
use crate::host::nodes;
use crate::site::{Site, error_view};

impl Engine {
    /// The policy sends a job off its devices, without a command.
    pub(crate) fn leave_by_itself(&mut self, site: &mut Site, job: JobId) {
        if self.ways.has(job) {
            let why = "its memory is on the way already".to_owned();
            return site.tell(Event::NotLeft { job, why });
        }
        self.begin_to_leave(site, job, Leaving::unasked(Purpose::Suspend));
    }

    /// What speaks against it, as far as it is known without the driver.
    fn found_against(&self, site: &Site, job: JobId, purpose: Purpose) -> Vec<Obstacle> {
        match purpose {
            Purpose::Move(exchange) => {
                let facts = self.job_facts(site, job, Some(exchange.target.device));
                obstacles(&site.policy.move_intent(job, exchange), &facts)
            }
            _ => obstacles(&Intent::Leave, &self.job_facts(site, job, None)),
        }
    }

    /// Nothing speaks against it: `None`; else what is said of it.
    pub(super) fn why_not(&self, site: &Site, job: JobId, purpose: Purpose) -> Option<ErrorView> {
        let found = self.found_against(site, job, purpose);
        if !found.is_empty() {
            return Some(in_the_way(&found));
        }
        match purpose {
            Purpose::Move(_)
                if self.takes_map(site, job) == Some(false) && !processes_with_library(site, job).is_empty() =>
            {
                Some(map_refused(site, job))
            }
            Purpose::Move(exchange) => {
                let room = site.policy.room_to_move(job, exchange, &site.clients);
                room.err().map(|why| why.view())
            }
            _ => None,
        }
    }

    /// Begins to suspend, save or move a job. What lingers where it is to go gives way first.
    pub(super) fn begin_to_leave(&mut self, site: &mut Site, job: JobId, leaving: Leaving) {
        let way = Way::new(Phase::Clearing, leaving, site.now.ns);
        if let Purpose::Move(exchange) = way.purpose {
            let room = site
                .policy
                .ask_room(job, Place::Target, Some(exchange.target), &site.clients);
            if room.is_err() {
                site.tell_next(Event::MakeRoom(exchange.target.device));
                return self.ways.start(job, way);
            }
        }
        self.ask_states(site, job, way);
    }

    /// Has the driver asked about each process, unless something speaks against it.
    pub(super) fn ask_states(&mut self, site: &mut Site, job: JobId, mut way: Way) {
        let purpose = way.purpose;
        if let Some(why_not) = self.why_not(site, job, purpose) {
            return self.not_begun(site, job, (purpose, &way.tickets), &why_not);
        }
        let left = processes_with_library(site, job);
        let Some(first) = left.first().copied() else {
            return self.leave(site, job, way, &[]);
        };
        match purpose {
            Purpose::Move(exchange) if self.takes_map(site, job).is_none() => {
                way.phase = Phase::Trying { left };
                try_map(site, job, exchange.target.device);
            }
            _ => {
                way.phase = Phase::asking(left);
                ask_state(site, job, first);
            }
        }
        self.ways.by_job.insert(job, way);
    }

    /// It ends before anything was touched: the commands that wait hear why, and the policy, where it asked.
    pub(super) fn not_begun(
        &mut self,
        site: &mut Site,
        job: JobId,
        (purpose, tickets): (Purpose, &[Ticket]),
        error: &ErrorView,
    ) {
        for ticket in tickets {
            site.answer_ticket(*ticket, Reply::Error(error.clone()));
        }
        match purpose {
            Purpose::Suspend => {
                let why = error.message.clone();
                site.tell(Event::NotLeft { job, why });
            }
            Purpose::Save if tickets.is_empty() => self.not_saved(site, job, &error.message),
            Purpose::Move(exchange) => {
                let why = (error.message.clone(), error.hint.clone());
                self.ways.note_ended_move(job, exchange, Some(Err(why)));
            }
            _ => {}
        }
    }

    /// The driver said in which state a process is, before anything is touched.
    pub(super) fn take_state(&mut self, site: &mut Site, job: JobId, mut way: Way, outcome: Outcome) {
        let Phase::Asking { left, found } = &mut way.phase else {
            return;
        };
        let process = left.remove(0);
        let why = match outcome {
            Outcome::Answered(Answer::State(State::Running)) => {
                found.push(process);
                None
            }
            // It looks at NVML alone: the driver lets go of no node for it.
            Outcome::Answered(Answer::Code(code::NOT_INITIALIZED)) if way.purpose == Purpose::Save => {
                nodes::open_of(process.pid).map(|node| {
                    format!(
                        "pid {} uses NVML without CUDA and has {node} open, which CRIU cannot save: suspend and \
                         migrate work",
                        process.pid
                    )
                })
            }
            // The same, or it ended.
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
            return self.not_begun(site, job, (way.purpose, &way.tickets), &error);
        }
        if let Some(next) = left.first().copied() {
            ask_state(site, job, next);
            self.ways.by_job.insert(job, way);
            return;
        }
        let processes = std::mem::take(found);
        self.leave(site, job, way, &processes);
    }

    fn leave(&mut self, site: &mut Site, job: JobId, way: Way, processes: &[Process]) {
        let purpose = way.purpose;
        // Without a process on a GPU the promise leaves, or moves, alone. There is nothing to save, and a job that has
        // ended has nothing at all.
        if processes.is_empty() && (purpose == Purpose::Save || site.policy.processes(job).is_empty()) {
            return self.not_begun(site, job, (purpose, &way.tickets), &nothing_there(job, purpose));
        }
        // Time went by.
        let why_not = self.why_not(site, job, purpose);
        let plan = match purpose {
            Purpose::Move(exchange) => Plan::Move(exchange.target),
            Purpose::Save => Plan::Save {
                is_to_stop: way.save_to.as_ref().is_some_and(|to| to.is_to_stop),
            },
            _ => Plan::Leave,
        };
        let mark = site.policy.residence(job).cloned().unwrap_or_default();
        let devices = site.jobs.devices(job);
        let passage = Passage::begin(plan, &mark, &devices, processes, way.patience);
        let why_not = why_not.or_else(|| Some(in_the_way(&[Obstacle::NotHere(job, passage.as_ref().err().copied()?)])));
        match (passage, why_not) {
            (Ok(passage), None) => {
                let passing = Way::passing(passage, purpose, processes.to_vec(), site.now.ns);
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
                self.ways.start(job, way);
            }
            (_, why_not) => {
                let why_not = why_not.unwrap_or_else(|| nothing_there(job, purpose));
                self.not_begun(site, job, (purpose, &way.tickets), &why_not);
            }
        }
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
