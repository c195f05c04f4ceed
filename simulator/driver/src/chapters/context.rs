// SPDX-License-Identifier: Apache-2.0
//! Contexts: the primary one of each device, created ones, the thread's stack of them, their settings and peers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use partage_abi::types::*;
use partage_abi::values::*;

use crate::context::{Context, current, current_as_it_is, life, primary, with_stack};
use crate::state::{Answer, code, driver, store};

/// What `cuCtxGetApiVersion` answers for contexts made through the second and later versions of `cuCtxCreate`.
const API_VERSION: u32 = 3020;
const FIRST_API_VERSION: u32 = 3010;

// ---- primary contexts -----------------------------------------------------------------------------------------

pub fn cuDevicePrimaryCtxRetain(ctx: *mut CuContext, dev: CuDevice) -> CuResult {
    code(driver().and_then(|driver| {
        driver.device(dev)?;
        if ctx.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        store(ctx, retain_primary(dev)?.handle)
    }))
}

/// Retains a device's primary context, which it makes where there is none.
pub(super) fn retain_primary(dev: CuDevice) -> Answer<Arc<Context>> {
    let mut primary = primary(dev)?;
    let context = match &primary.context {
        Some(context) => context.clone(),
        None => life::create(dev, primary.flags, true, API_VERSION)?,
    };
    primary.context = Some(context.clone());
    primary.retains += 1;
    Ok(context)
}

pub fn cuDevicePrimaryCtxRelease(dev: CuDevice) -> CuResult {
    code(driver().and_then(|_| release_primary(dev)))
}

/// Takes back what was retained; the last time ends the context.
pub(super) fn release_primary(dev: CuDevice) -> Answer {
    let mut primary = primary(dev)?;
    if primary.retains == 0 {
        return Err(CuResult::INVALID_CONTEXT);
    }
    primary.retains -= 1;
    if primary.retains == 0
        && let Some(context) = primary.context.take()
    {
        life::destroy(&context);
    }
    Ok(())
}

pub fn cuDevicePrimaryCtxRelease_v2(dev: CuDevice) -> CuResult {
    cuDevicePrimaryCtxRelease(dev)
}

pub fn cuDevicePrimaryCtxReset(dev: CuDevice) -> CuResult {
    code(driver().and_then(|_| {
        // Who has retained it may still release it: the count stays.
        let context = primary(dev)?.context.take();
        if let Some(context) = context {
            life::destroy(&context);
        }
        Ok(())
    }))
}

pub fn cuDevicePrimaryCtxReset_v2(dev: CuDevice) -> CuResult {
    cuDevicePrimaryCtxReset(dev)
}

pub fn cuDevicePrimaryCtxSetFlags(dev: CuDevice, flags: c_uint) -> CuResult {
    code(driver().and_then(|_| {
        check_flags(flags)?;
        let mut primary = primary(dev)?;
        primary.flags = flags;
        if let Some(context) = &primary.context {
            context.flags.store(flags, Ordering::Relaxed);
        }
        Ok(())
    }))
}

pub fn cuDevicePrimaryCtxSetFlags_v2(dev: CuDevice, flags: c_uint) -> CuResult {
    cuDevicePrimaryCtxSetFlags(dev, flags)
}

pub fn cuDevicePrimaryCtxGetState(dev: CuDevice, flags: *mut c_uint, active: *mut c_int) -> CuResult {
    code(driver().and_then(|_| {
        let primary = primary(dev)?;
        store(flags, primary.flags)?;
        store(active, c_int::from(primary.context.is_some()))
    }))
}

// ---- created contexts -----------------------------------------------------------------------------------------

pub fn cuCtxCreate(ctx: *mut CuContext, flags: c_uint, dev: CuDevice) -> CuResult {
    code(create(ctx, flags, dev, FIRST_API_VERSION))
}

pub fn cuCtxCreate_v2(ctx: *mut CuContext, flags: c_uint, dev: CuDevice) -> CuResult {
    code(create(ctx, flags, dev, API_VERSION))
}

pub fn cuCtxCreate_v3(
    ctx: *mut CuContext,
    params_array: *mut CuExecAffinityParam,
    num_params: c_int,
    flags: c_uint,
    dev: CuDevice,
) -> CuResult {
    code(driver().and_then(|_| {
        match (num_params, params_array.is_null()) {
            (0, true) => create(ctx, flags, dev, API_VERSION),
            // A context on a part of the multiprocessors needs MPS, which is not simulated.
            (1.., false) => Err(CuResult::UNSUPPORTED_EXEC_AFFINITY),
            _ => Err(CuResult::INVALID_VALUE),
        }
    }))
}

