// SPDX-License-Identifier: Apache-2.0
//! Streams: what a stream handle stands for. Work reaches one by way of [`submission`](crate::submission).
//!
//! The handles 0, 1 and 2 name default streams: 1 the legacy one of the context, 2 the calling thread's, 0 one of the
//! two, by the flavour of the entry point (`_ptsz` and `_ptds` mean the thread's).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use partage_abi::types::*;

use crate::capture::rules::StreamFacts;
use crate::context::{Context, current};
use crate::event::Event;
use crate::executor::lanes::lanes;
use crate::executor::place::is_worker;
use crate::executor::pool::{self, Task};
use crate::executor::{Kind, LaneId, Op, OpId, Seen, workers};
use crate::handles::{HandleKind, Handles};
use crate::state::{Answer, driver};

/// `CU_STREAM_NON_BLOCKING`.
pub const NON_BLOCKING: u32 = 1;
/// Greatest and least urgent priority of a stream, as `cuCtxGetStreamPriorityRange` tells them.
pub const PRIORITIES: (i32, i32) = (-5, 0);

static STREAMS: Handles<Stream> = Handles::new(HandleKind::Stream);
static NEXT_KEY: AtomicU64 = AtomicU64::new(1);
/// The default streams of living contexts, by the context's number and the thread, which is [`LEGACY`] or a
/// [`thread_key`].
static DEFAULTS: RwLock<BTreeMap<(u64, u64), Arc<Stream>>> = RwLock::new(BTreeMap::new());
/// In the place of a thread: the legacy default stream.
const LEGACY: u64 = 0;

/// One stream.
pub struct Stream {
    /// What the program calls it.
    pub handle: CuStream,
    /// Unique in the process, never reused (`cuStreamGetId`).
    pub key: u64,
    /// `CU_STREAM_NON_BLOCKING` or 0.
    pub flags: u32,
    /// The lower number goes first.
    pub priority: i32,
    /// Attributes by number, as set.
    attributes: Mutex<Vec<(i32, AttributeValue)>>,
    context: Weak<Context>,
    context_id: u64,
    kind: Kind,
    lane: LaneId,
    /// What its next operation comes after.
    seen: Mutex<Seen>,
}

/// The value of an attribute.
#[derive(Clone, Copy)]
struct AttributeValue(CuLaunchAttributeValue);

// SAFETY: kept and given back as it is; nothing is read through the pointers that it may hold.
unsafe impl Send for AttributeValue {}

/// A stream as a call names it.
#[derive(Clone, Copy, Debug)]
pub struct StreamName {
    handle: CuStream,
    is_per_thread: bool,
}

impl StreamName {
    /// The name as given to an ordinary entry point.
    pub fn plain(handle: CuStream) -> Self {
        Self {
            handle,
            is_per_thread: false,
        }
    }

    /// The name as given to a `_ptsz` or `_ptds` entry point.
    pub fn per_thread(handle: CuStream) -> Self {
        Self {
            handle,
            is_per_thread: true,
        }
    }

    /// The handle as given.
    pub fn handle(self) -> CuStream {
        self.handle
    }

    /// Another name given in the same call.
    pub fn beside(self, handle: CuStream) -> Self {
        Self { handle, ..self }
    }

    /// The stream. INVALID_HANDLE for a handle that is stale or made up, INVALID_CONTEXT for a default stream without
    /// a current context, the context's error if it has failed.
    pub fn find(self) -> Answer<Arc<Stream>> {
        if is_worker() {
            return Err(CuResult::NOT_PERMITTED);
        }
        let is_thread = match self.handle.0 as usize {
            0 => self.is_per_thread,
            1 => false,
            2 => true,
            _ => {
                driver()?;
                let stream = STREAMS.get(self.handle.0).ok_or(CuResult::INVALID_HANDLE)?;
                stream.context()?.check()?;
                return Ok(stream);
            }
        };
        let context = current()?;
        default_of(&context, if is_thread { thread_key() } else { LEGACY })
    }
}

impl Stream {
    fn new(handle: CuStream, context: &Arc<Context>, lane: LaneId, kind: Kind, priority: i32) -> Self {
        Self {
            handle,
            key: NEXT_KEY.fetch_add(1, Ordering::Relaxed),
            flags: if kind == Kind::NonBlocking { NON_BLOCKING } else { 0 },
            priority,
            attributes: Mutex::default(),
            context: Arc::downgrade(context),
            context_id: context.id,
            kind,
            lane,
            seen: Mutex::default(),
        }
    }

    /// Makes a stream of the current context. INVALID_VALUE for unknown flags; a priority out of range is moved to
    /// the nearest that there is.
    pub fn create(flags: u32, priority: i32) -> Answer<Arc<Self>> {
        Self::create_in(&current()?, flags, priority)
    }

    /// A new stream of a context.
    pub fn create_in(context: &Arc<Context>, flags: u32, priority: i32) -> Answer<Arc<Self>> {
        if flags & !NON_BLOCKING != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let lanes = lanes(context)?;
        let kind = if flags & NON_BLOCKING != 0 {
            Kind::NonBlocking
        } else {
            Kind::Blocking
        };
        let lane = pool::open_lane(lanes.group, kind);
        let priority = priority.clamp(PRIORITIES.0, PRIORITIES.1);
        let make = |handle| Arc::new(Self::new(CuStream(handle), context, lane, kind, priority));
        STREAMS.insert_with(make).ok_or(CuResult::OUT_OF_MEMORY)
    }

