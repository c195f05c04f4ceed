// SPDX-License-Identifier: Apache-2.0
//! `partage get gpu:0`: all that is known of one GPU, the driver's words about its state too.

use partage_protocol::admin::{DeviceView, TelemetryView};
use partage_protocol::size::format_bytes;
use serde_json::json;

use crate::failure::{Failure, Kind, Outcome};
use crate::launch::place::Place;
use crate::link::ask;
use crate::show::report::{Report, moment, timestamp};
use crate::show::tables::{described, joined};
use crate::show::terminal::{Style, model};
use crate::show::time::percent;

/// Where the values begin.
const INDENT: usize = 13;

/// A heading and what it says.
type Line = (&'static str, String);

/// `partage get gpu:GPU`: an index, or a UUID or its beginning.
pub fn get(gpu: &str, place: &Place, report: &Report) -> Outcome<u8> {
    let status = ask::status(place)?;
    let is_it = |device: &&DeviceView| match gpu.parse::<u32>() {
        Ok(index) => device.index == index,
        Err(_) => gpu.contains('-') && device.uuid.starts_with(gpu),
    };
    let found: Vec<&DeviceView> = status.devices.iter().filter(is_it).collect();
    let [device] = found[..] else {
        let indices: Vec<String> = status.devices.iter().map(|device| device.index.to_string()).collect();
        let indices = joined(&indices, ", ", "none");
        let message = format!("{gpu:?} is no GPU of this host (there are: {indices})");
        return Err(Failure::new(Kind::NoTarget, message).hint("partage status lists them"));
    };
    report.data("gpu", json!({ "gpu": device }), |style| text(style, device));
    Ok(0)
}

fn text(style: &Style, device: &DeviceView) -> String {
    let memory = [
        format!("{} in use", format_bytes(device.used_bytes)),
        format!("{} promised", format_bytes(device.promised_bytes)),
        format!("{} that jobs can share", format_bytes(device.usable_bytes)),
    ];
    let mut lines = vec![
        ("gpu", format!("{} {}", device.index, style.text(model(&device.model)))),
        ("uuid", style.text(&device.uuid)),
        ("state", style.state(&device.state)),
    ];
    if let Some(sick) = &device.sick {
        let since = timestamp(moment(sick.since_unix_ns));
        lines.push(("sick", style.text(&format!("since {since}: it {}", sick.text))));
    }
    lines.push(("jobs", joined(&device.jobs, " ", "none")));
    lines.push(("memory", memory.join(", ")));
    if device.unmanaged_bytes > 0 {
        lines.push(("unmanaged", format_bytes(device.unmanaged_bytes)));
    }
    lines.push(("promised", format!("{} of its time", percent(device.promised_time))));
    let told = device.telemetry.clone().unwrap_or_default();
    lines.extend(load(device, &told));
    lines.extend(errors(&told));
    let lines = lines.iter().map(|(name, value)| described(style, name, INDENT, value));
    lines.collect()
}

/// What it does now; what the driver does not say is left out.
fn load(device: &DeviceView, told: &TelemetryView) -> Vec<Line> {
    let watts = |watts: f64| format!("{watts:.0} W");
    let mut lines = Vec::new();
    if let Some(busy) = device.utilization {
        let memory = told
            .memory_utilization
            .map(|part| format!(", its memory {}", percent(part)));
        lines.push(("utilisation", percent(busy) + &memory.unwrap_or_default()));
    }
    lines.extend(
        device
            .temperature_celsius
            .map(|now| ("temperature", format!("{now} C"))),
    );
    if let Some(power) = device.power_watts {
        let limit = told.power_limit_watts.map(|limit| format!(" of {}", watts(limit)));
        lines.push(("power", watts(power) + &limit.unwrap_or_default()));
    }
    let clocks = [
        told.graphics_clock_mhz.map(|mhz| format!("{mhz} MHz")),
        told.memory_clock_mhz.map(|mhz| format!("memory {mhz} MHz")),
    ];
    let clocks: Vec<String> = clocks.into_iter().flatten().collect();
    if !clocks.is_empty() {
        lines.push(("clocks", clocks.join(", ")));
    }
    if told.throttle_bits.is_some() {
        lines.push(("throttled by", joined(&device.throttle, ", ", "nothing")));
    }
    let traffic = |sent: Option<u64>, received: Option<u64>, each: &str| {
        let (sent, received) = (sent?, received?);
        let (sent, received) = (format_bytes(sent), format_bytes(received));
        Some(format!("{sent}{each} sent, {received}{each} received"))
    };
    let pcie = (told.pcie_sent_bytes_per_second, told.pcie_received_bytes_per_second);
    lines.extend(traffic(pcie.0, pcie.1, "/s").map(|text| ("pcie", text)));
    let nvlink = traffic(told.nvlink_sent_bytes, told.nvlink_received_bytes, "");
    lines.extend(nvlink.map(|text| ("nvlink", text)));
    lines
}

/// Its errors, as far as the driver tells them.
fn errors(told: &TelemetryView) -> Vec<Line> {
    let mut lines = Vec::new();
    if let (Some(corrected), Some(uncorrected)) = (told.ecc_corrected, told.ecc_uncorrected) {
        lines.push(("ecc errors", format!("{corrected} corrected, {uncorrected} not")));
    }
    let rows = match (told.has_remap_failed, told.is_remap_pending) {
        (Some(true), _) => Some("a bad row could not be replaced"),
        (_, Some(true)) => Some("bad rows are replaced at the next reset"),
        (Some(false), _) => Some("no bad row waits for its replacement"),
        (None, _) => None,
    };
    lines.extend(rows.map(|text| ("memory rows", text.to_owned())));
    if let Some(xids) = &told.xids {
        let one = |xid: &partage_protocol::admin::XidView| {
            let last = timestamp(moment(xid.last_unix_ns));
            format!("{} ({} times, last {last})", xid.xid, xid.count)
        };
        let xids: Vec<String> = xids.iter().map(one).collect();
        lines.push(("xids", joined(&xids, ", ", "none since the broker started")));
    }
    lines
}
