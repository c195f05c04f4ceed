// SPDX-License-Identifier: Apache-2.0
//! Stream-ordered allocation: pools, and memory that a stream allocates and frees.
//!
//! An allocation is there at once; a free happens when the stream comes to it. While the stream is captured both
//! become nodes, and the memory is the graph's: the pool only says on which device it is and who reaches it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use partage_abi::types::*;
use partage_abi::values::*;

use super::flavours::both_flavours;
use crate::capture;
use crate::executor::Op;
use crate::handles::{HandleKind, Handles};
use crate::memory::{Asker, Freed, Pool, PoolSharing, create_pool, memory};
use crate::state::{Answer, Driver, code, driver, store};
use crate::stream::Stream;

static POOLS: Handles<Pool> = Handles::new(HandleKind::MemoryPool);

/// The pools of one visible device: the default one for ever, and the one that streams allocate from.
struct DevicePools {
    default: CuMemoryPool,
    current: Mutex<CuMemoryPool>,
}

// SAFETY: handles are numbers.
unsafe impl Send for DevicePools {}
// SAFETY: as above.
unsafe impl Sync for DevicePools {}

both_flavours! {
    cuMemAllocAsync cuMemAllocAsync_ptsz (dptr: *mut CuDevicePtr, bytes: usize, stream: CuStream; stream) => {
        let stream = stream.find()?;
        let pool = find(current(stream.context()?.ordinal)?)?;
        allocate(dptr, bytes, &pool, &stream)
    }
    cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz (
        dptr: *mut CuDevicePtr, bytes: usize, pool: CuMemoryPool, stream: CuStream; stream
    ) => {
        let stream = stream.find()?;
        allocate(dptr, bytes, &find(pool)?, &stream)
    }
    cuMemFreeAsync cuMemFreeAsync_ptsz (dptr: CuDevicePtr, stream: CuStream; stream) => {
        let stream = stream.find()?;
        if dptr == 0 {
            return Ok(());
        }
        let captured = capture::add(&stream, |graph, after| Ok((graph.add_free(dptr, after)?, ())))?;
        match captured {
            Some(()) => Ok(()),
            None => free(dptr, &stream),
        }
    }
}

fn free(address: u64, stream: &Stream) -> Answer {
    let memory = memory()?;
    {
        let mut graphs = memory.graph_pool();
        if let Some(allocation) = graphs.live_at(address) {
            let op = stream.submit(Op::Free(allocation.clone()), &[])?;
            graphs.set_freed(&allocation, Some((stream.key, op)));
            return Ok(());
        }
    }
    let allocation = memory.begin_free(address)?;
    match stream.submit(Op::Free(allocation.clone()), &[]) {
        Ok(op) => {
            let facts = stream.facts();
            let (stream, context) = (facts.key, facts.context);
            memory.give_to_pool(&allocation, Freed { stream, context, op });
            Ok(())
        }
        Err(code) => {
            memory.undo_free(&allocation);
            Err(code)
        }
    }
}

fn allocate(dptr: *mut CuDevicePtr, bytes: usize, pool: &Arc<Pool>, stream: &Stream) -> Answer {
    if dptr.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    let captured = capture::add(stream, |graph, after| {
        if pool.is_imported() {
            return Err(CuResult::INVALID_VALUE);
        }
        let (key, made) = graph.add_allocation(pool.wish(bytes as u64), after)?;
        Ok((key, made.address))
    })?;
    if let Some(address) = captured {
        return store(dptr, address);
    }
    let (driver, context) = (driver()?, stream.context()?);
    let asker = Asker {
        stream: stream.key,
        seen: stream.seen(),
    };
    let (made, waits_for) = memory()?.allocate_from(driver, &context, pool, &asker, bytes as u64)?;
    if !waits_for.is_empty() {
        stream.submit(Op::Nothing, &waits_for)?;
    }
    store(dptr, made.address)
}

// ---- pools ----------------------------------------------------------------------------------------------------

pub fn cuMemPoolCreate(pool: *mut CuMemoryPool, pool_props: *const CuMemPoolProps) -> CuResult {
    code(driver().and_then(|driver| {
        if pool.is_null() || pool_props.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null, and by the contract of the entry point it leads to this structure.
        let wish = unsafe { pool_props.read_unaligned() };
        if wish.allocType != CU_MEM_ALLOCATION_TYPE_PINNED {
            return Err(CuResult::INVALID_VALUE);
        }
        let sharing = match wish.handleTypes {
            CU_MEM_HANDLE_TYPE_NONE => PoolSharing::Alone,
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR => PoolSharing::exports(),
            _ => return Err(CuResult::NOT_SUPPORTED),
        };
        let ordinal = device_of(&wish.location)?;
        let device = driver.device(ordinal)?.index;
        store(
            pool,
            enter(create_pool(driver, device, ordinal, wish.maxSize as u64, sharing))?,
        )
    }))
}

