// SPDX-License-Identifier: Apache-2.0
//! Occupancy: how many blocks of a kernel run at once, and which block size makes the most of a device.

use std::sync::Arc;

use partage_abi::types::*;
use partage_machine::Device;

use super::flavours::answer;

use crate::context::current;
use crate::function::Function;
use crate::library;
use crate::occupancy::{Demand, Limits};
use crate::state::{Answer, driver, store};

/// `CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE`.
const FLAGS: u32 = 1;

fn found(function: CuFunction) -> Answer<(Arc<Function>, Arc<Device>)> {
    let context = current()?;
    Ok((library::lookup_function(function)?, driver()?.at(context.device)))
}

pub fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: CuFunction,
    block_size: c_int,
    dynamic_shared: usize,
) -> CuResult {
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, dynamic_shared, 0)
}

pub fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut c_int,
    function: CuFunction,
    block_size: c_int,
    dynamic_shared: usize,
    flags: c_uint,
) -> CuResult {
    answer(|| {
        let (function, device) = found(function)?;
        if blocks.is_null() || block_size <= 0 || flags & !FLAGS != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        store(
            blocks,
            resident(&function, &device, block_size as u32, dynamic_shared) as c_int,
        )
    })
}

/// Blocks of a size that a multiprocessor holds; 0 for a size that the kernel does not allow.
fn resident(function: &Function, device: &Device, threads: u32, dynamic_shared: usize) -> u32 {
    let dynamic_shared = u32::try_from(dynamic_shared).unwrap_or(u32::MAX);
    if threads > function.max_threads(device) || dynamic_shared > function.max_dynamic_shared(device) {
        return 0;
    }
    Limits::of(device).blocks(&Demand::of(function, threads, dynamic_shared))
}

pub fn cuOccupancyMaxPotentialBlockSize(
    min_grid_size: *mut c_int,
    block_size: *mut c_int,
    function: CuFunction,
    shared_of: CuOccupancyB2DSize,
    dynamic_shared: usize,
    block_size_limit: c_int,
) -> CuResult {
    cuOccupancyMaxPotentialBlockSizeWithFlags(
        min_grid_size,
        block_size,
        function,
        shared_of,
        dynamic_shared,
        block_size_limit,
        0,
    )
}

pub fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    min_grid_size: *mut c_int,
    block_size: *mut c_int,
    function: CuFunction,
    shared_of: CuOccupancyB2DSize,
    dynamic_shared: usize,
    block_size_limit: c_int,
    flags: c_uint,
) -> CuResult {
    answer(|| {
        let (function, device) = found(function)?;
        if min_grid_size.is_null() || block_size.is_null() || flags & !FLAGS != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let limits = Limits::of(&device);
        let most = function.max_threads(&device);
        let most = u32::try_from(block_size_limit)
            .ok()
            .filter(|&limit| limit > 0)
            .map_or(most, |limit| limit.min(most));
        let (mut best, mut best_blocks, mut best_threads) = (0, 0, 0);
        // Whole warps, the largest first: of equal occupancies the larger block wins.
        let sizes = std::iter::once(most).chain((1..most.div_ceil(limits.warp)).rev().map(|warps| warps * limits.warp));
        for threads in sizes {
            let shared = match shared_of {
                // SAFETY: the program's own function, with the argument that its type says.
                Some(shared_of) => unsafe { shared_of(threads as c_int) },
                None => dynamic_shared,
            };
            let blocks = resident(&function, &device, threads, shared);
            if blocks * threads > best {
                (best, best_blocks, best_threads) = (blocks * threads, blocks, threads);
            }
        }
        store(min_grid_size, (best_blocks * limits.multiprocessors) as c_int)?;
        store(block_size, best_threads as c_int)
    })
}

pub fn cuOccupancyAvailableDynamicSMemPerBlock(
    bytes: *mut usize,
    function: CuFunction,
    blocks: c_int,
    block_size: c_int,
) -> CuResult {
    answer(|| {
        let (function, device) = found(function)?;
        if bytes.is_null() || blocks <= 0 || block_size <= 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let limits = Limits::of(&device);
        let without = Demand::of(&function, block_size as u32, 0);
        if limits.blocks(&without) < blocks as u32 {
            return Err(CuResult::INVALID_VALUE);
        }
        let most = function.max_dynamic_shared(&device);
        store(
            bytes,
            limits.dynamic_shared(without.shared, blocks as u32).min(most) as usize,
        )
    })
}
