// SPDX-License-Identifier: Apache-2.0
//! Virtual memory management: physical memory, address ranges, and what may reach them. Handles that cross processes
//! are not built.

use std::sync::Arc;

use partage_abi::types::*;
use partage_abi::values::*;

use crate::handles::{HandleKind, Handles};
use crate::memory::{LARGE_PAGE, Physical};
use crate::state::{Answer, code, driver, store};

static PHYSICAL: Handles<Physical> = Handles::new(HandleKind::MemoryAllocation);

pub fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    prop: *const CuMemAllocationProp,
    option: c_int,
) -> CuResult {
    code(driver().and_then(|_| {
        location(&properties(prop)?)?;
        match option {
            CU_MEM_ALLOC_GRANULARITY_MINIMUM | CU_MEM_ALLOC_GRANULARITY_RECOMMENDED => {
                store(granularity, LARGE_PAGE as usize)
            }
            _ => Err(CuResult::INVALID_VALUE),
        }
    }))
}

pub fn cuMemCreate(
    handle: *mut CuMemGenericAllocationHandle,
    size: usize,
    prop: *const CuMemAllocationProp,
    flags: c_ulonglong,
) -> CuResult {
    code(driver().and_then(|driver| {
        let properties = properties(prop)?;
        let bytes = size as u64;
        if handle.is_null() || bytes == 0 || !bytes.is_multiple_of(LARGE_PAGE) || flags != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let ordinal = location(&properties)?;
        if properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE {
            return Err(CuResult::NOT_SUPPORTED);
        }
        let made = driver.memory.create_physical(driver, ordinal, bytes, properties)?;
        let given = PHYSICAL.insert(made);
        if given.is_null() {
            Err(CuResult::OUT_OF_MEMORY)
        } else {
            store(handle, given as u64)
        }
    }))
}

pub fn cuMemRelease(handle: CuMemGenericAllocationHandle) -> CuResult {
    code(find(handle).map(|physical| {
        if physical.let_go() {
            PHYSICAL.remove(handle as *mut c_void);
        }
    }))
}

pub fn cuMemRetainAllocationHandle(handle: *mut CuMemGenericAllocationHandle, addr: *mut c_void) -> CuResult {
    code(driver().and_then(|driver| {
        let (_, physical) = driver.memory.physical_at(addr as u64)?;
        physical.hold();
        // The handle it already has, if one is still held; else a new one.
        let known = PHYSICAL
            .handle_of(&physical)
            .unwrap_or_else(|| PHYSICAL.insert(physical.clone()));
        store(handle, known as u64)
    }))
}

pub fn cuMemGetAllocationPropertiesFromHandle(
    prop: *mut CuMemAllocationProp,
    handle: CuMemGenericAllocationHandle,
) -> CuResult {
    code(find(handle).and_then(|physical| store(prop, physical.properties)))
}

pub fn cuMemAddressReserve(
    ptr: *mut CuDevicePtr,
    size: usize,
    alignment: usize,
    addr: CuDevicePtr,
    flags: c_ulonglong,
) -> CuResult {
    code(driver().and_then(|driver| {
        let (bytes, align) = (size as u64, (alignment as u64).max(LARGE_PAGE));
        let is_sound = bytes > 0 && bytes.is_multiple_of(LARGE_PAGE) && align.is_power_of_two() && flags == 0;
        if ptr.is_null() || !is_sound {
            return Err(CuResult::INVALID_VALUE);
        }
        store(ptr, driver.memory.reserve_addresses(bytes, align, addr)?)
    }))
}

pub fn cuMemAddressFree(ptr: CuDevicePtr, size: usize) -> CuResult {
    code(driver().and_then(|driver| driver.memory.free_addresses(ptr, size as u64)))
}

pub fn cuMemMap(
    ptr: CuDevicePtr,
    size: usize,
    offset: usize,
    handle: CuMemGenericAllocationHandle,
    flags: c_ulonglong,
) -> CuResult {
    code(driver().and_then(|driver| {
        let physical = find(handle)?;
        // The vendor's manual: the offset must be zero for now.
        if offset != 0 || flags != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        driver.memory.map_physical(driver, ptr, size as u64, physical)
    }))
}

pub fn cuMemUnmap(ptr: CuDevicePtr, size: usize) -> CuResult {
    code(driver().and_then(|driver| driver.memory.unmap_physical(ptr, size as u64)))
}

pub fn cuMemSetAccess(ptr: CuDevicePtr, size: usize, desc: *const CuMemAccessDesc, count: usize) -> CuResult {
    code(driver().and_then(|driver| {
        if desc.is_null() || count == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        for place in 0..count {
            // SAFETY: not null, and by the contract of the entry point `count` entries long.
            let wish = unsafe { desc.add(place).read_unaligned() };
            let is_allowed = match wish.flags {
                CU_MEM_ACCESS_FLAGS_PROT_NONE => false,
                CU_MEM_ACCESS_FLAGS_PROT_READWRITE => true,
                // Memory that a device may only read is not built.
                CU_MEM_ACCESS_FLAGS_PROT_READ => return Err(CuResult::NOT_SUPPORTED),
                _ => return Err(CuResult::INVALID_VALUE),
            };
            match wish.location.kind {
                CU_MEM_LOCATION_TYPE_DEVICE => {
                    let device = driver.device(wish.location.id)?.index;
                    driver.memory.set_access(ptr, size as u64, device, is_allowed)?;
                }
                _ => return Err(CuResult::NOT_SUPPORTED),
            }
        }
        Ok(())
    }))
}

pub fn cuMemGetAccess(flags: *mut c_ulonglong, location: *const CuMemLocation, ptr: CuDevicePtr) -> CuResult {
    code(driver().and_then(|driver| {
        if location.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null, and by the contract of the entry point it leads to this structure.
        let of = unsafe { location.read_unaligned() };
        if of.kind != CU_MEM_LOCATION_TYPE_DEVICE {
            return Err(CuResult::NOT_SUPPORTED);
        }
        let device = driver.device(of.id)?.index;
        let (mapping, _) = driver.memory.physical_at(ptr)?;
        let access = if mapping.is_reached_from(device) {
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        } else {
            CU_MEM_ACCESS_FLAGS_PROT_NONE
        };
        store(flags, access as c_ulonglong)
    }))
}

fn find(handle: CuMemGenericAllocationHandle) -> Answer<Arc<Physical>> {
    driver()?;
    PHYSICAL.get(handle as *mut c_void).ok_or(CuResult::INVALID_VALUE)
}

fn properties(given: *const CuMemAllocationProp) -> Answer<CuMemAllocationProp> {
    if given.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: not null, and by the contract of the entry point it leads to this structure.
    let properties = unsafe { given.read_unaligned() };
    if properties.kind == CU_MEM_ALLOCATION_TYPE_PINNED {
        Ok(properties)
    } else {
        Err(CuResult::INVALID_VALUE)
    }
}

/// The device that memory is wanted on. Memory on the host side is not built.
fn location(properties: &CuMemAllocationProp) -> Answer<CuDevice> {
    match properties.location.kind {
        CU_MEM_LOCATION_TYPE_DEVICE => driver()?.device(properties.location.id).map(|_| properties.location.id),
        CU_MEM_LOCATION_TYPE_HOST | CU_MEM_LOCATION_TYPE_HOST_NUMA | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => {
            Err(CuResult::NOT_SUPPORTED)
        }
        _ => Err(CuResult::INVALID_VALUE),
    }
}
