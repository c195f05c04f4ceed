// SPDX-License-Identifier: Apache-2.0
//! A job's residence as far as the rest of the policy minds it: what its marks change, and room for its return.
//!
//! While a job is not here it is neither audited nor measured, its grants stay as they are, and its time limit stands
//! still. While it is away its memory and its promises, of time too, are free for others. From the mark that says
//! *coming* on, and all through a save, what it has to get back counts as granted; from the mark that holds a target
//! on, the same on the target.

use std::fmt;

use partage_protocol::job_ledger::Verdict;
use partage_protocol::reservation::Word;
use partage_protocol::size::format_bytes;
use partage_protocol::terms::format_part;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};

use super::Policy;
use super::claims::{Claims, Wish};
use super::time_limit::time_limit_at;
use crate::action::Action;
use crate::caller::Process;
use crate::device::{DeviceState, Hold, Member};
use crate::job::{Job, Placement};
use crate::machine::{Machine, OnSlot, overhead_of};
use crate::residence::{Mark, Place, Residence, Target};

/// A device without room for a job that wants to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// No such job, device or slot, or nothing is given on the device now.
    Closed {
        /// The device, as users know it.
        gpu: String,
    },
    /// An administrator drained it.
    Drained {
        /// A sentence with the way out.
        text: String,
    },
    /// Memory is short.
    Memory {
        /// The device.
        gpu: String,
        /// Bytes that the job needs there.
        needed: u64,
        /// Bytes that are left for it.
        left: u64,
    },
    /// A total of several jobs has no room for it.
    Total {
        /// Which, its numbers, and who holds them.
        text: String,
    },
    /// A command that waits since before asks for it first.
    Behind {
        /// The device.
        gpu: String,
        /// Its job.
        first: JobId,
    },
    /// Time to promise is short.
    Time {
        /// The device.
        gpu: String,
        /// Millionths that the job was promised.
        promised_ppm: u32,
    },
}

impl fmt::Display for Shortage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed { gpu } => write!(out, "{gpu} takes no jobs at the moment"),
            Self::Drained { text } => out.write_str(text),
            Self::Memory { gpu, needed, left } => write!(
                out,
                "the job needs {} on {gpu}, which has {} left for it",
                format_bytes(*needed),
                format_bytes(*left)
            ),
            Self::Total { text } => write!(out, "the {text}"),
            Self::Behind { gpu, first } => write!(out, "{gpu} goes to {first} first, which asked earlier"),
            Self::Time { gpu, promised_ppm } => write!(
                out,
                "the job was promised {} of the time of {gpu}, which others were promised meanwhile",
                format_part(*promised_ppm)
            ),
        }
    }
}

impl Policy {
    /// A job's residence, while the job is known.
    #[must_use]
    pub fn residence(&self, job: JobId) -> Option<&Mark> {
        self.jobs.get(&job).map(|job| &job.record.residence.mark)
    }

