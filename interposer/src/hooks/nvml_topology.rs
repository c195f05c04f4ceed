// SPDX-License-Identifier: Apache-2.0
//! NVML's lists of devices that are near something: only the job's own devices, as if there were no others.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_int, c_uint};

use partage_abi::nvml::{NvmlDevice, NvmlReturn};

use super::nvml_handles::{note_given, now, slot_with};
use super::nvml_listed::shared;
use crate::devices::listed::Listed;
use crate::real::call_nvml;

#[inline(never)] // see `guard::DEEPEST`
pub fn nvmlDeviceGetTopologyNearestGpus(
    device: NvmlDevice,
    level: c_int,
    count: *mut c_uint,
    device_array: *mut NvmlDevice,
) -> NvmlReturn {
    let ask = |count, devices| call_nvml!(nvmlDeviceGetTopologyNearestGpus(now(device), level, count, devices));
    keep_ours(&ask, count, device_array)
}

#[inline(never)] // see `guard::DEEPEST`
pub fn nvmlSystemGetTopologyGpuSet(
    cpu_number: c_uint,
    count: *mut c_uint,
    device_array: *mut NvmlDevice,
) -> NvmlReturn {
    let ask = |count, devices| call_nvml!(nvmlSystemGetTopologyGpuSet(cpu_number, count, devices));
    keep_ours(&ask, count, device_array)
}

/// Devices of one host that are told apart; NVML's own lists end before.
const MOST: usize = 64;

type Ask<'a> = &'a dyn Fn(*mut c_uint, *mut NvmlDevice) -> NvmlReturn;

/// A list of the job's devices only, by the protocol of both lists: without an array the number is told, with one the
/// count says how much room there is. NVML refuses what it refuses, the program's own arguments first of all.
fn keep_ours(ask: Ask<'_>, count: *mut c_uint, devices: *mut NvmlDevice) -> NvmlReturn {
    let Some((_, job)) = shared().filter(|_| !count.is_null()) else {
        return ask(count, devices);
    };
    // SAFETY: not null, and by the contract of the entry points it leads to a count.
    let room = unsafe { count.read_unaligned() };
    if devices.is_null() {
        let result = ask(count, devices);
        if !result.is_success() {
            return result;
        }
    }
    let mut listed = [NvmlDevice::NULL; MOST];
    let ours = match gather(ask, job, &mut listed) {
        Ok(ours) => ours,
        Err(result) => return result,
    };
    let mut result = NvmlReturn::SUCCESS;
    let mut told = ours;
    if !devices.is_null() && room < ours {
        // What NVML answers where there is too little room, and whether it fills that, is its own.
        let (mut few, mut scratch) = (room, [NvmlDevice::NULL; MOST]);
        result = ask(&raw mut few, scratch.as_mut_ptr());
        told = if result.is_success() && room > 0 { room } else { ours };
    }
    if !devices.is_null() && result.is_success() {
        for (place, device) in listed.iter().take(room.min(ours) as usize).enumerate() {
            // SAFETY: the program says that there is room for `room` entries, and `place` is below.
            unsafe { devices.wrapping_add(place).write_unaligned(*device) };
        }
    }
    // SAFETY: as above.
    unsafe { count.write_unaligned(told) };
    result
}

/// NVML's whole list with the job's devices in front; answers how many these are.
fn gather(ask: Ask<'_>, job: Listed, listed: &mut [NvmlDevice; MOST]) -> Result<c_uint, NvmlReturn> {
    let mut all: c_uint = 0;
    let result = ask(&raw mut all, core::ptr::null_mut());
    if !result.is_success() {
        return Err(result);
    }
    all = all.min(MOST as c_uint);
    if all > 0 {
        let result = ask(&raw mut all, listed.as_mut_ptr());
        if !result.is_success() {
            return Err(result);
        }
    }
    let mut ours = 0;
    for index in 0..MOST.min(all as usize) {
        let Some(device) = listed.get(index).copied() else {
            break;
        };
        if let Some(slot) = slot_with(job, device)
            && let Some(place) = listed.get_mut(ours as usize)
        {
            // Never past the one that was just read.
            *place = device;
            note_given(device, slot);
            ours += 1;
        }
    }
    Ok(ours)
}
