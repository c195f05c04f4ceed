// SPDX-License-Identifier: Apache-2.0
//! A device as the policy knows it: identity, state, and the last measurement.
//!
//! ```text
//!   enumerated ──► unknown ── measured ──► ok ── hangs, off the bus, not enumerated ──► lost ── enumerated ──► unknown
//! ```
//! Nothing is admitted on a device that is not `ok`.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{DeviceSeen, Measurement, ProcessUse};

mod account;
mod gauge;
mod unmanaged;

pub(crate) use account::{Hold, Picture};
pub(crate) use gauge::{Announced, Drift, Gauge, Kind, Measuring, Member, Seen};
pub(crate) use unmanaged::Stranger;
pub use unmanaged::Strangers;

/// Whether a device can be promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// Enumerated, not measured yet.
    Unknown,
    /// Measured.
    Ok,
    /// Hangs or is off the bus; its jobs keep what they hold, nothing new is admitted.
    Lost,
}

impl DeviceState {
    /// The word that users see.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Ok => "ok",
            Self::Lost => "lost",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub seen: DeviceSeen,
    pub state: DeviceState,
    /// A look at it takes long: what was measured last is old.
    pub is_slow: bool,
    /// Why it is lost; empty otherwise.
    pub why: String,
    pub measured: Option<Measurement>,
    /// Unmanaged processes that an event has named already.
    pub announced: BTreeSet<u32>,
    /// What a first context of a user's process was measured to cost here at most, by uid: a hostile client must not
    /// make contexts look expensive to others.
    pub learned: BTreeMap<u32, u64>,
    /// Unmanaged processes to be killed, by pid and start: since when they are seen; none once that is done.
    pub condemned: BTreeMap<(u32, u64), Option<u64>>,
    /// What the newest looks say of the time that unmanaged processes use, by pid.
    pub strangers: BTreeMap<u32, Stranger>,
    /// When they were last seen to use as much as one more job would.
    pub crowded_ns: Option<u64>,
    /// When they were last seen to use any time to speak of, or may have.
    pub felt_ns: Option<u64>,
    /// Whoever shares the device out was told so.
    pub shown_strangers: Strangers,
}

impl Device {
    pub(crate) fn new(seen: DeviceSeen) -> Self {
        Self {
            seen,
            state: DeviceState::Unknown,
            is_slow: false,
            why: String::new(),
            measured: None,
            announced: BTreeSet::new(),
            learned: BTreeMap::new(),
            condemned: BTreeMap::new(),
            strangers: BTreeMap::new(),
            crowded_ns: None,
            felt_ns: None,
            shown_strangers: Strangers::default(),
        }
    }

    /// What jobs can share, in bytes.
    pub(crate) fn usable(&self) -> u64 {
        self.seen.total_bytes.saturating_sub(self.seen.reserve_bytes)
    }

    /// A process of ours is gone: what the last measurement saw of it is no longer there. `bytes` is what its ledger
    /// said, for drivers that do not show use per process. A measurement that does not list it is newer than its end, and
    /// so is the use that it saw.
    pub(crate) fn forget_process(&mut self, pid: u32, bytes: u64) {
        let Some(measured) = &mut self.measured else { return };
        let is_it = |process: &&ProcessUse| process.pid == pid;
        if !measured.processes.iter().any(|process| is_it(&process)) {
            return;
        }
        let listed: u64 = measured
            .processes
            .iter()
            .filter(is_it)
            .filter_map(|process| process.bytes)
            .sum();
        measured.processes.retain(|process| process.pid != pid);
        measured.used_bytes = measured.used_bytes.saturating_sub(listed.max(bytes));
    }
}
