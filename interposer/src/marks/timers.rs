// SPDX-License-Identifier: Apache-2.0
//! Timing events: now and then a unit is timed, so that the length of the next ones is known.
//!
//! A timer is a pair of events around one launch, made once per context and used again. It is read when the mark behind
//! it has been written, so nothing is asked of the driver before there is an answer. No unit is timed in the legacy
//! default stream, in a lane with overlapping kernels, or while it is captured. A pair around nothing tells what the
//! events themselves take.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use partage_abi::types::{CuEvent, CuResult};
use partage_gpu_time::length::{Lengths, Sample};
use partage_protocol::gate::TimePage;

use crate::guest::sys;
use crate::real::Library;
use crate::real::call;
use crate::stream::StreamName;

/// Units of a device that are timed at the same time.
pub const TIMERS: usize = 8;

/// One pair of events. All-zero memory is "not made".
pub struct Timer {
    state: AtomicU32,
    /// The lane, and the number of the mark behind the second event.
    lane: AtomicU32,
    number: AtomicU64,
    context: AtomicU64,
    first: AtomicU64,
    second: AtomicU64,
    /// What is timed; [`NOTHING`].
    unit: AtomicU64,
    /// When the first event was recorded; then for how long by the clock the unit may have been late for it, in
    /// nanoseconds. With [`SHARED`] the work of others may lie between the two events.
    late_ns: AtomicU64,
    /// Launches into the lane up to this one, and into all.
    entered: AtomicU64,
    entered_all: AtomicU64,
    /// `GrantLine::spoiled` at the launch.
    spoiled: AtomicU32,
}

/// What is around a launch that is timed.
#[derive(Clone, Copy)]
pub struct Around {
    /// Nobody else's work is on the device.
    pub is_unshared: bool,
    /// See `GrantLine::spoiled`.
    pub spoiled: u32,
    /// Launches into the lane up to this one, and into all.
    pub entered: u64,
    pub entered_all: u64,
}

/// In [`Timer::unit`], which is no unit's name.
const NOTHING: u64 = 0;
/// In [`Timer::late_ns`].
const SHARED: u64 = 1 << 63;
/// A unit was not late for its sample if that is so many times as long.
const PUNCTUAL: u64 = 128;

const EMPTY: u32 = 0;
const FREE: u32 = 1;
/// One thread has it.
const TAKEN: u32 = 2;
/// Both events are recorded.
const RECORDED: u32 = 3;

/// Takes a timer of a context; makes it if there is room. `make` runs the driver's creation of events.
pub fn take<'a>(timers: &'a [Timer; TIMERS], context: u64, real: &Library) -> Option<&'a Timer> {
    let take = |timer: &Timer, from: u32| {
        timer
            .state
            .compare_exchange(from, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    };
    let is_ready = |timer: &&Timer| {
        timer.state.load(Ordering::Relaxed) == FREE && timer.context.load(Ordering::Relaxed) == context
    };
    if let Some(timer) = timers.iter().find(|timer| is_ready(timer) && take(timer, FREE)) {
        return Some(timer);
    }
    let timer = timers
        .iter()
        .find(|timer| timer.state.load(Ordering::Relaxed) == EMPTY && take(timer, EMPTY))?;
    let Some([first, second]) = make_pair(real) else {
        timer.state.store(EMPTY, Ordering::Release);
        return None;
    };
    timer.context.store(context, Ordering::Relaxed);
    timer.first.store(first, Ordering::Relaxed);
    timer.second.store(second, Ordering::Relaxed);
    Some(timer)
}

/// Two events that tell time, of the current context.
#[inline(never)]
pub fn make_pair(real: &Library) -> Option<[u64; 2]> {
    let (mut first, mut second) = (CuEvent::NULL, CuEvent::NULL);
    let is_made = call!(real, cuEventCreate(&raw mut first, 0)).is_success()
        && call!(real, cuEventCreate(&raw mut second, 0)).is_success();
    if !is_made && !first.is_null() {
        let _ = call!(real, cuEventDestroy_v2(first));
    }
    is_made.then_some([first.0 as u64, second.0 as u64])
}

impl Timer {
    /// Before the launch.
    pub fn start(&self, real: &Library, stream: StreamName, unit: u64, around: Around) -> bool {
        self.unit.store(unit, Ordering::Relaxed);
        self.entered.store(around.entered, Ordering::Relaxed);
        self.entered_all.store(around.entered_all, Ordering::Relaxed);
        self.spoiled.store(around.spoiled, Ordering::Relaxed);
        let shared = if around.is_unshared { 0 } else { SHARED };
        self.late_ns.store(sys::now_ns() | shared, Ordering::Relaxed);
        let is_started = record(real, self.first.load(Ordering::Relaxed), stream).is_success();
        if !is_started {
            self.state.store(FREE, Ordering::Release);
        }
        is_started
    }

