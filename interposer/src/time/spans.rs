// SPDX-License-Identifier: Apache-2.0
//! Batches of streams that run together, timed by the GPU: what they took together is the union of their times, which
//! nobody can see who only looks now and then.
//!
//! While more than one lane of a context has work in flight, and for some time after, each batch has an event behind its
//! begin mark and one in front of its end mark. They are read, by whoever launches next, once the mark behind them has been
//! written, so nothing is asked of the driver before there is an answer. [`StreamUnion`] makes of them what the client is to
//! be charged, which the broker reads ([`SpanSum`]). Batches in legacy default streams or lanes with overlapping kernels, or
//! while such a lane or one of another context has work in flight, and those for which no pair of events is free, are not
//! timed; of those the broker judges by its looks.
//!
//! The driver tells the time between two events, as a number with 24 bits: every moment is so much later than the second
//! event of the *anchor*, the batch that ended last, so that little is lost to rounding.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use partage_abi::types::{CuEvent, CuResult};
use partage_protocol::gate::{SpanSum, TimePage};
use partage_records::stream_union::{Batch, StreamUnion};

use super::lane::Side;
use super::timers;
use crate::entry::call;
use crate::guard;
use crate::real::Library;
use crate::sys;

/// Batches that are timed at the same time.
const SPANS: usize = 64;
/// Lanes that ran together may do so again for so long, in nanoseconds: the first batches of a burst are timed, too.
const AGAIN_NS: u64 = 10_000_000_000;
/// How long to wait for who reads, in nanoseconds, and how often.
const READER_NAP_NS: u64 = 20_000;
const READER_NAPS: u32 = 500;

/// One batch. All-zero memory is a free one without events.
struct Span {
    state: AtomicU32,
    lane: AtomicU32,
    number: AtomicU64,
    context: AtomicU64,
    first: AtomicU64,
    second: AtomicU64,
    /// What it is expected to take, in nanoseconds.
    work_ns: AtomicU64,
    /// When the first event was recorded, by the processor's clock.
    recorded_ns: AtomicU64,
    /// For how long the first launch may have been late for it. 0: not at all.
    late_ns: AtomicU64,
    /// The batch may have ended before the second event was in the stream.
    is_loose: AtomicBool,
    /// Nobody else's work was on the device when it began, and `GrantLine::spoiled` then.
    is_unshared: AtomicBool,
    spoiled: AtomicU32,
    /// The two moments, in nanoseconds of the GPU; they may be negative.
    begin_ns: AtomicU64,
    end_ns: AtomicU64,
}

const FREE: u32 = 0;
/// The batch is not complete.
const TAKEN: u32 = 1;
/// Both events are recorded.
const RECORDED: u32 = 2;
/// Both moments are known.
const READ: u32 = 3;
/// All others are told by their distance to it.
const ANCHOR: u32 = 4;
/// The driver does not take its events.
const BROKEN: u32 = 5;

/// The timed batches of one device.
pub struct Spans {
    /// The context whose batches they are: the time between events of two cannot be told.
    context: AtomicU64,
    /// When more than one lane had work in flight, by the processor's clock.
    together_ns: AtomicU64,
    /// Batches that are not settled.
    pending: AtomicU32,
    /// What had retired on the device when they were last looked at.
    retired: AtomicU64,
    /// Who reads: a thread's key; 0: nobody.
    reader: AtomicU64,
    spans: [Span; SPANS],
    /// Of whoever reads.
    found: UnsafeCell<Found>,
}

// SAFETY: `found` is only touched by the thread whose key stands in `reader`.
unsafe impl Sync for Spans {}

/// What the batches that are settled say of the next.
struct Found {
    context: u64,
    union: StreamUnion,
}

