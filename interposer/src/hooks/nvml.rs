// SPDX-License-Identifier: Apache-2.0
//! NVML: the job's devices in PCI order, the job's limit as a device's memory.
//!
//! NVML ignores `CUDA_VISIBLE_DEVICES` and so do we here: its list is the job's, whatever part of it the program chose.
//! The real library answers first, so that its checks of arguments and versions are its own; a device of others is
//! "not found" by every name.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_char, c_uint};
use core::sync::atomic::Ordering;

use partage_abi::nvml::{NvmlDevice, NvmlMemory, NvmlMemoryV2, NvmlProcessInfo, NvmlReturn, NvmlUUID};
use partage_protocol::message::MAX_DEVICES;

use super::nvml_handles::{handle_of, note_given, now, slot_of, slot_with};
use super::nvml_listed::shared;
use super::nvml_processes::each_of_ours;
use crate::devices::listed::{self, Listed, in_pci_order};
use crate::guest::errno;
use crate::memory::account;
use crate::real::call_nvml;

pub use super::nvml_handles::*;
pub use super::nvml_processes::*;
pub use super::nvml_topology::*;
pub use super::nvml_utilisation::*;

pub fn nvmlInit() -> NvmlReturn {
    initialised(call_nvml!(nvmlInit()))
}

pub fn nvmlInit_v2() -> NvmlReturn {
    initialised(call_nvml!(nvmlInit_v2()))
}

pub fn nvmlInitWithFlags(flags: c_uint) -> NvmlReturn {
    initialised(call_nvml!(nvmlInitWithFlags(flags)))
}

fn initialised(result: NvmlReturn) -> NvmlReturn {
    if result.is_success() {
        let _ = shared();
    }
    result
}

pub fn nvmlDeviceGetCount(device_count: *mut c_uint) -> NvmlReturn {
    counted(call_nvml!(nvmlDeviceGetCount(device_count)), device_count)
}

pub fn nvmlDeviceGetCount_v2(device_count: *mut c_uint) -> NvmlReturn {
    counted(call_nvml!(nvmlDeviceGetCount_v2(device_count)), device_count)
}

fn counted(result: NvmlReturn, count: *mut c_uint) -> NvmlReturn {
    if result.is_success()
        && !count.is_null()
        && let Some((_, job)) = shared()
    {
        // SAFETY: NVML succeeded with this pointer.
        unsafe { count.write(in_pci_order(job).1 as c_uint) };
    }
    result
}

pub fn nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut NvmlDevice) -> NvmlReturn {
    match by_index(index, device) {
        Some(result) => result,
        None => call_nvml!(nvmlDeviceGetHandleByIndex(index, device)),
    }
}

pub fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut NvmlDevice) -> NvmlReturn {
    match by_index(index, device) {
        Some(result) => result,
        None => call_nvml!(nvmlDeviceGetHandleByIndex_v2(index, device)),
    }
}

/// The job's device at a position. `None`: no job, or arguments that NVML itself refuses.
fn by_index(index: c_uint, device: *mut NvmlDevice) -> Option<NvmlReturn> {
    let (_, job) = shared().filter(|_| !device.is_null())?;
    let (order, count) = in_pci_order(job);
    let Some(slot) = order.get(..count)?.get(index as usize) else {
        return Some(NvmlReturn::INVALID_ARGUMENT);
    };
    let result = handle_of(job, *slot, device);
    if result.is_success() {
        // SAFETY: NVML succeeded with this pointer.
        note_given(unsafe { device.read() }, *slot);
    }
    Some(result)
}

pub fn nvmlDeviceGetHandleBySerial(serial: *const c_char, device: *mut NvmlDevice) -> NvmlReturn {
    if_ours(call_nvml!(nvmlDeviceGetHandleBySerial(serial, device)), device)
}

pub fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut NvmlDevice) -> NvmlReturn {
    if_ours(call_nvml!(nvmlDeviceGetHandleByUUID(uuid, device)), device)
}

pub fn nvmlDeviceGetHandleByUUIDV(uuid: *const NvmlUUID, device: *mut NvmlDevice) -> NvmlReturn {
    if_ours(call_nvml!(nvmlDeviceGetHandleByUUIDV(uuid, device)), device)
}

pub fn nvmlDeviceGetHandleByPciBusId(pci_bus_id: *const c_char, device: *mut NvmlDevice) -> NvmlReturn {
    if_ours(call_nvml!(nvmlDeviceGetHandleByPciBusId(pci_bus_id, device)), device)
}

pub fn nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id: *const c_char, device: *mut NvmlDevice) -> NvmlReturn {
    if_ours(call_nvml!(nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id, device)), device)
}

/// Takes the handle back when the device is not the job's.
fn if_ours(result: NvmlReturn, device: *mut NvmlDevice) -> NvmlReturn {
    if !result.is_success() || device.is_null() {
        return result;
    }
    let Some((_, job)) = shared() else { return result };
    // SAFETY: NVML succeeded with this pointer.
    let found = unsafe { device.read() };
    if let Some(slot) = slot_with(job, found) {
        note_given(found, slot);
        return result;
    }
    // SAFETY: as above.
    unsafe { device.write(NvmlDevice::NULL) };
    NvmlReturn::NOT_FOUND
}

