// SPDX-License-Identifier: Apache-2.0
//! Questions that found no room while clients of the broker before are awaited: not decided yet.
//!
//! A client that has not come back counts with its whole grant, most of which it may not use: whether there is room is
//! not known yet. A *no* would be an out-of-memory error that a program may not survive. So the question is answered
//! when the awaited clients are back, or are awaited no longer ([`ADOPTION_NS`](super::ADOPTION_NS)). A library waits
//! 3 s for an answer and then denies by itself; a late answer does no harm.

use partage_protocol::job_ledger::Verdict;
use partage_protocol::units::JobId;

use super::Policy;
use crate::machine::Machine;
use crate::question::Question;

impl Policy {
    /// Is it unknown whether there is room, because a client is awaited that counts with its whole grant? For a limit
    /// the job's own clients count, for the device those of every job.
    pub(crate) fn is_undecided(&self, job: JobId, slot: usize, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Limit => self.is_awaiting(job),
            Verdict::CardFull { .. } => {
                let device = self.slot_device(job, slot);
                device.is_some_and(|(device, _)| self.is_adopting(device))
            }
            Verdict::Granted | Verdict::Retry | Verdict::Invalid => false,
        }
    }

    /// Asks the kept questions again; one that is still undecided is kept again.
    pub(crate) fn ask_again<M: Machine>(&mut self, machine: &M, now_ns: u64) {
        for (client, question) in self.undecided.take() {
            match question {
                Question::Ask {
                    slot,
                    sequence,
                    wanted,
                    request,
                } => self.ask((client, slot, sequence), (wanted, request), machine, now_ns),
                Question::Announcement { slot, sequence } => {
                    self.announce((client, slot, sequence), machine, now_ns);
                }
            }
        }
    }
}
