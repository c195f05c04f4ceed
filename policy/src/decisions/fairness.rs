// SPDX-License-Identifier: Apache-2.0
//! `[admission] order`: in which order those that wait have their turn, and what their users had of the GPUs.
//!
//! A user's GPU time is the device time that its jobs were charged while they were measured. A job that has its device
//! for itself is not measured: then it is what NVML shows of its processes, poll by poll; where NVML shows no such
//! figure (MIG instances), all of the time for which a process of it is there.

use std::collections::BTreeMap;

use partage_protocol::terms::WHOLE_PPM;
use partage_protocol::units::{DeviceUuid, JobId};

use super::Policy;
use crate::action::Action;
use crate::config::Order;
use crate::job::{Claimant, next_of};

impl Policy {
    /// Puts those that wait into the order in which they have their turn now.
    pub(crate) fn order_queue(&mut self, now_ns: u64) {
        if self.books.config.queue.order == Order::Arrival || self.books.queue.len() < 2 {
            return;
        }
        let max_wait_ns = self.books.config.queue.max_wait_ns;
        let claimants = self.books.queue.iter().map(|id| (*id, self.claimant(*id, now_ns)));
        let mut ranked: Vec<(JobId, Claimant)> = claimants.collect();
        ranked.sort_by(|one, other| next_of(&one.1, &other.1, max_wait_ns, now_ns));
        self.books.queue.arrange(ranked.into_iter().map(|(id, _)| id));
    }

    /// The order is that of arrival again.
    pub(crate) fn order_by_arrival(&mut self) {
        let mut all: Vec<(u64, JobId)> = self.books.queue.iter().map(|id| (self.waits_since(*id), *id)).collect();
        all.sort_unstable();
        self.books.queue.arrange(all.into_iter().map(|(_, id)| id));
    }

    /// The newest views of what jobs were charged came.
    pub(crate) fn count_measured(&mut self, now_ns: u64) {
        let at = (self.unix_ns(now_ns), self.books.config.queue.half_life_ns);
        for ((job, device), measured) in self.books.times.iter() {
            let more = self.books.usage.count(*job, *device, measured.now.used_ns);
            if let Some(job) = self.books.jobs.get(job) {
                self.books.usage.charge(job.record.uid, more, at);
            }
        }
        let lives = |id| self.books.jobs.get(&id).is_some_and(|job| job.state().may_get_time());
        self.books.usage.keep_jobs(lives);
        self.save_usage(now_ns);
    }

    /// A poll of a device came: charges the jobs on it that are not measured.
    pub(crate) fn count_unmeasured(&mut self, device: DeviceUuid, now_ns: u64) {
        let dt = self.books.usage.poll(device, now_ns);
        let at = (self.unix_ns(now_ns), self.books.config.queue.half_life_ns);
        let managed = self.managed_pids();
        let mut parts: BTreeMap<JobId, u64> = BTreeMap::new();
        for process in self.books.processes_on(device) {
            let job = managed.get(&process.pid);
            if let Some(job) = job.filter(|job| !self.books.times.contains_key(&(**job, device))) {
                *parts.entry(*job).or_default() += u64::from(process.busy_ppm.unwrap_or(WHOLE_PPM));
            }
        }
        for (job, part) in parts {
            if let Some(job) = self.books.jobs.get(&job) {
                let part = part.min(WHOLE_PPM.into());
                let ns = dt.saturating_mul(part) / u64::from(WHOLE_PPM);
                self.books.usage.charge(job.record.uid, ns, at);
            }
        }
        self.save_usage(now_ns);
    }

    fn save_usage(&mut self, now_ns: u64) {
        if self.books.config.queue.order == Order::Arrival {
            return;
        }
        let at = (self.unix_ns(now_ns), self.books.config.queue.half_life_ns);
        if let Some(users) = self.books.usage.take_due(now_ns, at) {
            self.act(Action::SaveUsage(users));
        }
    }
}
