// SPDX-License-Identifier: Apache-2.0
//! Code, globals and heaps: what loading and limits take of the device is measured, and undone where it does not fit.
//!
//! Code that a driver loads lazily, at a kernel's first launch, is found by the broker's periodic look. A library that
//! is loaded while no context is current takes nothing yet.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_char, c_int, c_uint, c_void};

use partage_abi::types::{CuLibrary, CuModule, CuResult};

use crate::entry::call;
use crate::measured;
use crate::real::Library;

/// Loads what goes to `receiver`; what that held stays there if it does not fit.
fn loaded<T: Copy>(
    real: &Library,
    receiver: *mut T,
    load: impl FnOnce() -> CuResult,
    unload: impl FnOnce(T) -> CuResult,
) -> CuResult {
    if receiver.is_null() {
        return load();
    }
    // SAFETY: not null, and the caller's place for a handle.
    let former = unsafe { receiver.read() };
    // SAFETY: as above; called after the driver succeeded, so it wrote the handle there.
    measured::code(real, "a module", load, || unload(unsafe { receiver.replace(former) }))
}

fn module(real: &Library, module: *mut CuModule, load: impl FnOnce() -> CuResult) -> CuResult {
    loaded(real, module, load, |made| call!(real, cuModuleUnload(made)))
}

fn library(real: &Library, library: *mut CuLibrary, load: impl FnOnce() -> CuResult) -> CuResult {
    loaded(real, library, load, |made| call!(real, cuLibraryUnload(made)))
}

pub fn cuModuleLoad(real: &Library, module_out: *mut CuModule, fname: *const c_char) -> CuResult {
    module(real, module_out, || call!(real, cuModuleLoad(module_out, fname)))
}

pub fn cuModuleLoadData(real: &Library, module_out: *mut CuModule, image: *const c_void) -> CuResult {
    module(real, module_out, || call!(real, cuModuleLoadData(module_out, image)))
}

pub fn cuModuleLoadDataEx(
    real: &Library,
    module_out: *mut CuModule,
    image: *const c_void,
    num_options: c_uint,
    options: *mut c_int,
    option_values: *mut *mut c_void,
) -> CuResult {
    module(real, module_out, || {
        call!(
            real,
            cuModuleLoadDataEx(module_out, image, num_options, options, option_values)
        )
    })
}

pub fn cuModuleLoadFatBinary(real: &Library, module_out: *mut CuModule, fat_cubin: *const c_void) -> CuResult {
    module(real, module_out, || {
        call!(real, cuModuleLoadFatBinary(module_out, fat_cubin))
    })
}

pub fn cuModuleUnload(real: &Library, module: CuModule) -> CuResult {
    measured::unload(real, || call!(real, cuModuleUnload(module)))
}

pub fn cuLibraryLoadData(
    real: &Library,
    library_out: *mut CuLibrary,
    code: *const c_void,
    jit_options: *mut c_int,
    jit_options_values: *mut *mut c_void,
    num_jit_options: c_uint,
    library_options: *mut c_int,
    library_option_values: *mut *mut c_void,
    num_library_options: c_uint,
) -> CuResult {
    library(real, library_out, || {
        call!(
            real,
            cuLibraryLoadData(
                library_out,
                code,
                jit_options,
                jit_options_values,
                num_jit_options,
                library_options,
                library_option_values,
                num_library_options
            )
        )
    })
}

pub fn cuLibraryLoadFromFile(
    real: &Library,
    library_out: *mut CuLibrary,
    file_name: *const c_char,
    jit_options: *mut c_int,
    jit_options_values: *mut *mut c_void,
    num_jit_options: c_uint,
    library_options: *mut c_int,
    library_option_values: *mut *mut c_void,
    num_library_options: c_uint,
) -> CuResult {
    library(real, library_out, || {
        call!(
            real,
            cuLibraryLoadFromFile(
                library_out,
                file_name,
                jit_options,
                jit_options_values,
                num_jit_options,
                library_options,
                library_option_values,
                num_library_options
            )
        )
    })
}

pub fn cuLibraryUnload(real: &Library, library: CuLibrary) -> CuResult {
    measured::unload(real, || call!(real, cuLibraryUnload(library)))
}

/// Stacks, the printf buffer and the malloc heap lie on the device.
pub fn cuCtxSetLimit(real: &Library, limit: c_int, value: usize) -> CuResult {
    let mut former: usize = 0;
    if !call!(real, cuCtxGetLimit(&raw mut former, limit)).is_success() {
        return call!(real, cuCtxSetLimit(limit, value));
    }
    measured::code(
        real,
        "the context's limit",
        || call!(real, cuCtxSetLimit(limit, value)),
        || call!(real, cuCtxSetLimit(limit, former)),
    )
}
