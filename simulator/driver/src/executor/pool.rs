// SPDX-License-Identifier: Apache-2.0
//! What the threads of the program and the [workers](super::workers) share: the order of what was submitted, what is
//! ready, what is on the device's timeline, and who waits.
//!
//! Lock order: the pool's lock, then a device's of the timeline. A context's queue is locked before the pool or not at
//! all.

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use partage_machine::timeline::{Ask, Pending, Seat};

use super::op::Op;
use super::order::{GroupId, Kind, LaneId, OpId, Order, Submitted};
use super::place::{Hold, are_settled, settle};
use crate::context::Context;

/// One operation with what it needs to run.
pub struct Task {
    /// Whose it is.
    pub context: Arc<Context>,
    /// What it does.
    pub op: Op,
    /// Priority of its stream; the lower number goes first.
    pub priority: i32,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ready {
    /// Negated, so that the heap's greatest is the most urgent.
    pub(super) urgency: i32,
    /// Which operation.
    pub(super) op: std::cmp::Reverse<OpId>,
}

/// A request on the timeline that is not over.
pub struct Running {
    /// On which seat.
    pub(super) seat: Arc<Seat>,
    /// Whose it is, compared with those of operations that are not complete.
    pub(super) context: *const Context,
    /// Its number there.
    pub(super) pending: Pending,
    /// Another was announced to follow it.
    pub(super) is_announced: bool,
    /// What was asked for before its turn. `None`: a thread is at it.
    pub(super) chained: Option<Ask>,
    /// As many were handed in before it that no thread was at.
    pub(super) depth: usize,
}

// SAFETY: the context is never reached through the pointer.
unsafe impl Send for Running {}

impl Running {
    /// Whether another was announced to follow it.
    pub fn is_announced(&self) -> bool {
        self.is_announced
    }

    /// Says that another is to follow it.
    pub(super) fn announce(&mut self) {
        if !std::mem::replace(&mut self.is_announced, true) {
            self.seat.announce(self.pending);
        }
    }
}

/// A thread of the program that waits.
struct Waiter {
    number: u64,
    ops: Vec<OpId>,
    /// Handed on by the thread whose work it waited for, when nothing else follows.
    hold: Option<Hold>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) order: Order<Task>,
    pub(super) ready: BinaryHeap<Ready>,
    pub(super) running: HashMap<OpId, Running>,
    /// Ready operations for which their seat was told of a wake.
    pub(super) awaited: HashSet<OpId>,
    /// Threads that look for something ready, or are about to: at least as many as there is, up to `MOST_THREADS`.
    pub(super) free: usize,
    pub(super) threads: usize,
    waiters: Vec<Waiter>,
    last_waiter: u64,
}

#[derive(Default)]
pub(super) struct Pool {
    state: Mutex<State>,
    /// Something is ready.
    pub(super) work: Condvar,
    /// Something is complete.
    pub(super) progress: Condvar,
}

/// The one of this process.
pub(super) fn pool() -> &'static Pool {
    static POOL: OnceLock<&'static Pool> = OnceLock::new();
    POOL.get_or_init(|| Box::leak(Box::default()))
}