    /// After it: the mark with this number in this lane comes next. `is_behind`, told how many launches there had been:
    /// what was launched before it has not ended yet, and nothing came between, so it was not late. `waits_for_all`:
    /// the stream waits for the others of its context, and there have been so many launches into all; if more than
    /// before the first event, what came between may be in the sample, which is then late however long it is.
    pub fn stop(
        &self,
        real: &Library,
        stream: StreamName,
        (lane, number): (usize, u64),
        waits_for_all: Option<u64>,
        is_behind: impl FnOnce(u64) -> bool,
    ) {
        let launched_ns = sys::now_ns();
        let is_stopped = record(real, self.second.load(Ordering::Relaxed), stream).is_success();
        let started = self.late_ns.load(Ordering::Relaxed);
        let is_crossed = waits_for_all.is_some_and(|all| all != self.entered_all.load(Ordering::Relaxed));
        let late_ns = if is_crossed {
            !SHARED
        } else if is_behind(self.entered.load(Ordering::Relaxed)) {
            0
        } else {
            launched_ns.saturating_sub(started & !SHARED).max(1)
        };
        self.late_ns.store(late_ns | started & SHARED, Ordering::Relaxed);
        self.lane.store(lane as u32, Ordering::Relaxed);
        self.number.store(number, Ordering::Relaxed);
        self.state
            .store(if is_stopped { RECORDED } else { FREE }, Ordering::Release);
    }
}

impl Timer {
    /// What kind of sample it has become.
    fn sample(&self, ns: u64, spoiled: u32) -> Sample {
        let late_ns = self.late_ns.load(Ordering::Relaxed);
        let is_exclusive = late_ns & SHARED == 0 && self.spoiled.load(Ordering::Relaxed) == spoiled;
        if is_exclusive && late_ns.saturating_mul(PUNCTUAL) <= ns {
            Sample::Exclusive
        } else {
            Sample::Bound
        }
    }
}

/// Records an event in a stream.
#[inline(never)]
pub fn record(real: &Library, event: u64, stream: StreamName) -> CuResult {
    let event = CuEvent(event as *mut _);
    if stream.is_per_thread {
        call!(real, cuEventRecord_ptsz(event, stream.handle))
    } else {
        call!(real, cuEventRecord(event, stream.handle))
    }
}

/// Reads the timers whose marks have been written.
pub fn read(timers: &[Timer; TIMERS], page: &TimePage, spoiled: u32, lengths: &Lengths, real: &Library) {
    for timer in timers {
        let is_due = timer.state.load(Ordering::Acquire) == RECORDED
            && page
                .lanes
                .get(timer.lane.load(Ordering::Relaxed) as usize)
                .is_some_and(|lane| lane.ended.load(Ordering::Acquire) >= timer.number.load(Ordering::Relaxed));
        let is_mine = is_due
            && timer
                .state
                .compare_exchange(RECORDED, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !is_mine {
            continue;
        }
        let mut milliseconds = 0_f32;
        let [first, second] =
            [&timer.first, &timer.second].map(|event| CuEvent(event.load(Ordering::Relaxed) as *mut _));
        let result = call!(real, cuEventElapsedTime(&raw mut milliseconds, first, second));
        if result == CuResult::NOT_READY {
            timer.state.store(RECORDED, Ordering::Release);
            continue;
        }
        if result.is_success() && milliseconds >= 0.0 {
            let ns = (milliseconds * 1e6) as u64;
            match timer.unit.load(Ordering::Relaxed) {
                NOTHING if timer.late_ns.load(Ordering::Relaxed) & !SHARED == 0 => lengths.learn_overhead(ns),
                NOTHING => {}
                unit => {
                    lengths.learn(unit, ns, timer.sample(ns, spoiled));
                    // The longest of late: others' shorter ones let it fall slowly.
                    let longest = page.unit_ns.load(Ordering::Relaxed);
                    page.unit_ns.store(ns.max(longest - longest / 64), Ordering::Relaxed);
                }
            }
        }
        timer.state.store(FREE, Ordering::Release);
    }
}

/// Times nothing, between two events that are the next in a lane, unless that is under way. `is_behind`: what was
/// launched before it has not ended yet; asked once the events are in the stream, it says that the device met them
/// together.
pub fn time_nothing(
    timers: &[Timer; TIMERS],
    context: u64,
    real: &Library,
    stream: StreamName,
    next: (usize, u64),
    (around, waits_for_all): (Around, Option<u64>),
    is_behind: impl FnOnce(u64) -> bool,
) {
    let is_under_way = |timer: &Timer| {
        timer.unit.load(Ordering::Relaxed) == NOTHING && timer.state.load(Ordering::Relaxed) == RECORDED
    };
    if timers.iter().any(is_under_way) {
        return;
    }
    if let Some(timer) = take(timers, context, real)
        && timer.start(real, stream, NOTHING, around)
    {
        timer.stop(real, stream, next, waits_for_all, is_behind);
    }
}

/// The events of a context are gone with it.
pub fn forget(timers: &[Timer; TIMERS], context: u64) {
    for timer in timers {
        if timer.context.load(Ordering::Relaxed) == context {
            timer.context.store(0, Ordering::Relaxed);
            timer.state.store(EMPTY, Ordering::Release);
        }
    }
}
