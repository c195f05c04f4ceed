// SPDX-License-Identifier: Apache-2.0
//! How far a job may be raised that root registered.

use crate::books::Books;
use crate::caller::Caller;
use crate::event::Change;
use crate::job::JobRecord;
use crate::registration::Ceiling;
use crate::rules::Judge;
use partage_protocol::units::JobId;

impl Books {
    /// The ceiling of a job after this change, if the change moves one.
    pub(crate) fn moved_ceiling(&self, id: JobId, change: &Change, caller: &Caller) -> Option<Ceiling> {
        let facts = self.jobs.get(&id)?.record.facts();
        let old = facts.ceiling.filter(|_| caller.is_admin)?;
        Some(change.ceiling().or(old))
    }

    /// What the rules make of a job under this ceiling, else under its own.
    pub(crate) fn judge_under(&self, id: JobId, ceiling: Option<&Ceiling>) -> Judge {
        match (ceiling, self.jobs.get(&id)) {
            (Some(ceiling), Some(job)) => {
                let mut record: JobRecord = job.record.clone();
                record.set_ceiling(ceiling.clone());
                self.judge_of_record(&record)
            }
            _ => self.judge_of(id),
        }
    }
}
