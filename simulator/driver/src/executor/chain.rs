// SPDX-License-Identifier: Apache-2.0
//! What is on the device's timeline, and what was handed in there before its turn.
//!
//! Between two kernels of a stream a real device waits for nobody. Here a thread carries out what stands between them,
//! and would have to run before the next one can begin. A kernel that only takes time is therefore handed in as soon as
//! nothing but marks and records stands between it and one that is on the timeline: it begins when that one ends, and
//! its thread takes it over when it gets there ([`State::claim`]).

use std::sync::Arc;

use partage_machine::timeline::{Ask, Engine, FULL, Pending, Span, Wake};

use super::order::OpId;
use super::place::{Counted, Hold, Place, settle_others};
use super::pool::{Running, State, pool};

/// As many requests are handed in before the turn of the first of them: what a late thread takes fits into them.
const DEPTH: usize = 8;
/// As many marks and records may stand between two of them.
const MOST_BETWEEN: usize = 8;

impl State {
    /// The caller has handed in the request of its operation, whose turn had come.
    pub fn begun(&mut self, place: &Place<'_>, pending: Pending) {
        let running = Running {
            seat: Arc::clone(place.seat),
            context: Arc::as_ptr(place.context),
            pending,
            is_announced: false,
            chained: None,
            depth: 0,
        };
        self.running.insert(place.op, running);
        self.extend(place.op);
    }

    /// The request of an operation, if it was handed in before its turn and is what the caller asks for: it is the
    /// caller's now.
    pub fn claim(&mut self, op: OpId, ask: Ask) -> Option<Pending> {
        let running = self.running.get_mut(&op)?;
        if running.chained.take() != Some(ask) {
            // A fault that came in between.
            self.forget(op);
            return None;
        }
        running.depth = 0;
        let pending = running.pending;
        self.extend(op);
        Some(pending)
    }

    /// Drops what was handed in for an operation before its turn, and nobody claimed.
    pub fn forget(&mut self, op: OpId) {
        if let Some(running) = self.running.remove(&op) {
            running.seat.cancel(running.pending);
        }
    }

    /// An operation waits for exactly one other now, or was submitted so: hands it in if it can be, or announces it.
    pub fn prepare(&mut self, op: OpId) {
        let mut at = op;
        for _ in 0..=MOST_BETWEEN {
            let Some(ahead) = self.order.directly_ahead(at) else {
                return;
            };
            if self.running.contains_key(&ahead) {
                return self.extend(ahead);
            }
            if !self.is_between(ahead) {
                return;
            }
            at = ahead;
        }
    }

    /// What comes directly before an operation, if a kernel on the timeline from which only marks and records separate
    /// it was served already: a thread is about to carry out all of it, and a device would have by now.
    pub fn overdue_before(&self, op: OpId) -> Option<OpId> {
        let before = self.order.directly_ahead(op)?;
        let mut at = before;
        for _ in 0..=MOST_BETWEEN {
            if let Some(running) = self.running.get(&at) {
                return running.seat.is_over(running.pending).then_some(before);
            }
            if !self.is_between(at) {
                return None;
            }
            at = self.order.directly_ahead(at)?;
        }
        None
    }

    /// Hands in what follows a request on the timeline, as far as it can be, and announces what cannot.
    fn extend(&mut self, op: OpId) {
        let mut last = op;
        let first = self.running.get(&op).map_or(DEPTH, |running| running.depth);
        for depth in first + 1..=DEPTH {
            let Some(next) = self.next_behind(last) else { break };
            if !self.running.contains_key(&next) && !self.chain(next, last) {
                break;
            }
            // Less than it was if the first of them has been claimed since.
            if let Some(next) = self.running.get_mut(&next) {
                next.depth = depth;
            }
            last = next;
        }
        if self.order.direct_follower(last).is_some()
            && let Some(last) = self.running.get_mut(&last)
        {
            last.announce();
        }
    }

    /// The next operation that is to be on the timeline.
    fn next_behind(&self, op: OpId) -> Option<OpId> {
        let mut at = op;
        for _ in 0..=MOST_BETWEEN {
            at = self.order.direct_follower(at)?;
            if !self.is_between(at) {
                return Some(at);
            }
        }
        None
    }

    /// Whether it is not begun, takes no time and waits for nobody.
    fn is_between(&self, op: OpId) -> bool {
        self.order.payload(op).is_some_and(|task| task.op.is_instant())
    }

    /// Hands in an operation behind one that is on the timeline. Returns whether it is there now.
    fn chain(&mut self, op: OpId, behind: OpId) -> bool {
        let Some(ahead) = self.running.get(&behind) else {
            return false;
        };
        let Some(task) = self.order.payload(op) else {
            return false;
        };
        let is_same = std::ptr::eq(ahead.context, Arc::as_ptr(&task.context));
        let Some(ask) = task.op.ask(task.priority).filter(|_| is_same) else {
            return false;
        };
        let Some(pending) = ahead.seat.chain(ask, ahead.pending) else {
            return false;
        };
        let running = Running {
            seat: Arc::clone(&ahead.seat),
            context: ahead.context,
            pending,
            is_announced: false,
            chained: Some(ask),
            depth: ahead.depth + 1,
        };
        self.running.insert(op, running);
        true
    }
}

impl Place<'_> {
    /// Occupies an engine. Returns the device time at which it ended.
    pub fn occupy(
        &mut self,
        engine: Engine,
        need_ns: Option<u64>,
        demand: u64,
        effects: impl FnOnce() -> Option<u64>,
    ) -> u64 {
        settle_others(self.transit, self.seat);
        let ask = Ask {
            engine,
            need_ns,
            demand: demand.clamp(1, FULL) as u32,
            priority: self.priority,
        };
        occupy(self, ask, effects).ended
    }
}

/// Carries out an operation's part on the device: `effects` runs on this thread while the request is served, and
/// gives the length where `ask` does not. The wake that the caller holds is for this seat; it then holds another one.
fn occupy(place: &mut Place<'_>, ask: Ask, effects: impl FnOnce() -> Option<u64>) -> Span {
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
        _count: Counted::new(),
    });
    span
}
