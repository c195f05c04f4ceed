// SPDX-License-Identifier: Apache-2.0
//! Of which job a process is, and what it sees of it.

use crate::books::Books;
use crate::books::room::advice::Advice;
use crate::event::Attaching;
use crate::job::{Job, Placement};
use crate::machine::Machine;
use partage_protocol::message::NO_INDEX;
use partage_protocol::page::{DEVICE_IS_MIG, DEVICE_NUMBER_SHIFT, DeviceInfo};
use partage_protocol::units::{DeviceUuid, JobId};

impl Books {
    /// The kernel's word first, then the token (own uid only), then an existing default job of the same scope. The
    /// kernel's word for a default job is the last: of a job of `run --lazy` no process need be the others' parent.
    pub(crate) fn find_job(&self, attaching: &Attaching) -> Option<JobId> {
        let live = |id: &JobId| self.jobs.get(id).is_some_and(|job| job.state().takes_processes());
        let membership = &attaching.membership;
        let is_of_run = |id: &JobId| {
            let job = self.jobs.get(id);
            job.is_some_and(|job| job.state().takes_processes() && job.record.default_scope.is_none())
        };
        membership
            .by_kernel
            .filter(is_of_run)
            .or_else(|| {
                let token = membership.token.filter(|token| token.iter().any(|byte| *byte != 0))?;
                let is_it = |job: &&Job| job.state().takes_processes() && job.is_meant_by(token, attaching.uid);
                self.jobs.values().find(is_it).map(Job::id)
            })
            .or_else(|| membership.by_kernel.filter(live))
            .or_else(|| self.default_job_of(attaching))
    }

    /// Says which number each device has for a process that came without `run` and can open these nodes: whoever set
    /// its `CUDA_VISIBLE_DEVICES` counted the GPUs that are there, and knew of no job.
    pub(crate) fn number(&self, devices: &mut [DeviceInfo], nodes: u32) {
        let mut there: Vec<(u32, DeviceUuid)> = self
            .devices
            .values()
            .filter(|device| device.seen.is_among(nodes))
            .map(|device| (device.seen.index, device.seen.uuid))
            .collect();
        there.sort_unstable();
        for device in devices {
            let place = there.iter().position(|(_, uuid)| uuid.bytes == device.uuid);
            let number = place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(0);
            *device = DeviceInfo {
                flags: device.flags | u32::from(number) << DEVICE_NUMBER_SHIFT,
                ..*device
            };
        }
    }

    /// A job's devices as its clients are told, slot 0 first.
    #[must_use]
    pub fn devices_of(&self, job: JobId) -> Vec<DeviceInfo> {
        let info = |place: &Placement| {
            let seen = self.devices.get(&place.device).map(|device| &device.seen);
            DeviceInfo {
                uuid: place.device.bytes,
                index: seen.map_or(NO_INDEX, |seen| seen.index),
                flags: if place.device.is_mig { DEVICE_IS_MIG } else { 0 },
                total: seen.map_or(0, |seen| seen.total_bytes),
            }
        };
        let places = self.jobs.get(&job).map(|job| &job.record.devices);
        places.into_iter().flatten().map(info).collect()
    }

    /// Would a higher limit alone let so much more through? Or has the device no more in all, which the client sees.
    pub(crate) fn is_cured_by_a_limit<M: Machine>(
        &self,
        job: JobId,
        slot: usize,
        numbers: (u64, u64),
        machine: &M,
    ) -> bool {
        let device = self.slot_device(job, slot).map(|(device, _)| device);
        let is_open = |device: DeviceUuid| self.is_ok(device) && !self.is_adopting(device);
        // After a broker's start nothing is known of the room yet: the limit is what denied.
        if !device.is_some_and(is_open) {
            return true;
        }
        let advice = self.advice(job, slot, numbers, machine);
        !matches!(
            advice,
            Some(Advice::RaiseLimit { .. } | Advice::NoRoom { .. } | Advice::Ruled { .. })
        )
    }

    pub(crate) fn slot_device(&self, job: JobId, slot: usize) -> Option<(DeviceUuid, u64)> {
        let job = self.jobs.get(&job)?;
        let ledger = &job.slots.get(slot)?.ledger;
        Some((
            job.record.devices.get(slot)?.device,
            ledger.limit().min(ledger.ceiling()),
        ))
    }

    pub(crate) fn physical_free(&self, job: JobId, slot: usize) -> u64 {
        let device = self.slot_device(job, slot).map(|(device, _)| device);
        let measured = device.and_then(|device| self.measured(device));
        measured.map_or(u64::MAX, |measured| measured.free_bytes)
    }
}
