// SPDX-License-Identifier: Apache-2.0
//! The worker threads: each takes a ready operation, carries it out and passes on what became ready by it. What takes
//! no time on the device is carried out together with what directly follows it and takes none either.
//!
//! Lock order: the pool's lock, then a device's of the timeline. A context's queue is locked before the pool or not at
//! all.
//!
//! Threads start when something is ready and nobody is idle, so that an operation that waits (for a word in memory,
//! for its turn on the device, for a host function) never holds up another one. They block all signals, which belong
//! to the program's threads, and are never joined: the process may end at any time.

mod chain;

use std::cell::Cell;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use partage_machine::timeline::{Ask, Seat, Span, Wake};

use self::chain::Running;
use super::op::{Op, Place};
use super::order::{Kind, LaneId, OpId, Order, Submitted};
use super::queue::timeline;
use crate::state::Context;

/// One operation with what it needs to run.
pub struct Task {
    /// Whose it is.
    pub context: Arc<Context>,
    /// What it does.
    pub op: Op,
    /// Priority of its stream; the lower number goes first.
    pub priority: i32,
}

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

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Ready {
    /// Negated, so that the heap's greatest is the most urgent.
    urgency: i32,
    op: std::cmp::Reverse<OpId>,
}

/// A wake that a thread holds: the device's clock waits for what the thread does next (see the timeline).
pub struct Hold {
    seat: Arc<Seat>,
    wake: Wake,
    /// Another request was announced to follow the last one.
    is_announced: bool,
}

/// A thread of the program that waits.
struct Waiter {
    number: u64,
    ops: Vec<OpId>,
    /// Handed on by the thread whose work it waited for, when nothing else follows.
    hold: Option<Hold>,
}

#[derive(Default)]
struct State {
    order: Order<Task>,
    ready: BinaryHeap<Ready>,
    running: HashMap<OpId, Running>,
    /// Ready operations for which their seat was told of a wake.
    awaited: HashSet<OpId>,
    /// Threads that look for something ready, or are about to: at least as many as there is, up to [`MOST_THREADS`].
    free: usize,
    threads: usize,
    waiters: Vec<Waiter>,
    last_waiter: u64,
}

