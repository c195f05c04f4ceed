// SPDX-License-Identifier: Apache-2.0
//! Totals of several jobs (`each_user`, `together` of a rule): who shares one, and what is left of it.
//!
//! A total of memory on a device is an account over the holds of its sharers, as if it were a device of that size
//! ([`DeviceAccount::part`]). So Σ L + Σ O of the sharers stays within it for the reason for which all grants stay
//! within the device (`decisions/headroom.rs`), whether anything is promised there or not. Promises of time, GPUs and
//! jobs are counted when a job is admitted, and a promise when it is raised. A job that comes back or moves has to
//! have room in its totals again. A total that is lowered below what is used ends nothing: no sharer grows until it
//! holds again.
//!
//! Who shares a total is kept with the jobs (`Policy::add_job`, `Policy::note_totals`), so that what is decided
//! about a job costs its own totals and their sharers, however many rules and jobs there are.
//!
//! A request that waits for a total claims nothing of a device: only the sharers are in each other's way.

use crate::books::Books;
use crate::books::room::survey::Site;
use crate::device::{Device, DeviceAccount, Hold};
use crate::job::{Job, Placement, State};
use crate::machine::Machine;
use crate::request::RunSpec;
use crate::residence::Target;
use crate::rules::{Sharing, TotalId, Written};
use crate::terms::part;
use partage_protocol::size::format_bytes;
use partage_protocol::units::{DeviceUuid, JobId};
use std::collections::{BTreeMap, BTreeSet};

/// `; held by j3 16 GiB, j5 8 GiB`.
pub(crate) fn held_text(account: &DeviceAccount) -> String {
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
    pub(crate) fn text(&self, policy: &Books) -> String {
        let on: Vec<String> = self.held.iter().map(|device| policy.gpu(*device)).collect();
        format!("{}: its jobs are on {}", self.words, on.join(", "))
    }
}

/// A total of memory on one device.
#[derive(Debug)]
pub(crate) struct Bound {
    /// As if it were a device that only the sharers use.
    pub(crate) account: DeviceAccount,
    /// `rule students, each_user.mem = 24GiB (…)`.
    pub(crate) words: String,
    /// What each sharer may have while nobody asks, beside what is kept for it: an even part of the rest.
    slack: u64,
}

impl Bound {
    fn new(account: DeviceAccount, words: String) -> Self {
        let sharers = account.holds.iter().filter(|hold| hold.is_burstable()).count() as u64;
        let slack = account.room(None) / sharers.max(1);
        Self { account, words, slack }
    }

    fn hold(&self, job: JobId) -> Option<&Hold> {
        self.account.holds_of(job).first()
    }

    /// Does this job share it?
    pub(crate) fn has(&self, job: JobId) -> bool {
        self.hold(job).is_some()
    }

    /// How far a sharer's ceiling may reach while nobody asks: what is kept for it, and an even part of the rest.
    pub(crate) fn target(&self, job: JobId) -> Option<u64> {
        let hold = self.hold(job)?;
        Some(if hold.is_burstable() {
            hold.kept().saturating_add(self.slack).min(hold.limit)
        } else {
            hold.limit
        })
    }
}

impl Books {
    pub(crate) fn totals_now(&self, job: &Job) -> Vec<TotalId> {
        if job.state() == State::Ended {
            return Vec::new();
        }
        self.config.rules.totals_of(&job.record.facts())
    }

    /// The totals that a job shares.
    pub(crate) fn totals_of(&self, job: JobId) -> &[TotalId] {
        self.jobs.get(&job).map_or(&[], |job| &job.totals)
    }

    /// A total's part of a device, if it is one of memory.
    pub(crate) fn bound(&self, id: &TotalId, sharing: &Sharing<'_>, account: &DeviceAccount) -> Option<Bound> {
        let mem = sharing.mem?;
        let holds = self.jobs.sharers(id).flat_map(|job| account.holds_of(job));
        let part = account.part(holds.copied().collect(), mem.value.on(account.usable));
        Some(Bound::new(part, sharing.words("mem", mem)))
    }

