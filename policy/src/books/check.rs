// SPDX-License-Identifier: Apache-2.0
//! The policy's invariants, checked from outside the decisions; a violation is a defect of this crate.
//!
//! After every step:
//! 1. On every device Σ promised memory ≤ what may be promised there, and Σ promised time likewise; jobs of a broker
//!    before, which may have promised more, are left out where they alone exceed it.
//! 2. A job's promise is at most its limit, and its promise of time at most its cap.
//! 3. Σ L of a job on a device ≤ the highest limit that it had there; no client may use more than its job's books say:
//!    G ≤ L, and G + O at most what its process may hold.
//! 4. Jobs, clients, devices and the queue agree about one another: each client is in the books of one job that holds
//!    memory, each waiting job is in the queue once, and no record outlives its job, client or device.
//!
//! [`Books::check`] asks each job, each client and each of its words once; the broker does so once a second.

use std::collections::BTreeSet;
use std::fmt;

use partage_protocol::reservation::Word;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};

use crate::books::Books;
use crate::job::{Job, State};
use crate::machine::{Machine, OnSlot};

/// An invariant that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// More memory is promised than may be.
    MemoryPromised {
        /// Where.
        device: DeviceUuid,
        /// Bytes.
        promised: u64,
        /// Bytes that may be promised.
        capacity: u64,
    },
    /// More of a device's time is promised than may be.
    TimePromised {
        /// Where.
        device: DeviceUuid,
        /// Millionths.
        promised_ppm: u64,
        /// Millionths that may be promised.
        capacity_ppm: u64,
    },
    /// A promise is more than what bounds it.
    Promise {
        /// Whose.
        job: JobId,
    },
    /// The job's clients may use more than its limit ever was.
    Granted {
        /// Whose.
        job: JobId,
        /// The device's place in the job.
        slot: usize,
        /// Σ L in bytes.
        granted: u64,
        /// The highest limit in bytes.
        limit: u64,
    },
    /// A client may use more than the books say.
    Unbooked {
        /// Whose.
        client: ClientId,
        /// The device's place in its job.
        slot: usize,
    },
    /// A job's books do not agree with its state, its devices or its clients.
    Books {
        /// Whose.
        job: JobId,
    },
    /// The queue and the waiting jobs are not the same.
    Queue {
        /// One that is in one of them only, or twice.
        job: JobId,
    },
    /// A client's job does not know it, or something is remembered of a client that is gone.
    Client {
        /// Which.
        client: ClientId,
    },
    /// Something is remembered of a job on a device that it does not have.
    Time {
        /// Whose.
        job: JobId,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MemoryPromised {
                device,
                promised,
                capacity,
            } => write!(out, "{promised} bytes of {device} are promised, and {capacity} may be"),
            Self::TimePromised {
                device,
                promised_ppm,
                capacity_ppm,
            } => write!(
                out,
                "{promised_ppm} ppm of {device} are promised, and {capacity_ppm} may be"
            ),
            Self::Promise { job } => write!(out, "{job} is promised more than its limit or cap"),
            Self::Granted {
                job,
                slot,
                granted,
                limit,
            } => write!(
                out,
                "{job} was granted {granted} bytes on device {slot}, and its limit was {limit}"
            ),
            Self::Unbooked { client, slot } => write!(out, "{client} may use more on device {slot} than its books say"),
            Self::Books { job } => write!(out, "the books of {job} contradict its state"),
            Self::Queue { job } => write!(out, "{job} waits in no queue, or does not wait in it"),
            Self::Client { client } => write!(out, "{client} is not where it is remembered"),
            Self::Time { job } => write!(out, "{job} has time of a device that it does not have"),
        }
    }
}

impl Books {
    /// The invariants that do not hold; none is right.
    #[must_use]
    pub fn check<M: Machine>(&self, machine: &M) -> Vec<Violation> {
        let mut found = Vec::new();
        for device in self.devices.keys() {
            self.check_promises(*device, &mut found);
        }
        for job in self.jobs.values() {
            self.check_job(job, &mut found);
            for slot in 0..job.slots.len() {
                check_grants(job, slot, machine, &mut found);
            }
        }
        self.check_queue(&mut found);
        self.check_clients(&mut found);
        let has_it = |job: &Job, device| job.state().may_get_time() && job.slot_of(device).is_some();
        let odd = self.times.keys().filter(|(job, device)| {
            let job = self.jobs.get(job);
            !job.is_some_and(|job| has_it(job, *device))
        });
        found.extend(odd.map(|(job, _)| Violation::Time { job: *job }));
        found
    }

