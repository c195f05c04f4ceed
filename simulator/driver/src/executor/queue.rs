// SPDX-License-Identifier: Apache-2.0
//! What a context owns of the executor: its lanes and its seat on the device timeline.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use partage_machine::timeline::Seat;

use super::order::{GroupId, LaneId};

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
    /// The lane of the legacy default stream.
    pub legacy: LaneId,
    /// The context's place on its device; `None` while the process is checkpointed.
    seat: Mutex<Option<Arc<Seat>>>,
}

impl Lanes {
    /// Lanes with a place on their device.
    pub fn new(group: GroupId, legacy: LaneId, seat: Seat) -> Self {
        Self {
            group,
            legacy,
            seat: Mutex::new(Some(Arc::new(seat))),
        }
    }

    /// The context's place on its device; `None` while the process is checkpointed.
    pub fn place(&self) -> Option<Arc<Seat>> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives the place up, or takes another one.
    pub fn set_place(&self, seat: Option<Seat>) {
        let before = std::mem::replace(
            &mut *self.seat.lock().unwrap_or_else(PoisonError::into_inner),
            seat.map(Arc::new),
        );
        drop(before);
    }
}

impl Queue {
    /// True when the context ends: kernels under way stop soon after.
    pub fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// Kernels under way are to stop.
    pub fn set_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The lanes if there are any.
    pub fn existing(&self) -> Option<Arc<Lanes>> {
        self.lock().clone()
    }

    /// The lanes, to be made or taken away.
    pub fn lock(&self) -> MutexGuard<'_, Option<Arc<Lanes>>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
