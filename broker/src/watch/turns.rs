// SPDX-License-Identifier: Apache-2.0
//! How long the loop's turns take: the longest of late.

use partage_protocol::units::SECOND_NS;

/// The longest turn is kept for one to two of these.
const SPAN_NS: u64 = 60 * SECOND_NS;

/// The longest turns of this span and of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turns {
    since_ns: u64,
    now_ns: u64,
    before_ns: u64,
}

impl Turns {
    /// A turn is over that took so long.
    pub(super) fn note(&mut self, took_ns: u64, now_ns: u64) {
        let spans = now_ns.saturating_sub(self.since_ns) / SPAN_NS;
        if spans > 0 {
            self.before_ns = if spans == 1 { self.now_ns } else { 0 };
            self.now_ns = 0;
            self.since_ns = now_ns - now_ns.saturating_sub(self.since_ns) % SPAN_NS;
        }
        self.now_ns = self.now_ns.max(took_ns);
    }

    /// The longest turn.
    pub(super) fn longest_ns(&self) -> u64 {
        self.now_ns.max(self.before_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_turn_is_remembered_for_a_minute_at_least() {
        let mut turns = Turns::default();
        let second = |count: u64| count * SECOND_NS;
        turns.note(5, second(1));
        turns.note(90, second(59));
        turns.note(7, second(61));
        assert_eq!(turns.longest_ns(), 90);
        turns.note(3, second(119));
        assert_eq!(turns.longest_ns(), 90, "a minute after it");
        turns.note(3, second(121));
        assert_eq!(turns.longest_ns(), 7);
        turns.note(2, second(1_000));
        assert_eq!(turns.longest_ns(), 2, "none of long ago");
    }
}
