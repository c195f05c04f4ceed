// SPDX-License-Identifier: Apache-2.0
//! Linear device memory, managed memory, page-locked host memory, and what is known of an address.

use partage_abi::types::*;
use partage_abi::values::*;

use crate::capture;
use crate::context::current;
use crate::memory::{Freeable, memory};
use crate::state::{Answer, code, driver, store};
use crate::submission::before_free;

/// What `cuMemAllocPitch` rounds rows up to: the widest alignment that any access of a row needs.
const PITCH_ALIGNMENT: usize = 512;
/// The flags of page-locked memory that exist.
const HOST_ALLOC_MASK: u32 = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
const HOST_REGISTER_MASK: u32 = CU_MEMHOSTREGISTER_PORTABLE
    | CU_MEMHOSTREGISTER_DEVICEMAP
    | CU_MEMHOSTREGISTER_IOMEMORY
    | CU_MEMHOSTREGISTER_READ_ONLY;

// ---- capacity -------------------------------------------------------------------------------------------------

pub fn cuMemGetInfo(free: *mut c_uint, total: *mut c_uint) -> CuResult {
    // The first ABI has 32 bits: what does not fit is cut to the most that does.
    let cut = |bytes: u64| bytes.min(u64::from(c_uint::MAX)) as c_uint;
    code(capacity().and_then(|(left, all)| store(free, cut(left)).and(store(total, cut(all)))))
}

pub fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CuResult {
    code(capacity().and_then(|(left, all)| store(free, left as usize).and(store(total, all as usize))))
}

fn capacity() -> Answer<(u64, u64)> {
    let context = current()?;
    let driver = driver()?;
    Ok((driver.machine().free(context.device), driver.at(context.device).memory))
}

// ---- device memory --------------------------------------------------------------------------------------------

pub fn cuMemAlloc_v2(dptr: *mut CuDevicePtr, bytes: usize) -> CuResult {
    code(allocate(dptr, bytes as u64))
}

pub fn cuMemAllocPitch_v2(
    dptr: *mut CuDevicePtr,
    pitch: *mut usize,
    width_in_bytes: usize,
    height: usize,
    element_size_bytes: c_uint,
) -> CuResult {
    code(current().and_then(|_| {
        if pitch.is_null() || width_in_bytes == 0 || height == 0 || !matches!(element_size_bytes, 4 | 8 | 16) {
            return Err(CuResult::INVALID_VALUE);
        }
        let row = width_in_bytes
            .checked_next_multiple_of(PITCH_ALIGNMENT)
            .ok_or(CuResult::OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height).ok_or(CuResult::OUT_OF_MEMORY)?;
        allocate(dptr, bytes as u64)?;
        store(pitch, row)
    }))
}

pub fn cuMemAllocManaged(dptr: *mut CuDevicePtr, bytes: usize, flags: c_uint) -> CuResult {
    code(current().and_then(|context| {
        if dptr.is_null() || !matches!(flags, CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST) {
            return Err(CuResult::INVALID_VALUE);
        }
        capture::unsafe_call()?;
        store(dptr, memory()?.allocate_managed(&context, bytes as u64, flags)?.address)
    }))
}

pub fn cuMemFree_v2(dptr: CuDevicePtr) -> CuResult {
    code(current().and_then(|_| {
        if dptr == 0 {
            return Ok(());
        }
        let driver = driver()?;
        before_free(dptr)?;
        memory()?.free(driver, dptr, Freeable::Device)
    }))
}

fn allocate(dptr: *mut CuDevicePtr, bytes: u64) -> Answer {
    let context = current()?;
    if dptr.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    capture::unsafe_call()?;
    let driver = driver()?;
    store(dptr, memory()?.allocate(driver, &context, bytes)?.address)
}

pub fn cuMemGetAddressRange_v2(pbase: *mut CuDevicePtr, psize: *mut usize, dptr: CuDevicePtr) -> CuResult {
    code(current().and_then(|_| {
        let found = memory()?.find(dptr).ok_or(CuResult::NOT_FOUND)?;
        // Either may be null: the program does not want that one.
        if !pbase.is_null() {
            store(pbase, found.address)?;
        }
        if psize.is_null() {
            Ok(())
        } else {
            store(psize, found.bytes as usize)
        }
    }))
}

// ---- host memory ----------------------------------------------------------------------------------------------

pub fn cuMemAllocHost_v2(host: *mut *mut c_void, bytes: usize) -> CuResult {
    cuMemHostAlloc(host, bytes, CU_MEMHOSTALLOC_DEVICEMAP)
}

pub fn cuMemAllocHost(host: *mut *mut c_void, bytes: c_uint) -> CuResult {
    cuMemHostAlloc(host, bytes as usize, CU_MEMHOSTALLOC_DEVICEMAP)
}

pub fn cuMemHostAlloc(host: *mut *mut c_void, bytes: usize, flags: c_uint) -> CuResult {
    code(current().and_then(|context| {
        if host.is_null() || flags & !HOST_ALLOC_MASK != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        capture::unsafe_call()?;
        let made = memory()?.allocate_host(&context, bytes as u64, flags)?;
        store(host, made.address as *mut c_void)
    }))
}

pub fn cuMemFreeHost(p: *mut c_void) -> CuResult {
    code(current().and_then(|_| {
        if p.is_null() {
            return Ok(());
        }
        let driver = driver()?;
        before_free(p as u64)?;
        memory()?.free(driver, p as u64, Freeable::Host)
    }))
}

pub fn cuMemHostRegister_v2(p: *mut c_void, bytes: usize, flags: c_uint) -> CuResult {
    code(current().and_then(|context| {
        if p.is_null() || bytes == 0 || flags & !HOST_REGISTER_MASK != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        if flags & CU_MEMHOSTREGISTER_IOMEMORY != 0 {
            // Memory of other devices on the bus: there is no bus.
            return Err(CuResult::NOT_SUPPORTED);
        }
        capture::unsafe_call()?;
        memory()?.register(&context, p as u64, bytes as u64, flags)
    }))
}

pub fn cuMemHostRegister(p: *mut c_void, bytes: usize, flags: c_uint) -> CuResult {
    cuMemHostRegister_v2(p, bytes, flags)
}

pub fn cuMemHostUnregister(p: *mut c_void) -> CuResult {
    code(current().and_then(|_| {
        if p.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        let driver = driver()?;
        before_free(p as u64)?;
        let freed = memory()?.free(driver, p as u64, Freeable::Registered);
        freed.map_err(|_| CuResult::HOST_MEMORY_NOT_REGISTERED)
    }))
}

pub fn cuMemHostGetDevicePointer_v2(dptr: *mut CuDevicePtr, p: *mut c_void, flags: c_uint) -> CuResult {
    code(current().and_then(|_| {
        if flags != 0 || dptr.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        host_flags(p)?;
        // Unified addressing: devices use the same address.
        store(dptr, p as CuDevicePtr)
    }))
}

pub fn cuMemHostGetFlags(flags: *mut c_uint, p: *mut c_void) -> CuResult {
    code(current().and_then(|_| store(flags, host_flags(p)?)))
}

fn host_flags(p: *mut c_void) -> Answer<u32> {
    let found = memory()?.find(p as u64).ok_or(CuResult::INVALID_VALUE)?;
    // With unified addressing all of it is mapped, asked for or not.
    if found.is_host() {
        Ok(found.flags | CU_MEMHOSTALLOC_DEVICEMAP)
    } else {
        Err(CuResult::INVALID_VALUE)
    }
}
