// SPDX-License-Identifier: Apache-2.0
//! Launches, and what a kernel is.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use partage_abi::types::{CuFunction, CuKernel, CuLaunchAttribute, CuLaunchConfig, CuStream};

use crate::code::{self, Dim3};
use crate::device;
use crate::driver::call;
use crate::error::{Answer, Code};
use crate::rows::rows;

/// `cudaFuncAttributes`: 144 bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct FuncAttributes {
    shared: usize,
    constant: usize,
    local: usize,
    max_threads: c_int,
    registers: c_int,
    ptx_version: c_int,
    binary_version: c_int,
    cache_mode: c_int,
    max_dynamic_shared: c_int,
    preferred_carveout: c_int,
    cluster_must_be_set: c_int,
    cluster: [c_int; 3],
    cluster_policy: c_int,
    non_portable_cluster: c_int,
    reserved: [c_int; 16],
}

/// `cudaLaunchConfig_t`: 56 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: CuStream,
    attributes: *mut CuLaunchAttribute,
    count: c_uint,
}

impl LaunchConfig {
    /// As the driver takes it.
    fn for_driver(&self) -> Result<CuLaunchConfig, Code> {
        Ok(CuLaunchConfig {
            gridDimX: self.grid.x,
            gridDimY: self.grid.y,
            gridDimZ: self.grid.z,
            blockDimX: self.block.x,
            blockDimY: self.block.y,
            blockDimZ: self.block.z,
            sharedMemBytes: bytes(self.shared)?,
            hStream: self.stream,
            attrs: self.attributes,
            numAttrs: self.count,
        })
    }
}

/// Shared memory as the driver counts it.
fn bytes(shared: usize) -> Result<c_uint, Code> {
    c_uint::try_from(shared).map_err(|_| Code::INVALID_VALUE)
}

fn launch(
    function: CuFunction,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    rest: (usize, CuStream),
) -> Answer {
    let (shared, stream) = (bytes(rest.0)?, rest.1);
    call!(cuLaunchKernel(
        function,
        grid.x,
        grid.y,
        grid.z,
        block.x,
        block.y,
        block.z,
        shared,
        stream,
        arguments,
        ptr::null_mut(),
    ))
}

/// A function's attributes, each by the driver's number.
fn attributes(function: CuFunction) -> Result<FuncAttributes, Code> {
    let of = |number: c_int| {
        let mut value = 0;
        let known = call!(cuFuncGetAttribute(&raw mut value, number, function));
        known.map(|()| value)
    };
    let bytes = |number: c_int| of(number).map(|value| usize::try_from(value).unwrap_or(0));
    Ok(FuncAttributes {
        shared: bytes(1)?,
        constant: bytes(2)?,
        local: bytes(3)?,
        max_threads: of(0)?,
        registers: of(4)?,
        ptx_version: of(5)?,
        binary_version: of(6)?,
        cache_mode: of(7)?,
        max_dynamic_shared: of(8)?,
        preferred_carveout: of(9)?,
        // A driver before clusters does not know these.
        cluster_must_be_set: of(10).unwrap_or(0),
        cluster: [of(11).unwrap_or(0), of(12).unwrap_or(0), of(13).unwrap_or(0)],
        cluster_policy: of(15).unwrap_or(0),
        non_portable_cluster: of(14).unwrap_or(0),
        reserved: [0; 16],
    })
}

rows! {
    both inside cuLaunchKernel: cudaLaunchKernel(
        host: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: usize, stream: CuStream,
    ) {
        launch(code::function(host)?, grid, block, arguments, (shared, stream))
    }
    both inside cuLaunchKernel_ptsz: cudaLaunchKernel_ptsz(
        host: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: usize, stream: CuStream,
    ) {
        let stream = if stream.is_null() { PER_THREAD } else { stream };
        launch(code::function(host)?, grid, block, arguments, (shared, stream))
    }
    both inside cuLaunchKernelEx: cudaLaunchKernelExC(
        config: *const LaunchConfig, host: *const c_void, arguments: *mut *mut c_void,
    ) {
        if config.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the program's configuration, which is not null.
        let config = unsafe { (*config).for_driver() }?;
        call!(cuLaunchKernelEx(&raw const config, code::function(host)?, arguments, ptr::null_mut()))
    }
    both inside cuLaunchCooperativeKernel: cudaLaunchCooperativeKernel(
        host: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: usize, stream: CuStream,
    ) {
        let function = code::function(host)?;
        call!(cuLaunchCooperativeKernel(
            function, grid.x, grid.y, grid.z, block.x, block.y, block.z, bytes(shared)?, stream, arguments,
        ))
    }
    both inside cuLibraryGetKernel: __cudaGetKernel(to: *mut CuKernel, host: *const c_void) {
        let kernel = code::kernel(host)?;
        // SAFETY: the program's place.
        unsafe { to.write(kernel) };
        Ok(())
    }
    both inside cuLaunchKernel: __cudaLaunchKernel(
        kernel: CuKernel, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: usize, stream: CuStream,
    ) {
        launch(code::function(kernel.0)?, grid, block, arguments, (shared, stream))
    }
    both inside cuFuncGetAttribute: cudaFuncGetAttributes(to: *mut FuncAttributes, host: *const c_void) {
        let found = attributes(code::function(host)?)?;
        // SAFETY: the program's place.
        unsafe { to.write(found) };
        Ok(())
    }
    both inside cuFuncSetAttribute: cudaFuncSetAttribute(host: *const c_void, attribute: c_int, value: c_int) {
        call!(cuFuncSetAttribute(code::function(host)?, attribute, value))
    }
    both inside cuFuncSetCacheConfig: cudaFuncSetCacheConfig(host: *const c_void, config: c_int) {
        call!(cuFuncSetCacheConfig(code::function(host)?, config))
    }
    both inside cuKernelSetAttribute: cudaKernelSetAttributeForDevice(
        kernel: CuKernel, attribute: c_int, value: c_int, device: c_int,
    ) {
        device::outside()?;
        call!(cuKernelSetAttribute(attribute, value, kernel, device))
    }
    both inside cuOccupancyMaxActiveBlocksPerMultiprocessor: cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        count: *mut c_int, host: *const c_void, block: c_int, shared: usize,
    ) {
        call!(cuOccupancyMaxActiveBlocksPerMultiprocessor(count, code::function(host)?, block, shared))
    }
    both inside cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags:
        cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            count: *mut c_int, host: *const c_void, block: c_int, shared: usize, flags: c_uint,
        )
    {
        let function = code::function(host)?;
        call!(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count, function, block, shared, flags))
    }
    both inside cuOccupancyAvailableDynamicSMemPerBlock: cudaOccupancyAvailableDynamicSMemPerBlock(
        shared: *mut usize, host: *const c_void, blocks: c_int, block: c_int,
    ) {
        call!(cuOccupancyAvailableDynamicSMemPerBlock(shared, code::function(host)?, blocks, block))
    }
}

/// The stream that stands for each thread's own (`CU_STREAM_PER_THREAD`).
const PER_THREAD: CuStream = CuStream(ptr::without_provenance_mut(2));
