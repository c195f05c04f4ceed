// SPDX-License-Identifier: Apache-2.0
//! Latency in virtual time: how soon work of a higher class runs beside a saturating job of a lower one.

mod model;

use model::client::Program;
use model::gpu::{SLICE_NS, TAX_NS};
use model::measure::percentile;
use model::programs::{random_requests, requests, saturating};
use model::{MS, S, US, World};
use partage_scheduling::{Class, Terms};

fn of(class: Class) -> Terms {
    Terms {
        class,
        ..Terms::default()
    }
}

struct Measured {
    wake_to_run: Vec<u64>,
    requests: Vec<u64>,
    /// Part of the time that the job had, and that the others had.
    own: f64,
    rest: f64,
}

impl Measured {
    fn wake(&self, percent: f64) -> u64 {
        percentile(&self.wake_to_run, percent) / US
    }

    fn request(&self, percent: f64) -> u64 {
        percentile(&self.requests, percent) / US
    }
}

/// A rhythm is known after some ten wakes, turns after some two hundred milliseconds.
const WARM: u64 = 600 * MS;

/// A job of this class that wakes for requests of so many kernels, beside saturating jobs. Measured for this
/// long.
fn run(class: Class, program: Program, kernels: u64, others: &[(Class, u64)], span: u64) -> Measured {
    let mut world = World::new(21, 1, true);
    let job = world.job(of(class));
    let urgent = world.client(job, 0, program);
    world.clients[urgent].keeps_latencies = true;
    let others: Vec<usize> = others
        .iter()
        .map(|(class, length)| {
            let job = world.job(of(*class));
            world.client(job, 0, saturating(*length))
        })
        .collect();
    world.run_until(WARM);
    let skip = (
        world.clients[urgent].requests.len(),
        world.clients[urgent].wake_to_run.len(),
    );
    let busy = |world: &World| {
        let others: u64 = others.iter().map(|at| world.busy_ns(*at)).sum();
        (world.busy_ns(urgent), others)
    };
    let before = busy(&world);
    world.run_until(WARM + span);
    let after = busy(&world);
    // Of each request, the first kernel is the one that wakes.
    let client = &world.clients[urgent];
    let part = |after: u64, before: u64| (after - before) as f64 / span as f64;
    Measured {
        wake_to_run: client.wake_to_run[skip.1..]
            .iter()
            .step_by(kernels as usize)
            .copied()
            .collect(),
        requests: client.requests[skip.0..].to_vec(),
        own: part(after.0, before.0),
        rest: part(after.1, before.1),
    }
}

/// A request of so many kernels of 100 µs every 10 ms.
fn every_10_ms(kernels: u64) -> Program {
    requests(10 * MS, 100 * US, kernels, u64::MAX)
}

/// What docs/scheduling.md promises that a job may have in flight beside a higher class: written down here, not read
/// from the configuration that it judges.
const DEPTH: u64 = 200 * US;

#[test]
fn a_waking_high_job_runs_after_the_depth_one_kernel_and_a_tenth_of_a_millisecond() {
    println!(
        "{:12} {:30} {:>10} {:>10} {:>10} {:>10}",
        "wakes", "beside", "p50", "p99", "worst", "allowed"
    );
    for (when, kernels) in [("every 10 ms", 20), ("at random", 1)] {
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
            let program = if kernels == 1 {
                random_requests(10 * MS, 2 * MS, 1, 0)
            } else {
                every_10_ms(kernels)
            };
            let measured = run(Class::High, program, kernels, &others, 2 * S);
            // Two saturating jobs may both have their depth in flight.
            let allowed = (DEPTH * others.len() as u64 + kernel + 100 * US) / US;
            let p = |percent| measured.wake(percent);
            println!(
                "{when:12} {name:30} {:7} us {:7} us {:7} us {allowed:7} us",
                p(50.0),
                p(99.0),
                p(100.0),
            );
            assert!(p(99.0) <= allowed, "{name}");
            assert!(measured.rest >= 0.70, "{name}: the others had {}", measured.rest);
        }
    }
}

/// What cannot be spared a request: the kernel that runs when it wakes and the device's switch; and where the request
/// is longer than a slice, the kernel after that, which came before anybody saw the wake, with a switch there and back.
fn unavoidable_us(request_ns: u64, kernel_ns: u64) -> u64 {
    let is_sliced = request_ns > SLICE_NS;
    (kernel_ns + TAX_NS + if is_sliced { kernel_ns + 2 * TAX_NS } else { 0 }) / US
}

#[test]
fn a_regular_request_takes_five_percent_longer_at_most_where_a_kernel_and_a_switch_are_less_than_that() {
    println!(
        "{:>8} {:>9} {:>10} {:>10} {:>8} {:>8} {:>8}",
        "request", "low", "alone p99", "p99", "more", "left", "low got"
    );
    for kernels in [10, 20, 50, 80] {
        let alone = run(Class::High, every_10_ms(kernels), kernels, &[], S);
        for length in [20 * US, 50 * US, 100 * US, 200 * US, 500 * US, MS] {
            let beside = run(
                Class::High,
                every_10_ms(kernels),
                kernels,
                &[(Class::Low, length)],
                1500 * MS,
            );
            let (native, p99) = (alone.request(99.0), beside.request(99.0));
            let (more, left) = (p99 as f64 / native as f64 - 1.0, 1.0 - beside.own);
            println!(
                "{:5} ms {:6} us {native:7} us {p99:7} us {:6.1} % {:6.1} % {:6.1} %",
                kernels / 10,
                length / US,
                more * 100.0,
                left * 100.0,
                beside.rest * 100.0
            );
            // The part of the device that nobody used: switches, and the time for which a wake was expected.
            let name = format!("{kernels} kernels beside {length} ns");
            assert!(beside.rest >= left - 0.05, "{name}: {} of {left}", beside.rest);
            let lost_us = unavoidable_us(kernels * 100 * US, length);
            assert!(p99 <= native + lost_us + 30, "{name}: {p99} {native}");
            if lost_us * 20 <= native {
                assert!(p99 * 100 <= native * 105, "{name}: {p99} {native}");
            }
        }
    }
}

#[test]
fn short_pauses_within_a_request_let_nobody_in() {
    // Twelve kernels of 120 µs with a pause after each, at times that nobody can foresee.
    for pause in [20 * US, 40 * US, 60 * US, 90 * US] {
        let program = || random_requests(10 * MS, 120 * US, 12, pause);
        let alone = run(Class::High, program(), 12, &[], S);
        let beside = run(Class::High, program(), 12, &[(Class::Low, 50 * US)], 2 * S);
        println!(
            "pauses of {} us: alone {} us, beside a low job p50 {} us, p99 {} us, low got {:.1} %",
            pause / US,
            alone.request(99.0),
            beside.request(50.0),
            beside.request(99.0),
            beside.rest * 100.0
        );
        // The depth, a kernel, a look and a switch, as for any wake that is not expected: once.
        let allowed = alone.request(50.0) + (DEPTH + 50 * US + 100 * US) / US;
        assert!(beside.request(50.0) <= allowed, "pauses of {pause}: {allowed}");
    }
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
