// SPDX-License-Identifier: Apache-2.0
//! What the broker knows of the devices: the driver's state, the list, the newest look at each, and when to look again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use partage_policy::{DeviceSeen, DriverState, Event, Measurement, Process, ProcessUse};
use partage_protocol::terms::WHOLE_PPM;
use partage_protocol::units::{DeviceUuid, SECOND_NS};
use tracing::warn;

use crate::deaths::DYING_LOOK_NS;
use crate::host::gpu::{DeviceFacts, Driver, GpuEvent, Look, Sample};
use crate::state_driver::{Now, StateDriver};

/// Pause between looks while no job lives.
const IDLE_LOOK_NS: u64 = 10 * SECOND_NS;
/// Pause between looks while clients allocate, however seldom the configuration wants them otherwise: what the driver
/// holds is to be in the ledger within a second.
const MOVED_LOOK_NS: u64 = SECOND_NS / 2;
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
}

impl StateDriver {
    /// The devices' side told something.
    pub fn gpu(&mut self, event: GpuEvent, now: Now) {
        match event {
            GpuEvent::Driver(driver) => self.driver_changed(driver, now),
            GpuEvent::Devices(list) => self.devices_listed(list, now),
            GpuEvent::Asking { uuid } => {
                if let Some(device) = DeviceUuid::parse(&uuid) {
                    self.devices.asked.insert(device, now.ns);
                    self.step(now, Event::Asking(device));
                }
                return;
            }
            GpuEvent::Sample { uuid, asked_ns, sample } => self.device_sampled(&uuid, asked_ns, sample, now),
            GpuEvent::Slow { uuid } => {
                if let Some(device) = DeviceUuid::parse(&uuid) {
                    self.devices.slow.insert(device);
                    self.step(now, Event::DeviceSlow(device));
                }
            }
            GpuEvent::Lost { uuid, why } => {
                if let Some(device) = DeviceUuid::parse(&uuid) {
                    self.devices.slow.remove(&device);
                    if self.devices.lost.insert(device) {
                        self.step(now, Event::DeviceLost { device, why });
                    }
                }
            }
        }
        self.settle_deaths(now);
        if self.devices.is_ready() {
            self.release_held(now);
        }
    }

    fn driver_changed(&mut self, driver: Driver, now: Now) {
        let state = match &driver {
            // The list follows and says it.
            Driver::Ok => None,
            Driver::Missing(why) => Some(DriverState::Missing(why.clone())),
            Driver::Mismatch(_) | Driver::Failed(_) => Some(DriverState::Broken(driver.sentence())),
        };
        self.devices.driver = Some(driver);
        self.devices.is_listed = false;
        if let Some(driver) = state {
            self.devices.list.clear();
            self.devices.samples.clear();
            self.devices.lost.clear();
            self.devices.slow.clear();
            let found = Vec::new();
            self.step(now, Event::Devices { driver, found });
        }
    }

    fn devices_listed(&mut self, list: Vec<DeviceFacts>, now: Now) {
        self.devices.list = list
            .into_iter()
            .filter_map(|facts| match DeviceUuid::parse(&facts.uuid) {
                Some(uuid) => Some((uuid, facts)),
                None => {
                    warn!(uuid = facts.uuid, "a device with a name that is no UUID is left out");
                    None
                }
            })
            .collect();
        self.devices.is_listed = true;
        let list = &self.devices.list;
        self.devices.samples.retain(|device, _| list.contains_key(device));
        self.devices.lost.retain(|device| list.contains_key(device));
        self.devices.slow.retain(|device| list.contains_key(device));
        self.tell_devices(now);
        self.devices.look_now();
    }

    fn tell_devices(&mut self, now: Now) {
        let found = self.devices.list.iter().map(|(uuid, facts)| DeviceSeen {
            uuid: *uuid,
            index: facts.index,
            model: facts.model.clone(),
            total_bytes: facts.total,
            reserve_bytes: self
                .config
                .reserve(facts.index, &facts.uuid, facts.total, facts.reserved),
        });
        let mut found: Vec<DeviceSeen> = found.collect();
        found.sort_by_key(|device| device.index);
        let driver = DriverState::Ok;
        self.step(now, Event::Devices { driver, found });
    }

