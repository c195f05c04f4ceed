// SPDX-License-Identifier: Apache-2.0
//! Which of two that wait is next, where the order is fair.
//!
//! ```text
//!   who waited for max_wait ── by age ──► then all others: by class ──► by what the user had ──► by age
//! ```
//! So nothing waits for ever: whatever the others are, once it has waited for `max_wait` only those are before it that
//! waited for longer, and what is before it in the queue keeps room from what is behind.

use std::cmp::Ordering;

use partage_protocol::terms::Class;

/// One that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimant {
    pub class: Class,
    /// GPU time that its user had of late, in nanoseconds.
    pub had_ns: u64,
    /// Since when it waits.
    pub since_ns: u64,
}

/// Which of them is next (the lesser one). One that came first among equals is told by its place.
pub(crate) fn next_of(one: &Claimant, other: &Claimant, max_wait_ns: u64, now_ns: u64) -> Ordering {
    let is_late = |claimant: &Claimant| now_ns.saturating_sub(claimant.since_ns) >= max_wait_ns;
    let by_age = one.since_ns.cmp(&other.since_ns);
    match (is_late(one), is_late(other)) {
        (true, true) => by_age,
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => other
            .class
            .cmp(&one.class)
            .then_with(|| one.had_ns.cmp(&other.had_ns))
            .then(by_age),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claimant() -> impl Strategy<Value = Claimant> {
        let class = prop::sample::select(vec![Class::Low, Class::Normal, Class::High]);
        (class, 0..3u64, 0..40u64).prop_map(|(class, had_ns, since_ns)| Claimant {
            class,
            had_ns,
            since_ns,
        })
    }

    proptest! {
        /// What a sort needs, at any instant.
        #[test]
        fn it_is_an_order(
            all in (claimant(), claimant(), claimant()),
            now_ns in 0..60u64,
        ) {
            let next = |one, other| next_of(one, other, 20, now_ns);
            let (a, b, c) = (&all.0, &all.1, &all.2);
            prop_assert_eq!(next(a, b), next(b, a).reverse());
            prop_assert!(next(a, b) == Ordering::Greater || next(b, c) == Ordering::Greater
                || next(a, c) != Ordering::Greater);
        }

        #[test]
        fn who_waited_for_long_enough_is_behind_none_that_came_later(
            one in claimant(),
            other in claimant(),
            now_ns in 0..60u64,
        ) {
            if now_ns.saturating_sub(one.since_ns) >= 20 && other.since_ns > one.since_ns {
                prop_assert_eq!(next_of(&one, &other, 20, now_ns), Ordering::Less);
            }
        }
    }

    #[test]
    fn class_comes_before_use_and_use_before_age() {
        let one = Claimant {
            class: Class::Normal,
            had_ns: 5,
            since_ns: 10,
        };
        let ranked = [
            Claimant {
                class: Class::High,
                had_ns: 9,
                since_ns: 30,
            },
            Claimant {
                had_ns: 4,
                since_ns: 30,
                ..one
            },
            Claimant { since_ns: 9, ..one },
            one,
            Claimant {
                class: Class::Low,
                had_ns: 0,
                since_ns: 1,
            },
        ];
        for pair in ranked.windows(2) {
            assert_eq!(next_of(&pair[0], &pair[1], 1_000, 40), Ordering::Less, "{pair:?}");
        }
        assert_eq!(
            next_of(&ranked[4], &ranked[0], 39, 40),
            Ordering::Less,
            "it waited long enough"
        );
    }
}
