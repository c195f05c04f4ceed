// SPDX-License-Identifier: Apache-2.0
//! What the broker knows of the devices: the driver's state, the list, the newest look at each, and when to look again.

use std::collections::{BTreeMap, BTreeSet};

use partage_policy::{DeviceSeen, DriverState, Event, Measurement, ProcessUse};
use partage_protocol::units::{DeviceUuid, SECOND_NS};
use tracing::warn;

use crate::deaths::DYING_LOOK_NS;
use crate::host::gpu::{DeviceFacts, Driver, GpuEvent, Sample};
use crate::state_driver::{Now, StateDriver};

/// Pause between looks while no job lives.
const IDLE_LOOK_NS: u64 = 10 * SECOND_NS;

/// The devices as last seen.
#[derive(Debug, Default)]
pub struct Devices {
    driver: Option<Driver>,
    is_listed: bool,
    list: BTreeMap<DeviceUuid, DeviceFacts>,
    samples: BTreeMap<DeviceUuid, (u64, Sample)>,
    lost: BTreeSet<DeviceUuid>,
    looked_ns: Option<u64>,
    pause_ns: u64,
    wants_look: bool,
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
                .all(|device| self.lost.contains(device) || self.samples.contains_key(device)),
            Some(_) => true,
        }
    }

    /// Was each device that answers looked at after `since_ns`? Admission counts what others use now, not what they
    /// used when the broker last had a reason to look.
    #[must_use]
    pub fn is_seen_since(&self, since_ns: u64) -> bool {
        let mut answering = self.list.keys().filter(|device| !self.lost.contains(device));
        let is_fresh = |device| {
            self.samples
                .get(device)
                .is_some_and(|(asked_ns, _)| *asked_ns >= since_ns)
        };
        self.is_ready() && (!matches!(self.driver, Some(Driver::Ok)) || answering.all(is_fresh))
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

    /// When the next look is due.
    #[must_use]
    pub fn next_look_ns(&self) -> u64 {
        match self.looked_ns {
            Some(_) if self.wants_look => 0,
            Some(looked) => looked + self.pause_ns,
            None => 0,
        }
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
            GpuEvent::Sample { uuid, asked_ns, sample } => self.device_sampled(&uuid, asked_ns, sample, now),
            GpuEvent::Lost { uuid, why } => {
                if let Some(device) = DeviceUuid::parse(&uuid)
                    && self.devices.lost.insert(device)
                {
                    self.step(now, Event::DeviceLost { device, why });
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
                bytes: process.used.unwrap_or(0),
                descends_from: stat.and_then(|stat| self.job_by_ancestry(stat.id)),
            }
        });
        let measurement = Measurement {
            device,
            used_bytes: sample.used,
            free_bytes: sample.free,
            processes: processes.collect(),
        };
        self.devices.samples.insert(device, (asked_ns, sample));
        self.step(now, Event::Measured(measurement));
    }

    pub(crate) fn tick_devices(&mut self) {
        let is_busy = !self.jobs.is_empty() || !self.tickets.is_empty() || !self.held.is_empty();
        self.devices.pause_ns = if self.is_anything_dying() {
            DYING_LOOK_NS
        } else if is_busy {
            self.config.poll_ns
        } else {
            IDLE_LOOK_NS
        };
    }

    /// Should the devices be looked at now? Answers yes once.
    pub fn take_look(&mut self, now: Now) -> bool {
        let is_due = now.ns >= self.devices.next_look_ns();
        if is_due {
            self.devices.looked_ns = Some(now.ns);
            self.devices.wants_look = false;
        }
        is_due
    }
}