impl Pool {
    /// The state, locked.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A new group of lanes with its legacy lane.
pub fn open_group() -> (GroupId, LaneId) {
    pool().lock().order.open_group()
}

/// A new lane of a group.
pub fn open_lane(group: GroupId, kind: Kind) -> LaneId {
    pool().lock().order.open_lane(group, kind)
}

/// Nothing more is submitted to a lane.
pub fn close_lane(lane: LaneId) {
    pool().lock().order.close_lane(lane);
}

/// Drops a group whose operations are complete.
pub fn close_group(group: GroupId) {
    pool().lock().order.close_group(group);
}

/// What must complete before a lane is idle.
pub fn ahead_in(lane: LaneId) -> Vec<OpId> {
    pool().lock().order.ahead_in(lane)
}

/// What must complete before a group is idle.
pub fn ahead_in_group(group: GroupId) -> Vec<OpId> {
    pool().lock().order.ahead_in_group(group)
}

/// The lanes of a group.
pub fn lanes_of(group: GroupId) -> Vec<LaneId> {
    pool().lock().order.lanes_of(group)
}

/// Whether all these operations are complete.
pub fn are_complete(ops: &[OpId]) -> bool {
    let state = pool().lock();
    ops.iter().all(|&op| state.order.is_complete(op))
}

/// Sleeps until all these operations are complete.
pub fn wait_for(ops: &[OpId]) {
    wait_until(ops, None);
}

/// About as long as telling the timeline something takes.
const A_CALL: Duration = Duration::from_micros(50);

/// Sleeps until nothing that was submitted is left, until `deadline`. Precondition: nothing more is submitted.
pub fn wait_until_idle(deadline: Option<Instant>) -> bool {
    let left = pool().lock().order.incomplete();
    if !wait_until(&left, deadline) {
        return false;
    }
    // What is complete is still told to the timeline, which takes no longer than a call.
    while !are_settled() {
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return false;
        }
        std::thread::sleep(A_CALL);
    }
    true
}

/// Sleeps until all these operations are complete, until `deadline`. Returns whether they are.
fn wait_until(ops: &[OpId], deadline: Option<Instant>) -> bool {
    let mut state = pool().lock();
    let are_over = |state: &State| ops.iter().all(|&op| state.order.is_complete(op));
    if are_over(&state) {
        return true;
    }
    state.last_waiter += 1;
    let number = state.last_waiter;
    state.waiters.push(Waiter {
        number,
        ops: ops.to_vec(),
        hold: None,
    });
    while !are_over(&state) {
        state = match deadline.map(|deadline| deadline.checked_duration_since(Instant::now())) {
            None => pool().progress.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(None) => break,
            Some(Some(left)) => {
                let waited = pool().progress.wait_timeout(state, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
    let is_over = are_over(&state);
    let place = state.waiters.iter().position(|waiter| waiter.number == number);
    let mut hold = place.and_then(|place| state.waiters.swap_remove(place).hold);
    drop(state);
    settle(&mut hold);
    is_over
}

impl State {
    /// Whether a thread of the program waits for anything.
    pub(super) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Takes what a ready operation runs, with its time; and, if that takes no time on the device, what directly
    /// follows it and takes none either: marks that a device would write one after the other do not wait for the
    /// processor in between.
    pub(super) fn take_run(&mut self, op: OpId) -> Vec<(OpId, Task, u64)> {
        let mut run = Vec::new();
        let mut at = Some(op);
        while let Some(op) = at {
            let Some((task, time)) = self.order.take(op) else { break };
            let next = self.order.direct_follower(op).filter(|_| task.op.is_instant());
            at = next.filter(|&next| {
                let follower = self.order.payload(next);
                follower.is_some_and(|next| next.op.is_instant() && Arc::ptr_eq(&next.context, &task.context))
            });
            run.push((op, task, time));
        }
        run
    }

    /// What is ready begins at once on a device: the thread that is to hand it in is waited for.
    pub(super) fn await_start(&mut self, submitted: Submitted, seat: Option<&Seat>) {
        if let Some(seat) = seat.filter(|_| submitted.is_ready) {
            seat.wake();
            self.awaited.insert(submitted.id);
        }
    }

    /// Hands a wake on to a thread that waited for what is complete now and nothing else.
    pub(super) fn hand_on(&mut self, hold: &mut Option<Hold>) {
        let order = &self.order;
        let is_over =
            |waiter: &&mut Waiter| waiter.hold.is_none() && waiter.ops.iter().all(|&op| order.is_complete(op));
        if let Some(waiter) = self.waiters.iter_mut().find(is_over) {
            waiter.hold = hold.take();
        }
    }
}
