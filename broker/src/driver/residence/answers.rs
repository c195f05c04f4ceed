// SPDX-License-Identifier: Apache-2.0
//! Follows a way to its end, and says what it came to: to the commands that wait, and as an event.

use partage_policy::{Event, Outcome, Passage, Process, Residence, Stage, Ticket, Trouble};
use partage_protocol::admin::{ErrorCode, ErrorView, Reply};
use partage_protocol::size::{format_bytes, format_duration};
use partage_protocol::units::JobId;

use super::way::{Phase, Purpose, Way};
use crate::clock::Now;
use crate::driver::effect::Effect;
use crate::driver::state_driver::StateDriver;
use crate::peer::ConnectionId;

/// Stages shorter than this are not worth a word.
const WORTH_NS: u64 = 1_000_000;

impl StateDriver {
    /// Carries a way on; one that is not over waits in its place.
    pub(super) fn follow(&mut self, job: JobId, mut way: Way, now: Now) {
        self.go_on(job, &mut way, now);
        let outcome = match &way.phase {
            Phase::Asking { .. } => None,
            Phase::Passing { passage, .. } => passage.outcome(),
        };
        let Some(outcome) = outcome else {
            self.ways.by_job.insert(job, way);
            return;
        };
        self.finish(job, way, outcome, now);
        // One of its processes may have ended since the last step was begun.
        if outcome != Outcome::Here && self.ways.gone.iter().any(|(other, _)| *other == job) {
            self.recover_way(job, now);
        }
    }

    fn finish(&mut self, job: JobId, way: Way, outcome: Outcome, now: Now) {
        let Phase::Passing { passage, .. } = &way.phase else {
            return;
        };
        let why = reason(passage, way.why.as_deref());
        let bytes = format_bytes(self.policy.returning_bytes(job, &self.clients));
        let took = took(&way, now);
        let (kind, text) = match (way.purpose, outcome) {
            (_, Outcome::Poisoned) => (
                "job-poisoned",
                format!("{job} cannot run again: {why}; to end it: partage stop {job}"),
            ),
            // It is as it was: a process of it ended, or another broker found it so.
            (Purpose::Recover, Outcome::Away) => return,
            (Purpose::Suspend, Outcome::Away) => (
                "job-suspended",
                format!("{job} is suspended: its {bytes} are in host memory, {took}"),
            ),
            (Purpose::Suspend, Outcome::Here) => ("suspend-failed", format!("{job} goes on: {why}")),
            (Purpose::Resume { .. }, Outcome::Away) => ("resume-failed", format!("{job} stays suspended: {why}")),
            (Purpose::Resume { .. } | Purpose::Recover, Outcome::Here) => {
                ("job-resumed", format!("{job} runs again, {took}"))
            }
        };
        self.publish(now, kind, Some(job), None, text.clone());
        let is_done = matches!(
            (way.purpose, outcome),
            (Purpose::Suspend, Outcome::Away) | (Purpose::Resume { .. }, Outcome::Here)
        );
        if let (
            Purpose::Resume {
                is_patient: true,
                deadline_ns,
            },
            Outcome::Away,
        ) = (way.purpose, outcome)
        {
            // Somebody took the room in between: the queue's next look counts with that.
            for ticket in way.tickets {
                let again = Event::ResumeAgain {
                    job,
                    ticket,
                    deadline_ns,
                    reason: why.clone(),
                };
                self.step(now, again);
            }
            return;
        }
        for ticket in way.tickets {
            let reply = match is_done {
                true => Reply::Done { message: text.clone() },
                false => Reply::Error(ErrorView {
                    code: ErrorCode::Failed,
                    message: text.clone(),
                    hint: Some(format!("partage why {job}")),
                    holders: Vec::new(),
                }),
            };
            self.answer_ticket(ticket, reply);
        }
    }

    /// A command's last answer.
    pub(super) fn answer_ticket(&mut self, ticket: Ticket, reply: Reply) {
        let to = ConnectionId(ticket.0);
        self.tickets.remove(&to);
        self.effects.push(Effect::Document {
            to,
            reply: Box::new(reply),
            is_last: true,
        });
    }

    /// A process ended: its job's passage hears of it at the next turn.
    pub(in crate::driver) fn note_gone(&mut self, process: Process) {
        let jobs = self.clients.of_process(process).into_iter();
        let jobs = jobs.filter_map(|id| self.clients.get(id).map(|client| client.job));
        for job in jobs {
            let is_away = self
                .policy
                .residence(job)
                .is_some_and(|mark| mark.residence != Residence::Here);
            if (is_away || self.ways.has(job)) && !self.ways.gone.contains(&(job, process)) {
                self.ways.gone.push((job, process));
            }
        }
    }

    pub(super) fn take_gone(&mut self, job: JobId, process: Process, now: Now) {
        match self.ways.by_job.get_mut(&job) {
            Some(way) => {
                if let Phase::Passing { passage, .. } = &mut way.phase {
                    passage.gone(process);
                }
            }
            None => self.recover_way(job, now),
        }
    }
}

/// Why a passage did not come to what it was begun for.
fn reason(passage: &Passage, why: Option<&str>) -> String {
    let trouble = passage.trouble().map(Trouble::to_string);
    match (trouble, why) {
        (Some(trouble), Some(why)) => format!("{trouble} ({why})"),
        (Some(trouble), None) => trouble,
        (None, Some(why)) => why.to_owned(),
        (None, None) => "its processes ended".to_owned(),
    }
}

/// `after 0.4 s (lock the process 2 ms, …)`.
fn took(way: &Way, now: Now) -> String {
    let parts = way.took.iter().filter(|(_, ns)| *ns >= WORTH_NS);
    let parts: Vec<String> = parts
        .map(|(stage, ns)| format!("{} {}", Stage::text(*stage), format_duration(*ns)))
        .collect();
    let whole = format_duration(now.ns.saturating_sub(way.began_ns));
    match parts.is_empty() {
        true => format!("after {whole}"),
        false => format!("after {whole} ({})", parts.join(", ")),
    }
}
