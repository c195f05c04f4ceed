// SPDX-License-Identifier: Apache-2.0
//! What jobs that are away, or on their way, hold and need.

use crate::books::Books;
use crate::books::room::claims::{Claims, Wish};
use crate::caller::Process;
use crate::device::{DeviceState, Hold};
use crate::job::{Job, Placement};
use crate::machine::Machine;
use crate::residence::{Mark, Place, Target};
use partage_protocol::units::{ClientId, DeviceUuid, JobId};

shortage_table!(facts);

impl Books {
    /// A job's residence, while the job is known.
    #[must_use]
    pub fn residence(&self, job: JobId) -> Option<&Mark> {
        self.jobs.get(&job).map(|job| &job.record.residence.mark)
    }

    pub(crate) fn clients_of(&self, id: JobId, processes: &[Process]) -> Vec<ClientId> {
        let of_job = self.jobs.get(&id).map(|job| &job.clients);
        let is_meant = |client: &&ClientId| {
            let client = self.clients.get(client);
            client.is_some_and(|client| processes.contains(&client.process))
        };
        of_job.into_iter().flatten().filter(is_meant).copied().collect()
    }

    /// Bytes that a job holds on its devices, or has to get back: what becomes its processes' own when they leave.
    #[must_use]
    pub fn returning_bytes<M: Machine>(&self, id: JobId, machine: &M) -> u64 {
        self.jobs.get(&id).map_or(0, |job| job.all_returning_bytes(machine))
    }

    /// Is there room for a job that wants to come back to its devices, or to have a target? The mark that claims the
    /// room must follow before any other event.
    ///
    /// # Errors
    /// The first device that has none.
    pub fn ask_room<M: Machine>(
        &self,
        id: JobId,
        place: Place,
        target: Option<Target>,
        machine: &M,
    ) -> Result<(), Shortage> {
        let gone = || Shortage::Closed(id.to_string());
        let job = self.jobs.get(&id).ok_or_else(gone)?;
        let exchanged = target.filter(|_| place == Place::Target);
        if let Some(text) = exchanged.and_then(|target| self.gpu_total_bars(job, target)) {
            return Err(Shortage::Total(text));
        }
        for (slot, own) in job.record.devices.iter().enumerate() {
            let device = match exchanged {
                None => own.device,
                Some(target) if target.slot == slot => target.device,
                Some(_) => continue,
            };
            self.room_on(job, (slot, device), &Claims::default(), machine)?;
        }
        Ok(())
    }

    /// Has a job room on one device, beside what those in the queue before it wait for?
    pub(crate) fn room_on<M: Machine>(
        &self,
        job: &Job,
        (slot, device): (usize, DeviceUuid),
        claimed: &Claims,
        machine: &M,
    ) -> Result<(), Shortage> {
        let gpu = self.gpu(device);
        let known = self.devices.get(&device);
        let is_open = known.is_some_and(|known| known.state == DeviceState::Ok && !known.is_slow);
        let account = self.account(device, machine);
        let (Some(account), true) = (account, is_open && !self.is_adopting(device)) else {
            return Err(Shortage::Closed(gpu));
        };
        if let Some(text) = self.closed_bar(device) {
            return Err(Shortage::Drained(text));
        }
        let request = job.record.devices.get(slot).map_or(0, |place| place.request);
        let needed = job.returning_bytes(slot, machine).max(request);
        let id = Some(job.id());
        // Before the card: what waits for a total is in nobody else's way.
        if let Some(text) = self.total_bars(job, device, (needed, request), &account) {
            return Err(Shortage::Total(text));
        }
        let left = account.left_for(id, (needed, request));
        if needed > left {
            return Err(Shortage::Memory(gpu, needed, left));
        }
        let promised_ppm = job.record.terms.promise_ppm;
        let time_left = self.time_left(device, id);
        if u64::from(promised_ppm) > time_left {
            return Err(Shortage::Time(gpu, promised_ppm));
        }
        let total = known.map_or(u64::MAX, |known| known.seen.total_bytes);
        let limit = job.record.devices.get(slot).and_then(|place| place.limit);
        let wish = |bytes, ppm| Wish { device, bytes, ppm };
        let most = wish(limit.unwrap_or(total).max(needed), promised_ppm.into());
        match claimed.passed_by(most, wish(left, time_left)) {
            Some(first) => Err(Shortage::Behind(gpu, first)),
            None => Ok(()),
        }
    }

    /// What a job that is to come back asks of its devices.
    pub(crate) fn return_wishes<M: Machine>(&self, job: &Job, machine: &M) -> Vec<Wish> {
        let places = job.record.devices.iter().enumerate();
        let wish = |(slot, place): (usize, &Placement)| Wish {
            device: place.device,
            bytes: job.returning_bytes(slot, machine).max(place.request),
            ppm: job.record.terms.promise_ppm.into(),
        };
        places.map(wish).collect()
    }

    /// What jobs that move to a device hold there: not yet in a slot of theirs.
    pub(crate) fn claims_on<M: Machine>(&self, device: DeviceUuid, machine: &M) -> Vec<Hold> {
        let jobs = self.jobs.values().filter(|job| job.state().holds_memory());
        let claims = jobs.filter_map(|job| {
            let target = job.claimed_target().filter(|target| target.device == device)?;
            let request = job.record.devices.get(target.slot)?.request;
            let bytes = job.returning_bytes(target.slot, machine).max(request);
            Some(Hold {
                job: job.id(),
                slot: target.slot,
                limit: bytes,
                promised: request,
                guaranteed: request,
                granted: bytes,
                used: bytes,
                floor: bytes,
                managed: 0,
                measured: 0,
                is_fixed: true,
            })
        });
        claims.collect()
    }
}
