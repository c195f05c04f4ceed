// SPDX-License-Identifier: Apache-2.0
//! Green contexts: a green context retains the primary context of its device, and converted it *is* that, with fewer
//! multiprocessors and a handle of its own.
//!
//! A conversion makes no context and ends none. What is allocated in a converted context is the primary one's: its
//! record has the primary context's name (`memory/green.rs`), so neither another conversion, nor the end of the green
//! context, nor a context that gets the same handle later makes us forget it.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::c_uint;
use core::sync::atomic::Ordering;

use partage_abi::types::{CuContext, CuDevResourceDesc, CuDevice, CuGreenCtx, CuResult};

use super::context::{device_of_context, give_back, is_primary_active, primary};
use crate::marks;
use crate::memory::contexts;
use crate::memory::overhead;
use crate::memory::pools;
use crate::memory::words::Operation;
use crate::real::Library;
use crate::real::call;
use crate::state;

/// What it costs is the primary context of its device, which it retains for as long as it lives.
pub fn cuGreenCtxCreate(
    real: &Library,
    ctx: *mut CuGreenCtx,
    desc: CuDevResourceDesc,
    dev: CuDevice,
    flags: c_uint,
) -> CuResult {
    let (mut former, mut announced) = (CuGreenCtx(core::ptr::null_mut()), None);
    if !ctx.is_null() {
        // SAFETY: not null, and the caller's place for a handle. What it held stays there if nothing is made.
        former = unsafe { ctx.read() };
        announced = match overhead::announce(real, dev) {
            Ok(announced) => announced,
            Err(code) => return code,
        };
    }
    let result = call!(real, cuGreenCtxCreate(ctx, desc, dev, flags));
    if result.is_success() {
        learn_primary(real, dev);
    }
    let Some(beyond) = announced.and_then(|announced| announced.judge(result)) else {
        return result;
    };
    // SAFETY: announced, so not null; the driver succeeded, so it wrote the handle there.
    let made = unsafe { ctx.replace(former) };
    let _ = call!(real, cuGreenCtxDestroy(made));
    beyond.removed("a context")
}

/// The program need not have asked for the primary context itself.
fn learn_primary(real: &Library, dev: CuDevice) {
    let mut context = CuContext::NULL;
    if call!(real, cuDevicePrimaryCtxRetain(&raw mut context, dev)).is_success() {
        if let Some(place) = primary(dev) {
            place.store(context.0 as u64, Ordering::Relaxed);
        }
        let _ = call!(real, cuDevicePrimaryCtxRelease_v2(dev));
    }
}

/// It may have been the last to hold the primary context of its device, which it does not name.
pub fn cuGreenCtxDestroy(real: &Library, ctx: CuGreenCtx) -> CuResult {
    let (Some(state), Some(contexts)) = (state::get(), contexts::get()) else {
        return call!(real, cuGreenCtxDestroy(ctx));
    };
    // The same handle each time: the only way to learn it.
    let mut converted = CuContext::NULL;
    let is_known = call!(real, cuCtxFromGreenCtx(&raw mut converted, ctx)).is_success();
    let operations = Operation::begin_everywhere(state);
    let result = call!(real, cuGreenCtxDestroy(ctx));
    if result.is_success() {
        if is_known {
            let converted = converted.0 as u64;
            contexts.forget(converted);
            if !contexts.is_primary(converted) {
                marks::context_ended(state, converted);
            }
        }
        for (ordinal, place) in contexts.primary.iter().enumerate() {
            let handle = place.load(Ordering::Relaxed);
            if handle != 0 && is_primary_active(real, ordinal as CuDevice) == Some(false) {
                give_back(state, handle);
                marks::context_ended(state, handle);
                pools::context_ended(state);
            }
        }
    }
    drop(operations);
    if result.is_success() {
        overhead::context_ended(real, None);
    }
    result
}

pub fn cuCtxFromGreenCtx(real: &Library, context: *mut CuContext, ctx: CuGreenCtx) -> CuResult {
    let result = call!(real, cuCtxFromGreenCtx(context, ctx));
    if !result.is_success() || context.is_null() {
        return result;
    }
    // SAFETY: the driver succeeded, so it wrote the handle there.
    let converted = unsafe { context.read() };
    if !note_converted(real, converted) {
        return CuResult::OUT_OF_MEMORY;
    }
    overhead::may_have_changed(real, None);
    result
}

/// `false`: no place is left to note it.
fn note_converted(real: &Library, converted: CuContext) -> bool {
    let handle = converted.0 as u64;
    let Some(contexts) = contexts::get() else { return false };
    if contexts.is_green(handle) || contexts.is_primary(handle) {
        return true;
    }
    let device = device_of_context(real, converted).or_else(|| device_when_current(real, converted));
    device.is_none_or(|device| contexts.note(handle, device))
}

/// The device of a context that no other thread has yet, asked of a driver that tells it of the current one only.
fn device_when_current(real: &Library, context: CuContext) -> Option<CuDevice> {
    let mut device: CuDevice = 0;
    let mut popped = CuContext::NULL;
    if !call!(real, cuCtxPushCurrent_v2(context)).is_success() {
        return None;
    }
    let result = call!(real, cuCtxGetDevice(&raw mut device));
    let _ = call!(real, cuCtxPopCurrent_v2(&raw mut popped));
    result.is_success().then_some(device)
}
