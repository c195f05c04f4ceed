// SPDX-License-Identifier: Apache-2.0
//! Stream-ordered allocation and its pools.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use partage_abi::types::{
    CuDevicePtr, CuMemAccessDesc, CuMemLocation, CuMemPoolProps, CuMemPoolPtrExportData, CuMemoryPool, CuStream,
};

use crate::driver::call;
use crate::rows::rows;

rows! {
    both inside cuMemAllocAsync: cudaMallocAsync(at: *mut CuDevicePtr, bytes: usize, stream: CuStream) {
        call!(cuMemAllocAsync(at, bytes, stream))
    }
    both inside cuMemAllocAsync_ptsz: cudaMallocAsync_ptsz(at: *mut CuDevicePtr, bytes: usize, stream: CuStream) {
        call!(cuMemAllocAsync_ptsz(at, bytes, stream))
    }
    both inside cuMemFreeAsync: cudaFreeAsync(at: CuDevicePtr, stream: CuStream) { call!(cuMemFreeAsync(at, stream)) }
    both inside cuMemFreeAsync_ptsz: cudaFreeAsync_ptsz(at: CuDevicePtr, stream: CuStream) {
        call!(cuMemFreeAsync_ptsz(at, stream))
    }
    both inside cuMemAllocFromPoolAsync: cudaMallocFromPoolAsync(
        at: *mut CuDevicePtr, bytes: usize, pool: CuMemoryPool, stream: CuStream,
    ) {
        call!(cuMemAllocFromPoolAsync(at, bytes, pool, stream))
    }
    both inside cuDeviceGetDefaultMemPool: cudaDeviceGetDefaultMemPool(pool: *mut CuMemoryPool, device: c_int) {
        call!(cuDeviceGetDefaultMemPool(pool, device))
    }
    both inside cuDeviceGetMemPool: cudaDeviceGetMemPool(pool: *mut CuMemoryPool, device: c_int) {
        call!(cuDeviceGetMemPool(pool, device))
    }
    both inside cuDeviceSetMemPool: cudaDeviceSetMemPool(device: c_int, pool: CuMemoryPool) {
        call!(cuDeviceSetMemPool(device, pool))
    }
    both inside cuMemPoolCreate: cudaMemPoolCreate(pool: *mut CuMemoryPool, properties: *const CuMemPoolProps) {
        call!(cuMemPoolCreate(pool, properties))
    }
    both inside cuMemPoolDestroy: cudaMemPoolDestroy(pool: CuMemoryPool) { call!(cuMemPoolDestroy(pool)) }
    both inside cuMemPoolTrimTo: cudaMemPoolTrimTo(pool: CuMemoryPool, least: usize) {
        call!(cuMemPoolTrimTo(pool, least))
    }
    both inside cuMemPoolGetAttribute: cudaMemPoolGetAttribute(pool: CuMemoryPool, what: c_int, value: *mut c_void) {
        call!(cuMemPoolGetAttribute(pool, what, value))
    }
    both inside cuMemPoolSetAttribute: cudaMemPoolSetAttribute(pool: CuMemoryPool, what: c_int, value: *mut c_void) {
        call!(cuMemPoolSetAttribute(pool, what, value))
    }
    both inside cuMemPoolSetAccess: cudaMemPoolSetAccess(
        pool: CuMemoryPool, access: *const CuMemAccessDesc, count: usize,
    ) {
        call!(cuMemPoolSetAccess(pool, access, count))
    }
    both inside cuMemPoolGetAccess: cudaMemPoolGetAccess(
        flags: *mut c_int, pool: CuMemoryPool, location: *mut CuMemLocation,
    ) {
        call!(cuMemPoolGetAccess(flags, pool, location))
    }
    both inside cuMemPoolExportToShareableHandle: cudaMemPoolExportToShareableHandle(
        handle: *mut c_void, pool: CuMemoryPool, kind: c_int, flags: c_uint,
    ) {
        call!(cuMemPoolExportToShareableHandle(handle, pool, kind, c_ulonglong::from(flags)))
    }
    both inside cuMemPoolImportFromShareableHandle: cudaMemPoolImportFromShareableHandle(
        pool: *mut CuMemoryPool, handle: *mut c_void, kind: c_int, flags: c_uint,
    ) {
        call!(cuMemPoolImportFromShareableHandle(pool, handle, kind, c_ulonglong::from(flags)))
    }
    both inside cuMemPoolExportPointer: cudaMemPoolExportPointer(data: *mut CuMemPoolPtrExportData, at: CuDevicePtr) {
        call!(cuMemPoolExportPointer(data, at))
    }
    both inside cuMemPoolImportPointer: cudaMemPoolImportPointer(
        at: *mut CuDevicePtr, pool: CuMemoryPool, data: *mut CuMemPoolPtrExportData,
    ) {
        call!(cuMemPoolImportPointer(at, pool, data))
    }
}
