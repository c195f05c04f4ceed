// SPDX-License-Identifier: Apache-2.0
//! Limits how often a user's events of one kind are published: all of the first, then one at each doubling of their
//! number, and at the end of the minute the number that was left out. Kills are always published.
//!
//! Otherwise a user with many events fills the log files and everybody's `partage events`.

use std::collections::BTreeMap;

use partage_protocol::units::SECOND_NS;

/// Events of one user and kind that are published within one [`COUNTED_NS`] before they are counted only.
pub const FREE: u64 = 256;
/// After this long the counting begins anew.
pub const COUNTED_NS: u64 = 60 * SECOND_NS;
/// Users and kinds that are counted at a time.
const COUNTED: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Count {
    since_ns: u64,
    count: u64,
    unsaid: u64,
}

impl Count {
    fn end_ns(&self) -> u64 {
        self.since_ns.saturating_add(COUNTED_NS)
    }
}

/// Events of one user and kind that were counted only, in a window that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsaid {
    /// The user; none for events of no user.
    pub uid: Option<u32>,
    /// The kind.
    pub kind: String,
    /// Their number.
    pub count: u64,
}

/// Nobody's process is killed without a word.
#[must_use]
pub fn is_always_said(kind: &str) -> bool {
    matches!(
        kind,
        "strict-kill" | "drift-killed" | "unmanaged-killed" | "kill-failed"
    )
}

/// The counts.
#[derive(Debug, Default)]
pub struct Flood {
    counts: BTreeMap<(Option<u32>, String), Count>,
    /// When the first window ends in which something was not said.
    due_ns: Option<u64>,
}

impl Flood {
    /// Counts an event. `None`: it is not said; else its number within the window.
    pub fn count(&mut self, uid: Option<u32>, kind: &str, now_ns: u64) -> Option<u64> {
        let is_over = |count: &Count| now_ns >= count.end_ns();
        if self.counts.len() >= COUNTED {
            self.counts.retain(|_, count| !is_over(count));
        }
        let new = Count {
            since_ns: now_ns,
            count: 0,
            unsaid: 0,
        };
        let count = self.counts.entry((uid, kind.to_owned())).or_insert(new);
        if is_over(count) {
            *count = new;
        }
        count.count += 1;
        if count.count <= FREE || count.count.is_power_of_two() || is_always_said(kind) {
            return Some(count.count);
        }
        count.unsaid += 1;
        let end_ns = count.end_ns();
        self.due_ns = Some(self.due_ns.map_or(end_ns, |due| due.min(end_ns)));
        None
    }

    /// When [`Flood::ended`] has something to say.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// What was not said in windows that are over, once. Before each [`Flood::count`].
    pub fn ended(&mut self, now_ns: u64) -> Vec<Unsaid> {
        let mut ended = Vec::new();
        if self.due_ns.is_none_or(|due| now_ns < due) {
            return ended;
        }
        self.counts.retain(|(uid, kind), count| {
            let is_over = now_ns >= count.end_ns();
            if is_over && count.unsaid > 0 {
                ended.push(Unsaid {
                    uid: *uid,
                    kind: kind.clone(),
                    count: count.unsaid,
                });
            }
            !is_over
        });
        let left = self.counts.values().filter(|count| count.unsaid > 0);
        self.due_ns = left.map(Count::end_ns).min();
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_said_by_doubling_and_harms_no_other_user_kind_or_minute() {
        let mut flood = Flood::default();
        let said = (0..1_000_000)
            .filter_map(|_| flood.count(Some(5), "notice", 7))
            .collect::<Vec<_>>();
        assert_eq!(said.len() as u64, FREE + 11, "512 to 524288");
        assert_eq!(said.last(), Some(&524_288));
        assert_eq!(flood.count(Some(6), "notice", 7), Some(1));
        assert_eq!(flood.count(None, "notice", 7), Some(1));
        assert_eq!(flood.count(Some(5), "job-ended", 7), Some(1));
        assert_eq!(flood.count(Some(5), "notice", 7 + COUNTED_NS), Some(1));
    }

    #[test]
    fn what_was_not_said_is_counted_once_when_its_minute_is_over() {
        let mut flood = Flood::default();
        let said = (0..300).filter_map(|_| flood.count(Some(5), "job-ended", 7)).count();
        flood.count(Some(6), "job-ended", 7);
        assert_eq!((said as u64, flood.due_ns()), (FREE, Some(7 + COUNTED_NS)));
        assert_eq!(flood.ended(6 + COUNTED_NS), []);
        let unsaid = Unsaid {
            uid: Some(5),
            kind: "job-ended".to_owned(),
            count: 300 - FREE,
        };
        assert_eq!(flood.ended(7 + COUNTED_NS), [unsaid]);
        assert_eq!((flood.ended(8 + COUNTED_NS), flood.due_ns()), (Vec::new(), None));
        assert_eq!(flood.count(Some(5), "job-ended", 8 + COUNTED_NS), Some(1));
    }

    #[test]
    fn a_kill_is_always_said() {
        let mut flood = Flood::default();
        for kind in ["strict-kill", "drift-killed", "unmanaged-killed"] {
            assert!((0..1_000).all(|_| flood.count(Some(5), kind, 7).is_some()), "{kind}");
        }
        assert_eq!(flood.due_ns(), None);
    }
}
