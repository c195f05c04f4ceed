// SPDX-License-Identifier: Apache-2.0
//! Stream-ordered pools that several processes use.

use std::os::fd::IntoRawFd;

use partage_abi::types::*;

use super::memory_pool::{enter, find};
use super::virtual_memory::{check_handle_type, duplicate};
use crate::memory::{Record, memory};
use crate::state::{code, driver, store};

/// Starts the data that stands for a pointer, so that made-up data is recognised.
const MAGIC: u64 = 0x5041_5254_5054_5201;

pub fn cuMemPoolExportToShareableHandle(
    handle_out: *mut c_void,
    pool: CuMemoryPool,
    handle_type: c_int,
    flags: c_ulonglong,
) -> CuResult {
    code(driver().and_then(|driver| {
        let pool = find(pool)?;
        if handle_out.is_null() || flags != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        check_handle_type(handle_type)?;
        // The program's from here on.
        store(handle_out.cast::<c_int>(), pool.export(driver)?.into_raw_fd())
    }))
}

pub fn cuMemPoolImportFromShareableHandle(
    pool_out: *mut CuMemoryPool,
    handle: *mut c_void,
    handle_type: c_int,
    flags: c_ulonglong,
) -> CuResult {
    code(driver().and_then(|driver| {
        if pool_out.is_null() || flags != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        check_handle_type(handle_type)?;
        // The descriptor itself is what the program passes as a pointer.
        let file = duplicate(handle as usize)?;
        store(pool_out, enter(memory()?.import_pool(driver, file)?)?)
    }))
}

pub fn cuMemPoolExportPointer(share_data_out: *mut CuMemPoolPtrExportData, ptr: CuDevicePtr) -> CuResult {
    code(driver().and_then(|driver| {
        if share_data_out.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        let Record { log, at } = memory()?.export_pooled(driver, ptr)?;
        let mut reserved = [0; 64];
        let raw = [MAGIC, log, at].into_iter().flat_map(u64::to_ne_bytes);
        reserved.iter_mut().zip(raw).for_each(|(to, from)| *to = from);
        store(share_data_out, CuMemPoolPtrExportData { reserved })
    }))
}

pub fn cuMemPoolImportPointer(
    ptr_out: *mut CuDevicePtr,
    pool: CuMemoryPool,
    share_data: *mut CuMemPoolPtrExportData,
) -> CuResult {
    code(driver().and_then(|driver| {
        let pool = find(pool)?;
        if ptr_out.is_null() || share_data.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null, and by the contract of the entry point it leads to this structure.
        let given = unsafe { share_data.read_unaligned() };
        let mut words = [0; 3];
        for (word, raw) in words.iter_mut().zip(given.reserved.chunks_exact(8)) {
            *word = u64::from_ne_bytes(raw.try_into().map_err(|_| CuResult::INVALID_VALUE)?);
        }
        let [magic, log, at] = words;
        if magic != MAGIC {
            return Err(CuResult::INVALID_VALUE);
        }
        store(ptr_out, memory()?.import_pooled(driver, &pool, Record { log, at })?)
    }))
}
