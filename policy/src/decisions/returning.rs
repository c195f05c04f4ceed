// SPDX-License-Identifier: Apache-2.0
//! Jobs that are away and are to come back: they wait for room in the queue, each in its turn among the runs.
//!
//! Its turn is told as [`Action::Come`]; the broker then asks for the room once more and claims it with the mark that
//! says *coming*, before any other event.

use partage_protocol::size::format_duration;
use partage_protocol::units::{JobId, SECOND_NS};

use super::Policy;
use super::claims::Claims;
use super::placement::Shortages;
use super::residence::Shortage;
use super::survey::Survey;
use super::target::Access;
use crate::caller::{Caller, Ticket};
use crate::command::{Action, Come};
use crate::event::TargetQuery;
use crate::job::{Job, Returning, Wait};
use crate::machine::Machine;
use crate::residence::Residence;
use crate::views::returning as said;

/// Where the driver shows less room than the books, a return is tried again after this.
const AGAIN_NS: u64 = SECOND_NS;

impl Policy {
    /// A command wants a job back on its devices.
    pub(crate) fn return_job(
        &mut self,
        (ticket, caller): (Ticket, &Caller),
        target: &TargetQuery,
        (is_patient, timeout_ns): (bool, Option<u64>),
        now_ns: u64,
    ) {
        let id = match self.resolve(target, caller, Access::Change) {
            Ok(id) => id,
            Err(why) => return self.refuse(ticket, why),
        };
        let residence = self.jobs.get(&id).map_or(Residence::Here, Job::residence);
        let message = match residence {
            Residence::Here => format!("{id} is not suspended"),
            Residence::Coming => format!("{id} is coming back already"),
            Residence::Away if self.returning.contains_key(&id) => format!("{id} waits for room to come back already"),
            Residence::Away => {
                let wait = Wait::new(ticket, now_ns, timeout_ns);
                let returning = Returning {
                    wait,
                    is_patient,
                    not_before_ns: None,
                };
                self.returning.insert(id, returning);
                return self.queue.join(id);
            }
            Residence::Poisoned => {
                let message = format!("the driver lost a process of {id}, which can never run again");
                let hint = format!("partage why {id}; to end it: partage stop {id}");
                return self.refuse(ticket, said::refused(message, hint));
            }
            Residence::Leaving | Residence::Moving | Residence::Saving => {
                let message = format!("{id} is {} now", residence.word());
                let hint = format!("once that is over: partage resume {id}");
                return self.refuse(ticket, said::refused(message, hint));
            }
        };
        self.reply(ticket, said::nothing(message), "there is nothing to bring back");
    }

    /// There was no room after all: a command that waits for a job's return waits on.
    pub(crate) fn resume_again(
        &mut self,
        id: JobId,
        (ticket, deadline_ns): (Ticket, Option<u64>),
        reason: String,
        now_ns: u64,
    ) {
        let wait = Wait {
            deadline_ns,
            reason,
            ..Wait::new(ticket, now_ns, None)
        };
        let returning = Returning {
            wait,
            is_patient: true,
            not_before_ns: Some(now_ns.saturating_add(AGAIN_NS)),
        };
        self.returning.insert(id, returning);
        self.queue.join(id);
    }

    /// Who waits for a job's return gave up.
    pub(crate) fn return_given_up(&mut self, ticket: Ticket) {
        let is_it = |returning: &Returning| returning.wait.ticket == ticket;
        if let Some(id) = self.returning.iter().find(|(_, it)| is_it(it)).map(|(id, _)| *id) {
            self.returning.remove(&id);
            self.queue.leave(id);
        }
    }

    /// Is this job in the queue to come back?
    pub(crate) fn is_returning(&self, id: JobId) -> bool {
        self.returning.contains_key(&id)
    }

