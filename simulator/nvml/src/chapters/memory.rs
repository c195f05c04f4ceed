// SPDX-License-Identifier: Apache-2.0
//! Device memory, as all processes of the machine use it.

use partage_abi::nvml::*;

use super::device::check_version;
use crate::state::{Answer, code, device, gone, nvml, store};

pub fn nvmlDeviceGetMemoryInfo(of: NvmlDevice, memory: *mut NvmlMemory) -> NvmlReturn {
    code(figures(of).and_then(|(total, used)| {
        store(
            memory,
            NvmlMemory {
                total,
                free: total - used,
                used,
            },
        )
    }))
}

pub fn nvmlDeviceGetMemoryInfo_v2(of: NvmlDevice, memory: *mut NvmlMemoryV2) -> NvmlReturn {
    code(figures(of).and_then(|(total, used)| {
        if memory.is_null() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and by the contract of the entry point it leads to this structure.
        let version = unsafe { (&raw const (*memory).version).read_unaligned() };
        check_version::<NvmlMemoryV2>(version, 2)?;
        store(
            memory,
            NvmlMemoryV2 {
                version,
                total,
                reserved: 0,
                free: total - used,
                used,
            },
        )
    }))
}

pub fn nvmlDeviceGetBAR1MemoryInfo(of: NvmlDevice, bar1_memory: *mut NvmlBAR1Memory) -> NvmlReturn {
    code(device(of).and_then(|device| {
        if device.host_bytes.is_some() {
            return Err(NvmlReturn::NOT_SUPPORTED);
        }
        // The window through which the CPU could see the memory: as large as it, and nobody looks through it.
        let bar1Total = device.memory.next_power_of_two();
        store(
            bar1_memory,
            NvmlBAR1Memory {
                bar1Total,
                bar1Free: bar1Total,
                bar1Used: 0,
            },
        )
    }))
}

/// Total and used bytes, exactly as `cuMemGetInfo` has them. NOT_SUPPORTED of a device that shares the host's memory.
fn figures(of: NvmlDevice) -> Answer<(u64, u64)> {
    let device = device(of)?;
    if device.host_bytes.is_some() {
        return Err(NvmlReturn::NOT_SUPPORTED);
    }
    let used = nvml()?.books.used(device.index).map_err(gone)?;
    Ok((device.memory, used.min(device.memory)))
}