#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    work: Condvar,
    progress: Condvar,
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the caller runs inside a host function or callback, where calls to the driver are not permitted.
pub fn is_worker() -> bool {
    IS_WORKER.get()
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<&'static Pool> = OnceLock::new();
    POOL.get_or_init(|| Box::leak(Box::default()))
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A new group of lanes with its legacy lane.
pub fn open_group() -> (super::order::GroupId, LaneId) {
    pool().lock().order.open_group()
}

/// A new lane of a group.
pub fn open_lane(group: super::order::GroupId, kind: Kind) -> LaneId {
    pool().lock().order.open_lane(group, kind)
}

/// Nothing more is submitted to a lane.
pub fn close_lane(lane: LaneId) {
    pool().lock().order.close_lane(lane);
}

/// Drops a group whose operations are complete.
pub fn close_group(group: super::order::GroupId) {
    pool().lock().order.close_group(group);
}

/// What must complete before a lane is idle.
pub fn ahead_in(lane: LaneId) -> Vec<OpId> {
    pool().lock().order.ahead_in(lane)
}

/// What must complete before a group is idle.
pub fn ahead_in_group(group: super::order::GroupId) -> Vec<OpId> {
    pool().lock().order.ahead_in_group(group)
}

/// The lanes of a group.
pub fn lanes_of(group: super::order::GroupId) -> Vec<LaneId> {
    pool().lock().order.lanes_of(group)
}

/// Whether all these operations are complete.
pub fn are_complete(ops: &[OpId]) -> bool {
    let state = pool().lock();
    ops.iter().all(|&op| state.order.is_complete(op))
}

/// Sleeps until all these operations are complete.
pub fn wait_for(ops: &[OpId]) {
    let mut state = pool().lock();
    let are_over = |state: &State| ops.iter().all(|&op| state.order.is_complete(op));
    if are_over(&state) {
        return;
    }
    state.last_waiter += 1;
    let number = state.last_waiter;
    state.waiters.push(Waiter {
        number,
        ops: ops.to_vec(),
        hold: None,
    });
    while !are_over(&state) {
        state = pool().progress.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    let place = state.waiters.iter().position(|waiter| waiter.number == number);
    let mut hold = place.and_then(|place| state.waiters.swap_remove(place).hold);
    drop(state);
    settle(&mut hold);
}

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
    Some(Arc::clone(&lanes.seat))
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
    /// Takes what a ready operation runs, with its time; and, if that takes no time on the device, what directly
    /// follows it and takes none either: marks that a device would write one after the other do not wait for the
    /// processor in between.
    fn take_run(&mut self, op: OpId) -> Vec<(OpId, Task, u64)> {
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
    fn await_start(&mut self, submitted: Submitted, seat: Option<&Seat>) {
        if let Some(seat) = seat.filter(|_| submitted.is_ready) {
            seat.wake();
            self.awaited.insert(submitted.id);
        }
    }

    /// Hands a wake on to a thread that waited for what is complete now and nothing else.
    fn hand_on(&mut self, hold: &mut Option<Hold>) {
        let order = &self.order;
        let is_over =
            |waiter: &&mut Waiter| waiter.hold.is_none() && waiter.ops.iter().all(|&op| order.is_complete(op));
        if let Some(waiter) = self.waiters.iter_mut().find(is_over) {
            waiter.hold = hold.take();
        }
    }

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

/// Carries out an operation's part on the device: `effects` runs on this thread while the request is served, and
/// gives the length where `ask` does not. The wake that the caller holds is for this seat; it then holds another one.
pub fn occupy(place: &mut Place<'_>, ask: Ask, effects: impl FnOnce() -> Option<u64>) -> Span {
    let (op, seat) = (place.op, place.seat);
    let wake = place.transit.take().map(|hold| hold.wake);
    let claimed = pool().lock().claim(op, ask);
    let pending = match claimed {
        Some(pending) => {
            if let Some(wake) = wake {
                seat.woken(wake);
            }
            pending
        }
        None => {
            let pending = seat.begin(ask, wake);
            pool().lock().begun(place, pending);
            pending
        }
    };
    let need = effects();
    let span = seat.finish(pending, need);
    let over = pool().lock().running.remove(&op);
    *place.transit = Some(Hold {
        seat: Arc::clone(seat),
        wake: Wake::End,
        is_announced: over.is_some_and(|running| running.is_announced()),
    });
    span
}

fn start_worker() -> bool {
    // SAFETY: plain signal sets on the stack; the caller's mask is restored below.
    let old = unsafe {
        let (mut all, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        old
    };
    let started = std::thread::Builder::new().name("cuda-sim".into()).spawn(work);
    // SAFETY: the mask read above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut()) };
    // Without a new thread the operation waits for one of those that there are.
    started.is_ok()
}

fn work() {
    IS_WORKER.set(true);
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
            ended = task.op.run(&task.context, *op, task.priority, time, &mut transit);
            over.push((*op, ended));
        }
        drop(run);
        next = finish(&over, device, &mut transit);
    }
}

/// Takes over the wake that was made for an operation of a context.
fn awake(context: &Context, transit: &mut Option<Hold>) {
    let Some(lanes) = context.queue.existing() else {
        return;
    };
    match transit {
        // One of the two ends.
        Some(hold) if Arc::ptr_eq(&hold.seat, &lanes.seat) => {
            lanes.seat.woken(std::mem::replace(&mut hold.wake, Wake::Start));
        }
        other => {
            settle(other);
            *other = Some(Hold {
                seat: Arc::clone(&lanes.seat),
                wake: Wake::Start,
                is_announced: false,
            });
        }
    }
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
            other => timeline().map_or(0, |timeline| timeline.clock(other)),
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
    if !state.waiters.is_empty() {
        if next.is_none() {
            state.hand_on(transit);
        }
        pool().progress.notify_all();
    }
    next
}
