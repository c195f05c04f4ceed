// SPDX-License-Identifier: Apache-2.0
//! Work that does not end, calls of the driver that hang, and processes that are stopped: the job stands in a state
//! that is said, nobody else waits for it, and it goes on once that is over.

use std::process::Child;
use std::time::Duration;

use super::super::{Case, tenth};
use super::faults::{set_faults, standing_in};
use super::said::{filled, no, ok, state};
use crate::artefacts::kernels;
use crate::client::{Client, PATIENCE};
use crate::rig::{MIB, Rig, Spec};

pub fn cases() -> Vec<Case> {
    let why = "faults are the simulator's";
    vec![
        Case::new("residence::work_in_flight_gets_as_long_as_its_command_says", as_said).simulated(why),
        Case::new("residence::work_without_end_is_given_up", endless).simulated(why),
        Case::new(
            "residence::a_call_that_hangs_leaves_a_state_that_is_said_and_nobody_else_waiting",
            hangs,
        )
        .simulated(why),
        Case::new("residence::a_process_stopped_in_any_call_goes_on_with_it", stopped).simulated(why),
    ]
}

/// A job of one process that launches kernels, with its memory filled.
fn one(rig: &Rig) -> Client {
    let mut client = filled(rig, "one", "2GiB");
    client.expect(&format!("gateready {}", kernels().display()), "gateready 0");
    client
}

/// Another job is there and back, while something stands in the first one.
fn another(rig: &Rig) {
    let mut other = filled(rig, "other", "1GiB");
    ok(rig, &["suspend", "other"]);
    ok(rig, &["resume", "other"]);
    other.expect("check a 165", "check 0 0");
    assert!(other.finish().success());
}

/// A thread that is inside the driver for a while, with a patience that is too short and with one that is not.
fn as_said(rig: &Rig) {
    let mut client = one(rig);
    for (patience, is_given_up) in [("100ms", true), ("1m", false)] {
        set_faults(rig, "slow:cuMemAlloc_v2:1:1500");
        client.tell(&format!("alloc {MIB} b"));
        std::thread::sleep(Duration::from_millis(200));
        set_faults(rig, "");
        let suspend = ["suspend", "one", "--drain-timeout", patience];
        if is_given_up {
            let (code, said) = no(rig, &suspend);
            assert_eq!(code, Some(1), "{said}");
            assert!(
                said.contains("a thread stayed inside a driver call for too long")
                    && said.contains("it was waited for 100ms: --drain-timeout gives it longer"),
                "{said}"
            );
            assert_eq!(state(rig, "one"), "running");
        } else {
            ok(rig, &suspend);
            ok(rig, &["resume", "one"]);
        }
        assert_eq!(client.answer(), "alloc 0");
        client.expect("free b", "free 0");
        client.expect("check a 165", "check 0 0");
    }
}

/// A host function that waits for a thread which the hold holds, and a kernel that never ends.
fn endless(rig: &Rig) {
    let late = "could not lock the process: work on the GPU did not end in time (600)";
    let mut client = one(rig);
    client.expect("standing", "standing 0");
    let mut suspend = rig.partage(&["suspend", "one", "--drain-timeout", "2s"]);
    suspend.stderr(std::process::Stdio::piped());
    let suspend = suspend.spawn().expect("it starts");
    rig.eventually(PATIENCE, "it is held", || state(rig, "one") == "suspending");
    // The host function ends after this call, and this call stands at the hold.
    client.tell(&format!("alloc {MIB} b"));
    client.tell("unhold");
    let output = suspend.wait_with_output().expect("ours");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains(late), "{said}");
    assert_eq!(client.answer(), "alloc 0");
    assert!(client.answer().starts_with("unhold"));
    client.expect("do context_sync", "do 0");
    ok(rig, &["suspend", "one"]);
    ok(rig, &["resume", "one"]);
    client.expect("check a 165", "check 0 0");
    set_faults(rig, "hang:spin_ns:1");
    client.expect("spins 1 1000", "spins 0");
    std::thread::sleep(Duration::from_millis(200));
    set_faults(rig, "");
    for command in [&["suspend", "one"][..], &["migrate", "one", "--to", "1"]] {
        let (code, said) = no(rig, &[command, &["--drain-timeout", "300ms"]].concat());
        assert!(code == Some(1) && said.contains(late), "{said}");
        assert!(said.contains("--drain-timeout gives it longer"), "{said}");
        assert_eq!(state(rig, "one"), "running");
        // A free would wait for the kernel.
        client.expect(&format!("alloc {MIB} {}", command[0]), "alloc 0");
        another(rig);
    }
    // A drain names it as a job that stays.
    let output = rig.output(rig.partage(&["drain", "0", "--drain-timeout", "300ms"]));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("j1 stays: ") && said.contains(late), "{said}");
    client.kill();
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}