pub fn cuMemPoolDestroy(pool: CuMemoryPool) -> CuResult {
    code(driver().and_then(|driver| {
        let ordinal = find(pool)?.ordinal;
        let of_device = &device_pools(driver)?[ordinal as usize];
        if of_device.default == pool {
            return Err(CuResult::INVALID_VALUE);
        }
        let mut current = of_device.current.lock().unwrap_or_else(PoisonError::into_inner);
        if *current == pool {
            *current = of_device.default;
        }
        // What is allocated from it stays; the last of it takes the pool along. Until then it keeps no more than that.
        if let Some(pool) = POOLS.remove(pool.0) {
            pool.figures().threshold = 0;
            pool.trim(driver, 0);
        }
        Ok(())
    }))
}

pub fn cuMemPoolTrimTo(pool: CuMemoryPool, min_bytes_to_keep: usize) -> CuResult {
    code(driver().and_then(|driver| {
        find(pool)?.trim(driver, min_bytes_to_keep as u64);
        Ok(())
    }))
}

pub fn cuMemPoolGetAttribute(pool: CuMemoryPool, attr: c_int, value: *mut c_void) -> CuResult {
    code(find(pool).and_then(|pool| {
        let figures = pool.figures();
        match attr {
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES..=CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                store(value.cast(), c_int::from(!figures.reuse_off[attr as usize - 1]))
            }
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => store(value.cast(), figures.threshold),
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => store(value.cast(), figures.reserved()),
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => store(value.cast(), figures.reserved_high),
            CU_MEMPOOL_ATTR_USED_MEM_CURRENT => store(value.cast(), figures.used),
            CU_MEMPOOL_ATTR_USED_MEM_HIGH => store(value.cast(), figures.used_high),
            CU_MEMPOOL_ATTR_ALLOCATION_TYPE => store(value.cast(), CU_MEM_ALLOCATION_TYPE_PINNED),
            CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES if pool.is_shareable() => {
                store(value.cast(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
            }
            CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES => store(value.cast(), CU_MEM_HANDLE_TYPE_NONE),
            CU_MEMPOOL_ATTR_LOCATION_ID => store(value.cast(), pool.ordinal),
            CU_MEMPOOL_ATTR_LOCATION_TYPE => store(value.cast(), CU_MEM_LOCATION_TYPE_DEVICE),
            CU_MEMPOOL_ATTR_MAX_POOL_SIZE => store(value.cast(), pool.limit),
            CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED => store(value.cast(), 0),
            _ => Err(CuResult::INVALID_VALUE),
        }
    }))
}

pub fn cuMemPoolSetAttribute(pool: CuMemoryPool, attr: c_int, value: *mut c_void) -> CuResult {
    code(find(pool).and_then(|pool| {
        if value.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null, and by the contract of the entry point as wide as the attribute is.
        let word = || unsafe { value.cast::<c_int>().read_unaligned() };
        // SAFETY: as above.
        let long = || unsafe { value.cast::<u64>().read_unaligned() };
        let mut figures = pool.figures();
        match attr {
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES..=CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                figures.reuse_off[attr as usize - 1] = word() == 0;
            }
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => figures.threshold = long(),
            // High marks can only be set back, and then are what is now.
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if long() == 0 => figures.reserved_high = figures.reserved(),
            CU_MEMPOOL_ATTR_USED_MEM_HIGH if long() == 0 => figures.used_high = figures.used,
            _ => return Err(CuResult::INVALID_VALUE),
        }
        Ok(())
    }))
}

pub fn cuMemPoolSetAccess(pool: CuMemoryPool, map: *const CuMemAccessDesc, count: usize) -> CuResult {
    code(driver().and_then(|driver| {
        let pool = find(pool)?;
        if map.is_null() || count == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        for place in 0..count {
            // SAFETY: not null, and by the contract of the entry point `count` entries long.
            let wish = unsafe { map.add(place).read_unaligned() };
            let device = driver.device(device_of(&wish.location)?)?.index;
            let is_allowed = match wish.flags {
                CU_MEM_ACCESS_FLAGS_PROT_READWRITE => true,
                // The device that has the memory always reaches it.
                CU_MEM_ACCESS_FLAGS_PROT_NONE if device != pool.device => false,
                _ => return Err(CuResult::INVALID_VALUE),
            };
            memory()?.set_pool_access(&pool, device, is_allowed);
        }
        Ok(())
    }))
}

