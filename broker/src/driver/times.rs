// SPDX-License-Identifier: Apache-2.0
//! Between the policy and the timekeeper: terms of time go there, what was measured comes back.

use partage_policy::{Event, JobTime, Terms};
use partage_protocol::terms;
use partage_protocol::units::{DeviceUuid, JobId, SECOND_NS};
use partage_scheduling as scheduling;

use super::effect::Effect;
use super::state_driver::StateDriver;
use crate::clock::Now;
use crate::timekeeper::Message;

/// Between two views that the policy is given: what it shows is a second's and a minute's.
const LOOK_NS: u64 = SECOND_NS;

impl StateDriver {
    /// A job's terms, for the timekeeper.
    pub(super) fn show_terms(&mut self, job: JobId, devices: Vec<DeviceUuid>, terms: &Terms) {
        // A default job is many programs on every device, which know nothing of one another.
        let is_one_program = self.jobs.get(&job).is_some_and(|record| record.default_scope.is_none());
        let terms = scheduling::Terms {
            promise_ppm: terms.promise_ppm,
            weight: terms.weight,
            class: class(terms.class),
            cap_ppm: terms.cap_ppm,
            // Its work on several devices waits for one another more often than not.
            is_gang: is_one_program && devices.len() > 1,
        };
        self.effects.push(Effect::Time(Message::Terms { job, devices, terms }));
    }

    /// Is a new view of what the timekeeper measured wanted?
    #[must_use]
    pub fn wants_times(&self, now: Now) -> bool {
        self.times_at_ns <= now.ns
    }

    /// What the timekeeper measured.
    pub fn times(&mut self, times: Vec<JobTime>, now: Now) {
        self.times_at_ns = now.ns.saturating_add(LOOK_NS);
        if times.is_empty() && !self.has_times {
            return;
        }
        self.has_times = !times.is_empty();
        self.step(now, Event::Time(times));
    }
}

fn class(class: terms::Class) -> scheduling::Class {
    match class {
        terms::Class::Low => scheduling::Class::Low,
        terms::Class::Normal => scheduling::Class::Normal,
        terms::Class::High => scheduling::Class::High,
        terms::Class::Realtime => scheduling::Class::Realtime,
    }
}
