// SPDX-License-Identifier: Apache-2.0
//! Overlap: which jobs of a device are kept from it while the others share it.
//!
//! In this order: a job whose cap is used up; one beside a higher class that wants the device and is not ahead of its
//! share; one that is ahead of its share by more than the slack while somebody who is owed time wants the device (until
//! it is owed time itself). Who waits is owed the floor meanwhile, and is let in for a short quantum whenever that has
//! come together, whatever the reason but its own cap. Whose work on the device has not retired for as long as a drain
//! may take while a thread of it waits is let in for a moment even so: the one may wait for the other.

use std::collections::BTreeMap;

use partage_protocol::units::JobId;

use crate::command::Cause;
use crate::config::Config;
use crate::contention::Contention;
use crate::device::Device;
use crate::job_on_device::{ClientOnDevice, Gate, Relief};

/// How long a relief may last if it is not used.
const RELIEF_NS: u64 = 20_000_000;

/// Says for each member what keeps it from the device. Precondition: who is ahead was found.
pub(crate) fn judge(device: &mut Device, config: &Config, now: u64) {
    let jobs: Vec<JobId> = device.members.keys().copied().collect();
    let evidence = device.evidence(config, now);
    let shallows = evidence.deep.filter(|_| device.rule.is_wanted(now, &evidence, config));
    let contention = Contention::of(device, config, now);
    for job in &jobs {
        let held_by = verdict(device, *job, &contention);
        if let Some(member) = device.members.get_mut(job) {
            member.held_by = held_by;
        }
    }
    // Its gate closes until what it has on the device is done: that is how it becomes known to be within the bound, and
    // costs it nothing as long as there is more than that.
    let other = device
        .candidates()
        .find(|(job, member)| shallows != Some(*job) && member.held_by.is_none());
    if let (Some(job), Some((other, _))) = (shallows, other)
        && let Some(member) = device.members.get_mut(&job)
    {
        member.held_by = member.held_by.or(Some(Cause::Neighbour(other)));
    }
    for job in jobs {
        relieve(device, job, config, now);
    }
}

/// Says for each member whether it is ahead of its share: of a gang, over all its devices together, so that it is ahead
/// on all of them or on none. All at once: each verdict rests on those of the others.
pub(crate) fn find_ahead(device: &mut Device, gangs: &BTreeMap<JobId, i64>, config: &Config) {
    let slack = i64::try_from(device.slack_ns(config)).unwrap_or(i64::MAX);
    let Device { members, eevdf, .. } = device;
    for (job, member) in members {
        let own = eevdf.is_in(*job).then(|| eevdf.lag(*job));
        let lag = gangs.get(job).copied().or(own).unwrap_or(0);
        member.is_barred &= gangs.contains_key(job);
        member.is_ahead = lag < -slack || (member.is_ahead && lag < 0);
    }
}

/// What keeps the job away in Overlap.
pub(crate) fn verdict(device: &Device, job: JobId, contention: &Contention) -> Option<Cause> {
    let member = device.members.get(&job)?;
    if member.is_capped() {
        Some(Cause::Cap)
    } else if let Some(higher) = contention.outranked_by(member.terms.class) {
        Some(Cause::Priority(higher))
    } else if member.is_ahead {
        // Whose work does not end has what the device itself gives it; more cannot be given by keeping others away.
        contention.owed.filter(|other| *other != job).map(Cause::Neighbour)
    } else {
        None
    }
}

/// Lets a job in that is owed the floor, or whose work in flight does not end and may wait for what its gate keeps out.
pub(crate) fn relieve(device: &mut Device, job: JobId, config: &Config, now: u64) {
    let timeout = config.drain_timeout_ns;
    let Some(member) = device.members.get_mut(&job) else {
        return;
    };
    let owed = i64::try_from(config.quantum_min_ns).unwrap_or(i64::MAX);
    let stalls = |seat: &ClientOnDevice| {
        let closed_for = now.saturating_sub(seat.changed_ns);
        seat.gate == Gate::Closed && closed_for >= timeout && seat.seen.is_waiting && seat.stalls(timeout)
    };
    if !member.wants() || member.held_by.is_none() {
        member.relief = None;
        return;
    }
    // A cap keeps the floor away, but not the end of a stall: the work that stalls is charged all the time.
    let is_owed = member.is_kept() && member.floor_ns >= owed;
    if member.relief.is_none() && (is_owed || member.seats.iter().any(stalls)) {
        let until_ns = now + RELIEF_NS;
        member.relief = Some(Relief { until_ns, is_owed });
    }
    // What is owed ends when it was had; what was let in to end a stall is charged, but not ended, by that.
    let is_over = |relief: Relief| now >= relief.until_ns || (relief.is_owed && member.floor_ns <= 0);
    if member.relief.is_some_and(is_over) {
        member.relief = None;
    }
    let may_pass = |relief: Relief| !relief.is_owed || member.held_by != Some(Cause::Cap);
    if member.relief.is_some_and(may_pass) {
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
