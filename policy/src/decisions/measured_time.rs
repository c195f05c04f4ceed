// SPDX-License-Identifier: Apache-2.0
//! Stores the newest view of jobs' device time. A job that is not in it is no longer measured.

use std::collections::BTreeMap;

use partage_protocol::units::JobId;

use super::Policy;
use crate::job::Job;
use crate::time::{JobTime, Measured};

impl Policy {
    /// A new view replaces the one before. Says who stopped draining.
    pub(crate) fn take_times(&mut self, times: Vec<JobTime>, now_ns: u64) {
        let mut old = std::mem::take(&mut self.times);
        let mut kept = BTreeMap::new();
        for now in times {
            let is_there = |job: &Job| job.state().may_get_time() && job.slot_of(now.device).is_some();
            if !self.jobs.get(&now.job).is_some_and(is_there) {
                // It ended while this was on its way.
                continue;
            }
            let key = (now.job, now.device);
            let before = old.remove(&key);
            let was_not_draining = before.as_ref().is_some_and(|measured| measured.now.is_not_draining);
            let measured = match before {
                None => Measured::new(now, now_ns),
                Some(mut measured) => {
                    measured.update(now, now_ns);
                    measured
                }
            };
            kept.insert(key, measured);
            if now.is_not_draining && !was_not_draining {
                let gpu = self.gpu(now.device);
                let text = format!(
                    "{} has work on {gpu} that does not end: others do not wait for it",
                    now.job
                );
                self.publish("not-draining", Some(now.job), None, text);
            }
        }
        self.times = kept;
        self.audit_times(now_ns);
    }

    /// Nothing is measured of a job that ended.
    pub(crate) fn forget_times(&mut self, job: JobId) {
        self.times.retain(|(other, _), _| *other != job);
    }
}
