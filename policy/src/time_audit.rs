// SPDX-License-Identifier: Apache-2.0
//! The auditor of device time: jobs for which NVML shows the device at work for longer than what they were charged.
//!
//! ```text
//!   excess = shown − r · max(charged in this look, charged in the look before)
//!   r      = Σ shown / Σ charged of the other jobs on the device, within 1 and MOST_AHEAD; 1 where there are none
//!
//!            excess > TOLERANCE in two looks                  no excess for QUIET_NS
//!   agrees ─────────────────────────────────► drifts ─────────────────────────────────► agrees
//!                                               │ each look's excess is charged to the job and taken from who was
//!                                               │ charged for it; after TIME_CONFIRM_NS `[audit] drift` answers
//! ```
//! A *look* is the time between two views of what was charged, a second or more; *shown* is the mean of NVML's figures in
//! it. NVML's figure is a mean over a second whose samples may be a second old, so that work which has just ended still
//! shows: a look is compared with what was charged in it or in the one before, whichever is more. What NVML shows too much
//! for everybody alike (another clock, time between kernels) accuses nobody: that is `r`.
//!
//! Nothing is judged where the figures are no split of the device: where NVML does not say them of one of the job's
//! processes, or where those of all processes add up to more than the device ([`OVERLAP_PPM`]). Less than what was charged
//! is never judged: a client that waits between its launches is charged for gaps that NVML does not count. Work that
//! began before its job was measured and has not ended is not told from work that goes past Partage: it is charged, too.

use std::collections::BTreeMap;

use partage_protocol::terms::{WHOLE_PPM, format_part};
use partage_protocol::units::{DeviceUuid, JobId, SECOND_NS};

use crate::audit::Response;
use crate::command::Action;
use crate::event::ProcessUse;
use crate::job::Job;
use crate::policy::Policy;

/// A job whose time drifts is answered after so long, as `[audit] drift` says.
pub const TIME_CONFIRM_NS: u64 = 5 * SECOND_NS;
/// NVML may show so much more than what was charged.
const TOLERANCE_PPM: u32 = WHOLE_PPM / 10;
/// Figures of all processes that add up to more do not divide the device's time among them.
const OVERLAP_PPM: u32 = WHOLE_PPM / 20 * 21;
/// NVML may show all jobs of a device at work for so many times longer than they are charged, at most.
const MOST_AHEAD: u64 = 2;
/// Shorter than that is no look.
const LEAST_LOOK_NS: u64 = SECOND_NS / 10 * 9;
/// A job agrees again after so long without an excess: one whose cap makes it pay stands still for a while.
const QUIET_NS: u64 = 30 * SECOND_NS;

/// One job in one look at a device.
struct JobLook {
    job: JobId,
    /// What it was charged in the look by what was seen of it.
    charged_ns: i64,
    /// What NVML shows beyond that and is charged now.
    excess_ns: i64,
}

/// What is known of one job on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeAudit {
    /// Sum of NVML's figures since the last look, and how many.
    shown: (u64, u32),
    /// One of them divides nothing.
    is_blurred: bool,
    /// When the last look ended, what was seen of the job's time up to then, and in which stretch of measuring.
    last: Option<(u64, i64, u32)>,
    /// What was charged in the look before.
    before_ppm: Option<u32>,
    /// Excess of one look, which the next one confirms or not.
    pending_ns: i64,
    /// The newest look's excess, where it is charged.
    excess_ppm: u32,
    drift: Option<TimeDrift>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TimeDrift {
    since_ns: u64,
    /// When an excess was last seen.
    last_ns: u64,
    shown_ppm: u32,
    charged_ppm: u32,
    is_killed: bool,
}

/// What one look says.
struct Look {
    shown_ppm: u32,
    charged_ppm: u32,
    /// As much as was charged in this look or the one before.
    most_ppm: u32,
}

