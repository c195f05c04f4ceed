// SPDX-License-Identifier: Apache-2.0
//! The life of contexts: what dies with one is given back.
//!
//! Records of a context that is about to end are first put under a name of their own: the driver may give the same
//! handle to a context that another thread creates before we are back.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU64, Ordering};

use partage_abi::types::{CuContext, CuCtxCreateParams, CuDevice, CuExecAffinityParam, CuResult};

use crate::account::{self, Operation};
use crate::entry::call;
use crate::real::Library;
use crate::state::{self, State};

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
        give_back(state, name)
    } else {
        rename(state, name, context)
    }
    drop(operations);
    result
}

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
fn give_back(state: &State, context: u64) {
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

pub fn cuCtxCreate(real: &Library, ctx: *mut CuContext, flags: c_uint, dev: CuDevice) -> CuResult {
    created(ctx, call!(real, cuCtxCreate(ctx, flags, dev)))
}

pub fn cuCtxCreate_v2(real: &Library, ctx: *mut CuContext, flags: c_uint, dev: CuDevice) -> CuResult {
    created(ctx, call!(real, cuCtxCreate_v2(ctx, flags, dev)))
}

pub fn cuCtxCreate_v3(
    real: &Library,
    ctx: *mut CuContext,
    params_array: *mut CuExecAffinityParam,
    num_params: c_int,
    flags: c_uint,
    dev: CuDevice,
) -> CuResult {
    created(
        ctx,
        call!(real, cuCtxCreate_v3(ctx, params_array, num_params, flags, dev)),
    )
}

pub fn cuCtxCreate_v4(
    real: &Library,
    ctx: *mut CuContext,
    ctx_create_params: *mut CuCtxCreateParams,
    flags: c_uint,
    dev: CuDevice,
) -> CuResult {
    created(ctx, call!(real, cuCtxCreate_v4(ctx, ctx_create_params, flags, dev)))
}

/// A new context under an old handle: whatever we still hold under that handle ended without our having seen it.
fn created(ctx: *mut CuContext, result: CuResult) -> CuResult {
    if result.is_success()
        && !ctx.is_null()
        && let Some(state) = state::get()
    {
        // SAFETY: the driver succeeded, so it wrote the handle there.
        give_back(state, unsafe { ctx.read() }.0 as u64);
    }
    result
}

pub fn cuCtxDestroy(real: &Library, ctx: CuContext) -> CuResult {
    ending(ctx.0 as u64, || {
        let result = call!(real, cuCtxDestroy(ctx));
        (result, result.is_success())
    })
}

pub fn cuCtxDestroy_v2(real: &Library, ctx: CuContext) -> CuResult {
    ending(ctx.0 as u64, || {
        let result = call!(real, cuCtxDestroy_v2(ctx));
        (result, result.is_success())
    })
}

/// Ends the context only when nobody else attached to it: asked of the driver afterwards.
pub fn cuCtxDetach(real: &Library, ctx: CuContext) -> CuResult {
    ending(ctx.0 as u64, || {
        let result = call!(real, cuCtxDetach(ctx));
        let mut version: c_uint = 0;
        let is_gone = result.is_success() && !call!(real, cuCtxGetApiVersion(ctx, &raw mut version)).is_success();
        (result, is_gone)
    })
}

pub fn cuDevicePrimaryCtxRetain(real: &Library, ctx: *mut CuContext, dev: CuDevice) -> CuResult {
    let result = call!(real, cuDevicePrimaryCtxRetain(ctx, dev));
    if result.is_success()
        && !ctx.is_null()
        && let Some(place) = primary(dev)
    {
        // SAFETY: the driver succeeded, so it wrote the handle there.
        place.store(unsafe { ctx.read() }.0 as u64, Ordering::Relaxed);
    }
    result
}

pub fn cuDevicePrimaryCtxRelease(real: &Library, dev: CuDevice) -> CuResult {
    release(real, dev, || call!(real, cuDevicePrimaryCtxRelease(dev)))
}

pub fn cuDevicePrimaryCtxRelease_v2(real: &Library, dev: CuDevice) -> CuResult {
    release(real, dev, || call!(real, cuDevicePrimaryCtxRelease_v2(dev)))
}

pub fn cuDevicePrimaryCtxReset(real: &Library, dev: CuDevice) -> CuResult {
    reset(dev, || call!(real, cuDevicePrimaryCtxReset(dev)))
}

pub fn cuDevicePrimaryCtxReset_v2(real: &Library, dev: CuDevice) -> CuResult {
    reset(dev, || call!(real, cuDevicePrimaryCtxReset_v2(dev)))
}

/// The last release ends the primary context; the driver alone counts.
fn release(real: &Library, dev: CuDevice, release: impl FnOnce() -> CuResult) -> CuResult {
    ending(primary_handle(dev), || {
        let result = release();
        let (mut flags, mut is_active): (c_uint, c_int) = (0, 1);
        let is_gone = result.is_success()
            && call!(
                real,
                cuDevicePrimaryCtxGetState(dev, &raw mut flags, &raw mut is_active)
            )
            .is_success()
            && is_active == 0;
        (result, is_gone)
    })
}

/// A reset ends what the context held, however many retain it.
fn reset(dev: CuDevice, reset: impl FnOnce() -> CuResult) -> CuResult {
    ending(primary_handle(dev), || {
        let result = reset();
        (result, result.is_success())
    })
}

fn primary(dev: CuDevice) -> Option<&'static AtomicU64> {
    state::get()?.primary_contexts.get(usize::try_from(dev).ok()?)
}

fn primary_handle(dev: CuDevice) -> u64 {
    primary(dev).map_or(0, |place| place.load(Ordering::Relaxed))
}
