// SPDX-License-Identifier: Apache-2.0
//! Charges against shares over any interval, however short, of jobs that always want the device.

mod model;

use model::measure::row;
use model::programs::saturating;
use model::{MS, S, US, World};
use partage_scheduling::{Config, Regime};

/// How often charges are read.
const STEP_NS: u64 = MS / 2;
/// What the scheduler may be behind the device: one sample interval of Turns, and of Overlap.
const TURNS_SAMPLE_NS: u64 = 100 * US;
const OVERLAP_SAMPLE_NS: u64 = 200 * US;
const QUANTUM_NS: u64 = 5 * MS;
const SLACK_NS: u64 = 4 * MS;
/// What may be in flight beside others, of units that are not longer.
const DEPTH_NS: u64 = MS / 2;

const FIVE: [(u32, u64); 5] = [
    (100, 100 * US),
    (200, 300 * US),
    (300, 200 * US),
    (400, 500 * US),
    (500, 50 * US),
];

/// The most that the charge of any job differed from its share over any interval of three seconds, in nanoseconds: how
/// far it was ahead at one moment, and behind at another.
fn width_ns(jobs: &[(u32, u64)], regime: Regime) -> u64 {
    let config = match regime {
        Regime::Turns => Config::default(),
        // Units are always too long for turns.
        Regime::Overlap => Config {
            turns_unit_ns: 0,
            ..Config::default()
        },
    };
    let mut world = World::with(11, 1, Some(config));
    let clients: Vec<usize> = jobs
        .iter()
        .map(|(weight, length)| world.weighted(*weight, saturating(*length)))
        .collect();
    world.know(clients.iter().copied());
    world.isolate(0, regime == Regime::Turns);
    world.run_until(2 * S);
    let view = world.scheduler.as_ref().expect("a scheduler").view(world.now);
    assert!(view.iter().all(|row| row.regime == regime), "{view:?}");
    let total: u32 = jobs.iter().map(|(weight, _)| weight).sum();
    let charged = |world: &World| -> Vec<i64> {
        let view = world.scheduler.as_ref().expect("a scheduler").view(world.now);
        let of = |at: &usize| row(&view, world.clients[*at].job).used_ns as i64;
        clients.iter().map(of).collect()
    };
    let begin = charged(&world);
    let mut farthest = vec![(0i64, 0i64); jobs.len()];
    while world.now < 5 * S {
        world.run_until(world.now + STEP_NS);
        let now = charged(&world);
        let all: i64 = now.iter().zip(&begin).map(|(now, begin)| now - begin).sum();
        for (at, (weight, _)) in jobs.iter().enumerate() {
            let ahead = now[at] - begin[at] - all * i64::from(*weight) / i64::from(total);
            let (least, most) = farthest[at];
            farthest[at] = (ahead.min(least), ahead.max(most));
        }
    }
    let widths = farthest.into_iter().map(|(least, most)| most.abs_diff(least));
    widths.max().expect("a job")
}

/// What one end of an interval may cost: a turn that has begun, what is in flight, and what was not yet seen.
fn bound_ns(turn_ns: u64, sample_ns: u64, jobs: &[(u32, u64)]) -> u64 {
    let unit = jobs.iter().map(|(_, length)| *length).max().unwrap_or(0);
    let units = if unit > DEPTH_NS { 2 * unit } else { unit };
    turn_ns + DEPTH_NS + units + sample_ns
}

#[test]
fn charges_follow_the_shares_over_any_interval() {
    for (name, jobs) in [
        ("two of 200 us", &[(100, 200 * US), (100, 200 * US)][..]),
        ("1:3 of 200 us", &[(100, 200 * US), (300, 200 * US)]),
        ("1:9 of 50 us", &[(100, 50 * US), (900, 50 * US)]),
        ("two of 1 ms", &[(100, MS), (100, MS)]),
        ("2 ms beside 50 us", &[(100, 2 * MS), (100, 50 * US)]),
        ("5 ms beside 200 us", &[(100, 5 * MS), (100, 200 * US)]),
        ("five, 1:2:3:4:5", &FIVE),
    ] {
        for (regime, turn_ns, sample_ns) in [
            (Regime::Turns, QUANTUM_NS, TURNS_SAMPLE_NS),
            (Regime::Overlap, SLACK_NS, OVERLAP_SAMPLE_NS),
        ] {
            let width_ns = width_ns(jobs, regime);
            // An interval has two ends.
            let bound_ns = 2 * bound_ns(turn_ns, sample_ns, jobs);
            println!(
                "{name:20} {regime:?}: {:.2} of {:.2} ms",
                width_ns as f64 / 1e6,
                bound_ns as f64 / 1e6
            );
            assert!(width_ns > 0, "{name}: nothing was charged");
            assert!(width_ns <= bound_ns, "{name}, {regime:?}: {width_ns} of {bound_ns} ns");
        }
    }
}
