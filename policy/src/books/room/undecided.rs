// SPDX-License-Identifier: Apache-2.0
//! Questions that wait until it is known who has ended.

use crate::books::Books;
use crate::question::Awaited;
use partage_protocol::units::SECOND_NS;

/// Longest time that a question waits, below the 3 s of a library. A client tries to come back every 2 s at the least.
pub const PATIENCE_NS: u64 = 2 * SECOND_NS;

impl Books {
    /// Does what the question waits for still last?
    pub(crate) fn is_awaited(&self, awaited: Awaited) -> bool {
        match awaited {
            Awaited::OfJob(job) => self.is_awaiting(job),
            Awaited::OnDevice(device) => self.is_adopting(device),
            Awaited::Dying => self.clients.is_any_dying(),
            Awaited::Search => true,
        }
    }

    /// When a kept question has waited long enough.
    pub(crate) fn undecided_due_ns(&self) -> Option<u64> {
        Some(self.undecided.first_ns()?.saturating_add(PATIENCE_NS))
    }
}
