// SPDX-License-Identifier: Apache-2.0
//! Batches of streams that run together, timed by the GPU: what they took together is the union of their times, which
//! nobody can see who only looks now and then.
//!
//! While more than one lane of a context has work in flight, and until some time after, each batch has an event in front of
//! its begin mark and one in front of its end mark. They are read, by whoever launches next, once the mark behind them has
//! been written, so nothing is asked of the driver before there is an answer. [`Together`] makes of them what the client is
//! to be charged, which the broker reads ([`Settled`]). Legacy default streams, lanes with overlapping kernels, and batches
//! for which no pair of events is free are not timed; of those the broker judges by its looks.
//!
//! The driver tells the time between two events, as a number with 24 bits: every moment is so much later than the second
//! event of the *anchor*, the batch that ended last, so that little is lost to rounding.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use partage_abi::types::{CuEvent, CuResult};
use partage_protocol::gate::{Settled, TimePage};
use partage_records::together::{Batch, Together};

use super::lane::Side;
use super::timers;
use crate::entry::call;
use crate::guard;
use crate::real::Library;
use crate::sys;

/// Batches that are timed at the same time.
const SPANS: usize = 64;
/// Lanes that ran together do so again soon, in nanoseconds.
const TOGETHER_NS: u64 = 50_000_000;
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

/// The timed batches of one device.
pub struct Spans {
    /// The context whose batches they are: the time between events of two cannot be told.
    context: AtomicU64,
    /// When more than one lane had work in flight, by the processor's clock.
    together_ns: AtomicU64,
    /// Batches that are not settled.
    pending: AtomicU32,
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
    anchor_ns: i64,
    together: Together,
}

