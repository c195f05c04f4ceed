// SPDX-License-Identifier: Apache-2.0
//! Totals of several jobs (`each_user`, `together` of a rule): who shares one, and what is left of it.
//!
//! A total of memory on a device is an account over the holds of its sharers, as if it were a device of that size
//! ([`DeviceAccount::part`]). So Σ L + Σ O of the sharers stays within it for the reason for which all grants stay
//! within the device (`headroom.rs`), whether anything is promised there or not. Promises of time, GPUs and jobs are
//! counted when a job is admitted, and a promise when it is raised. A job that comes back or moves has to have room in
//! its totals again. A total that is lowered below what is used ends nothing: no sharer grows until it holds again.
//!
//! A request that waits for a total claims nothing of a device: only the sharers are in each other's way.

use std::collections::BTreeSet;

use partage_protocol::size::format_bytes;
use partage_protocol::units::{DeviceUuid, JobId};

use super::Policy;
use super::survey::Site;
use crate::device::{Device, DeviceAccount, Hold};
use crate::job::{Job, Placement, State};
use crate::machine::Machine;
use crate::request::RunSpec;
use crate::residence::Target;
use crate::rules::{Facts, Sharing, Written};
use crate::terms::part;

/// A total of memory on one device.
#[derive(Debug)]
pub(crate) struct Bound {
    /// As if it were a device that only the sharers use.
    pub(crate) account: DeviceAccount,
    /// `rule students, each_user.mem = 24GiB (…)`.
    pub(crate) words: String,
    /// Whose; none for everybody's.
    uid: Option<u32>,
}

impl Bound {
    fn hold(&self, job: JobId) -> Option<&Hold> {
        self.account.holds.iter().find(|hold| hold.job == job)
    }

    /// Does this job share it?
    pub(crate) fn has(&self, job: JobId) -> bool {
        self.hold(job).is_some()
    }

    /// How far a sharer's ceiling may reach while nobody asks: what is kept for it, and an even part of the rest.
    pub(crate) fn target(&self, job: JobId) -> Option<u64> {
        let hold = self.hold(job)?;
        let sharers = self.account.holds.iter().filter(|hold| hold.is_burstable()).count() as u64;
        let slack = self.account.room(None) / sharers.max(1);
        Some(if hold.is_burstable() {
            hold.kept().saturating_add(slack).min(hold.limit)
        } else {
            hold.limit
        })
    }
}

/// The GPUs of a total's sharers.
pub(crate) struct GpuTotal {
    held: BTreeSet<DeviceUuid>,
    most: usize,
    /// A sharer moves: it is going to be on one of two that are held.
    is_moving: bool,
    words: String,
}

impl GpuTotal {
    /// May a request that has chosen these take this device too? One on which sharers are already costs nothing, unless
    /// it is one too many that a move may yet leave.
    pub(crate) fn allows(&self, device: DeviceUuid, chosen: &[DeviceUuid]) -> bool {
        let mut all = self.held.clone();
        all.extend(chosen);
        let is_open = self.is_moving && all.len() > self.most;
        all.contains(&device) && !is_open || all.len() < self.most
    }

    /// `rule students, each_user.gpus = 2 (…): its jobs are on GPU 0, GPU 1`.
    pub(crate) fn text(&self, policy: &Policy) -> String {
        let on: Vec<String> = self.held.iter().map(|device| policy.gpu(*device)).collect();
        format!("{}: its jobs are on {}", self.words, on.join(", "))
    }
}

impl Policy {
    pub(crate) fn shares(&self, job: &Job, sharing: &Sharing<'_>) -> bool {
        match &job.record.asked.facts {
            Some(facts) => sharing.counts(facts),
            None => sharing.counts(&job.record.facts()),
        }
    }

    pub(crate) fn bound(&self, sharing: &Sharing<'_>, usable: u64, account: &DeviceAccount) -> Option<Bound> {
        let mem = sharing.total.mem.as_ref()?;
        let is_of_sharer = |hold: &&Hold| {
            let job = self.jobs.get(&hold.job);
            job.is_some_and(|job| self.shares(job, sharing))
        };
        let holds = account.holds.iter().filter(is_of_sharer).copied().collect();
        Some(Bound {
            account: account.part(holds, mem.value.on(usable)),
            words: sharing.words("mem", mem),
            uid: sharing.uid,
        })
    }

    /// The totals of memory that jobs on a device share, each once.
    pub(crate) fn bounds(&self, account: &DeviceAccount) -> Vec<Bound> {
        let mut found: Vec<Bound> = Vec::new();
        if !self.config.rules.has_totals() {
            return found;
        }
        for job in account.holds.iter().filter_map(|hold| self.jobs.get(&hold.job)) {
            let facts = job.record.facts();
            for sharing in self.config.rules.sharings(&facts) {
                let Some(mem) = &sharing.total.mem else { continue };
                let words = sharing.words("mem", mem);
                let is_it = |other: &Bound| other.words == words && other.uid == sharing.uid;
                if !found.iter().any(is_it) {
                    found.extend(self.bound(&sharing, account.usable, account));
                }
            }
        }
        found
    }

