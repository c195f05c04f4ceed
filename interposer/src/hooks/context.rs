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
use partage_protocol::hold::ties::GRAPHICS;
use partage_protocol::message::MAX_DEVICES;

use crate::attachment::ties::made;
use crate::marks;
use crate::memory::account;
use crate::memory::contexts;
use crate::memory::overhead::{self, Announced};
use crate::memory::pools;
use crate::memory::sharing;
use crate::memory::tables;
use crate::memory::words::Operation;
use crate::real::Library;
use crate::real::call;
use crate::state::{self, State};

/// Makes names for ending contexts: a high half that no user-space address has.
static ENDING: AtomicU64 = AtomicU64::new(1);

/// A call that may end a context, whose memory is given back then.
struct Ending {
    state: &'static State,
    context: u64,
    /// What the context's records are under meanwhile.
    name: u64,
    operations: [Option<Operation>; MAX_DEVICES],
}

impl Ending {
    /// `None`: no state, or a context that nobody knows.
    #[inline(never)] // as `give_back`
    fn begin(context: u64) -> Option<Self> {
        let state = state::get().filter(|_| context != 0)?;
        let name = ENDING.fetch_add(1, Ordering::Relaxed) << 48 | context;
        rename(state, context, name);
        let operations = Operation::begin_everywhere(state);
        Some(Self {
            state,
            context,
            name,
            operations,
        })
    }

    /// The driver was called.
    #[inline(never)] // as `give_back`
    fn end(self, is_gone: bool) {
        let Self {
            state, context, name, ..
        } = self;
        if is_gone {
            give_back(state, name);
            marks::context_ended(state, context);
            pools::context_ended(state);
        } else {
            rename(state, name, context);
        }
        drop(self.operations);
    }
}

