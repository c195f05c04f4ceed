// SPDX-License-Identifier: Apache-2.0
//! Events: making, recording, asking, waiting, timing.

use partage_abi::types::*;

use super::flavours::both_flavours;
use crate::capture;
use crate::event::Event;
use crate::graph::work::Work;
use crate::state::{code, driver, store};

/// `CU_EVENT_RECORD_EXTERNAL`.
const RECORD_EXTERNAL: u32 = 1;

pub fn cuEventCreate(event: *mut CuEvent, flags: c_uint) -> CuResult {
    if event.is_null() {
        return CuResult::INVALID_VALUE;
    }
    code(Event::create(flags).and_then(|made| store(event, made.handle)))
}

pub fn cuEventDestroy(event: CuEvent) -> CuResult {
    code(Event::destroy(event))
}

pub fn cuEventDestroy_v2(event: CuEvent) -> CuResult {
    code(Event::destroy(event))
}

pub fn cuEventQuery(event: CuEvent) -> CuResult {
    code(Event::find(event).and_then(|event| {
        capture::query_event(&event)?;
        // A query may have to flush work to the device, which a capture in another thread forbids.
        capture::unsafe_call()?;
        event.query()
    }))
}

pub fn cuEventSynchronize(event: CuEvent) -> CuResult {
    code(Event::find(event).and_then(|event| {
        capture::query_event(&event)?;
        capture::unsafe_call()?;
        event.synchronize()?;
        let (driver, seen) = (driver()?, event.seen());
        driver
            .memory
            .settle_pools(driver, |freed| seen.covers(freed.stream, freed.op));
        Ok(())
    }))
}

pub fn cuEventElapsedTime(milliseconds: *mut f32, start: CuEvent, end: CuEvent) -> CuResult {
    if milliseconds.is_null() {
        return CuResult::INVALID_VALUE;
    }
    let elapsed = Event::find(start).and_then(|start| start.elapsed(&*Event::find(end)?));
    code(elapsed.and_then(|elapsed| store(milliseconds, elapsed)))
}

pub fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: CuEvent, end: CuEvent) -> CuResult {
    cuEventElapsedTime(milliseconds, start, end)
}

both_flavours! {
    cuEventRecord cuEventRecord_ptsz (event: CuEvent, stream: CuStream; stream) => {
        let event = Event::find(event)?;
        stream.find()?.record(&event)
    }
    cuEventRecordWithFlags cuEventRecordWithFlags_ptsz (event: CuEvent, stream: CuStream, flags: c_uint; stream) => {
        let (event, stream) = (Event::find(event)?, stream.find()?);
        match flags {
            0 => stream.record(&event),
            RECORD_EXTERNAL => stream.perform(Work::Record(event)),
            _ => Err(CuResult::INVALID_VALUE),
        }
    }
}
