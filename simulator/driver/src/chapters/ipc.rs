// SPDX-License-Identifier: Apache-2.0
//! Linear device memory that one process makes and others use. Events for other processes are not built.

use partage_abi::types::*;
use partage_abi::values::*;

use crate::context::current;
use crate::memory::{Export, memory};
use crate::state::{code, driver, store};
use crate::submission::before_free;

pub fn cuIpcGetMemHandle(handle: *mut CuIpcMemHandle, dptr: CuDevicePtr) -> CuResult {
    code(current().and_then(|_| {
        if handle.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        let driver = driver()?;
        let export = memory()?.export(driver, dptr)?;
        let reserved = export.encode().map(|byte| byte as c_char);
        store(handle, CuIpcMemHandle { reserved })
    }))
}

pub fn cuIpcOpenMemHandle(dptr: *mut CuDevicePtr, handle: CuIpcMemHandle, flags: c_uint) -> CuResult {
    cuIpcOpenMemHandle_v2(dptr, handle, flags)
}

pub fn cuIpcOpenMemHandle_v2(dptr: *mut CuDevicePtr, handle: CuIpcMemHandle, flags: c_uint) -> CuResult {
    code(current().and_then(|context| {
        if dptr.is_null() || flags & !(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as c_uint) != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let export = Export::decode(&handle.reserved.map(|byte| byte as u8)).ok_or(CuResult::INVALID_HANDLE)?;
        let driver = driver()?;
        store(dptr, memory()?.open_export(driver, &context, &export)?)
    }))
}

pub fn cuIpcCloseMemHandle(dptr: CuDevicePtr) -> CuResult {
    code(current().and_then(|context| {
        before_free(dptr)?;
        memory()?.close_export(&context, dptr)
    }))
}
