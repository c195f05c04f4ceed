// SPDX-License-Identifier: Apache-2.0
//! Devices on which nothing is admitted any more, and where their jobs could go.

use crate::books::Books;
use crate::books::room::moving::Exchange;
use crate::device::{Device, DeviceState};
use crate::drain_mark::DrainMark;
use crate::job::Job;
use crate::machine::Machine;
use crate::refusal::{Refusal, Why};
use crate::residence::Residence;
use crate::sick::{Health, SickMark};
use partage_protocol::units::{DeviceUuid, JobId};
use partage_protocol::utc;
use std::collections::BTreeMap;

/// Devices that are named in a sentence at most.
pub(crate) const NAMED: usize = 4;

impl Books {
    /// Is nothing admitted on this device until an administrator says so?
    #[must_use]
    pub fn is_drained(&self, device: DeviceUuid) -> bool {
        self.drained.contains_key(&device)
    }

    /// The drained devices, with who drained each and when.
    #[must_use]
    pub const fn drained(&self) -> &BTreeMap<DeviceUuid, DrainMark> {
        &self.drained
    }

    /// The sick devices, with since when each is and of what.
    pub fn sick(&self) -> impl Iterator<Item = (DeviceUuid, SickMark)> {
        let marked = |(device, health): (&DeviceUuid, &Health)| Some((*device, health.mark?));
        self.health.iter().filter_map(marked)
    }

    /// Is this device sick?
    #[must_use]
    pub fn is_sick(&self, device: DeviceUuid) -> bool {
        self.sickness(device).is_some()
    }

    pub(crate) fn sickness(&self, device: DeviceUuid) -> Option<SickMark> {
        self.health.get(&device)?.mark
    }

    /// Is nothing admitted on this device whatever room it has?
    #[must_use]
    pub fn takes_no_job(&self, device: DeviceUuid) -> bool {
        self.is_drained(device) || self.is_sick(device)
    }

    /// Why nothing is admitted on a device that is sick or drained.
    pub(crate) fn closed_bar(&self, device: DeviceUuid) -> Option<String> {
        self.sick_note(device).or_else(|| self.drain_bar(device))
    }

    /// The same of a sick device, for views too.
    pub(crate) fn sick_note(&self, device: DeviceUuid) -> Option<String> {
        let mark = self.sickness(device)?;
        let index = self.devices.get(&device).map(|known| known.seen.index)?;
        let (what, since) = (mark.cause.text(), utc::minute(mark.since_unix_ns));
        Some(format!(
            "GPU {index} is sick since {since}: it {what}; once it is repaired, partage undrain {index} \
             lets jobs on it again"
        ))
    }

    /// Why nothing is admitted on a drained device.
    pub(crate) fn drain_bar(&self, device: DeviceUuid) -> Option<String> {
        let index = self.devices.get(&device).map(|known| known.seen.index)?;
        let text = format!("GPU {index} is drained: partage undrain {index} lets jobs on it again");
        self.is_drained(device).then_some(text)
    }

    /// The same with who drained it and when, for views.
    pub(crate) fn drain_note(&self, device: DeviceUuid) -> Option<String> {
        let mark = self.drained.get(&device)?;
        let index = self.devices.get(&device).map(|known| known.seen.index)?;
        let since = mark.since_unix_ns.map(|ns| format!(" since {}", utc::minute(ns)));
        let by = mark.uid.map(|uid| format!(", by uid {uid}"));
        let (since, by) = (since.unwrap_or_default(), by.unwrap_or_default());
        Some(format!(
            "GPU {index} is drained{since}{by}: partage undrain {index} lets jobs on it again"
        ))
    }

    /// The jobs that have something to leave a device with: memory there, or a promise of it, or room there for their
    /// arrival. Jobs whose memory is away hold nothing there.
    #[must_use]
    pub fn jobs_to_move<M: Machine>(&self, device: DeviceUuid, machine: &M) -> Vec<JobId> {
        let is_there = |job: &&Job| {
            let slot = job
                .slot_of(device)
                .filter(|_| job.state().holds_memory() && !job.is_lingering());
            let request = |slot: usize| job.record.devices.get(slot).map_or(0, |place| place.request);
            let holds = |slot| job.returning_bytes(slot, machine) > 0 || request(slot) > 0;
            let is_coming = job.claimed_target().is_some_and(|target| target.device == device);
            slot.is_some_and(holds) && job.residence() != Residence::Away || is_coming
        };
        self.jobs.values().filter(is_there).map(Job::id).collect()
    }

    /// What keeps a job off a device whoever has room there.
    pub(crate) fn bars_move(&self, id: JobId, device: &Device) -> Option<String> {
        let (seen, gpu) = (&device.seen, self.gpu(device.seen.uuid));
        if self.jobs.get(&id).is_some_and(|job| job.slot_of(seen.uuid).is_some()) {
            return Some(format!("{id} has {gpu} already"));
        }
        if seen.uuid.is_mig {
            return Some(format!("{gpu} is a MIG instance, which takes no job from another GPU"));
        }
        if device.state == DeviceState::Lost {
            return Some(format!("{gpu} is lost: {}", device.why));
        }
        if self.is_sick(seen.uuid) {
            return Some(format!("{gpu} is sick"));
        }
        self.is_drained(seen.uuid).then(|| format!("{gpu} is drained too"))
    }

    /// Where a job on a device is to go: of the devices that are like it and have room the one with the least of its
    /// memory committed.
    ///
    /// # Errors
    /// None has: what is short where.
    pub fn place_to_move<M: Machine>(&self, id: JobId, from: DeviceUuid, machine: &M) -> Result<Exchange, Refusal> {
        let own = self.devices.get(&from).map(|known| &known.seen);
        let is_like = |device: &&Device| {
            let seen = &device.seen;
            let is_same = own.is_some_and(|own| own.model == seen.model && own.total_bytes == seen.total_bytes);
            is_same && seen.uuid != from
        };
        let like = self.devices.values().filter(is_like);
        let (mut barred, mut like): (Vec<&Device>, Vec<&Device>) =
            like.partition(|device| self.bars_move(id, device).is_some());
        barred.sort_by_key(|device| device.seen.index);
        let committed = |device: &Device| {
            let account = self.account(device.seen.uuid, machine);
            account.map_or(u64::MAX, |account| {
                account.committed().saturating_add(account.unmanaged())
            })
        };
        like.sort_by_key(|device| (committed(device), device.seen.index));
        let mut why = Vec::new();
        for device in like {
            match self.exchange_for(id, Some(from), device.seen.uuid) {
                Err(error) => why.push(error.to_string()),
                Ok(exchange) => match self.room_at_target(id, exchange.target, machine) {
                    Ok(()) => return Ok(exchange),
                    Err(shortage) => why.push(shortage.to_string()),
                },
            }
        }
        why.extend(barred.into_iter().filter_map(|device| self.bars_move(id, device)));
        why.truncate(NAMED);
        Err(match why.is_empty() {
            true => Why::NoOtherGpu(self.gpu(from)).into(),
            false => Why::StaysOn(why).into(),
        })
    }
}