    fn check_promises(&self, device: DeviceUuid, found: &mut Vec<Violation>) {
        let Some(known) = self.devices.get(&device) else { return };
        let promised = |is_meant: &dyn Fn(&Job) -> bool| {
            let jobs = self.jobs.values().filter(|job| job.keeps_promises());
            jobs.filter(|job| is_meant(job)).fold((0u64, 0u64), |sum, job| {
                let place = job.record.devices.iter().find(|place| place.device == device);
                place.map_or(sum, |place| {
                    let time = u64::from(job.record.terms.promise_ppm);
                    (sum.0.saturating_add(place.request), sum.1.saturating_add(time))
                })
            })
        };
        let (memory, time) = promised(&|_| true);
        let inherited = promised(&|job| job.is_adopted);
        let capacity = self.config.promisable(known.most_usable);
        if memory > capacity.max(inherited.0) {
            found.push(Violation::MemoryPromised {
                device,
                promised: memory,
                capacity,
            });
        }
        let capacity_ppm = self.config.promisable_time();
        if time > capacity_ppm.max(inherited.1) {
            found.push(Violation::TimePromised {
                device,
                promised_ppm: time,
                capacity_ppm,
            });
        }
    }

    fn check_job(&self, job: &Job, found: &mut Vec<Violation>) {
        let places = &job.record.devices;
        let is_past = places
            .iter()
            .any(|place| place.limit.is_some_and(|limit| place.request > limit));
        let terms = &job.record.terms;
        if is_past || terms.cap_ppm.is_some_and(|cap| terms.promise_ppm > cap) {
            found.push(Violation::Promise { job: job.id() });
        }
        let members: BTreeSet<ClientId> = job.clients.iter().copied().collect();
        let mut slots = job.slots.iter();
        let is_right = match job.state() {
            State::Waiting => places.is_empty() && job.slots.is_empty() && job.clients.is_empty(),
            State::Running => slots.all(|slot| slot.ledger.clients().eq(members.iter().copied())),
            State::Lingering | State::Ended => {
                job.clients.is_empty() && slots.all(|slot| slot.ledger.clients().len() == 0)
            }
        };
        let is_whole = !job.state().holds_memory() || places.len() == job.slots.len();
        if !(is_right && is_whole) {
            found.push(Violation::Books { job: job.id() });
        }
    }

    fn check_queue(&self, found: &mut Vec<Violation>) {
        let mut queued = BTreeSet::new();
        for job in self.queue.iter() {
            let waits = self.jobs.get(job).is_some_and(|job| job.state() == State::Waiting);
            // One that is to come back and ended meanwhile leaves when the queue is served next.
            if !(queued.insert(*job) && (waits || self.is_returning(*job))) {
                found.push(Violation::Queue { job: *job });
            }
        }
        let waiting = self.jobs.values().filter(|job| job.state() == State::Waiting);
        let lost = waiting.map(Job::id).filter(|job| !queued.contains(job));
        found.extend(lost.map(|job| Violation::Queue { job }));
        let lost = self
            .returning
            .keys()
            .filter(|job| self.is_returning(**job) != queued.contains(job));
        found.extend(lost.map(|job| Violation::Queue { job: *job }));
    }

    fn check_clients(&self, found: &mut Vec<Violation>) {
        for (id, client) in self.clients.iter() {
            let knows = |job: &Job| job.state().holds_memory() && job.clients.contains(id);
            if !self.jobs.get(&client.job).is_some_and(knows) {
                found.push(Violation::Client { client: *id });
            }
        }
        let of_jobs = self.jobs.values().flat_map(|job| &job.clients);
        let measured = self.overheads.clients();
        let remembered = of_jobs
            .chain(self.clients.awaited())
            .chain(measured)
            .chain(self.undecided.clients());
        let dying = self.clients.dying();
        let remembered = remembered.chain(&dying);
        let gone = remembered.filter(|client| !self.clients.contains_key(client));
        found.extend(gone.map(|client| Violation::Client { client: *client }));
    }
}

fn check_grants<M: Machine>(job: &Job, slot: usize, machine: &M, found: &mut Vec<Violation>) {
    let Some(place) = job.slots.get(slot).filter(|_| job.state().holds_memory()) else {
        return;
    };
    let granted = place.ledger.granted_sum(&OnSlot { machine, slot });
    if granted > place.highest_limit {
        found.push(Violation::Granted {
            job: job.id(),
            slot,
            granted,
            limit: place.highest_limit,
        });
    }
    for client in place.ledger.clients() {
        let words = machine.words(client, slot);
        let is_past = words.is_some_and(|words| {
            let own = place.ledger.own_limit(client).unwrap_or(u64::MAX);
            let most = words.ledger.load().min(own.saturating_sub(words.overhead.load()));
            words.shared.is_some_and(|shared| shared.granted.load() > most)
        });
        if is_past {
            found.push(Violation::Unbooked { client, slot });
        }
    }
}

#[cfg(test)]
mod tests;
