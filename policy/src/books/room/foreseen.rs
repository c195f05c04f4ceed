// SPDX-License-Identifier: Apache-2.0
//! What a job would have, that begins with its first use of a GPU.

use crate::books::Books;
use crate::books::room::placement::{Unplaced, amounts};
use crate::books::room::survey::Survey;
use crate::machine::Machine;
use crate::request::{GpuChoice, RunSpec};
use partage_protocol::units::DeviceUuid;

/// A device of a job that there is or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Foreseen {
    pub device: DeviceUuid,
    pub index: Option<u32>,
    pub total_bytes: u64,
    pub limit_bytes: u64,
}

/// A device, and the limit there; none is the whole card.
pub(crate) type Place = (DeviceUuid, Option<u64>);

impl Books {
    pub(crate) fn foreseen(&self, (device, limit): Place) -> Foreseen {
        let seen = self.devices.get(&device).map(|device| &device.seen);
        Foreseen {
            device,
            index: seen.map(|seen| seen.index),
            total_bytes: seen.map_or(0, |seen| seen.total_bytes),
            limit_bytes: self.limit_of(device, limit),
        }
    }

    /// Where there is no room now, the first of those that it could use.
    pub(crate) fn would_have<M: Machine>(
        &self,
        spec: &RunSpec,
        before: usize,
        machine: &M,
    ) -> Result<Vec<Place>, Unplaced> {
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
