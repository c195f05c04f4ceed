// SPDX-License-Identifier: Apache-2.0
//! Memory of devices and of the host, and what an address is.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use partage_abi::types::{CuDevicePtr, CuIpcMemHandle, CuStream};

use crate::driver::call;
use crate::error::{Answer, Code};
use crate::rows::rows;
use crate::{code, device};

/// `cudaPointerAttributes` of CUDA 12: 24 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Attributes {
    kind: c_int,
    device: c_int,
    device_pointer: CuDevicePtr,
    host_pointer: *mut c_void,
}

/// `cudaPointerAttributes` of CUDA 13: 88 bytes.
#[repr(C)]
pub struct Attributes13 {
    known: Attributes,
    reserved: [u64; 8],
}

/// What an address is: `cudaMemoryTypeUnregistered`, `...Host`, `...Device`, `...Managed`.
const UNREGISTERED: c_int = 0;
const HOST: c_int = 1;
const DEVICE: c_int = 2;
const MANAGED: c_int = 3;
/// No device has the memory (`cudaInvalidDeviceId`).
const NO_DEVICE: c_int = -2;
/// `CU_POINTER_ATTRIBUTE_...` of the same meaning as the fields.
const OF_KIND: c_int = 2;
const OF_DEVICE_POINTER: c_int = 3;
const OF_HOST_POINTER: c_int = 4;
const OF_MANAGED: c_int = 8;
const OF_DEVICE: c_int = 9;
/// Of the driver's `CU_MEMORYTYPE_HOST`.
const DRIVER_HOST: c_int = 1;
/// `CU_MEM_ATTACH_GLOBAL`, which the runtime's default is as well.
const GLOBAL: c_uint = 1;
/// Page-locked for every context, as all the runtime's is.
const PORTABLE: c_uint = 1;

fn asked<T: Default>(what: c_int, at: CuDevicePtr) -> Result<T, Code> {
    let mut value = T::default();
    call!(cuPointerGetAttribute((&raw mut value).cast(), what, at))?;
    Ok(value)
}

fn attributes(at: *const c_void) -> Attributes {
    let address = at.addr() as CuDevicePtr;
    let Ok(kind) = asked::<c_int>(OF_KIND, address) else {
        // Memory that the driver does not know is the host's own.
        return Attributes {
            kind: UNREGISTERED,
            device: NO_DEVICE,
            device_pointer: 0,
            host_pointer: at.cast_mut(),
        };
    };
    let is_managed = asked::<c_uint>(OF_MANAGED, address).unwrap_or(0) != 0;
    let host = asked::<u64>(OF_HOST_POINTER, address).unwrap_or(0) as usize;
    Attributes {
        kind: match (is_managed, kind) {
            (true, _) => MANAGED,
            (false, DRIVER_HOST) => HOST,
            _ => DEVICE,
        },
        device: asked(OF_DEVICE, address).unwrap_or(0),
        device_pointer: asked(OF_DEVICE_POINTER, address).unwrap_or(0),
        host_pointer: ptr::with_exposed_provenance_mut(host),
    }
}

/// No bytes are no address, and no call of the driver's.
fn unless_empty(at: *mut CuDevicePtr, bytes: usize, allocate: impl FnOnce() -> Answer) -> Answer {
    if at.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    if bytes > 0 {
        return allocate();
    }
    // SAFETY: the program's place, which is not null.
    unsafe { at.write(0) };
    Ok(())
}

