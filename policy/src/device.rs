// SPDX-License-Identifier: Apache-2.0
//! A device as the policy knows it: identity, state, and the last measurement.
//!
//! ```text
//!   enumerated ──► unknown ── measured ──► ok ── hangs, off the bus, not enumerated ──► lost ── enumerated ──► unknown
//! ```
//! Nothing is admitted on a device that is not `ok`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use partage_protocol::units::JobId;

use crate::event::{DeviceSeen, Measurement, ProcessUse};
use crate::rules::CardSize;
use crate::worded::worded;

mod account;
mod drift;
mod overhead;
mod unmanaged;

pub(crate) use account::{DeviceAccount, Hold};
pub use drift::CONFIRM_NS;
pub(crate) use drift::{Contradiction, Kind};
pub use overhead::UNAUDITED_NS;
pub(crate) use overhead::{Measured, Measuring, Member, Overheads, Seen};
pub use unmanaged::UnmanagedLoad;
pub(crate) use unmanaged::UnmanagedTime;

worded! {
    /// Whether a device can be promised.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum DeviceState(word) {
        /// Enumerated, not measured yet.
        Unknown = "unknown",
        /// Measured.
        Ok = "ok",
        /// Hangs or is off the bus; its jobs keep what they hold, nothing new is admitted.
        Lost = "lost",
    }
}

/// A device. Everybody reads what is known of it; what changes it is a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device(Facts);

/// What is known of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub seen: DeviceSeen,
    /// The most of its memory that was ever usable since it was first enumerated: a driver may reserve more later.
    pub most_usable: u64,
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
    /// Processes of no job, and the time that they use.
    pub unmanaged: UnmanagedTime,
}

fn usable(seen: &DeviceSeen) -> u64 {
    seen.total_bytes.saturating_sub(seen.reserve_bytes)
}

impl Deref for Device {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.0
    }
}

impl Device {
    pub(crate) fn new(seen: DeviceSeen) -> Self {
        Self(Facts {
            most_usable: usable(&seen),
            seen,
            state: DeviceState::Unknown,
            is_slow: false,
            why: String::new(),
            measured: None,
            announced: BTreeSet::new(),
            learned: BTreeMap::new(),
            condemned: BTreeMap::new(),
            unmanaged: UnmanagedTime::default(),
        })
    }

    /// It is enumerated again.
    pub(crate) fn see(&mut self, seen: DeviceSeen) {
        self.note_usable(usable(&seen));
        self.0.seen = seen;
    }

    /// So much of its memory was usable before.
    pub(crate) fn note_usable(&mut self, bytes: u64) {
        self.0.most_usable = self.most_usable.max(bytes);
    }

    /// A look at it takes long.
    pub(crate) fn note_slow(&mut self) {
        self.0.is_slow = true;
    }

    /// It hangs or is gone.
    pub(crate) fn lose(&mut self, why: &str) {
        self.0.state = DeviceState::Lost;
        why.clone_into(&mut self.0.why);
    }

    /// What a poll shows; nothing counts of one that is lost.
    pub(crate) fn take(&mut self, measured: Measurement) -> bool {
        if self.state == DeviceState::Lost {
            return false;
        }
        self.0.measured = Some(measured);
        self.0.state = DeviceState::Ok;
        self.0.is_slow = false;
        true
    }

    /// An event names an unmanaged process; answers whether none did before.
    pub(crate) fn announce(&mut self, pid: u32) -> bool {
        self.0.announced.insert(pid)
    }

    /// Only these processes are shown on any device.
    pub(crate) fn keep_announced(&mut self, shown: &BTreeSet<u32>) {
        self.0.announced.retain(|pid| shown.contains(pid));
    }

    /// A first context of a user's process was measured to cost this.
    pub(crate) fn learn(&mut self, uid: u32, bytes: u64) {
        let learned = self.0.learned.entry(uid).or_default();
        *learned = bytes.max(*learned);
    }

    /// These unmanaged processes are to be killed (pid and start); answers those that were for so long, each once.
    pub(crate) fn condemn(&mut self, shown: &[(u32, u64)], for_ns: u64, now_ns: u64) -> Vec<(u32, u64)> {
        self.0.condemned.retain(|process, _| shown.contains(process));
        let mut due = Vec::new();
        for process in shown {
            let since = self.0.condemned.entry(*process).or_insert(Some(now_ns));
            if since.is_some_and(|since_ns| now_ns >= since_ns.saturating_add(for_ns)) {
                *since = None;
                due.push(*process);
            }
        }
        due
    }

    /// As [`UnmanagedTime::see`].
    pub(crate) fn see_unmanaged(
        &mut self,
        here: &[&ProcessUse],
        parts: (u32, u32),
        now_ns: u64,
    ) -> Vec<(u32, Option<JobId>, u32)> {
        self.0.unmanaged.see(here, parts, now_ns)
    }

    /// Nothing is known any more of the time that processes of no job use.
    pub(crate) fn forget_unmanaged(&mut self) {
        self.0.unmanaged.clear();
    }

    /// As [`UnmanagedTime::take_change`].
    pub(crate) fn take_unmanaged_change(&mut self, now_ns: u64) -> Option<UnmanagedLoad> {
        self.0.unmanaged.take_change(now_ns)
    }

    /// What jobs can share, in bytes.
    pub(crate) fn usable(&self) -> u64 {
        usable(&self.seen)
    }

    /// How much memory it has, for the rules.
    pub(crate) fn size(&self) -> CardSize {
        CardSize {
            usable: self.usable(),
            total: self.seen.total_bytes,
        }
    }

    /// A process of ours is gone: what the last measurement saw of it is no longer there. `bytes` is what its ledger
    /// said, for drivers that do not show use per process. A measurement that does not list it is newer than its end,
    /// and so is the use that it saw.
    pub(crate) fn forget_process(&mut self, pid: u32, bytes: u64) {
        if let Some(measured) = &mut self.0.measured {
            measured.forget_process(pid, bytes);
        }
    }
}
