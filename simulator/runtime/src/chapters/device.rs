// SPDX-License-Identifier: Apache-2.0
//! Devices: which there are, which is the thread's, its flags and its reset.

use partage_abi::types::*;

use super::{inside, outside, put};
use crate::context::{self, check, code};
use crate::{driver, error};

/// What every count answers where there is no driver or no device.
pub fn cudaGetDeviceCount(count: *mut c_int) -> CuResult {
    if let Err(code) = put(count, 0) {
        return code;
    }
    outside(|| {
        check(driver::cuDeviceGetCount(count))?;
        // SAFETY: written just now.
        if unsafe { *count } == 0 {
            Err(CuResult::NO_DEVICE)
        } else {
            Ok(())
        }
    })
}

/// The thread's device.
pub fn cudaGetDevice(device: *mut c_int) -> CuResult {
    code(context::device().and_then(|current| put(device, current)))
}

/// Makes a device the thread's.
pub fn cudaSetDevice(device: c_int) -> CuResult {
    code(context::set_device(device))
}

/// CUDA 12's: makes a device ready, and the thread's if asked to.
pub fn cudaInitDevice(device: c_int, _device_flags: c_uint, _flags: c_uint) -> CuResult {
    code(
        context::exists(device)
            .and_then(|()| context::primary(device))
            .map(drop),
    )
}

/// Ends all that the thread's device holds.
pub fn cudaDeviceReset() -> CuResult {
    let done = code(context::reset());
    if done.is_success() {
        error::forget();
    }
    done
}

/// `cudaDeviceMapHost`: mapped host memory is always there, so the flag is always set. The driver does not know it.
const MAPS_HOST: c_uint = 8;

/// The flags of the thread's device.
pub fn cudaGetDeviceFlags(flags: *mut c_uint) -> CuResult {
    let device = match context::device() {
        Ok(device) => device,
        Err(code) => return code,
    };
    outside(|| {
        let mut active = 0;
        let mut found = 0;
        check(driver::cuDevicePrimaryCtxGetState(device, &mut found, &mut active))?;
        put(flags, found | MAPS_HOST)
    })
}

/// Sets the flags of the thread's device.
pub fn cudaSetDeviceFlags(flags: c_uint) -> CuResult {
    let device = match context::device() {
        Ok(device) => device,
        Err(code) => return code,
    };
    outside(|| check(driver::cuDevicePrimaryCtxSetFlags_v2(device, flags & !MAPS_HOST)))
}

/// Lets kernels of the thread's device reach another one's memory.
pub fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> CuResult {
    inside(|| {
        context::exists(peer)?;
        check(driver::cuCtxEnablePeerAccess(context::primary(peer)?, flags))
    })
}

/// Ends that.
pub fn cudaDeviceDisablePeerAccess(peer: c_int) -> CuResult {
    inside(|| {
        context::exists(peer)?;
        check(driver::cuCtxDisablePeerAccess(context::primary(peer)?))
    })
}
