// SPDX-License-Identifier: Apache-2.0
//! Gives the dispatcher's measurements of device time to the policy.

use partage_policy::Event;
use tracing::{debug, warn};

use super::state_driver::StateDriver;
use crate::clock::Now;
use crate::dispatcher::report::Report;

impl StateDriver {
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
