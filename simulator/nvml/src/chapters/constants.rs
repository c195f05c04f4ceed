// SPDX-License-Identifier: Apache-2.0
//! What never changes on a simulated device: its board, MIG mode, thresholds, limits of power, clocks that can be had;
//! and counters of what a simulated device does not have: errors, encoders, retired pages.
//!
//! What a model lacks answers NOT_SUPPORTED here as from the real library, and is no unbuilt entry point.

use partage_abi::nvml::*;
use partage_machine::Device;
use partage_machine::faults::Stated;

use super::health::{constant, said};
use crate::state::{Answer, code, device, is_instance, nvml, store, store_text};

/// Instances that a card can be divided into at most.
pub const INSTANCES: c_uint = 7;

/// The devices of data centres of these generations can be divided.
fn has_mig(device: &Device) -> bool {
    device.instance.is_some()
        || matches!(
            (device.attribute(75), device.attribute(76)),
            (Some(8), Some(0)) | (Some(9 | 10), _)
        )
}

fn unsupported(of: NvmlDevice) -> NvmlReturn {
    code(device(of).and(Err(NvmlReturn::NOT_SUPPORTED)))
}

// ---- the board ------------------------------------------------------------------------------------------------

pub fn nvmlDeviceGetVbiosVersion(of: NvmlDevice, version: *mut c_char, length: c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| store_text(version, length, &device.profile.nvml.vbios)))
}

pub fn nvmlDeviceGetBoardPartNumber(of: NvmlDevice, part_number: *mut c_char, length: c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| store_text(part_number, length, &device.profile.nvml.part_number)))
}

pub fn nvmlDeviceGetGspFirmwareMode(of: NvmlDevice, is_enabled: *mut c_uint, default_mode: *mut c_uint) -> NvmlReturn {
    code(device(of).and_then(|_| store(is_enabled, 1).and(store(default_mode, 1))))
}

pub fn nvmlDeviceGetGspFirmwareVersion(of: NvmlDevice, version: *mut c_char) -> NvmlReturn {
    /// `NVML_GSP_FIRMWARE_VERSION_BUF_SIZE`: the room that the program has by contract.
    const ROOM: c_uint = 0x40;
    code(device(of).and_then(|_| store_text(version, ROOM, nvml()?.driver_version.1)))
}

pub fn nvmlDeviceGetBusType(of: NvmlDevice, kind: *mut NvmlBusType) -> NvmlReturn {
    // NVML_BUS_TYPE_PCIE
    constant(of, kind, |_| 2)
}

pub fn nvmlDeviceGetPowerSource(of: NvmlDevice, power_source: *mut NvmlPowerSource) -> NvmlReturn {
    constant(of, power_source, |_| 0)
}

pub fn nvmlDeviceGetNumFans(of: NvmlDevice, num_fans: *mut c_uint) -> NvmlReturn {
    constant(of, num_fans, |_| 0)
}

pub fn nvmlDeviceGetFanSpeed(of: NvmlDevice, _: *mut c_uint) -> NvmlReturn {
    unsupported(of)
}

// ---- modes ----------------------------------------------------------------------------------------------------

pub fn nvmlDeviceGetMigMode(of: NvmlDevice, current_mode: *mut c_uint, pending_mode: *mut c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| {
        if !has_mig(device) {
            return Err(NvmlReturn::NOT_SUPPORTED);
        }
        let mode = c_uint::from(device.instance.is_some());
        store(current_mode, mode).and(store(pending_mode, mode))
    }))
}

pub fn nvmlDeviceIsMigDeviceHandle(of: NvmlDevice, is_mig_device: *mut c_uint) -> NvmlReturn {
    constant(of, is_mig_device, |_| c_uint::from(is_instance(of)))
}

pub fn nvmlDeviceGetMaxMigDeviceCount(of: NvmlDevice, count: *mut c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| store(count, if has_mig(device) { INSTANCES } else { 0 })))
}

pub fn nvmlDeviceGetVirtualizationMode(of: NvmlDevice, virtual_mode: *mut c_int) -> NvmlReturn {
    constant(of, virtual_mode, |_| 0)
}

pub fn nvmlDeviceGetDefaultEccMode(of: NvmlDevice, default_mode: *mut c_int) -> NvmlReturn {
    code(device(of).and_then(|device| store(default_mode, device.attribute(32).unwrap_or(0))))
}

pub fn nvmlDeviceGetAccountingMode(of: NvmlDevice, mode: *mut c_int) -> NvmlReturn {
    constant(of, mode, |_| 0)
}

