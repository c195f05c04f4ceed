// SPDX-License-Identifier: Apache-2.0
//! Modes, clocks, power, temperature and errors: constants of the profile, unless a fault says otherwise
//! (`gpu:DEVICE:WHAT:VALUE`). The simulated device is idle-cool, healthy and in its default modes; setting a mode is
//! not built.

use partage_abi::nvml::*;
use partage_machine::faults::Stated;
use partage_machine::profile::Nvml;

use crate::state::{Answer, code, device, nvml, store};

const ENABLED: c_int = 1;
const DISABLED: c_int = 0;

pub fn nvmlDeviceGetPersistenceMode(of: NvmlDevice, mode: *mut c_int) -> NvmlReturn {
    constant(of, mode, |_| ENABLED)
}

pub fn nvmlDeviceGetComputeMode(of: NvmlDevice, mode: *mut c_int) -> NvmlReturn {
    code(device(of).and_then(|device| store(mode, device.attribute(20).unwrap_or(0))))
}

pub fn nvmlDeviceGetDisplayMode(of: NvmlDevice, display: *mut c_int) -> NvmlReturn {
    constant(of, display, |_| DISABLED)
}

pub fn nvmlDeviceGetDisplayActive(of: NvmlDevice, is_active: *mut c_int) -> NvmlReturn {
    constant(of, is_active, |_| DISABLED)
}

pub fn nvmlDeviceGetEccMode(of: NvmlDevice, current: *mut c_int, pending: *mut c_int) -> NvmlReturn {
    code(device(of).and_then(|device| {
        let mode = device.attribute(32).unwrap_or(0);
        store(current, mode)?;
        store(pending, mode)
    }))
}

pub fn nvmlDeviceGetTotalEccErrors(
    of: NvmlDevice,
    error_type: c_int,
    counter_type: c_int,
    ecc_counts: *mut c_ulonglong,
) -> NvmlReturn {
    if !(0..=1).contains(&error_type) || !(0..=1).contains(&counter_type) {
        return code(device(of).and(Err(NvmlReturn::INVALID_ARGUMENT)));
    }
    let what = [Stated::EccCorrected, Stated::EccUncorrected][error_type as usize];
    said(of, ecc_counts, what, |_| 0)
}

pub fn nvmlDeviceGetTemperature(of: NvmlDevice, sensor_type: c_int, temp: *mut c_uint) -> NvmlReturn {
    // 0 is the sensor on the chip, the only one.
    if sensor_type != 0 {
        return code(device(of).and(Err(NvmlReturn::INVALID_ARGUMENT)));
    }
    said(of, temp, Stated::Temperature, |nvml| nvml.temperature_c)
}

pub fn nvmlDeviceGetPowerUsage(of: NvmlDevice, power: *mut c_uint) -> NvmlReturn {
    const MILLIWATTS: u64 = 1_000;
    code(device(of).and_then(|device| {
        let told = nvml()?.books.faults().stated(device.index, Stated::Power);
        let idle = u64::from(device.profile.nvml.power_idle_mw);
        let now = told.map_or(idle, |watts| watts.saturating_mul(MILLIWATTS));
        store(power, c_uint::try_from(now).unwrap_or(c_uint::MAX))
    }))
}

pub fn nvmlDeviceGetPowerManagementMode(of: NvmlDevice, mode: *mut c_int) -> NvmlReturn {
    constant(of, mode, |_| ENABLED)
}

pub fn nvmlDeviceGetPowerManagementLimit(of: NvmlDevice, limit: *mut c_uint) -> NvmlReturn {
    constant(of, limit, |nvml| nvml.power_limit_mw)
}

pub fn nvmlDeviceGetPowerManagementDefaultLimit(of: NvmlDevice, default_limit: *mut c_uint) -> NvmlReturn {
    constant(of, default_limit, |nvml| nvml.power_limit_mw)
}

pub fn nvmlDeviceGetEnforcedPowerLimit(of: NvmlDevice, limit: *mut c_uint) -> NvmlReturn {
    constant(of, limit, |nvml| nvml.power_limit_mw)
}

pub fn nvmlDeviceGetPowerState(of: NvmlDevice, state: *mut c_int) -> NvmlReturn {
    constant(of, state, |_| 0)
}

pub fn nvmlDeviceGetPerformanceState(of: NvmlDevice, state: *mut c_int) -> NvmlReturn {
    constant(of, state, |_| 0)
}

pub fn nvmlDeviceGetCurrentClocksThrottleReasons(of: NvmlDevice, reasons: *mut c_ulonglong) -> NvmlReturn {
    said(of, reasons, Stated::Throttle, |_| 0)
}

pub fn nvmlDeviceGetCurrentClocksEventReasons(of: NvmlDevice, reasons: *mut c_ulonglong) -> NvmlReturn {
    said(of, reasons, Stated::Throttle, |_| 0)
}

pub fn nvmlDeviceGetClockInfo(of: NvmlDevice, kind: c_int, clock: *mut c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| {
        // Graphics, multiprocessors and video run together; memory by itself.
        let nvml = &device.profile.nvml;
        match kind {
            0 | 1 | 3 => store(clock, nvml.graphics_clock_mhz),
            2 => store(clock, nvml.memory_clock_mhz),
            _ => Err(NvmlReturn::INVALID_ARGUMENT),
        }
    }))
}

pub fn nvmlDeviceGetMaxClockInfo(of: NvmlDevice, kind: c_int, clock: *mut c_uint) -> NvmlReturn {
    nvmlDeviceGetClockInfo(of, kind, clock)
}

/// What a fault says of the device, else the profile's.
pub(super) fn said<T: TryFrom<u64>>(
    of: NvmlDevice,
    to: *mut T,
    what: Stated,
    value: impl Fn(&Nvml) -> T,
) -> NvmlReturn {
    let answer: Answer = device(of).and_then(|device| {
        let told = nvml()?.books.faults().stated(device.index, what);
        let told = told.and_then(|told| T::try_from(told).ok());
        store(to, told.unwrap_or_else(|| value(&device.profile.nvml)))
    });
    code(answer)
}

pub(super) fn constant<T>(of: NvmlDevice, to: *mut T, value: impl Fn(&Nvml) -> T) -> NvmlReturn {
    let answer: Answer = device(of).and_then(|device| store(to, value(&device.profile.nvml)));
    code(answer)
}
