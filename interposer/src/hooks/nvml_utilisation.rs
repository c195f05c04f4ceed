// SPDX-License-Identifier: Apache-2.0
//! How busy a device is: as far as the job's own processes keep it busy.
//!
//! NVML tells that by process, in samples of the last seconds. Where it does not (MIG instances, old devices) the
//! figures stay the device's.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_uint, c_ulonglong};

use partage_abi::nvml::{
    NvmlDevice, NvmlProcessUtilizationInfoV1, NvmlProcessUtilizationSample, NvmlProcessesUtilizationInfo, NvmlReturn,
    NvmlUtilization,
};

use super::nvml_handles::now;
use super::nvml_processes::{Process, each_of_ours, keep_ours, processes};
use crate::guest::sys;
use crate::real::call_nvml;

processes!(NvmlProcessUtilizationSample, NvmlProcessUtilizationInfoV1);

/// How far back samples count, in microseconds: the longest period that NVML's rates cover.
const PERIOD_US: u64 = 1_000_000;

pub fn nvmlDeviceGetUtilizationRates(device: NvmlDevice, utilization: *mut NvmlUtilization) -> NvmlReturn {
    let device = now(device);
    let result = call_nvml!(nvmlDeviceGetUtilizationRates(device, utilization));
    if !result.is_success() || utilization.is_null() {
        return result;
    }
    let since = sys::epoch_us().saturating_sub(PERIOD_US);
    let ask = |count, samples| call_nvml!(nvmlDeviceGetProcessUtilization(device, samples, count, since));
    let mut shown = NvmlUtilization { gpu: 0, memory: 0 };
    let is_known = each_of_ours(ask, |sample: NvmlProcessUtilizationSample| {
        shown.gpu = shown.gpu.saturating_add(sample.smUtil);
        shown.memory = shown.memory.saturating_add(sample.memUtil);
    });
    if is_known {
        // SAFETY: NVML succeeded with this pointer.
        let truth = unsafe { utilization.read_unaligned() };
        // The samples are of other moments than the rates: the job cannot have used more than was used.
        (shown.gpu, shown.memory) = (shown.gpu.min(truth.gpu), shown.memory.min(truth.memory));
        // SAFETY: as above.
        unsafe { utilization.write_unaligned(shown) };
    }
    result
}

pub fn nvmlDeviceGetProcessUtilization(
    device: NvmlDevice,
    utilization: *mut NvmlProcessUtilizationSample,
    process_samples_count: *mut c_uint,
    last_seen_time_stamp: c_ulonglong,
) -> NvmlReturn {
    let device = now(device);
    let ask = |count, samples| {
        call_nvml!(nvmlDeviceGetProcessUtilization(
            device,
            samples,
            count,
            last_seen_time_stamp
        ))
    };
    keep_ours(ask, process_samples_count, utilization, NvmlReturn::NOT_FOUND)
}

/// The first version of the structure, as its field `version` has it: size, and number in the highest byte.
const INFO_V1: c_uint = size_of::<NvmlProcessesUtilizationInfo>() as c_uint | 1 << 24;

pub fn nvmlDeviceGetProcessesUtilizationInfo(
    device: NvmlDevice,
    proceses_util_info: *mut NvmlProcessesUtilizationInfo,
) -> NvmlReturn {
    let info = proceses_util_info;
    // SAFETY: not null, and every version of the structure begins with its version.
    if info.is_null() || unsafe { (&raw const (*info).version).read_unaligned() } != INFO_V1 {
        // An unknown layout is NVML's to refuse.
        return call_nvml!(nvmlDeviceGetProcessesUtilizationInfo(device, info));
    }
    // SAFETY: as its version says.
    let given = unsafe { info.read_unaligned() };
    let mut count = given.processSamplesCount;
    let device = now(device);
    let ask = |count: *mut c_uint, entries: *mut NvmlProcessUtilizationInfoV1| {
        // SAFETY: `keep_ours` passes the count below, or one of its own.
        let room = unsafe { count.read() };
        let mut asked = NvmlProcessesUtilizationInfo {
            processSamplesCount: room,
            procUtilArray: entries,
            ..given
        };
        let result = call_nvml!(nvmlDeviceGetProcessesUtilizationInfo(device, &raw mut asked));
        // SAFETY: as above.
        unsafe { count.write(asked.processSamplesCount) };
        result
    };
    let result = keep_ours(ask, &raw mut count, given.procUtilArray, NvmlReturn::NOT_FOUND);
    // SAFETY: as above.
    unsafe { (&raw mut (*info).processSamplesCount).write_unaligned(count) };
    result
}
