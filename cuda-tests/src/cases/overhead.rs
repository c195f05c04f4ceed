// SPDX-License-Identifier: Apache-2.0
//! Memory that no call asks for: contexts, code, heaps. It counts like all other memory, and a context or a module that
//! does not fit is undone.

use std::time::Duration;

use super::Case;
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

const SECOND: Duration = Duration::from_secs(1);
const COSTS: &str = "the simulator says what contexts and code cost";
/// What a context costs on the simulated devices of a rig.
pub(super) const CONTEXT: u64 = 64 * MIB;
const MALLOC_HEAP: u32 = 2;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "overhead::contexts_count_and_the_one_that_does_not_fit_is_denied",
            contexts,
        )
        .simulated(COSTS),
        Case::new("overhead::a_context_counts_until_the_last_has_detached", detached).simulated(COSTS),
        Case::new("overhead::a_primary_context_counts_while_anybody_retains_it", primary).simulated(COSTS),
        Case::new("overhead::of_two_processes_one_gets_the_last_context", last_context).simulated(COSTS),
        Case::new("overhead::a_context_that_fails_leaves_no_trace", failing_context)
            .simulated("faults are the simulator's"),
        Case::new("overhead::code_counts_and_is_unloaded_where_it_does_not_fit", code).simulated(COSTS),
        Case::new("overhead::code_that_is_loaded_lazily_is_found", lazy_code).simulated(COSTS),
        Case::new("overhead::a_heap_counts_and_is_set_back_where_it_does_not_fit", heap).simulated(COSTS),
        Case::new("overhead::a_denied_context_is_explained", explained).simulated(COSTS),
    ]
}

/// What the driver holds for all processes on all devices, whatever for.
pub(super) fn truth(rig: &Rig) -> u64 {
    let machine = partage_machine::Machine::open(&rig.sim_dir()).expect("the machine is there");
    (0..machine.devices().len())
        .flat_map(|device| machine.occupants(device))
        .map(|occupant| occupant.used)
        .sum()
}

/// What `ps` says all jobs use.
fn counted(rig: &Rig) -> u64 {
    let jobs = rig.jobs();
    let devices = jobs.iter().filter_map(|job| job["devices"].as_array()).flatten();
    devices.filter_map(|device| device["used_bytes"].as_u64()).sum()
}

/// Waits until the jobs are charged with exactly what the driver holds, which is so much.
#[track_caller]
pub(super) fn comes_to(rig: &Rig, bytes: u64, what: &str) {
    assert_eq!(truth(rig), bytes, "the driver holds, {what}");
    rig.eventually(SECOND, what, || counted(rig) == bytes);
}

