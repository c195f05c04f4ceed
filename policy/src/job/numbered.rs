// SPDX-License-Identifier: Apache-2.0
//! All jobs that are known, and the number that the next one gets.

use std::collections::BTreeMap;
use std::ops::Deref;

use partage_protocol::units::JobId;

use super::facts::Job;

/// Every job that is known, by its number. Everybody reads them; what changes them is a method.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Jobs {
    by_number: BTreeMap<JobId, Job>,
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
            next: first.max(1),
        }
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

    /// Adds a job, which takes its number.
    pub(crate) fn add(&mut self, job: Job) {
        let id = job.id();
        self.keep_numbers_below(id.0.saturating_add(1));
        self.by_number.insert(id, job);
    }

    /// Forgets a job, and answers it.
    pub(crate) fn forget(&mut self, id: JobId) -> Option<Job> {
        self.by_number.remove(&id)
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
