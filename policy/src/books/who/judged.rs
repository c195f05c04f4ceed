// SPDX-License-Identifier: Apache-2.0
//! What the rules say of a job, as they are now.

use crate::books::Books;
use crate::books::who::{Access, may_see};
use crate::caller::Caller;
use crate::event::TargetQuery;
use crate::job::{JobRecord, Placement};
use crate::machine::Machine;
use crate::refusal::{Refusal, Why};
use crate::rules::{Facts, Judge};
use crate::terms::Terms;
use partage_protocol::units::JobId;
use std::collections::BTreeSet;

impl Books {
    /// The users of all jobs that are there.
    pub fn users(&self) -> BTreeSet<u32> {
        self.jobs.values().map(|job| job.record.uid).collect()
    }

    /// What the rules know of the job that is meant.
    ///
    /// # Errors
    /// No such job, or one that the caller may not see into.
    pub fn facts_of(&self, target: &TargetQuery, caller: &Caller) -> Result<Facts, Refusal> {
        let id = self.resolve(target, caller, Access::Look)?;
        match self.jobs.get(&id).filter(|job| may_see(job, caller)) {
            Some(job) => Ok(job.record.facts()),
            None => Err(Why::Anothers(id).into()),
        }
    }

    /// What the rules make of a job that is there.
    pub(crate) fn judge_of(&self, id: JobId) -> Judge {
        self.jobs
            .get(&id)
            .map_or_else(Judge::default, |job| self.judge_of_record(&job.record))
    }

    pub(crate) fn judge_of_record(&self, record: &JobRecord) -> Judge {
        let preset = record.asked.preset.as_deref();
        Judge::of_accepted(&self.config.rules, self.config.max_class, &record.facts(), preset)
    }

    /// Terms of time under these rules. A promise that has no room stays what it is, and so does a time limit that a
    /// new one would end at once.
    pub(crate) fn terms_now(&self, id: JobId, record: &JobRecord, judge: &Judge, now_ns: u64) -> Option<Terms> {
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
    pub(crate) fn place_now<M: Machine>(&self, id: JobId, place: &Placement, judge: &Judge, machine: &M) -> Placement {
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
}
