// SPDX-License-Identifier: Apache-2.0
//! Streams: making, asking, waiting, callbacks, attributes, and operations on words in memory.

use std::sync::Arc;

use partage_abi::types::*;

use super::flavours::{answer, both_flavours};
use crate::capture;
use crate::checkpoint::gate::is_frozen;
use crate::context::{Context, current};
use crate::event::Event;
use crate::executor::Op;
use crate::executor::lanes::lanes;
use crate::executor::op::words::Until;
use crate::executor::op::{HostCall, WordStep};
use crate::executor::pool::{self, Task};
use crate::executor::workers;
use crate::graph::Work;
use crate::memory::{memory, settle_pools};
use crate::state::{Answer, code, driver, store};
use crate::stream::{PRIORITIES, Stream, legacy_of};
use crate::submission::{destroy_stream, perform, query_stream, synchronize_context, wait_event};

/// `CU_EVENT_WAIT_EXTERNAL`.
const WAIT_EXTERNAL: u32 = 1;
/// `CU_STREAM_WAIT_VALUE_FLUSH` and `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`.
const WAIT_FLUSH: u32 = 1 << 30;
const WRITE_NO_BARRIER: u32 = 1;
/// `CU_STREAM_MEM_OP_*`.
const WAIT_32: i32 = 1;
const WRITE_32: i32 = 2;
const FLUSH: i32 = 3;
const WAIT_64: i32 = 4;
const WRITE_64: i32 = 5;
const BARRIER: i32 = 6;
/// `CU_LAUNCH_ATTRIBUTE_*` that streams have: access policy, synchronisation, priority, memory domains.
const STREAM_ATTRIBUTES: [i32; 5] = [1, 3, 8, 9, 10];
const ATTRIBUTE_PRIORITY: i32 = 8;

pub fn cuStreamCreate(stream: *mut CuStream, flags: c_uint) -> CuResult {
    cuStreamCreateWithPriority(stream, flags, PRIORITIES.1)
}

pub fn cuStreamCreateWithPriority(stream: *mut CuStream, flags: c_uint, priority: c_int) -> CuResult {
    if stream.is_null() {
        return CuResult::INVALID_VALUE;
    }
    code(Stream::create(flags, priority).and_then(|made| store(stream, made.handle)))
}

pub fn cuStreamDestroy(stream: CuStream) -> CuResult {
    code(destroy_stream(stream))
}

pub fn cuStreamDestroy_v2(stream: CuStream) -> CuResult {
    code(destroy_stream(stream))
}