    /// When somebody who waits for a job's return is to hear something.
    pub(crate) fn returning_due_ns(&self) -> impl Iterator<Item = u64> + '_ {
        self.returning.values().flat_map(|returning| {
            let wait = &returning.wait;
            let again = wait.deadline_ns.into_iter().chain(returning.not_before_ns);
            again.chain([wait.next_reminder_ns])
        })
    }

    /// Why a job cannot come back yet, and what is short.
    fn shortage<M: Machine>(&self, job: &Job, claimed: &Claims, machine: &M) -> Option<(Shortage, Shortages)> {
        let mut first = None;
        let mut shortages = Shortages::new();
        for (slot, place) in job.record.devices.iter().enumerate() {
            if let Err(shortage) = self.room_on(job, (slot, place.device), claimed, machine) {
                let is_time = matches!(shortage, Shortage::Time { .. });
                shortages.insert(place.device, (!is_time, is_time));
                first.get_or_insert(shortage);
            }
        }
        Some((first?, shortages))
    }

    /// Lets a job come back, in its turn, if there is room; answers whether it waits on.
    pub(crate) fn serve_return<M: Machine>(
        &mut self,
        id: JobId,
        (claimed, survey): (&mut Claims, &mut Survey),
        position: u32,
        machine: &M,
        now_ns: u64,
    ) -> bool {
        let is_away = |job: &&Job| job.state().holds_memory() && job.residence() == Residence::Away;
        let Some(job) = self.jobs.get(&id).filter(is_away) else {
            if let Some(returning) = self.forget_returning(id) {
                self.refuse(returning.wait.ticket, said::ended(id));
            }
            return false;
        };
        let wishes = self.return_wishes(job, machine);
        let mut shortage = self.shortage(job, claimed, machine);
        if shortage.is_some() && survey.has_lingering(self) {
            let devices: Vec<_> = wishes.iter().map(|wish| wish.device).collect();
            if self.end_lingering(&devices, machine, now_ns) {
                *survey = Survey::default();
                let job = self.jobs.get(&id);
                shortage = job.and_then(|job| self.shortage(job, claimed, machine));
            }
        }
        // Later ones get what is left beside it, whether it comes or waits.
        claimed.add(id, wishes);
        if let Some(returning) = self.returning.get_mut(&id)
            && !returning.may_try(now_ns)
        {
            let reason = returning.wait.reason.clone();
            return self.return_waits(id, position, (reason, &Shortages::new()), (survey, machine), now_ns);
        }
        let Some((shortage, shortages)) = shortage else {
            if let Some(returning) = self.forget_returning(id) {
                let come = Come {
                    job: id,
                    ticket: returning.wait.ticket,
                    is_patient: returning.is_patient,
                    deadline_ns: returning.wait.deadline_ns,
                };
                self.command(Action::Come(come), "there is room for it");
            }
            return false;
        };
        let reason = shortage.to_string();
        self.return_waits(id, position, (reason, &shortages), (survey, machine), now_ns)
    }

    /// Says what a return waits for, or that it waited long enough; answers whether it waits on.
    fn return_waits<M: Machine>(
        &mut self,
        id: JobId,
        position: u32,
        (reason, shortages): (String, &Shortages),
        (survey, machine): (&Survey, &M),
        now_ns: u64,
    ) -> bool {
        let Some(returning) = self.returning.get_mut(&id) else {
            return false;
        };
        let (wait, is_patient) = (&mut returning.wait, returning.is_patient);
        let (ticket, waited_ns) = (wait.ticket, now_ns.saturating_sub(wait.since_ns));
        if !is_patient || wait.ran_out(now_ns) {
            let message = match is_patient {
                true => {
                    let waited = format_duration(waited_ns);
                    format!("{id} stays suspended: no room within {waited}: {reason}")
                }
                false => format!("{id} stays suspended: {reason}"),
            };
            self.forget_returning(id);
            let holders = self.shortage_holders(shortages, survey, machine);
            self.refuse(ticket, said::no_room(message, holders));
            return false;
        }
        wait.wait_for(&reason);
        if wait.take_reminder(now_ns).is_some() {
            let holders = self.shortage_holders(shortages, survey, machine);
            let reply = said::waits(position, reason, holders);
            self.reply(ticket, reply, "it hears at once and every minute what it waits for");
        }
        true
    }

    fn forget_returning(&mut self, id: JobId) -> Option<Returning> {
        self.queue.leave(id);
        self.returning.remove(&id)
    }

    /// What a job that is to come back waits for.
    pub(crate) fn returning_text(&self, job: &Job, now_ns: u64) -> Option<String> {
        let wait = &self.returning.get(&job.id())?.wait;
        let waited = format_duration(now_ns.saturating_sub(wait.since_ns));
        Some(format!("it waits since {waited} to come back: {}", wait.reason))
    }
}
