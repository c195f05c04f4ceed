// SPDX-License-Identifier: Apache-2.0
//! Turns what NVML reports (device lists, polls, lost devices) into events, and continues what waited for them.

use partage_policy::{DeviceSeen, DriverState, Event, Measurement, Process, ProcessUse};
use partage_protocol::terms::WHOLE_PPM;
use partage_protocol::units::{DeviceUuid, SECOND_NS};
use tracing::warn;

use super::held::Hold;
use super::state_driver::StateDriver;
use crate::clock::Now;
use crate::config::Config;
use crate::host::gpu::{DeviceFacts, Driver, GpuEvent, Look, Sample};
use crate::site::effect::Effect;
use crate::state::devices::MOVED_LOOK_NS;

/// Pause between looks while no job lives.
const IDLE_LOOK_NS: u64 = 10 * SECOND_NS;
/// Pause between looks while an ended client's memory may still be held: the quota is to be whole within a second of
/// the driver having freed it.
const DYING_LOOK_NS: u64 = SECOND_NS / 20;

impl StateDriver {
    /// The devices' side told something.
    pub(super) fn see(&mut self, event: GpuEvent) {
        match event {
            GpuEvent::Driver(driver) => self.driver_changed(driver),
            GpuEvent::Devices(list) => self.devices_listed(list),
            GpuEvent::Asking { uuid } => {
                if let Some(device) = DeviceUuid::parse(&uuid) {
                    self.site.devices.begin_look(device, self.site.now.ns);
                    self.site.tell(Event::Asking(device));
                }
                return;
            }
            GpuEvent::Sample { uuid, asked_ns, sample } => self.device_sampled(&uuid, asked_ns, sample),
            GpuEvent::Xids { uuid, xids } => {
                if let Some(device) = DeviceUuid::parse(&uuid) {
                    warn!(uuid, ?xids, "the driver tells of errors");
                    self.site.tell(Event::Xids { device, xids });
                }
                return;
            }
            GpuEvent::Slow { uuid } => {
                if let Some(device) = DeviceUuid::parse(&uuid) {
                    self.site.devices.set_slow(device);
                    self.site.tell(Event::DeviceSlow(device));
                }
            }
            GpuEvent::Lost { uuid, why } => {
                if let Some(device) = DeviceUuid::parse(&uuid)
                    && self.site.devices.lose(device)
                {
                    self.site.tell(Event::DeviceLost { device, why });
                }
            }
        }
        self.settle_deaths();
        if self.site.devices.is_ready() {
            // What waited is judged by what was seen.
            self.settle();
            self.release_held();
        }
    }

    fn driver_changed(&mut self, driver: Driver) {
        let state = match &driver {
            // The list follows and says it.
            Driver::Ok => None,
            Driver::Missing(why) => Some(DriverState::Missing(why.clone())),
            Driver::Mismatch(_) | Driver::Failed(_) => Some(DriverState::Broken(driver.sentence())),
        };
        self.site.devices.set_driver(driver);
        self.engine.forget_maps();
        if let Some(driver) = state {
            let found = Vec::new();
            self.site.tell(Event::Devices { driver, found });
        }
    }

    fn devices_listed(&mut self, list: Vec<DeviceFacts>) {
        let list = list
            .into_iter()
            .filter_map(|facts| match DeviceUuid::parse(&facts.uuid) {
                Some(uuid) => Some((uuid, facts)),
                None => {
                    warn!(uuid = facts.uuid, "a device with a name that is no UUID is left out");
                    None
                }
            })
            .collect();
        self.site.devices.set_list(list);
        self.tell_devices();
        self.site.devices.look_now();
    }

    fn tell_devices(&mut self) {
        let found = self.site.devices.list().iter().map(|(uuid, facts)| DeviceSeen {
            uuid: *uuid,
            index: facts.index,
            model: facts.model.clone(),
            total_bytes: facts.total,
            minor: facts.minor,
            is_unified: facts.is_unified,
            reserve_bytes: self.reserve_of(facts),
        });
        let mut found: Vec<DeviceSeen> = found.collect();
        found.sort_by_key(|device| device.index);
        let driver = DriverState::Ok;
        self.site.tell(Event::Devices { driver, found });
    }

