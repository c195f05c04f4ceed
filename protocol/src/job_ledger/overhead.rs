// SPDX-License-Identifier: Apache-2.0
//! What the driver holds for a member beyond its charges: O.

use super::{JobLedger, Pages, Verdict};
use crate::reservation::Word;
use crate::units::ClientId;

impl JobLedger {
    /// What the driver holds for a member beyond its charges was measured. More of it is exactly like a lowered limit,
    /// less of it like a raised one.
    pub fn set_overhead<P: Pages>(&mut self, pages: &P, client: ClientId, bytes: u64, now_ns: u64) {
        if !self.members.contains_key(&client) {
            return;
        }
        let Some(words) = pages.words(client) else { return };
        // Of a client that is away P says what it takes; of one that comes back L does until P is 0.
        if words.overhead.load() != bytes && words.owed.load() == 0 {
            words.overhead.store(bytes);
            self.rebalance(pages, now_ns);
        }
    }

    /// Raises a member's overhead to `bytes` if the job has room for it and the member's own limit allows it, taking
    /// slack back from everybody as an ask does.
    pub fn reserve_overhead<P: Pages>(&mut self, pages: &P, client: ClientId, bytes: u64, now_ns: u64) -> Verdict {
        let Some(words) = pages.words(client).filter(|_| self.members.contains_key(&client)) else {
            return Verdict::Invalid;
        };
        let growth = bytes.saturating_sub(words.overhead.load());
        if growth == 0 {
            return Verdict::Granted;
        }
        if words.owed.load() != 0 {
            return Verdict::Retry;
        }
        // Its own limit first, which no room of the job's cures; and last, because room of the job's may have raised L.
        let mut verdict = self.make_own_room(pages, client, bytes, now_ns);
        if verdict == Verdict::Granted {
            verdict = self.make_room(pages, growth, now_ns);
        }
        if verdict == Verdict::Granted {
            verdict = self.make_own_room(pages, client, bytes, now_ns);
        }
        if verdict == Verdict::Granted {
            words.overhead.store(bytes);
        }
        verdict
    }
}
