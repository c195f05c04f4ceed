// SPDX-License-Identifier: Apache-2.0
//! One device of the dispatcher: its next sample, and what was last written for its clients.

use partage_protocol::gate::{GATES_COPIES, MEASURED, NEEDS_FENCE};
use partage_protocol::units::ClientId;
use partage_scheduling::Regime;

/// Sampling one device takes at most one part of so many of a processor: a device with very many clients is sampled
/// less often.
pub const SAMPLING: u64 = 5;
/// So much of that may be taken at once, in nanoseconds: a sample that also moves gates costs many times as much as the
/// next ones, which are to show how the streams of the client that got the device begin.
pub const CREDIT_NS: u64 = 2_000_000;

/// What is kept of a device between two samples.
pub struct DeviceState {
    last_ns: u64,
    /// Until when what samples took is no more than they may. At most [`CREDIT_NS`] is saved up.
    paid_ns: u64,
    /// How the device is shared.
    pub regime: Regime,
    /// What the clients of the device were told last.
    pub flags: u32,
    /// The client whose gate alone is open, with nothing of others on the device.
    pub unshared: Option<ClientId>,
    /// Unmanaged processes may have work on it.
    pub has_unmanaged: bool,
    /// How many clients had work on it when it was last sampled.
    pub busy: usize,
    /// The scheduler knows that what it sees is a measure.
    pub is_measured: bool,
    /// How many times its clients were told to leave marks, or nobody read them for long.
    pub stretch: u32,
}

impl Default for DeviceState {
    fn default() -> Self {
        Self {
            last_ns: 0,
            paid_ns: 0,
            regime: Regime::Overlap,
            flags: 0,
            unshared: None,
            has_unmanaged: false,
            busy: 0,
            is_measured: false,
            stretch: 0,
        }
    }
}

impl DeviceState {
    /// When the next sample is due, `interval` after the last one if that is paid for.
    pub fn due_ns(&self, interval: u64) -> u64 {
        self.last_ns.saturating_add(interval).max(self.paid_ns)
    }

    /// A sample begins.
    pub fn begin_sample(&mut self, now: u64) {
        self.last_ns = now;
    }

    /// A sample took `cost` of a processor.
    pub fn pay(&mut self, now: u64, cost: u64) {
        let saved_since = now.saturating_sub(CREDIT_NS * SAMPLING);
        self.paid_ns = self
            .paid_ns
            .max(saved_since)
            .saturating_add(cost.saturating_mul(SAMPLING));
    }

    /// What the clients are to be told.
    pub fn wanted_flags(&self, is_marked: bool, needs_fence: bool) -> u32 {
        let mut flags = 0;
        for (is_set, flag) in [
            (is_marked, MEASURED),
            (needs_fence, NEEDS_FENCE),
            (self.regime == Regime::Turns, GATES_COPIES),
        ] {
            flags |= if is_set { flag } else { 0 };
        }
        flags
    }
}
