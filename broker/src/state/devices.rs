// SPDX-License-Identifier: Apache-2.0
//! The driver's state, the device list, the newest poll of each device, and when the next poll is due.

use std::collections::{BTreeMap, BTreeSet};

use partage_protocol::units::{DeviceUuid, SECOND_NS};

use crate::host::gpu::{DeviceFacts, Driver, Look, Sample};

/// Pause between looks while clients allocate, however seldom the configuration wants them otherwise: what the driver
/// holds is to be in the ledger within a second.
pub const MOVED_LOOK_NS: u64 = SECOND_NS / 2;
/// Least pause between two looks at one device on request: faster ones would cost everybody the driver's lock.
const REQUESTED_LOOK_NS: u64 = SECOND_NS / 50;

/// The devices as last seen.
#[derive(Debug, Default)]
pub struct Devices {
    driver: Option<Driver>,
    is_listed: bool,
    list: BTreeMap<DeviceUuid, DeviceFacts>,
    samples: BTreeMap<DeviceUuid, (u64, Sample)>,
    lost: BTreeSet<DeviceUuid>,
    /// A look at them is under way and takes long: nobody waits for it.
    slow: BTreeSet<DeviceUuid>,
    looked_ns: Option<u64>,
    pause_ns: u64,
    wants_look: bool,
    /// Devices that somebody waits for.
    wanted: BTreeSet<DeviceUuid>,
    /// When each device was asked last.
    asked: BTreeMap<DeviceUuid, u64>,
    /// What the clients' counters added up to at the last look, and when that was compared.
    moves: u64,
    compared_ns: u64,
    /// When they are to be compared next.
    compare_at_ns: Option<u64>,
}

