// SPDX-License-Identifier: Apache-2.0
//! What a device has, what its jobs use and may grow to.

use crate::books::Books;
use crate::books::room::survey::{Absent, Gone};
use crate::device::{Device, DeviceAccount, Hold};
use crate::job::{Job, Short};
use crate::machine::{Machine, OnSlot};
use crate::residence::Residence;
use partage_protocol::reservation::Word;
use partage_protocol::units::ClientId;
use partage_protocol::units::{DeviceUuid, JobId};
use std::collections::{BTreeMap, BTreeSet};

/// What is in use on a device beyond what is explained, and the reserve.
pub(crate) fn in_use_beyond(device: &Device, explained: u64) -> u64 {
    let in_use = device.measured.as_ref().map_or(0, |measured| measured.used_bytes);
    in_use
        .saturating_sub(explained)
        .saturating_sub(device.seen.reserve_in_use())
}

/// What of a job's books on a slot is of clients that are gone: what they were granted, and what they use of it.
pub(crate) fn held_by_gone<M: Machine>(job: &Job, slot: usize, gone: &Gone, machine: &M) -> (u64, u64) {
    let mut sums: (u64, u64) = (0, 0);
    for client in job.clients.iter().filter(|client| gone.contains(client)) {
        if let Some(words) = machine.words(*client, slot) {
            let granted = words.ledger.load().saturating_add(words.overhead.load());
            sums.0 = sums.0.saturating_add(granted);
            sums.1 = sums.1.saturating_add(words.used());
        }
    }
    sums
}

/// What a client uses on a slot, as far as it was granted, and its overhead.
pub(crate) fn held_by<M: Machine>(machine: &M, client: ClientId, slot: usize) -> u64 {
    use partage_protocol::reservation::Word;
    machine.words(client, slot).map_or(0, |words| {
        let ledger = words.ledger.load();
        let charged = words.shared.map_or(ledger, |shared| shared.used.load().min(ledger));
        charged.saturating_add(words.overhead.load())
    })
}

impl Books {
    /// The jobs of processes that are clients, by pid.
    pub(crate) fn managed_pids(&self) -> BTreeMap<u32, JobId> {
        let clients = self.clients.values();
        clients.map(|client| (client.process.pid, client.job)).collect()
    }

    /// The limit of a slot as a number: the whole card where the job has none.
    pub(crate) fn limit_of(&self, device: DeviceUuid, limit: Option<u64>) -> u64 {
        // An adopted job's device may not be enumerated yet; then nothing is admitted either.
        limit.unwrap_or_else(|| {
            self.devices
                .get(&device)
                .map_or(u64::MAX, |device| device.seen.total_bytes)
        })
    }

    pub(crate) fn account<M: Machine>(&self, device: DeviceUuid, machine: &M) -> Option<DeviceAccount> {
        self.account_without(device, (&Absent::new(), &Gone::new()), machine)
    }

    /// The same as it will be once these jobs are away, and these clients gone.
    pub(crate) fn account_without<M: Machine>(
        &self,
        device: DeviceUuid,
        (absent, gone): (&Absent, &Gone),
        machine: &M,
    ) -> Option<DeviceAccount> {
        let known = self.devices.get(&device)?;
        let (mut measured_by_job, processes) = self.measured_by_job(known, gone);
        let mut holds = Vec::new();
        let mut leaving = self.held_by_all(gone, device, machine);
        for job in self.jobs.values().filter(|job| job.state().holds_memory()) {
            let Some(slot) = job.slot_of(device) else { continue };
            let (Some(placement), Some(state)) = (job.record.devices.get(slot), job.slots.get(slot)) else {
                continue;
            };
            let pages = OnSlot { machine, slot };
            let residence = job.residence();
            let promised = if job.keeps_promises() { placement.request } else { 0 };
            let returning = match residence.claims_bytes() {
                true => job.returning_bytes(slot, machine),
                false => 0,
            };
            let floor = state.ledger.floor_sum(&pages, self.now_ns, gone);
            let (granted_to_gone, used_by_gone) = held_by_gone(job, slot, gone, machine);
            let granted = state.ledger.held_sum(&pages).saturating_sub(granted_to_gone);
            let used = state.ledger.used_sum(&pages).saturating_sub(used_by_gone);
            if residence == Residence::Away && granted == 0 {
                continue;
            }
            // What leaves a device without memory of its own stays in that memory.
            if absent.contains(&job.id()) && !known.seen.is_unified {
                let used = used.saturating_sub(self.managed_bytes(job, slot, machine));
                leaving = leaving.saturating_add(used.max(measured_by_job.remove(&job.id()).unwrap_or(0)));
                continue;
            }
            holds.push(Hold {
                job: job.id(),
                slot,
                limit: self.limit_of(device, placement.limit),
                promised,
                guaranteed: promised,
                granted: granted.max(returning),
                used: used.max(returning),
                floor: floor.max(used).max(returning),
                managed: self.managed_bytes(job, slot, machine),
                measured: measured_by_job.remove(&job.id()).unwrap_or(0),
                is_fixed: residence != Residence::Here && !job.record.residence.mark.is_closing(),
            });
        }
        holds.extend(self.claims_on(device, machine));
        holds.sort_by_key(|hold| hold.job);
        let listed = processes
            .iter()
            .fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
        let explained = holds.iter().fold(listed.saturating_add(leaving), |sum, hold| {
            sum.saturating_add(hold.used.saturating_sub(hold.managed).max(hold.measured))
        });
        let mut account = DeviceAccount {
            index: known.seen.index,
            is_unified: known.seen.is_unified,
            usable: known.usable(),
            capacity: self.config.promisable(known.usable()),
            holds,
            processes,
            unexplained: in_use_beyond(known, explained),
        };
        account.split_guarantees();
        Some(account)
    }

