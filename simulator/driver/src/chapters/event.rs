// SPDX-License-Identifier: Apache-2.0
//! Events: making, recording, asking, waiting, timing.

use partage_abi::types::*;

use super::flavours::both_flavours;
use crate::capture;
use crate::event::{DISABLE_TIMING, Event};
use crate::graph::Work;
use crate::memory::settle_pools;
use crate::state::{Answer, code, driver, store};
use crate::submission::{destroy_event, perform, query_event, record, synchronize_event};

/// `CU_EVENT_RECORD_EXTERNAL`.
const RECORD_EXTERNAL: u32 = 1;

pub fn cuEventCreate(event: *mut CuEvent, flags: c_uint) -> CuResult {
    if event.is_null() {
        return CuResult::INVALID_VALUE;
    }
    code(Event::create(flags).and_then(|made| store(event, made.handle)))
}

pub fn cuEventDestroy(event: CuEvent) -> CuResult {
    code(destroy_event(event))
}

pub fn cuEventDestroy_v2(event: CuEvent) -> CuResult {
    code(destroy_event(event))
}

pub fn cuEventQuery(event: CuEvent) -> CuResult {
    code(Event::find(event).and_then(|event| {
        capture::query_event(&event)?;
        // A query may have to flush work to the device, which a capture in another thread forbids.
        capture::unsafe_call()?;
        query_event(&event)
    }))
}

pub fn cuEventSynchronize(event: CuEvent) -> CuResult {
    code(Event::find(event).and_then(|event| {
        capture::query_event(&event)?;
        capture::unsafe_call()?;
        synchronize_event(&event)?;
        let (driver, seen) = (driver()?, event.seen());
        settle_pools(driver, |freed| seen.covers(freed.stream, freed.op));
        Ok(())
    }))
}

pub fn cuEventElapsedTime(milliseconds: *mut f32, start: CuEvent, end: CuEvent) -> CuResult {
    if milliseconds.is_null() {
        return CuResult::INVALID_VALUE;
    }
    let elapsed = Event::find(start).and_then(|start| elapsed(&start, &*Event::find(end)?));
    code(elapsed.and_then(|elapsed| store(milliseconds, elapsed)))
}

pub fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: CuEvent, end: CuEvent) -> CuResult {
    cuEventElapsedTime(milliseconds, start, end)
}

both_flavours! {
    cuEventRecord cuEventRecord_ptsz (event: CuEvent, stream: CuStream; stream) => {
        let event = Event::find(event)?;
        record(&*stream.find()?, &event)
    }
    cuEventRecordWithFlags cuEventRecordWithFlags_ptsz (event: CuEvent, stream: CuStream, flags: c_uint; stream) => {
        let (event, stream) = (Event::find(event)?, stream.find()?);
        match flags {
            0 => record(&stream, &event),
            RECORD_EXTERNAL => perform(&stream, Work::Record(event)),
            _ => Err(CuResult::INVALID_VALUE),
        }
    }
}

/// Milliseconds of device time from `start` to `end`.
///
/// INVALID_HANDLE if one has no timing, was never recorded, or belongs to another context; NOT_READY if one was not
/// reached.
fn elapsed(start: &Event, end: &Event) -> Answer<f32> {
    capture::query_event(start)?;
    capture::query_event(end)?;
    let has_time = |event: &Event| event.flags & DISABLE_TIMING == 0 && event.is_recorded();
    if !has_time(start) || !has_time(end) || start.context.home != end.context.home {
        return Err(CuResult::INVALID_HANDLE);
    }
    start.context.check()?;
    let reached = |event: &Event| event.reached().ok_or(CuResult::NOT_READY);
    let (from, to) = (reached(start)?, reached(end)?);
    Ok(((to as f64 - from as f64) / 1e6) as f32)
}
