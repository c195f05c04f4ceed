// SPDX-License-Identifier: Apache-2.0
//! Errors, versions and the driver's entry points.

use partage_abi::types::*;

use super::{outside, put};
use crate::context::{check, code};
use crate::{driver, error};

/// The version that CUDA 12's runtime says: the last of that line.
const RUNTIME_12: c_int = 12090;
/// The version that CUDA 13's runtime says: that of the simulated driver's default.
const RUNTIME_13: c_int = 13000;

/// The thread's last error, which it forgets.
pub fn cudaGetLastError() -> CuResult {
    error::take()
}

/// The thread's last error.
pub fn cudaPeekAtLastError() -> CuResult {
    error::peek()
}

/// What an error is called.
pub fn cudaGetErrorName(code: CuResult) -> *const c_char {
    error::name(code).as_ptr()
}

/// What an error means.
pub fn cudaGetErrorString(code: CuResult) -> *const c_char {
    error::text(code).as_ptr()
}

/// The version of CUDA 13's runtime.
pub fn cudaRuntimeGetVersion(version: *mut c_int) -> CuResult {
    code(put(version, RUNTIME_13))
}

/// The version of CUDA 12's runtime.
pub fn cudaRuntimeGetVersion_v12(version: *mut c_int) -> CuResult {
    code(put(version, RUNTIME_12))
}

/// The driver's version, 0 where there is no driver.
pub fn cudaDriverGetVersion(version: *mut c_int) -> CuResult {
    if !driver::is_here() {
        return code(put(version, 0));
    }
    driver::cuDriverGetVersion(version)
}

/// A function of the driver as of a version.
pub fn cudaGetDriverEntryPointByVersion(
    symbol: *const c_char,
    address: *mut *mut c_void,
    version: c_uint,
    flags: c_ulonglong,
    status: *mut c_int,
) -> CuResult {
    outside(|| {
        let mut found = 0;
        let version = c_int::try_from(version).map_err(|_| CuResult::INVALID_VALUE)?;
        let done = driver::cuGetProcAddress_v2(symbol, address, version, flags, &mut found);
        if status.is_null() {
            return check(done);
        }
        put(status, found)?;
        // Who asks for the status gets the reason there.
        if done == CuResult::NOT_FOUND {
            Ok(())
        } else {
            check(done)
        }
    })
}

/// A function of the driver as of CUDA 12's runtime.
pub fn cudaGetDriverEntryPoint(
    symbol: *const c_char,
    address: *mut *mut c_void,
    flags: c_ulonglong,
    status: *mut c_int,
) -> CuResult {
    cudaGetDriverEntryPointByVersion(symbol, address, RUNTIME_12.unsigned_abs(), flags, status)
}

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: c_ulonglong = 2;

/// A function of the driver whose default stream is the thread's own, unless the flags say otherwise.
pub fn cudaGetDriverEntryPointByVersion_ptsz(
    symbol: *const c_char,
    address: *mut *mut c_void,
    version: c_uint,
    flags: c_ulonglong,
    status: *mut c_int,
) -> CuResult {
    let flags = if flags == 0 { PER_THREAD } else { flags };
    cudaGetDriverEntryPointByVersion(symbol, address, version, flags, status)
}

/// The same as of CUDA 12's runtime.
pub fn cudaGetDriverEntryPoint_ptsz(
    symbol: *const c_char,
    address: *mut *mut c_void,
    flags: c_ulonglong,
    status: *mut c_int,
) -> CuResult {
    cudaGetDriverEntryPointByVersion_ptsz(symbol, address, RUNTIME_12.unsigned_abs(), flags, status)
}
