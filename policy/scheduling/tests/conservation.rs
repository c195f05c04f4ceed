// SPDX-License-Identifier: Apache-2.0
//! Work conservation in virtual time: jobs with gaps finish as soon as with the device's own sharing, jobs without gaps
//! use at least 97 % of the device, a job alone is left alone.

mod model;

use model::client::Program;
use model::measure::completion;
use model::programs::{amount, bursts, saturating};
use model::{MS, S, US, World};
use partage_scheduling::{Class, Terms};

const LIMIT: u64 = 600 * S;

/// When the last of these jobs has ended, and the part of the device's time that they used until then.
fn run(is_governed: bool, seed: u64, programs: &dyn Fn() -> Vec<Program>) -> (u64, f64) {
    let mut world = World::new(seed, 1, is_governed);
    for program in programs() {
        let job = world.job(Terms::default());
        world.client(job, 0, program);
    }
    let took = completion(&mut world, LIMIT).expect("ends");
    let used: u64 = (0..world.clients.len()).map(|at| world.busy_ns(at)).sum();
    (took, used as f64 / took as f64)
}

fn compare(name: &str, programs: &dyn Fn() -> Vec<Program>) {
    // Completion of bursts depends on how they fall together: compare means over a few seeds.
    let seeds = 1..=4u64;
    let sum = |is_governed| {
        seeds
            .clone()
            .map(|seed| run(is_governed, seed, programs))
            .fold((0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    };
    let ((native, native_used), (ours, ours_used)) = (sum(false), sum(true));
    let more = (ours as f64 / native as f64 - 1.0) * 100.0;
    println!(
        "{name:38} native {:8.1} ms ({:4.1} %)  ours {:8.1} ms ({:4.1} %)  {more:+5.2} %",
        native as f64 / 4e6,
        native_used * 25.0,
        ours as f64 / 4e6,
        ours_used * 25.0
    );
    assert!(more <= 2.0, "{name}: {more} % more than native");
}

#[test]
fn gaps_are_filled_as_by_the_device_itself() {
    compare("2 x bursts 4 ms / pause 4 ms", &|| {
        (0..2).map(|_| bursts(MS, 4, 4 * MS, 300)).collect()
    });
    compare("2 x bursts of 20 us, 4 ms / 4 ms", &|| {
        (0..2).map(|_| bursts(20 * US, 200, 4 * MS, 200)).collect()
    });
    compare("4 x 25 % duty, 4 ms / 12 ms", &|| {
        (0..4).map(|_| bursts(MS, 4, 12 * MS, 150)).collect()
    });
    compare("4 x 25 % duty, 1 ms / 3 ms", &|| {
        (0..4).map(|_| bursts(MS, 1, 3 * MS, 400)).collect()
    });
    compare("2 x micro-gaps 200 / 100 us", &|| {
        (0..2).map(|_| bursts(200 * US, 1, 100 * US, 5000)).collect()
    });
    compare("2 x micro-gaps 200 / 20 us", &|| {
        (0..2).map(|_| bursts(200 * US, 1, 20 * US, 10_000)).collect()
    });
    compare("3 x micro-gaps 100 / 300 us", &|| {
        (0..3).map(|_| bursts(100 * US, 1, 300 * US, 4000)).collect()
    });
}

#[test]
fn saturating_tenants_use_the_device() {
    for lengths in [
        vec![MS, MS],
        vec![20 * US, 20 * US],
        vec![20 * US, 5 * MS],
        vec![200 * US; 4],
        vec![50 * US; 8],
    ] {
        let mut world = World::new(9, 1, true);
        let clients: Vec<usize> = lengths
            .iter()
            .map(|length| world.weighted(100, saturating(*length)))
            .collect();
        world.run_until(2 * S);
        let busy = |world: &World| clients.iter().map(|at| world.busy_ns(*at)).sum::<u64>();
        let before = busy(&world);
        world.run_until(5 * S);
        let used = (busy(&world) - before) as f64 / 3e9 * 100.0;
        println!(
            "{} saturating tenants of {:?} us: {used:.2} %",
            lengths.len(),
            lengths[0] / US
        );
        assert!(used >= 97.0, "{lengths:?}: {used}");
    }
}

#[test]
fn a_fixed_amount_of_work_of_two_tenants_ends_as_soon_as_natively() {
    compare("2 x 2 s of kernels of 1 ms", &|| {
        (0..2).map(|_| amount(MS, 2000)).collect()
    });
    compare("1 s and 3 s of kernels of 200 us", &|| {
        vec![amount(200 * US, 5000), amount(200 * US, 15000)]
    });
    compare("saturating and 4 ms / 4 ms", &|| {
        vec![amount(MS, 1500), bursts(MS, 4, 4 * MS, 100)]
    });
}

#[test]
fn a_job_alone_is_left_alone() {
    let programs = || vec![bursts(20 * US, 500, MS, 100)];
    let (native, _) = run(false, 1, &programs);
    let (ours, _) = run(true, 1, &programs);
    // The gate opens with the first command, 30 to 60 us after the program asked.
    assert!(ours <= native + 100 * US, "{ours} {native}");
    let mut world = World::new(1, 1, true);
    world.weighted(100, saturating(MS));
    world.run_until(10 * S);
    println!("alone for 10 s: {} looks, {} commands", world.looks, world.commands);
    assert!(
        world.looks <= 25 && world.commands <= 3,
        "{} {}",
        world.looks,
        world.commands
    );
}

#[test]
fn an_idle_neighbour_costs_nothing() {
    let run = |is_governed| {
        let mut world = World::new(1, 1, is_governed);
        for class in [Class::Normal, Class::Normal, Class::High] {
            let job = world.job(Terms {
                class,
                ..Terms::default()
            });
            let program = if job.0 == 1 {
                amount(200 * US, 10_000)
            } else {
                bursts(MS, 1, 2 * S, 1)
            };
            world.client(job, 0, program);
        }
        completion(&mut world, LIMIT).expect("ends");
        world.clients[0].done_ns.expect("done")
    };
    let (native, ours) = (run(false), run(true));
    println!("2 s of work beside idle neighbours: native {native}, ours {ours}");
    assert!(ours as f64 <= native as f64 * 1.02);
}
