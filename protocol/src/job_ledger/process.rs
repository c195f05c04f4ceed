// SPDX-License-Identifier: Apache-2.0
//! The limit of one member, beside the job's.
//!
//! Invariant: L + O of a member with a limit of its own is at most that limit, unless the limit fell below it or its
//! overhead grew; then it is frozen, and L only falls until it holds again. Its siblings notice nothing: what it may
//! not hold is theirs.

use super::{JobLedger, Pages, Verdict, Words};
use crate::reservation::{self, Word};
use crate::units::ClientId;

impl JobLedger {
    /// The most that one client may hold, O included; none is the job's limit alone. May be said before the client
    /// attaches, and is forgotten with its death. Below use it keeps what it uses and gets nothing more.
    pub fn set_own_limit<P: Pages>(&mut self, pages: &P, client: ClientId, limit: Option<u64>, now_ns: u64) {
        if self.own_limit(client) == limit {
            return;
        }
        match limit {
            Some(limit) => self.own_limits.insert(client, limit),
            None => self.own_limits.remove(&client),
        };
        if self.members.contains_key(&client) {
            self.rebalance(pages, now_ns);
        }
    }

    /// The limit of one client beside the job's.
    #[must_use]
    pub fn own_limit(&self, client: ClientId) -> Option<u64> {
        self.own_limits.get(&client).copied()
    }

    /// Does a member hold more than its own limit allows? Then it is frozen, and [`JobLedger::rebalance`] follows its
    /// falling use.
    pub fn is_any_beyond_own<P: Pages>(&self, pages: &P) -> bool {
        self.own_limits.keys().any(|client| self.is_beyond_own(pages, *client))
    }

    fn is_beyond_own<P: Pages>(&self, pages: &P, client: ClientId) -> bool {
        if !self.own_limits.contains_key(&client) {
            return false;
        }
        let words = pages.words(client).filter(|_| self.members.contains_key(&client));
        // Of a member that is away P says what it has.
        words.is_some_and(|words| words.owed.load() == 0 && words.ledger.load() > self.most(client, &words))
    }

    /// What L of a client may be: what its own limit leaves beside its overhead.
    pub(super) fn most<W: Word>(&self, client: ClientId, words: &Words<'_, W>) -> u64 {
        self.own_limit(client)
            .map_or(u64::MAX, |limit| limit.saturating_sub(words.overhead.load()))
    }

    pub(super) fn most_of<P: Pages>(&self, pages: &P, client: ClientId) -> u64 {
        pages.words(client).map_or(u64::MAX, |words| self.most(client, &words))
    }

    /// Freezes a member that holds more than its own limit allows: L follows its use down. Answers whether it still
    /// does.
    pub(super) fn freeze_beyond_own<P: Pages>(&self, pages: &P, client: ClientId) -> bool {
        if self.is_beyond_own(pages, client)
            && let Some(words) = pages.words(client)
            && let Some(shared) = words.shared
        {
            reservation::freeze(words.ledger, shared.granted, shared.used);
        }
        self.is_beyond_own(pages, client)
    }

    /// Lowers a member's L until its overhead can become `bytes` within its own limit. On [`Verdict::Granted`] it can.
    pub(super) fn make_own_room<P: Pages>(&self, pages: &P, client: ClientId, bytes: u64, now_ns: u64) -> Verdict {
        let (Some(limit), Some(words)) = (self.own_limit(client), pages.words(client)) else {
            return Verdict::Granted;
        };
        let most = limit.saturating_sub(bytes);
        if bytes <= limit && words.ledger.load() <= most {
            return Verdict::Granted;
        }
        let Some(member) = self
            .look(pages, now_ns, None)
            .into_iter()
            .find(|seen| seen.client == client)
        else {
            return Verdict::Invalid;
        };
        if bytes > limit || member.floor > most {
            return if member.is_moving {
                Verdict::Retry
            } else {
                Verdict::ProcessLimit
            };
        }
        self.lower(pages, &member, most);
        if words.ledger.load() <= most {
            Verdict::Granted
        } else {
            Verdict::Retry
        }
    }
}