/// The driver's operations, with the command in which each is and the state in which the job stands.
const CALLS: [(&str, &str, &[&str]); 5] = [
    ("state", "suspend", &["running"]),
    ("lock", "suspend", &["suspending", "resuming"]),
    ("checkpoint", "suspend", &["suspending", "resuming"]),
    ("restore", "resume", &["resuming"]),
    ("unlock", "resume", &["resuming"]),
];

/// Whoever waited hears of it within the deadlines of the calls; the longest are those that copy.
const DEADLINES: Duration = Duration::from_secs(120);

fn until_it_ends(rig: &Rig, command: &mut Child, what: &str) {
    rig.eventually(DEADLINES, what, || command.try_wait().expect("ours").is_some());
}

/// One job for each operation, each on a machine of its own, at the same time: what they wait for is time.
fn hangs(rig: &Rig) {
    // Those that copy are given up after half a minute, and asked about for another.
    let calls = CALLS
        .iter()
        .filter(|(call, ..)| tenth() == 1 || !["checkpoint", "restore"].contains(call));
    std::thread::scope(|scope| {
        let standing: Vec<_> = calls.map(|call| scope.spawn(move || hangs_in(call))).collect();
        for one in standing {
            one.join().expect("it holds");
        }
    });
    rig.note("each operation on a machine of its own");
}

fn hangs_in((operation, command, states): &(&str, &str, &[&str])) {
    let rig = &Rig::new(Spec::DEFAULT);
    let mut client = one(rig);
    if *command == "resume" {
        ok(rig, &["suspend", "one"]);
    }
    let more: &[&str] = if *command == "suspend" {
        &["--drain-timeout", "1s"]
    } else {
        &[]
    };
    let mut waits = standing_in(rig, operation, &[&[*command, "one"], more].concat());
    until_it_ends(rig, &mut waits, operation);
    assert_eq!(waits.wait().expect("ours").code(), Some(1), "{operation}");
    let now = state(rig, "one");
    assert!(states.contains(&&*now), "{operation}: {now}");
    if now != "running" {
        let why = ok(rig, &["why", "one"])
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(why.contains("it stands there: "), "{operation}: {why}");
        assert!(ok(rig, &["events"]).contains("job-stuck"), "{operation}");
    }
    set_faults(rig, "");
    rig.eventually(DEADLINES, operation, || {
        ["running", "suspended"].contains(&&*state(rig, "one"))
    });
    ok(rig, &["resume", "one"]);
    client.expect("check a 165", "check 0 0");
    rig.eventually(PATIENCE, "the books agree", || rig.books_agree());
    let why = ok(rig, &["why", "one"]);
    assert!(!why.contains("it stands there"), "{why}");
    assert!(client.finish().success());
}

/// Stopped inside each operation: others go on meanwhile, and it does after SIGCONT.
fn stopped(rig: &Rig) {
    let mut client = one(rig);
    for (operation, command, _) in CALLS {
        if command == "resume" && state(rig, "one") == "running" {
            ok(rig, &["suspend", "one"]);
        }
        let mut waits = standing_in(rig, operation, &[command, "one"]);
        client.signal(libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(100));
        set_faults(rig, "");
        another(rig);
        // Calls that copy have half a minute, and no other job waited for them.
        if ["checkpoint", "restore"].contains(&operation) {
            assert!(
                waits.try_wait().expect("ours").is_none(),
                "{operation}: others waited for it"
            );
        }
        client.signal(libc::SIGCONT);
        let _ = waits.wait();
        rig.eventually(DEADLINES, operation, || {
            ["running", "suspended"].contains(&&*state(rig, "one"))
        });
        ok(rig, &["resume", "one"]);
        client.expect("check a 165", "check 0 0");
        rig.eventually(PATIENCE, "the books agree", || rig.books_agree());
    }
}