impl Look {
    /// The look with what was charged brought to the measure of the device's other jobs. `all`: what was shown and charged
    /// of all its jobs, this one's included.
    fn beside(mut self, (shown, charged): (u64, u64)) -> Self {
        let others = (
            shown.saturating_sub(u64::from(self.shown_ppm)),
            charged.saturating_sub(u64::from(self.most_ppm)),
        );
        let most = u64::from(self.most_ppm);
        let scaled = (most * others.0).checked_div(others.1).unwrap_or(most);
        let scaled = scaled.clamp(most, most * MOST_AHEAD).min(u64::from(WHOLE_PPM));
        self.most_ppm = u32::try_from(scaled).unwrap_or(WHOLE_PPM);
        self
    }
}

impl TimeAudit {
    /// It has drifted for so long that the rules answer.
    pub(crate) fn is_confirmed(&self, now_ns: u64) -> bool {
        self.drift
            .as_ref()
            .is_some_and(|drift| now_ns >= drift.since_ns.saturating_add(TIME_CONFIRM_NS))
    }

    /// The part of the device's time that NVML alone shows of it, while that is charged.
    pub(crate) fn unseen_ppm(&self) -> u32 {
        self.excess_ppm
    }

    /// Ends a look at a job of which `seen_ns` were seen so far. None where it is too short, or the first of a stretch of
    /// measuring: in between the device was not measured, so that NVML shows what nobody was to be charged for.
    fn end_look(&mut self, seen_ns: i64, stretch: u32, now_ns: u64) -> Option<(u64, i64, Option<Look>)> {
        let Some((at, before, _)) = self.last.filter(|(_, _, last)| *last == stretch) else {
            self.last = Some((now_ns, seen_ns, stretch));
            (self.shown, self.is_blurred, self.before_ppm, self.pending_ns) = ((0, 0), false, None, 0);
            self.excess_ppm = 0;
            return None;
        };
        let dt = now_ns.saturating_sub(at);
        if dt < LEAST_LOOK_NS {
            return None;
        }
        self.last = Some((now_ns, seen_ns, stretch));
        let charged_ns = seen_ns.saturating_sub(before).max(0);
        let charged = i128::from(charged_ns) * i128::from(WHOLE_PPM) / i128::from(dt);
        let charged_ppm = u32::try_from(charged).map_or(WHOLE_PPM, |ppm| ppm.min(WHOLE_PPM));
        let before_ppm = self.before_ppm.replace(charged_ppm);
        let (sum, count) = std::mem::take(&mut self.shown);
        let is_blurred = std::mem::take(&mut self.is_blurred);
        let shown = sum.checked_div(u64::from(count)).filter(|_| !is_blurred);
        let look = shown.zip(before_ppm).map(|(shown, before_ppm)| Look {
            // A mean of parts is one.
            shown_ppm: u32::try_from(shown).map_or(WHOLE_PPM, |ppm| ppm.min(WHOLE_PPM)),
            charged_ppm,
            most_ppm: charged_ppm.max(before_ppm),
        });
        Some((dt, charged_ns, look))
    }

    /// Judges a look of `dt`: what the job is charged for it, and whether its drift begins or ends.
    fn judge(&mut self, look: Option<Look>, dt: u64, now_ns: u64) -> (i64, Option<bool>) {
        let excess_ppm = look
            .as_ref()
            .map_or(0, |look| look.shown_ppm.saturating_sub(look.most_ppm));
        self.excess_ppm = 0;
        let Some(look) = look.filter(|_| excess_ppm > TOLERANCE_PPM) else {
            self.pending_ns = 0;
            let is_over = self
                .drift
                .take_if(|drift| now_ns >= drift.last_ns.saturating_add(QUIET_NS))
                .is_some();
            return (0, is_over.then_some(false));
        };
        let ns = i128::from(excess_ppm) * i128::from(dt) / i128::from(WHOLE_PPM);
        let excess_ns = i64::try_from(ns).unwrap_or(i64::MAX);
        if self.drift.is_none() && self.pending_ns == 0 {
            self.pending_ns = excess_ns;
            return (0, None);
        }
        let ns = excess_ns.saturating_add(std::mem::take(&mut self.pending_ns));
        self.excess_ppm = excess_ppm;
        let is_new = self.drift.is_none();
        let drift = self.drift.get_or_insert(TimeDrift {
            since_ns: now_ns.saturating_sub(dt),
            last_ns: now_ns,
            shown_ppm: 0,
            charged_ppm: 0,
            is_killed: false,
        });
        (drift.last_ns, drift.shown_ppm, drift.charged_ppm) = (now_ns, look.shown_ppm, look.charged_ppm);
        (ns, is_new.then_some(true))
    }
}

