// SPDX-License-Identifier: Apache-2.0
//! Green contexts: a part of a device's multiprocessors, and the primary context with no more than that part.
//!
//! A green context retains the primary context of its device. Converted it is a context to the program, with streams
//! and limits of its own; its memory and code are the primary context's, so it costs nothing, and what was allocated in
//! it stays until the primary context ends. The part is kept and told; kernels take as long as on the whole device.

use std::sync::{Arc, Mutex, PoisonError};

use partage_abi::types::*;
use partage_abi::values::*;
use partage_machine::Device;

use super::context::{release_primary, retain_primary};
use super::flavours::{answer, both_flavours};
use super::stream::{cuCtxRecordEvent, cuCtxWaitEvent, green_of};
use crate::context::{Context, Green, life, with_stack};
use crate::handles::{HandleKind, Handles};
use crate::state::{Answer, code, driver, store};
use crate::stream::{NON_BLOCKING, Stream};

static GREEN_CONTEXTS: Handles<GreenContext> = Handles::new(HandleKind::GreenContext);
static DESCRIPTORS: Handles<Part> = Handles::new(HandleKind::ResourceDescriptor);

const MULTIPROCESSORS: c_int = CU_DEV_RESOURCE_TYPE_SM as c_int;
/// Begins the part of a resource that is the driver's own; behind it the device's ordinal. Nobody else makes resources.
const OURS: [u8; 4] = *b"part";

/// Multiprocessors of a device.
#[derive(Clone, Copy)]
struct Part {
    ordinal: CuDevice,
    count: u32,
}

struct GreenContext {
    handle: CuGreenCtx,
    part: Part,
    primary: Arc<Context>,
    /// What it was converted to.
    converted: Mutex<Option<Arc<Context>>>,
}

impl Part {
    fn whole(ordinal: CuDevice) -> Answer<Self> {
        let device = driver()?.device(ordinal)?;
        let count = device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).unwrap_or(1);
        Ok(Self {
            ordinal,
            count: count.unsigned_abs(),
        })
    }

    /// The part that a resource names.
    fn read(resource: *const CuDevResource) -> Answer<Self> {
        if resource.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null, and by the entry points' contract a resource.
        let resource = unsafe { resource.read_unaligned() };
        if resource.kind != MULTIPROCESSORS {
            return Err(CuResult::INVALID_RESOURCE_TYPE);
        }
        let (mark, rest) = resource._internal_padding.split_at(OURS.len());
        if mark != OURS {
            return Err(CuResult::INVALID_RESOURCE_CONFIGURATION);
        }
        // SAFETY: of this kind the member is this one, all numbers.
        let count = unsafe { resource.resource.sm.smCount };
        Ok(Self {
            ordinal: CuDevice::from(rest[0]),
            count,
        })
    }

    /// As the program is told: of no kind when there is nothing left.
    fn told(self) -> CuDevResource {
        let mut resource = CuDevResource::default();
        if self.count == 0 {
            return resource;
        }
        resource.kind = MULTIPROCESSORS;
        resource.resource.sm = CuDevSmResource {
            smCount: self.count,
            ..CuDevSmResource::default()
        };
        for (to, from) in resource._internal_padding.iter_mut().zip(OURS) {
            *to = from;
        }
        resource._internal_padding[OURS.len()] = self.ordinal as u8;
        resource
    }

    fn tell(self, to: *mut CuDevResource, kind: c_int) -> Answer {
        if kind != MULTIPROCESSORS {
            return Err(CuResult::INVALID_RESOURCE_TYPE);
        }
        store(to, self.told())
    }
}

/// The part of a device's multiprocessors that a context has.
fn part_of(context: &Context) -> Answer<Part> {
    let whole = Part::whole(context.ordinal)?;
    let count = context.green.map_or(whole.count, |green| green.multiprocessors);
    Ok(Part { count, ..whole })
}

/// The least group of multiprocessors of a device, and what its size is a multiple of.
fn group_of(device: &Device) -> (u32, u32) {
    match device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) {
        Some(9..) => (8, 8),
        Some(8) => (4, 2),
        _ => (2, 2),
    }
}

impl GreenContext {
    fn find(handle: CuGreenCtx) -> Answer<Arc<Self>> {
        driver()?;
        GREEN_CONTEXTS.get(handle.0).ok_or(CuResult::INVALID_CONTEXT)
    }

    fn convert(&self) -> Answer<Arc<Context>> {
        let mut converted = self.converted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = &*converted {
            return Ok(context.clone());
        }
        let green = Green {
            handle: self.handle,
            multiprocessors: self.part.count,
        };
        let made = life::convert(&self.primary, green)?;
        Ok(converted.insert(made).clone())
    }
}

pub fn cuDeviceGetDevResource(device: CuDevice, resource: *mut CuDevResource, kind: c_int) -> CuResult {
    code(Part::whole(device).and_then(|part| part.tell(resource, kind)))
}

pub fn cuCtxGetDevResource(ctx: CuContext, resource: *mut CuDevResource, kind: c_int) -> CuResult {
    code(driver().and_then(|_| part_of(&*Context::find(ctx)?)?.tell(resource, kind)))
}

pub fn cuGreenCtxGetDevResource(ctx: CuGreenCtx, resource: *mut CuDevResource, kind: c_int) -> CuResult {
    code(GreenContext::find(ctx).and_then(|green| green.part.tell(resource, kind)))
}

