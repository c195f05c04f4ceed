// SPDX-License-Identifier: Apache-2.0
//! `[admission] order`: in which order those that wait have their turn, and what their users had of the GPUs.
//!
//! A user's GPU time is the device time that its jobs were charged while they were measured. A job that has its device
//! for itself is not measured: then it is what NVML shows of its processes, poll by poll; where NVML shows no such
//! figure (MIG instances), all of the time for which a process of it is there.

use std::collections::BTreeMap;

use partage_protocol::terms::{Class, WHOLE_PPM};
use partage_protocol::units::{DeviceUuid, JobId};

use super::Policy;
use crate::action::Action;
use crate::config::Order;
use crate::job::{Claimant, next_of};

impl Policy {
    /// Puts those that wait into the order in which they have their turn now.
    pub(crate) fn order_queue(&mut self, now_ns: u64) {
        if self.config.queue.order == Order::Arrival || self.queue.len() < 2 {
            return;
        }
        let max_wait_ns = self.config.queue.max_wait_ns;
        let claimants = self.queue.iter().map(|id| (*id, self.claimant(*id, now_ns)));
        let mut ranked: Vec<(JobId, Claimant)> = claimants.collect();
        ranked.sort_by(|one, other| next_of(&one.1, &other.1, max_wait_ns, now_ns));
        self.queue.arrange(ranked.into_iter().map(|(id, _)| id));
    }

    /// The order is that of arrival again.
    pub(crate) fn order_by_arrival(&mut self) {
        let mut all: Vec<(u64, JobId)> = self.queue.iter().map(|id| (self.waits_since(*id), *id)).collect();
        all.sort_unstable();
        self.queue.arrange(all.into_iter().map(|(_, id)| id));
    }

    /// Behind how many of those that wait a request has its place that comes now.
    pub(crate) fn before_new(&self, (uid, class): (u32, Class), now_ns: u64) -> usize {
        if self.config.queue.order == Order::Arrival {
            return self.queue.len();
        }
        let new = Claimant {
            class,
            had_ns: self.had_ns(uid, now_ns),
            since_ns: now_ns,
        };
        let max_wait_ns = self.config.queue.max_wait_ns;
        let is_before = |id: &&JobId| next_of(&self.claimant(**id, now_ns), &new, max_wait_ns, now_ns).is_le();
        self.queue.iter().filter(is_before).count()
    }

    fn claimant(&self, id: JobId, now_ns: u64) -> Claimant {
        let record = self.jobs.get(&id).map(|job| &job.record);
        Claimant {
            class: record.map_or(Class::Low, |record| record.terms.class),
            had_ns: record.map_or(0, |record| self.had_ns(record.uid, now_ns)),
            since_ns: self.waits_since(id),
        }
    }

    /// Since when it waits, to start or to come back.
    pub(crate) fn waits_since(&self, id: JobId) -> u64 {
        let queued = self.jobs.get(&id).and_then(|job| job.life.queued());
        let returning = self.returning.get(&id);
        let since = queued.map(|queued| queued.since_ns);
        since.or_else(|| returning?.since_ns()).unwrap_or(u64::MAX)
    }

    /// GPU time that a user had, as much of it as counts now.
    pub(crate) fn had_ns(&self, uid: u32, now_ns: u64) -> u64 {
        let half_life_ns = self.config.queue.half_life_ns;
        self.usage.had(uid, self.unix_ns(now_ns), half_life_ns)
    }

    /// The newest views of what jobs were charged came.
    pub(crate) fn count_measured(&mut self, now_ns: u64) {
        let at = (self.unix_ns(now_ns), self.config.queue.half_life_ns);
        for ((job, device), measured) in self.times.iter() {
            let more = self.usage.count(*job, *device, measured.now.used_ns);
            if let Some(job) = self.jobs.get(job) {
                self.usage.charge(job.record.uid, more, at);
            }
        }
        let lives = |id| self.jobs.get(&id).is_some_and(|job| job.state().may_get_time());
        self.usage.keep_jobs(lives);
        self.save_usage(now_ns);
    }

    /// A poll of a device came: charges the jobs on it that are not measured.
    pub(crate) fn count_unmeasured(&mut self, device: DeviceUuid, now_ns: u64) {
        let dt = self.usage.poll(device, now_ns);
        let at = (self.unix_ns(now_ns), self.config.queue.half_life_ns);
        let managed = self.managed_pids();
        let measured = self.devices.get(&device).and_then(|known| known.measured.as_ref());
        let mut parts: BTreeMap<JobId, u64> = BTreeMap::new();
        for process in measured.map_or(&[][..], |measured| measured.processes.as_slice()) {
            let job = managed.get(&process.pid);
            if let Some(job) = job.filter(|job| !self.times.contains_key(&(**job, device))) {
                *parts.entry(*job).or_default() += u64::from(process.busy_ppm.unwrap_or(WHOLE_PPM));
            }
        }
        for (job, part) in parts {
            if let Some(job) = self.jobs.get(&job) {
                let part = part.min(WHOLE_PPM.into());
                let ns = dt.saturating_mul(part) / u64::from(WHOLE_PPM);
                self.usage.charge(job.record.uid, ns, at);
            }
        }
        self.save_usage(now_ns);
    }

    fn save_usage(&mut self, now_ns: u64) {
        if self.config.queue.order == Order::Arrival {
            return;
        }
        let at = (self.unix_ns(now_ns), self.config.queue.half_life_ns);
        if let Some(users) = self.usage.take_due(now_ns, at) {
            self.act(Action::SaveUsage(users));
        }
    }
}
