// SPDX-License-Identifier: Apache-2.0
//! Devices for tests that behave: they hold memory for processes, free it late if told to, hang and come back.

use std::collections::BTreeMap;

use partage_policy::Telemetry;

use super::gpu::{DeviceFacts, Driver, Gpu, GpuEvent, GpuProcess, Look, Sample};

/// A machine's devices.
#[derive(Clone, Debug, Default)]
pub struct FakeGpu {
    devices: Vec<FakeDevice>,
    driver: Option<Driver>,
    is_announced: bool,
}

#[derive(Clone, Debug)]
struct FakeDevice {
    facts: DeviceFacts,
    used: BTreeMap<u32, u64>,
    busy: BTreeMap<u32, u32>,
    telemetry: Telemetry,
    is_hung: bool,
    was_hung: bool,
    /// It answers a look after so many turns, and is said to be slow meanwhile.
    turns: u32,
    look: Stage,
}

/// How far a look at a device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    None,
    Wanted,
    Announced,
    Begun(u64),
    /// Said to be slow.
    Slow(u64, u32),
}

impl FakeGpu {
    /// A driver with as many devices of `total` bytes.
    #[must_use]
    pub fn with_devices(count: u32, total: u64) -> Self {
        let devices = (0..count).map(|index| FakeDevice {
            facts: DeviceFacts {
                uuid: format!("GPU-00000000-0000-0000-0000-{index:012x}"),
                index,
                model: "Fake".to_owned(),
                total,
                is_unified: false,
                reserved: 0,
                pci: format!("00000000:{:02X}:00.0", index + 1),
                driver: String::new(),
                minor: Some(index),
            },
            used: BTreeMap::new(),
            busy: BTreeMap::new(),
            telemetry: Telemetry::default(),
            is_hung: false,
            was_hung: false,
            turns: 0,
            look: Stage::None,
        });
        Self {
            devices: devices.collect(),
            driver: Some(Driver::Ok),
            is_announced: false,
        }
    }

    /// No driver, until [`FakeGpu::install`].
    #[must_use]
    pub fn without_driver() -> Self {
        Self {
            driver: Some(Driver::Missing("no libnvidia-ml.so.1".to_owned())),
            ..Self::default()
        }
    }

    /// The driver appears with these devices.
    pub fn install(&mut self, other: Self) {
        *self = other;
    }

    /// A process uses so many bytes; 0 and it is no longer there.
    pub fn set_use(&mut self, index: usize, pid: u32, bytes: u64) {
        let used = &mut self.devices[index].used;
        if bytes == 0 {
            used.remove(&pid);
        } else {
            used.insert(pid, bytes);
        }
    }

    /// The device works for a process for so many percent of the time.
    pub fn set_busy(&mut self, index: usize, pid: u32, percent: u32) {
        self.devices[index].busy.insert(pid, percent);
    }

    /// The device takes so many turns for an answer from now on.
    pub fn set_slow(&mut self, index: usize, turns: u32) {
        self.devices[index].turns = turns;
    }

    /// The device stops answering, or answers again.
    pub fn set_hung(&mut self, index: usize, is_hung: bool) {
        self.devices[index].is_hung = is_hung;
    }
}

impl Gpu for FakeGpu {
    fn look(&mut self, _now_ns: u64, look: Look) {
        let is_meant = |device: &&mut FakeDevice| match &look {
            Look::All => true,
            Look::Device(uuid) => device.facts.uuid == *uuid,
        };
        for device in self.devices.iter_mut().filter(is_meant) {
            // One that is slow answers what it was asked first.
            if !matches!(device.look, Stage::Slow(..)) {
                device.look = Stage::Wanted;
            }
        }
    }

    fn begin(&mut self, now_ns: u64) {
        for device in self.devices.iter_mut().filter(|device| device.look == Stage::Announced) {
            device.look = Stage::Begun(now_ns);
        }
    }

    fn events(&mut self, _now_ns: u64) -> Vec<GpuEvent> {
        let mut out = Vec::new();
        if !self.is_announced {
            self.is_announced = true;
            out.extend(self.driver.clone().map(GpuEvent::Driver));
            if self.driver == Some(Driver::Ok) {
                out.push(GpuEvent::Devices(
                    self.devices.iter().map(|device| device.facts.clone()).collect(),
                ));
            }
        }
        for device in &mut self.devices {
            let uuid = device.facts.uuid.clone();
            let asked_ns = match device.look {
                Stage::None | Stage::Announced => continue,
                Stage::Wanted => {
                    device.look = Stage::Announced;
                    out.push(GpuEvent::Asking { uuid });
                    continue;
                }
                Stage::Begun(asked_ns) if device.turns > 0 => {
                    device.look = Stage::Slow(asked_ns, device.turns);
                    out.push(GpuEvent::Slow { uuid });
                    continue;
                }
                Stage::Slow(asked_ns, turns) if turns > 0 => {
                    device.look = Stage::Slow(asked_ns, turns - 1);
                    continue;
                }
                Stage::Begun(asked_ns) | Stage::Slow(asked_ns, _) => asked_ns,
            };
            device.look = Stage::None;
            if device.is_hung {
                if !device.was_hung {
                    let why = "no answer within the deadline".to_owned();
                    out.push(GpuEvent::Lost { uuid, why });
                }
            } else {
                let used = device.used.values().sum();
                let processes = device.used.iter().map(|(pid, used)| GpuProcess {
                    pid: *pid,
                    used: Some(*used),
                    is_graphics_only: false,
                    busy_percent: Some(device.busy.get(pid).copied().unwrap_or(0)),
                });
                let sample = Sample {
                    used,
                    free: device.facts.total.saturating_sub(used),
                    processes: processes.collect(),
                    telemetry: device.telemetry.clone(),
                };
                out.push(GpuEvent::Sample { uuid, asked_ns, sample });
            }
            device.was_hung = device.is_hung;
        }
        out
    }

    fn deadline_ns(&self) -> Option<u64> {
        None
    }
}
