// SPDX-License-Identifier: Apache-2.0
//! Corrections: device time that a job had and no look saw, as somebody else found out, and what others were charged
//! for it meanwhile.
//!
//! A correction of n nanoseconds over a time T is charged evenly: each interval dt is charged n · dt / T, the last one
//! the rest. What a job owes for it is bounded, because nobody measured it to the nanosecond: its share by
//! [`MOST_LAG_NS`], its cap by [`MOST_CAP_DEBT_NS`].

/// A correction leaves nobody further behind its share than this: others that come later are not made to wait for it.
pub(crate) const MOST_LAG_NS: i64 = 1_000_000_000;
/// Nor does a cap have to make up for more than this.
pub(crate) const MOST_CAP_DEBT_NS: i64 = 5_000_000_000;

/// What is still to be charged to one job, and what was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Correction {
    left_ns: i64,
    over_ns: u64,
    charged_ns: i64,
}

impl Correction {
    /// So much more, over this time at least.
    pub fn add(&mut self, ns: i64, over_ns: u64) {
        self.left_ns = self.left_ns.saturating_add(ns);
        self.over_ns = self.over_ns.max(over_ns);
    }

    /// What an interval is charged.
    pub fn take(&mut self, dt: u64) -> i64 {
        let ns = if dt >= self.over_ns {
            self.left_ns
        } else {
            // No more than all of it, so it fits.
            (i128::from(self.left_ns) * i128::from(dt) / i128::from(self.over_ns)) as i64
        };
        self.left_ns -= ns;
        self.over_ns = self.over_ns.saturating_sub(dt);
        self.charged_ns = self.charged_ns.saturating_add(ns);
        ns
    }

    /// What was charged so far.
    pub fn charged_ns(&self) -> i64 {
        self.charged_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_is_charged_evenly_and_to_the_nanosecond() {
        let mut correction = Correction::default();
        correction.add(1_000_001, 1_000);
        let parts: Vec<i64> = (0..12).map(|_| correction.take(100)).collect();
        assert!(
            parts[..10].iter().all(|part| (99_000..=101_000).contains(part)),
            "{parts:?}"
        );
        assert_eq!(parts.iter().sum::<i64>(), 1_000_001);
        assert_eq!((parts[10], parts[11], correction.charged_ns()), (0, 0, 1_000_001));
        correction.add(-500, 0);
        assert_eq!((correction.take(1), correction.charged_ns()), (-500, 999_501));
    }
}
