// SPDX-License-Identifier: Apache-2.0
//! The library itself and the system: initialisation, error texts, versions, names of processes.

use partage_abi::nvml::*;
use partage_machine::process;

use crate::state::{code, initialise, nvml, shut_down, store, store_text};

/// The only flags of `nvmlInitWithFlags`: no GPUs is fine, and do not attach them. Neither changes anything here.
const INIT_FLAGS_MASK: c_uint = 3;

pub fn nvmlInit() -> NvmlReturn {
    nvmlInit_v2()
}

pub fn nvmlInit_v2() -> NvmlReturn {
    code(initialise())
}

pub fn nvmlInitWithFlags(flags: c_uint) -> NvmlReturn {
    if flags & !INIT_FLAGS_MASK != 0 {
        return NvmlReturn::INVALID_ARGUMENT;
    }
    code(initialise())
}

pub fn nvmlShutdown() -> NvmlReturn {
    code(shut_down())
}

pub fn nvmlErrorString(result: NvmlReturn) -> *const c_char {
    result.description().as_ptr()
}

pub fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> NvmlReturn {
    code(nvml().and_then(|nvml| store_text(version, length, nvml.driver_version.1)))
}

pub fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) -> NvmlReturn {
    code(nvml().and_then(|nvml| {
        // CUDA's major version, then the driver's.
        let (cuda, driver) = nvml.driver_version;
        store_text(version, length, &format!("{}.{driver}", cuda / 1000))
    }))
}

pub fn nvmlSystemGetCudaDriverVersion(cuda_driver_version: *mut c_int) -> NvmlReturn {
    code(nvml().and_then(|nvml| store(cuda_driver_version, nvml.driver_version.0)))
}

pub fn nvmlSystemGetCudaDriverVersion_v2(cuda_driver_version: *mut c_int) -> NvmlReturn {
    nvmlSystemGetCudaDriverVersion(cuda_driver_version)
}

pub fn nvmlSystemGetProcessName(pid: c_uint, name: *mut c_char, length: c_uint) -> NvmlReturn {
    code(nvml().and_then(|_| {
        if name.is_null() || length == 0 {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        let command = std::fs::read(process::folder(pid).join("cmdline")).map_err(|_| NvmlReturn::NOT_FOUND)?;
        let program = command.split(|&byte| byte == 0).next().unwrap_or_default();
        let text = String::from_utf8_lossy(program);
        // A longer name is cut, as the real library does.
        let cut = text.floor_char_boundary(text.len().min(length as usize - 1));
        store_text(name, length, &text[..cut])
    }))
}
