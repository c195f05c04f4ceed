// SPDX-License-Identifier: Apache-2.0
//! How burstable jobs (limit above what is kept for them) share the room of a device (`device/account.rs`), and those
//! that share a total what that leaves them (`books/room/totals.rs`).

use crate::job::Job;
use partage_protocol::units::{DeviceUuid, JobId};

use super::Policy;
use crate::device::Hold;
use crate::job::Short;
use crate::machine::{Machine, OnSlot};

impl Policy {
    /// Shares what nobody was promised evenly among the burstable jobs of a device. Where nothing is promised at all
    /// there is nothing to withhold: each may take the whole card, and the driver says when it is full, as without us.
    pub(crate) fn share_headroom<M: Machine>(&mut self, device: DeviceUuid, machine: &M, now_ns: u64) {
        let Some(account) = self.account(device, machine) else {
            return;
        };
        let burstable = account.holds.iter().filter(|hold| hold.is_burstable()).count() as u64;
        // Before its first measurement a device's unmanaged use is not known: then nobody gets more than he has.
        let slack = if self.books.is_ok(device) {
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
        if !self.books.is_ok(device) {
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

    fn set_ceiling<M: Machine>(&mut self, hold: &Hold, ceiling: u64, machine: &M, now_ns: u64) {
        let Some(slot) = self
            .books
            .jobs
            .get_mut(&hold.job)
            .and_then(|job| job.slot_mut(hold.slot))
        else {
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
        let Some(job) = self.books.jobs.get_mut(&job) else {
            return;
        };
        for (slot, state) in job.slots_mut() {
            state.note_peak(&OnSlot { machine, slot });
        }
    }

    /// A job that is new here, with the totals that it shares.
    pub(crate) fn add_job(&mut self, job: Job) {
        let totals = self.totals_now(&job);
        self.books.jobs.add(job, totals);
    }

    /// A job's facts, or whether it may hold anything, may be others than before.
    pub(crate) fn note_totals(&mut self, id: JobId) {
        let totals = self.books.jobs.get(&id).map(|job| self.totals_now(job));
        self.books.jobs.set_totals(id, totals.unwrap_or_default());
    }
}
