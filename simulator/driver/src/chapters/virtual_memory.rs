// SPDX-License-Identifier: Apache-2.0
//! Virtual memory management: physical memory of devices and of the host, address ranges, what may reach them, and
//! descriptors for other processes. Nothing here needs a context. Memory that a device may only read is not built, and
//! there is no multicast: `cuMulticast*` answers NOT_SUPPORTED and the device's attribute for it is 0.

use std::fs::File;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::path::Path;
use std::sync::Arc;

use partage_abi::types::*;
use partage_abi::values::*;

use crate::handles::{HandleKind, Handles};
use crate::memory::{Accessor, LARGE_PAGE, Physical, memory};
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
        let wanted = location(&properties)?;
        check_handle_types(&properties)?;
        let made = match wanted {
            Some(ordinal) => memory()?.create_physical(driver, ordinal, bytes, properties)?,
            None => memory()?.create_host_physical(driver, bytes, properties)?,
        };
        give(handle, made)
    }))
}

fn give(handle: *mut CuMemGenericAllocationHandle, made: Arc<Physical>) -> Answer {
    let given = PHYSICAL.insert(made);
    if given.is_null() {
        return Err(CuResult::OUT_OF_MEMORY);
    }
    store(handle, given as u64)
}

/// Whether memory can have the handles for other processes that it is asked for with.
fn check_handle_types(properties: &CuMemAllocationProp) -> Answer {
    let kinds = properties.requestedHandleTypes;
    let known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        | CU_MEM_HANDLE_TYPE_WIN32
        | CU_MEM_HANDLE_TYPE_WIN32_KMT
        | CU_MEM_HANDLE_TYPE_FABRIC;
    match kinds {
        CU_MEM_HANDLE_TYPE_NONE => Ok(()),
        // Host memory of no particular node cannot be shared.
        _ if properties.location.kind == CU_MEM_LOCATION_TYPE_HOST => Err(CuResult::INVALID_VALUE),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR => Ok(()),
        // There is no other operating system and no fabric.
        _ if kinds & !known == 0 => Err(CuResult::NOT_SUPPORTED),
        _ => Err(CuResult::INVALID_VALUE),
    }
}

pub fn cuMemExportToShareableHandle(
    shareable_handle: *mut c_void,
    handle: CuMemGenericAllocationHandle,
    handle_type: c_int,
    flags: c_ulonglong,
) -> CuResult {
    code(driver().and_then(|driver| {
        let physical = find(handle)?;
        if shareable_handle.is_null() || flags != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        check_handle_type(handle_type)?;
        // The program's from here on.
        store(shareable_handle.cast::<c_int>(), physical.export(driver)?.into_raw_fd())
    }))
}

pub fn cuMemImportFromShareableHandle(
    handle: *mut CuMemGenericAllocationHandle,
    os_handle: *mut c_void,
    sh_handle_type: c_int,
) -> CuResult {
    code(driver().and_then(|driver| {
        if handle.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        check_handle_type(sh_handle_type)?;
        // The descriptor itself is what the program passes as a pointer.
        let file = duplicate(os_handle as usize)?;
        give(handle, memory()?.import_physical(driver, file)?)
    }))
}

pub(super) fn check_handle_type(kind: c_int) -> Answer {
    match kind {
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR => Ok(()),
        CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT | CU_MEM_HANDLE_TYPE_FABRIC => {
            Err(CuResult::NOT_SUPPORTED)
        }
        _ => Err(CuResult::INVALID_VALUE),
    }
}

/// Our own descriptor of the file behind one of the program's. INVALID_VALUE when it is none.
pub(super) fn duplicate(descriptor: usize) -> Answer<File> {
    let descriptor = c_int::try_from(descriptor).map_err(|_| CuResult::INVALID_VALUE)?;
    // SAFETY: asks about a number, whether it is a descriptor or not.
    if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: open now, and by the contract of the entry point it stays so during the call.
    let theirs = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let ours = theirs.try_clone_to_owned().map_err(|_| CuResult::OPERATING_SYSTEM)?;
    Ok(partage_machine::backing::out_of_the_way(ours.into()))
}