pub fn cuCtxCreate_v4(
    ctx: *mut CuContext,
    ctx_create_params: *mut CuCtxCreateParams,
    flags: c_uint,
    dev: CuDevice,
) -> CuResult {
    if ctx_create_params.is_null() {
        return cuCtxCreate_v2(ctx, flags, dev);
    }
    // SAFETY: not null, and by the contract of the entry point it leads to this structure.
    let parameters = unsafe { ctx_create_params.read_unaligned() };
    if !parameters.cigParams.is_null() {
        // Sharing with a graphics interface: there is none.
        return code(driver().and(Err(CuResult::NOT_SUPPORTED)));
    }
    cuCtxCreate_v3(
        ctx,
        parameters.execAffinityParams,
        parameters.numExecAffinityParams,
        flags,
        dev,
    )
}

pub fn cuCtxDestroy(ctx: CuContext) -> CuResult {
    cuCtxDestroy_v2(ctx)
}

pub fn cuCtxDestroy_v2(ctx: CuContext) -> CuResult {
    code(driver().and_then(|_| {
        let context = Context::find(ctx)?;
        if context.is_primary {
            // Its life is counted: it is released, not destroyed.
            return Err(CuResult::INVALID_CONTEXT);
        }
        with_stack(|stack| stack.pop_if(|top| top.id == context.id));
        life::destroy(&context);
        Ok(())
    }))
}

pub fn cuCtxAttach(ctx: *mut CuContext, flags: c_uint) -> CuResult {
    code(current_as_it_is().and_then(|context| {
        if flags != 0 || ctx.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        if context.is_primary {
            // Its life is counted by the device.
            return Err(CuResult::INVALID_CONTEXT);
        }
        context.attachments.fetch_add(1, Ordering::AcqRel);
        store(ctx, context.handle)
    }))
}

/// As the manual says: the context is the calling thread's current one; the last to detach destroys it.
pub fn cuCtxDetach(ctx: CuContext) -> CuResult {
    code(driver().and_then(|_| {
        let context = Context::find(ctx)?;
        let is_current = with_stack(|stack| stack.last().is_some_and(|top| top.id == context.id));
        if context.is_primary || !is_current {
            return Err(CuResult::INVALID_CONTEXT);
        }
        let less = |attachments: u32| attachments.checked_sub(1);
        let before = context
            .attachments
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        match before {
            Ok(2..) => Ok(()),
            Ok(_) => {
                with_stack(|stack| stack.pop_if(|top| top.id == context.id));
                life::destroy(&context);
                Ok(())
            }
            // Another thread is destroying it.
            Err(_) => Err(CuResult::INVALID_CONTEXT),
        }
    }))
}

fn create(ctx: *mut CuContext, flags: c_uint, dev: CuDevice, api_version: u32) -> Answer {
    driver()?;
    check_flags(flags)?;
    if ctx.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    let context = life::create(dev, flags, false, api_version)?;
    store(ctx, context.handle)?;
    with_stack(|stack| stack.push(context));
    Ok(())
}

fn check_flags(flags: u32) -> Answer {
    let is_known = flags & !CU_CTX_FLAGS_MASK == 0 && (flags & CU_CTX_SCHED_MASK).count_ones() <= 1;
    if is_known { Ok(()) } else { Err(CuResult::INVALID_VALUE) }
}

// ---- the thread's stack ---------------------------------------------------------------------------------------

pub fn cuCtxPushCurrent(ctx: CuContext) -> CuResult {
    cuCtxPushCurrent_v2(ctx)
}

pub fn cuCtxPushCurrent_v2(ctx: CuContext) -> CuResult {
    code(driver().and_then(|_| {
        let context = Context::find(ctx)?;
        with_stack(|stack| stack.push(context));
        Ok(())
    }))
}

pub fn cuCtxPopCurrent(ctx: *mut CuContext) -> CuResult {
    cuCtxPopCurrent_v2(ctx)
}

pub fn cuCtxPopCurrent_v2(ctx: *mut CuContext) -> CuResult {
    code(driver().and_then(|_| {
        let context = with_stack(Vec::pop).ok_or(CuResult::INVALID_CONTEXT)?;
        // The program may not want to know which it was.
        if ctx.is_null() {
            Ok(())
        } else {
            store(ctx, context.handle)
        }
    }))
}

pub fn cuCtxSetCurrent(ctx: CuContext) -> CuResult {
    code(driver().and_then(|_| {
        let context = if ctx.0.is_null() {
            None
        } else {
            Some(Context::find(ctx)?)
        };
        with_stack(|stack| {
            stack.pop();
            stack.extend(context);
        });
        Ok(())
    }))
}

pub fn cuCtxGetCurrent(ctx: *mut CuContext) -> CuResult {
    code(driver().and_then(|_| {
        let top = with_stack(|stack| stack.last().map(|context| context.handle));
        store(ctx, top.unwrap_or(CuContext(std::ptr::null_mut())))
    }))
}