    /// The totals of memory that jobs on a device share.
    pub(crate) fn bounds(&self, account: &DeviceAccount) -> BTreeMap<TotalId, Bound> {
        let ids: BTreeSet<&TotalId> = account.holds.iter().flat_map(|hold| self.totals_of(hold.job)).collect();
        let bound = |id: &TotalId| Some((id.clone(), self.bound(id, &self.config.rules.sharing(id)?, account)?));
        ids.into_iter().filter_map(bound).collect()
    }

    /// How far each hold's ceiling may reach while nobody asks: as the card allows it, and within its totals.
    pub(crate) fn within_bounds(&self, account: &DeviceAccount, on_card: impl Fn(&Hold) -> u64) -> Vec<u64> {
        let bounds = self.bounds(account);
        let target = |hold: &Hold| {
            let shared = self.totals_of(hold.job).iter().filter_map(|id| bounds.get(id));
            shared
                .filter_map(|bound| bound.target(hold.job))
                .fold(on_card(hold), u64::min)
        };
        account.holds.iter().map(target).collect()
    }

    /// Of those that a job shares, the one that leaves it least.
    pub(crate) fn tightest_bound<M: Machine>(&self, job: JobId, device: DeviceUuid, machine: &M) -> Option<Bound> {
        let account = self.account(device, machine)?;
        let mine = self.bounds_of(job, &account);
        mine.min_by_key(|bound| bound.account.room(Some(job)))
    }

