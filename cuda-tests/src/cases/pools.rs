// SPDX-License-Identifier: Apache-2.0
//! Stream-ordered pools: what a pool reserves is charged, once, however often it is handed out; after each step
//! the ledger agrees with the driver's books.

use std::time::Duration;

mod books;
mod failures;

pub use books::even;
use failures::{forked, injected, killed};

use super::{Case, Random, tenth};
use crate::rig::{CONTEXT_BYTES, GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    let simulated = |name, body| Case::new(name, body).simulated("the simulator's books tell pools from overhead");
    vec![
        Case::new("pools::a_pool_fills_to_the_limit_and_no_further", fills),
        simulated("pools::reuse_is_not_charged_twice", reuse),
        simulated("pools::a_custom_pool_is_charged_until_it_is_destroyed", custom),
        simulated("pools::trim_and_release_threshold_give_back", trim_and_threshold),
        simulated("pools::a_pool_may_end_before_its_allocations", destroyed_early),
        simulated("pools::what_ends_with_its_context_is_refunded", context_end),
        simulated("pools::another_current_pool_is_charged", current_pool),
        simulated("pools::the_streams_device_is_charged_not_the_current_one", two_devices),
        simulated("pools::the_last_context_takes_its_pool_memory_along", last_context),
        simulated("pools::denials_on_busy_streams_do_not_add_up", busy_streams),
        simulated(
            "pools::plain_memory_freed_in_order_is_refunded_when_it_is_free",
            plain_memory,
        ),
        simulated("pools::idle_pool_memory_makes_room", makes_room),
        simulated(
            "pools::at_the_limit_kept_memory_is_handed_out_again",
            reuse_at_the_limit,
        ),
        simulated("pools::sixteen_threads_leave_nothing_behind", threads),
        simulated("pools::random_steps_keep_ledger_and_truth_equal", random_steps),
        simulated("pools::ten_thousand_cycles_end_at_zero", cycles),
        Case::new("pools::killed_in_a_full_pool_another_process_takes_it", killed),
        simulated("pools::failures_in_the_driver_leave_nothing_behind", injected),
        simulated("pools::a_forked_child_has_pools_of_its_own", forked),
    ]
}

fn fills(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    let mut held = 0;
    while client.say(&format!("allocasync {} a{held}", 32 * MIB)) == "allocasync 0" {
        held += 1;
        assert!(held <= 32, "{held} times 32 MiB within 1 GiB");
    }
    // A real context, its pool's step and alignment take their part of the limit.
    assert!(held >= 8, "only {held}");
    client.expect(&format!("allocasync {} more", 32 * MIB), "allocasync 2");
    client.expect(&format!("freeasync a{}", held - 1), "freeasync 0");
    client.expect(&format!("allocasync {} more", 32 * MIB), "allocasync 0");
    client.expect(&format!("allocasync {} evenmore", 32 * MIB), "allocasync 2");
    for index in 0..held - 1 {
        client.expect(&format!("freeasync a{index}"), "freeasync 0");
    }
    client.expect("freeasync more", "freeasync 0");
    client.expect("ctxsync", "ctxsync 0");
    client.expect(&format!("alloc {} all", 8 * 32 * MIB), "alloc 0");
}

fn reuse(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect("stream s", "stream 0");
    for bytes in [1, 512, 513, 3 * MIB, 700 * MIB] {
        for round in 0..20 {
            client.expect(&format!("allocasync {bytes} a s"), "allocasync 0");
            if round % 10 == 0 {
                even(rig, "allocated");
            }
            client.expect("freeasync a s", "freeasync 0");
        }
        even(rig, "freed");
        client.expect("streamsync s", "streamsync 0");
        even(rig, "synchronised");
    }
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "at the end");
    assert_eq!(rig.ledger_used(), 0, "a threshold of 0 keeps nothing");
    for refused in ["allocasync 0 z", "freeasync nothing"] {
        assert!(!client.say(refused).ends_with(" 0"), "{refused}");
    }
    even(rig, "refused calls");
}

