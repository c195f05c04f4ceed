// SPDX-License-Identifier: Apache-2.0
//! The estimator in virtual time: one client, several streams, and neighbours.

extern crate std;

use std::vec::Vec;

use super::*;

const MS: u64 = 1_000_000;

#[derive(Default)]
struct Case {
    estimator: GpuTimeEstimator,
    now: u64,
    done: [Work; 4],
    is_exclusive: bool,
}

impl Case {
    fn new() -> Self {
        let mut case = Self {
            is_exclusive: true,
            ..Self::default()
        };
        assert_eq!(
            case.look([0; 4], 0, [false; 4]),
            None,
            "nothing is known before the second look"
        );
        case
    }

    /// A tenth of a millisecond later so much has retired in each lane, and those run.
    fn look(&mut self, ns: [u64; 4], unknown_ns: u64, is_running: [bool; 4]) -> Option<u64> {
        self.now += MS / 10;
        for (done, ns) in self.done.iter_mut().zip(ns) {
            *done = done.plus(Work {
                ns,
                unknown_ns: unknown_ns.min(ns),
                units: u64::from(ns > 0),
            });
        }
        self.show(is_running)
    }

    fn show(&mut self, is_running: [bool; 4]) -> Option<u64> {
        let seen: Vec<Progress> = self
            .done
            .iter()
            .zip(is_running)
            .map(|(done, is_running)| Progress {
                done: Some(*done),
                is_running,
            })
            .collect();
        let time = self
            .estimator
            .book(&seen, Some(Work::default()), self.is_exclusive, self.now);
        (!time.is_estimate).then_some(time.ns)
    }

    fn one(&mut self, ns: u64, unknown_ns: u64) -> Option<u64> {
        self.look([ns, 0, 0, 0], unknown_ns, [true, false, false, false])
    }
}

#[test]
fn what_one_lane_retires_is_what_it_took() {
    let mut case = Case::new();
    for _ in 0..20 {
        case.one(MS / 8, 0);
    }
    assert_eq!(case.one(0, 0), Some(20 * MS / 8));
    assert_eq!(case.look([7, 0, 0, 0], 0, [false; 4]), Some(20 * MS / 8 + 7));
}

#[test]
fn lanes_that_run_together_took_the_time_once() {
    let mut case = Case::new();
    for _ in 0..1_000 {
        case.look([MS / 10; 4], 0, [true; 4]);
    }
    let busy = case.look([0; 4], 0, [true; 4]).expect("known");
    assert!((99 * MS..=101 * MS).contains(&busy), "{busy}");
    // One after the other each counts for itself at once.
    case.look([MS / 10; 4], 0, [true, false, false, false]);
    let busy = case.one(0, 0).expect("known");
    for _ in 0..1_000 {
        case.one(MS / 10, 0);
    }
    assert_eq!(case.one(0, 0), Some(busy + 100 * MS));
}

/// Two lanes that fill the device each: units take twice as long as alone.
#[test]
fn exclusive_windows_teach_what_lanes_do_to_each_other() {
    let run = |mut case: Case, unknown_ns: u64| {
        for round in 0..40_000 {
            let retires = if round % 20 == 19 { MS } else { 0 };
            case.look(
                [retires, retires, 0, 0],
                unknown_ns.min(retires),
                [true, true, false, false],
            );
        }
        case
    };
    let charged = |case: &mut Case| {
        let before = case.look([0; 4], 0, [true, true, false, false]).expect("known");
        case.look([10 * MS, 10 * MS, 0, 0], 0, [true, true, false, false])
            .expect("known")
            - before
    };
    let mut case = run(Case::new(), 0);
    let took = charged(&mut case);
    assert!((19 * MS..=21 * MS).contains(&took), "{took}");
    // Not where the lengths are not known, nor beside others.
    let mut case = run(Case::new(), MS);
    for _ in 0..40 {
        case.look([MS, MS, 0, 0], 0, [true, true, false, false]);
    }
    let took = charged(&mut case);
    assert!((9 * MS..=11 * MS).contains(&took), "{took}");
    let mut case = Case::new();
    case.is_exclusive = false;
    let took = charged(&mut run(case, 0));
    assert!((9 * MS..=11 * MS).contains(&took), "{took}");
    // A machine that stands still for a while says nothing.
    let mut case = run(Case::new(), 0);
    case.now += 5_000 * MS;
    let mut case = run(case, 0);
    let took = charged(&mut case);
    assert!((19 * MS..=21 * MS).contains(&took), "{took}");
}

#[test]
fn what_is_not_known_says_nothing_until_enough_is() {
    let mut case = Case::new();
    for _ in 0..30 {
        case.one(MS / 10, 0);
    }
    assert!(case.one(0, 0).is_some());
    assert_eq!(case.one(MS, MS / 10), None);
    for _ in 0..19 {
        assert_eq!(case.one(MS / 10, 0), None);
    }
    assert!(case.one(MS / 10, 0).is_some());
    // A queue that is too long to tell.
    case.now += 1;
    let unclear = [Progress {
        done: None,
        is_running: true,
    }];
    assert!(
        case.estimator
            .book(&unclear, Some(Work::default()), true, case.now)
            .is_estimate
    );
    assert_eq!(case.one(MS, 0), None);
    for _ in 0..3 {
        case.one(MS, 0);
    }
    assert!(case.one(0, 0).is_some());
    // Work without a lane.
    assert!(case.estimator.book(&[], None, true, case.now + 1).is_estimate);
}

