// SPDX-License-Identifier: Apache-2.0
//! A job's residence as far as the rest of the policy minds it: what its marks change, and room for its return.
//!
//! While a job is not here it is neither audited nor measured, its grants stay as they are, and its time limit stands
//! still. While it is away its memory and its promises, of time too, are free for others. From the mark that says
//! *coming* on, and all through a save, what it has to get back counts as granted; from the mark that holds a target
//! on, the same on the target.

use partage_protocol::job_ledger::Verdict;
use partage_protocol::reservation::Word;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};

use super::Policy;
use super::time_limit::time_limit_at;
use crate::action::Action;
use crate::caller::Process;
use crate::device::Member;
use crate::machine::{Machine, OnSlot, overhead_of};
use crate::residence::{Mark, Residence};

impl Policy {
    /// A passage says where it is; answered by the record to write.
    pub(crate) fn take_mark<M: Machine>(&mut self, id: JobId, mark: Mark, machine: &M, now_ns: u64) {
        let unix_ns = self.unix_ns(now_ns);
        let Some(job) = self.books.jobs.get_mut(&id).filter(|job| job.state().holds_memory()) else {
            return;
        };
        let was = job.residence();
        let was_here = was == Residence::Here;
        let mut devices: Vec<DeviceUuid> = job.record.devices.iter().map(|place| place.device).collect();
        devices.extend(job.record.residence.mark.target.map(|target| target.device));
        devices.extend(mark.target.map(|target| target.device));
        let is_placed = mark.is_placed;
        job.record_mut().set_mark(mark, unix_ns);
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
            self.books.times.forget(id);
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
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
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
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
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
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
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
                self.books.overheads.of(member, machine).estimate(overhead);
            }
            // A limit that was set meanwhile may be below what it has.
            state.note_lowered(&pages);
        }
        for client in clients {
            self.show_overheads(client, machine);
        }
    }
}
