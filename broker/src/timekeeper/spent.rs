// SPDX-License-Identifier: Apache-2.0
//! The device time that a client's work took, from the lengths of what has retired.
//!
//! The client knows by events how long its units take when they have the device for themselves, and says with each batch
//! what it gave to the device ([`Work`]). What has retired took that, whoever had slices in between, and however late the
//! broker or the client came: the one measure that neither a busy processor nor a neighbour changes. Batches of one lane
//! run one after the other. Where several lanes run, what each took is laid over the others as often as lanes were seen to
//! run together:
//!
//! ```text
//!   time += Σ retired · (time in which any lane ran) / Σ (time in which each ran)
//! ```
//! Nothing is said while a part of what retires is of units that are not known ([`VAGUE`]), and until some time after.

use partage_protocol::gate::{TimePage, Work};

/// What retired is known if at most one part of so many is of units that are not.
const VAGUE: u64 = 64;
/// After something unknown retired, so much has to retire that is known, in nanoseconds.
const TRUST_NS: u64 = 2_000_000;
/// For so long it is remembered how many lanes ran together, in nanoseconds.
const MEMORY_NS: u64 = 20_000_000;

/// What is known of one client on one device.
#[derive(Clone, Debug, Default)]
pub struct Spent {
    /// What had retired at the last look.
    done: Option<Work>,
    /// Device time of what retired, since the client is known.
    busy_ns: u64,
    /// What retired and was known since something was not.
    trusted_ns: u64,
    last_ns: u64,
    /// Time in which any lane ran, and the sum over the lanes.
    any_ns: u64,
    each_ns: u64,
}

impl Spent {
    /// Looks at the client's page. Answers the device time that its work took since it is known, if that is known of all
    /// that has retired of late.
    pub fn look(&mut self, page: &TimePage, now: u64) -> Option<u64> {
        self.book(page.done(), page.running(), now)
    }

    fn book(&mut self, done: Option<Work>, running: u64, now: u64) -> Option<u64> {
        let dt = now.saturating_sub(self.last_ns).min(MEMORY_NS);
        self.last_ns = now;
        if running > 0 {
            self.any_ns += dt;
            self.each_ns += dt * running;
        }
        if self.any_ns > MEMORY_NS {
            (self.any_ns, self.each_ns) = (self.any_ns / 2, self.each_ns / 2);
        }
        let before = std::mem::replace(&mut self.done, done);
        let Some((done, before)) = done.zip(before) else {
            self.trusted_ns = 0;
            return None;
        };
        let retired = done.since(before);
        // The numbers are the client's: they may be anything.
        if retired.vague_ns > retired.ns / VAGUE {
            self.trusted_ns = 0;
        } else {
            self.trusted_ns = self.trusted_ns.saturating_add(retired.ns);
        }
        let part = u128::from(retired.ns) * u128::from(self.any_ns.max(1)) / u128::from(self.each_ns.max(1));
        self.busy_ns = self
            .busy_ns
            .saturating_add(u64::try_from(part).unwrap_or(retired.ns).min(retired.ns));
        (self.trusted_ns >= TRUST_NS).then_some(self.busy_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    struct Case {
        spent: Spent,
        now: u64,
        done: Work,
    }

    impl Case {
        fn new() -> Self {
            let mut case = Self {
                spent: Spent::default(),
                now: 0,
                done: Work::default(),
            };
            assert_eq!(case.look(0, 0, 0), None, "nothing is known before the second look");
            case
        }

        /// A tenth of a millisecond later so much has retired.
        fn look(&mut self, ns: u64, vague_ns: u64, running: u64) -> Option<u64> {
            self.now += MS / 10;
            let units = u64::from(ns > 0);
            self.done = self.done.plus(Work { ns, vague_ns, units });
            self.spent.book(Some(self.done), running, self.now)
        }
    }

    #[test]
    fn what_one_lane_retires_is_what_it_took() {
        let mut case = Case::new();
        for _ in 0..20 {
            case.look(MS / 8, 0, 1);
        }
        assert_eq!(case.look(0, 0, 1), Some(20 * MS / 8));
        assert_eq!(case.look(7, 0, 0), Some(20 * MS / 8 + 7));
    }

    #[test]
    fn lanes_that_run_together_took_the_time_once() {
        let mut case = Case::new();
        for _ in 0..1_000 {
            case.look(4 * MS / 10, 0, 4);
        }
        let busy = case.look(0, 0, 4).expect("known");
        assert!((99 * MS..=100 * MS).contains(&busy), "{busy}");
        // One after the other, soon each counts for itself.
        for _ in 0..5_000 {
            case.look(MS / 10, 0, 1);
        }
        let later = case.look(0, 0, 1).expect("known") - busy;
        assert!((475 * MS..=500 * MS).contains(&later), "{later}");
    }

    #[test]
    fn what_is_not_known_says_nothing_until_enough_is() {
        let mut case = Case::new();
        for _ in 0..30 {
            case.look(MS / 10, 0, 1);
        }
        assert!(case.look(0, 0, 1).is_some());
        assert_eq!(case.look(MS, MS / 10, 1), None);
        for _ in 0..19 {
            assert_eq!(case.look(MS / 10, 0, 1), None);
        }
        assert!(case.look(MS / 10, 0, 1).is_some());
        // A queue that is too long to tell.
        case.now += 1;
        assert_eq!(case.spent.book(None, 1, case.now), None);
        assert_eq!(case.look(MS, 0, 1), None);
    }

    #[test]
    fn numbers_that_cannot_be_break_nothing() {
        let mut case = Case::new();
        for ns in [u64::MAX, 1, u64::MAX / 2, 0, u64::MAX] {
            case.look(ns, 0, u64::from(ns % 3 == 0) * 16);
        }
        assert!(case.look(u64::MAX, 0, 1).is_some_and(|busy| busy > MS));
    }
}