impl Devices {
    /// Can jobs be admitted: the driver's state is known, and each listed device was looked at or is lost?
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match &self.driver {
            None => false,
            Some(Driver::Ok) if !self.is_listed => false,
            Some(Driver::Ok) => self
                .list
                .keys()
                .all(|device| !self.answers(device) || self.samples.contains_key(device)),
            Some(_) => true,
        }
    }

    /// Was each device that answers looked at after `since_ns`? Admission counts what others use now, not what they
    /// used when the broker last had a reason to look.
    #[must_use]
    pub fn is_seen_since(&self, since_ns: u64) -> bool {
        let mut answering = self.list.keys().filter(|device| self.answers(device));
        let is_fresh = |device| {
            self.samples
                .get(device)
                .is_some_and(|(asked_ns, _)| *asked_ns >= since_ns)
        };
        self.is_ready() && (!matches!(self.driver, Some(Driver::Ok)) || answering.all(is_fresh))
    }

    /// Is a look at it answered within a moment?
    fn answers(&self, device: &DeviceUuid) -> bool {
        !self.lost.contains(device) && !self.slow.contains(device)
    }

    /// The driver's state; none until the first answer.
    #[must_use]
    pub fn driver(&self) -> Option<&Driver> {
        self.driver.as_ref()
    }

    /// Wants a look at the next opportunity.
    pub fn look_now(&mut self) {
        self.wants_look = true;
    }

    /// Wants a look at one device.
    pub fn look_at(&mut self, device: DeviceUuid) {
        self.wanted.insert(device);
    }

    /// When the next look is due.
    #[must_use]
    pub fn next_look_ns(&self) -> u64 {
        let all = match self.looked_ns {
            Some(_) if self.wants_look => 0,
            Some(looked) => looked + self.pause_ns,
            None => 0,
        };
        let requested = self.wanted.iter().map(|device| self.requested_ns(device));
        requested.chain(self.compare_at_ns).fold(all, u64::min)
    }

    /// When a device that somebody waits for may be looked at again.
    fn requested_ns(&self, device: &DeviceUuid) -> u64 {
        self.asked.get(device).map_or(0, |asked| asked + REQUESTED_LOOK_NS)
    }

    /// Was each of `devices` looked at after `since_ns`, without process `pid`? A device that is lost or that no driver
    /// answers for holds no memory that could be given to anyone.
    #[must_use]
    pub fn is_gone_since(&self, since_ns: u64, pid: Option<u32>, devices: &[DeviceUuid]) -> bool {
        if !matches!(self.driver, Some(Driver::Ok)) {
            return true;
        }
        let mut known = devices
            .iter()
            .filter(|device| self.list.contains_key(device) && !self.lost.contains(device));
        known.all(|device| {
            self.samples.get(device).is_some_and(|(asked_ns, sample)| {
                *asked_ns > since_ns && sample.processes.iter().all(|process| Some(process.pid) != pid)
            })
        })
    }

    /// What a look at a device showed that was asked for after `since_ns`.
    #[must_use]
    pub fn sample_since(&self, device: DeviceUuid, since_ns: u64) -> Option<&Sample> {
        let (asked_ns, sample) = self.samples.get(&device)?;
        (*asked_ns > since_ns).then_some(sample)
    }

    /// The processes that the last look at a device showed.
    #[must_use]
    pub fn shown_on(&self, device: DeviceUuid) -> Vec<u32> {
        let shown = self.samples.get(&device).map(|(_, sample)| &sample.processes);
        shown.into_iter().flatten().map(|process| process.pid).collect()
    }

    /// A look at a device begins.
    pub fn begin_look(&mut self, device: DeviceUuid, now_ns: u64) {
        self.asked.insert(device, now_ns);
    }

    /// A look at a device takes long.
    pub fn set_slow(&mut self, device: DeviceUuid) {
        self.slow.insert(device);
    }

    /// A device does not answer any more. Answers whether that is news.
    pub fn lose(&mut self, device: DeviceUuid) -> bool {
        self.slow.remove(&device);
        self.lost.insert(device)
    }

    /// A device answers. Answers whether it was lost.
    pub fn find(&mut self, device: DeviceUuid) -> bool {
        self.slow.remove(&device);
        self.lost.remove(&device)
    }

    /// The devices that are lost.
    #[must_use]
    pub fn lost(&self) -> Vec<DeviceUuid> {
        self.lost.iter().copied().collect()
    }

    /// The driver's state changed; its list follows where it works.
    pub fn set_driver(&mut self, driver: Driver) {
        self.is_listed = false;
        if driver != Driver::Ok {
            self.list.clear();
            self.samples.clear();
            self.lost.clear();
            self.slow.clear();
        }
        self.driver = Some(driver);
    }

    /// The driver listed its devices.
    pub fn set_list(&mut self, list: BTreeMap<DeviceUuid, DeviceFacts>) {
        self.samples.retain(|device, _| list.contains_key(device));
        self.lost.retain(|device| list.contains_key(device));
        self.slow.retain(|device| list.contains_key(device));
        self.list = list;
        self.is_listed = true;
    }

    /// The devices that the driver listed.
    #[must_use]
    pub fn list(&self) -> &BTreeMap<DeviceUuid, DeviceFacts> {
        &self.list
    }

    /// A look at a device, asked for at `asked_ns`, was answered.
    pub fn set_sample(&mut self, device: DeviceUuid, asked_ns: u64, sample: Sample) {
        self.samples.insert(device, (asked_ns, sample));
    }

    /// The pause between two looks at all devices from now on.
    pub fn set_pause(&mut self, pause_ns: u64) {
        self.pause_ns = pause_ns;
    }

    /// The clients' counters are not compared: looks come often enough without.
    pub fn compare_nothing(&mut self) {
        self.compare_at_ns = None;
    }

    /// Did the clients' counters, which add up to `moves`, move since the last look? Compared once for each
    /// [`MOVED_LOOK_NS`].
    pub fn have_moved(&mut self, now_ns: u64, moves: impl FnOnce() -> u64) -> bool {
        let last_ns = self.looked_ns.unwrap_or(0).max(self.compared_ns);
        if now_ns < last_ns + MOVED_LOOK_NS {
            self.compare_at_ns = Some(last_ns + MOVED_LOOK_NS);
            return false;
        }
        self.compared_ns = now_ns;
        self.compare_at_ns = Some(now_ns + MOVED_LOOK_NS);
        moves() != self.moves
    }

    /// The looks that are due; each is answered once. `moves`: what the clients' counters add up to.
    pub fn take_looks(&mut self, now_ns: u64, moves: impl FnOnce() -> u64) -> Vec<Look> {
        let is_due = |at_ns: u64| now_ns >= at_ns;
        if self
            .looked_ns
            .is_none_or(|looked| self.wants_look || is_due(looked + self.pause_ns))
        {
            self.moves = moves();
            self.looked_ns = Some(now_ns);
            self.wants_look = false;
            self.wanted.clear();
            return vec![Look::All];
        }
        let (due, later): (BTreeSet<_>, BTreeSet<_>) = std::mem::take(&mut self.wanted)
            .into_iter()
            .partition(|device| is_due(self.requested_ns(device)));
        self.wanted = later;
        due.iter().map(|device| Look::Device(device.to_string())).collect()
    }
}
