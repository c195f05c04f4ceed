// SPDX-License-Identifier: Apache-2.0
//! The job of this process, as a broker's welcome names it.

use core::sync::atomic::{AtomicU64, Ordering};

use partage_protocol::message::{DEVICE_IS_MIG, DeviceInfo, MAX_DEVICES, WELCOME_DEFAULT_JOB, WELCOME_STRICT, Welcome};

/// The job, written once before the phase becomes `Attached`.
pub struct Job {
    /// The job's number. The one word that may change later.
    pub number: AtomicU64,
    /// Devices in use in `devices`.
    pub count: usize,
    /// Slot 0 first.
    pub devices: [DeviceInfo; MAX_DEVICES],
    /// The process belongs to no job of `run` (any more).
    pub is_default: bool,
    /// The job was started with `--strict`.
    pub is_strict: bool,
}

impl Job {
    /// The job's number.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// The devices in slot order.
    pub fn devices(&self) -> &[DeviceInfo] {
        self.devices.get(..self.count).unwrap_or(&[])
    }

    /// The slot of a device of the job.
    pub fn slot_of(&self, uuid: &[u8; 16]) -> Option<usize> {
        self.devices().iter().position(|device| device.uuid == *uuid)
    }

    /// Takes over what a welcome says.
    pub fn read(&mut self, welcome: &Welcome) {
        self.number.store(welcome.job, Ordering::Relaxed);
        self.is_default = welcome.flags & WELCOME_DEFAULT_JOB != 0;
        self.is_strict = welcome.flags & WELCOME_STRICT != 0;
        self.count = (welcome.device_count as usize).min(MAX_DEVICES);
        self.devices = welcome.devices;
    }
}

/// Is this device a MIG instance?
pub fn is_mig(device: &DeviceInfo) -> bool {
    device.flags & DEVICE_IS_MIG != 0
}
