// SPDX-License-Identifier: Apache-2.0
//! What the code that a compiler generates calls: registration of fat binaries, kernels and variables, and the
//! configuration of a launch on its way to the launch.

use core::cell::Cell;

use partage_abi::types::*;

use super::{inside, put};
use crate::context::{check, code};
use crate::types::Dim3;
use crate::{driver, error, registry, surroundings};

/// Launches whose arguments launch kernels themselves: so deep they may be nested.
const DEPTH: usize = 16;

#[derive(Clone, Copy, Default)]
struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: CuStream,
}

thread_local! {
    static WAITING: Cell<([Configuration; DEPTH], usize)> = const {
        let none = Configuration {
            grid: Dim3 { x: 0, y: 0, z: 0 },
            block: Dim3 { x: 0, y: 0, z: 0 },
            shared_bytes: 0,
            stream: CuStream::NULL,
        };
        Cell::new(([none; DEPTH], 0))
    };
}

/// Registers a fat binary.
pub fn __cudaRegisterFatBinary(image: *mut c_void) -> *mut *mut c_void {
    surroundings::tell();
    registry::register(image)
}

/// The end of a binary's registrations: nothing to do, it is loaded at its first use.
pub fn __cudaRegisterFatBinaryEnd(_handle: *mut *mut c_void) {}

/// Forgets a fat binary.
pub fn __cudaUnregisterFatBinary(handle: *mut *mut c_void) {
    // SAFETY: generated code passes what it got from the registration.
    unsafe { registry::unregister(handle) }
}

/// Registers a kernel.
pub fn __cudaRegisterFunction(
    handle: *mut *mut c_void,
    host: *const c_void,
    _device_function: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_dimensions: *mut c_void,
    _grid_dimensions: *mut c_void,
    _warp_size: *mut c_int,
) {
    // SAFETY: generated code passes its own handle and a constant.
    unsafe { registry::kernel(handle, host, name) }
}

/// Registers a variable.
pub fn __cudaRegisterVar(
    handle: *mut *mut c_void,
    host: *mut c_void,
    _device_address: *mut c_char,
    name: *const c_char,
    _is_external: c_int,
    bytes: usize,
    _is_constant: c_int,
    _is_global: c_int,
) {
    // SAFETY: generated code passes its own handle and a constant.
    unsafe { registry::variable(handle, host, name, bytes, core::ptr::null_mut()) }
}

/// Registers a managed variable: the program finds its address at `host`.
pub fn __cudaRegisterManagedVar(
    handle: *mut *mut c_void,
    host: *mut *mut c_void,
    _device_address: *mut c_char,
    name: *const c_char,
    _is_external: c_int,
    bytes: usize,
    _is_constant: c_int,
    _is_global: c_int,
) {
    // SAFETY: generated code passes its own handle, a constant and its variable.
    unsafe { registry::variable(handle, host.cast(), name, bytes, host) }
}

/// Makes a binary's managed variables usable; the answer is whether it did.
pub fn __cudaInitModule(handle: *mut *mut c_void) -> c_char {
    // SAFETY: generated code passes its own handle.
    let done = inside(|| unsafe { registry::place_managed(handle) });
    c_char::from(error::record(done).is_success())
}

/// Keeps a launch's configuration until the launch asks for it; not 0 where it could not.
pub fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared_bytes: usize, stream: CuStream) -> c_uint {
    let (mut all, count) = WAITING.get();
    let Some(place) = all.get_mut(count) else {
        return 1;
    };
    *place = Configuration {
        grid,
        block,
        shared_bytes,
        stream,
    };
    WAITING.set((all, count + 1));
    0
}

/// Hands out the configuration that was kept last.
pub fn __cudaPopCallConfiguration(
    grid: *mut Dim3,
    block: *mut Dim3,
    shared_bytes: *mut usize,
    stream: *mut CuStream,
) -> CuResult {
    let (all, count) = WAITING.get();
    let Some(last) = count.checked_sub(1) else {
        return error::MISSING_CONFIGURATION;
    };
    WAITING.set((all, last));
    let kept = all[last];
    code(
        put(grid, kept.grid)
            .and_then(|()| put(block, kept.block))
            .and_then(|()| put(shared_bytes, kept.shared_bytes))
            .and_then(|()| put(stream, kept.stream)),
    )
}

/// The kernel behind a host function, for the launch of CUDA 13's generated code.
pub fn __cudaGetKernel(kernel: *mut CuKernel, host: *const c_void) -> CuResult {
    inside(|| {
        let found_kernel = match registry::find_kernel(host) {
            // Of a fat binary that the driver refuses: the launch says so. Code that `nvcc` made launches whatever this
            // answers, and a launch of nothing would hide why.
            Err(code) if code != error::INVALID_FUNCTION => CuKernel(host.cast_mut()),
            found => found?,
        };
        put(kernel, found_kernel)
    })
}

/// The same by its public name.
pub fn cudaGetKernel(kernel: *mut CuKernel, host: *const c_void) -> CuResult {
    inside(|| put(kernel, registry::find_kernel(host)?))
}

/// The kernel behind a host function, as a function of the thread's context.
pub fn cudaGetFuncBySymbol(function: *mut CuFunction, host: *const c_void) -> CuResult {
    inside(|| put(function, registry::find_function(host)?))
}

/// The address of a variable.
pub fn cudaGetSymbolAddress(pointer: *mut CuDevicePtr, symbol: *const c_void) -> CuResult {
    inside(|| put(pointer, registry::find_variable(symbol)?.0))
}

/// The bytes of a variable.
pub fn cudaGetSymbolSize(bytes: *mut usize, symbol: *const c_void) -> CuResult {
    inside(|| put(bytes, registry::find_variable(symbol)?.1))
}

/// What a kernel is called.
pub fn cudaFuncGetName(name: *mut *const c_char, host: *const c_void) -> CuResult {
    inside(|| match registry::name_of(host) {
        Some(known) => put(name, known.as_ptr()),
        None => check(driver::cuKernelGetName(name, registry::find_kernel(host)?)),
    })
}
