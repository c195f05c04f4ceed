// SPDX-License-Identifier: Apache-2.0
//! Jobs under other rules than those they began under: after a reload, after a broker that knew others, and when the
//! user database has said who their user is.
//!
//! A live job is judged anew by what was asked of it. What is too much now is lowered; what was lowered is given back
//! as far as there is room. Nothing ends by it: a limit below use only denies growth, a time limit that would be over
//! already is not set, and the GPUs stay the job's. A waiting job is judged as if it asked now.

use partage_protocol::units::JobId;

use super::Policy;
use crate::action::Action;
use crate::config::{Config, Order};
use crate::job::{Job, Placement};
use crate::machine::Machine;
use crate::notice::{Figures, Notice};

impl Policy {
    /// The configuration was read anew.
    pub(crate) fn take_rules<M: Machine>(&mut self, new: Config, machine: &M, now_ns: u64) {
        let had_totals = self.books.jobs.share_any();
        let is_split_anew = new.split != self.books.config.split;
        self.books.config.take(new);
        for id in self.books.jobs.keys().copied().collect::<Vec<_>>() {
            self.note_totals(id);
        }
        if self.books.config.queue.order == Order::Arrival {
            self.order_by_arrival();
        }
        for id in self.books.jobs.keys().copied().collect::<Vec<_>>() {
            self.rejudge(id, machine, now_ns);
            let gets_time = self.books.jobs.get(&id).is_some_and(|job| job.state().may_get_time());
            if is_split_anew && gets_time {
                self.show_terms(id);
            }
        }
        if had_totals || self.books.jobs.share_any() {
            self.share_everywhere(machine, now_ns);
        }
        for id in self.books.queue.iter().copied().collect::<Vec<_>>() {
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
        let own = self.books.jobs.values().filter(|job| job.record.uid == uid);
        for id in own.map(Job::id).collect::<Vec<_>>() {
            let Some(job) = self.books.jobs.get_mut(&id) else {
                continue;
            };
            if let Some(queued) = job.queued_mut() {
                queued.learn_user(user, groups);
            }
            if !job.record_mut().learn_user(user, groups) {
                continue;
            }
            let record = Box::new(job.record.clone());
            self.note_totals(id);
            self.act(Action::SaveJob(record));
            self.rejudge(id, machine, now_ns);
            self.rejudge_waiting(id);
        }
        if self.books.jobs.share_any() {
            self.share_everywhere(machine, now_ns);
        }
    }

    /// Who shares a total with whom may have changed.
    fn share_everywhere<M: Machine>(&mut self, machine: &M, now_ns: u64) {
        for device in self.books.devices.keys().copied().collect::<Vec<_>>() {
            self.share_headroom(device, machine, now_ns);
        }
    }

    /// A waiting job is judged as if it asked now.
    fn rejudge_waiting(&mut self, id: JobId) {
        let queued = self.books.jobs.get(&id).and_then(|job| job.life.queued());
        let Some(spec) = queued.map(|queued| queued.spec.rejudged(&self.books.config)) else {
            return;
        };
        match spec {
            Ok(spec) => {
                if let Some(job) = self.books.jobs.get_mut(&id) {
                    job.record_mut().set_terms(spec.terms.clone());
                    job.record_mut().set_strict(spec.is_strict());
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
        for id in std::mem::take(&mut self.books.unjudged) {
            let is_known = |place: &Placement| self.books.devices.contains_key(&place.device);
            if self.books.places(id).iter().all(is_known) {
                self.rejudge(id, machine, now_ns);
            } else {
                self.books.unjudged.push(id);
            }
        }
    }

    /// A live job gets the numbers that follow from what was asked of it.
    fn rejudge<M: Machine>(&mut self, id: JobId, machine: &M, now_ns: u64) {
        let Some(job) = self.books.jobs.get(&id).filter(|job| job.state().holds_memory()) else {
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
                if let Some(job) = self.books.jobs.get_mut(&id) {
                    job.record_mut().set_terms(terms);
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
                let what = Notice::LimitsByRules(id, self.describe(&places));
                self.publish_numbers("limit-changed", (Some(id), None), what, Figures::Job);
            }
            is_changed = true;
        }
        if let Some(record) = self
            .books
            .jobs
            .get(&id)
            .filter(|_| is_changed)
            .map(|job| job.record.clone())
        {
            self.act(Action::SaveJob(Box::new(record)));
        }
    }

    /// Promises that were raised and that others used meanwhile are what they were.
    fn keep_promises<M: Machine>(&mut self, id: JobId, old: &[Placement], machine: &M, now_ns: u64) {
        let Some(mut places) = self.books.jobs.get(&id).map(|job| job.record.devices.clone()) else {
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