    /// Of those that a job shares, the one that leaves it least.
    pub(crate) fn tightest_bound<M: Machine>(&self, job: JobId, device: DeviceUuid, machine: &M) -> Option<Bound> {
        let account = self.account(device, machine)?;
        let mine = self.bounds(&account).into_iter().filter(|bound| bound.has(job));
        mine.min_by_key(|bound| bound.account.room(Some(job)))
    }

    /// Is everything that a job and those who share a total with it could hold on a device within what may be promised?
    pub(crate) fn is_kept<M: Machine>(&self, job: JobId, device: DeviceUuid, machine: &M) -> bool {
        self.account(device, machine).is_some_and(|account| {
            let bounds = self.bounds(&account);
            account.is_within()
                && bounds
                    .iter()
                    .filter(|bound| bound.has(job))
                    .all(|bound| bound.account.is_within())
        })
    }

    /// What a live job could be promised on a device at most, and the total that leaves no more, if one does.
    pub(crate) fn promisable_to<M: Machine>(
        &self,
        job: JobId,
        device: DeviceUuid,
        machine: &M,
    ) -> (u64, Option<String>) {
        let Some(account) = self.account(device, machine) else {
            return (0, None);
        };
        let mut left = (account.promisable(Some(job)), None);
        for bound in self.bounds(&account).into_iter().filter(|bound| bound.has(job)) {
            let here = bound.account.promisable(Some(job));
            if here <= left.0 {
                left = (here, Some(bound.words));
            }
        }
        left
    }

    /// What of a total stands against a request on one device, in words.
    pub(crate) fn total_obstacle(&self, spec: &RunSpec, request: u64, device: &Device, site: &Site) -> Option<String> {
        let account = site.account.as_ref()?;
        let index = device.seen.index;
        self.config.rules.sharings(&spec.facts).find_map(|sharing| {
            let bound = self.bound(&sharing, account.usable, account);
            if let Some(bound) = bound.filter(|bound| request > bound.account.promisable(None)) {
                let (left, held) = (bound.account.promisable(None), held_text(&bound.account));
                return Some(format!(
                    "{} leaves {} on GPU {index}{held}",
                    bound.words,
                    format_bytes(left)
                ));
            }
            let promise = u64::from(spec.terms.promise_ppm);
            let (left, words) = self.time_of_total(&sharing, device.seen.uuid, None)?;
            (promise > left).then(|| format!("{words} leaves {} of the time of GPU {index}", part(left)))
        })
    }

    /// What a total leaves of a device's time beside the promises of its sharers, and its words.
    fn time_of_total(&self, sharing: &Sharing<'_>, device: DeviceUuid, except: Option<JobId>) -> Option<(u64, String)> {
        let most: &Written<u32> = sharing.total.compute_promise.as_ref()?;
        let promises = self.time_promises(device);
        let of_sharers = promises.filter(|(job, _)| Some(job.id()) != except && self.shares(job, sharing));
        let promised: u64 = of_sharers.map(|(_, ppm)| u64::from(ppm)).sum();
        Some((
            u64::from(most.value).saturating_sub(promised),
            sharing.words("compute", most),
        ))
    }

    /// Why a live job cannot be promised so much of a device's time, if a total is why.
    pub(crate) fn time_total_bars(&self, job: &Job, device: DeviceUuid, ppm: u32) -> Option<String> {
        let facts = job.record.facts();
        let mut sharings = self.config.rules.sharings(&facts);
        sharings.find_map(|sharing| self.time_of_total_bars(&sharing, job, device, ppm))
    }

    fn time_of_total_bars(&self, sharing: &Sharing<'_>, job: &Job, device: DeviceUuid, ppm: u32) -> Option<String> {
        let (left, words) = self.time_of_total(sharing, device, Some(job.id()))?;
        let (is_more, gpu) = (u64::from(ppm) > left, self.gpu(device));
        is_more.then(|| format!("{words} leaves {} of the time of {gpu} for it", part(left)))
    }

    /// Why a job has no room on a device to which it comes, if a total of memory or time is why. One that has more than
    /// a total, which was lowered meanwhile, has room while nobody else uses any of it: else it could never come back.
    pub(crate) fn total_bars(
        &self,
        job: &Job,
        device: DeviceUuid,
        (needed, request): (u64, u64),
        account: &DeviceAccount,
    ) -> Option<String> {
        let (facts, gpu) = (job.record.facts(), self.gpu(device));
        self.config.rules.sharings(&facts).find_map(|sharing| {
            if let Some(mut bound) = self.bound(&sharing, account.usable, account) {
                bound.account.holds.retain(|hold| hold.job != job.id());
                let left = bound.account.left_for(None, (needed, request));
                if needed.min(bound.account.usable) > left {
                    let (left, held) = (format_bytes(left), held_text(&bound.account));
                    return Some(format!("{} leaves {left} on {gpu} for it{held}", bound.words));
                }
            }
            let most = sharing.total.compute_promise.as_ref()?.value;
            let ppm = job.record.terms.promise_ppm.min(most);
            self.time_of_total_bars(&sharing, job, device, ppm)
        })
    }

