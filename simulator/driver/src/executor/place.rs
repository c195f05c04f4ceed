// SPDX-License-Identifier: Apache-2.0
//! Where an operation runs: its context, its seat on the device, and the wake that its thread holds.
//!
//! *Transit*: the wake that this thread holds, and whose seat a request may have been announced for that it has not
//! handed in yet (see the timeline).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use partage_machine::timeline::{Seat, Wake};

use super::order::OpId;
use crate::context::Context;

/// A wake that a thread holds: the device's clock waits for what the thread does next (see the timeline).
pub struct Hold {
    /// Whose it is.
    pub seat: Arc<Seat>,
    /// What it ends with.
    pub wake: Wake,
    /// Another request was announced to follow the last one.
    pub is_announced: bool,
    /// Counts it.
    pub _count: Counted,
}

/// Holds that there are.
static HOLDS: AtomicUsize = AtomicUsize::new(0);

/// One hold more, as long as this lives.
pub struct Counted(());

impl Counted {
    pub fn new() -> Self {
        HOLDS.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        HOLDS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether no thread holds a wake: then none has anything left to say to the timeline of what is complete.
pub fn are_settled() -> bool {
    HOLDS.load(Ordering::SeqCst) == 0
}

/// Where an operation runs.
pub struct Place<'a> {
    /// Whose it is.
    pub context: &'a Arc<Context>,
    /// Its context's seat on the device.
    pub seat: &'a Arc<Seat>,
    /// The operation.
    pub op: OpId,
    /// Priority of its stream.
    pub priority: i32,
    /// The wake in transit.
    pub transit: &'a mut Option<Hold>,
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the caller runs inside a host function or callback, where calls to the driver are not permitted.
pub fn is_worker() -> bool {
    IS_WORKER.get()
}

/// The calling thread carries out operations, from now on.
pub fn become_worker() {
    IS_WORKER.set(true);
}

/// The context has nothing to hand in now after all.
pub fn settle(transit: &mut Option<Hold>) {
    if let Some(hold) = transit.take() {
        hold.seat.settle(hold.wake, hold.is_announced);
    }
}

/// The same, unless the wake is this seat's.
pub fn settle_others(transit: &mut Option<Hold>, seat: &Arc<Seat>) {
    if transit.as_ref().is_some_and(|hold| !Arc::ptr_eq(&hold.seat, seat)) {
        settle(transit);
    }
}
