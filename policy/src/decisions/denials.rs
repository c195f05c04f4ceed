// SPDX-License-Identifier: Apache-2.0
//! Denials: counted by job, device and reason; the last denial on each device is kept, with the holders of memory at
//! that instant.

use partage_protocol::units::{ClientId, JobId};

use super::Policy;
use crate::books::room::headroom::held_by;
use crate::holding::Who;
use crate::job::{Denial, Held, Reason};
use crate::machine::{Machine, OnSlot, overhead_of};
use crate::notice::{Denied, Figures, Notice};

/// Holders that a denial remembers, the greatest first.
const HOLDERS: usize = 8;

impl Policy {
    /// Counts a denial that happened so many times; the 1st, 2nd, 4th, 8th … of a job is published, so that a retrying
    /// allocator floods nobody.
    pub(crate) fn deny<M: Machine>(
        &mut self,
        job: JobId,
        slot: usize,
        (client, asked, times): (ClientId, u64, u64),
        reason: Reason,
        machine: &M,
        now_ns: u64,
    ) {
        let pid = self.books.clients.get(&client).map(|client| client.process.pid);
        let device = self.slot_device(job, slot).map(|(device, _)| device);
        let (account, rule) = self.in_the_way(job, device, reason, machine);
        let holders = account.map(|account| account.holders()).unwrap_or_default();
        let gpu = device.map(|device| self.gpu(device));
        let unfreed = self.unfreed_for(job, slot, (asked, reason), machine);
        let unix_ns = self.unix_ns(now_ns);
        let Some(state) = self.books.jobs.get_mut(&job) else {
            return;
        };
        let (before, count) = state.count_denials(reason, times);
        let Some(place) = state.slot_mut(slot) else { return };
        place.count_denials(reason, times);
        let pages = OnSlot { machine, slot };
        let (mut limit, mut used) = (place.ledger.limit(), place.ledger.used_sum(&pages));
        let mut overhead = place.ledger.overhead_sum(&pages);
        let mut who = None;
        if reason == Reason::ProcessLimit {
            limit = place.ledger.own_limit(client).unwrap_or(limit);
            used = held_by(machine, client, slot);
            overhead = overhead_of(machine, client, slot);
            who = Some(pid.unwrap_or(0));
        }
        let others = holders.into_iter().filter(|holder| holder.who != Who::Job(job));
        let held = others.take(HOLDERS).map(|holder| Held {
            who: holder.who.to_string(),
            bytes: holder.bytes,
        });
        place.remember_denial(Denial {
            unix_ns,
            pid: pid.unwrap_or(0),
            asked,
            limit,
            used,
            reason,
            holders: held.collect(),
            rule: rule.clone(),
            unfreed,
        });
        if before.checked_ilog2() != count.checked_ilog2() {
            let what = Denied {
                job,
                asked,
                gpu,
                slot,
                reason,
                rule,
                unfreed,
                pid: who,
                used,
                limit,
                overhead,
                count,
            };
            let figures = Figures::Denial(device, [asked, limit, used, overhead, count]);
            self.publish_numbers("denied", (Some(job), pid), Notice::WasDenied(what), figures);
        }
    }
}
