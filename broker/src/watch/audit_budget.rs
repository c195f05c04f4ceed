// SPDX-License-Identifier: Apache-2.0
//! How much of the audit log each user's own changes may fill: [`AT_ONCE`] bytes, and [`A_DAY`] more a day. What is
//! beyond is counted, and the count is a line of the log: at the first such change, at each doubling, and before the
//! next change that is written.
//!
//! Otherwise a user with many changes would push everybody else's out of files of bounded size. The lines with counts
//! are charged too, so that the bound holds whatever a user does.

use std::collections::BTreeMap;

/// Bytes of changes that a user may make at once: some thousand.
pub const AT_ONCE: u64 = 256 << 10;
/// Bytes of changes that a user may make a day beyond these.
pub const A_DAY: u64 = 1 << 20;
/// Users that are counted apart at a time; more share one budget.
pub const USERS: usize = 1024;

const DAY_NS: u64 = 24 * 3600 * 1_000_000_000;
/// For so long a byte counts, in nanoseconds: 82 ms.
const BYTE_NS: u64 = DAY_NS / A_DAY;

#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    /// When all of it is there again (a virtual scheduling time: what is spent lies between now and then).
    whole_at_ns: u64,
    /// Changes that were left out since the last one that was written.
    left_out: u64,
}

/// Is a change written?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Yes; before it this many were left out.
    Yes(u64),
    /// No. With a number a line says that so many were left out until now.
    No(Option<u64>),
}

/// The budgets of all users.
#[derive(Debug, Default)]
pub struct Budgets {
    of: BTreeMap<Option<u32>, Budget>,
}

impl Budgets {
    /// A change of this user's takes `bytes`. `now_ns` is monotonic time.
    pub fn ask(&mut self, uid: u32, bytes: u64, now_ns: u64) -> Room {
        let budget = self.of(uid, now_ns);
        let spent_ns = budget.whole_at_ns.saturating_sub(now_ns);
        if spent_ns + bytes.saturating_mul(BYTE_NS) <= AT_ONCE * BYTE_NS {
            return Room::Yes(std::mem::take(&mut budget.left_out));
        }
        budget.left_out += 1;
        Room::No(budget.left_out.is_power_of_two().then_some(budget.left_out))
    }

    /// So many bytes of this user's were written.
    pub fn charge(&mut self, uid: u32, bytes: u64, now_ns: u64) {
        let budget = self.of(uid, now_ns);
        let spent_ns = budget.whole_at_ns.saturating_sub(now_ns);
        budget.whole_at_ns = now_ns
            .saturating_add(spent_ns)
            .saturating_add(bytes.saturating_mul(BYTE_NS));
    }

    fn of(&mut self, uid: u32, now_ns: u64) -> &mut Budget {
        if self.of.len() >= USERS && !self.of.contains_key(&Some(uid)) {
            self.of
                .retain(|uid, budget| uid.is_none() || budget.whole_at_ns > now_ns || budget.left_out > 0);
        }
        let is_full = self.of.len() >= USERS && !self.of.contains_key(&Some(uid));
        self.of.entry((!is_full).then_some(uid)).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one user writes who changes something each `pause_ns` for `length_ns`: bytes.
    fn written(budgets: &mut Budgets, uid: u32, pause_ns: u64, length_ns: u64) -> u64 {
        const LINE: u64 = 300;
        let (mut now_ns, mut all) = (7, 0);
        while now_ns < length_ns {
            let lines = match budgets.ask(uid, LINE, now_ns) {
                Room::Yes(0) => 1,
                Room::Yes(_) => 2,
                Room::No(said) => u64::from(said.is_some()),
            };
            budgets.charge(uid, lines * LINE, now_ns);
            all += lines * LINE;
            now_ns += pause_ns;
        }
        all
    }

    #[test]
    fn a_user_fills_no_more_a_day_than_the_budget_whatever_its_pace() {
        // From a hundred changes a second to one in five minutes.
        for pause_ms in [10, 1_000, 24_000, 25_000, 60_000, 300_000] {
            let all = written(&mut Budgets::default(), 5, pause_ms * 1_000_000, 3 * DAY_NS);
            // The last count may come when nothing is left.
            assert!(all <= AT_ONCE + 3 * A_DAY + 64 * 300, "{pause_ms} ms: {all} bytes");
        }
        // Who stays within it loses nothing.
        let mut budgets = Budgets::default();
        for now_ns in (0..3 * DAY_NS).step_by(60_000_000_000) {
            assert_eq!(budgets.ask(5, 300, now_ns), Room::Yes(0), "{now_ns}");
            budgets.charge(5, 300, now_ns);
        }
    }

    #[test]
    fn what_is_left_out_is_counted_by_doubling_and_before_the_next_line() {
        let mut budgets = Budgets::default();
        budgets.charge(5, AT_ONCE, 0);
        let said: Vec<u64> = (0..1000)
            .filter_map(|_| match budgets.ask(5, 300, 1) {
                Room::No(said) => said,
                Room::Yes(_) => panic!("there is no room"),
            })
            .collect();
        assert_eq!(said, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert_eq!(budgets.ask(6, 300, 1), Room::Yes(0), "another user");
        assert_eq!(budgets.ask(5, 300, DAY_NS), Room::Yes(1000));
        assert_eq!(budgets.ask(5, 300, DAY_NS), Room::Yes(0), "said once");
    }

    #[test]
    fn users_without_number_share_one_budget_and_take_none_from_those_before() {
        let mut budgets = Budgets::default();
        let mut all = 0;
        for uid in 0..100_000 {
            if let Room::Yes(_) = budgets.ask(uid, AT_ONCE, 1) {
                budgets.charge(uid, AT_ONCE, 1);
                all += 1;
            }
        }
        assert_eq!((all, budgets.of.len()), (USERS as u64 + 1, USERS + 1));
        // Their time is over: there is room for others.
        assert_eq!(budgets.ask(200_000, AT_ONCE, DAY_NS), Room::Yes(0));
    }
}
