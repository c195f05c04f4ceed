// SPDX-License-Identifier: Apache-2.0
//! Gives the dispatcher's measurements of device time to the policy.

use partage_policy::Event;
use tracing::{debug, warn};

use super::state_driver::StateDriver;
use crate::dispatcher::report::Report;

impl StateDriver {
    /// The dispatcher reported something.
    pub(super) fn take_report(&mut self, report: Report) {
        match report {
            Report::NotDraining { client, device, why } => {
                warn!(client = client.0, %device, why, "does not drain");
            }
            Report::Drained { client, device } => debug!(client = client.0, %device, "drains again"),
            Report::Views(times) => self.site.tell(Event::Time(times)),
        }
    }
}