impl Policy {
    /// A look of NVML at a device came: what it shows of each job that is measured there.
    pub(crate) fn note_shown_time(&mut self, device: DeviceUuid) {
        let measured = self.devices.get(&device).and_then(|known| known.measured.as_ref());
        let processes = measured.map_or(&[][..], |measured| measured.processes.as_slice());
        let parts = processes.iter().map(|process| process.busy_ppm);
        let all = parts.fold(0, |sum: u32, part| sum.saturating_add(part.unwrap_or(0)));
        let jobs = self.times.keys().filter(|(_, other)| *other == device);
        let shown: Vec<_> = jobs.map(|key| (*key, self.shown_part(key.0, device))).collect();
        for (key, part) in shown {
            let Some(measured) = self.times.get_mut(&key) else {
                continue;
            };
            let audit = &mut measured.audit;
            match part.filter(|_| all <= OVERLAP_PPM) {
                Some(part) => audit.shown = (audit.shown.0 + u64::from(part), audit.shown.1 + 1),
                None => audit.is_blurred = true,
            }
        }
    }

    /// Views of what was charged came: compares them with what NVML showed since the ones before.
    pub(crate) fn audit_times(&mut self, now_ns: u64) {
        // By device: the length of the look, and what was found of each job.
        let mut found: BTreeMap<DeviceUuid, (u64, Vec<JobLook>)> = BTreeMap::new();
        let mut changed = Vec::new();
        let mut looks = Vec::new();
        let mut sums: BTreeMap<DeviceUuid, (u64, u64)> = BTreeMap::new();
        for (key, measured) in &mut self.times {
            let used = i64::try_from(measured.now.used_ns).unwrap_or(i64::MAX);
            let seen_ns = used.saturating_sub(measured.now.corrected_ns);
            let Some((dt, charged_ns, look)) = measured.audit.end_look(seen_ns, measured.now.stretch, now_ns) else {
                continue;
            };
            if let Some(look) = &look {
                let (shown, charged) = sums.entry(key.1).or_default();
                *shown += u64::from(look.shown_ppm);
                *charged += u64::from(look.most_ppm);
            }
            looks.push((*key, dt, charged_ns, look));
        }
        for ((job, device), dt, charged_ns, look) in looks {
            let look = look.map(|look| look.beside(sums[&device]));
            let Some(measured) = self.times.get_mut(&(job, device)) else {
                continue;
            };
            let (excess_ns, change) = measured.audit.judge(look, dt, now_ns);
            let (longest, jobs) = found.entry(device).or_default();
            *longest = dt.max(*longest);
            jobs.push(JobLook {
                job,
                charged_ns,
                excess_ns,
            });
            changed.extend(change.map(|drifts| (job, device, drifts)));
        }
        for (device, (dt, jobs)) in found {
            self.correct_time(device, dt, &jobs);
        }
        for (job, device, drifts) in changed {
            self.tell_time_drift(job, device, drifts);
        }
        self.kill_time_drifting(now_ns);
    }