pub fn nvmlDeviceGetGpuOperationMode(of: NvmlDevice, _: *mut c_int, _: *mut c_int) -> NvmlReturn {
    unsupported(of)
}

pub fn nvmlDeviceGetAutoBoostedClocksEnabled(of: NvmlDevice, _: *mut c_int, _: *mut c_int) -> NvmlReturn {
    unsupported(of)
}

// ---- temperature and power ------------------------------------------------------------------------------------

pub fn nvmlDeviceGetTemperatureThreshold(of: NvmlDevice, threshold_type: c_int, temp: *mut c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| {
        let nvml = &device.profile.nvml;
        match threshold_type {
            0 => store(temp, nvml.temperature_shutdown_c),
            1 => store(temp, nvml.temperature_slowdown_c),
            2 => store(temp, nvml.temperature_memory_max_c),
            3 => store(temp, nvml.temperature_gpu_max_c),
            // Acoustic thresholds, and those of other drivers: boards without fans have none.
            4..=7 => Err(NvmlReturn::NOT_SUPPORTED),
            _ => Err(NvmlReturn::INVALID_ARGUMENT),
        }
    }))
}

pub fn nvmlDeviceGetPowerManagementLimitConstraints(
    of: NvmlDevice,
    min_limit: *mut c_uint,
    max_limit: *mut c_uint,
) -> NvmlReturn {
    code(device(of).and_then(|device| {
        let limit = device.profile.nvml.power_limit_mw;
        store(min_limit, least_power(limit)).and(store(max_limit, limit))
    }))
}

/// The lowest limit of power that may be set.
pub(super) fn least_power(limit: u32) -> u32 {
    limit / 2
}

pub fn nvmlDeviceGetTotalEnergyConsumption(of: NvmlDevice, energy: *mut c_ulonglong) -> NvmlReturn {
    code(device(of).and_then(|device| store(energy, energy_mj(device)?)))
}

/// Millijoules that the idle device has taken since the machine was made.
pub(super) fn energy_mj(device: &Device) -> Answer<u64> {
    let made = std::fs::metadata(nvml()?.books.folder().join("machine.toml")).and_then(|file| file.modified());
    let age = made.ok().and_then(|made| made.elapsed().ok()).unwrap_or_default();
    // Milliwatts for milliseconds are microjoules.
    Ok(u64::from(device.profile.nvml.power_idle_mw).saturating_mul(age.as_millis() as u64) / 1000)
}

// ---- clocks ---------------------------------------------------------------------------------------------------

pub fn nvmlDeviceGetSupportedMemoryClocks(of: NvmlDevice, count: *mut c_uint, clocks: *mut c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| one_clock(count, clocks, device.profile.nvml.memory_clock_mhz)))
}

pub fn nvmlDeviceGetSupportedGraphicsClocks(
    of: NvmlDevice,
    memory_clock_m_hz: c_uint,
    count: *mut c_uint,
    clocks: *mut c_uint,
) -> NvmlReturn {
    code(device(of).and_then(|device| {
        let nvml = &device.profile.nvml;
        if memory_clock_m_hz != nvml.memory_clock_mhz {
            return Err(NvmlReturn::NOT_FOUND);
        }
        one_clock(count, clocks, nvml.graphics_clock_mhz)
    }))
}