/// A long kernel after many short ones, beside a shorter one of another stream: most of it runs alone.
#[test]
fn a_long_kernel_after_short_ones_counts_for_all_its_time() {
    let mut case = Case::new();
    for _ in 0..40 {
        case.look([MS / 10, 0, 0, 0], 0, [true, false, false, false]);
    }
    let before = case
        .look([MS / 10, 0, 0, 0], 0, [true, false, false, false])
        .expect("known");
    for _ in 0..10 {
        case.look([0; 4], 0, [true, true, false, false]);
    }
    case.look([0, MS, 0, 0], 0, [true, false, false, false]);
    for _ in 0..88 {
        case.look([0; 4], 0, [true, false, false, false]);
    }
    let took = case.look([10 * MS, 0, 0, 0], 0, [false; 4]).expect("known") - before;
    assert!((9_900_000..=10_100_000).contains(&took), "{took}");
}

#[test]
fn numbers_that_cannot_be_break_nothing() {
    let mut case = Case::new();
    for ns in [u64::MAX, 1, u64::MAX / 2, 0, u64::MAX] {
        case.look([ns; 4], 0, [ns % 3 == 0; 4]);
    }
    assert!(case.one(u64::MAX, 0).is_some_and(|busy| busy > MS));
    case.now = 0;
    case.one(MS, 0);
}

/// A small random source.
struct Random(u64);

impl Random {
    fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        least + (self.0 >> 33) % (most - least + 1)
    }
}

/// A stream on a device that runs those of a client beside each other: when each of its units begins and ends.
fn units(random: &mut Random, turns: u64, unit_ns: u64, gap_ns: u64) -> Vec<(u64, u64)> {
    let mut units = Vec::new();
    for turn in 0..turns {
        // A turn of 4 ms in every 10 ms; streams begin and end as their launches come.
        let mut at = turn * 10 * MS + random.between(0, 300_000);
        while at < turn * 10 * MS + 4 * MS {
            units.push((at, at + unit_ns));
            at += unit_ns + random.between(0, gap_ns);
        }
    }
    units
}

/// `others` have slices of 2 ms, too.
fn error_ppm(seed: u64, streams: usize, (unit_ns, gap_ns): (u64, u64), looks_ns: (u64, u64), others: u64) -> u64 {
    const SLICE: u64 = 2 * MS;
    const TURNS: u64 = 400;
    let mut random = Random(seed);
    let lanes: Vec<_> = (0..streams)
        .map(|_| units(&mut random, TURNS, unit_ns, gap_ns))
        .collect();
    let mut all: Vec<(u64, u64)> = lanes.iter().flatten().copied().collect();
    all.sort_unstable();
    let mut reached = 0;
    let union: u64 = all
        .iter()
        .map(|&(begin, end)| {
            let own = end.saturating_sub(begin.max(reached));
            reached = reached.max(end);
            own
        })
        .sum();
    let mut case = Case::new();
    (case.now, case.is_exclusive) = (0, others == 0);
    let device = |now: u64| {
        let round = SLICE * (1 + others);
        now / round * SLICE + (now % round).min(SLICE)
    };
    while device(case.now) < TURNS * 10 * MS {
        case.now += random.between(looks_ns.0, looks_ns.1);
        let mut is_running = [false; 4];
        for (lane, units) in lanes.iter().enumerate() {
            let ended = units.partition_point(|unit| unit.1 <= device(case.now));
            case.done[lane] = Work {
                ns: ended as u64 * unit_ns,
                unknown_ns: 0,
                units: ended as u64,
            };
            is_running[lane] = units.get(ended).is_some_and(|unit| unit.0 <= device(case.now));
        }
        case.show(is_running);
    }
    let busy = case.show([false; 4]).expect("known");
    busy.abs_diff(union) * 1_000_000 / union
}

/// Four seconds of the device, of which its streams have two fifths.
#[test]
fn streams_beside_each_other_are_charged_what_they_took_together() {
    const LENGTHS: [(u64, u64); 5] = [
        (20_000, 2_000),
        (200_000, 0),
        (200_000, 20_000),
        (500_000, 100_000),
        (MS, 0),
    ];
    // Samples as often as they are to be, and as late as a busy machine makes them. Beside others it is less sure
    // which lanes stood still: two of the time's hundred parts at most, where the client has half of it or less.
    for (others, looks, most_ppm) in [
        (0, (50_000, 150_000), 20_000),
        (0, (100_000, 500_000), 20_000),
        (1, (50_000, 150_000), 40_000),
        (3, (50_000, 150_000), 40_000),
        (3, (100_000, 500_000), 40_000),
    ] {
        for lengths in LENGTHS {
            for (streams, seed) in [1, 2, 4].into_iter().zip(1..) {
                let error = error_ppm(seed, streams, lengths, looks, others);
                let most_ppm = if streams == 1 { 0 } else { most_ppm };
                assert!(
                    error <= most_ppm,
                    "{streams} streams of {lengths:?} ns, looks {looks:?}, {others} others: {error} ppm"
                );
            }
        }
    }
}
