// SPDX-License-Identifier: Apache-2.0
//! Caps in virtual time: what a job gets never exceeds its cap for longer than a period, alone or beside others.

mod model;

use model::client::Program;
use model::programs::{bursts, saturating};
use model::{MS, S, US, World, kernel};
use partage_scheduling::{JobId, Terms};

const PERIOD: u64 = 100 * MS;
/// What is in flight when the gate closes: the depth; and what was not seen yet: an observation interval and a command.
const RESIDUE: u64 = 500 * US + 115 * US;

fn capped(percent: u32) -> Terms {
    Terms {
        cap_ppm: Some(percent * 10_000),
        ..Terms::default()
    }
}

/// Device time of these clients in each of so many periods from now on.
fn periods(world: &mut World, clients: &[usize], count: u64) -> Vec<f64> {
    let busy = |world: &World| clients.iter().map(|at| world.busy_ns(*at)).sum::<u64>();
    let each = |_| {
        let before = busy(world);
        world.run_until(world.now + PERIOD);
        (busy(world) - before) as f64 / PERIOD as f64
    };
    (0..count).map(each).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// A job under a cap with these programs; what it got in each period after a second.
fn under_cap(percent: u32, programs: Vec<Program>, neighbour: Option<u64>) -> (World, JobId, Vec<f64>) {
    let mut world = World::new(3, 1, true);
    let job = world.job(capped(percent));
    let clients: Vec<usize> = programs
        .into_iter()
        .map(|program| world.client(job, 0, program))
        .collect();
    if let Some(length) = neighbour {
        world.weighted(100, saturating(length));
    }
    world.run_until(S);
    let got = periods(&mut world, &clients, 40);
    (world, job, got)
}

#[test]
fn a_cap_is_met_within_one_percent_and_never_passed_by_more_than_what_was_in_flight() {
    println!(
        "{:>4} {:>9} {:>10} {:>8} {:>9}",
        "cap", "kernel", "mean", "error", "most"
    );
    for percent in [10, 25, 50, 75] {
        for length in [20 * US, 200 * US, MS, 5 * MS, 20 * MS] {
            let (_, _, got) = under_cap(percent, vec![saturating(length)], None);
            let cap = f64::from(percent) / 100.0;
            let most = got.iter().fold(0f64, |most, got| most.max(*got));
            let error = (mean(&got) / cap - 1.0).abs() * 100.0;
            println!(
                "{percent:3} % {:6} us {:8.3} % {error:6.2} % {:7.2} %",
                length / US,
                mean(&got) * 100.0,
                most * 100.0
            );
            assert!(error <= 1.0, "cap {percent}, kernels of {length}: {error}");
            let allowed = cap + (RESIDUE + length) as f64 / PERIOD as f64;
            assert!(most <= allowed, "cap {percent}, kernels of {length}: {most}");
        }
    }
}

#[test]
fn processes_of_one_job_share_one_cap() {
    for count in [1, 2, 4, 8] {
        let programs = (0..count).map(|_| saturating(200 * US)).collect();
        let (_, _, got) = under_cap(25, programs, None);
        println!("{count} processes under 25 %: {:.2} %", mean(&got) * 100.0);
        assert!((mean(&got) - 0.25).abs() <= 0.01, "{count} processes: {}", mean(&got));
    }
}

#[test]
fn a_cap_holds_beside_a_neighbour_which_has_the_rest() {
    for (percent, wanted) in [(10, 0.1), (25, 0.25), (75, 0.5)] {
        let (mut world, job, got) = under_cap(percent, vec![saturating(200 * US)], Some(MS));
        println!("cap {percent} % beside a saturating job: {:.2} %", mean(&got) * 100.0);
        assert!((mean(&got) - wanted).abs() <= 0.01, "{percent}: {}", mean(&got));
        // With a cap above its share it gets its share.
        let other = JobId(job.0 + 1);
        let rest = periods(&mut world, &[1], 10);
        assert!(mean(&rest) >= 0.98 - wanted - 0.02, "{other:?} got {}", mean(&rest));
    }
}

#[test]
fn a_cap_that_is_not_reached_costs_nothing() {
    let program = || bursts(500 * US, 4, 8 * MS, 300);
    let mut capped_world = World::new(5, 1, true);
    let job = capped_world.job(capped(50));
    capped_world.client(job, 0, program());
    let with = model::measure::completion(&mut capped_world, 60 * S).expect("ends");
    let mut bare = World::new(5, 1, false);
    let job = bare.job(Terms::default());
    bare.client(job, 0, program());
    let without = model::measure::completion(&mut bare, 60 * S).expect("ends");
    println!(
        "20 % duty under a cap of 50 %: {:.2} ms, without {:.2} ms",
        with as f64 / 1e6,
        without as f64 / 1e6
    );
    assert!(with as f64 <= without as f64 * 1.005);
}

#[test]
fn a_changed_cap_settles_within_two_periods() {
    let mut world = World::new(11, 1, true);
    let job = world.job(capped(100));
    let client = world.client(job, 0, Box::new(|_, _| kernel(200 * US)));
    // Not at the beginning of a period.
    world.run_until(S + 37 * MS);
    for percent in [20, 80, 20, 100, 10, 90] {
        world.set(job, capped(percent));
        let got = periods(&mut world, &[client], 10);
        let settled = &got[2..];
        let cap = f64::from(percent) / 100.0;
        let shown: Vec<String> = got.iter().map(|got| format!("{:.1}", got * 100.0)).collect();
        println!("to {percent} %: {}", shown.join(" "));
        // A period by our clock is parts of two of the server's, each of which is met.
        assert!((mean(settled) - cap).abs() <= 0.02 * cap.max(0.2), "{percent}: {got:?}");
        for got in settled {
            assert!((got - cap).abs() <= 0.02 + 0.01 * cap, "{percent}: {got:?}");
        }
    }
}
