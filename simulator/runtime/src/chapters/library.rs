// SPDX-License-Identifier: Apache-2.0
//! Code that a program loads by itself, and the driver's functions that it asks for.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use partage_abi::types::{CuDevicePtr, CuKernel, CuLibrary};

use crate::driver::call;
use crate::error::{Answer, Code};
use crate::rows::rows;

/// Where `cudaGetDriverEntryPoint` says how its look-up went: `cudaDriverEntryPointSymbolNotFound`.
const NOT_FOUND: c_int = 1;

/// Asks the driver for a function; `status` may be null.
fn entry_point(
    name: *const c_char,
    to: *mut *mut c_void,
    version: c_uint,
    flags: c_ulonglong,
    status: *mut c_int,
) -> Answer {
    let version = c_int::try_from(version).map_err(|_| Code::INVALID_VALUE)?;
    let mut found = NOT_FOUND;
    let asked = call!(cuGetProcAddress_v2(name, to, version, flags, &raw mut found));
    if !status.is_null() {
        // SAFETY: the program's place.
        unsafe { status.write(found) };
        // The status says it.
        return match asked {
            Err(Code::SYMBOL_NOT_FOUND) => Ok(()),
            asked => asked,
        };
    }
    asked
}

rows! {
    both outside cuLibraryLoadData: cudaLibraryLoadData(
        library: *mut CuLibrary, code: *const c_void, jit: *mut c_int, jit_values: *mut *mut c_void, jit_count: c_uint,
        options: *mut c_int, values: *mut *mut c_void, count: c_uint,
    ) {
        call!(cuLibraryLoadData(library, code, jit, jit_values, jit_count, options, values, count))
    }
    both outside cuLibraryLoadFromFile: cudaLibraryLoadFromFile(
        library: *mut CuLibrary, file: *const c_char, jit: *mut c_int, jit_values: *mut *mut c_void, jit_count: c_uint,
        options: *mut c_int, values: *mut *mut c_void, count: c_uint,
    ) {
        call!(cuLibraryLoadFromFile(library, file, jit, jit_values, jit_count, options, values, count))
    }
    both outside cuLibraryUnload: cudaLibraryUnload(library: CuLibrary) { call!(cuLibraryUnload(library)) }
    both outside cuLibraryGetKernel: cudaLibraryGetKernel(
        kernel: *mut CuKernel, library: CuLibrary, name: *const c_char,
    ) {
        call!(cuLibraryGetKernel(kernel, library, name))
    }
    both outside cuLibraryGetKernelCount: cudaLibraryGetKernelCount(count: *mut c_uint, library: CuLibrary) {
        call!(cuLibraryGetKernelCount(count, library))
    }
    both outside cuLibraryEnumerateKernels: cudaLibraryEnumerateKernels(
        kernels: *mut CuKernel, count: c_uint, library: CuLibrary,
    ) {
        call!(cuLibraryEnumerateKernels(kernels, count, library))
    }
    both inside cuLibraryGetGlobal: cudaLibraryGetGlobal(
        at: *mut CuDevicePtr, bytes: *mut usize, library: CuLibrary, name: *const c_char,
    ) {
        call!(cuLibraryGetGlobal(at, bytes, library, name))
    }
    both inside cuLibraryGetManaged: cudaLibraryGetManaged(
        at: *mut CuDevicePtr, bytes: *mut usize, library: CuLibrary, name: *const c_char,
    ) {
        call!(cuLibraryGetManaged(at, bytes, library, name))
    }
    both inside cuLibraryGetUnifiedFunction: cudaLibraryGetUnifiedFunction(
        at: *mut *mut c_void, library: CuLibrary, name: *const c_char,
    ) {
        call!(cuLibraryGetUnifiedFunction(at, library, name))
    }
    twelve outside cuGetProcAddress_v2: cudaGetDriverEntryPoint(
        name: *const c_char, to: *mut *mut c_void, flags: c_ulonglong, status: *mut c_int,
    ) {
        let mut version = 0;
        call!(cuDriverGetVersion(&raw mut version))?;
        entry_point(name, to, version.cast_unsigned(), flags, status)
    }
    both outside cuGetProcAddress_v2: cudaGetDriverEntryPointByVersion(
        name: *const c_char, to: *mut *mut c_void, version: c_uint, flags: c_ulonglong, status: *mut c_int,
    ) {
        entry_point(name, to, version, flags, status)
    }
}

/// `__cudaInitModule`: nothing is loaded before it is used.
#[unsafe(no_mangle)]
pub extern "C" fn partage___cudaInitModule(_handle: *mut *mut c_void) -> c_char {
    1
}
