// SPDX-License-Identifier: Apache-2.0
//! Stores the newest view of jobs' device time. A job that is not in it is no longer measured.

use super::Policy;
use crate::job::Job;
use crate::time::JobTime;

impl Policy {
    /// A new view replaces the one before. Says who stopped draining.
    pub(crate) fn take_times(&mut self, mut times: Vec<JobTime>, now_ns: u64) {
        // A job may have ended while this was on its way.
        times.retain(|now| {
            let is_there = |job: &Job| job.state().may_get_time() && job.slot_of(now.device).is_some();
            self.jobs.get(&now.job).is_some_and(is_there)
        });
        for (job, device) in self.times.replace(times, now_ns) {
            let gpu = self.gpu(device);
            let text = format!("{job} has work on {gpu} that does not end: others do not wait for it");
            self.publish("not-draining", Some(job), None, text);
        }
        self.count_measured(now_ns);
        self.audit_times(now_ns);
    }
}