fn contexts(rig: &Rig) {
    let mut client = rig.client(&["-m", "160MiB", "-g", "0", "--name", "small"]);
    client.ready();
    comes_to(rig, CONTEXT, "one context");
    assert_eq!(client.room(), 96 * MIB);
    client.expect("ctx 1 0", "ctx 0");
    comes_to(rig, 2 * CONTEXT, "two contexts");
    assert_eq!(client.room(), 32 * MIB);
    client.expect("refusedctx 0", "refusedctx 2 untouched");
    client.expect("current", "current 0 some 1");
    comes_to(rig, 2 * CONTEXT, "the third was not made");
    assert_eq!(client.room(), 32 * MIB, "and its room is not kept");
    client.expect(&format!("alloc {} rest", 32 * MIB), "alloc 0");
    client.expect("alloc 1 more", "alloc 2");
    client.expect("ctxdestroy 1", "ctxdestroy 0");
    client.expect("use 0", "use 0");
    comes_to(rig, CONTEXT, "its allocation went with it");
    rig.eventually(SECOND, "the room came back", || client.room() == 96 * MIB);
    for round in 0..5 {
        client.expect("ctx 1 0", "ctx 0");
        client.expect("refusedctx 0", "refusedctx 2 untouched");
        client.expect("ctxdestroy 1", "ctxdestroy 0");
        rig.eventually(SECOND, &format!("round {round}"), || counted(rig) == CONTEXT);
    }
    // Too little for any context: the program gets the code and goes on.
    let mut tiny = rig.client(&["-m", "32MiB", "-g", "0", "--name", "tiny"]);
    tiny.expect("init 0", "init 0");
    for _ in 0..3 {
        tiny.expect("refusedctx 0", "refusedctx 2 untouched");
        tiny.expect("primary 0", "primary 2");
        tiny.expect("current", "current 0 none -1");
    }
    comes_to(rig, CONTEXT, "nothing of it is left");
    let output = rig.output(rig.partage(&["set", "tiny", "mem=128MiB"]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    rig.eventually(SECOND, "a raised limit has room", || {
        tiny.say("primary 0") == "primary 0"
    });
    comes_to(rig, 2 * CONTEXT, "the other job's context");
}

fn detached(rig: &Rig) {
    let mut client = rig.client(&["-m", "400MiB", "-g", "0"]);
    client.ready();
    for round in 0..8 {
        client.expect("ctx 1 0", "ctx 0");
        client.expect("attach", "attach 0");
        client.expect(&format!("alloc {} part", 32 * MIB), "alloc 0");
        client.expect("ctxdetach 1", "ctxdetach 0");
        comes_to(rig, 2 * CONTEXT + 32 * MIB, "it is attached to once more");
        client.expect("ctxdetach 1", "ctxdetach 0");
        client.expect("use 0", "use 0");
        comes_to(rig, CONTEXT, &format!("round {round}: it went with its memory"));
    }
    assert_eq!(client.room(), 400 * MIB - CONTEXT);
}

fn primary(rig: &Rig) {
    let mut client = rig.client(&["-m", "100MiB", "-g", "0"]);
    client.expect("init 0", "init 0");
    for _ in 0..3 {
        client.expect("primary 0", "primary 0");
        comes_to(rig, CONTEXT, "retained again, it is the same");
    }
    for left in [2, 1, 0] {
        client.expect("release 0", "release 0");
        comes_to(rig, if left > 0 { CONTEXT } else { 0 }, &format!("{left} retain it"));
    }
    client.expect("primary 0", "primary 0");
    client.expect(&format!("alloc {} a", 36 * MIB), "alloc 0");
    comes_to(rig, 100 * MIB, "context and allocation");
    client.expect("alloc 1 b", "alloc 2");
    client.expect("refusedctx 0", "refusedctx 2 untouched");
    client.expect("reset 0", "reset 0");
    comes_to(rig, 0, "reset");
}

fn last_context(rig: &Rig) {
    let mut job = super::races::siblings(rig, &["-m", "200MiB", "-g", "0"], 2);
    let [first, second] = job.members.as_mut_slice() else {
        panic!("two were asked for");
    };
    comes_to(rig, 2 * CONTEXT, "a context each");
    for round in 0..10 {
        first.tell("ctx 1 0");
        second.tell("ctx 1 0");
        let mut answers = [first.answer(), second.answer()];
        assert!(truth(rig) <= 200 * MIB, "round {round}: never beyond the limit at rest");
        for (client, answer) in [(&mut *first, &answers[0]), (&mut *second, &answers[1])] {
            if answer == "ctx 0" {
                client.expect("ctxdestroy 1", "ctxdestroy 0");
            }
            client.expect("use 0", "use 0");
        }
        answers.sort();
        assert_eq!(answers, ["ctx 0", "ctx 2"], "round {round}: room for one");
        comes_to(rig, 2 * CONTEXT, &format!("round {round}"));
    }
}

fn failing_context(rig: &Rig) {
    let mut command = rig.run(&["-m", "160MiB", "-g", "0"], &crate::artefacts::client(), &["dlopen"]);
    command.env(
        "PARTAGE_SIM_FAULTS",
        "code:cuCtxCreate_v2:%2:999;code:cuDevicePrimaryCtxRetain:1:999",
    );
    let mut client = Client::start(command);
    client.ready();
    for round in 0..6 {
        client.expect("ctx 1 0", "ctx 999");
        comes_to(rig, CONTEXT, &format!("round {round}: it failed in the driver"));
        rig.eventually(SECOND, "the room is free", || client.room() == 96 * MIB);
        client.expect("ctx 1 0", "ctx 0");
        comes_to(rig, 2 * CONTEXT, &format!("round {round}: it did not"));
        client.expect("ctxdestroy 1", "ctxdestroy 0");
        client.expect("use 0", "use 0");
        comes_to(rig, CONTEXT, "gone");
    }
    client.expect("primary 0", "primary 999");
    comes_to(rig, CONTEXT, "the primary context failed");
    client.expect("primary 0", "primary 0");
    comes_to(rig, 2 * CONTEXT, "and then it did not");
}

fn code(rig: &Rig) {
    let kernels = crate::artefacts::kernels().display().to_string();
    let mut client = rig.client(&["-m", "256MiB", "-g", "0"]);
    client.ready();
    let load = |name: &str| format!("module {kernels} {} {name}", 16 * MIB);
    client.expect(&load("it"), "module 0");
    let cost = truth(rig) - CONTEXT;
    assert!((16 * MIB..24 * MIB).contains(&cost), "{cost}");
    comes_to(rig, CONTEXT + cost, "a module");
    let room = client.room();
    assert_eq!(room, 256 * MIB - CONTEXT - cost, "the module is seen in the room");
    // Filled up, the same again does not fit by half.
    client.expect(&format!("alloc {} pad", room - cost / 2), "alloc 0");
    client.expect(&load("other"), "module 2");
    comes_to(rig, 256 * MIB - cost / 2, "it was unloaded again");
    client.expect("free pad", "free 0");
    client.expect(&load("other"), "module 0");
    comes_to(rig, CONTEXT + 2 * cost, "now it fits");
    for name in ["it", "other"] {
        client.expect(&format!("moduleunload {name}"), "moduleunload 0");
    }
    comes_to(rig, CONTEXT, "all unloaded");
    // Smaller than what is measured at once, it is measured all the same.
    client.expect(&format!("module {kernels} 0 small"), "module 0");
    comes_to(rig, truth(rig), "a small module");
    client.expect("moduleunload small", "moduleunload 0");
    comes_to(rig, CONTEXT, "and without it");
}

/// The code of a library is loaded when it is first needed, by whichever call: only a periodic look can see that.
fn lazy_code(rig: &Rig) {
    let kernels = crate::artefacts::kernels().display().to_string();
    let mut client = rig.client(&["-m", "256MiB", "-g", "0"]);
    client.expect("init 0", "init 0");
    client.expect(&format!("library {kernels} {} it", 16 * MIB), "library 0");
    assert_eq!(truth(rig), 0, "without a context a library takes nothing");
    client.expect("ctx 0", "ctx 0");
    comes_to(rig, CONTEXT, "the context alone");
    client.expect("librarymodule it", "librarymodule 0");
    let held = truth(rig);
    assert!(held >= CONTEXT + 16 * MIB, "{held}");
    // A device on which nothing moves is looked at every ten seconds.
    rig.eventually(12 * SECOND, "the periodic look", || counted(rig) == held);
    client.expect("libraryunload it", "libraryunload 0");
    comes_to(rig, CONTEXT, "unloaded");
}

fn heap(rig: &Rig) {
    let mut client = rig.client(&["-m", "256MiB", "-g", "0"]);
    client.ready();
    let usual = client.numbers(&format!("getlimit {MALLOC_HEAP}"))[1];
    let set = |bytes: u64| format!("limit {MALLOC_HEAP} {bytes}");
    client.expect(&set(usual + 100 * MIB), "limit 0");
    comes_to(rig, CONTEXT + 100 * MIB, "a heap of 100 MiB more");
    client.expect(&set(usual + GIB), "limit 2");
    client.expect(
        &format!("getlimit {MALLOC_HEAP}"),
        &format!("getlimit 0 {}", usual + 100 * MIB),
    );
    comes_to(rig, CONTEXT + 100 * MIB, "set back to what it was");
    assert_eq!(client.room(), 92 * MIB);
    client.expect(&set(usual), "limit 0");
    comes_to(rig, CONTEXT, "given back");
    rig.eventually(SECOND, "the room came back", || client.room() == 192 * MIB);
    for (which, value) in [(99, 1), (MALLOC_HEAP, u64::MAX)] {
        let line = format!("limit {which} {value}");
        let mut bare = rig.bare_client("dlopen");
        bare.ready();
        assert_eq!(client.say(&line), bare.say(&line), "{line}");
    }
}

fn explained(rig: &Rig) {
    let mut command = rig.run(&["-m", "100MiB", "-g", "0"], &crate::artefacts::client(), &["dlopen"]);
    command.env("PARTAGE_LOG", "stderr");
    let mut client = Client::start(command);
    client.ready();
    comes_to(rig, CONTEXT, "one context");
    client.expect("refusedctx 0", "refusedctx 2 untouched");
    client.wait_for_stderr(
        "a context needs 64 MiB, limit 100 MiB, 64 MiB in use by j1 (GPU 0), raise with: partage set j1 mem=256MiB",
    );
    client.expect(&format!("limit {MALLOC_HEAP} {}", 58 * MIB), "limit 2");
    client.wait_for_stderr("the context's limit needs 50 MiB, limit 100 MiB, 64 MiB in use by j1 (GPU 0), raise with:");
    // Nothing is known of contexts on a device before the first.
    let mut command = rig.run(&["-m", "32MiB", "-g", "1"], &crate::artefacts::client(), &["dlopen"]);
    command.env("PARTAGE_LOG", "stderr");
    let mut other = Client::start(command);
    other.expect("init 0", "init 0");
    other.expect("refusedctx 0", "refusedctx 2 untouched");
    other.wait_for_stderr("a context needs 64 MiB, limit 32 MiB, 0 B in use by j2 (GPU 1)");
    let why = rig.output(rig.partage(&["why", "j1"]));
    let why = String::from_utf8_lossy(&why.stdout)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(why.contains("context"), "{why}");
}
