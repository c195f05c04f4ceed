// SPDX-License-Identifier: Apache-2.0
//! What is to happen on the node, in the order of time.

use std::cmp::Ordering;

use partage_scheduling::{Command, DeviceKey};

use super::gpu::Unit;

#[derive(Debug)]
pub enum Due {
    /// The client's thread goes on, if its epoch is still this one.
    Wake(usize, u64),
    /// The launch call of the client lands.
    Land(usize, u32, Unit),
    /// The device is looked at, if nothing else was decided since.
    Look(DeviceKey, u64),
    /// At this instant, unless an earlier one was planned since.
    Tick(u64, u64),
    Apply(Vec<Command>, u64),
    Restarted,
}

/// In the order of time, then of planning.
pub struct Planned {
    pub at_ns: u64,
    pub order: u64,
    pub due: Due,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}