    fn device_sampled(&mut self, uuid: &str, asked_ns: u64, sample: Sample, now: Now) {
        let Some(device) = DeviceUuid::parse(uuid).filter(|device| self.devices.list.contains_key(device)) else {
            return;
        };
        self.devices.slow.remove(&device);
        if self.devices.lost.remove(&device) {
            // Enumeration is how the policy learns that a device is there.
            self.tell_devices(now);
            for lost in self.devices.lost.clone() {
                let why = "still does not answer".to_owned();
                self.step(now, Event::DeviceLost { device: lost, why });
            }
        }
        let processes = sample.processes.iter().map(|process| {
            let stat = self.processes.stat(process.pid);
            ProcessUse {
                pid: process.pid,
                uid: self.processes.uid(process.pid),
                bytes: process.used,
                descends_from: stat.and_then(|stat| self.job_by_ancestry(stat.id)),
                start: stat.map(|stat| stat.id.start),
                is_graphics_only: process.is_graphics_only,
                busy_ppm: process.busy_percent.map(|percent| percent.min(100) * (WHOLE_PPM / 100)),
            }
        });
        let measurement = Measurement {
            device,
            used_bytes: sample.used,
            free_bytes: sample.free,
            processes: processes.collect(),
        };
        for process in &measurement.processes {
            if let Some(start) = process.start {
                self.clients.note_shown(Process {
                    pid: process.pid,
                    start,
                });
            }
        }
        self.devices.samples.insert(device, (asked_ns, sample));
        self.step(now, Event::Measured(measurement));
    }

    pub(crate) fn tick_devices(&mut self, now: Now) {
        let is_busy = !self.jobs.is_empty() || !self.tickets.is_empty() || !self.held.is_empty();
        self.devices.pause_ns = if self.is_anything_dying() {
            DYING_LOOK_NS
        } else if is_busy && self.have_clients_moved(now) {
            self.config.poll_ns.min(MOVED_LOOK_NS)
        } else if is_busy {
            self.config.poll_ns
        } else {
            IDLE_LOOK_NS
        };
    }

    /// Did a client's counters move since the last look? Compared once for each [`MOVED_LOOK_NS`].
    fn have_clients_moved(&mut self, now: Now) -> bool {
        if self.config.poll_ns <= MOVED_LOOK_NS || self.clients.count() == 0 {
            self.devices.compare_at_ns = None;
            return false;
        }
        let last_ns = self.devices.looked_ns.unwrap_or(0).max(self.devices.compared_ns);
        if now.ns < last_ns + MOVED_LOOK_NS {
            self.devices.compare_at_ns = Some(last_ns + MOVED_LOOK_NS);
            return false;
        }
        self.devices.compared_ns = now.ns;
        self.devices.compare_at_ns = Some(now.ns + MOVED_LOOK_NS);
        self.moves() != self.devices.moves
    }

    fn moves(&self) -> u64 {
        let lines = self.clients.iter().filter_map(|(_, client)| client.pages.as_ref());
        let lines = lines.flat_map(|pages| &pages.client().devices);
        lines.fold(0, |sum: u64, line| {
            let words = [&line.started, &line.finished, &line.used];
            words
                .iter()
                .fold(sum, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
        })
    }

    /// The looks that are due; each is answered once.
    pub fn take_looks(&mut self, now: Now) -> Vec<Look> {
        let is_due = |at_ns: u64| now.ns >= at_ns;
        if self
            .devices
            .looked_ns
            .is_none_or(|looked| self.devices.wants_look || is_due(looked + self.devices.pause_ns))
        {
            self.devices.moves = self.moves();
            self.devices.looked_ns = Some(now.ns);
            self.devices.wants_look = false;
            self.devices.wanted.clear();
            return vec![Look::All];
        }
        let (due, later): (BTreeSet<_>, BTreeSet<_>) = std::mem::take(&mut self.devices.wanted)
            .into_iter()
            .partition(|device| is_due(self.devices.requested_ns(device)));
        self.devices.wanted = later;
        due.iter().map(|device| Look::Device(device.to_string())).collect()
    }
}
