// SPDX-License-Identifier: Apache-2.0
//! Code, globals and heaps: what loading and limits take of the device is measured, and undone where it does not fit.
//!
//! Code that a driver loads lazily, at a kernel's first launch, is found by the broker's periodic look. A library that
//! is loaded while no context is current takes nothing yet.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_char, c_int, c_uint, c_void};

use partage_abi::types::{CuLibrary, CuModule, CuResult};

use crate::memory::overhead::Watched;
use crate::real::Library;
use crate::real::call;

/// Code that is about to be loaded, whose handle goes to `receiver`; what that held stays there if the code does not
/// fit.
struct Loading {
    receiver: *mut *mut c_void,
    former: *mut c_void,
    watched: Option<Watched>,
    kind: Kind,
}

/// What a handle of loaded code is of.
enum Kind {
    Module,
    Library,
}

impl Loading {
    #[inline(never)] // one body for all the hooks that call it
    fn begin(real: &Library, receiver: *mut *mut c_void, kind: Kind) -> Self {
        let (mut former, mut watched) = (core::ptr::null_mut(), None);
        if !receiver.is_null() {
            // SAFETY: not null, and the caller's place for a handle.
            former = unsafe { receiver.read() };
            watched = Watched::begin(real);
        }
        Self {
            receiver,
            former,
            watched,
            kind,
        }
    }

    /// The driver was called.
    #[inline(never)] // as `begin`
    fn end(self, real: &Library, result: CuResult) -> CuResult {
        let Some(beyond) = self.watched.and_then(|watched| watched.judge(real, result)) else {
            return result;
        };
        // SAFETY: watched, so not null; the driver succeeded, so it wrote the handle there.
        let made = unsafe { self.receiver.replace(self.former) };
        let _ = match self.kind {
            Kind::Module => call!(real, cuModuleUnload(CuModule(made))),
            Kind::Library => call!(real, cuLibraryUnload(CuLibrary(made))),
        };
        beyond.removed("a module")
    }
}

pub fn cuModuleLoad(real: &Library, module_out: *mut CuModule, fname: *const c_char) -> CuResult {
    let loading = Loading::begin(real, module_out.cast(), Kind::Module);
    let result = call!(real, cuModuleLoad(module_out, fname));
    loading.end(real, result)
}

pub fn cuModuleLoadData(real: &Library, module_out: *mut CuModule, image: *const c_void) -> CuResult {
    let loading = Loading::begin(real, module_out.cast(), Kind::Module);
    let result = call!(real, cuModuleLoadData(module_out, image));
    loading.end(real, result)
}

pub fn cuModuleLoadDataEx(
    real: &Library,
    module_out: *mut CuModule,
    image: *const c_void,
    num_options: c_uint,
    options: *mut c_int,
    option_values: *mut *mut c_void,
) -> CuResult {
    let loading = Loading::begin(real, module_out.cast(), Kind::Module);
    let result = call!(
        real,
        cuModuleLoadDataEx(module_out, image, num_options, options, option_values)
    );
    loading.end(real, result)
}

pub fn cuModuleLoadFatBinary(real: &Library, module_out: *mut CuModule, fat_cubin: *const c_void) -> CuResult {
    let loading = Loading::begin(real, module_out.cast(), Kind::Module);
    let result = call!(real, cuModuleLoadFatBinary(module_out, fat_cubin));
    loading.end(real, result)
}

pub fn cuModuleUnload(real: &Library, module: CuModule) -> CuResult {
    let watched = Watched::begin(real);
    let result = call!(real, cuModuleUnload(module));
    if let Some(watched) = watched {
        watched.tell(real);
    }
    result
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
    let loading = Loading::begin(real, library_out.cast(), Kind::Library);
    let result = call!(
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
    );
    loading.end(real, result)
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
    let loading = Loading::begin(real, library_out.cast(), Kind::Library);
    let result = call!(
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
    );
    loading.end(real, result)
}

pub fn cuLibraryUnload(real: &Library, library: CuLibrary) -> CuResult {
    let watched = Watched::begin(real);
    let result = call!(real, cuLibraryUnload(library));
    if let Some(watched) = watched {
        watched.tell(real);
    }
    result
}

/// Stacks, the printf buffer and the malloc heap lie on the device.
pub fn cuCtxSetLimit(real: &Library, limit: c_int, value: usize) -> CuResult {
    let mut former: usize = 0;
    if !call!(real, cuCtxGetLimit(&raw mut former, limit)).is_success() {
        return call!(real, cuCtxSetLimit(limit, value));
    }
    let watched = Watched::begin(real);
    let result = call!(real, cuCtxSetLimit(limit, value));
    let Some(beyond) = watched.and_then(|watched| watched.judge(real, result)) else {
        return result;
    };
    let _ = call!(real, cuCtxSetLimit(limit, former));
    beyond.removed("the context's limit")
}
