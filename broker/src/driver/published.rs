// SPDX-License-Identifier: Apache-2.0
//! What views are made of beside the loop, and what they found.

use std::collections::BTreeSet;

use partage_policy::{Books, Event};
use partage_protocol::units::JobId;

use super::state_driver::StateDriver;
use crate::clock::Now;
use crate::views::{Found, Frozen, Published};
use crate::watch::services::Services;

impl StateDriver {
    /// What the broker's threads say of themselves.
    #[must_use]
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// A copy of all that views are made of. It has every change that was answered before.
    pub fn published(&mut self, now: Now) -> Published {
        self.site.now = now;
        let site = &mut self.site;
        let clients = site.clients.iter().map(|(id, client)| {
            let slots = site.policy.slots(client.job).max(client.devices.len());
            (id, slots)
        });
        let machine = Frozen::of(&site.clients, clients);
        let users = site.policy.shown_users().into_iter();
        let users = users.map(|uid| (uid, site.users.name(uid))).collect();
        self.stopped = self.still_there(&self.stopped);
        Published {
            books: Books::clone(&self.site.policy),
            machine,
            users,
            broker: self.broker_view(),
            stopped: self.stopped.clone(),
            now_ns: now.ns,
        }
    }

    /// Tells the policy which live jobs were found to be stopped while a view was made.
    pub fn found_stopped(&mut self, found: &Found, now: Now) {
        self.site.now = now;
        let stopped = self.still_there(&found.with_others(&self.stopped));
        if stopped != self.stopped {
            self.stopped.clone_from(&stopped);
            self.site.tell(Event::Stopped(stopped));
            self.settle();
        }
    }

    /// Those of these jobs that are live or wait.
    fn still_there(&self, jobs: &BTreeSet<JobId>) -> BTreeSet<JobId> {
        if jobs.is_empty() {
            return BTreeSet::new();
        }
        let there = self.site.policy.live().chain(self.site.policy.queue());
        there.filter(|job| jobs.contains(job)).collect()
    }
}