rows! {
    both inside cuMemAlloc_v2: cudaMalloc(at: *mut CuDevicePtr, bytes: usize) {
        unless_empty(at, bytes, || call!(cuMemAlloc_v2(at, bytes)))
    }
    both inside cuMemFree_v2: cudaFree(at: CuDevicePtr) { call!(cuMemFree_v2(at)) }
    both inside cuMemAllocPitch_v2: cudaMallocPitch(at: *mut CuDevicePtr, pitch: *mut usize, width: usize, height: usize) {
        call!(cuMemAllocPitch_v2(at, pitch, width, height, 4))
    }
    both inside cuMemAllocManaged: cudaMallocManaged(at: *mut CuDevicePtr, bytes: usize, flags: c_uint) {
        call!(cuMemAllocManaged(at, bytes, if flags == 0 { GLOBAL } else { flags }))
    }
    both inside cuMemHostAlloc: cudaMallocHost(at: *mut *mut c_void, bytes: usize) {
        call!(cuMemHostAlloc(at, bytes, PORTABLE))
    }
    both inside cuMemHostAlloc: cudaHostAlloc(at: *mut *mut c_void, bytes: usize, flags: c_uint) {
        call!(cuMemHostAlloc(at, bytes, flags | PORTABLE))
    }
    both inside cuMemFreeHost: cudaFreeHost(at: *mut c_void) {
        if at.is_null() { Ok(()) } else { call!(cuMemFreeHost(at)) }
    }
    both inside cuMemHostRegister_v2: cudaHostRegister(at: *mut c_void, bytes: usize, flags: c_uint) {
        call!(cuMemHostRegister_v2(at, bytes, flags | PORTABLE))
    }
    both inside cuMemHostUnregister: cudaHostUnregister(at: *mut c_void) { call!(cuMemHostUnregister(at)) }
    both inside cuMemHostGetDevicePointer_v2: cudaHostGetDevicePointer(
        to: *mut CuDevicePtr, at: *mut c_void, flags: c_uint,
    ) {
        call!(cuMemHostGetDevicePointer_v2(to, at, flags))
    }
    both inside cuMemHostGetFlags: cudaHostGetFlags(flags: *mut c_uint, at: *mut c_void) {
        call!(cuMemHostGetFlags(flags, at))
    }
    both inside cuMemGetInfo_v2: cudaMemGetInfo(free: *mut usize, total: *mut usize) {
        call!(cuMemGetInfo_v2(free, total))
    }
    twelve inside cuPointerGetAttribute: cudaPointerGetAttributes_v12(to: *mut Attributes, at: *const c_void) {
        // SAFETY: the program's place for the struct of CUDA 12.
        unsafe { to.write(attributes(at)) };
        Ok(())
    }
    thirteen inside cuPointerGetAttribute: cudaPointerGetAttributes(to: *mut Attributes13, at: *const c_void) {
        // SAFETY: the program's place for the struct of CUDA 13.
        unsafe { to.write(Attributes13 { known: attributes(at), reserved: [0; 8] }) };
        Ok(())
    }
    both inside cuIpcGetMemHandle: cudaIpcGetMemHandle(handle: *mut CuIpcMemHandle, at: CuDevicePtr) {
        call!(cuIpcGetMemHandle(handle, at))
    }
    both inside cuIpcOpenMemHandle_v2: cudaIpcOpenMemHandle(
        at: *mut CuDevicePtr, handle: CuIpcMemHandle, flags: c_uint,
    ) {
        call!(cuIpcOpenMemHandle_v2(at, handle, flags))
    }
    both inside cuIpcCloseMemHandle: cudaIpcCloseMemHandle(at: CuDevicePtr) { call!(cuIpcCloseMemHandle(at)) }
    both inside cuLibraryGetGlobal: cudaGetSymbolAddress(to: *mut CuDevicePtr, symbol: *const c_void) {
        let (at, _) = code::variable(symbol)?;
        // SAFETY: the program's place.
        unsafe { to.write(at) };
        Ok(())
    }
    both inside cuLibraryGetGlobal: cudaGetSymbolSize(to: *mut usize, symbol: *const c_void) {
        let (_, bytes) = code::variable(symbol)?;
        // SAFETY: the program's place.
        unsafe { to.write(bytes) };
        Ok(())
    }
    twelve inside cuMemPrefetchAsync: cudaMemPrefetchAsync_v12(
        at: CuDevicePtr, bytes: usize, to: c_int, stream: CuStream,
    ) {
        device::outside()?;
        call!(cuMemPrefetchAsync(at, bytes, to, stream))
    }
    twelve inside cuMemAdvise: cudaMemAdvise_v12(at: CuDevicePtr, bytes: usize, advice: c_int, device: c_int) {
        call!(cuMemAdvise(at, bytes, advice, device))
    }
}
