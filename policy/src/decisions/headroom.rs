// SPDX-License-Identifier: Apache-2.0
//! How burstable jobs (limit above what is kept for them) share the room of a device (`device/account.rs`), and those
//! that share a total what that leaves them (`totals.rs`).

use std::collections::{BTreeMap, BTreeSet};

use partage_protocol::reservation::Word;
use partage_protocol::units::{DeviceUuid, JobId};

use super::Policy;
use super::attaching::held_by;
use super::survey::{Absent, Gone};
use crate::device::{Device, DeviceAccount, DeviceState, Hold};
use crate::job::{Job, Short};
use crate::machine::{Machine, OnSlot};
use crate::residence::Residence;

impl Policy {
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
    fn held_by_all<M: Machine>(&self, gone: &Gone, device: DeviceUuid, machine: &M) -> u64 {
        let measured = self.devices.get(&device).and_then(|device| device.measured.as_ref());
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
    fn measured_by_job(&self, device: &Device, gone: &Gone) -> (BTreeMap<JobId, u64>, Vec<(u32, u64)>) {
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

    /// Shares what nobody was promised evenly among the burstable jobs of a device. Where nothing is promised at all
    /// there is nothing to withhold: each may take the whole card, and the driver says when it is full, as without us.
    pub(crate) fn share_headroom<M: Machine>(&mut self, device: DeviceUuid, machine: &M, now_ns: u64) {
        let Some(account) = self.account(device, machine) else {
            return;
        };
        let burstable = account.holds.iter().filter(|hold| hold.is_burstable()).count() as u64;
        // Before its first measurement a device's unmanaged use is not known: then nobody gets more than he has.
        let is_known = self
            .devices
            .get(&device)
            .is_some_and(|device| device.state == DeviceState::Ok);
        let slack = if is_known {
            account.room(None) / burstable.max(1)
        } else {
            0
        };
        let is_withheld = account.is_withheld();
        let on_card = |hold: &Hold| match (hold.is_burstable(), is_withheld) {
            (true, true) => hold.kept().saturating_add(slack).min(hold.limit),
            _ => hold.limit,
        };
        let targets = self.within_bounds(&account, on_card);
        let movable = || account.holds.iter().zip(&targets).filter(|(hold, _)| !hold.is_fixed);
        for (hold, target) in movable() {
            let ceiling = self.ceiling(hold).min(*target);
            self.set_ceiling(hold, ceiling, machine, now_ns);
        }
        let is_overcommitted = account.is_overcommitted();
        let is_raised = |(hold, target): &(&Hold, &u64)| is_overcommitted || **target > self.ceiling(hold);
        let raised: Vec<(&Hold, &u64)> = movable().filter(is_raised).collect();
        if raised.is_empty() {
            return;
        }
        // Looked at again: another job may have used its slack before it could be lowered.
        let Some(mut now) = self.account(device, machine) else {
            return;
        };
        let mut bounds = self.bounds(&now);
        for (hold, target) in raised {
            // What others used before the device was overcommitted cannot be had back until they free it.
            let kept = if hold.is_burstable() && !is_overcommitted {
                hold.guaranteed
            } else {
                0
            };
            let room = match is_withheld {
                true => now.room_now(Some(hold.job)).max(kept),
                false => u64::MAX,
            };
            let shared = self.totals_of(hold.job).iter().filter_map(|id| bounds.get(id));
            let room = shared.fold(room, |room, bound| room.min(bound.account.room_now(Some(hold.job))));
            let ceiling = (*target).min(room);
            if ceiling > self.ceiling(hold) || is_overcommitted {
                self.set_ceiling(hold, ceiling, machine, now_ns);
                // Nobody but the broker grants: what this job was just granted is all that changed.
                let granted = self.granted(hold, machine);
                now.set_granted(hold.job, granted);
                for id in self.totals_of(hold.job) {
                    if let Some(bound) = bounds.get_mut(id) {
                        bound.account.set_granted(hold.job, granted);
                    }
                }
            }
        }
    }

    /// What a hold's clients were granted, of one that is not fixed.
    fn granted<M: Machine>(&self, hold: &Hold, machine: &M) -> u64 {
        let slot = self.jobs.get(&hold.job).and_then(|job| job.slots.get(hold.slot));
        let pages = OnSlot {
            machine,
            slot: hold.slot,
        };
        slot.map_or(0, |slot| slot.ledger.held_sum(&pages))
    }

    /// A burstable job needs `needed` bytes in all: takes unused ones back from the other burstable jobs of the device,
    /// and from those that share a total with it. Then its ceiling reaches that.
    ///
    /// # Errors
    /// What has no room.
    pub(crate) fn grow_ceiling<M: Machine>(
        &mut self,
        job: JobId,
        device: DeviceUuid,
        needed: u64,
        machine: &M,
        now_ns: u64,
    ) -> Result<(), Short> {
        if self
            .devices
            .get(&device)
            .is_none_or(|device| device.state != DeviceState::Ok)
        {
            return Err(Short::Card);
        }
        let account = self.account(device, machine).ok_or(Short::Card)?;
        let mine = account.holds.iter().find(|hold| hold.job == job && !hold.is_fixed);
        let mine = *mine.ok_or(Short::Card)?;
        let mut slack = u64::MAX;
        for (account, short) in self.sharers(job, account) {
            let rest = account.room(Some(job)).checked_sub(needed).ok_or(short)?;
            let others = account
                .holds
                .iter()
                .filter(|hold| hold.job != job && hold.is_burstable());
            let here = rest / (others.clone().count() as u64 + 1);
            slack = slack.min(here);
            for other in others {
                let ceiling = self.ceiling(other).min(other.kept().saturating_add(here));
                self.set_ceiling(other, ceiling, machine, now_ns);
            }
        }
        let now = self.account(device, machine).ok_or(Short::Card)?;
        let mut reach = u64::MAX;
        for (account, short) in self.sharers(job, now) {
            reach = reach.min(account.room_now(Some(job)));
            if reach < needed {
                return Err(short);
            }
        }
        let ceiling = needed
            .saturating_add(slack)
            .min(reach)
            .min(mine.limit)
            .max(self.ceiling(&mine));
        self.set_ceiling(&mine, ceiling, machine, now_ns);
        if ceiling >= needed { Ok(()) } else { Err(Short::Card) }
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

    fn ceiling(&self, hold: &Hold) -> u64 {
        let slot = self.jobs.get(&hold.job).and_then(|job| job.slots.get(hold.slot));
        slot.map_or(0, |slot| slot.ledger.ceiling())
    }

    fn set_ceiling<M: Machine>(&mut self, hold: &Hold, ceiling: u64, machine: &M, now_ns: u64) {
        let Some(slot) = self.jobs.get_mut(&hold.job).and_then(|job| job.slot_mut(hold.slot)) else {
            return;
        };
        let pages = OnSlot {
            machine,
            slot: hold.slot,
        };
        let is_new = slot.ledger.ceiling() != ceiling || slot.ledger.limit() != hold.limit;
        // A member that used its grant just before that was lowered kept it, and may have freed it since.
        if is_new || slot.ledger.is_over(&pages) {
            slot.set_limit(&pages, hold.limit, ceiling, now_ns);
        }
    }

    /// Remembers the highest use of a job's slots.
    pub(crate) fn note_peaks<M: Machine>(&mut self, job: JobId, machine: &M) {
        let Some(job) = self.jobs.get_mut(&job) else { return };
        for (slot, state) in job.slots_mut() {
            state.note_peak(&OnSlot { machine, slot });
        }
    }
}

/// What is in use on a device beyond what is explained, and the reserve.
fn in_use_beyond(device: &Device, explained: u64) -> u64 {
    let in_use = device.measured.as_ref().map_or(0, |measured| measured.used_bytes);
    in_use
        .saturating_sub(explained)
        .saturating_sub(device.seen.reserve_in_use())
}

/// What of a job's books on a slot is of clients that are gone: what they were granted, and what they use of it.
fn held_by_gone<M: Machine>(job: &Job, slot: usize, gone: &Gone, machine: &M) -> (u64, u64) {
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