fn custom(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect("pool mine", "pool 0");
    client.expect(&format!("allocpool {} a mine", 900 * MIB), "allocpool 0");
    even(rig, "allocated");
    client.expect(&format!("allocpool {} b mine", 200 * MIB), "allocpool 2");
    client.expect(&format!("allocasync {} b", 200 * MIB), "allocasync 2");
    client.expect(&format!("alloc {} b", 200 * MIB), "alloc 2");
    even(rig, "denied");
    client.expect("freeasync a", "freeasync 0");
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "freed");
    client.expect(&format!("allocpool {} b mine", 200 * MIB), "allocpool 0");
    // A free that waits, of a pool's memory.
    client.expect("free b", "free 0");
    even(rig, "freed at once");
    client.expect("pooldestroy mine", "pooldestroy 0");
    even(rig, "destroyed");
    assert_eq!(rig.ledger_used(), 0);
    client.expect("pooldestroy default", "pooldestroy 1");
    // A pool that may not hold more than it was made for refuses by itself.
    client.expect(&format!("pool small {}", 64 * MIB), "pool 0");
    client.expect(&format!("allocpool {} a small", 65 * MIB), "allocpool 2");
    even(rig, "refused by the pool's own size");
    client.expect(&format!("allocpool {} a small", 64 * MIB), "allocpool 0");
    even(rig, "within the pool's own size");
}

fn trim_and_threshold(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect(&format!("poolkeep default {}", u64::MAX), "poolkeep 0");
    client.expect(&format!("allocasync {} a", 300 * MIB), "allocasync 0");
    client.expect(&format!("allocasync {} b", 100 * MIB), "allocasync 0");
    client.expect("freeasync a", "freeasync 0");
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "kept");
    assert!(rig.ledger_used() >= 400 * MIB, "the pool keeps what was freed");
    client.expect(&format!("pooltrim default {}", 350 * MIB), "pooltrim 0");
    even(rig, "trimmed a little");
    client.expect("pooltrim default 0", "pooltrim 0");
    even(rig, "trimmed");
    assert!(rig.ledger_used() < 300 * MIB);
    client.expect("freeasync b", "freeasync 0");
    client.expect("poolkeep default 0", "poolkeep 0");
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "nothing kept");
    assert_eq!(rig.ledger_used(), 0);
}

fn destroyed_early(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect("pool mine", "pool 0");
    client.expect("poolkeep mine 1073741824", "poolkeep 0");
    for name in ["a", "b", "c"] {
        client.expect(&format!("allocpool {} {name} mine", 64 * MIB), "allocpool 0");
    }
    client.expect("freeasync a", "freeasync 0");
    client.expect("ctxsync", "ctxsync 0");
    client.expect("pooldestroy mine", "pooldestroy 0");
    even(rig, "two outlived it");
    client.expect("freeasync b", "freeasync 0");
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "one outlived it");
    client.expect("free c", "free 0");
    even(rig, "none");
    assert_eq!(rig.ledger_used(), 0);
    // Its handle may come again.
    client.expect("pool mine", "pool 0");
    client.expect(&format!("allocpool {} a mine", 512 * MIB), "allocpool 0");
    even(rig, "the next pool");
}

fn context_end(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect("pool mine", "pool 0");
    client.expect("pool other", "pool 0");
    for round in 0..3 {
        client.expect("ctx 1 0", "ctx 0");
        client.expect(&format!("allocpool {} a{round} mine", 64 * MIB), "allocpool 0");
        client.expect(&format!("allocasync {} b{round}", 64 * MIB), "allocasync 0");
        if round == 2 {
            client.expect(&format!("allocpool {} c mine", 64 * MIB), "allocpool 0");
            client.expect(&format!("allocpool {} d other", 64 * MIB), "allocpool 0");
            client.expect("pooldestroy mine", "pooldestroy 0");
        }
        even(rig, "in a context of its own");
        client.expect("ctxdestroy 1", "ctxdestroy 0");
        client.expect("use 0", "use 0");
        client.expect("pooltrim default 0", "pooltrim 0");
        client.expect("pooltrim other 0", "pooltrim 0");
        even(rig, "after its context");
    }
    client.expect("pooldestroy other", "pooldestroy 0");
    even(rig, "after both pools");
}

