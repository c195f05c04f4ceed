// SPDX-License-Identifier: Apache-2.0
//! What each job's last way off its devices took, and when the policy may send it on the next one.

use std::collections::BTreeMap;

use partage_protocol::units::{JobId, SECOND_NS};

use crate::residence::Residence;

/// A job runs at least so many times what its last swap took.
const RUNS_PER_SWAP: u64 = 10;
/// What a swap takes before one was seen: checkpoint 0.7 s and 1.1 GB/s, restore 0.4 s and 2.2 GB/s, the slowest
/// figures published of a driver 580 (an RTX 4090; not measured here).
const SWAP_NS: u64 = SECOND_NS * 11 / 10;
/// Nanoseconds for each mebibyte, from the same figures.
const SWAP_NS_PER_MIB: u64 = 1_430_000;
/// A job that could not leave is not asked again before this.
const LEAVE_AGAIN_NS: u64 = 60 * SECOND_NS;
/// An idle job that is wanted again too soon, again and again, waits at most 2 to this power times as long.
const MOST_EARLY: u32 = 6;

/// What is known of each job's swaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Swaps {
    by_job: BTreeMap<JobId, Swap>,
    /// When a job that may not be preempted yet may be.
    due_ns: Option<u64>,
}

/// One job's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Swap {
    /// When its last way off its devices began.
    began_ns: u64,
    /// It is on that way still.
    is_leaving: bool,
    /// What that way took.
    took_ns: Option<u64>,
    /// When it came back last.
    back_ns: Option<u64>,
    /// It could not leave.
    not_before_ns: u64,
    /// How often in a row it was wanted again before it had been away for as long as it was to be idle.
    early_returns: u32,
}

impl Swaps {
    /// A job's residence changed.
    pub(crate) fn follow(&mut self, id: JobId, (was, is): (Residence, Residence), now_ns: u64) {
        let swap = self.by_job.entry(id).or_default();
        match is {
            Residence::Leaving if was == Residence::Here => {
                swap.began_ns = now_ns;
                swap.is_leaving = true;
            }
            // A way that began under another broker has no length here.
            Residence::Away if std::mem::take(&mut swap.is_leaving) => {
                swap.took_ns = Some(now_ns.saturating_sub(swap.began_ns));
            }
            Residence::Here if was != Residence::Here => {
                swap.back_ns = Some(now_ns);
                if std::mem::take(&mut swap.is_leaving) {
                    swap.not_before_ns = now_ns.saturating_add(LEAVE_AGAIN_NS);
                }
            }
            _ => {}
        }
    }

    /// It could not leave.
    pub(crate) fn refuse(&mut self, id: JobId, now_ns: u64) {
        self.by_job.entry(id).or_default().not_before_ns = now_ns.saturating_add(LEAVE_AGAIN_NS);
    }

    /// For how long a job is to be idle before it leaves: twice as long for each time that it was wanted again too
    /// soon.
    pub(crate) fn patience_ns(&self, id: JobId, idle_ns: u64) -> u64 {
        let early = self.by_job.get(&id).map_or(0, |swap| swap.early_returns);
        idle_ns.saturating_mul(1 << early.min(MOST_EARLY))
    }

    /// A job that left because it was idle is wanted again.
    pub(crate) fn note_wanted(&mut self, id: JobId, idle_ns: u64, now_ns: u64) {
        let swap = self.by_job.entry(id).or_default();
        let away_ns = now_ns.saturating_sub(swap.began_ns);
        swap.early_returns = match away_ns < idle_ns {
            true => swap.early_returns.saturating_add(1),
            false => 0,
        };
    }

    /// It ended.
    pub(crate) fn forget(&mut self, id: JobId) {
        self.by_job.remove(&id);
    }

    /// When a job may be preempted that may not be yet.
    pub(crate) const fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// The queue is looked at anew.
    pub(crate) const fn begin_turn(&mut self) {
        self.due_ns = None;
    }

    /// A job may be preempted from then on that may not be yet.
    pub(crate) fn note_due(&mut self, at_ns: u64) {
        self.due_ns = Some(self.due_ns.map_or(at_ns, |due| due.min(at_ns)));
    }

    /// Was a way of this job off its devices seen?
    pub(crate) fn is_measured(&self, id: JobId) -> bool {
        self.by_job.get(&id).is_some_and(|swap| swap.took_ns.is_some())
    }

    /// What a way off the device and one back take for a job with these bytes: twice its last way off.
    pub(crate) fn cost_ns(&self, id: JobId, bytes: u64) -> u64 {
        let guess = SWAP_NS.saturating_add((bytes >> 20).saturating_mul(SWAP_NS_PER_MIB));
        let took = self.by_job.get(&id).and_then(|swap| swap.took_ns);
        took.map_or(guess, |took| took.saturating_mul(2))
    }

    /// From when on a job may be preempted that holds these bytes and has run for so long.
    pub(crate) fn earliest_ns(&self, id: JobId, (bytes, run_ns): (u64, u64), now_ns: u64) -> u64 {
        let swap = self.by_job.get(&id).copied().unwrap_or_default();
        // A promise alone leaves at no cost.
        let cost = if bytes == 0 { 0 } else { self.cost_ns(id, bytes) };
        let since_ns = swap.back_ns.unwrap_or_else(|| now_ns.saturating_sub(run_ns));
        let rested = since_ns.saturating_add(cost.saturating_mul(RUNS_PER_SWAP));
        rested.max(swap.not_before_ns)
    }
}
