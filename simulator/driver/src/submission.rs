// SPDX-License-Identifier: Apache-2.0
//! The way of work from a call to the executor or, while its stream is captured, to a graph; and the calls that wait.

use std::sync::Arc;

use partage_abi::types::{CuContext, CuEvent, CuResult, CuStream};

use crate::capture;
use crate::context::{Context, current};
use crate::event::{Elsewhere, Event};
use crate::executor::place::is_worker;
use crate::executor::{Op, lanes, pool};
use crate::graph::Work;
use crate::graph::exec::Exec;
use crate::memory::memory;
use crate::state::Answer;
use crate::stream::Stream;

/// Adds work: to the graph while the stream is captured, else to the executor.
pub fn perform(stream: &Arc<Stream>, work: Work) -> Answer {
    match capture::take(stream, work)? {
        None => Ok(()),
        Some(work) => submit(stream, &work),
    }
}

/// Submits work to a stream that is not captured.
fn submit(stream: &Arc<Stream>, work: &Work) -> Answer {
    match work {
        Work::Child(graph) => Exec::of(graph, 0)?.launch(stream),
        Work::Record(event) => stream.record_now(event),
        Work::Wait(event) => {
            let (op, after) = Op::after(event);
            stream.submit(op, &after).map(drop)
        }
        _ => {
            let op = work.op().ok_or(CuResult::NOT_SUPPORTED)?;
            stream.submit(op, &[]).map(drop)
        }
    }
}

/// Records an event, now or as part of the capture.
pub fn record(stream: &Stream, event: &Arc<Event>) -> Answer {
    if capture::record(stream, event)? {
        return Ok(());
    }
    stream.record_now(event)
}

/// Makes later work wait for an event, now or as part of the capture.
pub fn wait_event(stream: &Stream, event: &Event) -> Answer {
    if capture::wait(stream, event)? {
        return Ok(());
    }
    let (op, after) = Op::after(event);
    stream.submit(op, &after)?;
    stream.join(&event.seen());
    Ok(())
}

/// Ends the handle of a stream; what was submitted still runs. INVALID_HANDLE for default streams.
pub fn destroy_stream(handle: CuStream) -> Answer {
    let stream = Stream::remove(handle)?;
    capture::forget_stream(&stream);
    pool::close_lane(stream.lane());
    Ok(())
}

/// Ends the handle of an event; a recording under way is still reached.
pub fn destroy_event(handle: CuEvent) -> Answer {
    let event = Event::remove(handle)?;
    capture::forget_event(&event);
    Ok(())
}

/// Whether a stream is idle: NOT_READY if not.
pub fn query_stream(stream: &Stream) -> Answer {
    capture::query_stream(stream)?;
    let is_idle = pool::are_complete(&stream.ahead());
    stream.context()?.check()?;
    if is_idle { Ok(()) } else { Err(CuResult::NOT_READY) }
}

/// Whether the last recording of an event was reached (or it was never recorded): NOT_READY if not.
pub fn query_event(event: &Event) -> Answer {
    capture::query_event(event)?;
    let is_reached = match event.elsewhere() {
        Some(elsewhere) => elsewhere.event.is_reached(elsewhere.number),
        None => !event.is_recorded() || event.reached().is_some(),
    };
    event.context.check()?;
    if is_reached { Ok(()) } else { Err(CuResult::NOT_READY) }
}

/// Sleeps until the last recording of an event was reached; the context's error if it has failed.
pub fn synchronize_event(event: &Event) -> Answer {
    capture::query_event(event)?;
    match event.elsewhere() {
        Some(Elsewhere { event: shared, number }) => shared.wait(number, || event.context.check().is_err()),
        None => pool::wait_for(&event.recorded()),
    }
    event.context.check()
}

/// Waits for everything submitted to a context; its error if it has failed. 900 while one of its streams is captured.
pub fn synchronize_context(context: &Context) -> Answer {
    if is_worker() {
        return Err(CuResult::NOT_PERMITTED);
    }
    capture::query_context(context)?;
    lanes::wait(context);
    context.check()
}

/// Waits for the work that may use memory about to be freed: that of the current context and of the memory's own. 900
/// if a capture forbids a call that waits.
pub fn before_free(address: u64) -> Answer {
    let owner = memory()?.find(address).map(|found| found.owner);
    before_free_of(owner)
}

/// As [`before_free`], for memory of this context.
pub fn before_free_of(owner: Option<CuContext>) -> Answer {
    if is_worker() {
        return Err(CuResult::NOT_PERMITTED);
    }
    capture::unsafe_call()?;
    let context = current()?;
    lanes::wait(&context);
    if let Some(owner) = owner
        .and_then(|owner| Context::find(owner).ok())
        .filter(|owner| owner.id != context.id)
    {
        lanes::wait(&owner);
    }
    context.check()
}
