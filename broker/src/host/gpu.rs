// SPDX-License-Identifier: Apache-2.0
//! What the broker asks about devices, and the trait that answers.

use partage_policy::Telemetry;
use serde::{Deserialize, Serialize};

/// Whether devices can be seen; if not, why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "why")]
pub enum Driver {
    /// Devices are listed.
    Ok,
    /// No library or no kernel module.
    Missing(String),
    /// Library and kernel module are of different releases (an update without a reboot).
    Mismatch(String),
    /// It answered something else, or nothing.
    Failed(String),
}

impl Driver {
    /// The word for `status`, with the reason after a colon.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::Ok => "ok".to_owned(),
            Self::Missing(why) => format!("no driver: {why}"),
            Self::Mismatch(why) => format!("driver mismatch: {why}"),
            Self::Failed(why) => format!("driver failed: {why}"),
        }
    }
}

/// One device as listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// `nvidia-smi`'s index. MIG instances, for which it has none: 100 for each device up to their parent, plus their
    /// number on it.
    pub index: u32,
    /// Model name.
    pub model: String,
    /// Whole memory in bytes.
    pub total: u64,
    /// It has no memory of its own: this is the host's, of which NVML has no figures.
    #[serde(default)]
    pub is_unified: bool,
    /// What the driver keeps for itself, in bytes; of unified memory what is kept for the host unless something else is
    /// configured.
    pub reserved: u64,
    /// Its PCI address, as NVML writes it (`00000000:17:00.0`); empty where it does not tell.
    #[serde(default)]
    pub pci: String,
    /// The version of its driver, where NVML tells.
    #[serde(default)]
    pub driver: String,
    /// The number of its node (`/dev/nvidia3`), where NVML tells.
    #[serde(default)]
    pub minor: Option<u32>,
}

impl DeviceFacts {
    /// Is this its PCI address? The driver and NVML write the domain with different lengths. `true` where NVML does not
    /// tell.
    #[must_use]
    pub fn is_at(&self, pci: &str) -> bool {
        let parts = |text: &str| {
            let (domain, rest) = text.split_once(':')?;
            Some((u32::from_str_radix(domain, 16).ok()?, rest.to_ascii_lowercase()))
        };
        self.pci.is_empty() || parts(&self.pci) == parts(pci)
    }
}

/// One process on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// Its number.
    pub pid: u32,
    /// Its memory in bytes, where the driver tells.
    pub used: Option<u64>,
    /// It draws and does not compute.
    #[serde(default)]
    pub is_graphics_only: bool,
    /// For how much of the last second or so the device worked for it, in percent, where the driver tells.
    #[serde(default)]
    pub busy_percent: Option<u32>,
}

/// One device at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// In use by everybody, in bytes; of unified memory also by the host.
    pub used: u64,
    /// Free, in bytes.
    pub free: u64,
    /// Processes on it.
    pub processes: Vec<GpuProcess>,
    /// How it does.
    #[serde(default)]
    pub telemetry: Telemetry,
}

/// Something the devices' side tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuEvent {
    /// The driver's state; sent first, and when it changes.
    Driver(Driver),
    /// The devices, in index order; sent after each `Driver(Ok)` and when the list changed.
    Devices(Vec<DeviceFacts>),
    /// A look at one device begins with the next [`Gpu::begin`].
    Asking {
        /// The device.
        uuid: String,
    },
    /// A look at one device.
    Sample {
        /// The device.
        uuid: String,
        /// When it was asked for: what happened before this instant is in it.
        asked_ns: u64,
        /// What was seen.
        sample: Sample,
    },
    /// The driver told of errors of a device; sent before the sample or the loss that it came with.
    Xids {
        /// The device.
        uuid: String,
        /// Their numbers, the oldest first.
        xids: Vec<u32>,
    },
    /// A device takes its time to answer; the others are looked at meanwhile. A sample or `Lost` follows.
    Slow {
        /// The device.
        uuid: String,
    },
    /// A device stopped answering or fell off the bus.
    Lost {
        /// The device.
        uuid: String,
        /// The reason.
        why: String,
    },
}

/// What is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Every device; also looks for a driver that was not there.
    All,
    /// The device of this name.
    Device(String),
}

/// Tells about devices without ever making the broker wait.
///
/// `events` announces each look with [`GpuEvent::Asking`], so that the caller can note what should be seen, and `begin`
/// begins it.
pub trait Gpu {
    /// Wants new samples. Samples asked for before this call do not count as an answer to it.
    fn look(&mut self, now_ns: u64, look: Look);
    /// Does what is due and answers what happened.
    fn events(&mut self, now_ns: u64) -> Vec<GpuEvent>;
    /// Begins the looks that `events` announced.
    fn begin(&mut self, now_ns: u64);
    /// When [`Gpu::events`] should be called at the latest, in the clock of `now_ns`.
    fn deadline_ns(&self) -> Option<u64>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_same_however_long_its_domain_is_written() {
        let at = |pci: &str| DeviceFacts {
            uuid: "GPU-1".to_owned(),
            index: 0,
            model: String::new(),
            total: 0,
            is_unified: false,
            reserved: 0,
            pci: pci.to_owned(),
            driver: String::new(),
            minor: None,
        };
        assert!(at("00000000:0A:00.0").is_at("0000:0a:00.0"));
        assert!(!at("00000000:0A:00.0").is_at("0000:0b:00.0"));
        assert!(!at("00010000:0A:00.0").is_at("0000:0a:00.0"));
        assert!(at("").is_at("0000:0a:00.0"), "NVML does not tell");
    }
}
