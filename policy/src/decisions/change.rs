// SPDX-License-Identifier: Apache-2.0
//! Changing a live job: its memory limit and promise, its terms of time, and its end.
//!
//! A promise that equals the limit follows it; where nothing was promised, a limit alone promises nothing, and a limit
//! that is taken away (`none`) leaves the promise as it was. A raised promise needs room now: it does not queue, and it
//! may pass waiting requests, because its job already runs. A limit below use denies growth and kills nothing.

use super::time_limit::time_limit_at;
use crate::books::room::changed::Wanted;
use crate::config::Split;
use crate::registration::Ceiling;
use crate::terms::Terms;
use partage_protocol::size::NONE;
use partage_protocol::units::JobId;

use super::Policy;
use super::change_terms::changed_terms;
use crate::action::{Action, Signal};
use crate::books::room::claims::Claims;
use crate::books::room::placement::Unplaced;
use crate::books::room::survey::Survey;
use crate::books::who::Access;
use crate::caller::{Caller, Ticket};
use crate::event::{Change, TargetQuery};
use crate::heard::Word;
use crate::job::{JobState, Placement, State};
use crate::machine::{Machine, OnSlot};
use crate::notice::{Figures, Notice};
use crate::refusal::{Refusal, Why};
use crate::request::{RunSpec, check_name};
use crate::rules::{Judge, NotAllowed};

impl Policy {
    pub(crate) fn set<M: Machine>(
        &mut self,
        (ticket, caller): (Ticket, &Caller),
        target: &TargetQuery,
        change: &Change,
        machine: &M,
        now_ns: u64,
    ) {
        let mut changed = self.change_job(caller, target, change, machine, now_ns);
        let is_full = changed.as_ref().is_err_and(Refusal::is_of_a_promise);
        if let (true, Ok(id)) = (is_full, self.resolve(target, caller, Access::Change)) {
            let places = self.books.jobs.get(&id).map(|job| job.record.devices.iter());
            let devices: Vec<_> = places.into_iter().flatten().map(|place| place.device).collect();
            if self.end_lingering(&devices, machine, now_ns) {
                changed = self.change_job(caller, target, change, machine, now_ns);
            }
        }
        match changed {
            Ok(id) => {
                if let Some(job) = self.books.jobs.get(&id) {
                    let seen = Box::new((job.clone(), caller.clone()));
                    self.tell(ticket, Word::Job(seen));
                }
            }
            Err(why) if caller.is_admin => self.refuse(ticket, why.for_admin()),
            Err(why) => self.refuse(ticket, why),
        }
    }

    /// All that is named changes, or nothing.
    fn change_job<M: Machine>(
        &mut self,
        caller: &Caller,
        target: &TargetQuery,
        change: &Change,
        machine: &M,
        now_ns: u64,
    ) -> Result<JobId, Refusal> {
        if change.is_forced && !caller.is_admin {
            return Err(NotAllowed::Force().into());
        }
        if let Some(pid) = target.text.strip_prefix("process:") {
            return self.change_process(caller, pid, change, machine, now_ns);
        }
        let id = self.resolve(target, caller, Access::Change)?;
        let wanted = Wanted::read(change, caller)?;
        let terms = match self.books.jobs.get(&id) {
            Some(job) => changed_terms(&job.record.asked_terms(), change, caller)?,
            None => None,
        };
        let name = self.wanted_name(id, change, machine, now_ns)?;
        let ceiling = self.moved_ceiling(id, change, caller);
        if wanted.is_none() && terms.is_none() && name.is_none() {
            return Err(Why::NothingToSet(id).into());
        }
        if let Some(queued) = self.books.jobs.get(&id).and_then(|job| job.life.queued()) {
            let old = queued.spec.under(ceiling.clone(), &self.books.config)?;
            let mut spec = wanted.map_or_else(|| old.clone(), |wanted| wanted.in_queue(&old));
            if let Some(terms) = terms {
                spec.set_terms(terms)?;
            }
            // Judged before it replaces what was valid; its turn comes at the end of this step.
            if let Err(Unplaced::Refused(why)) = self.place(&spec, &Claims::default(), &Survey::default(), machine) {
                return Err(why);
            }
            self.rename(id, name);
            self.take_ceiling(id, ceiling);
            self.take_spec(id, spec);
            return Ok(id);
        }
        let judge = self.judge_under(id, ceiling.as_ref());
        let terms = match terms {
            Some(asked) => Some((judge.terms(&asked)?, asked)),
            None => None,
        };
        if let Some((terms, _)) = &terms {
            self.check_terms(id, terms)?;
            self.check_time_limit(id, terms, now_ns)?;
        }
        if let Some(wanted) = wanted {
            self.change_memory(id, &(wanted, judge), machine, now_ns)?;
        }
        if let Some((terms, asked)) = terms {
            self.take_terms(id, terms, now_ns);
            if let Some(job) = self.books.jobs.get_mut(&id) {
                job.record_mut().set_asked_terms(asked);
            }
        }
        self.rename(id, name);
        self.take_ceiling(id, ceiling);
        if let Some(record) = self.books.jobs.get(&id).map(|job| job.record.clone()) {
            self.act(Action::SaveJob(Box::new(record)));
        }
        Ok(id)
    }

