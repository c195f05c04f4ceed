// SPDX-License-Identifier: Apache-2.0
//! Which device of a job is to be exchanged for which, and what speaks against it before anything is touched.
//!
//! A move needs a device of the same model and memory, because the driver restores on no other. The room is asked for
//! here to refuse early; what counts is the passage's own question, once the job is locked.

use partage_protocol::units::{DeviceUuid, JobId};

use super::placement::{Shortages, device_named};
use super::survey::Survey;
use crate::books::Books;
use crate::books::room::residence::Shortage;
use crate::device::{Device, DeviceState};
use crate::gpu_name::GpuName;
use crate::job::{Job, Placement};
use crate::machine::Machine;
use crate::refusal::{Refusal, Why};
use crate::residence::{Intent, Place, Target};

/// One device of a job for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The device that the job has.
    pub from: DeviceUuid,
    /// What replaces it, and where in the job.
    pub target: Target,
}

impl Books {
    /// The device that a user means.
    ///
    /// # Errors
    /// None here, or several.
    pub fn device_named(&self, text: &str) -> Result<DeviceUuid, Refusal> {
        let Some(name) = GpuName::parse(text) else {
            return Err(Why::NoGpu(text.to_owned()).into());
        };
        let mut by_index: Vec<&Device> = self.devices.values().collect();
        by_index.sort_by_key(|device| device.seen.index);
        device_named(&name, &by_index).map(|device| device.seen.uuid)
    }

    /// What a job is to exchange so that it has the device `to`: for `from` or, without, for its only one.
    ///
    /// # Errors
    /// No such device, a device that takes nothing now, a rule that keeps the job off it, or a job with several
    /// devices of which none was named.
    pub fn exchange(&self, id: JobId, from: Option<&str>, to: &str) -> Result<Exchange, Refusal> {
        let to = self.device_named(to)?;
        let from = from.map(|text| self.device_named(text)).transpose()?;
        self.exchange_for(id, from, to)
    }

    /// The same with devices.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub fn exchange_for(&self, id: JobId, from: Option<DeviceUuid>, to: DeviceUuid) -> Result<Exchange, Refusal> {
        let places = self.jobs.get(&id).map_or(&[][..], |job| &job.record.devices);
        let slot = match (from, places) {
            (Some(from), _) => places
                .iter()
                .position(|place| place.device == from)
                .ok_or_else(|| Why::NotOn(id, self.gpu(from), self.names(places)))?,
            (None, [_]) => 0,
            (None, []) => return Err(Why::WithoutGpu(id).into()),
            (None, _) => return Err(Why::SeveralGpus(id, self.names(places)).into()),
        };
        let own = places.get(slot).map(|place| place.device);
        let from = own.ok_or(Why::WithoutGpu(id))?;
        if let Some(device) = self.devices.get(&to) {
            self.judge_of(id).gpu(device.seen.index, &to.to_string())?;
            if device.state == DeviceState::Lost {
                return Err(Why::TargetLost(self.gpu(to), device.why.clone()).into());
            }
        }
        let target = Target { slot, device: to };
        Ok(Exchange { from, target })
    }

    fn names(&self, places: &[Placement]) -> Vec<String> {
        places.iter().map(|place| self.gpu(place.device)).collect()
    }

    /// What an exchange needs beyond what leaving needs.
    #[must_use]
    pub fn move_intent(&self, id: JobId, exchange: Exchange) -> Intent {
        let facts = |device: DeviceUuid| {
            let seen = self.devices.get(&device).map(|known| &known.seen);
            seen.map_or_else(Default::default, |seen| (seen.model.clone(), seen.total_bytes))
        };
        let to = exchange.target.device;
        let is_own = self.jobs.get(&id).is_some_and(|job| job.slot_of(to).is_some());
        Intent::Move {
            from: facts(exchange.from),
            to: facts(to),
            is_own,
            mig: to.is_mig.then(|| to.to_string()),
        }
    }

    /// Has a job room where it is to go, as far as is known before it is locked? What jobs hold of which nothing runs
    /// any more is room: [`Event::MakeRoom`](crate::Event::MakeRoom) has it given up.
    ///
    /// # Errors
    /// What is short, and who holds it.
    pub fn room_to_move<M: Machine>(&self, id: JobId, exchange: Exchange, machine: &M) -> Result<(), Refusal> {
        let target = exchange.target;
        let Err(shortage) = self.room_at_target(id, target, machine) else {
            return Ok(());
        };
        let is_time = matches!(shortage, Shortage::Time(..));
        let is_about = matches!(shortage, Shortage::Memory(..) | Shortage::Time(..));
        let shortages: Shortages = [(target.device, (!is_time, is_time))].into();
        let holders = match is_about {
            true => self.shortage_holders(&shortages, &Survey::default(), machine),
            false => Vec::new(),
        };
        let stays = self.stays(id, exchange.from, &shortage.to_string());
        Err(Why::Stays(stays, holders).into())
    }

    pub(crate) fn room_at_target<M: Machine>(&self, id: JobId, target: Target, machine: &M) -> Result<(), Shortage> {
        let found = self.ask_room(id, Place::Target, Some(target), machine);
        let lingers_there = |job: &Job| job.is_lingering() && job.slot_of(target.device).is_some();
        let gives_way = self.jobs.values().any(lingers_there);
        match found {
            Err(Shortage::Memory(..) | Shortage::Time(..) | Shortage::Total(..)) if gives_way => Ok(()),
            other => other,
        }
    }

    /// A job was not moved: why.
    #[must_use]
    pub fn stays(&self, id: JobId, from: DeviceUuid, why: &str) -> String {
        format!("{id} stays on {}: {why}", self.gpu(from))
    }

    /// A job has another device.
    #[must_use]
    pub fn moved(&self, id: JobId, exchange: Exchange) -> String {
        let (from, to) = (self.gpu(exchange.from), self.gpu(exchange.target.device));
        format!("{id} moved from {from} to {to}")
    }

    /// Has the job the device that it was to get?
    #[must_use]
    pub fn has_moved(&self, id: JobId, exchange: Exchange) -> bool {
        let places = self.jobs.get(&id).map(|job| &job.record.devices);
        let place = places.and_then(|places| places.get(exchange.target.slot));
        place.is_some_and(|place| place.device == exchange.target.device)
    }

    /// For how long the threads of a job wait while these bytes are moved, in nanoseconds, and whether that is from its
    /// own last way off its devices.
    pub(crate) fn expected_pause(&self, id: JobId, bytes: u64) -> (u64, bool) {
        (self.swaps.cost_ns(id, bytes), self.swaps.is_measured(id))
    }
}
