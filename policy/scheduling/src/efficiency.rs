// SPDX-License-Identifier: Apache-2.0
//! What of the time in which clients were seen to have work was work of theirs. The rest went to switching between
//! contexts, to processes that nobody sees, to a device that is slower than the clock.
//!
//! Samples cannot tell. But where the time of one client is known, and that of another beside it is not, the first was
//! sampled, too: the samples of the second hold as much that was no work.

/// So much of a client's work is compared at once, or none: two of the device's slices. Of less it would matter at which
/// place of a slice it began and ended.
const ENOUGH_NS: i64 = 4_000_000;
/// Half of what was compared is forgotten whenever it is so much: a slice more or less is half a percent of it, and what the
/// device's clock lags behind the broker's changes from one second to the next.
const MOST_NS: i64 = 400_000_000;
/// What was compared longer ago was beside others. Who pauses for a while finds it again: it is what the device takes to
/// switch, whoever has it.
const LASTS_NS: u64 = 10_000_000_000;
/// Switching, and a device that is slower than the clock, take no more of the time than this. Where samples are further off,
/// slices are not even: who has nothing to do for a moment gives his up, and the others have so much more, not less.
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

    /// All of it, if that is enough.
    pub fn take_enough(&mut self) -> Option<Self> {
        (self.sampled_ns >= ENOUGH_NS).then(|| std::mem::take(self))
    }
}

/// Of one device, now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Efficiency {
    /// Of the last [`MOST_NS`] of such work.
    lately: Compared,
    learnt_ns: u64,
}

impl Efficiency {
    /// Takes over what was compared up to `now`.
    pub fn learn(&mut self, compared: Compared, now: u64) {
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
        if self.lately.sampled_ns <= 0 {
            return None;
        }
        let ppm = i128::from(self.lately.known_ns) * i128::from(PPM) / i128::from(self.lately.sampled_ns);
        let ppm = i64::try_from(ppm).ok()?;
        (PPM - MOST_OFF_PPM..=PPM + MOST_OFF_PPM).contains(&ppm).then_some(ppm)
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
    fn enough_is_taken_at_once() {
        let mut some = Compared::default();
        some.add(compared(2, 3));
        assert_eq!(some.take_enough(), None);
        some.add(compared(2, 3));
        assert_eq!(some.take_enough(), Some(compared(4, 6)));
        assert_eq!(some, Compared::default());
    }
}
