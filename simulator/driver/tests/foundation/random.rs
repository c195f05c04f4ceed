// SPDX-License-Identifier: Apache-2.0
//! Random allocations and frees, some of them failing on purpose: the totals stay exact.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::child::{Cuda, Folder, MIB, code, role};

/// The third of every seven allocations fails on purpose, every fifth free does.
const FAULTS: &str = "oom:cuMemAlloc_v2:%7; code:cuMemFree_v2:%5:999";

#[derive(Clone, Debug)]
enum Step {
    Allocate(u64),
    Free(prop::sample::Index),
}

#[test]
fn random_allocations_keep_the_totals_exact() {
    const TEST: &str = "random::random_allocations_keep_the_totals_exact";
    if role().is_none() {
        return Folder::new(1).run(TEST, "body", &[("PARTAGE_SIM_FAULTS", FAULTS)]);
    }
    let cuda = Cuda::load();
    cuda.context(0);
    let before = cuda.used();
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let config = Config {
        cases: 64,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    };
    let step = prop_oneof![
        3 => (1..40 * MIB).prop_map(Step::Allocate),
        1 => (1..5000_u64).prop_map(Step::Allocate),
        3 => any::<prop::sample::Index>().prop_map(Step::Free),
    ];
    let steps = prop::collection::vec(step, 1..120);
    let run = TestRunner::new(config).run(&steps, |steps| {
        let mut live: Vec<(u64, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Allocate(bytes) => {
                    if let Ok(address) = cuda.allocate(bytes) {
                        let cost = bytes.next_multiple_of(512);
                        prop_assert!(
                            live.iter()
                                .all(|(at, size)| address >= at + size || *at >= address + cost)
                        );
                        live.push((address, cost));
                    }
                }
                Step::Free(which) if !live.is_empty() => {
                    let place = which.index(live.len());
                    if code!(cuda, cuMemFree_v2(live[place].0)).is_success() {
                        live.swap_remove(place);
                    }
                }
                Step::Free(_) => {}
            }
            prop_assert_eq!(cuda.used(), before + live.iter().map(|(_, cost)| cost).sum::<u64>());
        }
        for (address, _) in live {
            while !code!(cuda, cuMemFree_v2(address)).is_success() {}
        }
        prop_assert_eq!(cuda.used(), before);
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
}
