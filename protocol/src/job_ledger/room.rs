// SPDX-License-Identifier: Apache-2.0
//! What a job could hold at the most, and why it cannot hold more.

use super::{JobLedger, Pages, Verdict};

impl JobLedger {
    /// What must not be taken from the job now: what its members use or were just granted, and the overhead.
    pub fn floor_sum<P: Pages>(&self, pages: &P, now_ns: u64) -> u64 {
        let members = self.look(pages, now_ns, None);
        members.iter().fold(self.overhead_sum(pages), |sum: u64, member| {
            sum.saturating_add(member.floor)
        })
    }

    /// Could the job hold `more` bytes beside what its members use and the overhead, if every member whose pages are
    /// not here used nothing of its grant?
    pub fn may_fit<P: Pages>(&self, pages: &P, more: u64, now_ns: u64) -> bool {
        let members = self.look(pages, now_ns, None);
        let here = members.iter().filter(|member| member.is_reachable);
        let floors: u128 = here.map(|member| u128::from(member.floor)).sum();
        let all = floors + u128::from(more) + u128::from(self.overhead_sum(pages));
        !self.is_barred && all <= u128::from(self.limit)
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
