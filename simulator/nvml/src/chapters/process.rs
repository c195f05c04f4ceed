// SPDX-License-Identifier: Apache-2.0
//! Who uses a device, with how much memory, and how busy it is.

use partage_abi::nvml::*;
use partage_machine::Device;
use partage_machine::faults::Stated;
use partage_machine::seats::Occupant;
use partage_machine::timeline::Engine;

use super::device::check_version;
use crate::state::{Answer, code, device, gone, nvml, store};

/// `NVML_VALUE_NOT_AVAILABLE`.
const NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;
/// "Not on a MIG instance".
const NO_INSTANCE: c_uint = c_uint::MAX;

// ---- lists ----------------------------------------------------------------------------------------------------

pub fn nvmlDeviceGetComputeRunningProcesses(
    of: NvmlDevice,
    info_count: *mut c_uint,
    infos: *mut NvmlProcessInfoV1,
) -> NvmlReturn {
    let entry = |process: &Occupant| NvmlProcessInfoV1 {
        pid: process.pid,
        usedGpuMemory: process.used,
    };
    code(list(compute(of), info_count, infos, entry))
}

pub fn nvmlDeviceGetComputeRunningProcesses_v2(
    of: NvmlDevice,
    info_count: *mut c_uint,
    infos: *mut NvmlProcessInfoV2,
) -> NvmlReturn {
    let entry = |process: &Occupant| NvmlProcessInfoV2 {
        pid: process.pid,
        usedGpuMemory: process.used,
        gpuInstanceId: NO_INSTANCE,
        computeInstanceId: NO_INSTANCE,
    };
    code(list(compute(of), info_count, infos, entry))
}

pub fn nvmlDeviceGetComputeRunningProcesses_v3(
    of: NvmlDevice,
    info_count: *mut c_uint,
    infos: *mut NvmlProcessInfo,
) -> NvmlReturn {
    let entry = |process: &Occupant| NvmlProcessInfo {
        pid: process.pid,
        usedGpuMemory: process.used,
        gpuInstanceId: NO_INSTANCE,
        computeInstanceId: NO_INSTANCE,
    };
    code(list(compute(of), info_count, infos, entry))
}

// No process of a simulated machine draws, and there is no MPS server: these lists are empty, not unknown.

pub fn nvmlDeviceGetGraphicsRunningProcesses(
    of: NvmlDevice,
    info_count: *mut c_uint,
    _: *mut NvmlProcessInfoV1,
) -> NvmlReturn {
    code(device(of).and_then(|_| store(info_count, 0)))
}

pub fn nvmlDeviceGetGraphicsRunningProcesses_v2(
    of: NvmlDevice,
    info_count: *mut c_uint,
    _: *mut NvmlProcessInfoV2,
) -> NvmlReturn {
    code(device(of).and_then(|_| store(info_count, 0)))
}

pub fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    of: NvmlDevice,
    info_count: *mut c_uint,
    _: *mut NvmlProcessInfo,
) -> NvmlReturn {
    code(device(of).and_then(|_| store(info_count, 0)))
}

pub fn nvmlDeviceGetMPSComputeRunningProcesses(
    of: NvmlDevice,
    info_count: *mut c_uint,
    _: *mut NvmlProcessInfoV1,
) -> NvmlReturn {
    code(device(of).and_then(|_| store(info_count, 0)))
}

pub fn nvmlDeviceGetMPSComputeRunningProcesses_v2(
    of: NvmlDevice,
    info_count: *mut c_uint,
    _: *mut NvmlProcessInfoV2,
) -> NvmlReturn {
    code(device(of).and_then(|_| store(info_count, 0)))
}

pub fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    of: NvmlDevice,
    info_count: *mut c_uint,
    _: *mut NvmlProcessInfo,
) -> NvmlReturn {
    code(device(of).and_then(|_| store(info_count, 0)))
}