    /// A waiting job asks for this from now on.
    fn take_spec(&mut self, id: JobId, spec: RunSpec) {
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
        job.record_mut().set_terms(spec.terms.clone());
        job.record_mut().set_asked_terms(spec.asked_terms.clone());
        if let Some(queued) = job.queued_mut() {
            queued.set_spec(spec);
        }
    }

    /// The name that a job is to have: none for no change, and none within for no name.
    fn wanted_name<M: Machine>(
        &mut self,
        id: JobId,
        change: &Change,
        machine: &M,
        now_ns: u64,
    ) -> Result<Option<Option<String>>, Refusal> {
        match change.name.as_deref() {
            None => Ok(None),
            Some(NONE) => Ok(Some(None)),
            Some(name) => {
                check_name("name: ", name)?;
                let uid = self.books.jobs.get(&id).map_or(u32::MAX, |job| job.record.uid);
                self.check_name_is_free(uid, name, Some(id), machine, now_ns)?;
                Ok(Some(Some(name.to_owned())))
            }
        }
    }

    fn rename(&mut self, id: JobId, name: Option<Option<String>>) {
        let (Some(name), Some(job)) = (name, self.books.jobs.get_mut(&id)) else {
            return;
        };
        if job.rename(name) {
            // The name itself is for its owner's eyes.
            self.publish("renamed", Some(id), None, Notice::Renamed(id));
        }
    }

    /// A live job's limits and promises of memory change. The caller saves the record.
    fn change_memory<M: Machine>(
        &mut self,
        id: JobId,
        wanted: &(Wanted, Judge),
        machine: &M,
        now_ns: u64,
    ) -> Result<(), Refusal> {
        let old = self.books.places(id);
        let new = old
            .iter()
            .map(|place| self.replaced(place, wanted))
            .collect::<Result<Vec<_>, _>>()?;
        for (old, new) in old.iter().zip(&new) {
            self.check_raise(id, old, new, machine)?;
        }
        self.apply(id, &new, machine, now_ns);
        let is_kept = |place: &Placement| self.is_kept(id, place.device, machine);
        let raised = |(old, new): &(&Placement, &Placement)| new.request > old.request;
        if let Some((_, short)) = old.iter().zip(&new).filter(raised).find(|(_, new)| !is_kept(new)) {
            let why = self.no_room_for(short, (0, None), machine, id);
            self.apply(id, &old, machine, now_ns);
            return Err(why);
        }
        let now = self.describe(&new);
        self.show_pages(id);
        let is_over = self
            .books
            .jobs
            .get(&id)
            .is_some_and(|job| self.state(job, machine) == JobState::OverLimit);
        let what = Notice::Limits(id, now, is_over);
        self.publish_numbers("limit-changed", (Some(id), None), what, Figures::Job);
        Ok(())
    }