#[inline(never)] // see `guard::DEEPEST`
pub fn nvmlDeviceGetIndex(device: NvmlDevice, index: *mut c_uint) -> NvmlReturn {
    let result = call_nvml!(nvmlDeviceGetIndex(now(device), index));
    if result.is_success()
        && !index.is_null()
        && let Some((_, job)) = shared()
        && let Some(slot) = slot_of(job, device)
    {
        let (order, count) = in_pci_order(job);
        if let Some(position) = order.iter().take(count).position(|listed| *listed == slot) {
            // SAFETY: NVML succeeded with this pointer.
            unsafe { index.write(position as c_uint) };
        }
    }
    result
}

/// What the job sees of a device's memory, by its books: (total, free, used). The driver is not asked: it may be
/// checkpointed.
fn memory_shown(device: NvmlDevice, total: u64, free: u64) -> Option<(u64, u64, u64)> {
    let (limit, used) = match shared() {
        Some((_, listed @ Listed::Foreseen(lines))) => {
            let line = lines.get(slot_of(listed, device)?)?;
            (line.limit.load(Ordering::Relaxed), used_by_ours(now(device)))
        }
        Some((state, listed)) => {
            let slot = slot_of(listed, device)?;
            errno::preserving(|| account::view(state, slot, false))?
        }
        // No broker has answered: the environment's limit holds on every device.
        None => {
            let state = listed::looked_up()?;
            errno::preserving(|| account::view(state, MAX_DEVICES, false))?
        }
    };
    let total = limit.min(total);
    let used = used.min(total);
    Some((total, (total - used).min(free), used))
}

/// What the job's processes hold of a device, as far as NVML tells it.
fn used_by_ours(device: NvmlDevice) -> u64 {
    let ask = |count, infos| call_nvml!(nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos));
    let mut used = 0_u64;
    each_of_ours(ask, |process: NvmlProcessInfo| {
        // All ones where NVML has no figure.
        if process.usedGpuMemory != u64::MAX {
            used = used.saturating_add(process.usedGpuMemory);
        }
    });
    used
}

/// What the job sees of a device of whose memory NVML has no figures, because it is the host's: a limit below all of
/// it. A program that hears NOT_SUPPORTED takes the host's whole memory for its own. Without a limit that is true.
fn limit_shown(result: NvmlReturn, device: NvmlDevice) -> Option<(u64, u64, u64)> {
    if result != NvmlReturn::NOT_SUPPORTED {
        return None;
    }
    let shown = memory_shown(device, u64::MAX, u64::MAX)?;
    let line = shared().and_then(|(_, listed)| listed.devices().get(slot_of(listed, device)?));
    let whole = line.map_or(u64::MAX, |line| line.total.load(Ordering::Relaxed));
    (shown.0 < whole).then_some(shown)
}

pub fn nvmlDeviceGetMemoryInfo(device: NvmlDevice, memory: *mut NvmlMemory) -> NvmlReturn {
    let result = call_nvml!(nvmlDeviceGetMemoryInfo(now(device), memory));
    if !memory.is_null()
        && let Some((total, free, used)) = limit_shown(result, device)
    {
        // SAFETY: not null, and by the contract of the entry point it leads to this structure.
        unsafe { memory.write_unaligned(NvmlMemory { total, free, used }) };
        return NvmlReturn::SUCCESS;
    }
    if result.is_success() && !memory.is_null() {
        // SAFETY: NVML succeeded with this pointer.
        let truth = unsafe { memory.read_unaligned() };
        if let Some((total, free, used)) = memory_shown(device, truth.total, truth.free) {
            // SAFETY: as above.
            unsafe { memory.write_unaligned(NvmlMemory { total, free, used }) };
        }
    }
    result
}

/// The second version of the structure, as its field `version` has it: size, and number in the highest byte.
const MEMORY_V2: c_uint = size_of::<NvmlMemoryV2>() as c_uint | 2 << 24;

pub fn nvmlDeviceGetMemoryInfo_v2(device: NvmlDevice, memory: *mut NvmlMemoryV2) -> NvmlReturn {
    let result = call_nvml!(nvmlDeviceGetMemoryInfo_v2(now(device), memory));
    let unified = limit_shown(result, device);
    if memory.is_null() || !result.is_success() && unified.is_none() {
        return result;
    }
    // SAFETY: not null, and every version of the structure begins with its version.
    let version = unsafe { (&raw const (*memory).version).read_unaligned() };
    if version != MEMORY_V2 {
        // A layout that we do not know.
        return result;
    }
    // SAFETY: as its version says.
    let truth = unsafe { memory.read_unaligned() };
    if let Some((total, free, used)) = unified.or_else(|| memory_shown(device, truth.total, truth.free)) {
        let shown = NvmlMemoryV2 {
            total,
            free,
            used,
            // What the driver keeps for itself is no part of a job's card.
            reserved: 0,
            ..truth
        };
        // SAFETY: as above.
        unsafe { memory.write_unaligned(shown) };
        return NvmlReturn::SUCCESS;
    }
    result
}
