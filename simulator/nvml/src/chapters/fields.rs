// SPDX-License-Identifier: Apache-2.0
//! Field values: many questions in one call, each with an answer of its own.

use std::time::{SystemTime, UNIX_EPOCH};

use partage_abi::nvml::*;
use partage_machine::Device;
use partage_machine::faults::Stated;

use super::constants::{energy_mj, least_power};
use crate::state::{Answer, code, device, nvml};

/// `nvmlValueType_t`.
const UNSIGNED_INT: c_int = 1;
const UNSIGNED_LONG_LONG: c_int = 3;
/// One greater than the largest field of the header.
const FIELDS: c_uint = 310;

pub fn nvmlDeviceGetFieldValues(of: NvmlDevice, values_count: c_int, values: *mut NvmlFieldValue) -> NvmlReturn {
    code(device(of).and_then(|device| {
        let count = usize::try_from(values_count).map_err(|_| NvmlReturn::INVALID_ARGUMENT)?;
        if count == 0 || values.is_null() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let timestamp = now.map_or(0, |time| time.as_micros() as c_longlong);
        for place in 0..count {
            // SAFETY: not null, and by the contract of the entry point an array of `values_count` entries.
            let mut entry = unsafe { values.add(place).read_unaligned() };
            entry.timestamp = timestamp;
            entry.latencyUsec = 0;
            match field(device, entry.fieldId) {
                Ok((kind, number)) => {
                    entry.valueType = kind;
                    entry.value = NvmlValue { ullVal: number };
                    entry.nvmlReturn = NvmlReturn::SUCCESS;
                }
                Err(code) => entry.nvmlReturn = code,
            }
            // SAFETY: as above.
            unsafe { values.add(place).write_unaligned(entry) };
        }
        Ok(())
    }))
}

/// What a fault says of the device, else 0.
fn stated(device: &Device, what: Stated) -> Answer<u64> {
    Ok(nvml()?.books.faults().stated(device.index, what).unwrap_or(0))
}

/// A counter that there is where a fault says it.
fn counted(device: &Device, what: Stated) -> Answer<(c_int, u64)> {
    let told = nvml()?.books.faults().stated(device.index, what);
    Ok((UNSIGNED_LONG_LONG, told.ok_or(NvmlReturn::NOT_SUPPORTED)?))
}

/// The type and the value of a field. INVALID_ARGUMENT for one that the header does not have.
fn field(device: &Device, id: c_uint) -> Answer<(c_int, u64)> {
    let constants = &device.profile.nvml;
    let word = |value: u32| Ok((UNSIGNED_INT, u64::from(value)));
    match id {
        // ECC mode, current and pending.
        1 | 2 => word(device.attribute(32).unwrap_or(0) as u32),
        // Errors of memory, and what limited performance so far.
        3..=28 | 74..=81 => Ok((UNSIGNED_LONG_LONG, 0)),
        // Retired pages, links, replays, remapped rows.
        29..=31 | 91..=95 | 142 | 143 => word(0),
        138 => counted(device, Stated::NvlinkSent),
        139 => counted(device, Stated::NvlinkReceived),
        144 => word(stated(device, Stated::RemapPending)? as u32),
        145 => word(stated(device, Stated::RemapFailed)? as u32),
        // Temperature of the memory.
        82 => word(constants.temperature_c),
        // Energy in millijoules.
        83 => Ok((UNSIGNED_LONG_LONG, energy_mj(device)?)),
        // Power: average, now, least and most limit, the limit by default, now and as asked.
        185 | 186 => word(constants.power_idle_mw),
        187 => word(least_power(constants.power_limit_mw)),
        188 | 189 | 190 | 192 => word(constants.power_limit_mw),
        0 | FIELDS.. => Err(NvmlReturn::INVALID_ARGUMENT),
        _ => Err(NvmlReturn::NOT_SUPPORTED),
    }
}