both_flavours! {
    cuStreamQuery cuStreamQuery_ptsz (stream: CuStream; stream) => {
        let stream = stream.find()?;
        capture::query_stream(&stream)?;
        capture::unsafe_call()?;
        query_stream(&stream)
    }
    cuStreamSynchronize cuStreamSynchronize_ptsz (stream: CuStream; stream) => {
        let stream = stream.find()?;
        capture::query_stream(&stream)?;
        capture::unsafe_call()?;
        stream.wait()?;
        if !is_frozen() {
            settle_pools(driver()?, |freed| freed.stream == stream.key);
        }
        Ok(())
    }
    cuStreamGetPriority cuStreamGetPriority_ptsz (stream: CuStream, priority: *mut c_int; stream) => {
        store(priority, stream.find()?.priority)
    }
    cuStreamGetFlags cuStreamGetFlags_ptsz (stream: CuStream, flags: *mut c_uint; stream) => {
        store(flags, stream.find()?.flags)
    }
    cuStreamGetId cuStreamGetId_ptsz (stream: CuStream, id: *mut c_ulonglong; stream) => {
        store(id, stream.find()?.key)
    }
    cuStreamGetDevice cuStreamGetDevice_ptsz (stream: CuStream, device: *mut CuDevice; stream) => {
        store(device, stream.find()?.context()?.ordinal)
    }
    cuStreamGetCtx cuStreamGetCtx_ptsz (stream: CuStream, context: *mut CuContext; stream) => {
        store(context, stream.find()?.context()?.handle)
    }
    cuStreamGetCtx_v2 cuStreamGetCtx_v2_ptsz (
        stream: CuStream, context: *mut CuContext, green: *mut CuGreenCtx; stream
    ) => {
        let found = stream.find()?;
        store(context, found.context()?.handle)?;
        store(green, green_of(&found)?)
    }
    cuStreamWaitEvent cuStreamWaitEvent_ptsz (stream: CuStream, event: CuEvent, flags: c_uint; stream) => {
        let (stream, event) = (stream.find()?, Event::find(event)?);
        match flags {
            0 => wait_event(&stream, &event),
            WAIT_EXTERNAL => perform(&stream, Work::Wait(event)),
            _ => Err(CuResult::INVALID_VALUE),
        }
    }
    cuStreamAddCallback cuStreamAddCallback_ptsz (
        stream: CuStream, callback: CuStreamCallback, data: *mut c_void, flags: c_uint; stream
    ) => {
        let name = stream.handle();
        let stream = stream.find()?;
        let callback = callback.filter(|_| flags == 0).ok_or(CuResult::INVALID_VALUE)?;
        // A capture cannot hold one: it could not tell the callback its status.
        capture::query_stream(&stream)?;
        perform(&stream, Work::Host(HostCall::Callback { callback, stream: name, data }))
    }
    cuStreamAttachMemAsync cuStreamAttachMemAsync_ptsz (
        stream: CuStream, pointer: CuDevicePtr, length: usize, flags: c_uint; stream
    ) => {
        let stream = stream.find()?;
        let found = memory()?.find(pointer).ok_or(CuResult::INVALID_VALUE)?;
        let is_whole = length == 0 || length as u64 == found.bytes;
        // Managed memory is attached in no way that anybody could see: every device reaches it at any time.
        if !matches!(flags, 1 | 2 | 4) || !is_whole || !found.is_managed() {
            return Err(CuResult::INVALID_VALUE);
        }
        perform(&stream, Work::Empty)
    }
    cuStreamGetAttribute cuStreamGetAttribute_ptsz (
        stream: CuStream, attribute: c_int, value: *mut CuLaunchAttributeValue; stream
    ) => {
        let stream = stream.find()?;
        if !STREAM_ATTRIBUTES.contains(&attribute) {
            return Err(CuResult::INVALID_VALUE);
        }
        let default = match attribute {
            ATTRIBUTE_PRIORITY => CuLaunchAttributeValue { priority: stream.priority },
            _ => CuLaunchAttributeValue::default(),
        };
        store(value, stream.attribute(attribute).unwrap_or(default))
    }
    cuStreamSetAttribute cuStreamSetAttribute_ptsz (
        stream: CuStream, attribute: c_int, value: *const CuLaunchAttributeValue; stream
    ) => {
        let stream = stream.find()?;
        if value.is_null() || attribute == ATTRIBUTE_PRIORITY || !STREAM_ATTRIBUTES.contains(&attribute) {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null, and by the entry point's contract a value of the vendor's type.
        stream.set_attribute(attribute, unsafe { value.read_unaligned() });
        Ok(())
    }
    cuStreamCopyAttributes cuStreamCopyAttributes_ptsz (to: CuStream, from: CuStream; to) => {
        let (to, from) = (to.find()?, to.beside(from).find()?);
        for attribute in STREAM_ATTRIBUTES {
            if let Some(value) = from.attribute(attribute) {
                to.set_attribute(attribute, value);
            }
        }
        Ok(())
    }
}

/// The green context of a stream; null when it has none.
pub(super) fn green_of(stream: &Stream) -> Answer<CuGreenCtx> {
    Ok(stream.context()?.green.map_or(CuGreenCtx::NULL, |green| green.handle))
}

// ---- whole contexts -------------------------------------------------------------------------------------------

pub fn cuCtxSynchronize() -> CuResult {
    code(current().and_then(|context| settle_context(&context)))
}

pub fn cuCtxSynchronize_v2(context: CuContext) -> CuResult {
    code(driver().and_then(|_| {
        let context = Context::find(context)?;
        context.check()?;
        settle_context(&context)
    }))
}

/// Waits for a context; what its streams freed is then over.
fn settle_context(context: &Context) -> Answer {
    synchronize_context(context)?;
    if !is_frozen() {
        settle_pools(driver()?, |freed| freed.context == context.home.0);
    }
    Ok(())
}

pub fn cuCtxRecordEvent(context: CuContext, event: CuEvent) -> CuResult {
    answer(|| {
        let (context, event) = (Context::find(context)?, Event::find(event)?);
        context.check()?;
        capture::query_context(&context)?;
        let lanes = lanes(&context)?;
        legacy_of(&context)?.record_after(&event, &pool::ahead_in_group(lanes.group))
    })
}

pub fn cuCtxWaitEvent(context: CuContext, event: CuEvent) -> CuResult {
    answer(|| {
        let (context, event) = (Context::find(context)?, Event::find(event)?);
        context.check()?;
        capture::query_context(&context)?;
        capture::query_event(&event)?;
        let lanes = lanes(&context)?;
        let (op, after) = Op::after(&event);
        for lane in pool::lanes_of(lanes.group) {
            let task = Task {
                context: Arc::clone(&context),
                op: op.clone(),
                priority: PRIORITIES.1,
            };
            workers::submit(lane, task, &after);
        }
        Ok(())
    })
}

// ---- words in memory ------------------------------------------------------------------------------------------

both_flavours! {
    cuStreamWaitValue32 cuStreamWaitValue32_ptsz (
        stream: CuStream, address: CuDevicePtr, value: u32, flags: c_uint; stream
    ) => {
        words(&stream.find()?, vec![wait(address, u64::from(value), 4, flags)?])
    }
    cuStreamWaitValue32_v2 cuStreamWaitValue32_v2_ptsz (
        stream: CuStream, address: CuDevicePtr, value: u32, flags: c_uint; stream
    ) => {
        words(&stream.find()?, vec![wait(address, u64::from(value), 4, flags)?])
    }
    cuStreamWaitValue64 cuStreamWaitValue64_ptsz (
        stream: CuStream, address: CuDevicePtr, value: u64, flags: c_uint; stream
    ) => {
        words(&stream.find()?, vec![wait(address, value, 8, flags)?])
    }
    cuStreamWaitValue64_v2 cuStreamWaitValue64_v2_ptsz (
        stream: CuStream, address: CuDevicePtr, value: u64, flags: c_uint; stream
    ) => {
        words(&stream.find()?, vec![wait(address, value, 8, flags)?])
    }
    cuStreamWriteValue32 cuStreamWriteValue32_ptsz (
        stream: CuStream, address: CuDevicePtr, value: u32, flags: c_uint; stream
    ) => {
        words(&stream.find()?, vec![write(address, u64::from(value), 4, flags)?])
    }
    cuStreamWriteValue32_v2 cuStreamWriteValue32_v2_ptsz (
        stream: CuStream, address: CuDevicePtr, value: u32, flags: c_uint; stream
    ) => {
        words(&stream.find()?, vec![write(address, u64::from(value), 4, flags)?])
    }
    cuStreamWriteValue64 cuStreamWriteValue64_ptsz (
        stream: CuStream, address: CuDevicePtr, value: u64, flags: c_uint; stream
    ) => {
        words(&stream.find()?, vec![write(address, value, 8, flags)?])
    }
    cuStreamWriteValue64_v2 cuStreamWriteValue64_v2_ptsz (
        stream: CuStream, address: CuDevicePtr, value: u64, flags: c_uint; stream
    ) => {
        words(&stream.find()?, vec![write(address, value, 8, flags)?])
    }
    cuStreamBatchMemOp cuStreamBatchMemOp_ptsz (
        stream: CuStream, count: c_uint, list: *mut CuStreamBatchMemOpParams, flags: c_uint; stream
    ) => {
        words(&stream.find()?, steps(count, list, flags)?)
    }
    cuStreamBatchMemOp_v2 cuStreamBatchMemOp_v2_ptsz (
        stream: CuStream, count: c_uint, list: *mut CuStreamBatchMemOpParams, flags: c_uint; stream
    ) => {
        words(&stream.find()?, steps(count, list, flags)?)
    }
}

fn words(stream: &Arc<Stream>, steps: Vec<WordStep>) -> Answer {
    perform(stream, Work::Words(steps))
}

fn wait(address: u64, value: u64, bytes: u64, flags: u32) -> Answer<WordStep> {
    let until = Until::from_flags(flags & !WAIT_FLUSH).ok_or(CuResult::INVALID_VALUE)?;
    checked(WordStep::Wait {
        address,
        value,
        bytes,
        until,
    })
}

fn write(address: u64, value: u64, bytes: u64, flags: u32) -> Answer<WordStep> {
    if flags & !WRITE_NO_BARRIER != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    checked(WordStep::Write { address, value, bytes })
}

fn checked(step: WordStep) -> Answer<WordStep> {
    step.check().map(|()| step)
}

/// The steps of a batch. INVALID_VALUE if one is wrong, or for none or more than 256.
pub(super) fn steps(count: c_uint, list: *const CuStreamBatchMemOpParams, flags: c_uint) -> Answer<Vec<WordStep>> {
    if list.is_null() || count == 0 || count > 256 || flags != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: not null, and by the entry point's contract an array of `count` entries.
    let list = unsafe { std::slice::from_raw_parts(list, count as usize) };
    list.iter().map(one_step).collect()
}

fn one_step(entry: &CuStreamBatchMemOpParams) -> Answer<WordStep> {
    // SAFETY: every member begins with the operation, which says which one is meant; all are plain data.
    unsafe {
        match entry.operation {
            WAIT_32 => wait(
                entry.waitValue.address,
                u64::from(entry.waitValue.value.value),
                4,
                entry.waitValue.flags,
            ),
            WAIT_64 => wait(
                entry.waitValue.address,
                entry.waitValue.value.value64,
                8,
                entry.waitValue.flags,
            ),
            WRITE_32 => {
                let write_value = entry.writeValue;
                write(
                    write_value.address,
                    u64::from(write_value.value.value),
                    4,
                    write_value.flags,
                )
            }
            WRITE_64 => write(
                entry.writeValue.address,
                entry.writeValue.value.value64,
                8,
                entry.writeValue.flags,
            ),
            FLUSH | BARRIER => Ok(WordStep::Fence),
            _ => Err(CuResult::INVALID_VALUE),
        }
    }
}
