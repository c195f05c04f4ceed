// SPDX-License-Identifier: Apache-2.0
//! What a context owns of the executor: its lanes, its default streams and its seat on the device timeline.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use partage_abi::types::CuResult;
use partage_machine::timeline::{Seat, Timeline};

use super::order::{GroupId, Kind};
use super::pool;
use crate::state::{Answer, Context, driver};
use crate::stream::Stream;

/// A context's part of the executor; empty until something is submitted.
#[derive(Default)]
pub struct Queue {
    inner: Mutex<Option<Arc<Lanes>>>,
    stop: AtomicBool,
}

/// The lanes of a living context.
pub struct Lanes {
    /// The context's group in the order.
    pub group: GroupId,
    /// The legacy default stream.
    pub legacy: Arc<Stream>,
    /// The default streams of the threads that used theirs, by thread.
    per_thread: Mutex<HashMap<u64, Arc<Stream>>>,
    /// The context's place on its device.
    pub seat: Arc<Seat>,
}

impl Queue {
    /// The context's lanes, made at the first use.
    ///
    /// OUT_OF_MEMORY if the device has no place for another context.
    pub fn lanes(&self, context: &Arc<Context>) -> Answer<Arc<Lanes>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lanes) = &*inner {
            return Ok(Arc::clone(lanes));
        }
        context.check()?;
        let seat = timeline()?
            .join(context.device, context.id)
            .ok_or(CuResult::OUT_OF_MEMORY)?;
        let (group, lane) = pool::open_group();
        let legacy = Arc::new(Stream::default_of(context, lane, Kind::Legacy));
        let lanes = Arc::new(Lanes {
            group,
            legacy,
            per_thread: Mutex::default(),
            seat: Arc::new(seat),
        });
        *inner = Some(Arc::clone(&lanes));
        Ok(lanes)
    }

    /// True when the context ends: kernels under way stop soon after.
    pub fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// The lanes if there are any.
    pub fn existing(&self) -> Option<Arc<Lanes>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for everything that was submitted, whatever became of it.
    pub fn wait(&self) {
        if let Some(lanes) = self.existing() {
            pool::wait_for(&pool::ahead_in_group(lanes.group));
        }
    }

    /// Waits, then drops the lanes. Precondition: the context is marked as ended, so that nothing more comes and what
    /// waits inside an operation gives up.
    pub fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wait();
        let lanes = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(lanes) = lanes {
            pool::close_group(lanes.group);
        }
    }
}

impl Lanes {
    /// The default stream of the calling thread.
    pub fn per_thread(&self, context: &Arc<Context>) -> Arc<Stream> {
        let mut streams = self.per_thread.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            Arc::new(Stream::default_of(
                context,
                pool::open_lane(self.group, Kind::Blocking),
                Kind::Blocking,
            ))
        };
        Arc::clone(streams.entry(crate::stream::thread_key()).or_insert_with(make))
    }
}

/// The timeline of the machine that this process uses.
pub fn timeline() -> Answer<&'static Arc<Timeline>> {
    static TIMELINE: OnceLock<Option<Arc<Timeline>>> = OnceLock::new();
    let machine = &driver()?.machine;
    let open = || machine.timeline().ok().map(Arc::new);
    TIMELINE.get_or_init(open).as_ref().ok_or(CuResult::OPERATING_SYSTEM)
}

/// The context behind a reference that does not keep it alive.
pub fn alive(context: &Weak<Context>) -> Answer<Arc<Context>> {
    context.upgrade().ok_or(CuResult::CONTEXT_IS_DESTROYED)
}
