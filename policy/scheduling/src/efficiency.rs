// SPDX-License-Identifier: Apache-2.0
//! What of the time in which clients were seen to have work was work of theirs. The rest went to switching between
//! contexts, to processes that nobody sees, to a device that is slower than the clock.
//!
//! Samples cannot tell. But where the time of one client is known, and that of another beside it is not, the first was
//! sampled, too: the samples of the second hold as much that was no work.
//!
//! The device serves those who have work in rounds: a slice of each, and switches between. Compared are whole rounds, from
//! the beginning of one slice of the client whose time is known to that of a later one: elsewhere one of the two would
//! have a slice more than the other. Rounds that differ from the others say nothing of what switching takes: in them
//! somebody had nothing to do for a moment and gave his slice up, and what he did not have the others had.
//!
//! That a slice began is seen as the unit retires that the one before cut, of which any part may have been in that. Units
//! and slices can be of such lengths that it is always the same part. So that this is never taken for a difference, as many
//! rounds are compared at once as make it little.

/// At least so many rounds are compared at once: what a look sees too late at the beginning of the first and at the end of
/// the last is little beside four slices.
const ROUNDS: u32 = 4;
/// And at least so many times the longest unit that a slice cut: half of one is less than [`LIKE_PPM`] of these.
const UNITS: i64 = 20;
/// Where enough was compared, rounds say something if they differ by no more than this from it.
const LIKE_PPM: i64 = 30_000;
/// So much compared is enough, in sampled nanoseconds. If so much is unlike it, but could be right, it begins anew.
const FEW_NS: i64 = 100_000_000;
/// Half of what was compared is forgotten whenever it is so much, sampled.
const MOST_NS: i64 = 4_000_000_000;
/// What was compared longer ago was beside others. Who pauses for a while finds it again: it is what the device takes to
/// switch, whoever has it.
const LASTS_NS: u64 = 10_000_000_000;
/// Switching, and a device that is slower than the clock, take no more of the time than this. Where samples are further off,
/// slices are not even.
const MOST_OFF_PPM: i64 = 50_000;
const PPM: i64 = 1_000_000;

/// Device time of one client's work: what is known of it, and as samples had it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    pub known_ns: i64,
    pub sampled_ns: i64,
}

impl Compared {
    pub fn add(&mut self, more: Self) {
        self.known_ns = self.known_ns.saturating_add(more.known_ns);
        self.sampled_ns = self.sampled_ns.saturating_add(more.sampled_ns);
    }

    /// What is known in ppm of what was sampled.
    fn ppm(&self) -> Option<i64> {
        if self.sampled_ns <= 0 {
            return None;
        }
        let ppm = i128::from(self.known_ns) * i128::from(PPM) / i128::from(self.sampled_ns);
        i64::try_from(ppm).ok()
    }
}

/// A client's work in the rounds since one of its slices began, while always as many clients have work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    compared: Compared,
    ended: u32,
    /// The most that retired as a slice began.
    unit_ns: i64,
}

impl Rounds {
    /// From the beginning of a slice on, at which so much retired.
    pub fn new(unit_ns: i64) -> Self {
        Self {
            compared: Compared::default(),
            ended: 0,
            unit_ns,
        }
    }

    /// Takes over what retired since something last did. `is_next`: with it another slice of the client began. Answers what
    /// was compared in whole rounds, if those are enough.
    pub fn add(&mut self, more: Compared, is_next: bool) -> Option<Compared> {
        self.compared.add(more);
        if !is_next {
            return None;
        }
        self.ended += 1;
        self.unit_ns = self.unit_ns.max(more.known_ns);
        let is_enough = self.ended >= ROUNDS && self.compared.known_ns >= self.unit_ns.saturating_mul(UNITS);
        is_enough.then(|| std::mem::replace(self, Self::new(more.known_ns)).compared)
    }
}

/// Of one device, now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Efficiency {
    /// Of the last [`MOST_NS`] of such work.
    lately: Compared,
    /// What was unlike that and could be right, less what was like it since, in sampled nanoseconds.
    unlike_ns: i64,
    learnt_ns: u64,
}

impl Efficiency {
    /// Takes over what was compared up to `now`, if it is like what was compared before.
    pub fn learn(&mut self, compared: Compared, now: u64) {
        let differs = |ppm: i64, by: i64| compared.ppm().is_none_or(|own| own.abs_diff(ppm) > by.unsigned_abs());
        if differs(PPM, MOST_OFF_PPM) {
            return;
        }
        let usual = self.lately.ppm().filter(|_| self.lately.sampled_ns >= FEW_NS);
        if usual.is_some_and(|usual| differs(usual, LIKE_PPM)) {
            self.unlike_ns = self.unlike_ns.saturating_add(compared.sampled_ns);
            if self.unlike_ns <= FEW_NS {
                return;
            }
            *self = Self::default();
        }
        self.unlike_ns = self.unlike_ns.saturating_sub(compared.sampled_ns).max(0);
        self.lately.add(compared);
        self.learnt_ns = now;
        if self.lately.sampled_ns > MOST_NS {
            self.lately.known_ns /= 2;
            self.lately.sampled_ns /= 2;
        }
    }

    /// Forgets what was compared too long ago.
    pub fn expire(&mut self, now: u64) {
        if now.saturating_sub(self.learnt_ns) > LASTS_NS {
            *self = Self::default();
        }
    }

