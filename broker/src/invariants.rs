// SPDX-License-Identifier: Apache-2.0
//! Counts invariants of the policy and of the scheduler that do not hold: each is a defect of Partage and is logged.
//!
//! The policy is checked after a step of the event loop, the scheduler after a run of the dispatcher, each at most once
//! a second, because a check visits every job and every client.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};

use partage_protocol::units::SECOND_NS;
use tracing::error;

/// All that were found since this broker started.
static FOUND: AtomicU64 = AtomicU64::new(0);

/// Violations found since the broker started.
#[must_use]
pub fn count() -> u64 {
    FOUND.load(Ordering::Relaxed)
}

/// When to check, and what was found.
#[derive(Debug, Default)]
pub struct Invariants {
    due_ns: u64,
}

impl Invariants {
    /// Checks, if a second has passed since the last check.
    pub fn check<V: Display>(&mut self, now_ns: u64, check: impl FnOnce() -> Vec<V>) {
        if now_ns < self.due_ns {
            return;
        }
        self.due_ns = now_ns.saturating_add(SECOND_NS);
        for violation in check() {
            let before = FOUND.fetch_add(1, Ordering::Relaxed);
            // The 1st, 2nd, 4th, 8th …: what does not end is not to fill the log.
            if (before + 1).is_power_of_two() {
                error!(count = before + 1, %violation, "an invariant does not hold");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_are_looked_for_once_a_second_and_counted() {
        let mut invariants = Invariants::default();
        let before = count();
        invariants.check(5, || vec!["one", "two"]);
        assert_eq!(count() - before, 2);
        invariants.check(6, || -> Vec<&str> { panic!("a second has not passed") });
        invariants.check(5 + SECOND_NS, || vec!["three"]);
        assert_eq!(count() - before, 3);
    }
}
