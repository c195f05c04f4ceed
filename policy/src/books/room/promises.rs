// SPDX-License-Identifier: Apache-2.0
//! Parts of a device's time: promised, left, and whose.

use crate::books::Books;
use crate::books::room::survey::Absent;
use crate::device::DeviceAccount;
use crate::job::Job;
use crate::terms::{Terms, part};
use partage_protocol::admin::{ErrorCode, ErrorView, Holder};
use partage_protocol::terms::{format_part, ppm, ratio};
use partage_protocol::units::{DeviceUuid, JobId};

/// The greatest holders first: of time, then of memory.
pub(crate) fn sort_holders(holders: &mut [Holder]) {
    let time = |holder: &Holder| ppm(holder.compute.unwrap_or(0.0));
    holders.sort_by(|a, b| {
        time(b)
            .cmp(&time(a))
            .then_with(|| b.bytes.cmp(&a.bytes))
            .then_with(|| a.who.cmp(&b.who))
    });
}

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
    ) -> Vec<Holder> {
        let account = account.filter(|_| is_memory_short);
        let mut holders = account.map(DeviceAccount::holders).unwrap_or_default();
        if is_time_short {
            let gpu = self.index_of(device);
            for (job, ppm) in self.time_promises(device) {
                let who = job.id().to_string();
                let compute = Some(ratio(ppm));
                match holders.iter_mut().find(|holder| holder.who == who) {
                    Some(holder) => holder.compute = compute,
                    None => holders.push(Holder {
                        who,
                        gpu,
                        bytes: 0,
                        compute,
                    }),
                }
            }
        }
        sort_holders(&mut holders);
        holders
    }

    /// A raised promise must fit on each device. Precondition: the job is live.
    pub(crate) fn check_terms(&self, id: JobId, new: &Terms) -> Result<(), ErrorView> {
        let Some(job) = self.jobs.get(&id) else { return Ok(()) };
        let old = &job.record.terms;
        if new.promise_ppm <= old.promise_ppm {
            return Ok(());
        }
        for place in &job.record.devices {
            if let Some(why) = self.time_total_bars(job, place.device, new.promise_ppm) {
                let promise = format_part(new.promise_ppm);
                return Err(ErrorView {
                    code: ErrorCode::NoRoom,
                    message: format!("{promise} cannot be promised to {id}: the {why}"),
                    hint: Some("nothing was changed; partage ps shows who was promised what".into()),
                    holders: Vec::new(),
                });
            }
            let left = self.time_left(place.device, Some(id));
            if u64::from(new.promise_ppm) > left {
                let gpu = self.gpu(place.device);
                let mut holders = self.holders(place.device, (false, true), None);
                holders.retain(|holder| holder.who != id.to_string());
                return Err(ErrorView {
                    code: ErrorCode::NoRoom,
                    message: format!(
                        "{} cannot be promised to {id}: {gpu} has {} of its time left for it",
                        format_part(new.promise_ppm),
                        part(left)
                    ),
                    hint: Some("nothing was changed; partage ps shows who was promised what".into()),
                    holders,
                });
            }
        }
        Ok(())
    }
}
