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

use partage_abi::nvml::{NvmlDevice, NvmlMemory, NvmlMemoryV2, NvmlReturn, NvmlUUID};
use partage_protocol::message::MAX_DEVICES;

use crate::attachment::job::Job;
use crate::guest::errno;
use crate::guest::text::{self, Text, bytes_of};
use crate::memory::account;
use crate::real::call_nvml;
use crate::session;
use crate::state::{self, State};

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

/// This process's state and job. `None`: NVML shows what it shows.
pub(super) fn shared() -> Option<(&'static State, &'static Job)> {
    let state = state::get()?;
    errno::preserving(|| session::ensure(state, true));
    super::init::be_reachable();
    Some((state, state.job()?))
}

/// The job's slots in the order NVML lists them: those whose device this process may open.
fn in_pci_order(job: &Job) -> ([usize; MAX_DEVICES], usize) {
    let mut order = [0; MAX_DEVICES];
    let mut count = 0;
    let open = |(slot, _): &(usize, &_)| job.is_open(*slot);
    for (slot, device) in job.devices().iter().enumerate().take(MAX_DEVICES).filter(open) {
        count += 1;
        // How many come before: fewer than `count`, each once.
        let index = device.index.load(Ordering::Relaxed);
        let rank = job
            .devices()
            .iter()
            .enumerate()
            .filter(|(other, _)| job.is_open(*other))
            .filter(|(other, candidate)| (candidate.index.load(Ordering::Relaxed), *other) < (index, slot))
            .count();
        if let Some(place) = order.get_mut(rank) {
            *place = slot;
        }
    }
    (order, count)
}

/// The slot of a device that NVML gave a handle for. `None`: not the job's.
pub(super) fn slot_of(job: &Job, device: NvmlDevice) -> Option<usize> {
    let mut name: [c_char; 96] = [0; 96];
    if !call_nvml!(nvmlDeviceGetUUID(device, name.as_mut_ptr(), name.len() as c_uint)).is_success() {
        return None;
    }
    // SAFETY: NVML ends what it writes with a zero, and the array began as zeros.
    let uuid = text::parse_uuid(unsafe { bytes_of(name.as_ptr()) })?;
    job.slot_of(&uuid)
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
    let listed = order
        .get(..count)?
        .get(index as usize)
        .and_then(|slot| job.devices().get(*slot));
    let Some(found) = listed else {
        return Some(NvmlReturn::INVALID_ARGUMENT);
    };
    // A MIG instance is listed through its card, as NVML does; its own handle comes from the card's.
    let mut name = Text::<64>::new();
    text::push_uuid(&mut name, &found.uuid(), found.is_mig());
    Some(call_nvml!(nvmlDeviceGetHandleByUUID(name.as_c_str().as_ptr(), device)))
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
    if slot_of(job, unsafe { device.read() }).is_some() {
        return result;
    }
    // SAFETY: as above.
    unsafe { device.write(NvmlDevice::NULL) };
    NvmlReturn::NOT_FOUND
}

#[inline(never)] // see `guard::DEEPEST`
pub fn nvmlDeviceGetIndex(device: NvmlDevice, index: *mut c_uint) -> NvmlReturn {
    let result = call_nvml!(nvmlDeviceGetIndex(device, index));
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
    let state = state::get()?;
    errno::preserving(|| session::ensure(state, true));
    let slot = match state.job() {
        Some(job) => slot_of(job, device)?,
        // No broker has answered: the environment's limit holds on every device.
        None => MAX_DEVICES,
    };
    let (limit, used) = errno::preserving(|| account::view(state, slot, false))?;
    let total = limit.min(total);
    let used = used.min(total);
    Some((total, (total - used).min(free), used))
}

pub fn nvmlDeviceGetMemoryInfo(device: NvmlDevice, memory: *mut NvmlMemory) -> NvmlReturn {
    let result = call_nvml!(nvmlDeviceGetMemoryInfo(device, memory));
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
    let result = call_nvml!(nvmlDeviceGetMemoryInfo_v2(device, memory));
    if !result.is_success() || memory.is_null() {
        return result;
    }
    // SAFETY: NVML succeeded with this pointer, and every version of the structure begins with its version.
    let version = unsafe { (&raw const (*memory).version).read_unaligned() };
    if version != MEMORY_V2 {
        // A layout that we do not know.
        return result;
    }
    // SAFETY: as its version says.
    let truth = unsafe { memory.read_unaligned() };
    if let Some((total, free, used)) = memory_shown(device, truth.total, truth.free) {
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
    }
    result
}
