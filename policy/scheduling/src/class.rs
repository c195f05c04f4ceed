// SPDX-License-Identifier: Apache-2.0
//! Classes and weights: what each job's promise, class and weight come to.
//!
//! Jobs with a promise weigh their promise. Jobs without one split the rest (at least the floor) in proportion to their
//! *claims*:
//!
//! ```text
//!   by job    claim = class weight × weight
//!   by user   claim = class weight of the user's highest class × usual weight × (the job's part of its user's claims)
//! ```
//! So a user counts like one job of the usual weight in the highest class of that user's jobs that want the device and
//! have no promise, however many these are and whatever they weigh; weights decide within the user. Among all, the
//! classes below the highest that wants the device have together at least the floor. All figures are relative: what
//! idle jobs leave goes to the others in the same proportions.

use std::collections::BTreeMap;

use partage_protocol::terms::{Class, DEFAULT_WEIGHT};

use crate::event::Terms;

/// Parts of a part per million, so that small weights beside large ones are not rounded away.
const SCALE: u64 = 1_000_000;
const PPM: u64 = 1_000_000;
/// Parts of a claim, so that a job's part of its user's is not rounded away.
const FINE: u128 = 1_000_000;

/// How much a job of this class weighs beside one of another with the same weight.
const fn class_weight(class: Class) -> u64 {
    match class {
        Class::Low => 1,
        Class::Normal => 4,
        Class::High => 16,
        Class::Realtime => 64,
    }
}

/// Length of a request of a job of this class, from that of class normal: a shorter one has the earlier deadline.
pub(crate) const fn request_ns(class: Class, quantum_ns: u64) -> u64 {
    match class {
        Class::Low | Class::Normal => quantum_ns,
        Class::High => quantum_ns / 2,
        Class::Realtime => quantum_ns / 4,
    }
}

/// The weights of jobs with these terms that want a device on which `promised_ppm` is promised in all.
pub(crate) fn weights(wanting: &[Terms], promised_ppm: u64, floor_ppm: u32) -> Vec<u64> {
    let floor = u64::from(floor_ppm).min(PPM);
    let pool = PPM.saturating_sub(promised_ppm).max(floor) * SCALE;
    let claims = claims(wanting);
    let unpromised = || wanting.iter().zip(&claims).filter(|(terms, _)| terms.promise_ppm == 0);
    let top = unpromised().map(|(terms, _)| terms.class).max();
    let is_lower = |terms: &Terms| Some(terms.class) < top;
    let sum: u128 = unpromised().map(|(_, claim)| claim).sum();
    let lower: u128 = unpromised()
        .filter(|(terms, _)| is_lower(terms))
        .map(|(_, claim)| claim)
        .sum();

    // The floor is of the device, but never more than half of what those without a promise have.
    let least = (floor * SCALE).min(pool / 2);
    let is_below_floor = lower > 0 && part(pool, lower, sum) < least;
    let weigh = |(terms, claim): (&Terms, &u128)| {
        let weight = if terms.promise_ppm > 0 {
            u64::from(terms.promise_ppm) * SCALE
        } else if !is_below_floor {
            part(pool, *claim, sum)
        } else if is_lower(terms) {
            part(least, *claim, lower)
        } else {
            part(pool - least, *claim, sum - lower)
        };
        weight.max(1)
    };
    wanting.iter().zip(&claims).map(weigh).collect()
}

/// What each job claims of the time that is not promised. One with a promise claims nothing there, for its user either.
fn claims(wanting: &[Terms]) -> Vec<u128> {
    let raw = |terms: &Terms| class_weight(terms.class) * u64::from(terms.weight.max(1));
    // By user: the highest class, and the sum of what its jobs would claim by themselves.
    let mut users: BTreeMap<u32, (Class, u64)> = BTreeMap::new();
    for terms in wanting.iter().filter(|terms| terms.promise_ppm == 0) {
        if let Some(user) = terms.user {
            let (class, sum) = users.entry(user).or_insert((terms.class, 0));
            *class = terms.class.max(*class);
            *sum += raw(terms);
        }
    }
    let claim = |terms: &Terms| match terms.user.and_then(|user| users.get(&user)) {
        _ if terms.promise_ppm > 0 => 0,
        None => u128::from(raw(terms)) * FINE,
        Some((class, sum)) => {
            let user = class_weight(*class) * u64::from(DEFAULT_WEIGHT);
            u128::from(user) * FINE * u128::from(raw(terms)) / u128::from((*sum).max(1))
        }
    };
    wanting.iter().map(claim).collect()
}

