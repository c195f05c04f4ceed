// SPDX-License-Identifier: Apache-2.0
//! All jobs that are known, who shares a total with whom, and the number that the next one gets.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use partage_protocol::units::JobId;

use super::facts::Job;
use crate::rules::TotalId;

/// Every job that is known, by its number. Everybody reads them; what changes them is a method.
///
/// Invariant: a job is among a total's sharers exactly where the total is among the job's totals.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Jobs {
    by_number: BTreeMap<JobId, Job>,
    /// So that what is decided about a job looks at the jobs that share a total with it, and not at all of them.
    sharers: BTreeMap<TotalId, BTreeSet<JobId>>,
    /// No job has had this number, nor a greater one.
    next: u64,
}

impl Deref for Jobs {
    type Target = BTreeMap<JobId, Job>;

    fn deref(&self) -> &Self::Target {
        &self.by_number
    }
}

impl Jobs {
    /// None yet; the first gets this number.
    pub(crate) fn new(first: u64) -> Self {
        Self {
            by_number: BTreeMap::new(),
            sharers: BTreeMap::new(),
            next: first.max(1),
        }
    }

    /// All processes of these jobs are stopped by a signal, and of no other ones.
    pub(crate) fn set_stopped(&mut self, stopped: &BTreeSet<JobId>) {
        for job in self.by_number.values_mut() {
            job.set_stopped(stopped.contains(&job.id()));
        }
    }

    /// The same jobs, with exactly these stopped.
    pub(crate) fn with_stopped(&self, stopped: &BTreeSet<JobId>) -> Self {
        let mut jobs = self.clone();
        jobs.set_stopped(stopped);
        jobs
    }

    /// The number of a new job: no other one ever has it.
    pub(crate) fn take_number(&mut self) -> JobId {
        let id = JobId(self.next);
        self.next = self.next.saturating_add(1);
        id
    }

    /// Numbers below are taken.
    pub(crate) fn keep_numbers_below(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// Adds a job, which takes its number and shares these totals.
    pub(crate) fn add(&mut self, job: Job, totals: Vec<TotalId>) {
        let id = job.id();
        self.keep_numbers_below(id.0.saturating_add(1));
        self.forget(id);
        self.by_number.insert(id, job);
        self.set_totals(id, totals);
    }

    /// Forgets a job, and answers it.
    pub(crate) fn forget(&mut self, id: JobId) -> Option<Job> {
        self.set_totals(id, Vec::new());
        self.by_number.remove(&id)
    }

    /// A job shares these totals from now on.
    pub(crate) fn set_totals(&mut self, id: JobId, totals: Vec<TotalId>) {
        let Some(job) = self.by_number.get_mut(&id) else { return };
        for total in job.replace_totals(totals.clone()) {
            if let Some(sharers) = self.sharers.get_mut(&total) {
                sharers.remove(&id);
                if sharers.is_empty() {
                    self.sharers.remove(&total);
                }
            }
        }
        for total in totals {
            self.sharers.entry(total).or_default().insert(id);
        }
    }

    /// Who shares a total, those that wait among them; by number.
    pub(crate) fn sharers(&self, total: &TotalId) -> impl Iterator<Item = JobId> + '_ {
        self.sharers.get(total).into_iter().flatten().copied()
    }

    /// Does any job share a total?
    pub(crate) fn share_any(&self) -> bool {
        !self.sharers.is_empty()
    }

    /// One of them, to be changed.
    pub(crate) fn get_mut(&mut self, id: &JobId) -> Option<&mut Job> {
        self.by_number.get_mut(id)
    }

    /// All of them, to be changed.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        self.by_number.values_mut()
    }
}
