// SPDX-License-Identifier: Apache-2.0
//! A registration by root is a ceiling: the job's owner lowers its numbers and raises them up to it; what an
//! administrator sets is the ceiling from then on.

use partage_protocol::units::JobId;

use super::Policy;
use crate::caller::Caller;
use crate::event::Change;
use crate::job::JobRecord;
use crate::registration::Ceiling;
use crate::rules::Judge;

impl Policy {
    /// The ceiling of a job after this change, if the change moves one.
    pub(super) fn moved_ceiling(&self, id: JobId, change: &Change, caller: &Caller) -> Option<Ceiling> {
        let facts = self.jobs.get(&id)?.record.facts();
        let old = facts.ceiling.filter(|_| caller.is_admin)?;
        Some(change.ceiling().or(old))
    }

    /// What the rules make of a job under this ceiling, else under its own.
    pub(super) fn judge_under(&self, id: JobId, ceiling: Option<&Ceiling>) -> Judge {
        match (ceiling, self.jobs.get(&id)) {
            (Some(ceiling), Some(job)) => {
                let mut record: JobRecord = job.record.clone();
                record.set_ceiling(ceiling.clone());
                self.judge_of_record(&record)
            }
            _ => self.judge_of(id),
        }
    }

    /// The ceiling of a job from now on. The caller saves the record.
    pub(super) fn take_ceiling(&mut self, id: JobId, ceiling: Option<Ceiling>) {
        if let (Some(ceiling), Some(job)) = (ceiling, self.jobs.get_mut(&id)) {
            job.set_ceiling(ceiling);
        }
    }
}
