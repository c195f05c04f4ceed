// SPDX-License-Identifier: Apache-2.0
//! The decisions: each file of this folder makes one, and writes it into the books. No other code can write them.

use std::fmt::Display;

use partage_protocol::units::JobId;

use crate::action::Action;
use crate::books::Books;
use crate::caller::Ticket;
use crate::config::Config;
use crate::heard::{Heard, Word};
use crate::notice::{Figures, Numbers};
use crate::refusal::Refusal;

mod admission;
mod adoption;
mod attaching;
mod audit;
mod change;
mod change_terms;
mod default_job;
mod denials;
mod draining;
mod ending;
mod fairness;
mod foreseen;
mod headroom;
mod idling;
mod measuring;
mod overhead;
mod polls;
mod preempting;
mod process_limits;
mod registered;
mod rejudging;
mod residence;
mod returning;
mod said;
mod step;
mod time_audit;
mod time_limit;
mod undecided;
mod unmanaged;

pub use adoption::ADOPTION_NS;
pub use attaching::MAX_CLIENTS_PER_JOB;
pub use measuring::MEASURE_NS;

/// Every decision about jobs, devices and clients. What it knows is read through [`Books`], to which it derefs.
#[derive(Clone, Debug)]
pub struct Policy {
    books: Books,
    /// When something is due; kept so that asks need not look at every job.
    due_ns: Option<u64>,
    /// Filled during a step.
    out: Vec<Action>,
}

/// To read alone: there is no `DerefMut`.
impl std::ops::Deref for Policy {
    type Target = Books;

    fn deref(&self) -> &Books {
        &self.books
    }
}

impl Policy {
    /// A policy that knows no device, job or client yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            books: Books::new(config),
            due_ns: None,
            out: Vec::new(),
        }
    }

    /// When the policy wants a [`Event::Tick`] at the latest, if nothing else happens; `None` for never.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.due_ns
    }

    /// Says what Unix time it is at `now_ns`: what is remembered for people has the date. Without it, the epoch.
    pub fn set_clock(&mut self, now_ns: u64, unix_ns: u64) {
        self.books.set_clock(now_ns, unix_ns);
    }

    /// Something is due at `due_ns`, perhaps before all else.
    pub(crate) fn bring_forward(&mut self, due_ns: u64) {
        self.due_ns = Some(self.due_ns.map_or(due_ns, |other| other.min(due_ns)));
    }

    /// When something is due, after all that a step did.
    pub(crate) fn note_due(&mut self) {
        self.due_ns = self.next_due();
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.out.push(action);
    }

    pub(crate) fn tell(&mut self, ticket: Ticket, word: Word) {
        let heard = Heard(word);
        self.act(Action::Reply { ticket, heard });
    }

    /// A command's request is refused.
    pub(crate) fn refuse(&mut self, ticket: Ticket, why: impl Into<Refusal>) {
        self.tell(ticket, Word::Refused(why.into()));
    }

    pub(crate) fn publish(&mut self, kind: &'static str, job: Option<JobId>, pid: Option<u32>, what: impl Display) {
        self.publish_numbers(kind, (job, pid), what, Figures::None);
    }

    /// The same with the numbers of the sentence.
    pub(crate) fn publish_numbers(
        &mut self,
        kind: &'static str,
        (job, pid): (Option<JobId>, Option<u32>),
        what: impl Display,
        figures: Figures,
    ) {
        let known = job.and_then(|job| self.books.jobs.get(&job)).map(|job| &job.record);
        let record = known.filter(|_| figures.are_of_the_job()).cloned();
        self.act(Action::Publish {
            kind,
            job,
            uid: known.map(|record| record.uid),
            pid,
            text: what.to_string(),
            numbers: Box::new(Numbers { record, figures }),
        });
    }
}