    /// Charges jobs what they had beyond what was seen of them, and takes from the others what they were charged for it:
    /// together no more than the time that passed.
    fn correct_time(&mut self, device: DeviceUuid, over_ns: u64, jobs: &[JobLook]) {
        let sum = |of: &dyn Fn(&JobLook) -> i64| jobs.iter().map(|look| i128::from(of(look))).sum::<i128>();
        let excess = sum(&|look| look.excess_ns);
        if excess <= 0 {
            return;
        }
        let others = sum(&|look| if look.excess_ns == 0 { look.charged_ns } else { 0 });
        let twice = sum(&|look| look.charged_ns) + excess - i128::from(over_ns);
        let back = twice.clamp(0, others);
        let charge = |look: &JobLook| {
            let ns = match look.excess_ns {
                // A part of what it was charged.
                0 => -(back * i128::from(look.charged_ns) / others.max(1)) as i64,
                ns => ns,
            };
            (ns != 0).then_some((look.job, ns))
        };
        let action = Action::CorrectTime {
            device,
            charges: jobs.iter().filter_map(charge).collect(),
            over_ns,
        };
        self.command(action, "NVML shows more of a job's work than was seen of it");
    }

    fn tell_time_drift(&mut self, job: JobId, device: DeviceUuid, drifts: bool) {
        if drifts {
            let Some(text) = self.time_drift_text(job, device) else {
                return;
            };
            self.publish("drift", Some(job), None, format!("{job}: {text}"));
        } else {
            let gpu = self.gpu(device);
            let text = format!("{job} and NVML agree again about the time of {gpu}");
            self.publish("drift-over", Some(job), None, text);
        }
    }

    fn time_drift_text(&self, job: JobId, device: DeviceUuid) -> Option<String> {
        let drift = self.times.get(&(job, device))?.audit.drift.as_ref()?;
        let gpu = self.gpu(device);
        Some(format!(
            "NVML shows {gpu} at work for it for {} of the time, and its own marks for {}: it goes past Partage, or \
             has work from before it was measured; the difference is charged to it",
            format_part(drift.shown_ppm / 10_000 * 10_000),
            format_part(drift.charged_ppm / 10_000 * 10_000)
        ))
    }

    /// What a job's owner should know of it.
    pub(crate) fn time_drift_notes(&self, job: &Job) -> Vec<String> {
        let devices = job.record.devices.iter().map(|place| place.device);
        devices
            .filter_map(|device| self.time_drift_text(job.id(), device))
            .collect()
    }

    fn kill_time_drifting(&mut self, now_ns: u64) {
        if self.config.audit.drift != Response::Kill {
            return;
        }
        let is_due = |measured: &crate::measured_time::Measured| {
            let audit = &measured.audit;
            audit.is_confirmed(now_ns) && audit.drift.as_ref().is_some_and(|drift| !drift.is_killed)
        };
        let due: Vec<_> = self.times.iter().filter(|(_, measured)| is_due(measured)).collect();
        let due: Vec<_> = due.into_iter().map(|(key, _)| *key).collect();
        for (job, device) in due {
            let Some(text) = self.time_drift_text(job, device) else {
                continue;
            };
            let reason = format!("audit.drift = kill: {text}");
            for pid in self.busy_pids(job, device) {
                let mut clients = self.clients.values();
                let Some(process) = clients
                    .find(|known| known.process.pid == pid)
                    .map(|known| known.process)
                else {
                    continue;
                };
                let text = format!("pid {pid} of {job} is killed: {reason}");
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.note(text.clone());
                }
                self.command(Action::KillProcess(process), &reason);
                self.publish("drift-killed", Some(job), Some(pid), text);
            }
            let audit = self.times.get_mut(&(job, device)).map(|measured| &mut measured.audit);
            if let Some(drift) = audit.and_then(|audit| audit.drift.as_mut()) {
                drift.is_killed = true;
            }
        }
    }

    /// The processes of a job for which NVML shows the device at work.
    fn busy_pids(&self, job: JobId, device: DeviceUuid) -> Vec<u32> {
        let managed = self.managed_pids();
        let measured = self.devices.get(&device).and_then(|known| known.measured.as_ref());
        let is_meant = |process: &&ProcessUse| {
            managed.get(&process.pid) == Some(&job) && process.busy_ppm.is_some_and(|part| part > TOLERANCE_PPM)
        };
        let processes = measured.into_iter().flat_map(|measured| &measured.processes);
        processes.filter(is_meant).map(|process| process.pid).collect()
    }
}
