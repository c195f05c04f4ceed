// SPDX-License-Identifier: Apache-2.0
//! Changing a live job: its memory limit and promise, its terms of time, and its end.
//!
//! A promise that equals the limit follows it; where nothing was promised, a limit alone promises nothing, and a limit
//! that is taken away (`none`) leaves the promise as it was. A raised promise needs room now: it does not queue, and it
//! may pass waiting requests, because its job already runs. A limit below use denies growth and kills nothing.

use partage_protocol::admin::{ErrorCode, ErrorView, Reply};
use partage_protocol::size::{
    Amount, NONE, SizeError, format_bytes, format_duration, format_request, parse_amount, parse_request,
};
use partage_protocol::units::JobId;

use super::Policy;
use super::change_terms::changed_terms;
use super::claims::Claims;
use super::placement::Unplaced;
use super::survey::Survey;
use super::target::Access;
use crate::action::{Action, Signal};
use crate::caller::{Caller, Ticket};
use crate::device::{Device, DeviceState};
use crate::event::{Change, TargetQuery};
use crate::job::{JobState, Placement, State};
use crate::machine::{Machine, OnSlot};
use crate::refusal::{invalid, not_allowed};
use crate::request::{RunSpec, check_name};
use crate::rules::{Judge, NotAllowed, Said};
use crate::terms::Terms;

/// A [`Change`] that was read: amounts with the words that set them. A limit may be none, the whole card.
struct Wanted {
    mem: Option<Said<Option<Amount>>>,
    mem_request: Option<Said<Amount>>,
    process_mem: Option<Said<Option<Amount>>>,
}

impl Wanted {
    /// `None` when nothing is to change.
    fn read(change: &Change, caller: &Caller) -> Result<Option<Self>, ErrorView> {
        let mem = read_limit(change, ("mem", change.mem.as_deref()), caller)?;
        let process_mem = read_limit(change, ("process-mem", change.process_mem.as_deref()), caller)?;
        let mem_request = match change.mem_request.as_deref() {
            None => None,
            Some(text) => {
                let amount = parse_request(text).map_err(|why| unreadable("mem-request", &why))?;
                Some(change.said("mem-request", &format_request(amount), amount, caller))
            }
        };
        let is_any = mem.is_some() || mem_request.is_some() || process_mem.is_some();
        Ok(is_any.then_some(Self {
            mem,
            mem_request,
            process_mem,
        }))
    }

    /// A waiting request under new amounts; what it does not change stays.
    fn in_queue(&self, old: &RunSpec) -> RunSpec {
        let mut spec = old.clone();
        spec.drop_aliases();
        if let Some(mem) = &self.mem {
            spec.set_mem(mem.clone());
        }
        if let Some(request) = &self.mem_request {
            spec.mem_request = Some(request.clone());
        }
        if let Some(process) = &self.process_mem {
            spec.process_mem = Some(process.clone());
        }
        spec
    }
}

fn unreadable(key: &str, why: &SizeError) -> ErrorView {
    invalid(format!("{key}={why}"), None)
}

