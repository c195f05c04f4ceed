// SPDX-License-Identifier: Apache-2.0
//! How often one user's events of one kind are said: all of the first, then each time that their number has doubled.
//!
//! Whoever makes many events fills the log files and everybody's `partage events` otherwise.

use std::collections::BTreeMap;

use partage_protocol::units::SECOND_NS;

/// Events of one user and kind that are said within one [`WINDOW_NS`] before they are counted only.
pub const FREE: u64 = 256;
/// After this long the counting begins anew.
pub const WINDOW_NS: u64 = 60 * SECOND_NS;
/// Users and kinds that are counted at a time.
const COUNTED: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Count {
    since_ns: u64,
    count: u64,
}

/// The counts.
#[derive(Debug, Default)]
pub struct Flood {
    counts: BTreeMap<(Option<u32>, String), Count>,
}

impl Flood {
    /// Counts an event. `None`: it is not said; else its number within the window.
    pub fn count(&mut self, uid: Option<u32>, kind: &str, now_ns: u64) -> Option<u64> {
        let is_over = |count: &Count| now_ns >= count.since_ns.saturating_add(WINDOW_NS);
        if self.counts.len() >= COUNTED {
            self.counts.retain(|_, count| !is_over(count));
        }
        let new = Count {
            since_ns: now_ns,
            count: 0,
        };
        let count = self.counts.entry((uid, kind.to_owned())).or_insert(new);
        if is_over(count) {
            *count = new;
        }
        count.count += 1;
        (count.count <= FREE || count.count.is_power_of_two()).then_some(count.count)
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
        assert_eq!(flood.count(Some(5), "notice", 7 + WINDOW_NS), Some(1));
    }
}
