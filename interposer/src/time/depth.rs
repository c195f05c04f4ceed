// SPDX-License-Identifier: Apache-2.0
//! The bound on work in flight, in the time that it is expected to take: while the broker sets one, a launch waits until
//! enough of what is ahead of it has retired.
//!
//! What may be in flight, see [`depth`](partage_records::depth); of unknown length there may be [`UNKNOWN`] launches. Work in
//! flight may wait for the very launch that waits here (a kernel that spins for a later one, a stream that waits for a
//! word): when nothing retires for a while, the launch goes on.

use core::sync::atomic::Ordering;

use partage_protocol::gate::{MEASURED, TimePage, UNBOUNDED};
use partage_protocol::page::GrantLine;
use partage_records::depth::is_beyond;

use super::marks::{self, Name};
use super::stand::Standing;
use crate::pools::StreamName;
use crate::real::Library;
use crate::state::{Phase, State};
use crate::sys;

/// Launches in flight while the length of none is known.
const UNKNOWN: u64 = 64;
/// Between two looks at what has retired, in nanoseconds.
const NAP_NS: u64 = 30_000;
/// Without progress for so long, and for twice the longest unit, the launch goes on.
const STALL_NS: u64 = 50_000_000;

/// Waits until a launch may add to what is in flight.
pub fn wait(
    state: &'static State,
    line: &GrantLine,
    page: &TimePage,
    device: usize,
    real: &Library,
    stream: StreamName,
) {
    let key = Name::of(real, stream).key;
    let is_deep = || {
        let depth_ns = line.depth_ns.load(Ordering::Relaxed);
        if depth_ns == UNBOUNDED || line.gate_flags.load(Ordering::Relaxed) & MEASURED == 0 {
            return false;
        }
        let (all, own) = marks::outstanding(state, page, device, key);
        is_beyond(depth_ns, all.ns, all.units, own.units) || all.units > UNKNOWN && state.time.lengths.mean() == 0
    };
    if !is_deep() || super::is_captured(state, real, stream) {
        return;
    }
    // What this stream holds without a mark would never be seen to retire.
    marks::settle(state, real, stream);
    let mut standing = Standing::begin(state, page, device);
    let (mut retired, mut since_ns) = (page.retired(), sys::now_ns());
    while is_deep() && state.phase() == Phase::Attached {
        sys::sleep_ns(NAP_NS);
        let now = standing.count();
        let now_retired = page.retired();
        marks::read_spans(state, (line, page), device, real);
        let patience = STALL_NS.max(page.unit_ns.load(Ordering::Relaxed).saturating_mul(2));
        if now_retired != retired {
            (retired, since_ns) = (now_retired, now);
        } else if now.saturating_sub(since_ns) > patience {
            return;
        }
    }
}
