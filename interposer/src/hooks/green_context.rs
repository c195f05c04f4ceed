// SPDX-License-Identifier: Apache-2.0
//! Green contexts: a green context retains the primary context of its device, and converted it *is* that, with fewer
//! multiprocessors and a handle of its own.
//!
//! A conversion makes no context and ends none. What is allocated in a converted context is the primary one's: its
//! record has the primary context's name ([`Green::home`]), so neither another conversion, nor the end of the green
//! context, nor a context that gets the same handle later makes us forget it.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::c_uint;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use partage_abi::types::{CuContext, CuDevResourceDesc, CuDevice, CuGreenCtx, CuResult};

use super::context::{device_of_context, give_back, is_primary_active, primary};
use crate::memory::account::Operation;
use crate::memory::overhead;
use crate::memory::pools;
use crate::real::Library;
use crate::real::call;
use crate::state::{self, State};
use crate::time;

/// Converted contexts at a time. A device has no use for more green contexts than it has groups of multiprocessors.
const PLACES: usize = 256;
/// A place holds a handle, a user-space address, and above it the device's ordinal plus one.
const HANDLE_BITS: u32 = 48;
const HANDLE: u64 = (1 << HANDLE_BITS) - 1;

/// The converted contexts of this process. All-zero memory is "none".
pub struct Green {
    places: [AtomicU64; PLACES],
    /// Places that were ever in use.
    used: AtomicUsize,
}

impl Green {
    /// The context whose end frees what is allocated in `context`.
    pub fn home(&self, state: &State, context: u64) -> u64 {
        if self.used.load(Ordering::Acquire) == 0 {
            return context;
        }
        self.place_of(context).map_or(context, |place| {
            let ordinal = (place.load(Ordering::Relaxed) >> HANDLE_BITS).saturating_sub(1);
            // A primary context that nobody knows: the record stays until the process ends.
            let primary = state.primary_contexts.get(ordinal as usize);
            primary.map_or(0, |primary| primary.load(Ordering::Relaxed))
        })
    }

    /// The handle is another context's, or nobody's, from now on.
    pub fn forget(&self, context: u64) {
        if let Some(place) = self.place_of(context) {
            place.store(0, Ordering::Release);
        }
    }

    fn place_of(&self, context: u64) -> Option<&AtomicU64> {
        let used = self.used.load(Ordering::Acquire);
        let is_it = |place: &&AtomicU64| {
            let value = place.load(Ordering::Relaxed);
            value != 0 && value & HANDLE == context
        };
        self.places.iter().take(used).find(is_it)
    }

    /// Notes a conversion. `false`: there are too many.
    fn note(&self, context: u64, device: CuDevice) -> bool {
        let value = u64::from(device.unsigned_abs() + 1) << HANDLE_BITS | context & HANDLE;
        if let Some(place) = self.place_of(context) {
            place.store(value, Ordering::Release);
            return true;
        }
        let take = |place: &AtomicU64| {
            place
                .compare_exchange(0, value, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let Some(index) = self.places.iter().position(take) else {
            return false;
        };
        self.used.fetch_max(index + 1, Ordering::AcqRel);
        true
    }
}

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
    let Some(state) = state::get() else {
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
            state.green.forget(converted);
            if !state
                .primary_contexts
                .iter()
                .any(|place| place.load(Ordering::Relaxed) == converted)
            {
                time::context_ended(state, converted);
            }
        }
        for (ordinal, place) in state.primary_contexts.iter().enumerate() {
            let handle = place.load(Ordering::Relaxed);
            if handle != 0 && is_primary_active(real, ordinal as CuDevice) == Some(false) {
                give_back(state, handle);
                time::context_ended(state, handle);
                pools::context_ended(state);
            }
        }
    }
    drop(operations);
    if result.is_success() {
        overhead::may_have_changed(real, None);
    }
    result
}

pub fn cuCtxFromGreenCtx(real: &Library, context: *mut CuContext, ctx: CuGreenCtx) -> CuResult {
    let result = call!(real, cuCtxFromGreenCtx(context, ctx));
    let Some(state) = state::get().filter(|_| result.is_success() && !context.is_null()) else {
        return result;
    };
    // SAFETY: the driver succeeded, so it wrote the handle there.
    let converted = unsafe { context.read() };
    if !note_converted(state, real, converted) {
        return CuResult::OUT_OF_MEMORY;
    }
    overhead::may_have_changed(real, None);
    result
}

/// `false`: no place is left to note it.
fn note_converted(state: &State, real: &Library, converted: CuContext) -> bool {
    let handle = converted.0 as u64;
    let is_primary = || {
        state
            .primary_contexts
            .iter()
            .any(|place| place.load(Ordering::Relaxed) == handle)
    };
    if state.green.place_of(handle).is_some() || is_primary() {
        return true;
    }
    let device = device_of_context(real, converted).or_else(|| device_when_current(real, converted));
    device.is_none_or(|device| state.green.note(handle, device))
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