/// What a pool kept looked like enough and was not: the memory that is undone is the pool's until its stream gets
/// there, and meanwhile nothing more is tried.
fn busy_streams(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    rig.wait_for_overhead();
    client.expect("stream h", "stream 0");
    client.expect(&format!("poolkeep default {GIB}"), "poolkeep 0");
    let mut held = 0;
    while client.say(&format!("allocasync {} a{held} h", 20 * MIB)) == "allocasync 0" {
        held += 1;
    }
    assert!(held > 20, "only {held} times 20 MiB within 1 GiB");
    for index in (0..held).step_by(2) {
        client.expect(&format!("freeasync a{index} h"), "freeasync 0");
    }
    client.expect("streamsync h", "streamsync 0");
    even(rig, "fragments");
    let before = rig.truth_allocated();
    for index in 0..8 {
        client.expect(&format!("stream s{index}"), "stream 0");
        client.expect(&format!("hold s{index}"), "hold 0");
        client.expect(&format!("allocasync {} no s{index}", 150 * MIB), "allocasync 2");
    }
    let grown = rig.truth_allocated() - before;
    assert!(grown <= 160 * MIB, "denied allocations hold {grown} bytes");
    client.expect("unhold", "unhold");
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "what was undone is gone");
    for index in (1..held).step_by(2) {
        client.expect(&format!("freeasync a{index} h"), "freeasync 0");
    }
    client.expect("ctxsync", "ctxsync 0");
    client.expect(&format!("alloc {} room", 500 * MIB), "alloc 0");
    even(rig, "after all");
}

/// Once the last context is gone NVML shows nothing of the process: only the library can say that U fell.
fn last_context(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect("pool mine", "pool 0");
    for allocate in ["allocasync", "allocpool"] {
        let pool = if allocate == "allocpool" { " mine" } else { "" };
        client.expect(&format!("{allocate} {} a{pool}", 100 * MIB), &format!("{allocate} 0"));
        even(rig, "allocated");
        client.expect("ctxdestroy 0", "ctxdestroy 0");
        even(rig, "the context is gone");
        client.expect("forget a", "forget");
        client.expect("ctx 0", "ctx 0");
    }
    client.expect("ctxdestroy 0", "ctxdestroy 0");
    client.expect("primary 0", "primary 0");
    client.expect(&format!("allocasync {} a", 100 * MIB), "allocasync 0");
    client.expect("reset 0", "reset 0");
    even(rig, "the primary context was reset");
    assert_eq!(rig.ledger_used(), 0);
}

fn current_pool(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect(&format!("allocasync {} a", 64 * MIB), "allocasync 0");
    client.expect("pool mine", "pool 0");
    client.expect("usepool mine", "usepool 0");
    client.expect(&format!("allocasync {} b", 128 * MIB), "allocasync 0");
    even(rig, "two pools");
    client.expect(&format!("allocasync {} x", GIB - 128 * MIB), "allocasync 2");
    client.expect("freeasync b", "freeasync 0");
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "one freed");
    client.expect("pooldestroy mine", "pooldestroy 0");
    client.expect(&format!("allocasync {} b", 128 * MIB), "allocasync 0");
    even(rig, "the default pool again");
}

fn two_devices(rig: &Rig) {
    let mut client = rig.client(&["-g", "0,1", "-m", "1GiB"]);
    client.ready();
    client.expect("ctx 1 1", "ctx 0");
    client.expect("stream t", "stream 0");
    client.expect("use 0", "use 0");
    client.expect("stream s", "stream 0");
    let charged = |rig: &Rig| -> Vec<u64> {
        let jobs = rig.jobs();
        let devices = jobs[0]["devices"].as_array().cloned().unwrap_or_default();
        let bytes = |device: &serde_json::Value, name: &str| device[name].as_u64().unwrap_or(0);
        devices
            .iter()
            .map(|device| bytes(device, "used_bytes") - bytes(device, "overhead_bytes"))
            .collect()
    };
    client.expect(&format!("allocasync {} a t", 64 * MIB), "allocasync 0");
    even(rig, "the other device's stream");
    assert_eq!(charged(rig), [0, 64 * MIB]);
    client.expect(&format!("allocasync {} b s", 128 * MIB), "allocasync 0");
    client.expect(&format!("allocasync {} c", 32 * MIB), "allocasync 0");
    even(rig, "this device's streams");
    assert_eq!(charged(rig), [160 * MIB, 64 * MIB]);
    // A limit is per device: what one has left says nothing of the other.
    client.expect(&format!("allocasync {} x t", GIB), "allocasync 2");
    for (name, stream) in [("a", " t"), ("b", " s"), ("c", "")] {
        client.expect(&format!("freeasync {name}{stream}"), "freeasync 0");
    }
    client.expect("streamsync t", "streamsync 0");
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "all freed");
    assert_eq!(charged(rig), [0, 0]);
}

