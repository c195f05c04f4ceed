// SPDX-License-Identifier: Apache-2.0
//! Latency in virtual time: how soon work of a higher class runs beside a saturating job of a lower one.

mod model;

use model::measure::percentile;
use model::programs::{requests, saturating};
use model::{MS, S, US, World};
use partage_scheduling::{Class, Config, Terms};

fn of(class: Class) -> Terms {
    Terms {
        class,
        ..Terms::default()
    }
}

struct Measured {
    wake_to_run: Vec<u64>,
    requests: Vec<u64>,
    /// Part of the time that the others had.
    rest: f64,
}

/// A job of this class that wakes every 10 ms for some kernels of 100 µs, beside saturating jobs.
fn run(class: Class, kernels: u64, others: &[(Class, u64)]) -> Measured {
    const TIMES: u64 = 1000;
    let mut world = World::new(21, 1, true);
    let job = world.job(of(class));
    let urgent = world.client(job, 0, requests(10 * MS, 100 * US, kernels, TIMES));
    world.clients[urgent].keeps_latencies = true;
    let others: Vec<usize> = others
        .iter()
        .map(|(class, length)| {
            let job = world.job(of(*class));
            world.client(job, 0, saturating(*length))
        })
        .collect();
    world.run_until(2 * S);
    let skip = (
        world.clients[urgent].requests.len(),
        world.clients[urgent].wake_to_run.len(),
    );
    let before: u64 = others.iter().map(|at| world.busy_ns(*at)).sum();
    world.run_until(7 * S);
    let after: u64 = others.iter().map(|at| world.busy_ns(*at)).sum();
    // Of each request, the first kernel is the one that wakes.
    let client = &world.clients[urgent];
    Measured {
        wake_to_run: client.wake_to_run[skip.1..]
            .iter()
            .step_by(kernels as usize)
            .copied()
            .collect(),
        requests: client.requests[skip.0..].to_vec(),
        rest: (after - before) as f64 / (5 * S) as f64,
    }
}

#[test]
fn a_waking_high_job_runs_after_the_depth_one_kernel_and_a_tenth_of_a_millisecond() {
    let depth = Config::default().depth_beside_higher_ns;
    let alone = run(Class::High, 20, &[]);
    println!(
        "{:36} {:>10} {:>10} {:>10} {:>10} {:>12}",
        "beside", "p50", "p99", "worst", "allowed", "request p99"
    );
    for (name, kernel, others) in [
        ("low, 20 us", 20 * US, vec![(Class::Low, 20 * US)]),
        ("low, 100 us", 100 * US, vec![(Class::Low, 100 * US)]),
        ("low, 1 ms", MS, vec![(Class::Low, MS)]),
        ("low, 5 ms", 5 * MS, vec![(Class::Low, 5 * MS)]),
        ("normal, 200 us", 200 * US, vec![(Class::Normal, 200 * US)]),
        (
            "two low, 20 us and 300 us",
            300 * US,
            vec![(Class::Low, 20 * US), (Class::Low, 300 * US)],
        ),
    ] {
        let measured = run(Class::High, 20, &others);
        let p = |percent| percentile(&measured.wake_to_run, percent) / US;
        // Two saturating jobs may both have their depth in flight.
        let allowed = (depth * others.len() as u64 + kernel + 100 * US) / US;
        println!(
            "{name:36} {:7} us {:7} us {:7} us {allowed:7} us {:9} us (alone {})",
            p(50.0),
            p(99.0),
            p(100.0),
            percentile(&measured.requests, 99.0) / US,
            percentile(&alone.requests, 99.0) / US
        );
        assert!(p(99.0) <= allowed, "{name}");
        assert!(measured.rest >= 0.70, "{name}: the others had {}", measured.rest);
    }
}

#[test]
fn a_long_request_of_a_high_job_takes_five_percent_longer_at_most() {
    // 8 ms of work every 10 ms, beside a low job with short kernels.
    let alone = run(Class::High, 80, &[]);
    let beside = run(Class::High, 80, &[(Class::Low, 20 * US)]);
    let (alone, p99) = (percentile(&alone.requests, 99.0), percentile(&beside.requests, 99.0));
    println!(
        "request of 8 ms: alone {} us, beside a low job p99 {} us",
        alone / US,
        p99 / US
    );
    assert!(p99 as f64 <= alone as f64 * 1.05);
    println!("the low job had {:.2} %", beside.rest * 100.0);
    assert!(beside.rest >= 0.02);
}

#[test]
fn a_job_that_never_sleeps_leaves_the_lower_classes_the_floor() {
    for class in [Class::Normal, Class::High, Class::Realtime] {
        let mut world = World::new(4, 1, true);
        let job = world.job(Terms {
            weight: 10_000,
            ..of(class)
        });
        world.client(job, 0, saturating(200 * US));
        let job = world.job(of(Class::Low));
        let low = world.client(job, 0, saturating(200 * US));
        world.run_until(2 * S);
        let before = world.busy_ns(low);
        world.run_until(8 * S);
        let got = (world.busy_ns(low) - before) as f64 / (6 * S) as f64;
        println!(
            "low beside a saturating {class:?} of weight 10000: {:.2} %",
            got * 100.0
        );
        assert!((0.018..=0.03).contains(&got), "{class:?}: {got}");
    }
}

#[test]
fn gaps_of_a_high_job_do_not_starve_the_lower_classes() {
    // A kernel of 5 µs every 150 µs: never idle for long, never ahead of its share.
    let mut world = World::new(4, 1, true);
    let job = world.job(of(Class::Realtime));
    world.client(job, 0, model::programs::bursts(5 * US, 1, 150 * US, u64::MAX));
    let job = world.job(of(Class::Low));
    let low = world.client(job, 0, saturating(50 * US));
    world.run_until(S);
    let before = world.busy_ns(low);
    world.run_until(5 * S);
    let got = (world.busy_ns(low) - before) as f64 / (4 * S) as f64;
    println!("low beside a realtime job with gaps of 150 us: {:.2} %", got * 100.0);
    assert!(got >= 0.018, "{got}");
}
