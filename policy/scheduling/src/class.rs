// SPDX-License-Identifier: Apache-2.0
//! Classes and weights: what each job's promise, class and weight come to.
//!
//! Jobs with a promise weigh their promise. Jobs without one split the rest (at least the floor) in proportion to
//! class weight × weight. Among those, the classes below the highest that wants the device have together at least the
//! floor. All figures are relative: what idle jobs leave goes to the others in the same proportions.

use partage_protocol::terms::Class;

use crate::event::Terms;

/// Parts of a part per million, so that small weights beside large ones are not rounded away.
const SCALE: u64 = 1_000_000;
const PPM: u64 = 1_000_000;

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
    let raw = |terms: &Terms| class_weight(terms.class) * u64::from(terms.weight.max(1));
    let unpromised = || wanting.iter().filter(|terms| terms.promise_ppm == 0);
    let top = unpromised().map(|terms| terms.class).max();
    let is_lower = |terms: &Terms| Some(terms.class) < top;
    let sum: u64 = unpromised().map(raw).sum::<u64>().max(1);
    let lower: u64 = unpromised().filter(|terms| is_lower(terms)).map(raw).sum();
    let part = |of: u64, raw: u64, sum: u64| mul_div(of, raw, sum);

    // The floor is of the device, but never more than half of what those without a promise have.
    let least = (floor * SCALE).min(pool / 2);
    let is_below_floor = lower > 0 && part(pool, lower, sum) < least;
    wanting
        .iter()
        .map(|terms| {
            let weight = if terms.promise_ppm > 0 {
                u64::from(terms.promise_ppm) * SCALE
            } else if !is_below_floor {
                part(pool, raw(terms), sum)
            } else if is_lower(terms) {
                part(least, raw(terms), lower)
            } else {
                part(pool - least, raw(terms), sum - lower)
            };
            weight.max(1)
        })
        .collect()
}

fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
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
}
