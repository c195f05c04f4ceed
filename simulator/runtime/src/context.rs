// SPDX-License-Identifier: Apache-2.0
//! A thread's device, and the primary contexts that the runtime retains.
//!
//! A context that the program itself made current stays so: the runtime then works in it. Else a thread's first call
//! that needs a context makes its device's primary context current. A reset of a device is known by a count: a thread
//! that finds it changed looks anew.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::Mutex;

use partage_abi::MAX_ORDINALS;
use partage_abi::types::*;

use crate::{driver, surroundings, turn};

thread_local! {
    static DEVICE: Cell<CuDevice> = const { Cell::new(0) };
    static SEEN_RESETS: Cell<u32> = const { Cell::new(0) };
    /// The address of the context that the runtime made current, not the program.
    static MADE_CURRENT: Cell<usize> = const { Cell::new(0) };
}

static PRIMARY: [AtomicPtr<c_void>; MAX_ORDINALS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_ORDINALS];
static RETAINING: Mutex<()> = Mutex::new(());
static RESETS: AtomicU32 = AtomicU32::new(0);
static IS_READY: AtomicBool = AtomicBool::new(false);

/// `Err` unless the code is success.
pub fn check(code: CuResult) -> Result<(), CuResult> {
    if code.is_success() { Ok(()) } else { Err(code) }
}

/// The code of a result.
pub fn code(result: Result<(), CuResult>) -> CuResult {
    result.err().unwrap_or(CuResult::SUCCESS)
}

/// Makes the driver ready, without a context.
pub fn initialise() -> Result<(), CuResult> {
    if turn::is_forked() {
        return Err(CuResult::NOT_INITIALIZED);
    }
    if IS_READY.load(Ordering::Acquire) {
        return Ok(());
    }
    check(driver::cuInit(0))?;
    if !IS_READY.swap(true, Ordering::AcqRel) {
        turn::watch_forks();
        surroundings::tell();
    }
    Ok(())
}

/// Sees to it that the thread has a context.
pub fn enter() -> Result<(), CuResult> {
    initialise()?;
    let resets = RESETS.load(Ordering::Acquire);
    let is_seen = SEEN_RESETS.replace(resets) == resets;
    let current = current()?;
    if !current.is_null() && (is_seen || !is_stale(current)) {
        return Ok(());
    }
    make_current(primary(DEVICE.get())?)
}

fn make_current(context: CuContext) -> Result<(), CuResult> {
    check(driver::cuCtxSetCurrent(context))?;
    MADE_CURRENT.set(context.0.addr());
    Ok(())
}

/// The thread's context, whoever made it current.
pub fn current() -> Result<CuContext, CuResult> {
    let mut context = CuContext::NULL;
    check(driver::cuCtxGetCurrent(&mut context))?;
    Ok(context)
}

/// True for a context that a reset of its device ended: one that does not answer, or that the runtime made current and
/// holds no more.
fn is_stale(context: CuContext) -> bool {
    let mut version = 0;
    let is_held = || PRIMARY.iter().any(|held| held.load(Ordering::Acquire) == context.0);
    !driver::cuCtxGetApiVersion(context, &mut version).is_success()
        || (MADE_CURRENT.get() == context.0.addr() && !is_held())
}

/// The primary context of a device, retained once for the process.
pub fn primary(device: CuDevice) -> Result<CuContext, CuResult> {
    let held = usize::try_from(device).ok().and_then(|index| PRIMARY.get(index));
    let held = held.ok_or(CuResult::INVALID_DEVICE)?;
    // Retained long ago in most cases: then nobody waits.
    let known = held.load(Ordering::Acquire);
    if !known.is_null() {
        return Ok(CuContext(known));
    }
    let turn = turn::begin()?;
    let _one = turn::lock(&RETAINING, &turn);
    let known = held.load(Ordering::Acquire);
    if !known.is_null() {
        return Ok(CuContext(known));
    }
    let mut context = CuContext::NULL;
    check(driver::cuDevicePrimaryCtxRetain(&mut context, device))?;
    held.store(context.0, Ordering::Release);
    Ok(context)
}

/// The thread's device: that of its context, or the one that was set last.
pub fn device() -> Result<CuDevice, CuResult> {
    if IS_READY.load(Ordering::Acquire) {
        initialise()?;
        if !current()?.is_null() {
            let mut device = 0;
            check(driver::cuCtxGetDevice(&mut device))?;
            return Ok(device);
        }
    }
    Ok(DEVICE.get())
}

/// Makes a device the thread's, and its primary context current.
pub fn set_device(device: CuDevice) -> Result<(), CuResult> {
    exists(device)?;
    let context = primary(device)?;
    make_current(context)?;
    SEEN_RESETS.set(RESETS.load(Ordering::Acquire));
    DEVICE.set(device);
    Ok(())
}

/// Refuses an ordinal that no device has.
pub fn exists(device: CuDevice) -> Result<(), CuResult> {
    initialise()?;
    let mut count = 0;
    check(driver::cuDeviceGetCount(&mut count))?;
    if (0..count).contains(&device) {
        Ok(())
    } else {
        Err(CuResult::INVALID_DEVICE)
    }
}

/// Ends all that the thread's device holds, whoever retained its primary context. The next call that needs a context
/// makes a new one.
pub fn reset() -> Result<(), CuResult> {
    initialise()?;
    let device = device()?;
    DEVICE.set(device);
    let turn = turn::begin()?;
    let _one = turn::lock(&RETAINING, &turn);
    let index = usize::try_from(device).map_err(|_| CuResult::INVALID_DEVICE)?;
    let held = PRIMARY.get(index).ok_or(CuResult::INVALID_DEVICE)?;
    let was_held = !held.swap(core::ptr::null_mut(), Ordering::AcqRel).is_null();
    let done = driver::cuDevicePrimaryCtxReset_v2(device);
    let released = if was_held {
        driver::cuDevicePrimaryCtxRelease_v2(device)
    } else {
        CuResult::SUCCESS
    };
    RESETS.fetch_add(1, Ordering::AcqRel);
    // A context that the program made itself stays current.
    let left = current()?;
    if !left.is_null() && is_stale(left) {
        check(driver::cuCtxSetCurrent(CuContext::NULL))?;
    }
    check(done)?;
    check(released)
}
