// SPDX-License-Identifier: Apache-2.0
//! What a job could hold at the most, and why it cannot hold more.

use std::collections::BTreeSet;

use super::{JobLedger, Pages, Verdict};
use crate::reservation::Word;
use crate::units::ClientId;

impl JobLedger {
    /// What must not be taken from the job now: what its members use or were just granted, and the overhead. Those who
    /// are `gone` count as if they were.
    pub fn floor_sum<P: Pages>(&self, pages: &P, now_ns: u64, gone: &BTreeSet<ClientId>) -> u64 {
        let members = self.look(pages, now_ns, None);
        let here = members.iter().filter(|member| !gone.contains(&member.client));
        here.fold(self.overhead_without(pages, gone), |sum: u64, member| {
            sum.saturating_add(member.floor)
        })
    }

    /// What the job holds once it has `more` bytes, if those who are `gone` were, and every member whose pages are not
    /// here used nothing of its grant. `None`: more than its limit.
    pub fn total_with<P: Pages>(&self, pages: &P, more: u64, now_ns: u64, gone: &BTreeSet<ClientId>) -> Option<u64> {
        let members = self.look(pages, now_ns, None);
        let here = members
            .iter()
            .filter(|member| member.is_reachable && !gone.contains(&member.client));
        let floors: u128 = here.map(|member| u128::from(member.floor)).sum();
        let all = floors + u128::from(more) + u128::from(self.overhead_without(pages, gone));
        let within = u64::try_from(all).ok().filter(|all| *all <= self.limit);
        within.filter(|_| !self.is_barred)
    }

    fn overhead_without<P: Pages>(&self, pages: &P, gone: &BTreeSet<ClientId>) -> u64 {
        let here = self.members.keys().filter(|client| !gone.contains(client));
        here.fold(0, |sum: u64, client| {
            sum.saturating_add(pages.words(*client).map_or(0, |words| words.overhead.load()))
        })
    }

    /// Why `total` more than the overhead cannot be held.
    pub(super) fn denial<P: Pages>(&self, pages: &P, total: u128) -> Verdict {
        let all = total + u128::from(self.overhead_sum(pages));
        if self.is_barred || all > u128::from(self.limit) {
            return Verdict::Limit;
        }
        // Within the limit, so both fit 64 bits.
        Verdict::CardFull {
            short_by: (all as u64).saturating_sub(self.limit.min(self.ceiling)),
        }
    }
}