#[inline(never)] // as `give_back`
fn rename(state: &State, from: u64, to: u64) {
    tables::hold(state).allocations.change_all(|allocation| {
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
        let taken = core::cell::Cell::new(0);
        tables::hold(state).allocations.retire(
            |allocation| allocation.context == context && taken.get() < BATCH,
            |allocation| {
                if let Some(place) = batch.get_mut(taken.get()) {
                    *place = Some(allocation);
                }
                taken.set(taken.get() + 1);
            },
        );
        filled += taken.get();
        for allocation in batch.iter().flatten() {
            account::refund(state, allocation.charge);
        }
        if filled < BATCH {
            return;
        }
    }
}

/// A context that is about to be made, whose handle goes to `ctx`; what that held stays there if nothing is made.
struct Making {
    ctx: *mut CuContext,
    former: CuContext,
    announced: Option<Announced>,
}

impl Making {
    /// Asks for room. An error is the code that the program gets instead of a context.
    #[inline(never)] // as `give_back`
    fn begin(real: &Library, ctx: *mut CuContext, dev: CuDevice) -> Result<Self, CuResult> {
        let (mut former, mut announced) = (CuContext::NULL, None);
        if !ctx.is_null() {
            // SAFETY: not null, and the caller's place for a handle.
            former = unsafe { ctx.read() };
            announced = overhead::announce(real, dev)?;
        }
        Ok(Self { ctx, former, announced })
    }

    /// The driver was called.
    #[inline(never)] // as `give_back`
    fn end(self, real: &Library, result: CuResult) -> CuResult {
        let result = created(self.ctx, result);
        let Some(beyond) = self.announced.and_then(|announced| announced.judge(result)) else {
            return result;
        };
        // SAFETY: announced, so not null; the driver succeeded, so it wrote the handle there.
        let made = unsafe { self.ctx.replace(self.former) };
        let _ = call!(real, cuCtxDestroy_v2(made));
        beyond.removed("a context")
    }
}

pub fn cuCtxCreate(real: &Library, ctx: *mut CuContext, flags: c_uint, dev: CuDevice) -> CuResult {
    let making = match Making::begin(real, ctx, dev) {
        Ok(making) => making,
        Err(code) => return code,
    };
    let result = call!(real, cuCtxCreate(ctx, flags, dev));
    making.end(real, result)
}

pub fn cuCtxCreate_v2(real: &Library, ctx: *mut CuContext, flags: c_uint, dev: CuDevice) -> CuResult {
    let making = match Making::begin(real, ctx, dev) {
        Ok(making) => making,
        Err(code) => return code,
    };
    let result = call!(real, cuCtxCreate_v2(ctx, flags, dev));
    making.end(real, result)
}

pub fn cuCtxCreate_v3(
    real: &Library,
    ctx: *mut CuContext,
    params_array: *mut CuExecAffinityParam,
    num_params: c_int,
    flags: c_uint,
    dev: CuDevice,
) -> CuResult {
    let making = match Making::begin(real, ctx, dev) {
        Ok(making) => making,
        Err(code) => return code,
    };
    let result = call!(real, cuCtxCreate_v3(ctx, params_array, num_params, flags, dev));
    making.end(real, result)
}

pub fn cuCtxCreate_v4(
    real: &Library,
    ctx: *mut CuContext,
    ctx_create_params: *mut CuCtxCreateParams,
    flags: c_uint,
    dev: CuDevice,
) -> CuResult {
    let making = match Making::begin(real, ctx, dev) {
        Ok(making) => making,
        Err(code) => return code,
    };
    let result = call!(real, cuCtxCreate_v4(ctx, ctx_create_params, flags, dev));
    // SAFETY: null, or parameters that the driver has taken.
    let has_graphics = || unsafe { ctx_create_params.as_ref() }.is_some_and(|params| !params.cigParams.is_null());
    let result = if result.is_success() && has_graphics() {
        made(result, GRAPHICS)
    } else {
        result
    };
    making.end(real, result)
}

pub fn cuGLCtxCreate(real: &Library, ctx: *mut CuContext, flags: c_uint, device: CuDevice) -> CuResult {
    let making = match Making::begin(real, ctx, device) {
        Ok(making) => making,
        Err(code) => return code,
    };
    let result = call!(real, cuGLCtxCreate(ctx, flags, device));
    making.end(real, made(result, GRAPHICS))
}

pub fn cuGLCtxCreate_v2(real: &Library, ctx: *mut CuContext, flags: c_uint, device: CuDevice) -> CuResult {
    let making = match Making::begin(real, ctx, device) {
        Ok(making) => making,
        Err(code) => return code,
    };
    let result = call!(real, cuGLCtxCreate_v2(ctx, flags, device));
    making.end(real, made(result, GRAPHICS))
}

pub fn cuVDPAUCtxCreate(
    real: &Library,
    ctx: *mut CuContext,
    flags: c_uint,
    device: CuDevice,
    vdp_device: u32,
    vdp_get_proc_address: *mut c_void,
) -> CuResult {
    let making = match Making::begin(real, ctx, device) {
        Ok(making) => making,
        Err(code) => return code,
    };
    let result = call!(
        real,
        cuVDPAUCtxCreate(ctx, flags, device, vdp_device, vdp_get_proc_address)
    );
    making.end(real, made(result, GRAPHICS))
}

pub fn cuVDPAUCtxCreate_v2(
    real: &Library,
    ctx: *mut CuContext,
    flags: c_uint,
    device: CuDevice,
    vdp_device: u32,
    vdp_get_proc_address: *mut c_void,
) -> CuResult {
    let making = match Making::begin(real, ctx, device) {
        Ok(making) => making,
        Err(code) => return code,
    };
    let result = call!(
        real,
        cuVDPAUCtxCreate_v2(ctx, flags, device, vdp_device, vdp_get_proc_address)
    );
    making.end(real, made(result, GRAPHICS))
}

/// A new context under an old handle: whatever we still hold under that handle ended without our having seen it.
fn created(ctx: *mut CuContext, result: CuResult) -> CuResult {
    if result.is_success()
        && !ctx.is_null()
        && let Some(state) = state::get()
    {
        // SAFETY: the driver succeeded, so it wrote the handle there.
        let context = unsafe { ctx.read() }.0 as u64;
        if let Some(contexts) = contexts::get() {
            contexts.forget(context);
        }
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

/// A call that destroys a context.
struct Destroying {
    device: Option<CuDevice>,
    ending: Option<Ending>,
}

impl Destroying {
    #[inline(never)] // as `give_back`
    fn begin(real: &Library, ctx: CuContext) -> Self {
        Self {
            device: device_of_context(real, ctx),
            ending: Ending::begin(ctx.0 as u64),
        }
    }

    /// The driver was called; the context is gone, unless others hold it.
    #[inline(never)] // as `give_back`
    fn end(self, real: &Library, result: CuResult, is_gone: bool) -> CuResult {
        if let Some(ending) = self.ending {
            ending.end(is_gone);
        }
        if is_gone {
            overhead::context_ended(real, self.device);
        }
        result
    }
}

pub fn cuCtxDestroy(real: &Library, ctx: CuContext) -> CuResult {
    let destroying = Destroying::begin(real, ctx);
    let result = call!(real, cuCtxDestroy(ctx));
    destroying.end(real, result, result.is_success())
}

pub fn cuCtxDestroy_v2(real: &Library, ctx: CuContext) -> CuResult {
    let destroying = Destroying::begin(real, ctx);
    let result = call!(real, cuCtxDestroy_v2(ctx));
    destroying.end(real, result, result.is_success())
}

/// Ends the context only when nobody else attached to it: asked of the driver afterwards.
pub fn cuCtxDetach(real: &Library, ctx: CuContext) -> CuResult {
    let destroying = Destroying::begin(real, ctx);
    let result = call!(real, cuCtxDetach(ctx));
    let mut version: c_uint = 0;
    let is_gone = result.is_success() && !call!(real, cuCtxGetApiVersion(ctx, &raw mut version)).is_success();
    destroying.end(real, result, is_gone)
}

pub fn cuDevicePrimaryCtxRetain(real: &Library, ctx: *mut CuContext, dev: CuDevice) -> CuResult {
    if sharing::is_foreign(real, dev) {
        return CuResult::INVALID_DEVICE;
    }
    let (mut former, mut announced) = (CuContext::NULL, None);
    if !ctx.is_null() && is_primary_active(real, dev) == Some(false) {
        // SAFETY: not null, and the caller's place for a handle. What it held stays there if nothing is made.
        former = unsafe { ctx.read() };
        announced = match overhead::announce(real, dev) {
            Ok(announced) => announced,
            Err(code) => return code,
        };
    }
    let result = call!(real, cuDevicePrimaryCtxRetain(ctx, dev));
    if result.is_success()
        && !ctx.is_null()
        && let Some(place) = primary(dev)
    {
        // SAFETY: the driver succeeded, so it wrote the handle there.
        place.store(unsafe { ctx.read() }.0 as u64, Ordering::Relaxed);
    }
    let Some(beyond) = announced.and_then(|announced| announced.judge(result)) else {
        return result;
    };
    // SAFETY: announced, so not null.
    unsafe { ctx.write(former) };
    let _ = call!(real, cuDevicePrimaryCtxRelease_v2(dev));
    beyond.removed("a context")
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

/// The last release ends the primary context; the driver alone counts.
fn released(real: &Library, dev: CuDevice, ending: Option<Ending>, result: CuResult) -> CuResult {
    let is_gone = result.is_success() && is_primary_active(real, dev) == Some(false);
    ended(real, dev, ending, result, is_gone)
}

/// A call that may end a primary context was answered.
#[inline(never)] // as `give_back`
fn ended(real: &Library, dev: CuDevice, ending: Option<Ending>, result: CuResult, is_gone: bool) -> CuResult {
    if let Some(ending) = ending {
        ending.end(is_gone);
    }
    if is_gone {
        overhead::context_ended(real, Some(dev));
    }
    result
}

pub fn cuDevicePrimaryCtxRelease(real: &Library, dev: CuDevice) -> CuResult {
    let ending = Ending::begin(primary_handle(dev));
    let result = call!(real, cuDevicePrimaryCtxRelease(dev));
    released(real, dev, ending, result)
}

pub fn cuDevicePrimaryCtxRelease_v2(real: &Library, dev: CuDevice) -> CuResult {
    let ending = Ending::begin(primary_handle(dev));
    let result = call!(real, cuDevicePrimaryCtxRelease_v2(dev));
    released(real, dev, ending, result)
}

/// A reset ends what the context held, however many retain it.
pub fn cuDevicePrimaryCtxReset(real: &Library, dev: CuDevice) -> CuResult {
    let ending = Ending::begin(primary_handle(dev));
    let result = call!(real, cuDevicePrimaryCtxReset(dev));
    ended(real, dev, ending, result, result.is_success())
}

/// As [`cuDevicePrimaryCtxReset`].
pub fn cuDevicePrimaryCtxReset_v2(real: &Library, dev: CuDevice) -> CuResult {
    let ending = Ending::begin(primary_handle(dev));
    let result = call!(real, cuDevicePrimaryCtxReset_v2(dev));
    ended(real, dev, ending, result, result.is_success())
}

/// Where the primary context of a device is noted.
pub fn primary(dev: CuDevice) -> Option<&'static AtomicU64> {
    contexts::get()?.primary.get(usize::try_from(dev).ok()?)
}

fn primary_handle(dev: CuDevice) -> u64 {
    primary(dev).map_or(0, |place| place.load(Ordering::Relaxed))
}
