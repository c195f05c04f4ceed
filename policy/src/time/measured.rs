// SPDX-License-Identifier: Apache-2.0
//! What jobs got of their devices' time, as the dispatcher measured it: kept for `ps`, `status` and `why`.
//!
//! *Asked*: what a job is entitled to now. *Got*: what it had, over a second and over a minute. *Waited*: time for
//! which it wanted the device and its gate was closed, cumulative; the last minute's part of it is what `why` judges
//! by. Parts are millionths ("ppm"), times nanoseconds. A view is complete: a job that is not in the newest one is no
//! longer measured.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;

use partage_protocol::units::{DeviceUuid, JobId, SECOND_NS};
use partage_scheduling::{Cause, Regime, TimeState};

use super::audit::TimeAudit;

/// What is called recent.
pub(crate) const RECENT_NS: u64 = 60 * SECOND_NS;
/// Least distance of two samples of the waiting time; some sixty are kept.
const WAIT_SAMPLE_NS: u64 = SECOND_NS;

/// One job on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTime {
    /// Whose.
    pub job: JobId,
    /// Of which device.
    pub device: DeviceUuid,
    /// What it is entitled to now.
    pub asked_ppm: u32,
    /// What it got in the last second.
    pub got_1s_ppm: u32,
    /// What it got in the last minute.
    pub got_60s_ppm: u32,
    /// What it was charged while it was measured: while it shared its device or had a cap.
    pub used_ns: u64,
    /// The part of it that no look at its marks saw: what [`Action::CorrectTime`](crate::Action::CorrectTime) told.
    pub corrected_ns: i64,
    /// Which stretch of measuring its device is in: between two of them nothing was charged, whatever ran.
    pub stretch: u32,
    /// How long it wanted the device and stood at its closed gate, since it came.
    pub waited_ns: u64,
    /// What it does now.
    pub state: TimeState,
    /// For what it waited most, of late.
    pub waits_for: Cause,
    /// The part of the last minute for which it wanted the device: had work on it or a thread at its gate.
    pub wanted_60s_ppm: u32,
    /// Its longest recent piece of work that cannot be interrupted; 0 unknown.
    pub unit_ns: u64,
    /// How its device is shared.
    pub regime: Regime,
    /// Its work did not end when its turn was over.
    pub is_not_draining: bool,
}

/// The newest view of one job on one device, and samples of its waiting time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Measured {
    pub now: JobTime,
    /// When, and how long it had waited then; at most a window and a step old, the newest last.
    samples: VecDeque<(u64, u64)>,
    /// What NVML shows of it beside that.
    pub audit: TimeAudit,
}

impl Measured {
    pub(crate) fn new(now: JobTime, now_ns: u64) -> Self {
        Self {
            now,
            samples: VecDeque::from([(now_ns, now.waited_ns)]),
            audit: TimeAudit::default(),
        }
    }

    pub(crate) fn update(&mut self, now: JobTime, now_ns: u64) {
        self.now = now;
        if self
            .samples
            .back()
            .is_none_or(|(at, _)| now_ns >= at.saturating_add(WAIT_SAMPLE_NS))
        {
            self.samples.push_back((now_ns, now.waited_ns));
        }
        // The oldest kept is the last one that is a whole window old.
        while self
            .samples
            .get(1)
            .is_some_and(|(at, _)| now_ns >= at.saturating_add(RECENT_NS))
        {
            self.samples.pop_front();
        }
    }

    /// How long it waited in the last minute, or since it is measured.
    pub(crate) fn waited_recently_ns(&self) -> u64 {
        let oldest = self.samples.front().map_or(0, |(_, waited)| *waited);
        self.now.waited_ns.saturating_sub(oldest)
    }

    /// How long the time is in which [`Measured::waited_recently_ns`] passed.
    pub(crate) fn window_ns(&self) -> u64 {
        match (self.samples.front(), self.samples.back()) {
            (Some((first, _)), Some((last, _))) => last.saturating_sub(*first),
            _ => 0,
        }
    }
}

/// What was measured of the jobs' time, by job and device. Everybody reads it; what changes it is a method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times(BTreeMap<(JobId, DeviceUuid), Measured>);

impl Deref for Times {
    type Target = BTreeMap<(JobId, DeviceUuid), Measured>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Times {
    /// A new view replaces the one before: what is not in it is measured no longer. Answers who stopped draining.
    pub(crate) fn replace(&mut self, view: Vec<JobTime>, now_ns: u64) -> Vec<(JobId, DeviceUuid)> {
        let mut old = std::mem::take(&mut self.0);
        let mut not_draining = Vec::new();
        for now in view {
            let key = (now.job, now.device);
            let before = old.remove(&key);
            let was_not_draining = before.as_ref().is_some_and(|measured| measured.now.is_not_draining);
            let measured = match before {
                None => Measured::new(now, now_ns),
                Some(mut measured) => {
                    measured.update(now, now_ns);
                    measured
                }
            };
            self.0.insert(key, measured);
            if now.is_not_draining && !was_not_draining {
                not_draining.push(key);
            }
        }
        not_draining
    }

    /// The audit of a job on a device.
    pub(crate) fn audit_mut(&mut self, job: JobId, device: DeviceUuid) -> Option<&mut TimeAudit> {
        self.0.get_mut(&(job, device)).map(|measured| &mut measured.audit)
    }

    /// Every audit, with what was measured of the job there.
    pub(crate) fn audits_mut(&mut self) -> impl Iterator<Item = ((JobId, DeviceUuid), &JobTime, &mut TimeAudit)> {
        let audits = self.0.iter_mut();
        audits.map(|(key, measured)| (*key, &measured.now, &mut measured.audit))
    }

    /// Nothing is measured of a job that ended.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.0.retain(|(other, _), _| *other != job);
    }
}
