// SPDX-License-Identifier: Apache-2.0
//! What the driver says of a device's state, as a document.

use partage_protocol::admin::{SickView, TelemetryView, XidView};

use crate::sick::{Health, SickMark};
use crate::telemetry::Telemetry;

/// Bytes of one KiB.
const KIB: u64 = 1024;

/// Milliwatts as watts.
pub(super) fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1000.0
}

/// All but what stands in the device's own document.
pub(super) fn telemetry_view(told: &Telemetry, health: Option<&Health>) -> TelemetryView {
    let per_second = |kib: u32| u64::from(kib) * KIB;
    let xids = health
        .iter()
        .flat_map(|health| &health.xids)
        .map(|(xid, heard)| XidView {
            xid: *xid,
            count: heard.count,
            last_unix_ns: heard.last_unix_ns,
        });
    let xids: Vec<XidView> = xids.collect();
    TelemetryView {
        memory_utilization: told.memory_busy_percent.map(|part| f64::from(part.min(100)) / 100.0),
        power_limit_watts: told.power_limit_milliwatts.map(watts),
        throttle_bits: told.throttle_bits,
        graphics_clock_mhz: told.graphics_mhz,
        memory_clock_mhz: told.memory_mhz,
        ecc_corrected: told.ecc_corrected,
        ecc_uncorrected: told.ecc_uncorrected,
        is_remap_pending: told.is_remap_pending,
        has_remap_failed: told.has_remap_failed,
        pcie_sent_bytes_per_second: told.pcie_sent_kib.map(per_second),
        pcie_received_bytes_per_second: told.pcie_received_kib.map(per_second),
        nvlink_sent_bytes: told.nvlink_sent_bytes,
        nvlink_received_bytes: told.nvlink_received_bytes,
        xids: (told.tells_xids || !xids.is_empty()).then_some(xids),
    }
}

/// Since when a device is sick, and of what.
pub(super) fn sick_view(mark: SickMark) -> SickView {
    SickView {
        since_unix_ns: mark.since_unix_ns,
        cause: mark.cause.word(),
        text: mark.cause.text(),
    }
}
