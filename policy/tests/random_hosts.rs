// SPDX-License-Identifier: Apache-2.0
//! Random hosts and histories: several devices and users, promises, bursts, unmanaged processes, changed limits.
//!
//! A failure prints the smallest failing history; `PROPTEST_RNG_SEED` set to the printed seed replays the whole run.

use crate::acts::Act;
use crate::host::{Host, broker_view, caller, mem};
use partage_protocol::admin::Reply;
use partage_protocol::units::MIB;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn act(with_excuses: bool) -> BoxedStrategy<Act> {
    let mems = prop::sample::select(vec!["10%", "25%", "25%", "50%", "100%", "1GiB", "3.7GiB", "", ""]);
    let requests = prop::sample::select(vec![None, None, None, Some("5%"), Some("500MiB")]);
    let gpus = prop::sample::select(vec!["auto", "auto", "auto:2", "0", "1", "0,1"]);
    let run = (1..4u32, mems, requests, gpus, any::<bool>()).prop_map(|(uid, mem, request, gpu, wait)| Act::Run {
        uid,
        mem,
        request,
        gpu,
        wait,
    });
    let at = || 0..8usize;
    let calm = prop_oneof![
        4 => run,
        4 => (at(), any::<bool>()).prop_map(|(job, is_child)| Act::Attach { job, is_child }),
        8 => (at(), 0..2usize, 1..3000u64)
            .prop_map(|(client, slot, mib)| Act::Allocate { client, slot, bytes: mib * MIB }),
        2 => at().prop_map(|client| Act::FreeAll { client }),
        2 => at().prop_map(|client| Act::Kill { client }),
        1 => at().prop_map(|job| Act::FirstGone { job }),
        1 => at().prop_map(|job| Act::Stop { job }),
        2 => Just(Act::Measure),
        1 => (0..8u64).prop_map(|seconds| Act::Pass { seconds }),
    ];
    if !with_excuses {
        return calm.boxed();
    }
    let sets = prop::sample::select(vec!["5%", "25%", "75%", "2GiB"]);
    prop_oneof![
        12 => calm,
        1 => (at(), sets).prop_map(|(job, mem)| Act::Set { job, mem }),
        2 => (at(), 0..2usize, 0..2000u64)
            .prop_map(|(client, slot, mib)| Act::Context { client, slot, bytes: mib * MIB }),
        1 => (at(), 0..2usize, 0..6000u64)
            .prop_map(|(client, slot, mib)| Act::Drift { client, slot, bytes: mib * MIB }),
        1 => (1..3u8, 0..4000u64).prop_map(|(device, mib)| Act::Stranger { device, bytes: mib * MIB }),
    ]
    .boxed()
}

/// A seed that is printed (with a failure, as all output of a test), or the one that is asked for.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0));
    }
    println!("replay with PROPTEST_RNG_SEED={}", config.rng_seed);
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn promises_hold_whatever_happens(gib in 4..12u64, acts in prop::collection::vec(act(false), 1..80)) {
        let mut host = Host::new(&[gib, 8]);
        for act in &acts {
            host.act(act);
        }
    }

    #[test]
    fn one_device_never_lets_a_fitting_job_wait(acts in prop::collection::vec(act(false), 1..80)) {
        let mut host = Host::new(&[8]);
        for act in &acts {
            host.act(act);
        }
        host.measure();
        host.act(&Act::Measure);
    }

    #[test]
    fn nothing_breaks_when_limits_fall_and_strangers_come(acts in prop::collection::vec(act(true), 1..80)) {
        let mut host = Host::new(&[8, 8]);
        for act in &acts {
            // The ledger may be above a lowered limit; promises are still within the device.
            host.is_excused |= matches!(act, Act::Set { .. });
            host.act(act);
        }
    }

    #[test]
    fn four_jobs_of_a_quarter_always_fit(total in 64 * MIB..1 << 48, reserve in 0..32 * MIB) {
        let mut host = Host::new(&[1]);
        host.devices[0].total_bytes = total;
        host.devices[0].reserve_bytes = reserve;
        host.enumerate();
        for uid in [1, 1, 2, 2] {
            host.admitted(uid, mem("25%"));
        }
    }

    #[test]
    fn when_all_processes_are_gone_nothing_is_left(acts in prop::collection::vec(act(true), 1..60)) {
        let mut host = Host::new(&[8, 8]);
        for act in &acts {
            host.is_excused |= matches!(act, Act::Set { .. });
            host.act(act);
        }
        host.strangers.clear();
        // Each round ends every live job and so admits from the queue; no queue is longer than the history.
        for _ in 0..=acts.len() {
            for job in host.live_jobs() {
                host.finish(job.id, job.first);
            }
            host.measure();
        }
        let Reply::Ps { jobs, unmanaged, .. } = host.policy.ps(&caller(0), false, &host.board) else { panic!("ps") };
        prop_assert!(jobs.is_empty() && unmanaged.is_empty(), "{jobs:#?}");
        let status = host.policy.status(broker_view(), host.now_ns, &host.board);
        prop_assert!(status.devices.iter().all(|device| device.committed_bytes == 0));
    }
}
