// SPDX-License-Identifier: Apache-2.0
//! Jobs that are away and are to come back: they wait for room in the queue, each in its turn among the runs.
//!
//! ```text
//!   resume ──► in the queue ── room: Action::Come ──► coming ── Event::Returned ──► answered
//!                  ▲                                    │ no room after all
//!                  └──────── after a while ─────────────┘
//! ```
//! The broker asks for the room once more and claims it with the mark that says *coming*, before any other event.
//! Several commands may wait for one job, each for as long as it was told.

use partage_protocol::units::{DeviceUuid, JobId, SECOND_NS};

use super::Policy;
use crate::action::Action;
use crate::books::room::claims::Claims;
use crate::books::room::placement::Shortages;
use crate::books::room::residence::Shortage;
use crate::books::room::survey::Survey;
use crate::books::who::Access;
use crate::caller::{Caller, Ticket};
use crate::event::{Return, TargetQuery};
use crate::heard::Word;
use crate::job::{Job, Returning, State, Wait};
use crate::machine::Machine;
use crate::notice::Notice;
use crate::refusal::Why;
use crate::residence::Residence;

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
        let Some(job) = self.books.jobs.get(&id) else { return };
        let residence = job.residence();
        if job.state() == State::Waiting {
            return self.refuse(ticket, Why::NotStarted(id));
        }
        match residence {
            Residence::Here => self.tell(ticket, Word::done(Notice::NotAway(id))),
            Residence::Away | Residence::Coming => {
                let returning = self.books.returning.entry(id).or_default();
                if !returning.is_wanted() && residence == Residence::Away && !returning.is_coming {
                    self.books.queue.join(id);
                }
                let own = returning.own.iter().map(|own| &own.reason);
                let reasons = returning.waits.iter().map(|wait| &wait.reason);
                let reason = reasons.chain(own).next().cloned().unwrap_or_default();
                let wait = Wait {
                    is_patient,
                    reason,
                    ..Wait::new(ticket, now_ns, timeout_ns)
                };
                returning.join(wait, residence == Residence::Coming);
            }
            Residence::Poisoned => self.refuse(ticket, Why::Poisoned(id)),
            Residence::Leaving | Residence::Moving | Residence::Saving => {
                self.refuse(ticket, Why::OnItsWay(id, residence));
            }
        }
    }

    /// A job's memory stands on its way: whoever waits for its return hears, and it comes without them.
    pub(crate) fn note_stuck(&mut self, id: JobId, why: &str) {
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
        if job.stuck.as_deref() == Some(why) {
            return;
        }
        job.set_stuck(Some(why.to_owned()));
        self.publish("job-stuck", Some(id), None, Notice::Stuck(id, why.to_owned()));
        let returning = self
            .books
            .returning
            .get_mut(&id)
            .filter(|returning| returning.is_coming);
        let waits = returning.map(|returning| std::mem::take(&mut returning.waits));
        for wait in waits.into_iter().flatten() {
            self.refuse(wait.ticket, Why::Stuck(id, why.to_owned()));
        }
    }

    /// A job is restored: its `why` says what became of it, and where another program did so while it was away, that of
    /// each job whose GPU it came to.
    pub(crate) fn note_restored(&mut self, id: JobId, texts: &[String], behind: Option<bool>) {
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
        for text in texts {
            job.note(text);
        }
        let Some(is_here) = behind else { return };
        let devices: Vec<DeviceUuid> = job.record.devices.iter().map(|place| place.device).collect();
        let is_beside = |job: &&mut Job| {
            let shares = devices.iter().any(|device| job.slot_of(*device).is_some());
            job.id() != id && job.state().holds_memory() && shares
        };
        for job in self.books.jobs.values_mut().filter(is_beside) {
            job.note(Notice::BroughtBack(id, is_here));
        }
    }

    /// A way of a job's memory ended: whoever waits for its return hears, or waits on.
    pub(crate) fn returned(&mut self, id: JobId, end: Return, now_ns: u64) {
        if let Some(job) = self.books.jobs.get_mut(&id) {
            job.set_stuck(None);
        }
        // One that waits in the queue was not told to come: there was nothing for which it had no room.
        if matches!(end, Return::NoRoom(_)) && self.is_returning(id) {
            return;
        }
        let Some(mut returning) = self.books.returning.remove(&id) else {
            return;
        };
        self.books.queue.leave(id);
        match end {
            Return::Back(text) => {
                for wait in returning.waits {
                    self.tell(wait.ticket, Word::done(&text));
                }
            }
            Return::Never(text) => {
                for wait in returning.waits {
                    self.refuse(wait.ticket, Why::Never(id, text.clone()));
                }
            }
            Return::Ended => {
                for wait in returning.waits {
                    self.refuse(wait.ticket, Why::EndedMeanwhile(id));
                }
            }
            Return::NoRoom(reason) => {
                let (patient, hasty): (Vec<Wait>, Vec<Wait>) =
                    returning.waits.into_iter().partition(|wait| wait.is_patient);
                for wait in hasty {
                    self.refuse(wait.ticket, Why::StaysAway(id, reason.clone(), Vec::new()));
                }
                returning = Returning {
                    waits: patient,
                    not_before_ns: Some(now_ns.saturating_add(AGAIN_NS)),
                    is_coming: false,
                    own: returning.own,
                };
                if !returning.is_wanted() {
                    return;
                }
                returning.wait_for(&reason);
                self.books.returning.insert(id, returning);
                self.books.queue.rejoin(id);
            }
        }
    }

    /// Commands that waited long enough for a job that is on its way, and does not arrive.
    pub(crate) fn expire_coming(&mut self, now_ns: u64) {
        let mut late = Vec::new();
        for (id, returning) in self
            .books
            .returning
            .iter_mut()
            .filter(|(_, returning)| returning.is_coming)
        {
            let over = returning.take_late(now_ns).into_iter();
            late.extend(over.map(|wait| (*id, wait.ticket)));
        }
        for (id, ticket) in late {
            self.refuse(ticket, Why::StillComing(id));
        }
    }

    /// A command that waits for a job's return gave up.
    pub(crate) fn return_given_up(&mut self, ticket: Ticket) {
        let mut left = Vec::new();
        for (id, returning) in &mut self.books.returning {
            returning.waits.retain(|wait| wait.ticket != ticket);
            if !returning.is_wanted() && !returning.is_coming {
                left.push(*id);
            }
        }
        for id in left {
            self.books.returning.remove(&id);
            self.books.queue.leave(id);
        }
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
        let is_alive = |job: &&Job| job.state().holds_memory();
        let Some(job) = self.books.jobs.get(&id).filter(is_alive) else {
            self.returned(id, Return::Ended, now_ns);
            return false;
        };
        match job.residence() {
            Residence::Away => {}
            Residence::Here => {
                self.returned(id, Return::Back(Notice::RunsAgain(id).to_string()), now_ns);
                return false;
            }
            // Something else brings it back, or will say what became of it.
            _ => {
                self.books.queue.leave(id);
                self.books.returning.entry(id).or_default().come();
                return false;
            }
        }
        let wishes = self.return_wishes(job, machine);
        let mut shortage = self.shortage(job, claimed, machine);
        if shortage.is_some() && survey.has_lingering(self) {
            let devices: Vec<_> = wishes.iter().map(|wish| wish.device).collect();
            if self.end_lingering(&devices, machine, now_ns) {
                *survey = Survey::default();
                let job = self.books.jobs.get(&id);
                shortage = job.and_then(|job| self.shortage(job, claimed, machine));
            }
        }
        // Later ones get what is left beside it, whether it comes or waits. What waits for a total is in nobody's way.
        if !matches!(shortage, Some((Shortage::Total(..), _))) {
            claimed.add(id, wishes);
        }
        let Some(returning) = self.books.returning.get_mut(&id) else {
            return false;
        };
        if !returning.may_try(now_ns) {
            return self.return_waits(id, position, (None, &Shortages::new()), (survey, machine), now_ns);
        }
        let Some((shortage, shortages)) = shortage else {
            returning.come();
            self.books.queue.leave(id);
            self.act(Action::Come(id));
            return false;
        };
        let reason = Some(shortage.to_string());
        self.return_waits(id, position, (reason, &shortages), (survey, machine), now_ns)
    }

    /// Says what a return waits for, and to whom it waited long enough; answers whether it waits on. Without a reason
    /// it waits for what it waited for before.
    fn return_waits<M: Machine>(
        &mut self,
        id: JobId,
        position: u32,
        (reason, shortages): (Option<String>, &Shortages),
        (survey, machine): (&Survey, &M),
        now_ns: u64,
    ) -> bool {
        let Some(mut returning) = self.books.returning.remove(&id) else {
            return false;
        };
        if let Some(reason) = &reason {
            returning.wait_for(reason);
        }
        let mut on = Vec::new();
        for mut wait in std::mem::take(&mut returning.waits) {
            let is_over = wait.ran_out(now_ns) || !wait.is_patient;
            let is_told = is_over || wait.take_reminder(now_ns).is_some();
            let holders = match is_told {
                true => self.shortage_holders(shortages, survey, machine),
                false => Vec::new(),
            };
            if is_over {
                let why = match wait.is_patient {
                    true => Why::StaysAwayAfter(now_ns.saturating_sub(wait.since_ns), id, wait.reason, holders),
                    false => Why::StaysAway(id, wait.reason, holders),
                };
                self.refuse(wait.ticket, why);
                continue;
            }
            if is_told {
                self.tell(wait.ticket, Word::Waiting(position, wait.reason.clone(), holders));
            }
            on.push(wait);
        }
        returning.wait_on(on);
        if !returning.is_wanted() {
            self.books.queue.leave(id);
            return false;
        }
        self.books.returning.insert(id, returning);
        true
    }
}
