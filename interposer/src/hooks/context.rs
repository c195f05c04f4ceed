// SPDX-License-Identifier: Apache-2.0
//! The life of contexts: whether the job has room for one, and what dies with one is given back.
//!
//! Records of a context that is about to end are first put under a name of their own: the driver may give the same
//! handle to a context that another thread creates before we are back.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use partage_abi::types::{CuContext, CuCtxCreateParams, CuDevice, CuExecAffinityParam, CuResult};

use crate::account::{self, Operation};
use crate::entry::call;
use crate::measured;
use crate::pools;
use crate::real::Library;
use crate::state::{self, State};
use crate::time;
use crate::tracked;

/// Makes names for ending contexts: a high half that no user-space address has.
static ENDING: AtomicU64 = AtomicU64::new(1);

/// Runs `end`, which ends `context` if it answers true as second part; its memory is given back then.
fn ending(context: u64, end: impl FnOnce() -> (CuResult, bool)) -> CuResult {
    let Some(state) = state::get().filter(|_| context != 0) else {
        return end().0;
    };
    let name = ENDING.fetch_add(1, Ordering::Relaxed) << 48 | context;
    rename(state, context, name);
    let operations = Operation::begin_everywhere(state);
    let (result, is_gone) = end();
    if is_gone {
        give_back(state, name);
        time::context_ended(state, context);
        pools::context_ended(state);
    } else {
        rename(state, name, context);
    }
    drop(operations);
    result
}

#[inline(never)] // as `give_back`
fn rename(state: &State, from: u64, to: u64) {
    let _held = state.books.hold();
    // SAFETY: `books` is held.
    unsafe { &mut *state.allocations.get() }.change_all(|allocation| {
        if allocation.context == from {
            allocation.context = to;
        }
    });
}

/// Gives back what was allocated in a context that is gone. The records leave the table a batch at a time: refunds
/// take the lock themselves.
#[inline(never)] // one body for all that ends a context
pub fn give_back(state: &State, context: u64) {
    const BATCH: usize = 64;
    loop {
        let mut batch = [None; BATCH];
        let mut filled = 0;
        {
            let _held = state.books.hold();
            // SAFETY: `books` is held.
            let allocations = unsafe { &mut *state.allocations.get() };
            let taken = core::cell::Cell::new(0);
            allocations.retire(
                |allocation| allocation.context == context && taken.get() < BATCH,
                |allocation| {
                    if let Some(place) = batch.get_mut(taken.get()) {
                        *place = Some(allocation);
                    }
                    taken.set(taken.get() + 1);
                },
            );
            filled += taken.get();
        }
        for allocation in batch.iter().flatten() {
            account::refund(state, allocation.charge);
        }
        if filled < BATCH {
            return;
        }
    }
}

/// Makes a context whose handle goes to `ctx`, if the job has room for one.
fn create(real: &Library, ctx: *mut CuContext, dev: CuDevice, make: impl FnOnce() -> CuResult) -> CuResult {
    if ctx.is_null() {
        return make();
    }
    // SAFETY: not null, and the caller's place for a handle. What it held stays there if nothing is made.
    let former = unsafe { ctx.read() };
    measured::context(
        real,
        dev,
        || created(ctx, make()),
        || {
            // SAFETY: as above; the driver succeeded, so it wrote the handle there.
            let made = unsafe { ctx.replace(former) };
            call!(real, cuCtxDestroy_v2(made))
        },
    )
}

pub fn cuCtxCreate(real: &Library, ctx: *mut CuContext, flags: c_uint, dev: CuDevice) -> CuResult {
    create(real, ctx, dev, || call!(real, cuCtxCreate(ctx, flags, dev)))
}

pub fn cuCtxCreate_v2(real: &Library, ctx: *mut CuContext, flags: c_uint, dev: CuDevice) -> CuResult {
    create(real, ctx, dev, || call!(real, cuCtxCreate_v2(ctx, flags, dev)))
}

