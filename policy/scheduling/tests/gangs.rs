// SPDX-License-Identifier: Apache-2.0
//! No circular wait: two jobs with a rank on each of two GPUs, two collectives each, in every order of their launches.
//!
//! A rank pauses before each launch for nothing, for less than a quantum or for more; every combination is run, with
//! gangs and without, where the jobs must take turns and where they may overlap.

mod model;

use model::measure::completion;
use model::programs::{hanging, rank, saturating};
use model::{MS, S, US, World};
use partage_scheduling::Terms;

/// What docs/scheduling.md promises that a drain takes at most: not read from the configuration that is judged.
const DRAIN: u64 = 50 * MS;
const PAUSES: [u64; 3] = [0, 9 * MS, 3 * MS];

fn world(is_gang: bool, must_take_turns: bool, pauses: [u64; 8]) -> World {
    let mut world = World::new(1, 2, true);
    for gpu in 0..2 {
        world.isolate(gpu, must_take_turns);
    }
    let terms = Terms {
        is_gang,
        ..Terms::default()
    };
    for (number, pauses) in pauses.chunks(4).enumerate() {
        let job = world.job(terms);
        for (gpu, pauses) in pauses.chunks(2).enumerate() {
            world.client(job, gpu, rank(1000 * number as u64, 2, MS, pauses.to_vec()));
        }
    }
    world
}

fn search(is_gang: bool, must_take_turns: bool, choices: usize) {
    let (mut worst, mut worst_stall, mut fallbacks) = (0, 0, 0);
    // Every other pause, the one before a rank's second collective, has two choices at most.
    let kinds: [usize; 8] = std::array::from_fn(|i| if i % 2 == 0 { choices } else { 2 });
    let count = kinds.iter().product();
    for code in 0..count {
        let pauses: [u64; 8] = std::array::from_fn(|i| PAUSES[code / kinds[..i].iter().product::<usize>() % kinds[i]]);
        let mut world = world(is_gang, must_take_turns, pauses);
        let took = completion(&mut world, 2 * S);
        let took = took.unwrap_or_else(|| panic!("gang {is_gang}, turns {must_take_turns}: {pauses:?} never ends"));
        worst = worst.max(took);
        worst_stall = worst_stall.max(world.worst_stall_ns);
        // One change into Turns for each device is what was asked for.
        fallbacks += usize::from(must_take_turns && world.regimes > 2);
    }
    println!(
        "{count} orders, gang {is_gang:5}, must take turns {must_take_turns:5}: slowest {:.1} ms, longest stall {:.1} \
         ms, {fallbacks} ended by a drain timeout",
        worst as f64 / 1e6,
        worst_stall as f64 / 1e6
    );
    // What spins for its turn is not waited for again in the drain.
    assert!(worst_stall <= DRAIN + 5 * MS, "{worst_stall}");
    // With gangs nothing has to time out.
    assert!(!is_gang || fallbacks == 0, "{fallbacks}");
}

#[test]
fn gangs_that_take_turns_never_wait_for_each_other() {
    search(true, true, 3);
}

#[test]
fn jobs_that_are_no_gangs_wait_no_longer_than_a_drain() {
    // Most of these end by the timeout, which takes its time: fewer pauses unless time is no matter.
    search(
        false,
        true,
        if std::env::var_os("PARTAGE_SOAK").is_some() {
            3
        } else {
            2
        },
    );
}

#[test]
fn gangs_that_overlap_never_wait_for_each_other() {
    search(true, false, 2);
}

#[test]
fn a_gang_and_single_jobs_share_two_devices() {
    // One rank on each device, all the time, beside a saturating job on each.
    for must_take_turns in [false, true] {
        let mut world = World::new(5, 2, true);
        for gpu in 0..2 {
            world.isolate(gpu, must_take_turns);
        }
        let gang = world.job(Terms {
            is_gang: true,
            ..Terms::default()
        });
        let ranks: Vec<usize> = (0..2)
            .map(|gpu| world.client(gang, gpu, rank(0, 2, MS, vec![0; 100_000])))
            .collect();
        let singles: Vec<usize> = (0..2)
            .map(|gpu| {
                let job = world.job(Terms::default());
                world.client(job, gpu, saturating(200 * US))
            })
            .collect();
        world.run_until(2 * S);
        let busy =
            |world: &World, clients: &[usize]| -> Vec<u64> { clients.iter().map(|at| world.busy_ns(*at)).collect() };
        let before = (busy(&world, &ranks), busy(&world, &singles));
        let done = world.clients[0].retired;
        world.run_until(6 * S);
        let part = |after: Vec<u64>, before: &[u64]| -> Vec<String> {
            after
                .iter()
                .zip(before)
                .map(|(a, b)| format!("{:.1} %", (a - b) as f64 / 4e7))
                .collect()
        };
        let collectives = world.clients[0].retired - done;
        println!(
            "must take turns {must_take_turns}: ranks {:?}, singles {:?}, {collectives} collectives of 1 ms in 4 s",
            part(busy(&world, &ranks), &before.0),
            part(busy(&world, &singles), &before.1)
        );
        assert!(collectives >= 1200, "{collectives}");
        let got = |clients: &[usize], before: &[u64]| busy(&world, clients)[0] - before[0];
        assert!(got(&singles, &before.1) >= 16 * S / 10, "the single job got its share");
    }
}

#[test]
fn a_hung_kernel_of_a_gang_stalls_nobody() {
    let mut world = World::new(6, 2, true);
    for gpu in 0..2 {
        world.isolate(gpu, true);
    }
    let gang = world.job(Terms {
        is_gang: true,
        ..Terms::default()
    });
    world.client(gang, 0, hanging(MS, 30));
    world.client(gang, 1, saturating(MS));
    let job = world.job(Terms::default());
    let others: Vec<usize> = (0..2).map(|gpu| world.client(job, gpu, saturating(200 * US))).collect();
    world.run_until(S);
    let before = world.busy_ns(others[0]);
    world.run_until(3 * S);
    println!(
        "beside a hung kernel: {:.1} %, longest stall {:.1} ms, named {} times",
        (world.busy_ns(others[0]) - before) as f64 / 2e7,
        world.worst_stall_ns as f64 / 1e6,
        world.not_draining
    );
    // The device itself gives the hung kernel every second slice.
    assert!(world.busy_ns(others[0]) - before >= 9 * S / 10);
    let stall = world.worst_stall_ns;
    assert!((DRAIN - 2 * MS..=DRAIN + 2 * MS).contains(&stall), "{stall}");
    assert!(world.not_draining >= 1);
}
