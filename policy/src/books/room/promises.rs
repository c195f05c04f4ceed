// SPDX-License-Identifier: Apache-2.0
//! Parts of a device's time: promised, left, and whose.

use crate::books::Books;
use crate::books::room::survey::Absent;
use crate::device::DeviceAccount;
use crate::holding::{Holding, Who, sort_holders};
use crate::job::Job;
use crate::refusal::{Refusal, Why};
use crate::terms::Terms;
use partage_protocol::units::{DeviceUuid, JobId};

impl Books {
    /// Live jobs with a promise of this device's time, and the promise.
    pub(crate) fn time_promises(&self, device: DeviceUuid) -> impl Iterator<Item = (&Job, u32)> {
        let jobs = self.jobs.values();
        jobs.filter_map(move |job| Some((job, job.time_promise(device)?)))
    }

    /// Σ of what is promised of a device's time to jobs other than `except`.
    pub(crate) fn promised_time(&self, device: DeviceUuid, except: Option<JobId>) -> u64 {
        let others = self.time_promises(device).filter(|(job, _)| Some(job.id()) != except);
        others.map(|(_, ppm)| u64::from(ppm)).sum()
    }

    /// Σ of what is promised of a device's time to jobs other than these.
    pub(crate) fn promised_time_without(&self, device: DeviceUuid, absent: &Absent) -> u64 {
        let others = self
            .time_promises(device)
            .filter(|(job, _)| !absent.contains(&job.id()));
        others.map(|(_, ppm)| u64::from(ppm)).sum()
    }

    /// What can still be promised of a device's time, leaving `except` out of account.
    pub(crate) fn time_left(&self, device: DeviceUuid, except: Option<JobId>) -> u64 {
        let promised = self.promised_time(device, except);
        self.config.promisable_time().saturating_sub(promised)
    }

    /// Who holds what of a device, where these are short.
    pub(crate) fn holders(
        &self,
        device: DeviceUuid,
        (is_memory_short, is_time_short): (bool, bool),
        account: Option<&DeviceAccount>,
    ) -> Vec<Holding> {
        let account = account.filter(|_| is_memory_short);
        let mut holders = account.map(DeviceAccount::holders).unwrap_or_default();
        if is_time_short {
            let gpu = self.index_of(device);
            for (job, ppm) in self.time_promises(device) {
                let who = Who::Job(job.id());
                let ppm = Some(ppm);
                match holders.iter_mut().find(|holder| holder.who == who) {
                    Some(holder) => holder.set_time(ppm),
                    None => holders.push(Holding {
                        who,
                        gpu,
                        bytes: 0,
                        ppm,
                    }),
                }
            }
        }
        sort_holders(&mut holders);
        holders
    }

    /// A raised promise must fit on each device. Precondition: the job is live.
    pub(crate) fn check_terms(&self, id: JobId, new: &Terms) -> Result<(), Refusal> {
        let Some(job) = self.jobs.get(&id) else { return Ok(()) };
        let old = &job.record.terms;
        if new.promise_ppm <= old.promise_ppm {
            return Ok(());
        }
        for place in &job.record.devices {
            if let Some(why) = self.time_total_bars(job, place.device, new.promise_ppm) {
                return Err(Why::NoTimeInTotal(new.promise_ppm, id, why).into());
            }
            let left = self.time_left(place.device, Some(id));
            if u64::from(new.promise_ppm) > left {
                let mut holders = self.holders(place.device, (false, true), None);
                holders.retain(|holder| holder.who != Who::Job(id));
                let gpu = self.gpu(place.device);
                return Err(Why::NoTime(new.promise_ppm, id, gpu, left, holders).into());
            }
        }
        Ok(())
    }
}
