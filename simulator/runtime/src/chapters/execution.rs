// SPDX-License-Identifier: Apache-2.0
//! Launches, attributes of kernels, occupancy.

use partage_abi::types::*;

use super::{inside, put};
use crate::context::check;
use crate::registry::{find_function, find_kernel};
use crate::types::{Dim3, FuncAttributes, LaunchConfig};
use crate::{driver, error};

/// Bytes of shared memory as the driver counts them.
fn shared(bytes: usize) -> Result<c_uint, CuResult> {
    c_uint::try_from(bytes).map_err(|_| CuResult::INVALID_VALUE)
}

/// The driver calls dimensions that no device has a wrong value; the runtime has a word for them.
fn refused(done: CuResult, grid: Dim3, block: Dim3) -> Result<(), CuResult> {
    if done != CuResult::INVALID_VALUE {
        return check(done);
    }
    let mut device = 0;
    check(driver::cuCtxGetDevice(&mut device))?;
    let limit = |attribute| {
        let mut value = 0;
        let found = driver::cuDeviceGetAttribute(&mut value, attribute, device).is_success();
        if found {
            u64::from(value.unsigned_abs())
        } else {
            u64::MAX
        }
    };
    let asked = [block.x, block.y, block.z, grid.x, grid.y, grid.z].map(u64::from);
    let is_wrong = asked
        .iter()
        .zip(2..)
        .any(|(&asked, attribute)| asked == 0 || asked > limit(attribute))
        || asked[..3].iter().product::<u64>() > limit(1);
    Err(if is_wrong { error::INVALID_CONFIGURATION } else { done })
}

/// A launch.
pub fn cudaLaunchKernel(
    host: *const c_void,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared_bytes: usize,
    stream: CuStream,
) -> CuResult {
    inside(|| {
        let function = find_function(host)?;
        let (g, b, none) = (grid, block, core::ptr::null_mut());
        let bytes = shared(shared_bytes)?;
        let done = driver::cuLaunchKernel(function, g.x, g.y, g.z, b.x, b.y, b.z, bytes, stream, arguments, none);
        refused(done, grid, block)
    })
}

/// A launch by the handle of the kernel, as CUDA 13's generated code does it.
pub fn __cudaLaunchKernel(
    kernel: CuKernel,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared_bytes: usize,
    stream: CuStream,
) -> CuResult {
    cudaLaunchKernel(kernel.0, grid, block, arguments, shared_bytes, stream)
}

/// A launch whose blocks may wait for each other.
pub fn cudaLaunchCooperativeKernel(
    host: *const c_void,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared_bytes: usize,
    stream: CuStream,
) -> CuResult {
    inside(|| {
        let function = find_function(host)?;
        let (g, b) = (grid, block);
        let bytes = shared(shared_bytes)?;
        let done = driver::cuLaunchCooperativeKernel(function, g.x, g.y, g.z, b.x, b.y, b.z, bytes, stream, arguments);
        refused(done, grid, block)
    })
}

/// The driver's form of a launch's description.
fn configuration(config: *const LaunchConfig) -> Result<CuLaunchConfig, CuResult> {
    // SAFETY: the program's struct, or null.
    let given = unsafe { config.as_ref() }.ok_or(CuResult::INVALID_VALUE)?;
    Ok(CuLaunchConfig {
        gridDimX: given.grid.x,
        gridDimY: given.grid.y,
        gridDimZ: given.grid.z,
        blockDimX: given.block.x,
        blockDimY: given.block.y,
        blockDimZ: given.block.z,
        sharedMemBytes: shared(given.shared_bytes)?,
        hStream: given.stream,
        attrs: given.attributes,
        numAttrs: given.attribute_count,
    })
}

/// A launch with attributes.
pub fn cudaLaunchKernelExC(config: *const LaunchConfig, host: *const c_void, arguments: *mut *mut c_void) -> CuResult {
    launch_configured(config, host, arguments, |stream| stream)
}

/// A launch with attributes, where the default stream is the thread's own.
pub fn cudaLaunchKernelExC_ptsz(
    config: *const LaunchConfig,
    host: *const c_void,
    arguments: *mut *mut c_void,
) -> CuResult {
    launch_configured(config, host, arguments, super::per_thread::own)
}

fn launch_configured(
    config: *const LaunchConfig,
    host: *const c_void,
    arguments: *mut *mut c_void,
    stream: impl FnOnce(CuStream) -> CuStream,
) -> CuResult {
    inside(|| {
        let function = find_function(host)?;
        let mut asked = configuration(config)?;
        asked.hStream = stream(asked.hStream);
        let grid = Dim3 {
            x: asked.gridDimX,
            y: asked.gridDimY,
            z: asked.gridDimZ,
        };
        let block = Dim3 {
            x: asked.blockDimX,
            y: asked.blockDimY,
            z: asked.blockDimZ,
        };
        let done = driver::cuLaunchKernelEx(&asked, function, arguments, core::ptr::null_mut());
        refused(done, grid, block)
    })
}

