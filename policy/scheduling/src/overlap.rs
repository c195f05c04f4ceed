// SPDX-License-Identifier: Apache-2.0
//! Overlap: which jobs of a device are kept from it while the others share it.
//!
//! In this order: a job whose cap is used up; one beside a higher class that wants the device and is not ahead of its
//! share; one that is ahead of its share by more than the slack while somebody who is owed time wants the device (until it
//! is owed time itself). Who is kept waiting for longer than the floor allows is let in for a moment, whatever the reason
//! but its own cap.

use crate::command::HeldBy;
use crate::config::Config;
use crate::device::Device;
use crate::event::JobKey;
use crate::member::{Relief, Seat};

/// For how long a job may wait until the floor is due: with a relief of one short quantum.
fn starvation_ns(config: &Config) -> u64 {
    config.quantum_min_ns * 1_000_000 / u64::from(config.floor_ppm.max(1))
}

/// How long a relief may last if it is not used.
const RELIEF_NS: u64 = 20_000_000;

/// Says for each member what keeps it from the device.
pub(crate) fn judge(device: &mut Device, config: &Config, now: u64) {
    let jobs: Vec<JobKey> = device.members.keys().copied().collect();
    for job in jobs {
        let (held_by, is_ahead) = verdict(device, job, config);
        if let Some(member) = device.members.get_mut(&job) {
            member.held_by = held_by;
            member.is_ahead = is_ahead;
        }
        relieve(device, job, config, now);
    }
}

/// What keeps the job away in Overlap, and whether it is ahead of its share.
pub(crate) fn verdict(device: &Device, job: JobKey, config: &Config) -> (Option<HeldBy>, bool) {
    let Some(member) = device.members.get(&job) else {
        return (None, false);
    };
    let lag = device.contest.lag(job);
    let slack = i64::try_from(config.slack_ns).unwrap_or(i64::MAX);
    let is_ahead = device.contest.is_in(job) && (lag < -slack || (member.is_ahead && lag < 0));
    let owed = || {
        let others = device.candidates().filter(|(other, _)| *other != job);
        let owed = others.map(|(other, _)| (device.contest.lag(other), other));
        owed.filter(|(lag, _)| *lag > 0).max().map(|(_, other)| other)
    };
    let held_by = if member.is_capped() {
        Some(HeldBy::Cap)
    } else if let Some(higher) = device.outranked_by(member.terms.class) {
        Some(HeldBy::Priority(higher))
    } else if is_ahead {
        owed().map(HeldBy::Neighbour)
    } else {
        None
    };
    (held_by, is_ahead)
}

/// Keeps the clock of a job that waits, and lets it in when that has been long enough.
pub(crate) fn relieve(device: &mut Device, job: JobKey, config: &Config, now: u64) {
    let Some(member) = device.members.get_mut(&job) else {
        return;
    };
    let is_kept = member.wants() && member.held_by.is_some_and(|by| by != HeldBy::Cap);
    if let Some(relief) = member.relief {
        let is_over = relief.left_ns <= 0 || now >= relief.until_ns || !member.wanted_within(config.think_ns, now);
        if is_over {
            member.relief = None;
            member.waiting_ns = None;
        }
    }
    // Who has work on the device that retires is served, if slowly.
    let retires = |seat: &Seat| seat.seen.is_busy && now.saturating_sub(seat.progressed_ns) < starvation_ns(config) / 2;
    if !is_kept || member.seats.iter().any(retires) {
        if member.relief.is_none() {
            member.waiting_ns = None;
        }
    } else if member.relief.is_none() {
        let since = *member.waiting_ns.get_or_insert(now);
        if now.saturating_sub(since) >= starvation_ns(config) {
            member.relief = Some(Relief {
                left_ns: i64::try_from(config.quantum_min_ns).unwrap_or(i64::MAX),
                until_ns: now + RELIEF_NS,
            });
        }
    }
    if member.relief.is_some() && member.held_by != Some(HeldBy::Cap) {
        member.held_by = None;
    }
}

/// When a job that waits is due to be let in.
pub(crate) fn relief_due_ns(device: &Device, config: &Config) -> Option<u64> {
    device
        .members
        .values()
        .filter(|member| member.relief.is_none())
        .filter_map(|member| Some(member.waiting_ns? + starvation_ns(config)))
        .min()
}