/// The right to read.
struct Reading<'a>(&'a AtomicU64);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl Spans {
    /// Is a batch that begins to be timed: does another lane have work in flight, or did one not long ago? Only where all of
    /// them can be timed. `others`: the lanes of the device.
    pub fn wants<'a>(&self, side: &Side<'_>, others: impl Iterator<Item = Side<'a>>) -> bool {
        let context = side.own.context.load(Ordering::Relaxed);
        let mut is_together = false;
        for other in others {
            if other.index == side.index || !other.lane.is_in_flight() {
                continue;
            }
            if other.own.context.load(Ordering::Relaxed) != context || !is_timeable(&other) {
                return false;
            }
            is_together = true;
        }
        let since = self.together_ns.load(Ordering::Relaxed);
        if !is_timeable(side) || !is_together && since == 0 {
            return false;
        }
        let now = sys::now_ns();
        if is_together {
            self.together_ns.store(now, Ordering::Relaxed);
        }
        is_together || now.saturating_sub(since) < AGAIN_NS
    }

    /// Records the first event of a batch, whose begin mark has been put. Answers which span it is, plus one. The caller may
    /// put marks into the lane, and its context is current. `(is_unshared, spoiled)`: see [`Around`](timers::Around).
    pub fn begin(
        &self,
        real: &Library,
        side: &Side<'_>,
        number: u64,
        (is_unshared, spoiled): (bool, u32),
    ) -> Option<u32> {
        let context = side.own.context.load(Ordering::Relaxed);
        if self.context.load(Ordering::Relaxed) != context {
            if self.pending.load(Ordering::Acquire) != 0 {
                return None;
            }
            self.context.store(context, Ordering::Relaxed);
        }
        let (index, span) = self.take(context, real)?;
        self.pending.fetch_add(1, Ordering::AcqRel);
        span.lane.store(side.index as u32, Ordering::Relaxed);
        span.number.store(number, Ordering::Relaxed);
        span.is_loose.store(false, Ordering::Relaxed);
        span.is_unshared.store(is_unshared, Ordering::Relaxed);
        span.spoiled.store(spoiled, Ordering::Relaxed);
        span.recorded_ns.store(sys::now_ns(), Ordering::Relaxed);
        span.late_ns.store(u64::MAX, Ordering::Relaxed);
        if !timers::record(real, span.first.load(Ordering::Relaxed), side.stream()).is_success() {
            self.leave(span, TAKEN, BROKEN);
            return None;
        }
        Some(index as u32 + 1)
    }

    fn take(&self, context: u64, real: &Library) -> Option<(usize, &Span)> {
        let is_ready = |span: &Span| {
            let made_in = span.context.load(Ordering::Relaxed);
            span.state.load(Ordering::Relaxed) == FREE && (made_in == context || made_in == 0)
        };
        let taken = |span: &Span| {
            let change = (FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed);
            span.state
                .compare_exchange(change.0, change.1, change.2, change.3)
                .is_ok()
        };
        let mut spans = self.spans.iter().enumerate();
        let (index, span) = spans.find(|(_, span)| is_ready(span) && taken(span))?;
        if span.context.load(Ordering::Relaxed) == 0 {
            let Some([first, second]) = timers::make_pair(real) else {
                span.state.store(FREE, Ordering::Release);
                return None;
            };
            span.first.store(first, Ordering::Relaxed);
            span.second.store(second, Ordering::Relaxed);
            span.context.store(context, Ordering::Relaxed);
        }
        Some((index, span))
    }

    /// A batch is settled, or never will be. False if somebody else has said so.
    #[inline(never)]
    fn leave(&self, span: &Span, from: u32, to: u32) -> bool {
        let change = span
            .state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        if change.is_ok() {
            self.pending.fetch_sub(1, Ordering::AcqRel);
        }
        change.is_ok()
    }

    /// The first launch of the batch with this number in this lane has come back. `is_behind`: another of its lane had not
    /// ended yet.
    pub fn launched(&self, index: u32, (lane, number): (usize, u64), is_behind: bool) {
        let is_it = |span: &&Span| {
            span.lane.load(Ordering::Relaxed) as usize == lane && span.number.load(Ordering::Relaxed) == number
        };
        if let Some(span) = self.of(index).filter(is_it) {
            let since = sys::now_ns().saturating_sub(span.recorded_ns.load(Ordering::Relaxed));
            let late_ns = if is_behind { 0 } else { since.max(1) };
            span.late_ns.store(late_ns, Ordering::Relaxed);
        }
    }

    /// Records the second event of a batch whose end mark comes next. True if its time will be told.
    pub fn end(&self, real: &Library, side: &Side<'_>, index: u32, work_ns: u64) -> bool {
        let Some(span) = self.of(index) else { return false };
        if span.state.load(Ordering::Relaxed) != TAKEN {
            return false;
        }
        if !timers::record(real, span.second.load(Ordering::Relaxed), side.stream()).is_success() {
            self.leave(span, TAKEN, BROKEN);
            return false;
        }
        // It takes no less than its time from its launch on.
        let since = sys::now_ns().saturating_sub(span.recorded_ns.load(Ordering::Relaxed));
        let since = since.saturating_sub(span.late_ns.load(Ordering::Relaxed));
        let number = span.number.load(Ordering::Relaxed);
        let is_behind = side.lane.ended.load(Ordering::Acquire).wrapping_add(1) < number;
        span.is_loose.store(!is_behind && since >= work_ns, Ordering::Relaxed);
        span.work_ns.store(work_ns, Ordering::Relaxed);
        let change = span
            .state
            .compare_exchange(TAKEN, RECORDED, Ordering::Release, Ordering::Relaxed);
        change.is_ok()
    }

    fn of(&self, index: u32) -> Option<&Span> {
        self.spans.get((index as usize).checked_sub(1)?)
    }

    /// Has anything retired since batches that are not settled were last looked at?
    pub fn is_due(&self, page: &TimePage) -> bool {
        self.pending.load(Ordering::Acquire) != 0 && self.retired.load(Ordering::Relaxed) != page.retired()
    }

    /// Reads what has ended since, and says what it took together. `spoiled`: see `GrantLine`. `overhead_ns`: what two events
    /// take.
    #[inline(never)]
    pub fn read(&self, page: &TimePage, spoiled: u32, overhead_ns: u64, real: &Library) {
        let Some(_reading) = self.reading() else { return };
        self.retired.store(page.retired(), Ordering::Relaxed);
        // SAFETY: this thread's key stands in `reader`, and nothing below comes here again.
        let found = unsafe { &mut *self.found.get() };
        let context = self.context.load(Ordering::Relaxed);
        if found.context != context {
            found.context = context;
            found.union.clear();
        }
        let mut sum = SpanSum::default();
        self.find_ended(page, real, context, &mut sum);
        self.settle(found, spoiled, overhead_ns, &mut sum);
        if sum.timed_ns > 0 {
            page.spans.add(sum);
        }
    }

    /// The right to read, if nobody else has it.
    #[inline(never)]
    fn reading(&self) -> Option<Reading<'_>> {
        let me = guard::thread_key();
        let taken = self
            .reader
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Acquire);
        // Had by this thread: a signal's handler left the driver by a long jump.
        (taken.is_ok() || taken == Err(me)).then_some(Reading(&self.reader))
    }

    fn each(&self, state: u32) -> impl Iterator<Item = &Span> {
        let is_in = move |span: &&Span| span.state.load(Ordering::Acquire) == state;
        self.spans.iter().filter(is_in)
    }

    /// Finds the moments of batches whose end marks have been written.
    fn find_ended(&self, page: &TimePage, real: &Library, context: u64, sum: &mut SpanSum) {
        for span in self.each(RECORDED) {
            let lane = page.lanes.get(span.lane.load(Ordering::Relaxed) as usize);
            let number = span.number.load(Ordering::Relaxed);
            if lane.is_none_or(|lane| lane.ended.load(Ordering::Acquire) < number) {
                continue;
            }
            match self.find(real, context, span) {
                Ok(()) => {
                    let _ = span
                        .state
                        .compare_exchange(RECORDED, READ, Ordering::Release, Ordering::Relaxed);
                }
                Err(CuResult::NOT_READY) => {}
                Err(_) => self.give_up(span, RECORDED, sum),
            }
        }
    }

    /// Adds up those whose moments are known.
    fn settle(&self, found: &mut Found, spoiled: u32, overhead_ns: u64, sum: &mut SpanSum) {
        let moment = |moment: &AtomicU64| moment.load(Ordering::Relaxed) as i64;
        while let Some(span) = self.each(READ).min_by_key(|span| moment(&span.end_ns)) {
            let (begin_ns, end_ns) = (moment(&span.begin_ns), moment(&span.end_ns));
            let work_ns = span.work_ns.load(Ordering::Relaxed);
            let before = self.each(ANCHOR).next();
            if !self.leave(span, READ, ANCHOR) {
                continue;
            }
            if let Some(before) = before {
                before.state.store(FREE, Ordering::Release);
            }
            let own_ns = found.union.add(Batch {
                begin_ns: begin_ns.saturating_add_unsigned(overhead_ns),
                end_ns,
                work_ns,
                late_ns: span.late_ns.load(Ordering::Relaxed),
                is_loose: span.is_loose.load(Ordering::Relaxed),
                is_unshared: span.is_unshared.load(Ordering::Relaxed)
                    && span.spoiled.load(Ordering::Relaxed) == spoiled,
            });
            sum.timed_ns = sum.timed_ns.saturating_add(work_ns);
            sum.own_ns = sum.own_ns.saturating_add(own_ns);
        }
    }

    /// Finds out when a batch began and ended.
    fn find(&self, real: &Library, context: u64, span: &Span) -> Result<(), CuResult> {
        let (first, second) = (span.first.load(Ordering::Relaxed), span.second.load(Ordering::Relaxed));
        let took = elapsed(real, first, second)?;
        let is_known = |other: &&Span| other.context.load(Ordering::Relaxed) == context;
        let known = self.each(ANCHOR).chain(self.each(READ)).find(is_known);
        let end = match known {
            Some(other) => {
                let since = elapsed(real, other.second.load(Ordering::Relaxed), second)?;
                (other.end_ns.load(Ordering::Relaxed) as i64).saturating_add(since)
            }
            // The first: what is told is only when others were.
            None => 0,
        };
        span.end_ns.store(end as u64, Ordering::Relaxed);
        span.begin_ns.store(end.saturating_sub(took) as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The driver does not say what a batch took.
    #[inline(never)]
    fn give_up(&self, span: &Span, from: u32, sum: &mut SpanSum) {
        let work_ns = span.work_ns.load(Ordering::Relaxed);
        if self.leave(span, from, BROKEN) {
            sum.timed_ns = sum.timed_ns.saturating_add(work_ns);
            sum.own_ns = sum.own_ns.saturating_add(work_ns);
        }
    }

    /// The events of a context are gone with it.
    #[inline(never)]
    pub fn forget(&self, page: &TimePage, context: u64) {
        // Who reads is done soon, unless he left by a long jump.
        let mut reading = self.reading();
        for _ in 0..READER_NAPS {
            if reading.is_some() {
                break;
            }
            sys::sleep_ns(READER_NAP_NS);
            reading = self.reading();
        }
        let mut sum = SpanSum::default();
        for span in &self.spans {
            if span.context.load(Ordering::Relaxed) != context {
                continue;
            }
            for state in [RECORDED, READ] {
                self.give_up(span, state, &mut sum);
            }
            self.leave(span, TAKEN, BROKEN);
            span.context.store(0, Ordering::Relaxed);
            span.state.store(FREE, Ordering::Release);
        }
        if sum.timed_ns > 0 {
            page.spans.add(sum);
        }
    }
}

/// Can an event stand next to its marks?
fn is_timeable(side: &Side<'_>) -> bool {
    !side.is_legacy() && !side.own.overlaps.load(Ordering::Relaxed)
}

/// Nanoseconds from one event to another.
#[inline(never)]
fn elapsed(real: &Library, from: u64, to: u64) -> Result<i64, CuResult> {
    let mut milliseconds = 0_f32;
    let [from, to] = [from, to].map(|event| CuEvent(event as *mut _));
    let result = call!(real, cuEventElapsedTime(&raw mut milliseconds, from, to));
    if result.is_success() {
        Ok((f64::from(milliseconds) * 1e6) as i64)
    } else {
        Err(result)
    }
}
