// SPDX-License-Identifier: Apache-2.0
//! Overlap: which jobs of a device are kept from it while the others share it.
//!
//! In this order: a job whose cap is used up; one beside a higher class that wants the device and is not ahead of its
//! share; one that is ahead of its share by more than the slack while somebody who is owed time wants the device (until it
//! is owed time itself). Who waits is owed the floor meanwhile, and is let in for a short quantum whenever that has come
//! together, whatever the reason but its own cap.

use crate::command::HeldBy;
use crate::config::Config;
use crate::device::Device;
use crate::event::JobKey;
use crate::member::{Gate, Seat};

/// How long a relief may last if it is not used.
const RELIEF_NS: u64 = 20_000_000;

/// Says for each member what keeps it from the device.
pub(crate) fn judge(device: &mut Device, config: &Config, now: u64) {
    let jobs: Vec<JobKey> = device.members.keys().copied().collect();
    let evidence = device.evidence(config, now);
    let shallows = evidence.deep.filter(|_| device.rule.is_wanted(now, &evidence, config));
    for job in jobs {
        let (mut held_by, is_ahead) = verdict(device, job, config);
        if held_by.is_none() && shallows == Some(job) {
            // Its gate closes until what it has on the device is done: that is how it becomes known to be within the
            // bound, and costs it nothing as long as there is more than that.
            held_by = device
                .candidates()
                .map(|(other, _)| other)
                .find(|other| *other != job)
                .map(HeldBy::Neighbour);
        }
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
    let slack = i64::try_from(device.slack_ns(config)).unwrap_or(i64::MAX);
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

/// Lets a job in that is owed the floor, or whose work in flight does not end and may wait for what its gate keeps out.
pub(crate) fn relieve(device: &mut Device, job: JobKey, config: &Config, now: u64) {
    let timeout = device.drain_timeout_ns(config);
    let Some(member) = device.members.get_mut(&job) else {
        return;
    };
    let owed = i64::try_from(config.quantum_min_ns).unwrap_or(i64::MAX);
    let stalls = |seat: &Seat| {
        let since = seat.progressed_ns.max(seat.changed_ns);
        seat.gate == Gate::Closed && seat.seen.is_busy && seat.seen.is_waiting && now.saturating_sub(since) >= timeout
    };
    if !member.is_kept() {
        member.relief_ns = None;
        return;
    }
    let is_due = member.floor_ns >= owed || member.seats.iter().any(stalls);
    if is_due {
        member.relief_ns.get_or_insert(now + RELIEF_NS);
    } else if member.floor_ns <= 0 || member.relief_ns.is_some_and(|until| now >= until) {
        member.relief_ns = None;
    }
    if member.relief_ns.is_some() {
        member.held_by = None;
    }
}

/// When a job that waits is due to be let in.
pub(crate) fn relief_due_ns(device: &Device, config: &Config, now: u64) -> Option<u64> {
    let owed = i64::try_from(config.quantum_min_ns).unwrap_or(i64::MAX);
    device
        .members
        .values()
        .filter(|member| member.is_kept())
        .map(|member| {
            let missing = u64::try_from(owed - member.floor_ns).unwrap_or(0);
            now + missing * 1_000_000 / u64::from(config.floor_ppm.max(1))
        })
        .min()
}