    /// A passage says where it is; answered by the record to write.
    pub(crate) fn take_mark<M: Machine>(&mut self, id: JobId, mark: Mark, machine: &M, now_ns: u64) {
        let unix_ns = self.unix_ns(now_ns);
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.state().holds_memory()) else {
            return;
        };
        let was = job.residence();
        let was_here = was == Residence::Here;
        let mut devices: Vec<DeviceUuid> = job.record.devices.iter().map(|place| place.device).collect();
        devices.extend(job.record.residence.mark.target.map(|target| target.device));
        devices.extend(mark.target.map(|target| target.device));
        let is_placed = mark.is_placed;
        job.set_mark(mark, unix_ns);
        let is_here = job.residence() == Residence::Here;
        if is_here != was_here {
            // One that was acted on is over for good.
            let limit_ns = job.record.terms.time_limit_ns.filter(|_| job.stopping.is_none());
            job.set_time_limit_at(time_limit_at(&job.record, limit_ns, unix_ns, now_ns));
        }
        if !is_here && !job.record.residence.mark.is_closing() {
            // A process that begins now is granted nothing of what the job held.
            for (slot, state) in job.slots_mut() {
                let pages = OnSlot { machine, slot };
                let (limit, used) = (state.ledger.limit(), state.ledger.used_sum(&pages));
                state.set_limit(&pages, limit, used, now_ns);
            }
        }
        let record = job.record.clone();
        let is = job.residence();
        self.follow_residence(id, (was, is), now_ns);
        if is_placed {
            self.times.forget(id);
            self.show_terms(id);
        }
        self.act(Action::SaveJob(Box::new(record)));
        devices.sort_unstable();
        devices.dedup();
        for device in devices {
            self.share_headroom(device, machine, now_ns);
        }
    }

    /// The memory of these processes left the job's devices: what they held is free for others.
    pub fn ledger_leave<M: Machine>(&mut self, id: JobId, processes: &[Process], machine: &M, now_ns: u64) {
        let clients = self.clients_of(id, processes);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        for (slot, state) in job.slots_mut() {
            let pages = OnSlot { machine, slot };
            for client in &clients {
                state.ledger_mut().leave(&pages, *client, now_ns);
            }
        }
    }

    /// The room of these processes is their own again, before the driver is asked. Precondition: the mark that says
    /// *coming* claimed it.
    pub fn ledger_come<M: Machine>(&mut self, id: JobId, processes: &[Process], machine: &M, now_ns: u64) {
        let clients = self.clients_of(id, processes);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        for (slot, state) in job.slots_mut() {
            let pages = OnSlot { machine, slot };
            let held = state.ledger.held_sum(&pages);
            let owed = clients.iter().fold(0, |sum: u64, client| {
                let words = machine.words(*client, slot);
                sum.saturating_add(words.map_or(0, |words| words.owed.load().saturating_sub(words.ledger.load())))
            });
            let (limit, ceiling) = (state.ledger.limit(), state.ledger.ceiling());
            state.set_limit(&pages, limit, ceiling.max(held.saturating_add(owed)), now_ns);
            for client in &clients {
                let ledger = state.ledger_mut();
                if ledger.make_return(&pages, *client, now_ns) != Verdict::Granted {
                    // Its limit was set lower meanwhile.
                    ledger.return_beyond(&pages, *client);
                }
            }
            state.note_granted(&pages);
        }
    }

    /// The job runs again: its processes may use what they had.
    pub fn ledger_back<M: Machine>(&mut self, id: JobId, machine: &M, now_ns: u64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let clients: Vec<ClientId> = job.clients.iter().copied().collect();
        for (slot, state) in job.slots_mut() {
            let pages = OnSlot { machine, slot };
            for client in &clients {
                state.ledger_mut().came_back(&pages, *client, now_ns);
                let member = Member {
                    job: id,
                    client: *client,
                    slot,
                };
                let overhead = overhead_of(machine, *client, slot);
                self.overheads.of(member, machine).estimate(overhead);
            }
            // A limit that was set meanwhile may be below what it has.
            state.note_lowered(&pages);
        }
        for client in clients {
            self.show_overheads(client, machine);
        }
    }

    fn clients_of(&self, id: JobId, processes: &[Process]) -> Vec<ClientId> {
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
        let gone = || Shortage::Closed { gpu: id.to_string() };
        let job = self.jobs.get(&id).ok_or_else(gone)?;
        let exchanged = target.filter(|_| place == Place::Target);
        if let Some(text) = exchanged.and_then(|target| self.gpu_total_bars(job, target)) {
            return Err(Shortage::Total { text });
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
            return Err(Shortage::Closed { gpu });
        };
        if let Some(text) = self.drain_bar(device) {
            return Err(Shortage::Drained { text });
        }
        let request = job.record.devices.get(slot).map_or(0, |place| place.request);
        let needed = job.returning_bytes(slot, machine).max(request);
        let id = Some(job.id());
        // Before the card: what waits for a total is in nobody else's way.
        if let Some(text) = self.total_bars(job, device, (needed, request), &account) {
            return Err(Shortage::Total { text });
        }
        let left = account.left_for(id, (needed, request));
        if needed > left {
            return Err(Shortage::Memory { gpu, needed, left });
        }
        let promised_ppm = job.record.terms.promise_ppm;
        let time_left = self.time_left(device, id);
        if u64::from(promised_ppm) > time_left {
            return Err(Shortage::Time { gpu, promised_ppm });
        }
        let total = known.map_or(u64::MAX, |known| known.seen.total_bytes);
        let limit = job.record.devices.get(slot).and_then(|place| place.limit);
        let wish = |bytes, ppm| Wish { device, bytes, ppm };
        let most = wish(limit.unwrap_or(total).max(needed), promised_ppm.into());
        match claimed.passed_by(most, wish(left, time_left)) {
            Some(first) => Err(Shortage::Behind { gpu, first }),
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