    /// Whether it says anything.
    pub fn is_known(&self) -> bool {
        self.ppm().is_some()
    }

    /// What so many sampled nanoseconds are taken to have been of work; all of it if that is not known.
    pub fn of(&self, sampled_ns: i64) -> i64 {
        let Some(ppm) = self.ppm() else { return sampled_ns };
        let ns = i128::from(sampled_ns) * i128::from(ppm.min(PPM)) / i128::from(PPM);
        i64::try_from(ns).unwrap_or(sampled_ns)
    }

    fn ppm(&self) -> Option<i64> {
        let is_meant = |ppm: &i64| (PPM - MOST_OFF_PPM..=PPM + MOST_OFF_PPM).contains(ppm);
        self.lately.ppm().filter(is_meant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn compared(known_ms: i64, sampled_ms: i64) -> Compared {
        Compared {
            known_ns: known_ms * MS,
            sampled_ns: sampled_ms * MS,
        }
    }

    #[test]
    fn samples_are_worth_what_they_were_of_those_who_are_known() {
        let mut efficiency = Efficiency::default();
        assert!(!efficiency.is_known());
        assert_eq!(efficiency.of(1_000), 1_000);
        efficiency.learn(compared(99, 100), 0);
        assert!(efficiency.is_known());
        assert_eq!((efficiency.of(1_000), efficiency.of(-1_000)), (990, -990));
        assert_eq!(efficiency.of(i64::MAX), i64::MAX / 100 * 99 + 6);
    }

    #[test]
    fn nothing_is_worth_more_than_itself_and_uneven_slices_say_nothing() {
        for (known, of_thousand) in [
            (0, None),
            (94, None),
            (95, Some(950)),
            (100, Some(1_000)),
            (105, Some(1_000)),
            (106, None),
        ] {
            let mut efficiency = Efficiency::default();
            efficiency.learn(compared(known, 100), 0);
            assert_eq!(
                efficiency.is_known().then(|| efficiency.of(1_000)),
                of_thousand,
                "{known}"
            );
            assert_eq!(efficiency.of(1_000), of_thousand.unwrap_or(1_000), "{known}");
        }
    }

    /// Ten milliseconds of which so many thousandths were work.
    fn rounds(known: i64) -> Compared {
        Compared {
            known_ns: known * 10_000,
            sampled_ns: 10 * MS,
        }
    }

    #[test]
    fn rounds_unlike_the_others_change_nothing() {
        let mut efficiency = Efficiency::default();
        efficiency.learn(compared(98, 100), 0);
        for known in [0, 900, 949, 1_011, 10_000] {
            efficiency.learn(rounds(known), 1);
            assert_eq!(efficiency.of(1_000), 980, "{known}");
        }
        efficiency.learn(compared(96, 100), 1);
        assert_eq!(efficiency.of(1_000), 970);
        // Of the first few it is not known which are like the others.
        let mut efficiency = Efficiency::default();
        for known in [960, 1_040, 960, 1_040, 960, 1_040, 960, 1_040, 960, 1_040] {
            efficiency.learn(rounds(known), 0);
        }
        assert_eq!(efficiency.lately, compared(100, 100));
        efficiency.learn(rounds(1_040), 0);
        assert_eq!(efficiency.lately, compared(100, 100));
    }

    #[test]
    fn what_was_wrong_does_not_stay() {
        for first in [955, 1_045] {
            let mut efficiency = Efficiency::default();
            (0..20).for_each(|_| efficiency.learn(rounds(first), 0));
            // Ten are forgotten, one makes it begin anew.
            (0..12).for_each(|_| efficiency.learn(rounds(990), 1));
            assert_eq!(efficiency.of(1_000), 990);
        }
        // What is unlike the most is not more than that.
        let mut efficiency = Efficiency::default();
        for at in 0..1_000 {
            efficiency.learn(rounds(if at % 3 == 2 && at > 20 { 955 } else { 990 }), at);
            let worth = efficiency.of(1_000);
            assert!((989..=990).contains(&worth), "{worth}");
        }
    }

    #[test]
    fn what_was_compared_last_counts_most_and_not_for_ever() {
        let mut efficiency = Efficiency::default();
        (0..100).for_each(|at| efficiency.learn(compared(10, 10), at));
        (0..100).for_each(|at| efficiency.learn(compared(98, 100), at));
        let worth = efficiency.of(1_000);
        assert!((980..=981).contains(&worth), "{worth}");
        efficiency.expire(99 + LASTS_NS);
        assert_eq!(efficiency.of(1_000), worth);
        efficiency.expire(100 + LASTS_NS);
        assert!(!efficiency.is_known());
    }

    #[test]
    fn whole_rounds_are_taken_at_once_if_they_are_enough() {
        for (at_next, rounds) in [(1, 4), (2, 4), (3, 6), (10, 20)] {
            let mut sum = Rounds::new(0);
            for at in 1..=60 {
                // A slice of ten, of which so much retires at its beginning.
                let found = sum.add(compared(10 - at_next, 8), false);
                assert_eq!(found, None);
                let found = sum.add(compared(at_next, 2), true);
                let is_enough = at % rounds == 0;
                assert_eq!(
                    found,
                    is_enough.then(|| compared(10 * rounds, 10 * rounds)),
                    "{at_next}: {at}"
                );
            }
        }
    }
}
