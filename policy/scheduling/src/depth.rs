// SPDX-License-Identifier: Apache-2.0
//! Depth: how much predicted device time of a client may be in flight.
//!
//! What is in flight cannot be taken back, so it is the time by which a hand-over, a cap or a higher class waits. Alone
//! there is nobody to wait, and no bound.

use crate::config::Config;
use crate::device::Device;
use crate::member::{Gate, Member, Seat};

/// The bound for a seat of the member, and why.
pub(crate) fn depth(
    device: &Device,
    member: &Member,
    seat: &Seat,
    config: &Config,
    now: u64,
) -> (Option<u64>, &'static str) {
    let stalled = now.saturating_sub(seat.progressed_ns) >= device.drain_timeout_ns(config);
    if seat.gate != Gate::Closed && seat.seen.is_busy && seat.seen.is_waiting && stalled {
        // What is in flight may wait for what the bound keeps out.
        (None, "work in flight does not end; what it may wait for is let in")
    } else if device.is_beside_higher(member.terms.class) {
        (Some(config.depth_beside_higher_ns), "a job of a higher class is there")
    } else if member.server.is_some() || device.rule.is_forced || device.is_contended(config, now) {
        (
            Some(config.depth_contended_ns),
            "the device is contended or the job is capped",
        )
    } else {
        (None, "nobody else wants the device")
    }
}
