// SPDX-License-Identifier: Apache-2.0
//! Holds what jobs were charged of their devices' time against what NVML shows (`time/audit.rs`), and answers.

use crate::job::Job;
use crate::time::JobTime;
use std::collections::BTreeMap;

use partage_protocol::terms::WHOLE_PPM;
use partage_protocol::units::{DeviceUuid, JobId};

use super::Policy;
use crate::action::Action;
use crate::config::Response;
use crate::notice::Notice;

/// Figures of all processes that add up to more do not divide the device's time among them.
const OVERLAP_PPM: u32 = WHOLE_PPM / 20 * 21;

/// One job in one look at a device.
struct JobLook {
    job: JobId,
    /// What it was charged in the look by what was seen of it.
    charged_ns: i64,
    /// What NVML shows beyond that and is charged now.
    excess_ns: i64,
}

impl Policy {
    /// A look of NVML at a device came: what it shows of each job that is measured there.
    pub(crate) fn note_shown_time(&mut self, device: DeviceUuid) {
        let parts = self.books.processes_on(device).iter().map(|process| process.busy_ppm);
        let all = parts.fold(0, |sum: u32, part| sum.saturating_add(part.unwrap_or(0)));
        let jobs = self.books.times.keys().filter(|(_, other)| *other == device);
        let shown: Vec<_> = jobs.map(|key| (*key, self.shown_part(key.0, device))).collect();
        for (key, part) in shown {
            if let Some(audit) = self.books.times.audit_mut(key.0, key.1) {
                audit.note_shown(part.filter(|_| all <= OVERLAP_PPM));
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
        for (key, now, audit) in self.books.times.audits_mut() {
            let used = i64::try_from(now.used_ns).unwrap_or(i64::MAX);
            let seen_ns = used.saturating_sub(now.corrected_ns);
            let Some((dt, charged_ns, look)) = audit.end_look(seen_ns, now.stretch, now_ns) else {
                continue;
            };
            if let Some(look) = &look {
                let (shown, charged) = sums.entry(key.1).or_default();
                *shown += u64::from(look.shown_ppm);
                *charged += u64::from(look.most_ppm);
            }
            looks.push((key, dt, charged_ns, look));
        }
        for ((job, device), dt, charged_ns, look) in looks {
            let look = look.map(|look| look.beside(sums[&device]));
            let Some(audit) = self.books.times.audit_mut(job, device) else {
                continue;
            };
            let (excess_ns, change) = audit.judge(look, dt, now_ns);
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

    /// Charges jobs what they had beyond what was seen of them, and takes from the others what they were charged for
    /// it: together no more than the time that passed.
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
        self.act(action);
    }

    fn tell_time_drift(&mut self, job: JobId, device: DeviceUuid, drifts: bool) {
        if drifts {
            let Some(text) = self.time_drift_text(job, device) else {
                return;
            };
            self.publish("drift", Some(job), None, Notice::TimeDrifts(job, text));
        } else {
            let gpu = self.gpu(device);
            self.publish("drift-over", Some(job), None, Notice::TimeAgrees(job, gpu));
        }
    }

    fn kill_time_drifting(&mut self, now_ns: u64) {
        if self.books.config.audit.drift != Response::Kill {
            return;
        }
        let due = self
            .books
            .times
            .iter()
            .filter(|(_, measured)| measured.audit.is_due(now_ns));
        for (job, device) in due.map(|(key, _)| *key).collect::<Vec<_>>() {
            let Some(text) = self.time_drift_text(job, device) else {
                continue;
            };
            for pid in self.busy_pids(job, device) {
                let mut clients = self.books.clients.values();
                let Some(process) = clients
                    .find(|known| known.process.pid == pid)
                    .map(|known| known.process)
                else {
                    continue;
                };
                let what = Notice::KilledFor(pid, job, text.clone());
                if let Some(job) = self.books.jobs.get_mut(&job) {
                    job.note(&what);
                }
                self.act(Action::KillProcess(process));
                self.publish("drift-killed", Some(job), Some(pid), what);
            }
            if let Some(audit) = self.books.times.audit_mut(job, device) {
                audit.note_killed();
            }
        }
    }

    /// A new view replaces the one before. Says who stopped draining.
    pub(crate) fn take_times(&mut self, mut times: Vec<JobTime>, now_ns: u64) {
        // A job may have ended while this was on its way.
        times.retain(|now| {
            let is_there = |job: &Job| job.state().may_get_time() && job.slot_of(now.device).is_some();
            self.books.jobs.get(&now.job).is_some_and(is_there)
        });
        for (job, device) in self.books.times.replace(times, now_ns) {
            let gpu = self.gpu(device);
            self.publish("not-draining", Some(job), None, Notice::NotDraining(job, gpu));
        }
        self.count_measured(now_ns);
        self.audit_times(now_ns);
    }
}