pub fn cuCtxCreate_v3(
    real: &Library,
    ctx: *mut CuContext,
    params_array: *mut CuExecAffinityParam,
    num_params: c_int,
    flags: c_uint,
    dev: CuDevice,
) -> CuResult {
    create(real, ctx, dev, || {
        call!(real, cuCtxCreate_v3(ctx, params_array, num_params, flags, dev))
    })
}

pub fn cuCtxCreate_v4(
    real: &Library,
    ctx: *mut CuContext,
    ctx_create_params: *mut CuCtxCreateParams,
    flags: c_uint,
    dev: CuDevice,
) -> CuResult {
    create(real, ctx, dev, || {
        call!(real, cuCtxCreate_v4(ctx, ctx_create_params, flags, dev))
    })
}

pub fn cuGLCtxCreate(real: &Library, ctx: *mut CuContext, flags: c_uint, device: CuDevice) -> CuResult {
    create(real, ctx, device, || call!(real, cuGLCtxCreate(ctx, flags, device)))
}

pub fn cuGLCtxCreate_v2(real: &Library, ctx: *mut CuContext, flags: c_uint, device: CuDevice) -> CuResult {
    create(real, ctx, device, || call!(real, cuGLCtxCreate_v2(ctx, flags, device)))
}

pub fn cuVDPAUCtxCreate(
    real: &Library,
    ctx: *mut CuContext,
    flags: c_uint,
    device: CuDevice,
    vdp_device: u32,
    vdp_get_proc_address: *mut c_void,
) -> CuResult {
    create(real, ctx, device, || {
        call!(
            real,
            cuVDPAUCtxCreate(ctx, flags, device, vdp_device, vdp_get_proc_address)
        )
    })
}

pub fn cuVDPAUCtxCreate_v2(
    real: &Library,
    ctx: *mut CuContext,
    flags: c_uint,
    device: CuDevice,
    vdp_device: u32,
    vdp_get_proc_address: *mut c_void,
) -> CuResult {
    create(real, ctx, device, || {
        call!(
            real,
            cuVDPAUCtxCreate_v2(ctx, flags, device, vdp_device, vdp_get_proc_address)
        )
    })
}

/// A new context under an old handle: whatever we still hold under that handle ended without our having seen it.
fn created(ctx: *mut CuContext, result: CuResult) -> CuResult {
    if result.is_success()
        && !ctx.is_null()
        && let Some(state) = state::get()
    {
        // SAFETY: the driver succeeded, so it wrote the handle there.
        let context = unsafe { ctx.read() }.0 as u64;
        state.green.forget(context);
        give_back(state, context);
    }
    result
}

/// The device of a context, asked before it ends. `None`: a driver too old to say.
pub fn device_of_context(real: &Library, ctx: CuContext) -> Option<CuDevice> {
    let mut device: CuDevice = 0;
    call!(real, cuCtxGetDevice_v2(&raw mut device, ctx))
        .is_success()
        .then_some(device)
}

fn destroyed(real: &Library, ctx: CuContext, destroy: impl FnOnce() -> CuResult) -> CuResult {
    let device = device_of_context(real, ctx);
    let result = ending(ctx.0 as u64, || {
        let result = destroy();
        (result, result.is_success())
    });
    if result.is_success() {
        measured::may_have_changed(real, device);
    }
    result
}

pub fn cuCtxDestroy(real: &Library, ctx: CuContext) -> CuResult {
    destroyed(real, ctx, || call!(real, cuCtxDestroy(ctx)))
}

pub fn cuCtxDestroy_v2(real: &Library, ctx: CuContext) -> CuResult {
    destroyed(real, ctx, || call!(real, cuCtxDestroy_v2(ctx)))
}

