// SPDX-License-Identifier: Apache-2.0
//! Shares in virtual time: every job gets its weight's part of the device, whatever its kernels are like.

mod model;

use model::measure::shares;
use model::programs::saturating;
use model::{MS, S, US, World};

/// The longest part of a percentage point that shares may be off over a second, beside the units.
const ERROR_PP: f64 = 1.0;
const SECONDS: u64 = 6;

fn judge(name: &str, jobs: &[(u32, u64)]) {
    let mut world = World::new(7, 1, true);
    let clients: Vec<usize> = jobs
        .iter()
        .map(|(weight, length)| world.weighted(*weight, saturating(*length)))
        .collect();
    let total: u32 = jobs.iter().map(|(weight, _)| weight).sum();
    let wanted: Vec<f64> = jobs
        .iter()
        .map(|(weight, _)| f64::from(*weight) / f64::from(total))
        .collect();
    world.run_until(2 * S);
    let commands = world.commands;
    let measured = shares(&mut world, &clients, &wanted, SECONDS);
    let commands = (world.commands - commands) / SECONDS;
    let unit = jobs.iter().map(|(_, length)| *length).max().unwrap_or(0);
    let unit_pp = unit as f64 / S as f64 * 100.0;
    let accounting = measured.accounting * 100.0;
    let mean: Vec<String> = measured
        .mean
        .iter()
        .map(|share| format!("{:.2}", share * 100.0))
        .collect();
    println!(
        "{name:34} {:24} {:6.2} pp {:6.2} pp  {:6.2} %  {:6.2} %  {commands:6}",
        mean.join("/"),
        measured.worst_pp,
        ERROR_PP + unit_pp,
        measured.used * 100.0,
        accounting
    );
    assert!(measured.worst_pp <= ERROR_PP + unit_pp, "{name}: {measured:?}");
    for (got, wanted) in measured.mean.iter().zip(&wanted) {
        // One unit more or less in all of this time.
        let allowed = ERROR_PP + unit_pp / SECONDS as f64;
        assert!((got - wanted).abs() * 100.0 <= allowed, "{name}: {measured:?}");
    }
    assert!(measured.used >= 0.97, "{name}: {measured:?}");
    assert!(accounting <= 0.5, "{name}: {accounting}");
}

fn heading() {
    println!(
        "{:34} {:24} {:>9} {:>9}  {:>8}  {:>8}  {:>6}",
        "jobs", "mean share", "worst 1 s", "allowed", "used", "charge", "cmd/s"
    );
}

fn pairs(name: &str, weights: [u32; 2]) {
    heading();
    judge(
        &format!("{name}, 20 us and 5 ms"),
        &[(weights[0], 20 * US), (weights[1], 5 * MS)],
    );
    judge(
        &format!("{name}, 20 us and 20 us"),
        &[(weights[0], 20 * US), (weights[1], 20 * US)],
    );
    judge(
        &format!("{name}, 1 ms and 300 us"),
        &[(weights[0], MS), (weights[1], 300 * US)],
    );
    judge(
        &format!("{name}, graph of 100 ms and 50 us"),
        &[(weights[0], 100 * MS), (weights[1], 50 * US)],
    );
}

#[test]
fn equal_weights_hold_over_every_second() {
    pairs("1:1", [100, 100]);
}

#[test]
fn weights_of_three_to_one_hold_over_every_second() {
    pairs("3:1", [300, 100]);
}

#[test]
fn weights_of_nine_to_one_hold_over_every_second() {
    pairs("9:1", [900, 100]);
    pairs("1:9", [100, 900]);
}

#[test]
fn weights_of_four_unlike_jobs_hold_over_every_second() {
    heading();
    let lengths = [20 * US, 5 * MS, 200 * US, MS];
    for turn in 0..4 {
        let weights = [5, 15, 30, 50].iter().enumerate();
        let jobs: Vec<(u32, u64)> = weights.map(|(i, weight)| (*weight, lengths[(i + turn) % 4])).collect();
        judge(&format!("5/15/30/50, mixed {turn}"), &jobs);
    }
}
