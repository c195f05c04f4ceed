// SPDX-License-Identifier: Apache-2.0
//! Processes that end, and what would have room once their memory is free.
//!
//! A process that has ended holds what its ledger says until a look at its devices, begun after its end, does not show
//! it any more. Whoever waited for that end asks at once: it is to get the memory, and no denial. So a question that
//! would have room without those who end waits ([`undecided`](super::undecided)), and a `run` with `--on-full fail`
//! waits for as long before it fails. Who has not gone [`GIVEN_UP_NS`] after its end (stuck in the driver) is waited
//! for no more: the denial names it.

use partage_protocol::units::{ClientId, JobId, SECOND_NS};

use super::claims::Claims;
use super::survey::{Absent, Gone, Survey};
use crate::books::Books;
use crate::books::room::headroom::held_by;
use crate::books::room::undecided::PATIENCE_NS;
use crate::client::{Client, Presence};
use crate::job::{Job, Reason, Unfreed};
use crate::machine::{Machine, OnSlot};
use crate::question::Awaited;

/// Nobody waits for the memory of a process that ended so long ago.
pub const GIVEN_UP_NS: u64 = 10 * SECOND_NS;
/// The holders of the most memory, so many, are looked at whether they have ended unnoticed.
const LOOKED_AT: usize = 64;

impl Books {
    /// Clients whose memory is expected to be free in a moment.
    pub(crate) fn soon_gone(&self, now_ns: u64) -> Gone {
        self.clients.dying_since(now_ns.saturating_sub(GIVEN_UP_NS))
    }

    /// Is what a job uses with `more` bytes within its limit, if those who are away used nothing?
    pub(crate) fn is_within_limit<M: Machine>(&self, job: JobId, slot: usize, more: u64, machine: &M) -> bool {
        let place = self.jobs.get(&job).and_then(|job| job.slots.get(slot));
        let total = place.and_then(|place| {
            place
                .ledger
                .total_with(&OnSlot { machine, slot }, more, self.now_ns, &Gone::new())
        });
        total.is_some()
    }

    /// Would a job have room for so many bytes more on a slot once these clients are gone? `false` where none is.
    pub(crate) fn fits_once_gone<M: Machine>(
        &self,
        gone: &Gone,
        (job, slot, more): (JobId, usize, u64),
        machine: &M,
    ) -> bool {
        if gone.is_empty() {
            return false;
        }
        let Some(ledger) = self.ledger(job, slot) else {
            return false;
        };
        let pages = OnSlot { machine, slot };
        let Some(total) = ledger.total_with(&pages, more, self.now_ns, gone) else {
            return false;
        };
        let Some((device, ceiling)) = self.slot_device(job, slot) else {
            return false;
        };
        if total <= ceiling {
            return true;
        }
        self.account_without(device, (&Absent::new(), gone), machine)
            .is_some_and(|account| {
                let sharers = self.sharers(job, account);
                sharers.iter().all(|(account, _)| account.room(Some(job)) >= total)
            })
    }

    /// Clients in the way of a question that may have ended since anybody looked, those with the most memory first.
    pub(crate) fn perhaps_ended<M: Machine>(&self, asker: ClientId, back: Awaited, machine: &M) -> Vec<ClientId> {
        let place = |job: &Job| match back {
            Awaited::OfJob(meant) => (job.id() == meant).then_some(0..job.slots.len()),
            Awaited::OnDevice(device) => job.slot_of(device).map(|slot| slot..slot + 1),
            Awaited::Dying | Awaited::Search => None,
        };
        let mut found: Vec<(u64, ClientId)> = Vec::new();
        for job in self.jobs.values().filter(|job| job.state().holds_memory()) {
            let Some(slots) = place(job) else { continue };
            let may_have_ended = |client: &Client| client.presence != Presence::Dying;
            let meant = job.clients.iter().filter(|client| {
                let known = self.clients.get(client).is_some_and(may_have_ended);
                known && **client != asker
            });
            let held = meant.map(|client| (slots.clone().map(|slot| held_by(machine, *client, slot)).sum(), *client));
            found.extend(held.filter(|(bytes, _): &(u64, ClientId)| *bytes > 0));
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.truncate(LOOKED_AT);
        found.into_iter().map(|(_, client)| client).collect()
    }

    /// Is it the memory of a process that has ended that leaves a job no room for so many bytes? Answers whose.
    pub(crate) fn unfreed<M: Machine>(&self, job: JobId, slot: usize, more: u64, machine: &M) -> Option<Unfreed> {
        let dying = self.clients.dying();
        if !self.fits_once_gone(&dying, (job, slot, more), machine) {
            return None;
        }
        let (device, _) = self.slot_device(job, slot)?;
        let held = dying.iter().filter_map(|client| {
            let known = self.clients.get(client)?;
            let slot = self.jobs.get(&known.job)?.slot_of(device)?;
            Some((held_by(machine, *client, slot), known.process.pid))
        });
        let (bytes, pid) = held.max()?;
        Some(Unfreed { pid, bytes })
    }

    /// The same of a denial for this reason.
    pub(crate) fn unfreed_for<M: Machine>(
        &self,
        job: JobId,
        slot: usize,
        (asked, reason): (u64, Reason),
        machine: &M,
    ) -> Option<Unfreed> {
        let more = if reason.is_measured() { 0 } else { asked };
        let unfreed = reason.may_be_unfreed().then(|| self.unfreed(job, slot, more, machine));
        unfreed.flatten()
    }

    /// Jobs of which nothing lives but what ends.
    fn ending_jobs(&self, gone: &Gone) -> Absent {
        let is_ending = |job: &&Job| !job.is_first_alive && !job.clients.is_empty() && job.clients.is_subset(gone);
        let live = self.jobs.values().filter(|job| job.state().may_end());
        live.filter(is_ending).map(Job::id).collect()
    }

    /// May a request that just came have room in a moment: once those who end are gone, and the devices have answered?
    /// Answers until when it waits for that before it hears anything.
    pub(crate) fn may_have_room_soon<M: Machine>(
        &self,
        id: JobId,
        claimed: &Claims,
        machine: &M,
        now_ns: u64,
    ) -> Option<u64> {
        let queued = self.jobs.get(&id)?.life.queued()?;
        let until_ns = queued.since_ns.saturating_add(PATIENCE_NS);
        let gone = self.soon_gone(now_ns);
        let is_any_slow = self.devices.values().any(|device| device.is_slow);
        if now_ns >= until_ns || (gone.is_empty() && !is_any_slow) {
            return None;
        }
        let survey = Survey::soon(self.ending_jobs(&gone), gone);
        let place = self.place(&queued.spec, claimed, &survey, machine);
        place.is_ok().then_some(until_ns)
    }
}
