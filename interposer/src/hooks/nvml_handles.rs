// SPDX-License-Identifier: Apache-2.0
//! NVML's handles are the job's slots: one that the program took before its job moved stands for the slot's device of
//! now.
//!
//! A handle of NVML is one of a physical device, and stays that. So we remember for which slot each was given out; once
//! its device is the job's no more, calls with it go to the device that the slot has. NVML's functions that this
//! library does not see go on answering for the device before: what a monitor asks all the time is seen.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use partage_abi::nvml::{NvmlDevice, NvmlPciInfo, NvmlPciInfoExt, NvmlPciInfoV1, NvmlPciInfoV2, NvmlReturn};

use super::nvml_listed::shared;
use crate::devices::listed::Listed;
use crate::guest::text::{self, Text, bytes_of};
use crate::real::call_nvml;

/// Devices of one host whose handles are remembered.
const MOST_HANDLES: usize = 64;

/// A handle that was given out, and the slot that it was given out for.
struct Given {
    handle: AtomicPtr<c_void>,
    slot: AtomicUsize,
}

/// A forked child has its parent's handles.
static GIVEN: [Given; MOST_HANDLES] = [const {
    Given {
        handle: AtomicPtr::new(core::ptr::null_mut()),
        slot: AtomicUsize::new(0),
    }
}; MOST_HANDLES];

/// The program gets this handle for a slot.
pub(super) fn note_given(device: NvmlDevice, slot: usize) {
    let wanted = device.0;
    for given in &GIVEN {
        let before = given.handle.load(Ordering::Acquire);
        if before != wanted && !before.is_null() {
            continue;
        }
        given.slot.store(slot, Ordering::Relaxed);
        let taken = given
            .handle
            .compare_exchange(before, wanted, Ordering::AcqRel, Ordering::Acquire);
        if taken.is_ok() || taken == Err(wanted) {
            return;
        }
    }
}

fn given_for(device: NvmlDevice) -> Option<usize> {
    let is_it = |given: &&Given| given.handle.load(Ordering::Acquire) == device.0;
    let given = GIVEN.iter().find(is_it).filter(|_| !device.0.is_null())?;
    Some(given.slot.load(Ordering::Relaxed))
}

/// The slot that has a device now. `None`: the device is not the job's.
pub(super) fn slot_with(job: Listed, device: NvmlDevice) -> Option<usize> {
    let mut name: [c_char; 96] = [0; 96];
    if !call_nvml!(nvmlDeviceGetUUID(device, name.as_mut_ptr(), name.len() as c_uint)).is_success() {
        return None;
    }
    // SAFETY: NVML ends what it writes with a zero, and the array began as zeros.
    let uuid = text::parse_uuid(unsafe { bytes_of(name.as_ptr()) })?;
    job.slot_of(&uuid)
}

/// The slot that a handle stands for. `None`: it never was one of the job's.
pub(super) fn slot_of(job: Listed, device: NvmlDevice) -> Option<usize> {
    slot_with(job, device).or_else(|| given_for(device).filter(|slot| *slot < job.devices().len()))
}

/// NVML's handle of the device that a slot has now.
pub(super) fn handle_of(job: Listed, slot: usize, device: *mut NvmlDevice) -> NvmlReturn {
    let Some(line) = job.devices().get(slot) else {
        return NvmlReturn::INVALID_ARGUMENT;
    };
    // A MIG instance is listed through its card, as NVML does; its own handle comes from the card's.
    let mut name = Text::<64>::new();
    text::push_uuid(&mut name, &line.uuid(), line.is_mig());
    call_nvml!(nvmlDeviceGetHandleByUUID(name.as_c_str().as_ptr(), device))
}

/// The handle to ask NVML with for a handle of the program's.
#[inline(never)] // see `guard::DEEPEST`
pub(super) fn now(device: NvmlDevice) -> NvmlDevice {
    let Some((_, job)) = shared() else { return device };
    let Some(slot) = given_for(device).filter(|_| slot_with(job, device).is_none()) else {
        return device;
    };
    let mut current = NvmlDevice::NULL;
    if handle_of(job, slot, &raw mut current).is_success() {
        current
    } else {
        device
    }
}

macro_rules! of_the_slot {
    ($( $symbol:ident($($arg:ident: $type:ty),*); )*) => { $(
        pub fn $symbol(device: NvmlDevice $(, $arg: $type)*) -> NvmlReturn {
            call_nvml!($symbol(now(device) $(, $arg)*))
        }
    )* };
}

of_the_slot! {
    nvmlDeviceGetName(name: *mut c_char, length: c_uint);
    nvmlDeviceGetSerial(serial: *mut c_char, length: c_uint);
    nvmlDeviceGetUUID(uuid: *mut c_char, length: c_uint);
    nvmlDeviceGetMinorNumber(minor_number: *mut c_uint);
    nvmlDeviceGetBoardId(board_id: *mut c_uint);
    nvmlDeviceGetPciInfoExt(pci: *mut NvmlPciInfoExt);
    nvmlDeviceGetPciInfo(pci: *mut NvmlPciInfoV1);
    nvmlDeviceGetPciInfo_v2(pci: *mut NvmlPciInfoV2);
    nvmlDeviceGetPciInfo_v3(pci: *mut NvmlPciInfo);
    nvmlDeviceGetPcieThroughput(counter: c_int, value: *mut c_uint);
    nvmlDeviceGetClockInfo(kind: c_int, clock: *mut c_uint);
    nvmlDeviceGetClock(clock_type: c_int, clock_id: c_int, clock_m_hz: *mut c_uint);
    nvmlDeviceGetFanSpeed(speed: *mut c_uint);
    nvmlDeviceGetFanSpeed_v2(fan: c_uint, speed: *mut c_uint);
    nvmlDeviceGetTemperature(sensor_type: c_int, temp: *mut c_uint);
    nvmlDeviceGetTemperatureV(temperature: *mut c_void);
    nvmlDeviceGetPerformanceState(state: *mut c_int);
    nvmlDeviceGetCurrentClocksEventReasons(clocks_event_reasons: *mut c_ulonglong);
    nvmlDeviceGetCurrentClocksThrottleReasons(clocks_throttle_reasons: *mut c_ulonglong);
    nvmlDeviceGetPowerUsage(power: *mut c_uint);
    nvmlDeviceGetEnforcedPowerLimit(limit: *mut c_uint);
    nvmlDeviceGetTotalEnergyConsumption(energy: *mut c_ulonglong);
}