/// Attributes of a kernel.
pub fn cudaFuncGetAttributes(attributes: *mut FuncAttributes, host: *const c_void) -> CuResult {
    inside(|| {
        let function = find_function(host)?;
        let get = |attribute| {
            let mut value = 0;
            // An attribute that this driver does not know is 0.
            let found = driver::cuFuncGetAttribute(&mut value, attribute, function).is_success();
            if found { value } else { 0 }
        };
        let bytes = |attribute| usize::try_from(get(attribute)).unwrap_or(0);
        put(
            attributes,
            FuncAttributes {
                shared_bytes: bytes(1),
                constant_bytes: bytes(2),
                local_bytes: bytes(3),
                max_threads_per_block: get(0),
                registers: get(4),
                ptx_version: get(5),
                binary_version: get(6),
                cache_mode_ca: get(7),
                max_dynamic_shared_bytes: get(8),
                preferred_carveout: get(9),
                cluster_dim_must_be_set: get(10),
                required_cluster: [get(11), get(12), get(13)],
                cluster_policy: get(15),
                non_portable_cluster: get(14),
                reserved: [0; 17],
            },
        )
    })
}

/// Sets an attribute of a kernel.
pub fn cudaFuncSetAttribute(host: *const c_void, attribute: c_int, value: c_int) -> CuResult {
    inside(|| check(driver::cuFuncSetAttribute(find_function(host)?, attribute, value)))
}

/// Sets an attribute of a kernel on one device.
pub fn cudaKernelSetAttributeForDevice(kernel: CuKernel, attribute: c_int, value: c_int, device: c_int) -> CuResult {
    inside(|| {
        check(driver::cuKernelSetAttribute(
            attribute,
            value,
            find_kernel(kernel.0)?,
            device,
        ))
    })
}

/// Says what a kernel prefers of the memory that L1 and shared memory have in common.
pub fn cudaFuncSetCacheConfig(host: *const c_void, config: c_int) -> CuResult {
    inside(|| check(driver::cuFuncSetCacheConfig(find_function(host)?, config)))
}

/// Where an argument of a kernel lies, and its bytes.
pub fn cudaFuncGetParamInfo(host: *const c_void, index: usize, offset: *mut usize, bytes: *mut usize) -> CuResult {
    inside(|| check(driver::cuFuncGetParamInfo(find_function(host)?, index, offset, bytes)))
}

/// How many arguments a kernel has.
pub fn cudaFuncGetParamCount(host: *const c_void, count: *mut usize) -> CuResult {
    inside(|| check(driver::cuFuncGetParamCount(find_function(host)?, count)))
}

/// How many blocks a multiprocessor holds.
pub fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    host: *const c_void,
    threads: c_int,
    shared_bytes: usize,
) -> CuResult {
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared_bytes, 0)
}

/// How many blocks a multiprocessor holds.
pub fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut c_int,
    host: *const c_void,
    threads: c_int,
    shared_bytes: usize,
    flags: c_uint,
) -> CuResult {
    inside(|| {
        let function = find_function(host)?;
        check(driver::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            blocks,
            function,
            threads,
            shared_bytes,
            flags,
        ))
    })
}

/// How much shared memory each of so many blocks can have.
pub fn cudaOccupancyAvailableDynamicSMemPerBlock(
    bytes: *mut usize,
    host: *const c_void,
    blocks: c_int,
    threads: c_int,
) -> CuResult {
    inside(|| {
        let function = find_function(host)?;
        check(driver::cuOccupancyAvailableDynamicSMemPerBlock(
            bytes, function, blocks, threads,
        ))
    })
}

/// How large a cluster can be.
pub fn cudaOccupancyMaxPotentialClusterSize(
    size: *mut c_int,
    host: *const c_void,
    config: *const LaunchConfig,
) -> CuResult {
    inside(|| {
        let asked = configuration(config)?;
        check(driver::cuOccupancyMaxPotentialClusterSize(
            size,
            find_function(host)?,
            &asked,
        ))
    })
}

/// How many clusters run side by side.
pub fn cudaOccupancyMaxActiveClusters(
    clusters: *mut c_int,
    host: *const c_void,
    config: *const LaunchConfig,
) -> CuResult {
    inside(|| {
        let asked = configuration(config)?;
        check(driver::cuOccupancyMaxActiveClusters(
            clusters,
            find_function(host)?,
            &asked,
        ))
    })
}