fn part(of: u64, claim: u128, sum: u128) -> u64 {
    u64::try_from(u128::from(of) * claim / sum.max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn terms(promise: u32, class: Class, weight: u32) -> Terms {
        Terms {
            promise_ppm: promise,
            class,
            weight,
            ..Terms::default()
        }
    }

    fn parts(wanting: &[Terms], promised: u64) -> Vec<f64> {
        let weights = weights(wanting, promised, 20_000);
        let sum: u64 = weights.iter().sum();
        weights.iter().map(|w| *w as f64 / sum as f64).collect()
    }

    fn close(a: &[f64], b: &[f64]) {
        assert!(
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-3),
            "{a:?} {b:?}"
        );
    }

    #[test]
    fn jobs_without_a_promise_split_what_is_not_promised() {
        let n = Class::Normal;
        close(
            &parts(&[terms(300_000, n, 100), terms(0, n, 100), terms(0, n, 300)], 300_000),
            &[0.3, 0.175, 0.525],
        );
    }

    #[test]
    fn what_an_idle_promise_leaves_goes_to_the_others_in_proportion() {
        let n = Class::Normal;
        close(
            &parts(&[terms(100_000, n, 100), terms(0, n, 100)], 800_000),
            &[1.0 / 3.0, 2.0 / 3.0],
        );
    }

    #[test]
    fn a_full_promise_leaves_the_floor() {
        let n = Class::Normal;
        close(
            &parts(&[terms(1_000_000, n, 100), terms(0, n, 100)], 1_000_000),
            &[1.0 / 1.02, 0.02 / 1.02],
        );
    }

    #[test]
    fn lower_classes_have_together_at_least_the_floor() {
        close(
            &parts(
                &[
                    terms(0, Class::Realtime, 100),
                    terms(0, Class::Low, 100),
                    terms(0, Class::Low, 10),
                ],
                0,
            ),
            &[0.98, 0.02 * 100.0 / 110.0, 0.02 * 10.0 / 110.0],
        );
        close(
            &parts(&[terms(0, Class::High, 100), terms(0, Class::Low, 100)], 0),
            &[16.0 / 17.0, 1.0 / 17.0],
        );
    }

    fn of_user(user: u32, class: Class, weight: u32) -> Terms {
        Terms {
            user: Some(user),
            ..terms(0, class, weight)
        }
    }

    #[test]
    fn one_job_against_ten_of_another_user_has_half() {
        let n = Class::Normal;
        let mut jobs = vec![of_user(1, n, 100)];
        jobs.extend([of_user(2, n, 1000); 10]);
        let mut wanted = vec![0.5];
        wanted.extend([0.05; 10]);
        close(&parts(&jobs, 0), &wanted);
        // A promise is its job's own, and splits what is left no further.
        let promised = Terms {
            user: Some(1),
            ..terms(400_000, n, 100)
        };
        jobs.push(promised);
        wanted.iter_mut().for_each(|part| *part *= 0.6);
        wanted.push(0.4);
        close(&parts(&jobs, 400_000), &wanted);
    }

    #[test]
    fn a_user_weighs_what_its_highest_class_does_and_its_own_jobs_split_that_by_class() {
        let jobs = [
            of_user(1, Class::High, 100),
            of_user(1, Class::Normal, 100),
            of_user(2, Class::Normal, 100),
        ];
        close(&parts(&jobs, 0), &[0.64, 0.16, 0.2]);
    }

    /// Terms of unlike users (or of none), classes, weights and promises.
    fn some_terms(users: bool) -> impl Strategy<Value = Vec<Terms>> {
        let classes = prop::sample::select(vec![Class::Low, Class::Normal, Class::High, Class::Realtime]);
        let one = (
            0..4u32,
            classes,
            0..=10_000u32,
            prop::sample::select(vec![0, 0, 0, 10_000, 300_000]),
        );
        let one = one.prop_map(move |(user, class, weight, promise_ppm)| Terms {
            user: users.then_some(user),
            ..terms(promise_ppm, class, weight)
        });
        prop::collection::vec(one, 1..30)
    }

    fn promised(jobs: &[Terms]) -> u64 {
        jobs.iter().map(|terms| u64::from(terms.promise_ppm)).sum()
    }

    proptest! {
        #[test]
        fn promises_weigh_themselves_and_the_others_split_the_rest(
            jobs in prop_oneof![some_terms(true), some_terms(false)],
        ) {
            let found = weights(&jobs, promised(&jobs), 20_000);
            let pool = PPM.saturating_sub(promised(&jobs)).max(20_000) * SCALE;
            let mut rest = 0;
            for (terms, weight) in jobs.iter().zip(&found) {
                match terms.promise_ppm {
                    0 => rest += weight,
                    ppm => prop_assert_eq!(*weight, u64::from(ppm) * SCALE),
                }
            }
            if jobs.iter().any(|terms| terms.promise_ppm == 0) {
                // Each division loses less than one; a weight of nothing counts as one.
                prop_assert!(rest.abs_diff(pool) <= jobs.len() as u64, "{rest} of {pool}");
            }
        }

        #[test]
        fn users_of_one_class_have_the_same_however_many_jobs_they_have(
            jobs in some_terms(true),
        ) {
            let jobs: Vec<Terms> = jobs.into_iter().map(|job| Terms { class: Class::Normal, ..job }).collect();
            let found = weights(&jobs, promised(&jobs), 20_000);
            let mut sums: BTreeMap<Option<u32>, u64> = BTreeMap::new();
            for (terms, weight) in jobs.iter().zip(&found).filter(|(terms, _)| terms.promise_ppm == 0) {
                *sums.entry(terms.user).or_default() += weight;
            }
            let (least, most) = (sums.values().min().copied(), sums.values().max().copied());
            // What is rounded away, in parts of SCALE: a millionth of a millionth for each job, and of its claim.
            prop_assert!(most.unwrap_or(0) - least.unwrap_or(0) <= SCALE, "{sums:?}");
        }

        #[test]
        fn within_one_user_it_is_as_without_users(jobs in some_terms(false)) {
            let same = jobs.iter().map(|job| Terms { user: Some(7), ..*job });
            let same: Vec<Terms> = same.collect();
            let (by_user, by_job) = (
                weights(&same, promised(&jobs), 20_000),
                weights(&jobs, promised(&jobs), 20_000),
            );
            for (by_user, by_job) in by_user.iter().zip(by_job) {
                prop_assert!(by_user.abs_diff(by_job) <= SCALE, "{by_user} and {by_job}");
            }
        }
    }
}