    fn reserve_of(&self, facts: &DeviceFacts) -> u64 {
        let of = match facts.is_unified {
            true => Config::host_reserve,
            false => Config::reserve,
        };
        of(&self.site.config, facts.index, &facts.uuid, facts.total, facts.reserved)
    }

    fn device_sampled(&mut self, uuid: &str, asked_ns: u64, mut sample: Sample) {
        let known = DeviceUuid::parse(uuid).and_then(|device| Some((device, self.site.devices.list().get(&device)?)));
        let Some((device, facts)) = known else {
            return;
        };
        if facts.is_unified {
            // What is kept for the host nobody may have.
            sample.free = sample.free.saturating_sub(self.reserve_of(facts));
        }
        if self.site.devices.find(device) {
            // Enumeration is how the policy learns that a device is there.
            self.tell_devices();
            for lost in self.site.devices.lost() {
                let why = "still does not answer".to_owned();
                self.site.tell(Event::DeviceLost { device: lost, why });
            }
        }
        let processes = sample.processes.iter().map(|process| {
            let stat = self.site.processes.stat(process.pid);
            let uid = self.site.processes.uid(process.pid);
            let (brokers, seen) = (&mut self.other_brokers, &*self.site.processes);
            let other = uid
                .zip(stat)
                .filter(|(uid, stat)| brokers.manage(seen, stat.id, *uid, self.site.now.ns));
            ProcessUse {
                pid: process.pid,
                uid,
                other_broker: other.map(|(uid, _)| self.site.users.name(uid)),
                bytes: process.used,
                descends_from: stat.and_then(|stat| self.site.job_by_kernel(stat.id)),
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
            telemetry: sample.telemetry.clone(),
        };
        for process in &measurement.processes {
            if let Some(start) = process.start {
                self.site.clients.note_shown(Process {
                    pid: process.pid,
                    start,
                });
            }
        }
        self.site.devices.set_sample(device, asked_ns, sample);
        self.site.tell(Event::Measured(measurement));
        // A job that it told to come back is on its way by then.
        self.settle();
        self.engine.notice_restored(&mut self.site, device);
    }

    pub(super) fn tick_devices(&mut self) {
        let is_busy = !self.site.jobs.is_empty() || !self.site.tickets.is_empty() || !self.held.is_empty();
        let pause_ns = if self.is_anything_dying() {
            DYING_LOOK_NS
        } else if is_busy && self.have_clients_moved() {
            self.site.config.poll_ns.min(MOVED_LOOK_NS)
        } else if is_busy {
            self.site.config.poll_ns
        } else {
            IDLE_LOOK_NS
        };
        self.site.devices.set_pause(pause_ns);
    }

    /// Did a client's counters move since the last look?
    fn have_clients_moved(&mut self) -> bool {
        if self.site.config.poll_ns <= MOVED_LOOK_NS || self.site.clients.count() == 0 {
            self.site.devices.compare_nothing();
            return false;
        }
        self.site
            .devices
            .have_moved(self.site.now.ns, || self.site.clients.moves())
    }

    /// The looks that are due; each is answered once.
    pub fn take_looks(&mut self, now: Now) -> Vec<Look> {
        self.site.now = now;
        self.site.devices.take_looks(now.ns, || self.site.clients.moves())
    }

    /// Goes on with what waited for the devices.
    pub(super) fn release_held(&mut self) {
        for hold in std::mem::take(&mut self.held) {
            match hold {
                Hold::Run(run) if !self.site.devices.is_seen_since(run.seen_since_ns) => {
                    self.held.push_back(Hold::Run(run));
                }
                Hold::Hello(peer, hello) => match self.site.process_of(&peer) {
                    Some(process) => self.attach(&peer, process, &hello, None),
                    None => self.site.effects.push(Effect::Close(peer.connection)),
                },
                Hold::Run(run) => self.admit(*run),
            }
        }
    }
}