    /// Why a job cannot exchange a device for another one, if a total of GPUs is why. One that no sharer is on any more
    /// makes room for the other.
    pub(crate) fn gpu_total_bars(&self, job: &Job, target: Target) -> Option<String> {
        let from = job.record.devices.get(target.slot)?.device;
        let totals = self.gpu_totals(&job.record.facts(), Some((job.id(), target.slot)));
        let is_full = |total: &&GpuTotal| total.held.contains(&from) && !total.allows(target.device, &[]);
        totals.iter().find(is_full).map(|total| total.text(self))
    }

    pub(crate) fn running<'a>(&'a self, sharing: &'a Sharing<'_>) -> impl Iterator<Item = &'a Job> {
        let running = self.jobs.values().filter(|job| job.state() == State::Running);
        running.filter(|job| self.shares(job, sharing))
    }

    /// Why no more jobs with these facts may run, if a total is why.
    pub(crate) fn jobs_obstacle(&self, facts: &Facts) -> Option<String> {
        self.config.rules.sharings(facts).find_map(|sharing| {
            let most = sharing.total.jobs.as_ref()?;
            let running: Vec<String> = self.running(&sharing).map(|job| job.id().to_string()).collect();
            let is_full = running.len() >= most.value;
            is_full.then(|| {
                format!(
                    "{}: {} run ({})",
                    sharing.words("jobs", most),
                    running.len(),
                    running.join(", ")
                )
            })
        })
    }

    /// The totals of GPUs that jobs with these facts share, without the slot that is to have another one.
    pub(crate) fn gpu_totals(&self, facts: &Facts, moving: Option<(JobId, usize)>) -> Vec<GpuTotal> {
        let claimed = |job: &Job| {
            let target = job.claimed_target()?;
            (moving != Some((job.id(), target.slot))).then_some(target.device)
        };
        let devices = |job: &Job| -> Vec<DeviceUuid> {
            let places = job.record.devices.iter().enumerate();
            let staying = places.filter(|(slot, _)| moving != Some((job.id(), *slot)));
            staying.map(|(_, place)| place.device).chain(claimed(job)).collect()
        };
        let sharings = self.config.rules.sharings(facts);
        let total = |sharing: Sharing<'_>| {
            let most = sharing.total.gpus.as_ref()?;
            Some(GpuTotal {
                held: self.running(&sharing).flat_map(devices).collect(),
                most: most.value,
                is_moving: self.running(&sharing).any(|job| claimed(job).is_some()),
                words: sharing.words("gpus", most),
            })
        };
        sharings.filter_map(total).collect()
    }

    /// Of the GPUs of a job that does not wait, those that totals allow.
    ///
    /// # Errors
    /// There is none: which total, in words.
    pub(crate) fn keep_within_gpu_totals(&self, facts: &Facts, places: &mut Vec<Placement>) -> Result<(), String> {
        let totals = self.gpu_totals(facts, None);
        let (mut chosen, mut full) = (Vec::new(), None);
        places.retain(|place| {
            let bars = totals.iter().find(|total| !total.allows(place.device, &chosen));
            full = full.or(bars);
            if bars.is_none() {
                chosen.push(place.device);
            }
            bars.is_none()
        });
        match full {
            Some(total) if places.is_empty() => Err(format!("no GPU is left for it: the {}", total.text(self))),
            _ => Ok(()),
        }
    }

    /// What of each total of memory its sharers hold where this job is, in words.
    pub(crate) fn totals_text<M: Machine>(&self, job: &Job, machine: &M) -> Vec<String> {
        let mut texts = Vec::new();
        for place in job.record.devices.iter().filter(|_| job.state().holds_memory()) {
            let Some(account) = self.account(place.device, machine) else {
                continue;
            };
            for bound in self.bounds(&account).into_iter().filter(|bound| bound.has(job.id())) {
                let holds = bound.account.holds.iter();
                let used = holds.fold(0, |sum: u64, hold| sum.saturating_add(hold.used));
                let held = held_text(&bound.account);
                texts.push(format!(
                    "{}: {} of the {} of {} in use{held}",
                    self.gpu(place.device),
                    format_bytes(used),
                    format_bytes(bound.account.usable),
                    bound.words
                ));
            }
        }
        texts
    }
}

/// `; held by j3 16 GiB, j5 8 GiB`.
fn held_text(account: &DeviceAccount) -> String {
    const MOST: usize = 8;
    let holders = account.holders();
    let one = holders
        .iter()
        .take(MOST)
        .map(|holder| format!("{} {}", holder.who, format_bytes(holder.bytes)));
    match one.collect::<Vec<_>>() {
        held if held.is_empty() => String::new(),
        held => format!("; held by {}", held.join(", ")),
    }
}
