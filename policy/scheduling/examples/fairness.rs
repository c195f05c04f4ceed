// SPDX-License-Identifier: Apache-2.0
//! What shares come out in virtual time: the real scheduler, a modelled device. Rows for `scripts/bench`, cells
//! separated by tabs: what was asked, what the device's own slices give, what came out, how far the worst second was
//! off.
//!
//! `cargo run --release -p partage-scheduling --example fairness`

#[path = "../tests/model/mod.rs"]
mod model;

use model::measure::{Shares, shares};
use model::programs::saturating;
use model::{MS, S, US, World};

const SECONDS: u64 = 10;

/// Jobs with these weights and lengths of their kernels.
fn measure(is_governed: bool, jobs: &[(u32, u64)]) -> Shares {
    let mut world = World::new(7, 1, is_governed);
    let clients: Vec<usize> = jobs
        .iter()
        .map(|(weight, length)| world.weighted(*weight, saturating(*length)))
        .collect();
    let sum: u32 = jobs.iter().map(|(weight, _)| weight).sum();
    let wanted: Vec<f64> = jobs
        .iter()
        .map(|(weight, _)| f64::from(*weight) / f64::from(sum))
        .collect();
    world.run_until(2 * S);
    shares(&mut world, &clients, &wanted, SECONDS)
}

fn length(ns: u64) -> String {
    if ns < MS {
        format!("{} us", ns / US)
    } else {
        format!("{} ms", ns / MS)
    }
}

fn main() {
    let pairs = [[100, 100], [300, 100], [900, 100]];
    let unlike = [
        [20 * US, 5 * MS],
        [5 * MS, 20 * US],
        [20 * US, 20 * US],
        [300 * US, MS],
        [100 * MS, 50 * US],
    ];
    let mut cases: Vec<Vec<(u32, u64)>> = Vec::new();
    for weights in pairs {
        cases.extend(unlike.map(|lengths| weights.into_iter().zip(lengths).collect()));
    }
    for turn in 0..4 {
        let mut lengths = [20 * US, 5 * MS, 200 * US, MS];
        lengths.rotate_left(turn);
        cases.push([5, 15, 30, 50].into_iter().zip(lengths).collect());
    }
    for jobs in cases {
        let join = |parts: Vec<String>, by: &str| parts.join(by);
        let sum: u32 = jobs.iter().map(|(weight, _)| weight).sum();
        let asked = jobs
            .iter()
            .map(|(weight, _)| format!("{}", f64::from(*weight) * 100.0 / f64::from(sum)));
        let lengths = jobs.iter().map(|(_, ns)| length(*ns));
        let got = |shares: &Shares| {
            let parts = shares.mean.iter().map(|part| format!("{:.1}", part * 100.0));
            format!("{} %", join(parts.collect(), "/"))
        };
        let (bare, ours) = (measure(false, &jobs), measure(true, &jobs));
        println!(
            "shares in virtual time, asked {} %, kernels of {}\t{}\t{}\tworst second {:.2} points off, charge {:.2} \
             %\t",
            join(asked.collect(), "/"),
            join(lengths.collect(), "/"),
            got(&bare),
            got(&ours),
            ours.worst_pp,
            ours.accounting * 100.0,
        );
    }
}