/// The right to read.
struct Reading<'a>(&'a AtomicU64);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl Spans {
    /// Records the first event of a batch that begins, if its lane runs beside others. Answers which it is, plus one. The
    /// caller may put marks into the lane. `others`: the lanes of the device.
    pub fn begin<'a>(
        &self,
        real: &Library,
        side: &Side<'_>,
        number: u64,
        others: impl Iterator<Item = Side<'a>>,
    ) -> Option<u32> {
        let context = side.own.context.load(Ordering::Relaxed);
        if !is_timeable(side) || !self.is_together(side, context, others) {
            return None;
        }
        let before = self.context.load(Ordering::Relaxed);
        if before != context {
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
        span.recorded_ns.store(sys::now_ns(), Ordering::Relaxed);
        span.late_ns.store(u64::MAX, Ordering::Relaxed);
        if !timers::record(real, span.first.load(Ordering::Relaxed), side.stream()).is_success() {
            self.drop_span(span);
            return None;
        }
        Some(index as u32 + 1)
    }

    /// Does another lane have work in flight, or did one of late? Only where all of them can be timed.
    fn is_together<'a>(&self, side: &Side<'_>, context: u64, others: impl Iterator<Item = Side<'a>>) -> bool {
        let now = sys::now_ns();
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
        if is_together {
            self.together_ns.store(now, Ordering::Relaxed);
        }
        let since = self.together_ns.load(Ordering::Relaxed);
        since != 0 && now.saturating_sub(since) < TOGETHER_NS
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

    fn drop_span(&self, span: &Span) {
        span.state.store(FREE, Ordering::Release);
        self.pending.fetch_sub(1, Ordering::AcqRel);
    }

    /// The first launch of a batch has come back. `is_behind`: another of its lane had not ended yet.
    pub fn launched(&self, index: u32, is_behind: bool) {
        if let Some(span) = self.of(index) {
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
            self.drop_span(span);
            return false;
        }
        // It takes no less than its time from its launch on.
        let since = sys::now_ns().saturating_sub(span.recorded_ns.load(Ordering::Relaxed));
        let since = since.saturating_sub(span.late_ns.load(Ordering::Relaxed));
        let number = span.number.load(Ordering::Relaxed);
        let is_behind = side.lane.ended.load(Ordering::Acquire).wrapping_add(1) < number;
        span.is_loose.store(!is_behind && since >= work_ns, Ordering::Relaxed);
        span.work_ns.store(work_ns, Ordering::Relaxed);
        span.state.store(RECORDED, Ordering::Release);
        true
    }

    fn of(&self, index: u32) -> Option<&Span> {
        self.spans.get((index as usize).checked_sub(1)?)
    }

    /// Reads what has ended since, and says what it took together.
    pub fn read(&self, page: &TimePage, real: &Library) {
        if self.pending.load(Ordering::Acquire) == 0 {
            return;
        }
        let Some(_reading) = self.reading() else { return };
        // SAFETY: this thread's key stands in `reader`, and nothing below comes here again.
        let found = unsafe { &mut *self.found.get() };
        let context = self.context.load(Ordering::Relaxed);
        if found.context != context {
            found.context = context;
            found.together = Together::default();
        }
        let settled = self.settle(page, real, found);
        if settled.timed_ns > 0 {
            page.settled.add(settled);
        }
    }

    /// The right to read, if nobody else has it.
    fn reading(&self) -> Option<Reading<'_>> {
        let me = guard::thread_key();
        let taken = self
            .reader
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Acquire);
        // Had by this thread: a signal's handler left the driver by a long jump.
        (taken.is_ok() || taken == Err(me)).then_some(Reading(&self.reader))
    }

    fn settle(&self, page: &TimePage, real: &Library, found: &mut Found) -> Settled {
        let mut settled = Settled::default();
        let is_in = |span: &&Span, state: u32| span.state.load(Ordering::Acquire) == state;
        for span in self.spans.iter().filter(|span| is_in(span, RECORDED)) {
            let lane = page.lanes.get(span.lane.load(Ordering::Relaxed) as usize);
            let number = span.number.load(Ordering::Relaxed);
            if lane.is_some_and(|lane| lane.ended.load(Ordering::Acquire) >= number) {
                match self.find(real, found, span) {
                    CuResult::SUCCESS => span.state.store(READ, Ordering::Release),
                    CuResult::NOT_READY => {}
                    _ => self.give_up(span, &mut settled),
                }
            }
        }
        let moment = |moment: &AtomicU64| moment.load(Ordering::Relaxed) as i64;
        while let Some(span) = self
            .spans
            .iter()
            .filter(|span| is_in(span, READ))
            .min_by_key(|span| moment(&span.end_ns))
        {
            let (begin_ns, end_ns) = (moment(&span.begin_ns), moment(&span.end_ns));
            let work_ns = span.work_ns.load(Ordering::Relaxed);
            let own_ns = found.together.add(Batch {
                begin_ns,
                end_ns,
                work_ns,
                late_ns: span.late_ns.load(Ordering::Relaxed),
                is_loose: span.is_loose.load(Ordering::Relaxed),
            });
            settled.timed_ns = settled.timed_ns.saturating_add(work_ns);
            settled.own_ns = settled.own_ns.saturating_add(own_ns);
            self.pending.fetch_sub(1, Ordering::AcqRel);
            self.anchor_at(span, end_ns, found);
        }
        settled
    }

    fn anchor(&self, found: &Found) -> Option<&Span> {
        let is_anchor = |span: &&Span| {
            span.state.load(Ordering::Relaxed) == ANCHOR && span.context.load(Ordering::Relaxed) == found.context
        };
        self.spans.iter().find(is_anchor)
    }

    /// The next are told by their distance to this one's end.
    fn anchor_at(&self, span: &Span, end_ns: i64, found: &mut Found) {
        for other in &self.spans {
            if other.state.load(Ordering::Relaxed) == ANCHOR {
                other.state.store(FREE, Ordering::Release);
            }
        }
        found.anchor_ns = end_ns;
        span.state.store(ANCHOR, Ordering::Release);
    }

    /// Finds out when a batch began and ended.
    fn find(&self, real: &Library, found: &mut Found, span: &Span) -> CuResult {
        let (first, second) = (span.first.load(Ordering::Relaxed), span.second.load(Ordering::Relaxed));
        let took = elapsed(real, first, second);
        let end = match (took, self.anchor(found)) {
            (Err(result), _) => return result,
            // Without an anchor nothing is known of the time before.
            (Ok(_), None) => Ok(found.anchor_ns.saturating_add(TOGETHER_NS as i64)),
            (Ok(_), Some(anchor)) => elapsed(real, anchor.second.load(Ordering::Relaxed), second)
                .map(|since| found.anchor_ns.saturating_add(since)),
        };
        match (took, end) {
            (Ok(took), Ok(end)) => {
                span.end_ns.store(end as u64, Ordering::Relaxed);
                span.begin_ns.store(end.saturating_sub(took) as u64, Ordering::Relaxed);
                CuResult::SUCCESS
            }
            (Err(result), _) | (_, Err(result)) => result,
        }
    }

    /// The driver does not say what a batch took.
    fn give_up(&self, span: &Span, settled: &mut Settled) {
        let work_ns = span.work_ns.load(Ordering::Relaxed);
        settled.timed_ns = settled.timed_ns.saturating_add(work_ns);
        settled.own_ns = settled.own_ns.saturating_add(work_ns);
        self.drop_span(span);
    }

    /// The lane of a batch has become another stream's.
    pub fn abandon(&self, index: u32) {
        if let Some(span) = self
            .of(index)
            .filter(|span| span.state.load(Ordering::Relaxed) == TAKEN)
        {
            self.drop_span(span);
        }
    }

    /// The events of a context are gone with it.
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
        let mut settled = Settled::default();
        for span in &self.spans {
            if span.context.load(Ordering::Relaxed) != context {
                continue;
            }
            match span.state.load(Ordering::Acquire) {
                RECORDED | READ => self.give_up(span, &mut settled),
                TAKEN => self.drop_span(span),
                _ => {}
            }
            span.context.store(0, Ordering::Relaxed);
            span.state.store(FREE, Ordering::Release);
        }
        if settled.timed_ns > 0 {
            page.settled.add(settled);
        }
    }
}

/// Can an event stand next to its marks?
fn is_timeable(side: &Side<'_>) -> bool {
    !side.is_legacy() && !side.own.overlaps.load(Ordering::Relaxed)
}

/// Nanoseconds from one event to another.
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
