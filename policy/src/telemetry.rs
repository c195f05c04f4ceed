// SPDX-License-Identifier: Apache-2.0
//! What the driver says of a device's state: how busy and how warm it is, what slows it down, which errors it had.
//!
//! Everything is absent where the driver does not say it: 0 is a value.

use serde::{Deserialize, Serialize};

/// The state of a device at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Telemetry {
    /// For how much of the driver's last sampling period (a sixth of a second to one second) a kernel ran, in percent.
    pub busy_percent: Option<u32>,
    /// For how much of it memory was read or written, in percent.
    pub memory_busy_percent: Option<u32>,
    /// Of the chip.
    pub temperature_celsius: Option<u32>,
    /// Of the whole card.
    pub power_milliwatts: Option<u32>,
    /// The limit that the driver keeps the card within.
    pub power_limit_milliwatts: Option<u32>,
    /// NVML's reasons for lower clocks, as bits.
    pub throttle_bits: Option<u64>,
    /// Clock of the multiprocessors.
    pub graphics_mhz: Option<u32>,
    /// Clock of the memory.
    pub memory_mhz: Option<u32>,
    /// Memory errors that were corrected since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Memory errors that were not.
    pub ecc_uncorrected: Option<u64>,
    /// Rows of memory are replaced at the next reset.
    pub is_remap_pending: Option<bool>,
    /// A row could not be replaced.
    pub has_remap_failed: Option<bool>,
    /// Sent over PCIe, in KiB a second.
    pub pcie_sent_kib: Option<u32>,
    /// Received over PCIe, in KiB a second.
    pub pcie_received_kib: Option<u32>,
    /// Sent over all NVLinks since the driver was loaded, in bytes.
    pub nvlink_sent_bytes: Option<u64>,
    /// Received over them.
    pub nvlink_received_bytes: Option<u64>,
    /// The driver tells of its Xid errors.
    pub tells_xids: bool,
}

/// Why a device runs with lower clocks than it could. Idle devices and clocks that somebody set are no reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// NVML's bit.
    bit: u64,
    /// In documents; as `nvidia-smi` calls it.
    pub word: &'static str,
    /// What it is about.
    pub about: About,
}

/// What a reason for lower clocks is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Its temperature.
    Heat,
    /// Its power.
    Power,
    /// Something else, or the driver does not tell which.
    Other,
}

/// All reasons (`nvmlClocksEventReasons`).
pub const THROTTLES: [Throttle; 6] = [
    Throttle::new(0x04, "power-cap", About::Power),
    Throttle::new(0x08, "hw-slowdown", About::Other),
    Throttle::new(0x10, "sync-boost", About::Other),
    Throttle::new(0x20, "sw-thermal", About::Heat),
    Throttle::new(0x40, "hw-thermal", About::Heat),
    Throttle::new(0x80, "power-brake", About::Power),
];

impl Throttle {
    const fn new(bit: u64, word: &'static str, about: About) -> Self {
        Self { bit, word, about }
    }
}

impl Telemetry {
    /// The reasons that hold now.
    pub fn throttles(&self) -> impl Iterator<Item = Throttle> {
        let bits = self.throttle_bits.unwrap_or(0);
        THROTTLES.into_iter().filter(move |reason| bits & reason.bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_chosen_clocks_are_no_reasons() {
        let words = |bits| {
            let telemetry = Telemetry {
                throttle_bits: Some(bits),
                ..Telemetry::default()
            };
            telemetry.throttles().map(|reason| reason.word).collect::<Vec<_>>()
        };
        assert!(words(0x103).is_empty());
        assert_eq!(words(0x25), ["power-cap", "sw-thermal"]);
        assert_eq!(words(u64::MAX).len(), THROTTLES.len());
        assert_eq!(
            Telemetry::default().throttles().count(),
            0,
            "a driver that does not say"
        );
    }
}