/// Processes that hold memory of a device, with a context or (`cuMemCreate`) without, of those that this process can
/// see: what others hold is memory in use without an owner.
fn compute(of: NvmlDevice) -> Answer<Vec<Occupant>> {
    let device = device(of)?;
    let books = &nvml()?.books;
    let occupants = books.occupants(device.index).map_err(gone)?;
    let is_untold = books.faults().is_untold();
    let shown = occupants.into_iter().filter(|occupant| occupant.pid != 0);
    let shown = shown.map(|occupant| Occupant {
        used: if is_untold { NOT_AVAILABLE } else { occupant.used },
        ..occupant
    });
    Ok(shown.collect())
}

/// The protocol of all lists: `count` says how much room there is and is told how many there are; INSUFFICIENT_SIZE
/// when they do not fit.
fn list<T>(processes: Answer<Vec<Occupant>>, count: *mut c_uint, to: *mut T, entry: impl Fn(&Occupant) -> T) -> Answer {
    let processes = processes?;
    if count.is_null() {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    // SAFETY: not null, and by the contract of the entry point it leads to a count.
    let room = unsafe { count.read_unaligned() } as usize;
    if room > 0 && to.is_null() {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    store(count, processes.len() as c_uint)?;
    if processes.len() > room {
        return Err(NvmlReturn::INSUFFICIENT_SIZE);
    }
    for (place, process) in processes.iter().enumerate() {
        // SAFETY: the program says that there is room for `room` entries, and `place` is below.
        unsafe { to.add(place).write_unaligned(entry(process)) };
    }
    Ok(())
}

/// `nvmlProcessMode_t`
const COMPUTE: c_uint = 0;
const GRAPHICS: c_uint = 1;
const MPS: c_uint = 2;
const ALL: c_uint = 3;

pub fn nvmlDeviceGetRunningProcessDetailList(of: NvmlDevice, plist: *mut NvmlProcessDetailList) -> NvmlReturn {
    code(device(of).and_then(|_| {
        if plist.is_null() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and by the contract of the entry point it leads to this structure.
        let version = unsafe { (&raw const (*plist).version).read_unaligned() };
        check_version::<NvmlProcessDetailList>(version, 1)?;
        // SAFETY: as its version says.
        let mut given = unsafe { plist.read_unaligned() };
        let processes = match given.mode {
            COMPUTE | ALL => compute(of)?,
            // Nobody draws, and there is no MPS server.
            GRAPHICS | MPS => Vec::new(),
            _ => return Err(NvmlReturn::INVALID_ARGUMENT),
        };
        let entry = |process: &Occupant| NvmlProcessDetailV1 {
            pid: process.pid,
            usedGpuMemory: process.used,
            gpuInstanceId: NO_INSTANCE,
            computeInstanceId: NO_INSTANCE,
            usedGpuCcProtectedMemory: 0,
        };
        let result = list(
            Ok(processes),
            &raw mut given.numProcArrayEntries,
            given.procArray,
            entry,
        );
        // SAFETY: as above.
        unsafe { (&raw mut (*plist).numProcArrayEntries).write_unaligned(given.numProcArrayEntries) };
        result
    }))
}

// ---- how busy -------------------------------------------------------------------------------------------------

pub fn nvmlDeviceGetUtilizationRates(of: NvmlDevice, utilization: *mut NvmlUtilization) -> NvmlReturn {
    code(whole(of).and_then(|device| {
        let truth = nvml()?.books.truth(device).map_err(gone)?;
        let percent = |permille: u32| permille.div_ceil(10).min(100);
        let copies = [Engine::Upload, Engine::Download].map(|engine| truth.busy_permille[engine as usize]);
        let faults = nvml()?.books.faults();
        let stated = |what| faults.stated(device.index, what).map(|value| value.min(100) as c_uint);
        let rates = NvmlUtilization {
            gpu: stated(Stated::Busy).unwrap_or_else(|| percent(truth.busy_permille[Engine::Compute as usize])),
            // Time in which memory was read or written; the copy engines are the part of it that is known.
            memory: stated(Stated::MemoryBusy).unwrap_or_else(|| percent(copies.into_iter().max().unwrap_or(0))),
        };
        store(utilization, rates)
    }))
}

pub fn nvmlDeviceGetProcessUtilization(
    of: NvmlDevice,
    utilization: *mut NvmlProcessUtilizationSample,
    process_samples_count: *mut c_uint,
    last_seen_time_stamp: c_ulonglong,
) -> NvmlReturn {
    code(samples(of, last_seen_time_stamp).and_then(|samples| {
        if process_samples_count.is_null() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        if samples.is_empty() {
            return Err(NvmlReturn::NOT_FOUND);
        }
        // SAFETY: not null, and by the contract of the entry point it leads to a count.
        let room = unsafe { process_samples_count.read_unaligned() } as usize;
        store(process_samples_count, samples.len() as c_uint)?;
        if utilization.is_null() || room < samples.len() {
            return Err(NvmlReturn::INSUFFICIENT_SIZE);
        }
        for (place, sample) in samples.into_iter().enumerate() {
            // SAFETY: the program says that there is room for `room` entries, and `place` is below.
            unsafe { utilization.add(place).write_unaligned(sample) };
        }
        Ok(())
    }))
}

pub fn nvmlDeviceGetProcessesUtilizationInfo(
    of: NvmlDevice,
    proceses_util_info: *mut NvmlProcessesUtilizationInfo,
) -> NvmlReturn {
    let info = proceses_util_info;
    code(device(of).and_then(|_| {
        if info.is_null() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and by the contract of the entry point it leads to this structure.
        let version = unsafe { (&raw const (*info).version).read_unaligned() };
        check_version::<NvmlProcessesUtilizationInfo>(version, 1)?;
        // SAFETY: as its version says.
        let given = unsafe { info.read_unaligned() };
        let samples = samples(of, given.lastSeenTimeStamp)?;
        if samples.is_empty() {
            return Err(NvmlReturn::NOT_FOUND);
        }
        // SAFETY: as above.
        unsafe { (&raw mut (*info).processSamplesCount).write_unaligned(samples.len() as c_uint) };
        if given.procUtilArray.is_null() || (given.processSamplesCount as usize) < samples.len() {
            return Err(NvmlReturn::INSUFFICIENT_SIZE);
        }
        for (place, sample) in samples.into_iter().enumerate() {
            let entry = NvmlProcessUtilizationInfoV1 {
                timeStamp: sample.timeStamp,
                pid: sample.pid,
                smUtil: sample.smUtil,
                ..Default::default()
            };
            // SAFETY: the program says that there is room for `processSamplesCount` entries, and `place` is below.
            unsafe { given.procUtilArray.add(place).write_unaligned(entry) };
        }
        Ok(())
    }))
}

/// The device, unless it is in MIG mode, of which NVML has no utilisation.
fn whole(of: NvmlDevice) -> Answer<&'static Device> {
    let device = device(of)?;
    match device.instance {
        Some(_) => Err(NvmlReturn::NOT_SUPPORTED),
        None => Ok(device),
    }
}

/// One sample per process that the device worked for lately.
fn samples(of: NvmlDevice, last_seen: u64) -> Answer<Vec<NvmlProcessUtilizationSample>> {
    let device = whole(of)?;
    let truth = nvml()?.books.truth(device).map_err(gone)?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let timeStamp = now.map_or(0, |time| time.as_micros() as u64);
    let mut samples: Vec<NvmlProcessUtilizationSample> = Vec::new();
    for seat in truth
        .seats
        .iter()
        .filter(|seat| seat.owner.pid != 0 && seat.compute_permille > 0 && timeStamp > last_seen)
    {
        let (pid, smUtil) = (seat.owner.pid as c_uint, seat.compute_permille.div_ceil(10).min(100));
        match samples.iter_mut().find(|sample| sample.pid == pid) {
            Some(sample) => sample.smUtil = (sample.smUtil + smUtil).min(100),
            None => samples.push(NvmlProcessUtilizationSample {
                pid,
                timeStamp,
                smUtil,
                ..Default::default()
            }),
        }
    }
    Ok(samples)
}
