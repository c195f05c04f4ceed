// SPDX-License-Identifier: Apache-2.0
//! Devices, versions, limits, peers.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::device;
use crate::driver::call;
use crate::error::Code;
use crate::properties::{DeviceProp12, DeviceProp13};
use crate::rows::rows;

/// What the two stand-ins say of themselves: the oldest of each that has every function of its list.
const TWELVE: c_int = 12_090;
const THIRTEEN: c_int = 13_000;

rows! {
    both anywhere cuDeviceGetCount: cudaGetDeviceCount(count: *mut c_int) {
        let found = device::outside().and_then(|()| call!(cuDeviceGetCount(count)));
        if found.is_err() && !count.is_null() {
            // SAFETY: the program's place. Programs look at it without looking at the code.
            unsafe { count.write(0) };
        }
        found
    }
    both outside cuCtxGetDevice: cudaGetDevice(to: *mut c_int) {
        let found = device::current()?;
        // SAFETY: the program's place.
        unsafe { to.write(found) };
        Ok(())
    }
    both outside cuCtxSetCurrent: cudaSetDevice(device: c_int) { device::choose(device) }
    both outside cuDevicePrimaryCtxRetain: cudaInitDevice(device: c_int, _device_flags: c_uint, _flags: c_uint) {
        device::primary(device).map(|_| ())
    }
    both outside cuDevicePrimaryCtxSetFlags_v2: cudaSetDeviceFlags(flags: c_uint) {
        call!(cuDevicePrimaryCtxSetFlags_v2(device::current()?, flags))
    }
    both inside cuCtxGetFlags: cudaGetDeviceFlags(flags: *mut c_uint) { call!(cuCtxGetFlags(flags)) }
    both inside cuDevicePrimaryCtxReset_v2: cudaDeviceReset() { device::reset() }
    both inside cuCtxSynchronize: cudaDeviceSynchronize() { call!(cuCtxSynchronize()) }
    both outside cuDeviceGetAttribute: cudaDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) {
        call!(cuDeviceGetAttribute(value, attribute, device))
    }
    twelve outside cuDeviceGetAttribute: cudaGetDeviceProperties_v2(to: *mut DeviceProp12, device: c_int) {
        // SAFETY: the program's place for the struct of CUDA 12.
        unsafe { DeviceProp12::write(to, device) }
    }
    thirteen outside cuDeviceGetAttribute: cudaGetDeviceProperties(to: *mut DeviceProp13, device: c_int) {
        // SAFETY: the program's place for the struct of CUDA 13.
        unsafe { DeviceProp13::write(to, device) }
    }
    both outside cuDeviceGetPCIBusId: cudaDeviceGetPCIBusId(to: *mut c_char, length: c_int, device: c_int) {
        call!(cuDeviceGetPCIBusId(to, length, device))
    }
    both outside cuDeviceGetByPCIBusId: cudaDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char) {
        call!(cuDeviceGetByPCIBusId(device, id))
    }
    both inside cuCtxGetLimit: cudaDeviceGetLimit(value: *mut usize, limit: c_int) {
        call!(cuCtxGetLimit(value, limit))
    }
    both inside cuCtxSetLimit: cudaDeviceSetLimit(limit: c_int, value: usize) { call!(cuCtxSetLimit(limit, value)) }
    both inside cuCtxGetCacheConfig: cudaDeviceGetCacheConfig(to: *mut c_int) { call!(cuCtxGetCacheConfig(to)) }
    both inside cuCtxSetCacheConfig: cudaDeviceSetCacheConfig(config: c_int) { call!(cuCtxSetCacheConfig(config)) }
    both inside cuCtxGetStreamPriorityRange: cudaDeviceGetStreamPriorityRange(least: *mut c_int, most: *mut c_int) {
        call!(cuCtxGetStreamPriorityRange(least, most))
    }
    both outside cuDeviceCanAccessPeer: cudaDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) {
        call!(cuDeviceCanAccessPeer(can, device, peer))
    }
    both inside cuCtxEnablePeerAccess: cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) {
        call!(cuCtxEnablePeerAccess(device::primary(peer)?, flags))
    }
    both inside cuCtxDisablePeerAccess: cudaDeviceDisablePeerAccess(peer: c_int) {
        call!(cuCtxDisablePeerAccess(device::primary(peer)?))
    }
    both outside cuDeviceGetP2PAttribute: cudaDeviceGetP2PAttribute(value: *mut c_int, what: c_int, from: c_int, to: c_int) {
        call!(cuDeviceGetP2PAttribute(value, what, from, to))
    }
    both outside cuDriverGetVersion: cudaDriverGetVersion(version: *mut c_int) { call!(cuDriverGetVersion(version)) }
    twelve anywhere none: cudaRuntimeGetVersion_v12(version: *mut c_int) { version_of(version, TWELVE) }
    thirteen anywhere none: cudaRuntimeGetVersion(version: *mut c_int) { version_of(version, THIRTEEN) }
    both inside cuProfilerStart: cudaProfilerStart() { call!(cuProfilerStart()) }
    both inside cuProfilerStop: cudaProfilerStop() { call!(cuProfilerStop()) }
    both inside cuDeviceGetGraphMemAttribute: cudaDeviceGetGraphMemAttribute(
        device: c_int, attribute: c_int, value: *mut c_void,
    ) {
        call!(cuDeviceGetGraphMemAttribute(device, attribute, value))
    }
    both inside cuDeviceSetGraphMemAttribute: cudaDeviceSetGraphMemAttribute(
        device: c_int, attribute: c_int, value: *mut c_void,
    ) {
        call!(cuDeviceSetGraphMemAttribute(device, attribute, value))
    }
    both inside cuDeviceGraphMemTrim: cudaDeviceGraphMemTrim(device: c_int) { call!(cuDeviceGraphMemTrim(device)) }
}

fn version_of(to: *mut c_int, version: c_int) -> crate::error::Answer {
    if to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the program's place.
    unsafe { to.write(version) };
    Ok(())
}