    pub(crate) fn apply<M: Machine>(&mut self, id: JobId, places: &[Placement], machine: &M, now_ns: u64) {
        let limits: Vec<u64> = places
            .iter()
            .map(|place| self.limit_of(place.device, place.limit))
            .collect();
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
        job.record_mut().set_devices(places);
        for (slot, state) in job.slots_mut() {
            let Some(limit) = limits.get(slot) else { continue };
            // A raised promise is handed out by `share_headroom`, after the others were lowered for it.
            let ceiling = state.ledger.ceiling().min(*limit);
            let pages = OnSlot { machine, slot };
            state.set_limit(&pages, *limit, ceiling, now_ns);
            state.note_lowered(&pages);
        }
        self.limit_processes(id, machine, now_ns);
        for place in places {
            self.share_headroom(place.device, machine, now_ns);
        }
    }

    pub(crate) fn stop<M: Machine>(
        &mut self,
        (ticket, caller): (Ticket, &Caller),
        target: &TargetQuery,
        grace_ns: u64,
        machine: &M,
        now_ns: u64,
    ) {
        let id = match self.resolve(target, caller, Access::Change) {
            Ok(id) => id,
            Err(why) => return self.refuse(ticket, why),
        };
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
        if job.state() == State::Waiting {
            self.leave_queue(id, Why::StoppedWaiting(id).into());
            return self.tell(ticket, Word::done(Notice::WaitsNoMore(id)));
        }
        let kill_at_ns = now_ns.saturating_add(grace_ns);
        // Whoever may stop another user's job acts for that user; root may signal every process itself.
        let by = if caller.uid == 0 { 0 } else { job.record.uid };
        job.order_stop(Some(ticket), kill_at_ns, (Notice::WasStopped().to_string(), by));
        self.publish(
            "job-stopping",
            Some(id),
            None,
            Notice::StoppedBy(id, caller.user.clone()),
        );
        self.act(Action::SignalJob {
            job: id,
            signal: Signal::Terminate,
            by,
        });
        self.look_after(id, machine, now_ns);
    }

    /// The ceiling of a job from now on. The caller saves the record.
    pub(super) fn take_ceiling(&mut self, id: JobId, ceiling: Option<Ceiling>) {
        if let (Some(ceiling), Some(job)) = (ceiling, self.books.jobs.get_mut(&id)) {
            job.record_mut().set_ceiling(ceiling);
        }
    }

    /// The job has these terms from now on. The caller saves the record.
    pub(crate) fn take_terms(&mut self, id: JobId, terms: Terms, now_ns: u64) {
        let unix_ns = self.unix_ns(now_ns);
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
        let time_limit_at_ns = time_limit_at(&job.record, terms.time_limit_ns, unix_ns, now_ns);
        if job.record.terms.time_limit_ns != terms.time_limit_ns {
            job.set_time_limit_at(time_limit_at_ns);
        }
        job.record_mut().set_terms(terms);
        let what = Notice::HasTerms(id, job.record.terms.clone());
        self.show_terms(id);
        self.publish_numbers("terms-changed", (Some(id), None), what, Figures::Job);
    }

    /// Tells whoever shares out time what the job may have.
    pub(crate) fn show_terms(&mut self, id: JobId) {
        let Some(job) = self.books.jobs.get(&id) else { return };
        // A default job is many programs on every device, which know nothing of one another. Of one program, work on
        // several devices waits for one another more often than not.
        let is_gang = job.record.default_scope.is_none() && job.record.devices.len() > 1;
        let user = (self.books.config.split == Split::User).then_some(job.record.uid);
        let action = Action::ShowTerms {
            job: id,
            devices: job.record.devices.iter().map(|place| place.device).collect(),
            terms: job.record.terms.on_a_device(user, is_gang),
        };
        self.act(action);
    }
}
