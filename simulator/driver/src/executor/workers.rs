// SPDX-License-Identifier: Apache-2.0
//! The worker threads: each takes a ready operation, carries it out and passes on what became ready by it. What takes
//! no time on the device is carried out together with what directly follows it and takes none either.
//!
//! Threads start when something is ready and nobody is idle, so that an operation that waits (for a word in memory,
//! for its turn on the device, for a host function) never holds up another one. They block all signals, which belong
//! to the program's threads, and are never joined: the process may end at any time.

use std::sync::{Arc, PoisonError};

use partage_machine::timeline::{Seat, Wake};

use super::lanes::clock;
use super::op::Op;
use super::order::{LaneId, OpId, Submitted};
use super::place::{Counted, Hold, become_worker, settle};
use super::pool::{Ready, State, Task, pool, wait_for};
use super::run::run_one;
use crate::context::Context;
use crate::thread;

/// A node of a graph launch: what it does, and the nodes of the same launch that it waits for, by index.
pub struct GraphTask {
    /// What it does.
    pub task: Task,
    /// Indices of earlier nodes.
    pub after: Vec<usize>,
    /// Operations of outside.
    pub outside: Vec<OpId>,
}

/// As many operations of a process run at once. A real device runs 128 kernels at once.
const MOST_THREADS: usize = 160;

/// Appends an operation to a lane; it also waits for `after`. A record comes back only when the marks before it are
/// written, if the device has come so far: who measures with events looks at them to know what the device was doing.
pub fn submit(lane: LaneId, task: Task, after: &[OpId]) -> OpId {
    let is_record = matches!(task.op, Op::Record { .. });
    let seat = seat_for(&task, is_record || task.op.computes());
    let now = seat.as_ref().filter(|_| is_record).map_or(0, |seat| seat.clock());
    let mut state = pool().lock();
    let priority = task.priority;
    let submitted = state.order.submit(lane, task, after);
    if is_record && !submitted.is_ready {
        // What is ahead may be over on the device, and its thread late.
        state.order.not_before(submitted.id, now);
    }
    state.await_start(submitted, seat.as_deref().filter(|_| !is_record));
    state.entered(submitted, priority);
    let overdue = if is_record {
        state.overdue_before(submitted.id)
    } else {
        None
    };
    drop(state);
    if let Some(op) = overdue {
        wait_for(&[op]);
    }
    submitted.id
}

/// The seat of a task that `computes`.
fn seat_for(task: &Task, computes: bool) -> Option<Arc<Seat>> {
    let lanes = computes.then(|| task.context.queue.existing()).flatten()?;
    lanes.place()
}

/// Appends a whole graph to a lane as if it were one operation that begins after `after`. Returns the
/// operations of the nodes and the one that ends it.
pub fn submit_graph(lane: LaneId, first: Task, nodes: Vec<GraphTask>, last: Task, after: &[OpId]) -> (Vec<OpId>, OpId) {
    let seat = seat_for(&first, nodes.iter().any(|node| node.task.op.computes()));
    let mut state = pool().lock();
    let begin = state.order.submit(lane, first, after);
    state.await_start(begin, seat.as_deref());
    let mut ops: Vec<OpId> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let mut waits_for = node.outside;
        match node.after[..] {
            [] => waits_for.push(begin.id),
            _ => waits_for.extend(node.after.iter().map(|&index| ops[index])),
        }
        ops.push(state.order.submit_free(node.task, &waits_for).id);
    }
    let end = state.order.submit(lane, last, &ops).id;
    // The beginning starts only now: no node may run before all are known.
    state.entered(begin, 0);
    (ops, end)
}

impl State {
    fn entered(&mut self, submitted: Submitted, priority: i32) {
        if submitted.is_ready {
            self.offer(submitted.id, priority);
        } else {
            self.prepare(submitted.id);
        }
    }

    /// Makes sure that a thread takes a ready operation.
    fn offer(&mut self, op: OpId, priority: i32) {
        self.ready.push(Ready {
            urgency: -priority,
            op: std::cmp::Reverse(op),
        });
        if self.free >= self.ready.len() {
            pool().work.notify_one();
        } else if self.threads < MOST_THREADS && start_worker() {
            self.free += 1;
            self.threads += 1;
        }
    }
}

fn start_worker() -> bool {
    // Without a new thread the operation waits for one of those that there are.
    thread::start("cuda-sim".into(), work).is_ok()
}

fn work() {
    become_worker();
    // SAFETY: no memory involved. Sleeps end when they are told to, not 50 microseconds later.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let mut transit: Option<Hold> = None;
    let mut next = None;
    loop {
        let op = next.take().unwrap_or_else(|| {
            settle(&mut transit);
            take_ready()
        });
        let (run, is_awaited) = {
            let mut state = pool().lock();
            (state.take_run(op), state.awaited.remove(&op))
        };
        let Some((_, first, mut ended)) = run.first().map(|(op, task, time)| (*op, task, *time)) else {
            continue;
        };
        if is_awaited {
            awake(&first.context, &mut transit);
        }
        let device = first.context.device;
        let mut over = Vec::with_capacity(run.len());
        for (op, task, time) in &run {
            let time = ended.max(*time);
            ended = run_one(task, *op, time, &mut transit);
            over.push((*op, ended));
        }
        drop(run);
        next = finish(&over, device, &mut transit);
    }
}

/// Takes over the wake that was made for an operation of a context.
fn awake(context: &Context, transit: &mut Option<Hold>) {
    let Some(seat) = context.queue.existing().and_then(|lanes| lanes.place()) else {
        return;
    };
    match transit {
        // One of the two ends.
        Some(hold) if Arc::ptr_eq(&hold.seat, &seat) => {
            seat.woken(std::mem::replace(&mut hold.wake, Wake::Start));
        }
        other => {
            settle(other);
            *other = Some(Hold {
                seat,
                wake: Wake::Start,
                is_announced: false,
                _count: Counted::new(),
            });
        }
    }
}

fn take_ready() -> OpId {
    let mut state = pool().lock();
    loop {
        if let Some(Ready { op, .. }) = state.ready.pop() {
            state.free -= 1;
            return op.0;
        }
        state = pool().work.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Completes operations, each of which directly follows the one before. Returns one that became ready, for the same
/// thread to go on with.
fn finish(over: &[(OpId, u64)], device: usize, transit: &mut Option<Hold>) -> Option<OpId> {
    let mut state = pool().lock();
    let mut ready = Vec::new();
    for &(op, ended) in over {
        // Every device has a clock of its own: what another one waited for ended on that clock now.
        let time = |follower: &Task| match follower.context.device {
            same if same == device => ended,
            other => clock(other),
        };
        state.forget(op);
        let completed = state.order.complete(op, time);
        for follower in completed.behind {
            state.prepare(follower);
        }
        ready.extend(completed.ready);
    }
    // What was carried out with what it followed is not ready again.
    ready.retain(|&op| state.order.payload(op).is_some());
    let mut ready = ready.into_iter();
    let next = ready.next();
    for op in ready {
        let (priority, seat) = match state.order.payload(op) {
            Some(task) => (task.priority, seat_for(task, task.op.computes())),
            None => (0, None),
        };
        state.await_start(Submitted { id: op, is_ready: true }, seat.as_deref());
        state.offer(op, priority);
    }
    state.free += usize::from(next.is_none());
    if state.has_waiters() {
        if next.is_none() {
            state.hand_on(transit);
        }
        pool().progress.notify_all();
    }
    next
}