    /// What a device holds for these clients: the greater of what they use and what was measured.
    pub(crate) fn held_by_all<M: Machine>(&self, gone: &Gone, device: DeviceUuid, machine: &M) -> u64 {
        let measured = self.measured(device);
        let bytes = gone.iter().filter_map(|client| {
            let known = self.clients.get(client)?;
            let slot = self.jobs.get(&known.job)?.slot_of(device)?;
            let shown = measured.and_then(|measured| measured.processes.iter().find(|p| p.pid == known.process.pid));
            let shown = shown.and_then(|process| process.bytes).unwrap_or(0);
            Some(held_by(machine, *client, slot).max(shown))
        });
        bytes.fold(0, u64::saturating_add)
    }

    /// What a device was measured to hold for each job, and for each process of none; without these clients.
    pub(crate) fn measured_by_job(&self, device: &Device, gone: &Gone) -> (BTreeMap<JobId, u64>, Vec<(u32, u64)>) {
        let pids = self.managed_pids();
        let gone_pids: BTreeSet<u32> = gone
            .iter()
            .filter_map(|client| Some(self.clients.get(client)?.process.pid))
            .collect();
        let mut by_job: BTreeMap<JobId, u64> = BTreeMap::new();
        let mut processes = Vec::new();
        for process in device.measured.iter().flat_map(|measured| &measured.processes) {
            match pids.get(&process.pid) {
                Some(_) if gone_pids.contains(&process.pid) => {}
                Some(job) => {
                    let sum = by_job.entry(*job).or_default();
                    *sum = sum.saturating_add(process.bytes.unwrap_or(0));
                }
                None => processes.push((process.pid, process.bytes.unwrap_or(0))),
            }
        }
        (by_job, processes)
    }

    /// The part of what a job's clients charged on a slot that need not be on the device.
    pub(crate) fn managed_bytes<M: Machine>(&self, job: &Job, slot: usize, machine: &M) -> u64 {
        job.clients.iter().fold(0, |sum: u64, client| {
            let (Some(reading), Some(words)) = (machine.reading(*client, slot), machine.words(*client, slot)) else {
                return sum;
            };
            // Both are the client's words: a part of what it uses, which is no more than it was granted.
            sum.saturating_add(reading.managed.min(reading.used).min(words.ledger.load()))
        })
    }

    /// What a hold's clients were granted, of one that is not fixed.
    pub(crate) fn granted<M: Machine>(&self, hold: &Hold, machine: &M) -> u64 {
        let slot = self.jobs.get(&hold.job).and_then(|job| job.slots.get(hold.slot));
        let pages = OnSlot {
            machine,
            slot: hold.slot,
        };
        slot.map_or(0, |slot| slot.ledger.held_sum(&pages))
    }

    /// With whom a job shares what on a device: all that is there, where any of it is withheld or nothing else bounds
    /// it; and each of its totals.
    pub(crate) fn sharers(&self, job: JobId, account: DeviceAccount) -> Vec<(DeviceAccount, Short)> {
        let bounds = self.bounds_of(job, &account);
        let mut all: Vec<_> = bounds.map(|bound| (bound.account, Short::Total)).collect();
        if account.is_withheld() || all.is_empty() {
            all.push((account, Short::Card));
        }
        all
    }

    pub(crate) fn ceiling(&self, hold: &Hold) -> u64 {
        self.ledger(hold.job, hold.slot).map_or(0, |ledger| ledger.ceiling())
    }
}