pub fn cuMemRelease(handle: CuMemGenericAllocationHandle) -> CuResult {
    code(find(handle).map(|physical| {
        if physical.let_go() {
            PHYSICAL.remove(handle as *mut c_void);
        }
    }))
}

pub fn cuMemRetainAllocationHandle(handle: *mut CuMemGenericAllocationHandle, addr: *mut c_void) -> CuResult {
    code(driver().and_then(|_| {
        let (_, physical) = memory()?.physical_at(addr as u64)?;
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
    code(driver().and_then(|_| {
        let (bytes, align) = (size as u64, (alignment as u64).max(LARGE_PAGE));
        let is_sound = bytes > 0 && bytes.is_multiple_of(LARGE_PAGE) && align.is_power_of_two() && flags == 0;
        if ptr.is_null() || !is_sound {
            return Err(CuResult::INVALID_VALUE);
        }
        store(ptr, memory()?.reserve_addresses(bytes, align, addr)?)
    }))
}

pub fn cuMemAddressFree(ptr: CuDevicePtr, size: usize) -> CuResult {
    code(driver().and_then(|_| memory()?.free_addresses(ptr, size as u64)))
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
        memory()?.map_physical(driver, ptr, size as u64, physical)
    }))
}

pub fn cuMemUnmap(ptr: CuDevicePtr, size: usize) -> CuResult {
    code(driver().and_then(|_| memory()?.unmap_physical(ptr, size as u64)))
}

pub fn cuMemSetAccess(ptr: CuDevicePtr, size: usize, desc: *const CuMemAccessDesc, count: usize) -> CuResult {
    code(driver().and_then(|_| {
        if desc.is_null() || count == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        for place in 0..count {
            // SAFETY: not null, and by the contract of the entry point `count` entries long.
            let wish = unsafe { desc.add(place).read_unaligned() };
            let who = accessor(wish.location)?;
            if wish.location.kind == CU_MEM_LOCATION_TYPE_HOST_NUMA {
                // The vendor's manual: only for memory that was made with this kind of location.
                let (_, physical) = memory()?.physical_at(ptr)?;
                if physical.properties.location.kind != CU_MEM_LOCATION_TYPE_HOST_NUMA {
                    return Err(CuResult::INVALID_VALUE);
                }
            }
            memory()?.set_access(ptr, size as u64, who, wish.flags)?;
        }
        Ok(())
    }))
}

pub fn cuMemGetAccess(flags: *mut c_ulonglong, location: *const CuMemLocation, ptr: CuDevicePtr) -> CuResult {
    code(driver().and_then(|_| {
        if location.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null, and by the contract of the entry point it leads to this structure.
        let of = unsafe { location.read_unaligned() };
        let who = accessor(of)?;
        let (mapping, _) = memory()?.physical_at(ptr)?;
        let access = match who {
            Accessor::Device(device) if mapping.is_reached_from(device) => CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            Accessor::Device(_) => CU_MEM_ACCESS_FLAGS_PROT_NONE,
            Accessor::Host => mapping.cpu_access(),
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

/// The device that memory is wanted on; `None` for the host.
fn location(properties: &CuMemAllocationProp) -> Answer<Option<CuDevice>> {
    let CuMemLocation { kind, id } = properties.location;
    match kind {
        CU_MEM_LOCATION_TYPE_DEVICE => driver()?.device(id).map(|_| Some(id)),
        CU_MEM_LOCATION_TYPE_HOST => Ok(None),
        CU_MEM_LOCATION_TYPE_HOST_NUMA if has_node(id) => Ok(None),
        // The vendor's manual: the node must be named.
        _ => Err(CuResult::INVALID_VALUE),
    }
}

fn has_node(id: c_int) -> bool {
    id == 0 || id > 0 && Path::new(&format!("/sys/devices/system/node/node{id}")).exists()
}

/// Whose access is meant.
fn accessor(location: CuMemLocation) -> Answer<Accessor> {
    match location.kind {
        CU_MEM_LOCATION_TYPE_DEVICE => Ok(Accessor::Device(driver()?.device(location.id)?.index)),
        CU_MEM_LOCATION_TYPE_HOST | CU_MEM_LOCATION_TYPE_HOST_NUMA | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => {
            Ok(Accessor::Host)
        }
        _ => Err(CuResult::INVALID_VALUE),
    }
}