fn plain_memory(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect("stream s", "stream 0");
    client.expect(&format!("alloc {} a", 600 * MIB), "alloc 0");
    client.expect("hold s", "hold 0");
    client.expect("freeasync a s", "freeasync 0");
    even(rig, "its stream has not come to it");
    assert_eq!(rig.ledger_used(), 600 * MIB);
    // While the driver holds it, nobody else gets it: that would be memory beyond the limit.
    for _ in 0..3 {
        client.expect(&format!("alloc {} b", 600 * MIB), "alloc 2");
    }
    client.expect(&format!("allocasync {} b", 600 * MIB), "allocasync 2");
    even(rig, "and nothing more was taken");
    client.expect("unhold", "unhold");
    client.expect("streamsync s", "streamsync 0");
    even(rig, "its stream has come to it");
    assert_eq!(rig.ledger_used(), 0);
    // Without a synchronisation of its own, room is made by what is on its way out.
    client.expect(&format!("alloc {} a", 600 * MIB), "alloc 0");
    client.expect("freeasync a s", "freeasync 0");
    rig.eventually(
        Duration::from_secs(5),
        "an idle stream comes to its free by itself",
        || client.say(&format!("alloc {} b", 600 * MIB)) == "alloc 0",
    );
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "one left");
    assert_eq!(rig.ledger_used(), 600 * MIB);
    for round in 0..100 {
        client.expect(&format!("alloc {} r{round}", MIB), "alloc 0");
        client.expect(&format!("freeasync r{round} s"), "freeasync 0");
    }
    client.expect("eventsync s", "eventsync 0");
    even(rig, "more than are remembered");
}

fn makes_room(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect(&format!("poolkeep default {}", u64::MAX), "poolkeep 0");
    client.expect("pool mine", "pool 0");
    client.expect(&format!("poolkeep mine {}", u64::MAX), "poolkeep 0");
    client.expect(&format!("allocasync {} a", 448 * MIB), "allocasync 0");
    client.expect(&format!("allocpool {} b mine", 448 * MIB), "allocpool 0");
    client.expect("freeasync a", "freeasync 0");
    client.expect("freeasync b", "freeasync 0");
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "both keep");
    assert!(rig.ledger_used() >= 896 * MIB);
    client.expect(&format!("alloc {} c", 512 * MIB), "alloc 0");
    even(rig, "ordinary memory");
    client.expect("free c", "free 0");
    client.expect(&format!("allocpool {} d mine", 928 * MIB), "allocpool 0");
    even(rig, "a pool");
    client.expect(&format!("allocpool {} e mine", 128 * MIB), "allocpool 2");
    let denied = rig
        .jobs()
        .iter()
        .fold(0, |sum, job| sum + job["denied"]["limit"].as_u64().unwrap_or(0));
    assert!(denied >= 1, "the one denial that the program saw is counted");
}