    /// Ends the handle, and tells what it was; what was submitted still runs. INVALID_HANDLE for default streams.
    pub fn remove(handle: CuStream) -> Answer<Arc<Self>> {
        driver()?;
        STREAMS.remove(handle.0).ok_or(CuResult::INVALID_HANDLE)
    }

    /// Its context.
    pub fn context(&self) -> Answer<Arc<Context>> {
        self.context.upgrade().ok_or(CuResult::CONTEXT_IS_DESTROYED)
    }

    /// What the capture rules need to know.
    pub fn facts(&self) -> StreamFacts {
        StreamFacts {
            key: self.key,
            context: self.context_id,
            is_legacy: self.kind == Kind::Legacy,
            is_blocking: self.kind == Kind::Blocking,
        }
    }

    /// Hands an operation to the executor; it also waits for `after`.
    pub fn submit(&self, op: Op, after: &[OpId]) -> Answer<OpId> {
        let context = self.context()?;
        Ok(workers::submit(
            self.lane,
            Task {
                context,
                op,
                priority: self.priority,
            },
            after,
        ))
    }

    /// Records an event outside any capture.
    pub fn record_now(&self, event: &Arc<Event>) -> Answer {
        self.record_after(event, &[])
    }

    /// As [`record_now`](Self::record_now), also after other operations.
    pub fn record_after(&self, event: &Arc<Event>, after: &[OpId]) -> Answer {
        let context = self.context()?;
        let recording = event.begin_recording();
        let op = Op::Record {
            event: Arc::clone(event),
            recording,
        };
        // Not under the event's lock: the operation may be reached before its number is known here.
        let op = workers::submit(
            self.lane,
            Task {
                context,
                op,
                priority: self.priority,
            },
            after,
        );
        let mut seen = self.seen();
        seen.note(self.key, op);
        event.set_seen(recording, seen);
        event.set_op(recording, op);
        Ok(())
    }

    /// What its next operation comes after, as far as events have told.
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its next operation comes after all that an event comes after.
    pub fn join(&self, seen: &Seen) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).join(seen);
    }

    /// What must complete before the stream is idle.
    pub fn ahead(&self) -> Vec<OpId> {
        pool::ahead_in(self.lane)
    }

    /// Where its operations are queued.
    pub fn lane(&self) -> LaneId {
        self.lane
    }

    /// Sleeps until it is idle; the context's error if it has failed. Precondition: the call has been admitted.
    pub fn wait(&self) -> Answer {
        pool::wait_for(&self.ahead());
        self.context()?.check()
    }

    /// An attribute as set.
    pub fn attribute(&self, number: i32) -> Option<CuLaunchAttributeValue> {
        let attributes = self.attributes.lock().unwrap_or_else(PoisonError::into_inner);
        attributes
            .iter()
            .find(|(other, _)| *other == number)
            .map(|(_, value)| value.0)
    }

    /// Sets an attribute.
    pub fn set_attribute(&self, number: i32, value: CuLaunchAttributeValue) {
        let mut attributes = self.attributes.lock().unwrap_or_else(PoisonError::into_inner);
        attributes.retain(|(other, _)| *other != number);
        attributes.push((number, AttributeValue(value)));
    }
}

/// The legacy default stream of a context.
pub fn legacy_of(context: &Arc<Context>) -> Answer<Arc<Stream>> {
    default_of(context, LEGACY)
}

/// A default stream of a context, made at its first use.
fn default_of(context: &Arc<Context>, thread: u64) -> Answer<Arc<Stream>> {
    let key = (context.id, thread);
    if let Some(found) = DEFAULTS.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Ok(Arc::clone(found));
    }
    let lanes = lanes(context)?;
    let mut defaults = DEFAULTS.write().unwrap_or_else(PoisonError::into_inner);
    // Looked at under the lock: what is entered after the end of the context would be forgotten by nobody.
    if context.is_destroyed() {
        return Err(CuResult::CONTEXT_IS_DESTROYED);
    }
    let make = || {
        let (handle, lane, kind) = match thread {
            LEGACY => (1, lanes.legacy, Kind::Legacy),
            _ => (2, pool::open_lane(lanes.group, Kind::Blocking), Kind::Blocking),
        };
        Arc::new(Stream::new(CuStream(handle as *mut c_void), context, lane, kind, 0))
    };
    Ok(Arc::clone(defaults.entry(key).or_insert_with(make)))
}

/// The default streams of a context are gone. Precondition: it is marked as ended.
pub fn forget_defaults(context: &Context) {
    let mut defaults = DEFAULTS.write().unwrap_or_else(PoisonError::into_inner);
    let gone: Vec<_> = defaults
        .range((context.id, 0)..=(context.id, u64::MAX))
        .map(|(&key, _)| key)
        .collect();
    for key in gone {
        defaults.remove(&key);
    }
}

/// A number for the calling thread, unique in the process.
pub fn thread_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static KEY: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    KEY.with(|key| *key)
}
