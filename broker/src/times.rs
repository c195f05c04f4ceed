// SPDX-License-Identifier: Apache-2.0
//! From the timekeeper to the policy: what was measured of the jobs' time.

use partage_policy::{Event, JobTime};
use partage_protocol::units::SECOND_NS;

use crate::state_driver::{Now, StateDriver};

/// Between two views that the policy is given: what it shows is a second's and a minute's.
const LOOK_NS: u64 = SECOND_NS;

impl StateDriver {
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
