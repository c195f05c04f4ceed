// SPDX-License-Identifier: Apache-2.0
//! The device of each thread, and the primary contexts that the runtime holds.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::{Mutex, OnceLock, PoisonError};

use partage_abi::MAX_ORDINALS;
use partage_abi::types::CuContext;

use crate::driver::call;
use crate::error::{Answer, Code};
use crate::surroundings;

thread_local! {
    static CURRENT: Cell<c_int> = const { Cell::new(0) };
}

/// The primary contexts, by device, as addresses.
static PRIMARY: Mutex<[usize; MAX_ORDINALS]> = Mutex::new([0; MAX_ORDINALS]);

/// The driver is initialised.
///
/// # Errors
/// The driver's, each time.
pub fn outside() -> Answer {
    static IS_READY: OnceLock<()> = OnceLock::new();
    if IS_READY.get().is_none() {
        call!(cuInit(0))?;
        if IS_READY.set(()).is_ok() {
            surroundings::look();
        }
    }
    Ok(())
}

/// The thread has a context: the one that its program made current, or else the primary one of its device.
///
/// # Errors
/// The driver's.
pub fn inside() -> Answer {
    outside()?;
    let mut context = CuContext(std::ptr::null_mut());
    call!(cuCtxGetCurrent(&raw mut context))?;
    if context.0.is_null() {
        call!(cuCtxSetCurrent(primary(chosen())?))?;
    }
    Ok(())
}

/// The driver has to be there for nothing: the row asks by itself.
pub fn anywhere() -> Answer {
    Ok(())
}

/// The device that the thread chose, or 0.
fn chosen() -> c_int {
    CURRENT.try_with(Cell::get).unwrap_or(0)
}

/// The device that the thread uses.
///
/// # Errors
/// The driver's.
pub fn current() -> Result<c_int, Code> {
    let mut context = CuContext(std::ptr::null_mut());
    call!(cuCtxGetCurrent(&raw mut context))?;
    let mut device = chosen();
    if !context.0.is_null() {
        call!(cuCtxGetDevice(&raw mut device))?;
    }
    Ok(device)
}

/// Chooses a device for the thread, and makes its primary context the thread's.
///
/// # Errors
/// There is no such device, or the driver's.
pub fn choose(device: c_int) -> Answer {
    let mut count = 0;
    call!(cuDeviceGetCount(&raw mut count))?;
    if !(0..count).contains(&device) {
        return Err(Code::INVALID_DEVICE);
    }
    let _ = CURRENT.try_with(|current| current.set(device));
    call!(cuCtxSetCurrent(primary(device)?))
}

/// The primary context of a device, which the runtime holds from the first use on.
///
/// # Errors
/// There is no such device, or the driver's.
pub fn primary(device: c_int) -> Result<CuContext, Code> {
    let place = usize::try_from(device).ok().filter(|place| *place < MAX_ORDINALS);
    let place = place.ok_or(Code::INVALID_DEVICE)?;
    let mut held = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
    if held[place] == 0 {
        let mut context = CuContext(std::ptr::null_mut());
        call!(cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        held[place] = context.0.expose_provenance();
    }
    Ok(CuContext(std::ptr::with_exposed_provenance_mut(held[place])))
}

/// Ends the primary context of the thread's device with all that is in it.
///
/// # Errors
/// The driver's.
pub fn reset() -> Answer {
    let device = current()?;
    call!(cuDevicePrimaryCtxReset_v2(device))?;
    let place = usize::try_from(device).map_err(|_| Code::INVALID_DEVICE)?;
    PRIMARY.lock().unwrap_or_else(PoisonError::into_inner)[place] = 0;
    call!(cuCtxSetCurrent(CuContext(std::ptr::null_mut())))
}
