// SPDX-License-Identifier: Apache-2.0
//! Timing events: now and then a unit is timed, so that the length of the next ones is known.
//!
//! A timer is a pair of events around one launch, made once per context and used again. It is read when the mark behind it
//! has been written, so nothing is asked of the driver before there is an answer. No unit is timed in the legacy default
//! stream, in a lane with overlapping kernels, or while it is captured.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use partage_abi::types::{CuEvent, CuResult};
use partage_protocol::gate::{Lane, TimePage};
use partage_records::length::Lengths;

use crate::entry::call;
use crate::pools::StreamName;
use crate::real::Library;

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
    /// What is timed.
    unit: AtomicU64,
}

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
    let (mut first, mut second) = (CuEvent::NULL, CuEvent::NULL);
    let is_made = call!(real, cuEventCreate(&raw mut first, 0)).is_success()
        && call!(real, cuEventCreate(&raw mut second, 0)).is_success();
    if !is_made {
        if !first.is_null() {
            let _ = call!(real, cuEventDestroy_v2(first));
        }
        timer.state.store(EMPTY, Ordering::Release);
        return None;
    }
    timer.context.store(context, Ordering::Relaxed);
    timer.first.store(first.0 as u64, Ordering::Relaxed);
    timer.second.store(second.0 as u64, Ordering::Relaxed);
    Some(timer)
}

impl Timer {
    /// Before the launch.
    pub fn start(&self, real: &Library, stream: StreamName, unit: u64) -> bool {
        self.unit.store(unit, Ordering::Relaxed);
        let is_started = record(real, self.first.load(Ordering::Relaxed), stream).is_success();
        if !is_started {
            self.state.store(FREE, Ordering::Release);
        }
        is_started
    }

    /// After it: the mark with this number in this lane comes next.
    pub fn stop(&self, real: &Library, stream: StreamName, lane: usize, number: u64) {
        let is_stopped = record(real, self.second.load(Ordering::Relaxed), stream).is_success();
        self.lane.store(lane as u32, Ordering::Relaxed);
        self.number.store(number, Ordering::Relaxed);
        self.state
            .store(if is_stopped { RECORDED } else { FREE }, Ordering::Release);
    }
}

fn record(real: &Library, event: u64, stream: StreamName) -> CuResult {
    let event = CuEvent(event as *mut _);
    if stream.is_per_thread {
        call!(real, cuEventRecord_ptsz(event, stream.handle))
    } else {
        call!(real, cuEventRecord(event, stream.handle))
    }
}

/// Reads the timers whose marks have been written.
pub fn read(timers: &[Timer; TIMERS], lanes: &[Lane], page: &TimePage, lengths: &Lengths, real: &Library) {
    for timer in timers {
        let is_due = timer.state.load(Ordering::Acquire) == RECORDED
            && lanes
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
            lengths.learn(timer.unit.load(Ordering::Relaxed), ns);
            // The longest of late: others' shorter ones let it fall slowly.
            let longest = page.unit_ns.load(Ordering::Relaxed);
            page.unit_ns.store(ns.max(longest - longest / 64), Ordering::Relaxed);
        }
        timer.state.store(FREE, Ordering::Release);
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
