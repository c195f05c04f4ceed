// SPDX-License-Identifier: Apache-2.0
//! What a program of `run --lazy` is shown by NVML before it uses a GPU: the devices that its job would have now.
//!
//! Nothing is promised, and nobody waits: what the job gets at its first use is decided then.

use partage_protocol::units::{DeviceUuid, JobId};

use super::Policy;
use super::placement::{Unplaced, amounts};
use super::survey::Survey;
use crate::caller::Ticket;
use crate::machine::Machine;
use crate::request::{GpuChoice, RunSpec};
use crate::views::foreseen::{Foreseen, foreseen_reply};

/// A device, and the limit there; none is the whole card.
type Place = (DeviceUuid, Option<u64>);

impl Policy {
    /// Answers with the devices of the job that lives with the request's token, else with those that it would have.
    pub(super) fn foresee<M: Machine>(
        &mut self,
        ticket: Ticket,
        (spec, living): (&RunSpec, Option<JobId>),
        before: usize,
        machine: &M,
    ) {
        let of_job = living.and_then(|id| self.jobs.get(&id)).map(|job| &job.record.devices);
        let of_job = of_job.map(|places| places.iter().map(|place| (place.device, place.limit)).collect());
        let found = of_job.map_or_else(|| self.would_have(spec, before, machine), Ok);
        match found {
            Ok(places) => {
                let devices: Vec<Foreseen> = places.into_iter().map(|place| self.foreseen(place)).collect();
                self.reply(ticket, foreseen_reply(&devices));
            }
            Err(Unplaced::Refused(why)) => self.refuse(ticket, why),
            Err(Unplaced::NoRoom { .. }) => {}
        }
    }

    fn foreseen(&self, (device, limit): Place) -> Foreseen {
        let seen = self.devices.get(&device).map(|device| &device.seen);
        Foreseen {
            device,
            index: seen.map(|seen| seen.index),
            total_bytes: seen.map_or(0, |seen| seen.total_bytes),
            limit_bytes: self.limit_of(device, limit),
        }
    }

    /// Where there is no room now, the first of those that it could use.
    fn would_have<M: Machine>(&self, spec: &RunSpec, before: usize, machine: &M) -> Result<Vec<Place>, Unplaced> {
        let survey = Survey::default();
        let claimed = self.claims(before, &survey, machine);
        let wishes = match self.place(spec, &claimed, &survey, machine) {
            Ok(places) => return Ok(places.iter().map(|place| (place.device, place.limit)).collect()),
            Err(Unplaced::NoRoom { wishes, .. }) => wishes,
            Err(refused) => return Err(refused),
        };
        let count = match &spec.gpu {
            GpuChoice::Auto(count) => *count,
            GpuChoice::All | GpuChoice::Named(_) => wishes.len(),
        };
        let limit = |device: DeviceUuid, slot: u32| {
            let device = self.devices.get(&device)?;
            amounts(spec, device, slot..slot + 1).ok()?.limit
        };
        let wished = wishes.iter().take(count).map(|wish| wish.device).zip(0..);
        Ok(wished.map(|(device, slot)| (device, limit(device, slot))).collect())
    }
}
