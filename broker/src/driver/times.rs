// SPDX-License-Identifier: Apache-2.0
//! Between the policy and the dispatcher: terms of time go there, what was measured comes back.

use partage_policy::{Event, Terms};
use partage_protocol::terms;
use partage_protocol::units::{DeviceUuid, JobId};
use partage_scheduling as scheduling;
use tracing::{debug, warn};

use super::effect::Effect;
use super::state_driver::StateDriver;
use crate::clock::Now;
use crate::dispatcher::message::Message;
use crate::dispatcher::report::Report;

impl StateDriver {
    /// A job's terms, for the dispatcher.
    pub(super) fn show_terms(&mut self, job: JobId, devices: Vec<DeviceUuid>, terms: &Terms) {
        // A default job is many programs on every device, which know nothing of one another.
        let is_one_program = self.jobs.get(job).is_some_and(|record| record.default_scope.is_none());
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

    /// The dispatcher reported something.
    pub fn report(&mut self, report: Report, now: Now) {
        match report {
            Report::NotDraining { client, device, why } => {
                warn!(client = client.0, %device, why, "does not drain");
            }
            Report::Drained { client, device } => debug!(client = client.0, %device, "drains again"),
            Report::Views(times) => self.step(now, Event::Time(times)),
        }
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
