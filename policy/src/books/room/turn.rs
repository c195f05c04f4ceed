// SPDX-License-Identifier: Apache-2.0
//! In which order those that wait have their turn.

use crate::books::Books;
use crate::config::Order;
use crate::job::{Claimant, next_of};
use partage_protocol::terms::Class;
use partage_protocol::units::JobId;

impl Books {
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

    pub(crate) fn claimant(&self, id: JobId, now_ns: u64) -> Claimant {
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
}