/// Ends the context only when nobody else attached to it: asked of the driver afterwards.
pub fn cuCtxDetach(real: &Library, ctx: CuContext) -> CuResult {
    let device = device_of_context(real, ctx);
    let result = ending(ctx.0 as u64, || {
        let result = call!(real, cuCtxDetach(ctx));
        let mut version: c_uint = 0;
        let is_gone = result.is_success() && !call!(real, cuCtxGetApiVersion(ctx, &raw mut version)).is_success();
        (result, is_gone)
    });
    if result.is_success() {
        measured::may_have_changed(real, device);
    }
    result
}

pub fn cuDevicePrimaryCtxRetain(real: &Library, ctx: *mut CuContext, dev: CuDevice) -> CuResult {
    let retain = || {
        let result = call!(real, cuDevicePrimaryCtxRetain(ctx, dev));
        if result.is_success()
            && !ctx.is_null()
            && let Some(place) = primary(dev)
        {
            // SAFETY: the driver succeeded, so it wrote the handle there.
            place.store(unsafe { ctx.read() }.0 as u64, Ordering::Relaxed);
        }
        result
    };
    if tracked::is_foreign(real, dev) {
        return CuResult::INVALID_DEVICE;
    }
    if ctx.is_null() || is_primary_active(real, dev) != Some(false) {
        return retain();
    }
    // SAFETY: not null, and the caller's place for a handle. What it held stays there if nothing is made.
    let former = unsafe { ctx.read() };
    measured::context(real, dev, retain, || {
        // SAFETY: as above.
        unsafe { ctx.write(former) };
        call!(real, cuDevicePrimaryCtxRelease_v2(dev))
    })
}

/// Does the device's primary context exist? `None`: no such device.
pub fn is_primary_active(real: &Library, dev: CuDevice) -> Option<bool> {
    let (mut flags, mut is_active): (c_uint, c_int) = (0, 0);
    call!(
        real,
        cuDevicePrimaryCtxGetState(dev, &raw mut flags, &raw mut is_active)
    )
    .is_success()
    .then_some(is_active != 0)
}

pub fn cuDevicePrimaryCtxRelease(real: &Library, dev: CuDevice) -> CuResult {
    release(real, dev, || call!(real, cuDevicePrimaryCtxRelease(dev)))
}

pub fn cuDevicePrimaryCtxRelease_v2(real: &Library, dev: CuDevice) -> CuResult {
    release(real, dev, || call!(real, cuDevicePrimaryCtxRelease_v2(dev)))
}

pub fn cuDevicePrimaryCtxReset(real: &Library, dev: CuDevice) -> CuResult {
    reset(real, dev, || call!(real, cuDevicePrimaryCtxReset(dev)))
}

pub fn cuDevicePrimaryCtxReset_v2(real: &Library, dev: CuDevice) -> CuResult {
    reset(real, dev, || call!(real, cuDevicePrimaryCtxReset_v2(dev)))
}

/// The last release ends the primary context; the driver alone counts.
fn release(real: &Library, dev: CuDevice, release: impl FnOnce() -> CuResult) -> CuResult {
    let result = ending(primary_handle(dev), || {
        let result = release();
        (
            result,
            result.is_success() && is_primary_active(real, dev) == Some(false),
        )
    });
    if result.is_success() {
        measured::may_have_changed(real, Some(dev));
    }
    result
}

/// A reset ends what the context held, however many retain it.
fn reset(real: &Library, dev: CuDevice, reset: impl FnOnce() -> CuResult) -> CuResult {
    let result = ending(primary_handle(dev), || {
        let result = reset();
        (result, result.is_success())
    });
    if result.is_success() {
        measured::may_have_changed(real, Some(dev));
    }
    result
}

/// Where the primary context of a device is noted.
pub fn primary(dev: CuDevice) -> Option<&'static AtomicU64> {
    state::get()?.primary_contexts.get(usize::try_from(dev).ok()?)
}

fn primary_handle(dev: CuDevice) -> u64 {
    primary(dev).map_or(0, |place| place.load(Ordering::Relaxed))
}
