// SPDX-License-Identifier: Apache-2.0
//! Depth: how much predicted device time of a client may be in flight.
//!
//! What is in flight cannot be taken back, so it is the time by which a hand-over, a cap or a higher class waits.
//! Beside jobs that want nothing the bound is wide: none that a program would feel, and none that a job that wakes
//! would have to wait for during seconds; the same for a job whose cap is the whole device, which may be lowered.
//! Shortly before a job of a higher class is expected there is one unit at a time: the job waits for that and nothing
//! else, however late its wake is seen, and what the device idles between two units is little beside its sleep. Alone
//! there is nobody to wait, and no bound.

use crate::config::Config;
use crate::contention::Contention;
use crate::device::Device;
use crate::job_on_device::{ClientOnDevice, JobOnDevice};

/// The bound for a seat of the member, and why.
pub(crate) fn depth(
    device: &Device,
    member: &JobOnDevice,
    seat: &ClientOnDevice,
    contention: &Contention,
    config: &Config,
) -> (Option<u64>, &'static str) {
    if let Some(had_ns) = seat.stalled_for_ns(config.drain_timeout_ns) {
        // What is in flight may wait for what the bound keeps out. How long its units are taken to be is not known, so
        // the bound grows with the time; at once without a bound, a mere long unit would draw seconds of work after it.
        let depth_ns = (2 * had_ns).next_power_of_two();
        (
            Some(depth_ns),
            "work in flight does not end; what it may wait for is let in",
        )
    } else if contention.expects_higher(member.terms.class, lead_ns(member, config)) {
        (
            Some(config.depth_before_wake_ns),
            "a job of a higher class is about to want the device",
        )
    } else if contention.is_beside_higher(member.terms.class) {
        (Some(config.depth_beside_higher_ns), "a job of a higher class is there")
    } else if member.budget.is_some() || device.rule.is_forced || contention.is_contended {
        // A client whose units are longer than the bound has one of them in flight, and the device waits for the next
        // after each. Within a slice of the device's own this can be spared.
        let is_longer = (config.depth_contended_ns..=config.slice_ns).contains(&member.unit_ns());
        let depth_ns = if is_longer {
            config.slice_ns
        } else {
            config.depth_contended_ns
        };
        (Some(depth_ns), "the device is contended or the job is capped")
    } else if member.terms.cap_ppm.is_some() || contention.is_shared {
        (Some(config.depth_present_ns), "other jobs are there or a cap may come")
    } else {
        (None, "nobody else is there")
    }
}

/// How long before a job of a higher class is expected the bound on this member's work has to fall: until what it may
/// have on the device is done, and two looks.
fn lead_ns(member: &JobOnDevice, config: &Config) -> u64 {
    let depth = config.depth_beside_higher_ns;
    depth + member.unit_ns().min(depth) + 2 * config.watch_drain_ns
}
