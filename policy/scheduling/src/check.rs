// SPDX-License-Identifier: Apache-2.0
//! The scheduler's invariants, looked at from outside of the decisions: what is found is a defect of this crate.
//!
//! For every device, after every step:
//! 1. Σ lag over the jobs that want the device, and what jobs that left handed over, is 0 to the nanosecond.
//! 2. A cap's budget is at most twice what a period gives (this period's, and what the last one was given back), and
//!    what was given back since the period began.
//! 3. Whoever has the turn, or claims it, is a job of the device; the shares know exactly the device's jobs.
//! 4. The gates of a job that is kept away are closed; a client has one job on all devices and one place on each.
//! 5. A gang's devices are those on which it has clients.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use partage_protocol::units::{ClientId, JobId};

use crate::device::Device;
use crate::event::DeviceKey;
use crate::job_on_device::Gate;
use crate::scheduler::Scheduler;

/// An invariant that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// What jobs are owed does not add up to nothing.
    Lag {
        /// Where.
        device: DeviceKey,
        /// To what it adds up.
        sum_ns: i64,
    },
    /// A cap's budget is more than two periods give and was given back.
    Budget {
        /// Where.
        device: DeviceKey,
        /// Whose.
        job: JobId,
        /// What is left of it.
        budget_ns: i64,
    },
    /// A job that is not on the device has its turn, a claim to it, or a share.
    Stranger {
        /// Where.
        device: DeviceKey,
        /// Which.
        job: JobId,
    },
    /// The job is kept away and the client's gate is open.
    Gate {
        /// Where.
        device: DeviceKey,
        /// Whose.
        client: ClientId,
    },
    /// A client has two places.
    Twice {
        /// Where the second one was found.
        device: DeviceKey,
        /// Whose.
        client: ClientId,
    },
    /// What is remembered of a gang is not where its clients are.
    Gang {
        /// Which.
        job: JobId,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lag { device, sum_ns } => write!(out, "lags on device {} add up to {sum_ns} ns", device.0),
            Self::Budget { device, job, budget_ns } => {
                write!(
                    out,
                    "the cap of job {} on device {} has {budget_ns} ns",
                    job.0, device.0
                )
            }
            Self::Stranger { device, job } => write!(out, "job {} has time of device {} and no place", job.0, device.0),
            Self::Gate { device, client } => {
                write!(
                    out,
                    "client {} is kept from device {} at an open gate",
                    client.0, device.0
                )
            }
            Self::Twice { device, client } => write!(out, "client {} has two places, on device {}", client.0, device.0),
            Self::Gang { job } => write!(out, "gang {} is not where its clients are", job.0),
        }
    }
}

impl Scheduler {
    /// The invariants that do not hold; none is right. It asks every job and every client once.
    #[must_use]
    pub fn check(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut places: BTreeMap<ClientId, (JobId, BTreeSet<DeviceKey>)> = BTreeMap::new();
        for device in self.devices.values() {
            check_time(device, &mut found);
            check_gates(device, &mut found);
            let seats = device.members.iter().flat_map(|(job, member)| {
                let clients = member.seats.iter().map(|seat| seat.client);
                clients.map(move |client| (*job, client))
            });
            for (job, client) in seats {
                let (of, devices) = places.entry(client).or_insert_with(|| (job, BTreeSet::new()));
                if *of != job || !devices.insert(device.key) {
                    let device = device.key;
                    found.push(Violation::Twice { device, client });
                }
            }
        }
        for (job, gang) in &self.gangs {
            let is_there = |device: &&Device| device.members.get(job).is_some_and(|member| !member.seats.is_empty());
            let here: BTreeSet<DeviceKey> = self
                .devices
                .values()
                .filter(is_there)
                .map(|device| device.key)
                .collect();
            if here != gang.devices || here.len() < 2 {
                found.push(Violation::Gang { job: *job });
            }
        }
        found
    }
}

fn check_time(device: &Device, found: &mut Vec<Violation>) {
    let key = device.key;
    let sum_ns = device.eevdf.imbalance_ns();
    if sum_ns != 0 {
        found.push(Violation::Lag { device: key, sum_ns });
    }
    for (job, member) in &device.members {
        let budget = member.budget.as_ref().filter(|budget| !budget.is_in_range());
        found.extend(budget.map(|budget| Violation::Budget {
            device: key,
            job: *job,
            budget_ns: budget.budget_ns(),
        }));
    }
    let known: BTreeSet<JobId> = device.members.keys().copied().collect();
    let named = device.eevdf.jobs().chain(device.holder()).chain(device.claim);
    let shared: BTreeSet<JobId> = named.collect();
    let odd = shared.symmetric_difference(&known);
    found.extend(odd.map(|job| Violation::Stranger { device: key, job: *job }));
}

fn check_gates(device: &Device, found: &mut Vec<Violation>) {
    let kept = device.members.values().filter(|member| member.held_by.is_some());
    let open = kept
        .flat_map(|member| &member.seats)
        .filter(|seat| seat.gate != Gate::Closed);
    found.extend(open.map(|seat| Violation::Gate {
        device: device.key,
        client: seat.client,
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::event::{Event, Terms};

    const DEVICE: DeviceKey = DeviceKey(0);
    const JOB: JobId = JobId(1);

    fn scheduler() -> Scheduler {
        let mut scheduler = Scheduler::new(Config::default());
        let terms = Terms {
            cap_ppm: Some(500_000),
            ..Terms::default()
        };
        let joined = Event::ClientJoined {
            client: ClientId(7),
            job: JOB,
            device: DEVICE,
        };
        let told = Event::JobTerms {
            job: JOB,
            device: DEVICE,
            terms,
        };
        scheduler.step(0, told, &mut Vec::new());
        scheduler.step(0, joined, &mut Vec::new());
        assert_eq!(scheduler.check(), []);
        scheduler
    }

    /// Each violation is found where it is made, and nothing else.
    #[test]
    fn what_is_broken_on_purpose_is_found() {
        let broken = |breaks: &dyn Fn(&mut Device)| {
            let mut scheduler = scheduler();
            scheduler.devices.values_mut().for_each(breaks);
            scheduler.check()
        };
        let (device, job, client) = (DEVICE, JOB, ClientId(7));
        let member = |device: &mut Device| device.members.remove(&JOB).expect("there");
        assert_eq!(
            broken(&|device| drop(member(device))),
            [Violation::Stranger { device, job }]
        );
        assert_eq!(
            broken(&|device| device.claim = Some(JobId(9))),
            [Violation::Stranger { device, job: JobId(9) }]
        );
        let shut = |device: &mut Device| {
            let member = device.members.get_mut(&JOB).expect("there");
            member.held_by = Some(crate::command::Cause::Cap);
            member.seats[0].gate = Gate::Open { depth_ns: None };
        };
        assert_eq!(broken(&shut), [Violation::Gate { device, client }]);
        let twice = |device: &mut Device| {
            let member = device.members.get_mut(&JOB).expect("there");
            let seat = member.seats[0].clone();
            member.seats.push(seat);
        };
        assert_eq!(broken(&twice), [Violation::Twice { device, client }]);
        let rich = |device: &mut Device| {
            let budget = device.members.get_mut(&JOB).and_then(|member| member.budget.as_mut());
            budget.expect("capped").upset();
        };
        let found = broken(&rich);
        assert!(matches!(found.as_slice(), [Violation::Budget { .. }]), "{found:?}");
        let unjust = |device: &mut Device| device.eevdf.upset(JOB, 5);
        let found = broken(&unjust);
        assert_eq!(found, [Violation::Lag { device, sum_ns: 5 }]);
    }
}
