// SPDX-License-Identifier: Apache-2.0
//! Jobs under other rules than those they began under: after a reload, after a broker that knew others, and when the
//! user database has said who their user is.
//!
//! A live job is judged anew by what was asked of it. What is too much now is lowered; what was lowered is given back
//! as far as there is room. Nothing ends by it: a limit below use only denies growth, a time limit that would be over
//! already is not set, and the GPUs stay the job's. A waiting job is judged as if it asked now.

use std::collections::BTreeSet;

use partage_protocol::units::JobId;

use super::Policy;
use super::target::{Access, may_see};
use crate::action::Action;
use crate::caller::Caller;
use crate::config::{NewRules, Order};
use crate::event::TargetQuery;
use crate::job::{Job, JobRecord, Placement};
use crate::machine::Machine;
use crate::refusal::{Refused, invalid};
use crate::rules::{Facts, Judge};
use crate::terms::Terms;

impl Policy {
    /// The configuration was read anew.
    pub(crate) fn take_rules<M: Machine>(&mut self, new: NewRules, machine: &M, now_ns: u64) {
        let had_totals = self.jobs.share_any();
        let is_split_anew = new.split != self.config.split;
        self.config.take(new);
        self.note_all_totals();
        if self.config.queue.order == Order::Arrival {
            self.order_by_arrival();
        }
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.rejudge(id, machine, now_ns);
            let gets_time = self.jobs.get(&id).is_some_and(|job| job.state().may_get_time());
            if is_split_anew && gets_time {
                self.show_terms(id);
            }
        }
        if had_totals || self.jobs.share_any() {
            self.share_everywhere(machine, now_ns);
        }
        for id in self.queue.iter().copied().collect::<Vec<_>>() {
            self.rejudge_waiting(id);
        }
    }

    /// The user database knows more of a user: the jobs are judged by it.
    pub(crate) fn take_user<M: Machine>(
        &mut self,
        uid: u32,
        (user, groups): (&str, &[String]),
        machine: &M,
        now_ns: u64,
    ) {
        let own = self.jobs.values().filter(|job| job.record.uid == uid);
        for id in own.map(Job::id).collect::<Vec<_>>() {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            if let Some(queued) = job.queued_mut() {
                queued.learn_user(user, groups);
            }
            if !job.learn_user(user, groups) {
                continue;
            }
            let record = Box::new(job.record.clone());
            self.note_totals(id);
            self.act(Action::SaveJob(record));
            self.rejudge(id, machine, now_ns);
            self.rejudge_waiting(id);
        }
        if self.jobs.share_any() {
            self.share_everywhere(machine, now_ns);
        }
    }

    /// Who shares a total with whom may have changed.
    fn share_everywhere<M: Machine>(&mut self, machine: &M, now_ns: u64) {
        for device in self.devices.keys().copied().collect::<Vec<_>>() {
            self.share_headroom(device, machine, now_ns);
        }
    }

    /// The users of all jobs that are there.
    pub fn users(&self) -> BTreeSet<u32> {
        self.jobs.values().map(|job| job.record.uid).collect()
    }

    /// A waiting job is judged as if it asked now.
    fn rejudge_waiting(&mut self, id: JobId) {
        let queued = self.jobs.get(&id).and_then(|job| job.life.queued());
        let Some(spec) = queued.map(|queued| queued.spec.rejudged(&self.config)) else {
            return;
        };
        match spec {
            Ok(spec) => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.set_terms(spec.terms.clone());
                    job.set_strict(spec.is_strict());
                    if let Some(queued) = job.queued_mut() {
                        queued.set_spec(spec);
                    }
                }
            }
            Err(why) => self.leave_queue(id, why),
        }
    }

    /// Jobs of the broker before are judged by the rules of today, once their devices are known.
    pub(crate) fn judge_adopted<M: Machine>(&mut self, machine: &M, now_ns: u64) {
        for id in std::mem::take(&mut self.unjudged) {
            let places = self
                .jobs
                .get(&id)
                .map(|job| job.record.devices.clone())
                .unwrap_or_default();
            if places.iter().all(|place| self.devices.contains_key(&place.device)) {
                self.rejudge(id, machine, now_ns);
            } else {
                self.unjudged.push(id);
            }
        }
    }

    /// What the rules know of the job that is meant.
    ///
    /// # Errors
    /// No such job, or one that the caller may not see into.
    pub fn facts_of(&self, target: &TargetQuery, caller: &Caller) -> Result<Facts, Refused> {
        let id = self.resolve(target, caller, Access::Look)?;
        match self.jobs.get(&id).filter(|job| may_see(job, caller)) {
            Some(job) => Ok(job.record.facts()),
            None => Err(invalid(format!("{id} is another user's"), None)),
        }
    }

    /// What the rules make of a job that is there.
    pub(crate) fn judge_of(&self, id: JobId) -> Judge {
        self.jobs
            .get(&id)
            .map_or_else(Judge::default, |job| self.judge_of_record(&job.record))
    }

    pub(super) fn judge_of_record(&self, record: &JobRecord) -> Judge {
        let preset = record.asked.preset.as_deref();
        Judge::of_accepted(&self.config.rules, self.config.max_class, &record.facts(), preset)
    }

    /// A live job gets the numbers that follow from what was asked of it.
    fn rejudge<M: Machine>(&mut self, id: JobId, machine: &M, now_ns: u64) {
        let Some(job) = self.jobs.get(&id).filter(|job| job.state().holds_memory()) else {
            return;
        };
        let record = job.record.clone();
        let judge = self.judge_of_record(&record);
        let mut is_changed = false;
        if let Some(terms) = self.terms_now(id, &record, &judge, now_ns)
            && terms != record.terms
        {
            // Where only the words moved, such as to another line, nothing is to be told.
            if terms.is_as(&record.terms) {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.set_terms(terms);
                }
            } else {
                self.take_terms(id, terms, now_ns);
            }
            is_changed = true;
        }
        let places: Vec<Placement> = record
            .devices
            .iter()
            .map(|place| self.place_now(id, place, &judge, machine))
            .collect();
        if places != record.devices {
            self.apply(id, &places, machine, now_ns);
            self.keep_promises(id, &record.devices, machine, now_ns);
            self.show_pages(id);
            let numbers = |place: &Placement| {
                let own: Vec<_> = place.own.iter().map(|own| own.limit).collect();
                (place.limit, place.request, place.process, own)
            };
            let is_other = |(old, new): (&Placement, &Placement)| numbers(old) != numbers(new);
            if record.devices.iter().zip(&places).any(is_other) {
                let now = self.describe(&places);
                let text = format!("{id} has {now} now, by the rules");
                let numbers = self.job_numbers(id);
                self.publish_numbers("limit-changed", (Some(id), None), text, numbers);
            }
            is_changed = true;
        }
        if let Some(record) = self.jobs.get(&id).filter(|_| is_changed).map(|job| job.record.clone()) {
            self.act(Action::SaveJob(Box::new(record)));
        }
    }

    /// Terms of time under these rules. A promise that has no room stays what it is, and so does a time limit that a
    /// new one would end at once.
    fn terms_now(&self, id: JobId, record: &JobRecord, judge: &Judge, now_ns: u64) -> Option<Terms> {
        let asked = record.asked_terms();
        // A rule that is loosened may uncover a cap below the promise that was asked with it: nothing else may go
        // unjudged for that.
        let terms = judge.terms(&asked);
        let terms = terms.or_else(|_| judge.terms(&asked.with_promise_of(&record.terms)));
        let mut terms = terms.ok()?;
        if self.check_terms(id, &terms).is_err() {
            terms.keep_promise_of(&record.terms);
        }
        if self.check_time_limit(id, &terms, now_ns).is_err() {
            terms.keep_time_limit_of(&record.terms);
        }
        Some(terms)
    }

    /// A place under these rules. A promise that has no room stays what it is.
    fn place_now<M: Machine>(&self, id: JobId, place: &Placement, judge: &Judge, machine: &M) -> Placement {
        let mut new = place.clone();
        let Some(device) = self.devices.get(&place.device) else {
            return new;
        };
        let asked = place.asked();
        let Ok(memory) = judge.memory(&asked, device.size()) else {
            return new;
        };
        new.take(memory, asked);
        for own in &mut new.own {
            if let Ok((limit, words)) = judge.process_limit(Some(&own.asked), device.size()) {
                (own.limit, own.words) = (limit, words);
            }
        }
        if self.check_raise(id, place, &new, machine).is_err() {
            new.set_request(place.request, &place.origin.request);
        }
        new
    }

    /// Promises that were raised and that others used meanwhile are what they were.
    fn keep_promises<M: Machine>(&mut self, id: JobId, old: &[Placement], machine: &M, now_ns: u64) {
        let Some(mut places) = self.jobs.get(&id).map(|job| job.record.devices.clone()) else {
            return;
        };
        let mut is_changed = false;
        for (old, new) in old
            .iter()
            .zip(&mut places)
            .filter(|(old, new)| new.request > old.request)
        {
            if !self.is_kept(id, new.device, machine) {
                new.set_request(old.request, &old.origin.request);
                is_changed = true;
            }
        }
        if is_changed {
            self.apply(id, &places, machine, now_ns);
        }
    }
}