// ---- what a context says of itself ----------------------------------------------------------------------------

pub fn cuCtxGetDevice(device: *mut CuDevice) -> CuResult {
    code(current_as_it_is().and_then(|context| store(device, context.ordinal)))
}

pub fn cuCtxGetDevice_v2(device: *mut CuDevice, ctx: CuContext) -> CuResult {
    code(given_or_current(ctx).and_then(|context| store(device, context.ordinal)))
}

pub fn cuCtxGetId(ctx: CuContext, ctx_id: *mut c_ulonglong) -> CuResult {
    code(given_or_current(ctx).and_then(|context| store(ctx_id, context.id)))
}

pub fn cuCtxGetApiVersion(ctx: CuContext, version: *mut c_uint) -> CuResult {
    code(given_or_current(ctx).and_then(|context| store(version, context.api_version)))
}

pub fn cuCtxGetFlags(flags: *mut c_uint) -> CuResult {
    code(current().and_then(|context| store(flags, context.flags.load(Ordering::Relaxed))))
}

pub fn cuCtxSetFlags(flags: c_uint) -> CuResult {
    code(current().and_then(|context| {
        check_flags(flags)?;
        context.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }))
}

pub fn cuCtxGetLimit(pvalue: *mut usize, limit: c_int) -> CuResult {
    code(current().and_then(|context| store(pvalue, context.overhead.limit(limit)?)))
}

pub fn cuCtxSetLimit(limit: c_int, value: usize) -> CuResult {
    code(current().and_then(|context| context.overhead.set_limit(limit, value)))
}

pub fn cuCtxGetCacheConfig(pconfig: *mut c_int) -> CuResult {
    code(current().and_then(|context| store(pconfig, context.settings().cache)))
}

pub fn cuCtxSetCacheConfig(config: c_int) -> CuResult {
    code(current().and_then(|context| {
        check_enumerator(config, 3)?;
        context.settings().cache = config;
        Ok(())
    }))
}

pub fn cuCtxGetSharedMemConfig(config: *mut c_int) -> CuResult {
    code(current().and_then(|context| store(config, context.settings().shared_memory)))
}

pub fn cuCtxSetSharedMemConfig(config: c_int) -> CuResult {
    code(current().and_then(|context| {
        check_enumerator(config, 2)?;
        context.settings().shared_memory = config;
        Ok(())
    }))
}

pub fn cuCtxGetStreamPriorityRange(least_priority: *mut c_int, greatest_priority: *mut c_int) -> CuResult {
    code(current().and_then(|_| {
        // Either may be null: the program does not want that one.
        for (to, value) in [(least_priority, LEAST_PRIORITY), (greatest_priority, GREATEST_PRIORITY)] {
            if !to.is_null() {
                store(to, value)?;
            }
        }
        Ok(())
    }))
}

pub fn cuCtxResetPersistingL2Cache() -> CuResult {
    // There is no cache whose lines could persist, so there are none left.
    code(current().map(drop))
}

/// Priorities of streams: lower numbers go first.
pub(crate) const LEAST_PRIORITY: c_int = 0;
/// The most urgent one.
pub(crate) const GREATEST_PRIORITY: c_int = -5;

fn check_enumerator(value: c_int, last: c_int) -> Answer {
    if (0..=last).contains(&value) {
        Ok(())
    } else {
        Err(CuResult::INVALID_VALUE)
    }
}

fn given_or_current(ctx: CuContext) -> Answer<Arc<Context>> {
    if ctx.0.is_null() {
        current_as_it_is()
    } else {
        Context::find(ctx)
    }
}

// ---- peers ----------------------------------------------------------------------------------------------------

pub fn cuCtxEnablePeerAccess(peer_context: CuContext, flags: c_uint) -> CuResult {
    code(current().and_then(|context| {
        let peer = Context::find(peer_context)?;
        if flags != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        if peer.device == context.device {
            return Err(CuResult::PEER_ACCESS_UNSUPPORTED);
        }
        let bit = 1 << peer.device;
        match context.peers.fetch_or(bit, Ordering::AcqRel) & bit {
            0 => Ok(()),
            _ => Err(CuResult::PEER_ACCESS_ALREADY_ENABLED),
        }
    }))
}

pub fn cuCtxDisablePeerAccess(peer_context: CuContext) -> CuResult {
    code(current().and_then(|context| {
        let bit = 1 << Context::find(peer_context)?.device;
        match context.peers.fetch_and(!bit, Ordering::AcqRel) & bit {
            0 => Err(CuResult::PEER_ACCESS_NOT_ENABLED),
            _ => Ok(()),
        }
    }))
}
