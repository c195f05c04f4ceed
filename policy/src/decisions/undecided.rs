// SPDX-License-Identifier: Apache-2.0
//! Questions that found no room while clients of the broker before are awaited: not decided yet.
//!
//! A client that has not come back counts with its whole grant, most of which it may not use: whether there is room is
//! not known yet. A *no* would be an out-of-memory error that a program may not survive. So the question is asked again
//! when the clients are back that it depends on, and after [`PATIENCE_NS`] in any case: a library waits 3 s for an
//! answer, and then takes the broker for silent. A request that no return of a client can make fit is denied at once.

use partage_protocol::job_ledger::Verdict;
use partage_protocol::units::{ClientId, JobId, SECOND_NS};

use super::Policy;
use crate::job::Slot;
use crate::machine::{Machine, OnSlot};
use crate::question::{Awaited, Kept, Question};

/// Longest time that a question waits for clients, below the 3 s of a library. A client tries to come back every 2 s at
/// the least.
pub const PATIENCE_NS: u64 = 2 * SECOND_NS;

/// Where and when a client asked for how many bytes more.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) job: JobId,
    pub(crate) slot: usize,
    pub(crate) more: u64,
    pub(crate) asked_ns: u64,
}

impl Policy {
    /// Keeps a question whose answer depends on clients that are awaited. `false`: the verdict stands.
    pub(crate) fn keep_undecided<M: Machine>(
        &mut self,
        (client, question): (ClientId, Question),
        asked: Asked,
        verdict: Verdict,
        machine: &M,
        now_ns: u64,
    ) -> bool {
        let Asked {
            job,
            slot,
            more,
            asked_ns,
        } = asked;
        let awaited = match verdict {
            Verdict::Limit => Some(Awaited::OfJob(job)),
            Verdict::CardFull { .. } => self.slot_device(job, slot).map(|(device, _)| Awaited::OnDevice(device)),
            Verdict::Granted | Verdict::ProcessLimit | Verdict::Retry | Verdict::Invalid => None,
        };
        let (Some(awaited), true) = (awaited, now_ns < asked_ns.saturating_add(PATIENCE_NS)) else {
            return false;
        };
        let place = self.jobs.get(&job).and_then(|job| job.slots.get(slot));
        let may_fit = |place: &Slot| place.ledger.may_fit(&OnSlot { machine, slot }, more, now_ns);
        // Almost never: a denial in any other second costs one look at a set.
        if !self.is_awaited(awaited) || !place.is_some_and(may_fit) {
            return false;
        }
        self.undecided.keep(Kept {
            client,
            question,
            asked_ns,
            awaited,
        });
        // Not by a look at everything that may be due: asks are frequent.
        self.bring_forward(asked_ns.saturating_add(PATIENCE_NS));
        true
    }

    fn is_awaited(&self, awaited: Awaited) -> bool {
        match awaited {
            Awaited::OfJob(job) => self.is_awaiting(job),
            Awaited::OnDevice(device) => self.is_adopting(device),
        }
    }

    /// Asks the kept questions again whose clients are back, or that have waited long enough.
    pub(crate) fn ask_again<M: Machine>(&mut self, machine: &M, now_ns: u64) {
        let mut awaited: Vec<Awaited> = Vec::new();
        for of in self.undecided.awaited() {
            if !awaited.contains(&of) && self.is_awaited(of) {
                awaited.push(of);
            }
        }
        let is_over = |kept: &Kept| now_ns >= kept.asked_ns.saturating_add(PATIENCE_NS);
        let due = self
            .undecided
            .take(|kept| is_over(kept) || !awaited.contains(&kept.awaited));
        for Kept {
            client,
            question,
            asked_ns,
            ..
        } in due
        {
            match question {
                Question::Ask {
                    slot,
                    sequence,
                    wanted,
                    request,
                } => self.ask((client, slot, sequence), (wanted, request), asked_ns, machine, now_ns),
                Question::Announcement { slot, sequence } => {
                    self.announce((client, slot, sequence), asked_ns, machine, now_ns);
                }
            }
        }
    }

    /// When a kept question has waited long enough.
    pub(crate) fn undecided_due_ns(&self) -> Option<u64> {
        Some(self.undecided.first_ns()?.saturating_add(PATIENCE_NS))
    }
}