fn reuse_at_the_limit(rig: &Rig) {
    // 512 MiB beside the context.
    let limit = format!("{}MiB", (512 * MIB + CONTEXT_BYTES) / MIB);
    let mut client = rig.client(&["-m", &limit]);
    client.ready();
    client.expect(&format!("poolkeep default {}", u64::MAX), "poolkeep 0");
    client.expect("stream s", "stream 0");
    for name in ["a", "b", "c", "d"] {
        client.expect(&format!("allocasync {} {name} s", 128 * MIB), "allocasync 0");
    }
    for _ in 0..50 {
        for name in ["b", "c"] {
            client.expect(&format!("freeasync {name} s"), "freeasync 0");
        }
        // In one piece, and in other pieces than before.
        client.expect(&format!("allocasync {} b s", 200 * MIB), "allocasync 0");
        client.expect(&format!("allocasync {} c s", 56 * MIB), "allocasync 0");
        client.expect(&format!("allocasync {} x s", 128 * MIB), "allocasync 2");
    }
    even(rig, "full all the time");
    // What only another stream has freed is not at hand for this one while that one is busy.
    client.expect("stream busy", "stream 0");
    client.expect("hold busy", "hold 0");
    client.expect("freeasync a busy", "freeasync 0");
    let answer = client.say(&format!("allocasync {} x s", 128 * MIB));
    assert!(answer == "allocasync 0" || answer == "allocasync 2", "{answer}");
    client.expect("unhold", "unhold");
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "after the busy stream");
    assert!(rig.ledger_used() <= 600 * MIB);
}

fn threads(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect("pool mine", "pool 0");
    let rounds = 4000 / tenth();
    for (seed, bytes) in [(1, 64 * 1024), (2, 4 * MIB), (3, 48 * MIB)] {
        let answer = client.say(&format!("poolthreads 16 {rounds} {bytes} {seed}"));
        assert!(answer.starts_with("poolthreads odd=0 "), "{answer}");
        even(rig, "threads are done");
        assert_eq!(rig.ledger_used(), 0, "nothing is kept at a threshold of 0");
    }
    let room = client.room() / (32 * MIB) * (32 * MIB);
    client.expect(&format!("allocasync {room} all"), "allocasync 0");
}

fn random_steps(rig: &Rig) {
    let mut random = Random::new(23);
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    for line in ["stream s", "stream t", "pool mine"] {
        client.expect(line, &format!("{} 0", line.split(' ').next().unwrap_or("")));
    }
    let mut alive: Vec<u64> = Vec::new();
    for step in 0..4000 / tenth() as u64 {
        let stream = ["", " s", " t"][random.below(3) as usize];
        let most = [4096, MIB, 300 * MIB][random.below(3) as usize];
        let bytes = 1 + random.below(most);
        match random.below(10) {
            0..4 => {
                let line = match random.below(3) {
                    0 => format!("allocpool {bytes} n{step} mine{stream}"),
                    1 => format!("alloc {bytes} n{step}"),
                    _ => format!("allocasync {bytes} n{step}{stream}"),
                };
                let answer = client.say(&line);
                if answer.ends_with(" 0") {
                    alive.push(step);
                } else {
                    assert!(answer.ends_with(" 2"), "{line}: {answer}");
                }
            }
            4..7 if !alive.is_empty() => {
                let name = alive.swap_remove(random.below(alive.len() as u64) as usize);
                let verb = ["free", "freeasync", "freeasync"][random.below(3) as usize];
                let order = if verb == "free" { "" } else { stream };
                client.expect(&format!("{verb} n{name}{order}"), &format!("{verb} 0"));
            }
            7 => client.expect("pooltrim default 0", "pooltrim 0"),
            8 => client.expect(&format!("poolkeep mine {bytes}"), "poolkeep 0"),
            _ => client.expect("ctxsync", "ctxsync 0"),
        }
        if step % 40 == 0 {
            client.expect("ctxsync", "ctxsync 0");
            even(rig, &format!("step {step}"));
        }
    }
    for name in alive {
        client.expect(&format!("freeasync n{name}"), "freeasync 0");
    }
    client.expect("ctxsync", "ctxsync 0");
    client.expect("pooltrim mine 0", "pooltrim 0");
    even(rig, "at the end");
    assert_eq!(rig.ledger_used(), 0);
}

fn cycles(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect("pool mine", "pool 0");
    // One thread: what it may hold at once always fits, so nothing is denied.
    let answer = client.say(&format!("poolthreads 1 {} {} 5", 20_000, 16 * MIB));
    assert_eq!(answer, "poolthreads odd=0 denied=0");
    even(rig, "ten thousand allocations and frees");
    assert_eq!(rig.ledger_used(), 0);
}