    /// Is everything that a job and those who share a total with it could hold on a device within what may be promised?
    pub(crate) fn is_kept<M: Machine>(&self, job: JobId, device: DeviceUuid, machine: &M) -> bool {
        self.account(device, machine).is_some_and(|account| {
            account.is_within() && self.bounds_of(job, &account).all(|bound| bound.account.is_within())
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
        for bound in self.bounds_of(job, &account) {
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
        self.sharings(&spec.totals).find_map(|(id, sharing)| {
            let bound = self.bound(id, &sharing, account);
            if let Some(bound) = bound.filter(|bound| request > bound.account.promisable(None)) {
                let (left, held) = (bound.account.promisable(None), held_text(&bound.account));
                return Some(format!(
                    "{} leaves {} on GPU {index}{held}",
                    bound.words,
                    format_bytes(left)
                ));
            }
            let promise = u64::from(spec.terms.promise_ppm);
            let (left, words) = self.time_of_total(id, &sharing, device.seen.uuid, None)?;
            (promise > left).then(|| format!("{words} leaves {} of the time of GPU {index}", part(left)))
        })
    }

    /// Millionths of a device's time that are promised to those who share a total, but for one of them.
    pub(crate) fn promised(&self, id: &TotalId, device: DeviceUuid, except: Option<JobId>) -> u64 {
        let others = self.jobs.sharers(id).filter(|job| Some(*job) != except);
        let jobs = others.filter_map(|job| self.jobs.get(&job));
        jobs.filter_map(|job| job.time_promise(device)).map(u64::from).sum()
    }

    /// What a total leaves of a device's time beside the promises of its sharers, and its words.
    pub(crate) fn time_of_total(
        &self,
        id: &TotalId,
        sharing: &Sharing<'_>,
        device: DeviceUuid,
        except: Option<JobId>,
    ) -> Option<(u64, String)> {
        let most: &Written<u32> = sharing.compute_promise?;
        Some((
            u64::from(most.value).saturating_sub(self.promised(id, device, except)),
            sharing.words("compute", most),
        ))
    }

    /// Why a live job cannot be promised so much of a device's time, if a total is why.
    pub(crate) fn time_total_bars(&self, job: &Job, device: DeviceUuid, ppm: u32) -> Option<String> {
        let mut sharings = self.sharings(&job.totals);
        sharings.find_map(|(id, sharing)| self.time_of_total_bars(id, &sharing, (job, ppm), device))
    }

    pub(crate) fn time_of_total_bars(
        &self,
        id: &TotalId,
        sharing: &Sharing<'_>,
        (job, ppm): (&Job, u32),
        device: DeviceUuid,
    ) -> Option<String> {
        let (left, words) = self.time_of_total(id, sharing, device, Some(job.id()))?;
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
        let gpu = self.gpu(device);
        self.sharings(&job.totals).find_map(|(id, sharing)| {
            if let Some(mut bound) = self.bound(id, &sharing, account) {
                bound.account.holds.retain(|hold| hold.job != job.id());
                let left = bound.account.left_for(None, (needed, request));
                if needed.min(bound.account.usable) > left {
                    let (left, held) = (format_bytes(left), held_text(&bound.account));
                    return Some(format!("{} leaves {left} on {gpu} for it{held}", bound.words));
                }
            }
            let ppm = job.record.terms.promise_ppm.min(sharing.compute_promise?.value);
            self.time_of_total_bars(id, &sharing, (job, ppm), device)
        })
    }

    /// Why a job cannot exchange a device for another one, if a total of GPUs is why. One that no sharer is on any more
    /// makes room for the other.
    pub(crate) fn gpu_total_bars(&self, job: &Job, target: Target) -> Option<String> {
        let from = job.record.devices.get(target.slot)?.device;
        let totals = self.gpu_totals(&job.totals, Some((job.id(), target.slot)));
        let is_full = |total: &&GpuTotal| total.held.contains(&from) && !total.allows(target.device, &[]);
        totals.iter().find(is_full).map(|total| total.text(self))
    }

    /// Why no more jobs that share these totals may run, if one of them is why.
    pub(crate) fn jobs_obstacle(&self, totals: &[TotalId]) -> Option<String> {
        self.sharings(totals).find_map(|(id, sharing)| {
            let most = sharing.jobs?;
            let running: Vec<String> = self.running(id).map(|job| job.id().to_string()).collect();
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

    /// Of these totals those of GPUs, without the slot that is to have another one.
    pub(crate) fn gpu_totals(&self, totals: &[TotalId], moving: Option<(JobId, usize)>) -> Vec<GpuTotal> {
        let claimed = |job: &Job| {
            let target = job.claimed_target()?;
            (moving != Some((job.id(), target.slot))).then_some(target.device)
        };
        let devices = |job: &Job| -> Vec<DeviceUuid> {
            let places = job.record.devices.iter().enumerate();
            let staying = places.filter(|(slot, _)| moving != Some((job.id(), *slot)));
            staying.map(|(_, place)| place.device).chain(claimed(job)).collect()
        };
        let total = |(id, sharing): (&TotalId, Sharing<'_>)| {
            let most = sharing.gpus?;
            Some(GpuTotal {
                held: self.running(id).flat_map(devices).collect(),
                most: most.value,
                is_moving: self.running(id).any(|job| claimed(job).is_some()),
                words: sharing.words("gpus", most),
            })
        };
        self.sharings(totals).filter_map(total).collect()
    }

    /// Of the GPUs of a job that does not wait, those that totals allow.
    ///
    /// # Errors
    /// There is none: which total, in words.
    pub(crate) fn keep_within_gpu_totals(&self, totals: &[TotalId], places: &mut Vec<Placement>) -> Result<(), String> {
        let totals = self.gpu_totals(totals, None);
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
            for bound in self.bounds_of(job.id(), &account) {
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

    /// The totals with these names, in their order.
    pub(crate) fn sharings<'a>(&'a self, totals: &'a [TotalId]) -> impl Iterator<Item = (&'a TotalId, Sharing<'a>)> {
        let rules = &self.config.rules;
        totals.iter().filter_map(|id| Some((id, rules.sharing(id)?)))
    }

    /// Of those the ones that a job shares, in the order of the file.
    pub(crate) fn bounds_of<'a>(&'a self, job: JobId, account: &'a DeviceAccount) -> impl Iterator<Item = Bound> + 'a {
        let sharings = self.sharings(self.totals_of(job));
        let bounds = sharings.filter_map(|(id, sharing)| self.bound(id, &sharing, account));
        bounds.filter(move |bound| bound.has(job))
    }

    /// The jobs that run and share a total.
    pub(crate) fn running<'a>(&'a self, id: &'a TotalId) -> impl Iterator<Item = &'a Job> {
        let jobs = self.jobs.sharers(id).filter_map(|job| self.jobs.get(&job));
        jobs.filter(|job| job.state() == State::Running)
    }
}
