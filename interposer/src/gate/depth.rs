// SPDX-License-Identifier: Apache-2.0
//! The bound on work in flight, in the time that it is expected to take: while the broker sets one, a launch waits
//! until enough of what is ahead of it has retired.
//!
//! What may be in flight, of known and of unknown length, see [`depth`](partage_gpu_time::depth). A launch that no lane
//! is free for waits, too: nobody would see it retire. Kernels that overlap the one before have no events between them;
//! how long the launch waited here for so many of them says what they take at most.
//!
//! Work in flight may wait for the very launch that waits here (a kernel that spins for a later one, a stream that
//! waits for a word): when nothing retires for a while, the launch goes on.

use core::sync::atomic::Ordering;

use partage_gpu_time::depth::is_beyond;
use partage_protocol::gate::{MEASURED, UNBOUNDED};
use partage_protocol::page::{ClientFile, GrantLine};

use crate::guest::sys;
use crate::hold::Hold;
use crate::hold::waiting::Waiting;
use crate::marks::{self, Name, Outstanding};
use crate::real::Library;
use crate::state::{Phase, State};
use crate::stream::is_captured;
use crate::stream::work::Work;

/// Between two looks at what has retired, in nanoseconds.
const NAP_NS: u64 = 30_000;
/// Without progress for so long, and for twice the longest unit, the launch goes on.
const STALL_NS: u64 = 50_000_000;

/// Waits until a launch may add to what is in flight.
pub fn wait(
    state: &'static State,
    (line, file): (&GrantLine, &ClientFile),
    device: usize,
    real: &Library,
    &Work { stream, kind }: &Work,
) {
    let Some(page) = file.time.devices.get(device) else {
        return;
    };
    let key = Name::of(real, stream).key;
    let deep = || -> Option<Outstanding> {
        let depth_ns = line.depth_ns.load(Ordering::Relaxed);
        if depth_ns == UNBOUNDED || line.gate_flags.load(Ordering::Relaxed) & MEASURED == 0 {
            return None;
        }
        let there = marks::outstanding(page, device, key);
        let launch = marks::knowledge(kind);
        Some(there).filter(|there| there.has_no_lane || is_beyond(depth_ns, there.all, there.own, launch))
    };
    let Some(found) = deep().filter(|_| !is_captured(state, real, stream)) else {
        return;
    };
    // What this stream holds without a mark would never be seen to retire.
    if found.has_no_lane {
        marks::settle_all(state, real);
    } else {
        marks::settle_stream(state, real, stream);
    }
    let begun_ns = sys::now_ns();
    let Some(mut standing) = Waiting::begin(file, device) else {
        return;
    };
    let (mut retired, mut since_ns) = (page.retired(), begun_ns);
    while deep().is_some() && state.phase() == Phase::Attached {
        sys::sleep_ns(NAP_NS);
        if let Some(hold) = Hold::of_process() {
            hold.give_way();
        }
        let now = standing.count();
        let now_retired = page.retired();
        marks::read_lengths(line, page, device, real);
        let patience = STALL_NS.max(page.unit_ns.load(Ordering::Relaxed).saturating_mul(2));
        if now_retired != retired {
            (retired, since_ns) = (now_retired, now);
        } else if now.saturating_sub(since_ns) > patience {
            return;
        }
    }
    if let (Some(unit), true) = kind.unit() {
        let waited_ns = sys::now_ns().saturating_sub(begun_ns);
        let gone = found
            .own
            .units
            .saturating_sub(marks::outstanding(page, device, key).own.units);
        if let Some(ns) = waited_ns.checked_div(gone) {
            marks::learn_bound(unit, ns);
        }
    }
}