pub fn cuDevSmResourceSplitByCount(
    result: *mut CuDevResource,
    nb_groups: *mut c_uint,
    input: *const CuDevResource,
    remainder: *mut CuDevResource,
    flags: c_uint,
    min_count: c_uint,
) -> CuResult {
    code(driver().and_then(|driver| {
        let part = Part::read(input)?;
        let known =
            CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
        if nb_groups.is_null() || flags & !known != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let (least, step) = group_of(&*driver.device(part.ordinal)?);
        let size = min_count
            .max(least)
            .checked_next_multiple_of(step)
            .ok_or(CuResult::INVALID_VALUE)?;
        let possible = part.count / size;
        if result.is_null() {
            // Only asked for.
            return store(nb_groups, possible);
        }
        // SAFETY: not null, and by the contract of the entry point a number.
        let groups = possible.min(unsafe { nb_groups.read_unaligned() });
        if groups == 0 {
            return Err(CuResult::INVALID_RESOURCE_CONFIGURATION);
        }
        let of_count = |count| Part { count, ..part }.told();
        for group in 0..groups as usize {
            store(result.wrapping_add(group), of_count(size))?;
        }
        if !remainder.is_null() {
            store(remainder, of_count(part.count - groups * size))?;
        }
        store(nb_groups, groups)
    }))
}

pub fn cuDevResourceGenerateDesc(
    desc: *mut CuDevResourceDesc,
    resources: *mut CuDevResource,
    nb_resources: c_uint,
) -> CuResult {
    code(driver().and_then(|_| {
        if desc.is_null() || nb_resources == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let mut all = Part::read(resources)?;
        for place in 1..nb_resources as usize {
            let part = Part::read(resources.wrapping_add(place))?;
            if part.ordinal != all.ordinal {
                return Err(CuResult::INVALID_RESOURCE_CONFIGURATION);
            }
            all.count = all.count.saturating_add(part.count);
        }
        if all.count > Part::whole(all.ordinal)?.count {
            return Err(CuResult::INVALID_RESOURCE_CONFIGURATION);
        }
        store(desc, CuDevResourceDesc(DESCRIPTORS.insert(Arc::new(all))))
    }))
}

pub fn cuGreenCtxCreate(ctx: *mut CuGreenCtx, desc: CuDevResourceDesc, dev: CuDevice, flags: c_uint) -> CuResult {
    code(driver().and_then(|driver| {
        driver.device(dev)?;
        let part = *DESCRIPTORS.get(desc.0).ok_or(CuResult::INVALID_VALUE)?;
        if ctx.is_null() || part.ordinal != dev || flags != CU_GREEN_CTX_DEFAULT_STREAM {
            return Err(CuResult::INVALID_VALUE);
        }
        let primary = retain_primary(dev)?;
        let made = GREEN_CONTEXTS.insert_with(|handle| {
            Arc::new(GreenContext {
                handle: CuGreenCtx(handle),
                part,
                primary,
                converted: Mutex::default(),
            })
        });
        let Some(made) = made else {
            release_primary(dev)?;
            return Err(CuResult::OUT_OF_MEMORY);
        };
        store(ctx, made.handle)
    }))
}

pub fn cuGreenCtxDestroy(ctx: CuGreenCtx) -> CuResult {
    code(driver().and_then(|_| {
        let green = GREEN_CONTEXTS.remove(ctx.0).ok_or(CuResult::INVALID_CONTEXT)?;
        let converted = green.converted.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(context) = converted {
            with_stack(|stack| stack.pop_if(|top| top.id == context.id));
            life::end_converted(&context);
        }
        // A reset may have ended the primary context before, and what retained it.
        let _ = release_primary(green.part.ordinal);
        Ok(())
    }))
}

pub fn cuCtxFromGreenCtx(context: *mut CuContext, ctx: CuGreenCtx) -> CuResult {
    code(GreenContext::find(ctx).and_then(|green| {
        if context.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        store(context, green.convert()?.handle)
    }))
}

pub fn cuGreenCtxGetId(green_ctx: CuGreenCtx, green_ctx_id: *mut c_ulonglong) -> CuResult {
    code(GreenContext::find(green_ctx).and_then(|green| store(green_ctx_id, green.convert()?.id)))
}

pub fn cuGreenCtxRecordEvent(ctx: CuGreenCtx, event: CuEvent) -> CuResult {
    match GreenContext::find(ctx).and_then(|green| green.convert()) {
        Ok(context) => cuCtxRecordEvent(context.handle, event),
        Err(code) => code,
    }
}

pub fn cuGreenCtxWaitEvent(ctx: CuGreenCtx, event: CuEvent) -> CuResult {
    match GreenContext::find(ctx).and_then(|green| green.convert()) {
        Ok(context) => cuCtxWaitEvent(context.handle, event),
        Err(code) => code,
    }
}

pub fn cuGreenCtxStreamCreate(
    stream: *mut CuStream,
    green_ctx: CuGreenCtx,
    flags: c_uint,
    priority: c_int,
) -> CuResult {
    code(GreenContext::find(green_ctx).and_then(|green| {
        if stream.is_null() || flags != NON_BLOCKING {
            return Err(CuResult::INVALID_VALUE);
        }
        store(stream, Stream::create_in(&green.convert()?, flags, priority)?.handle)
    }))
}

both_flavours! {
    cuStreamGetDevResource cuStreamGetDevResource_ptsz (
        stream: CuStream, resource: *mut CuDevResource, kind: c_int; stream
    ) => {
        part_of(&*stream.find()?.context()?)?.tell(resource, kind)
    }
}

pub fn cuStreamGetGreenCtx(stream: CuStream, ctx: *mut CuGreenCtx) -> CuResult {
    answer(|| store(ctx, green_of(&*crate::stream::StreamName::plain(stream).find()?)?))
}