/// A limit as it was written; none within is no limit.
pub(crate) fn read_limit(
    change: &Change,
    (key, text): (&str, Option<&str>),
    caller: &Caller,
) -> Result<Option<Said<Option<Amount>>>, ErrorView> {
    Ok(match text {
        None => None,
        Some(NONE) => Some(change.said(key, NONE, None, caller)),
        Some(text) => {
            let amount = parse_amount(text).map_err(|why| unreadable(key, &why))?;
            Some(change.said(key, &amount.to_string(), Some(amount), caller))
        }
    })
}

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
        let is_full = changed.as_ref().is_err_and(|why| why.code == ErrorCode::NoRoom);
        if let (true, Ok(id)) = (is_full, self.resolve(target, caller, Access::Change)) {
            let places = self.jobs.get(&id).map(|job| job.record.devices.iter());
            let devices: Vec<_> = places.into_iter().flatten().map(|place| place.device).collect();
            if self.end_lingering(&devices, machine, now_ns) {
                changed = self.change_job(caller, target, change, machine, now_ns);
            }
        }
        match changed {
            Ok(id) => {
                if let Some(view) = self.job_view(id, caller, machine) {
                    self.reply(ticket, Reply::Job(view));
                }
            }
            Err(why) if caller.is_admin && why.code == ErrorCode::NotAllowed => {
                let hint = Some("an administrator goes beyond a rule with --force".into());
                self.refuse(ticket, ErrorView { hint, ..why });
            }
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
    ) -> Result<JobId, ErrorView> {
        if change.is_forced && !caller.is_admin {
            return Err(not_allowed(NotAllowed::Force));
        }
        if let Some(pid) = target.text.strip_prefix("process:") {
            return self.change_process(caller, pid, change, machine, now_ns);
        }
        let id = self.resolve(target, caller, Access::Change)?;
        let wanted = Wanted::read(change, caller)?;
        let terms = match self.jobs.get(&id) {
            Some(job) => changed_terms(&job.record.asked_terms(), change, caller)?,
            None => None,
        };
        let name = self.wanted_name(id, change, machine, now_ns)?;
        let ceiling = self.moved_ceiling(id, change, caller);
        if wanted.is_none() && terms.is_none() && name.is_none() {
            let hint = format!("partage set {id} mem=8GiB, mem-request=4GiB, compute=30%, weight=300, …");
            return Err(invalid("nothing to set".into(), Some(hint)));
        }
        if let Some(queued) = self.jobs.get(&id).and_then(|job| job.life.queued()) {
            let old = queued.spec.under(ceiling.clone(), &self.config)?;
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
            Some(asked) => Some((judge.terms(&asked).map_err(not_allowed)?, asked)),
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
            if let Some(job) = self.jobs.get_mut(&id) {
                job.set_asked_terms(asked);
            }
        }
        self.rename(id, name);
        self.take_ceiling(id, ceiling);
        if let Some(record) = self.jobs.get(&id).map(|job| job.record.clone()) {
            self.act(Action::SaveJob(Box::new(record)));
        }
        Ok(id)
    }

    /// A waiting job asks for this from now on.
    fn take_spec(&mut self, id: JobId, spec: RunSpec) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.set_terms(spec.terms.clone());
        job.set_asked_terms(spec.asked_terms.clone());
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
    ) -> Result<Option<Option<String>>, ErrorView> {
        match change.name.as_deref() {
            None => Ok(None),
            Some(NONE) => Ok(Some(None)),
            Some(name) => {
                check_name("name: ", name)?;
                let uid = self.jobs.get(&id).map_or(u32::MAX, |job| job.record.uid);
                self.check_name_is_free(uid, name, Some(id), machine, now_ns)?;
                Ok(Some(Some(name.to_owned())))
            }
        }
    }

    fn rename(&mut self, id: JobId, name: Option<Option<String>>) {
        let (Some(name), Some(job)) = (name, self.jobs.get_mut(&id)) else {
            return;
        };
        if job.rename(name) {
            // The name itself is for its owner's eyes.
            self.publish("renamed", Some(id), None, format!("{id} was given another name"));
        }
    }

    /// A time limit that is over already would end the job at once, which is what `stop` is for.
    pub(crate) fn check_time_limit(&self, id: JobId, new: &Terms, now_ns: u64) -> Result<(), ErrorView> {
        let Some(job) = self.jobs.get(&id) else { return Ok(()) };
        let Some(limit_ns) = new
            .time_limit_ns
            .filter(|_| new.time_limit_ns != job.record.terms.time_limit_ns)
        else {
            return Ok(());
        };
        let run_ns = job.record.run_ns(self.unix_ns(now_ns));
        if run_ns < limit_ns {
            return Ok(());
        }
        Err(invalid(
            format!(
                "time-limit={}: {id} has run for {} already",
                format_duration(limit_ns),
                format_duration(run_ns)
            ),
            Some(format!("to end it: partage stop {id}")),
        ))
    }

    /// A live job's limits and promises of memory change. The caller saves the record.
    fn change_memory<M: Machine>(
        &mut self,
        id: JobId,
        wanted: &(Wanted, Judge),
        machine: &M,
        now_ns: u64,
    ) -> Result<(), ErrorView> {
        let old = self
            .jobs
            .get(&id)
            .map(|job| job.record.devices.clone())
            .unwrap_or_default();
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
            let why = self.no_room_for(short, 0, machine, id);
            self.apply(id, &old, machine, now_ns);
            return Err(why);
        }
        let now = self.describe(&new);
        self.show_pages(id);
        let is_over = self
            .jobs
            .get(&id)
            .is_some_and(|job| self.state(job, machine) == JobState::OverLimit);
        let over = if is_over {
            "; it uses more than that, so new allocations are denied"
        } else {
            ""
        };
        let numbers = self.job_numbers(id);
        self.publish_numbers(
            "limit-changed",
            (Some(id), None),
            format!("{id} has {now} now{over}"),
            numbers,
        );
        Ok(())
    }

    /// A placement under new amounts.
    fn replaced(&self, place: &Placement, (wanted, judge): &(Wanted, Judge)) -> Result<Placement, ErrorView> {
        let Some(device) = self.devices.get(&place.device) else {
            return Err(invalid(
                format!("{} is not known to this broker", place.device),
                Some("partage status lists the GPUs".into()),
            ));
        };
        let mut new = place.clone();
        let mut asked = place.asked();
        if let Some(said) = &wanted.mem {
            let limit = said.value.map(|amount| amount.on(device.usable()));
            self.check_size(device, limit.unwrap_or(0), device.seen.total_bytes, "mem")?;
            new.set_limit(limit, &said.words);
            asked.set_limit(said.clone().map(|_| limit));
            asked.set_request(Said::soft(new.request, new.origin.request.clone()));
        }
        if let Some(said) = &wanted.mem_request {
            let request = said.value.on(device.usable());
            self.check_size(device, request, device.usable(), "mem-request")?;
            asked.set_request(said.clone().map(|_| request));
        }
        if let Some(said) = &wanted.process_mem {
            let limit = said.value.map(|amount| amount.on(device.usable()));
            self.check_size(device, limit.unwrap_or(0), device.seen.total_bytes, "process-mem")?;
            asked.set_process(said.clone().map(|_| limit));
        }
        let memory = judge
            .memory(&asked, device.size())
            .map_err(|why| match (why, &wanted.mem_request) {
                (NotAllowed::RequestAboveLimit { .. }, Some(said)) => {
                    let message = format!(
                        "mem-request={} is more than the limit {} on GPU {}",
                        format_request(said.value),
                        format_bytes(new.limit.unwrap_or(u64::MAX)),
                        device.seen.index
                    );
                    let hint = "a promise cannot exceed the limit: raise mem too, or lower mem-request";
                    invalid(message, Some(hint.into()))
                }
                (why, _) => not_allowed(why),
            })?;
        new.take(memory, asked);
        Ok(new)
    }

    pub(crate) fn check_size(&self, device: &Device, asked: u64, most: u64, key: &str) -> Result<(), ErrorView> {
        if asked <= most {
            return Ok(());
        }
        let total = device.seen.total_bytes;
        Err(ErrorView {
            code: ErrorCode::Impossible,
            message: format!("GPU {} has {} in all", device.seen.index, format_bytes(total)),
            hint: Some(format!(
                "at most {key}={}, or 100%",
                format_bytes(device.usable()).replace(' ', "")
            )),
            holders: Vec::new(),
        })
    }

    pub(crate) fn check_raise<M: Machine>(
        &self,
        id: JobId,
        old: &Placement,
        new: &Placement,
        machine: &M,
    ) -> Result<(), ErrorView> {
        if new.request <= old.request {
            return Ok(());
        }
        let Some(device) = self.devices.get(&new.device) else {
            return Ok(());
        };
        if device.state != DeviceState::Ok || self.is_adopting(new.device) {
            let message = format!("GPU {} takes no new promises at the moment", device.seen.index);
            let hint = Some("try again in some seconds (partage status shows the GPU's state)".into());
            return Err(ErrorView {
                code: ErrorCode::NoRoom,
                message,
                hint,
                holders: Vec::new(),
            });
        }
        let (left, total) = self.promisable_to(id, new.device, machine);
        if new.request <= left {
            return Ok(());
        }
        let mut why = self.no_room_for(new, left, machine, id);
        if let Some(words) = total {
            why.message = format!(
                "{} cannot be promised to {id}: the {words} leaves {} on {}",
                format_bytes(new.request),
                format_bytes(left),
                self.gpu(new.device)
            );
        }
        Err(why)
    }

    fn no_room_for<M: Machine>(&self, new: &Placement, left: u64, machine: &M, id: JobId) -> ErrorView {
        let gpu = self.gpu(new.device);
        let holders = self
            .account(new.device, machine)
            .map(|account| account.holders())
            .unwrap_or_default();
        let request = format_bytes(new.request);
        ErrorView {
            code: ErrorCode::NoRoom,
            message: format!(
                "{request} cannot be promised to {id}: {gpu} has {} left for it",
                format_bytes(left)
            ),
            hint: Some("nothing was changed; partage status shows who holds what".into()),
            holders: holders
                .into_iter()
                .filter(|holder| holder.who != id.to_string())
                .collect(),
        }
    }

    pub(crate) fn apply<M: Machine>(&mut self, id: JobId, places: &[Placement], machine: &M, now_ns: u64) {
        let limits: Vec<u64> = places
            .iter()
            .map(|place| self.limit_of(place.device, place.limit))
            .collect();
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.set_places(places);
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
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.state() == State::Waiting {
            self.leave_queue(id, Self::stopped_while_waiting(id));
            return self.reply(
                ticket,
                Reply::Done {
                    message: format!("{id} waits no more"),
                },
            );
        }
        let kill_at_ns = now_ns.saturating_add(grace_ns);
        // Whoever may stop another user's job acts for that user; root may signal every process itself.
        let by = if caller.uid == 0 { 0 } else { job.record.uid };
        job.order_stop(Some(ticket), kill_at_ns, ("it was stopped", by));
        let who = caller.user.clone();
        self.publish("job-stopping", Some(id), None, format!("{id} is stopped by {who}"));
        self.act(Action::SignalJob {
            job: id,
            signal: Signal::Terminate,
            by,
        });
        self.look_after(id, machine, now_ns);
    }
}
