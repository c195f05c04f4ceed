// SPDX-License-Identifier: Apache-2.0
//! Adoption: takes over the jobs and clients of the previous broker.
//!
//! The ledger file says what each client may use (L) and so what is taken. Until a client has come back with its pages,
//! its L counts in full and cannot be lowered; until all of a device's clients came back, or [`ADOPTION_NS`] passed,
//! nothing new is admitted there.
//!
//! A job that lingered is both among the ended ones and recorded: it keeps lingering, with the end that was announced.
//! If it has clients in the ledger, it is live again.

use partage_protocol::job_ledger::JobLedger;
use partage_protocol::message::REFUSED_IDENTITY;
use partage_protocol::reservation::Word;
use partage_protocol::units::{ClientId, DeviceUuid, JobId, SECOND_NS};

use super::Policy;
use super::time_limit::time_limit_at;
use crate::action::Action;
use crate::caller::Process;
use crate::client::Presence;
use crate::event::Adoption;
use crate::job::{Job, JobRecord, REMEMBER_NS, Slot};
use crate::machine::{Machine, OnSlot};
use crate::notice::Notice;
use crate::residence::Residence;

/// Longest time that a device admits nothing because a client of the broker before has not come back. Clients reconnect
/// within a second; one that does not is stopped, and is counted with all that its ledger says.
pub const ADOPTION_NS: u64 = 10 * SECOND_NS;
/// A job that left for a run does not come back for so long: the run waits at no broker yet. One whose broker died asks
/// the next within seconds.
const RUNS_BACK_NS: u64 = 5 * SECOND_NS;

impl Policy {
    pub(crate) fn adopt<M: Machine>(&mut self, adoption: Adoption, machine: &M, now_ns: u64) {
        if !adoption.jobs.is_empty() {
            self.books.let_runs_pass_until(now_ns.saturating_add(RUNS_BACK_NS));
        }
        self.books.jobs.keep_numbers_below(adoption.next_job);
        self.books.drained.extend(adoption.drained);
        for (device, mark) in adoption.sick {
            self.books.health.entry(device).or_default().adopt(mark);
        }
        let unix_ns = self.unix_ns(now_ns);
        self.books
            .usage
            .adopt(adoption.usage, (unix_ns, self.books.config.queue.half_life_ns));
        for ended in adoption.ended {
            let age_ns = unix_ns.saturating_sub(ended.ended_unix_ns);
            self.books.jobs.keep_numbers_below(ended.job.id.saturating_add(1));
            if age_ns < REMEMBER_NS {
                let job = Job::from_remembered(ended, now_ns.saturating_add(REMEMBER_NS - age_ns));
                self.add_job(job);
            }
        }
        for record in adoption.jobs {
            let clients = adoption.clients.iter().filter(|known| known.job.0 == record.id);
            let clients: Vec<ClientId> = clients.map(|known| known.client).collect();
            self.adopt_job(record, &clients, machine, now_ns);
        }
        for known in adoption.clients {
            let Some(job) = self.books.jobs.get_mut(&known.job) else {
                self.act(Action::ForgetClient(known.client));
                continue;
            };
            job.set_client(known.client, true);
            job.limit_client((known.client, known.process), machine, now_ns);
            for (slot, state) in job.slots_mut() {
                state.ledger_mut().adopt(&OnSlot { machine, slot }, known.client);
            }
            self.books.clients.expect(known.client, known.job, known.process);
        }
        self.books.clients.wait_until(now_ns.saturating_add(ADOPTION_NS));
        let devices: Vec<DeviceUuid> = self.books.devices.keys().copied().collect();
        for device in devices {
            self.share_headroom(device, machine, now_ns);
        }
        let jobs: Vec<JobId> = self.books.jobs.keys().copied().collect();
        for job in jobs {
            self.look_after(job, machine, now_ns);
        }
        self.judge_adopted(machine, now_ns);
    }

    /// A job is recorded, and the ledger names these clients of it: it lives, or lingers on as it did.
    fn adopt_job<M: Machine>(&mut self, record: JobRecord, clients: &[ClientId], machine: &M, now_ns: u64) {
        let (id, started_unix_ns) = (JobId(record.id), record.started_unix_ns);
        let unix_ns = self.unix_ns(now_ns);
        let time_limit_at_ns = time_limit_at(&record, record.terms.time_limit_ns, unix_ns, now_ns);
        let was = self.books.jobs.forget(id);
        let was = was.filter(|was| was.record.started_unix_ns == started_unix_ns);
        let mut slots = Vec::new();
        for (slot, place) in record.devices.iter().enumerate() {
            let limit = self.limit_of(place.device, place.limit);
            let ledgers = clients.iter().filter_map(|client| machine.words(*client, slot));
            let held = ledgers.fold(0, |sum: u64, words| {
                sum.saturating_add(words.ledger.load())
                    .saturating_add(words.overhead.load())
            });
            // What was promised or granted stays allowed; more only once the device can be judged.
            // A job that is not here gets nothing but what its passage restores.
            let is_here = record.residence.residence() == Residence::Here;
            let promised = if is_here { place.request } else { 0 };
            let ceiling = promised.max(held).min(limit);
            let words = clients.iter().filter_map(|client| machine.words(*client, slot));
            let owed = words.fold(0, |sum: u64, words| sum.saturating_add(words.owed.load()));
            slots.push(Slot::adopted(JobLedger::new(limit, ceiling), held, owed));
        }
        let (residence, left_for) = (record.residence.residence(), record.residence.left_for);
        let mut job = Job::adopted(record, slots, time_limit_at_ns);
        if residence == Residence::Here {
            // The broker before ended before it began to leave.
            job.record_mut().residence.forget_leaving();
        }
        if let Some(was) = was {
            job.take_up(was);
            if clients.is_empty() {
                job.linger(now_ns);
            } else {
                job.forget_end();
            }
        }
        if let Some(process) = job.record.first.filter(|_| job.is_first_alive) {
            self.act(Action::Watch { job: id, process });
        }
        self.add_job(job);
        if residence == Residence::Away && left_for.is_some() {
            self.come_back(id, now_ns);
        }
        self.books.unjudged.push(id);
        self.show_terms(id);
    }

    /// The connection of a client is gone: nobody hears the answer to what it asked.
    pub(crate) fn leave(&mut self, client: ClientId, presence: Presence, now_ns: u64) {
        self.books.undecided.forget(client);
        self.books.clients.set_presence(client, presence, now_ns);
    }

    pub(crate) fn reattach<M: Machine>(
        &mut self,
        client: ClientId,
        process: Process,
        are_pages_lost: bool,
        machine: &M,
    ) {
        let Some(known) = self.books.clients.come_back(client, process) else {
            let what = Notice::NotInLedger(client, process.pid);
            return self.refuse_client(client, REFUSED_IDENTITY, what);
        };
        self.books.undecided.forget(client);
        let job = known.job;
        if let Some(state) = self.books.jobs.get_mut(&job) {
            for (slot, state) in state.slots_mut() {
                state.ledger_mut().adopt(&OnSlot { machine, slot }, client);
            }
            if are_pages_lost {
                state.note(Notice::NoDescriptors(process.pid));
            }
        }
        self.welcome(client, job);
        self.show_overheads(client, machine);
        self.show_pages(job);
        let pid = process.pid;
        self.publish("adopted", Some(job), Some(pid), Notice::CameBack(pid, job));
    }
}
