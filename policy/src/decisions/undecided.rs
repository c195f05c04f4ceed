// SPDX-License-Identifier: Apache-2.0
//! Questions that found no room and are not decided yet: the room may be there in a moment.
//!
//! A *no* would be an out-of-memory error that a program may not survive. It is not said at once in two cases.
//! - Clients of the broker before are awaited: one that has not come back counts with its whole grant, most of which it
//!   may not use.
//! - Processes end: what they hold counts until the driver has freed it (`books/room/dying.rs`). Whether a process has
//!   ended that nobody noticed yet is looked at first: the asker may have waited for that very end.
//!
//! The question is asked again when that changes, and after [`PATIENCE_NS`] in any case: a library waits 3 s for an
//! answer, and then takes the broker for silent. Others do not wait behind it. A request that has no room either way is
//! denied at once.

use partage_protocol::job_ledger::Verdict;
use partage_protocol::units::{ClientId, JobId};

use super::Policy;
use crate::action::Action;
use crate::books::PATIENCE_NS;
use crate::machine::Machine;
use crate::question::{AskedAt, Awaited, Kept, Question};

/// Where and when a client asked for how many bytes more.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) job: JobId,
    pub(crate) slot: usize,
    pub(crate) more: u64,
    pub(crate) at: AskedAt,
}

impl Policy {
    /// Keeps a question that may find room in a moment. `false`: the verdict stands.
    pub(crate) fn keep_undecided<M: Machine>(
        &mut self,
        (client, question): (ClientId, Question),
        asked: Asked,
        verdict: Verdict,
        machine: &M,
        now_ns: u64,
    ) -> bool {
        let Asked { job, slot, more, at } = asked;
        let device = self.slot_device(job, slot).map(|(device, _)| device);
        let back = match verdict {
            Verdict::Limit => Awaited::OfJob(job),
            Verdict::CardFull { .. } if device.is_some() => device.map_or(Awaited::OfJob(job), Awaited::OnDevice),
            _ => return false,
        };
        let until_ns = at.ns.saturating_add(PATIENCE_NS);
        if now_ns >= until_ns {
            return false;
        }
        let awaited = if self.is_awaited(back) && self.is_within_limit(job, slot, more, machine) {
            back
        } else if self.fits_once_gone(&self.soon_gone(now_ns), (job, slot, more), machine) {
            Awaited::Dying
        } else {
            let looked_at = self.perhaps_ended(client, back, machine);
            let gone = self
                .books
                .clients
                .dying()
                .into_iter()
                .chain(looked_at.iter().copied())
                .collect();
            if at.is_searched || looked_at.is_empty() || !self.fits_once_gone(&gone, (job, slot, more), machine) {
                return false;
            }
            let action = Action::FindEnded { client, looked_at };
            self.act(action);
            Awaited::Search
        };
        self.books.undecided.keep(Kept {
            client,
            question,
            at,
            awaited,
        });
        // Not by a look at everything that may be due: asks are frequent.
        self.bring_forward(until_ns);
        true
    }

    /// Asks the kept questions again that may find room now, or that have waited long enough.
    pub(crate) fn ask_again<M: Machine>(&mut self, machine: &M, now_ns: u64) {
        let mut awaited: Vec<Awaited> = Vec::new();
        for of in self.books.undecided.awaited() {
            if !awaited.contains(&of) && self.is_awaited(of) {
                awaited.push(of);
            }
        }
        let is_some_freed = self.books.undecided.take_freed();
        let is_over = |kept: &Kept| now_ns >= kept.at.ns.saturating_add(PATIENCE_NS);
        let may_fit =
            |kept: &Kept| !awaited.contains(&kept.awaited) || (is_some_freed && kept.awaited == Awaited::Dying);
        for kept in self.books.undecided.take(|kept| is_over(kept) || may_fit(kept)) {
            self.ask_once_more(kept, machine, now_ns);
        }
    }

    /// The processes that may have ended unnoticed were looked at.
    pub(crate) fn ask_searched<M: Machine>(&mut self, client: ClientId, machine: &M, now_ns: u64) {
        let is_meant = |kept: &Kept| kept.client == client && kept.awaited == Awaited::Search;
        for kept in self.books.undecided.take(is_meant) {
            self.ask_once_more(kept.searched(), machine, now_ns);
        }
    }

    fn ask_once_more<M: Machine>(&mut self, kept: Kept, machine: &M, now_ns: u64) {
        let Kept { client, at, .. } = kept;
        match kept.question {
            Question::Ask {
                slot,
                sequence,
                wanted,
                request,
            } => self.ask((client, slot, sequence), (wanted, request), at, machine, now_ns),
            Question::Announcement { slot, sequence } => self.announce((client, slot, sequence), at, machine, now_ns),
        }
    }
}