/// A list of one clock, by the protocol of lists.
fn one_clock(count: *mut c_uint, clocks: *mut c_uint, clock: c_uint) -> Answer {
    if count.is_null() {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    // SAFETY: not null, and by the contract of the entry point it leads to a count.
    let room = unsafe { count.read_unaligned() };
    store(count, 1)?;
    if room == 0 {
        return Err(NvmlReturn::INSUFFICIENT_SIZE);
    }
    store(clocks, clock)
}

pub fn nvmlDeviceGetMaxCustomerBoostClock(of: NvmlDevice, clock_type: c_int, clock: *mut c_uint) -> NvmlReturn {
    super::health::nvmlDeviceGetMaxClockInfo(of, clock_type, clock)
}

pub fn nvmlDeviceGetApplicationsClock(of: NvmlDevice, clock_type: c_int, clock: *mut c_uint) -> NvmlReturn {
    super::health::nvmlDeviceGetClockInfo(of, clock_type, clock)
}

pub fn nvmlDeviceGetDefaultApplicationsClock(of: NvmlDevice, clock_type: c_int, clock: *mut c_uint) -> NvmlReturn {
    super::health::nvmlDeviceGetClockInfo(of, clock_type, clock)
}

pub fn nvmlDeviceGetSupportedClocksThrottleReasons(of: NvmlDevice, reasons: *mut c_ulonglong) -> NvmlReturn {
    constant(of, reasons, |_| 0)
}

pub fn nvmlDeviceGetSupportedClocksEventReasons(of: NvmlDevice, reasons: *mut c_ulonglong) -> NvmlReturn {
    constant(of, reasons, |_| 0)
}

// ---- what there is none of ------------------------------------------------------------------------------------

macro_rules! idle_engines {
    ($( $symbol:ident; )*) => { $(
        pub fn $symbol(of: NvmlDevice, utilization: *mut c_uint, sampling_period_us: *mut c_uint) -> NvmlReturn {
            code(device(of).and_then(|_| store(utilization, 0).and(store(sampling_period_us, 167_000))))
        }
    )* };
}

idle_engines! {
    nvmlDeviceGetEncoderUtilization;
    nvmlDeviceGetDecoderUtilization;
    nvmlDeviceGetJpgUtilization;
    nvmlDeviceGetOfaUtilization;
}

pub fn nvmlDeviceGetEncoderStats(
    of: NvmlDevice,
    session_count: *mut c_uint,
    average_fps: *mut c_uint,
    average_latency: *mut c_uint,
) -> NvmlReturn {
    code(device(of).and_then(|_| {
        [session_count, average_fps, average_latency]
            .into_iter()
            .try_for_each(|to| store(to, 0))
    }))
}

pub fn nvmlDeviceGetEncoderSessions(of: NvmlDevice, session_count: *mut c_uint, _: *mut c_void) -> NvmlReturn {
    constant(of, session_count, |_| 0)
}

pub fn nvmlDeviceGetPcieReplayCounter(of: NvmlDevice, value: *mut c_uint) -> NvmlReturn {
    constant(of, value, |_| 0)
}

pub fn nvmlDeviceGetPcieThroughput(of: NvmlDevice, counter: c_int, value: *mut c_uint) -> NvmlReturn {
    if !(0..=1).contains(&counter) {
        return code(device(of).and(Err(NvmlReturn::INVALID_ARGUMENT)));
    }
    said(
        of,
        value,
        [Stated::PcieSent, Stated::PcieReceived][counter as usize],
        |_| 0,
    )
}

pub fn nvmlDeviceGetMemoryErrorCounter(
    of: NvmlDevice,
    error_type: c_int,
    counter_type: c_int,
    location_type: c_int,
    count: *mut c_ulonglong,
) -> NvmlReturn {
    let is_known = (0..=1).contains(&error_type) && (0..=1).contains(&counter_type) && (0..=8).contains(&location_type);
    if !is_known {
        return code(device(of).and(Err(NvmlReturn::INVALID_ARGUMENT)));
    }
    constant(of, count, |_| 0)
}

pub fn nvmlDeviceGetRetiredPages(of: NvmlDevice, _: c_int, page_count: *mut c_uint, _: *mut c_ulonglong) -> NvmlReturn {
    constant(of, page_count, |_| 0)
}

pub fn nvmlDeviceGetRetiredPages_v2(
    of: NvmlDevice,
    _: c_int,
    page_count: *mut c_uint,
    _: *mut c_ulonglong,
    _: *mut c_ulonglong,
) -> NvmlReturn {
    constant(of, page_count, |_| 0)
}

pub fn nvmlDeviceGetRetiredPagesPendingStatus(of: NvmlDevice, is_pending: *mut c_int) -> NvmlReturn {
    constant(of, is_pending, |_| 0)
}

pub fn nvmlDeviceGetRemappedRows(
    of: NvmlDevice,
    corr_rows: *mut c_uint,
    unc_rows: *mut c_uint,
    is_pending: *mut c_uint,
    failure_occurred: *mut c_uint,
) -> NvmlReturn {
    let all = [corr_rows, unc_rows, is_pending, failure_occurred];
    let told = [None, None, Some(Stated::RemapPending), Some(Stated::RemapFailed)];
    code(device(of).and_then(|device| {
        let faults = nvml()?.books.faults();
        let value = |what: Option<Stated>| what.and_then(|what| faults.stated(device.index, what)).unwrap_or(0);
        let mut all = all.into_iter().zip(told);
        all.try_for_each(|(to, what)| store(to, value(what) as c_uint))
    }))
}
