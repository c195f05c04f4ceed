// SPDX-License-Identifier: Apache-2.0
//! One client as the dispatcher sees it: its page, and its state on each of its devices.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use partage_gpu_time::GpuTimeEstimator;
use partage_protocol::gate::{OPEN, TimePage, TimePages, UNBOUNDED};
use partage_protocol::hold::SOFT;
use partage_protocol::page::GrantLine;
use partage_protocol::units::{ClientId, JobId};
use partage_scheduling::{DeviceKey, Observation};

use crate::state::pages::PagePair;

/// After so long without progress of a client that could move, the dispatcher asks the kernel whether it is stopped.
const SUSPECT_NS: u64 = 20_000_000;
/// After so long the dispatcher asks again about a stopped client.
const STOPPED_AGAIN_NS: u64 = 80_000_000;

/// A client that passes through the driver, or stands before an open gate, and shows no sign for this long is no reason
/// to keep others away until it does: a compiler inside a launch, a full queue, a thread that left by a jump, a lie.
const STILL_NS: u64 = 50_000_000;

/// One client.
pub struct Client {
    /// Its job.
    pub job: JobId,
    /// Its process.
    pub pid: u32,
    /// Its pages.
    pub pages: Arc<PagePair>,
    /// What is known of it on each of its devices.
    pub slots: BTreeMap<DeviceKey, Slot>,
}

/// One client on one device.
pub struct Slot {
    /// The device's place in the job.
    pub index: usize,
    /// What moves while the client does: what has retired, and for how long its threads have waited.
    signs: (u64, u64),
    /// When the signs last moved, or need not have, or the kernel was asked.
    since_ns: u64,
    /// When the signs last moved, or need not have.
    moved_ns: u64,
    is_stopped: bool,
    /// A thread passes the gate, and work is on the device, as of this sample.
    is_entering: bool,
    is_busy: bool,
    /// It had work on the device at the sample before.
    was_busy: bool,
    time: GpuTimeEstimator,
}

/// How many clients of a device had work on it, at the sample before and at this one, and whether others may have had.
#[derive(Clone, Copy)]
pub struct Company {
    /// Unmanaged processes may have work on it.
    pub has_unmanaged: bool,
    /// At the sample before.
    pub before: usize,
    /// At this one.
    pub now: usize,
}

impl Client {
    /// What the broker tells the client about a device.
    pub fn line(&self, device: DeviceKey) -> Option<&GrantLine> {
        self.pages.broker().devices.get(self.slots.get(&device)?.index)
    }

    /// What the client tells of its work on a device.
    pub fn page(&self, device: DeviceKey) -> Option<&TimePage> {
        self.pages.time().devices.get(self.slots.get(&device)?.index)
    }

    /// Does a gate hold this client, or a soft hold, or a bound on its work in flight?
    pub fn is_held(&self) -> bool {
        self.pages.broker().head.hold.load(Ordering::Relaxed) & SOFT != 0
            || self
                .slots
                .keys()
                .filter_map(|device| self.line(*device))
                .any(|line| !is_open(line) || line.depth_ns.load(Ordering::Relaxed) != UNBOUNDED)
    }
}

impl Slot {
    /// A client that comes to a device, as the job's device of this place.
    pub fn new(index: usize, now: u64) -> Self {
        Self {
            index,
            signs: (0, 0),
            since_ns: now,
            moved_ns: now,
            is_stopped: false,
            is_entering: false,
            is_busy: false,
            was_busy: false,
            time: GpuTimeEstimator::default(),
        }
    }

    /// The first half of a sample: does a thread pass the gate, and is work on the device? In this order, so that a
    /// launch that is over when the thread slots are read is seen in the marks. Answers whether work is there.
    pub fn read(&mut self, pages: &TimePages, now: u64) -> bool {
        self.was_busy = self.is_busy;
        self.is_entering = pages.is_entering(self.index);
        self.is_busy = pages.devices.get(self.index).is_some_and(|page| page.is_busy(now));
        self.is_busy
    }

    /// The second half: what the scheduler is to know of the client. `is_stopped` asks the kernel about its process.
    pub fn observe(
        &mut self,
        client: ClientId,
        pages: &PagePair,
        company: Company,
        now: u64,
        is_stopped: impl FnOnce() -> bool,
    ) -> Option<Observation> {
        let page = pages.time().devices.get(self.index)?;
        let is_waiting = page.waiting.load(Ordering::Relaxed) != 0;
        let retired = page.retired();
        let signs = (retired, page.waited_ns.load(Ordering::Relaxed));
        // A client that waits at a closed gate stands still by rights; before an open one only if it cannot move.
        let is_before_open = || pages.broker().devices.get(self.index).is_some_and(is_open);
        let is_suspect = self.is_busy || self.is_entering || is_waiting && (self.is_stopped || is_before_open());
        let patience = if self.is_stopped { STOPPED_AGAIN_NS } else { SUSPECT_NS };
        if signs != self.signs || !is_suspect {
            (self.signs, self.since_ns, self.is_stopped) = (signs, now, false);
            self.moved_ns = now;
        } else if now >= self.since_ns.saturating_add(patience) {
            // Not with every sample: a read of /proc costs more than all the rest.
            self.since_ns = now;
            self.is_stopped = is_stopped();
        }
        // No other client at either end; work may have come since it was read.
        let is_exclusive = !company.has_unmanaged
            && company.before == usize::from(self.was_busy)
            && company.now <= usize::from(self.is_busy);
        let is_still = !self.is_busy && now >= self.moved_ns.saturating_add(STILL_NS);
        Some(Observation {
            client,
            is_waiting,
            is_entering: self.is_entering,
            is_busy: self.is_busy,
            is_pending: !self.is_busy && page.is_pending(),
            device_time: self.time.update(page, is_exclusive, now),
            retired,
            unit_ns: page.unit_ns.load(Ordering::Relaxed),
            is_stopped: self.is_stopped || is_still,
        })
    }
}

/// Is this gate open?
pub fn is_open(line: &GrantLine) -> bool {
    line.gate.load(Ordering::Relaxed) & OPEN != 0
}