pub fn cuMemPoolGetAccess(flags: *mut c_int, mem_pool: CuMemoryPool, location: *mut CuMemLocation) -> CuResult {
    code(driver().and_then(|driver| {
        let pool = find(mem_pool)?;
        if location.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null, and by the contract of the entry point it leads to this structure.
        let ordinal = device_of(&unsafe { location.read_unaligned() })?;
        let is_reached = pool.is_reached_from(driver.device(ordinal)?.index);
        store(
            flags,
            if is_reached {
                CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            } else {
                CU_MEM_ACCESS_FLAGS_PROT_NONE
            },
        )
    }))
}

// ---- the pools of a device ------------------------------------------------------------------------------------

pub fn cuDeviceGetDefaultMemPool(pool_out: *mut CuMemoryPool, dev: CuDevice) -> CuResult {
    code(driver().and_then(|driver| {
        driver.device(dev)?;
        store(pool_out, device_pools(driver)?[dev as usize].default)
    }))
}

pub fn cuDeviceGetMemPool(pool: *mut CuMemoryPool, dev: CuDevice) -> CuResult {
    code(current(dev).and_then(|current| store(pool, current)))
}

pub fn cuDeviceSetMemPool(dev: CuDevice, pool: CuMemoryPool) -> CuResult {
    code(driver().and_then(|driver| {
        driver.device(dev)?;
        let chosen = find(pool)?;
        if chosen.ordinal != dev || chosen.is_imported() {
            return Err(CuResult::INVALID_VALUE);
        }
        *device_pools(driver)?[dev as usize]
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = pool;
        Ok(())
    }))
}

pub fn cuMemGetDefaultMemPool(pool_out: *mut CuMemoryPool, location: *mut CuMemLocation, kind: c_int) -> CuResult {
    match located(location, kind) {
        Ok(device) => cuDeviceGetDefaultMemPool(pool_out, device),
        Err(code) => code,
    }
}

pub fn cuMemGetMemPool(pool: *mut CuMemoryPool, location: *mut CuMemLocation, kind: c_int) -> CuResult {
    match located(location, kind) {
        Ok(device) => cuDeviceGetMemPool(pool, device),
        Err(code) => code,
    }
}

pub fn cuMemSetMemPool(location: *mut CuMemLocation, kind: c_int, pool: CuMemoryPool) -> CuResult {
    match located(location, kind) {
        Ok(device) => cuDeviceSetMemPool(device, pool),
        Err(code) => code,
    }
}

fn current(dev: CuDevice) -> Answer<CuMemoryPool> {
    let driver = driver()?;
    driver.device(dev)?;
    let current = device_pools(driver)?[dev as usize]
        .current
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    Ok(*current)
}

fn device_pools(driver: &Driver) -> Answer<&'static [DevicePools]> {
    static ALL: OnceLock<Vec<DevicePools>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let pools = driver.visible.iter().enumerate().map(|(ordinal, &device)| {
            let default =
                enter(create_pool(driver, device, ordinal as i32, 0, PoolSharing::Alone)).unwrap_or(CuMemoryPool::NULL);
            DevicePools {
                default,
                current: Mutex::new(default),
            }
        });
        pools.collect()
    });
    Ok(all)
}

pub(super) fn enter(pool: Arc<Pool>) -> Answer<CuMemoryPool> {
    let given = POOLS.insert(pool);
    if given.is_null() {
        Err(CuResult::OUT_OF_MEMORY)
    } else {
        Ok(CuMemoryPool(given))
    }
}

pub(super) fn find(pool: CuMemoryPool) -> Answer<Arc<Pool>> {
    driver()?;
    POOLS.get(pool.0).ok_or(CuResult::INVALID_VALUE)
}

fn located(location: *mut CuMemLocation, kind: c_int) -> Answer<CuDevice> {
    driver()?;
    if location.is_null() || kind != CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: not null, and by the contract of the entry point it leads to this structure.
    device_of(&unsafe { location.read_unaligned() })
}

/// The device that is meant. Pools of host memory are not built.
pub(super) fn device_of(location: &CuMemLocation) -> Answer<CuDevice> {
    match location.kind {
        CU_MEM_LOCATION_TYPE_DEVICE => Ok(location.id),
        CU_MEM_LOCATION_TYPE_HOST | CU_MEM_LOCATION_TYPE_HOST_NUMA | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => {
            Err(CuResult::NOT_SUPPORTED)
        }
        _ => Err(CuResult::INVALID_VALUE),
    }
}
