// SPDX-License-Identifier: Apache-2.0
//! What the driver knows of an address.

use std::sync::atomic::Ordering;

use partage_abi::types::*;
use partage_abi::values::*;

use crate::context::current_as_it_is;
use crate::memory::{Allocation, AllocationKind, memory};
use crate::state::{Answer, code, driver, store};

/// `CU_DEVICE_INVALID`: the ordinal of memory that the driver does not know.
const NO_DEVICE: c_int = -2;

/// A value as wide as the attribute is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Word(u32),
    Long(u64),
}

pub fn cuPointerGetAttribute(data: *mut c_void, attribute: c_int, ptr: CuDevicePtr) -> CuResult {
    code(driver().and_then(|_| {
        let found = memory()?.find(ptr).ok_or(CuResult::INVALID_VALUE)?;
        write(data, value(&found, attribute, ptr)?)
    }))
}

pub fn cuPointerGetAttributes(
    num_attributes: c_uint,
    attributes: *mut c_int,
    data: *mut *mut c_void,
    ptr: CuDevicePtr,
) -> CuResult {
    code(driver().and_then(|_| {
        if num_attributes == 0 || attributes.is_null() || data.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        let found = memory()?.find(ptr);
        for place in 0..num_attributes as usize {
            // SAFETY: by the contract of the entry point both lists have `num_attributes` entries.
            let (attribute, to) = unsafe { (attributes.add(place).read_unaligned(), data.add(place).read_unaligned()) };
            // An address that the driver does not know is no error here: its attributes are empty.
            let known = found.as_ref().map(|found| value(found, attribute, ptr));
            match known {
                Some(Ok(value)) => write(to, value)?,
                Some(Err(CuResult::NOT_SUPPORTED)) => return Err(CuResult::NOT_SUPPORTED),
                Some(Err(_)) | None => write(to, empty(attribute)?)?,
            }
        }
        Ok(())
    }))
}

pub fn cuPointerSetAttribute(value: *const c_void, attribute: c_int, ptr: CuDevicePtr) -> CuResult {
    code(driver().and_then(|_| {
        let found = memory()?.find(ptr).ok_or(CuResult::INVALID_VALUE)?;
        if value.is_null() || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || found.is_host() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null; by the contract of the entry point it leads to a boolean word.
        let is_set = unsafe { value.cast::<u32>().read_unaligned() } != 0;
        found.sync_copies.store(is_set, Ordering::Relaxed);
        Ok(())
    }))
}

/// The value of an attribute of a live allocation at `address`; INVALID_VALUE for one that it does not have.
fn value(found: &Allocation, attribute: c_int, address: u64) -> Answer<Value> {
    let (is_host, is_managed) = (found.is_host(), found.is_managed());
    let physical = match &found.kind {
        AllocationKind::Mapped(physical) => Some(physical),
        _ => None,
    };
    let is_host_side = is_host || physical.is_some_and(|physical| physical.is_host());
    let is_cpu_reaching = found.cpu_access() != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    let flag = |is: bool| Value::Word(u32::from(is));
    Ok(match attribute {
        CU_POINTER_ATTRIBUTE_CONTEXT => Value::Long(found.owner.0 as u64),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE if is_host_side => Value::Word(CU_MEMORYTYPE_HOST as u32),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Value::Word(CU_MEMORYTYPE_DEVICE as u32),
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER => Value::Long(address),
        CU_POINTER_ATTRIBUTE_HOST_POINTER if is_host || is_managed || is_cpu_reaching => Value::Long(address),
        // Tokens for other drivers on the bus: there is no bus.
        CU_POINTER_ATTRIBUTE_P2P_TOKENS => return Err(CuResult::NOT_SUPPORTED),
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => flag(found.sync_copies.load(Ordering::Relaxed)),
        CU_POINTER_ATTRIBUTE_BUFFER_ID | CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => Value::Long(found.id),
        CU_POINTER_ATTRIBUTE_IS_MANAGED => flag(is_managed),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Value::Word(found.ordinal as u32),
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => flag(matches!(found.kind, AllocationKind::Device)),
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR | CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => Value::Long(found.address),
        CU_POINTER_ATTRIBUTE_RANGE_SIZE | CU_POINTER_ATTRIBUTE_MAPPING_SIZE => Value::Long(found.bytes),
        CU_POINTER_ATTRIBUTE_MAPPED => flag(true),
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => Value::Word(access(found)?),
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => {
            let kinds = match &found.kind {
                AllocationKind::Mapped(physical) => physical.properties.requestedHandleTypes,
                AllocationKind::Pooled(pool) if pool.is_shareable() => CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                _ => CU_MEM_HANDLE_TYPE_NONE,
            };
            Value::Long(kinds as u64)
        }
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => Value::Long(0),
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE | CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => flag(false),
        CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL => Value::Word(-1_i32 as u32),
        _ => return Err(CuResult::INVALID_VALUE),
    })
}

/// What the current context's device may do with an allocation: memory of a peer needs access first.
fn access(found: &Allocation) -> Answer<u32> {
    let context = current_as_it_is()?;
    let flags = if found.is_reached_by(&context) {
        CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
    } else {
        CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE
    };
    Ok(flags as u32)
}

/// What an attribute is for an address that the driver does not know: zero of its width, with two exceptions.
fn empty(attribute: c_int) -> Answer<Value> {
    Ok(match attribute {
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Value::Word(NO_DEVICE as u32),
        CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL => Value::Word(-1_i32 as u32),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        | CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        | CU_POINTER_ATTRIBUTE_IS_MANAGED
        | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
        | CU_POINTER_ATTRIBUTE_MAPPED
        | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
        | CU_POINTER_ATTRIBUTE_ACCESS_FLAGS
        | CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => Value::Word(0),
        CU_POINTER_ATTRIBUTE_CONTEXT..=CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL => Value::Long(0),
        _ => return Err(CuResult::INVALID_VALUE),
    })
}

fn write(to: *mut c_void, value: Value) -> Answer {
    match value {
        Value::Word(word) => store(to.cast(), word),
        Value::Long(long) => store(to.cast(), long),
    }
}
