// SPDX-License-Identifier: Apache-2.0
//! Jobs that agreed leave for a request of a higher class or when they are idle, and come back by themselves.

use std::time::Duration;

use super::super::Case;
use super::said::{filled_with, kill_broker, no, ok, state, used_by};
use crate::client::{Client, PATIENCE};
use crate::rig::{GIB, Rig};

pub fn cases() -> Vec<Case> {
    const SIZE: &str = "its numbers are those of a GPU of 16 GiB";
    vec![
        Case::new("residence::a_low_job_leaves_for_a_high_one_and_comes_back", comes_back).simulated(SIZE),
        Case::new("residence::a_preempted_job_outlives_the_broker", outlives).simulated(SIZE),
        Case::new("residence::a_job_that_did_not_agree_stays", stays).simulated(SIZE),
        Case::new("residence::an_idle_job_leaves_and_comes_back_at_its_next_call", idle),
    ]
}

/// A job of priority low with some memory of one byte, that was suspended once: what that took is known from then on.
fn low(rig: &Rig, more: &[&str]) -> Client {
    let mut arguments = vec!["--priority", "low"];
    arguments.extend(more);
    let client = filled_with(rig, "low", "12GiB", 16, &arguments);
    ok(rig, &["suspend", "low"]);
    ok(rig, &["resume", "low"]);
    client
}

/// A program whose promise does not fit beside it.
pub fn high(rig: &Rig) -> Client {
    let mut client = rig.client(&["-m", "12GiB", "-g", "0", "--name", "high", "--priority", "high"]);
    client.ready();
    client.expect(&format!("alloc {} b", 11 * GIB), "alloc 0");
    client
}

fn comes_back(rig: &Rig) {
    let mut low = low(rig, &[]);
    for _ in 0..2 {
        let high = high(rig);
        assert_eq!(state(rig, "low"), "suspended");
        low.tell("check a 165");
        let why = ok(rig, &["why", "low"]);
        assert!(
            why.contains("and comes back by itself") && why.contains("to come back: the job needs 12 GiB on GPU 0"),
            "{why}"
        );
        assert_eq!(low.try_answer(), None, "it runs while it is suspended");
        assert!(high.finish().success());
        assert_eq!(low.answer(), "check 0 0");
        assert_eq!(state(rig, "low"), "running");
    }
    let events = ok(rig, &["events"]);
    assert!(events.contains("(low) leaves its GPU for "), "{events}");
    assert!(low.finish().success());
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}

/// The next broker knows that it is to come back, and a `suspend` that it is not.
fn outlives(rig: &Rig) {
    let mut low = low(rig, &[]);
    let mut first = high(rig);
    kill_broker(rig);
    assert_eq!(state(rig, "low"), "suspended");
    first.kill();
    low.expect("check a 165", "check 0 0");
    let mut second = high(rig);
    assert_eq!(ok(rig, &["suspend", "low"]), "j1 is suspended already");
    second.kill();
    rig.eventually(PATIENCE, "it ended", || state(rig, "high").is_empty());
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(state(rig, "low"), "suspended");
    ok(rig, &["resume", "low"]);
    low.expect("check a 165", "check 0 0");
}

fn stays(rig: &Rig) {
    let mut low = low(rig, &["--preemptible=no"]);
    let run = [
        "run",
        "-m",
        "12GiB",
        "-g",
        "0",
        "--priority",
        "high",
        "--wait-timeout",
        "3s",
        "true",
    ];
    let (code, said) = no(rig, &run);
    assert_eq!(code, Some(124), "{said}");
    assert!(said.contains("no room within "), "{said}");
    assert_eq!(state(rig, "low"), "running");
    low.expect("check a 165", "check 0 0");
}

fn idle(rig: &Rig) {
    let mut client = filled_with(rig, "idle", "4GiB", 16, &["--idle-release", "1s"]);
    // What a swap takes is known from then on.
    ok(rig, &["suspend", "idle"]);
    ok(rig, &["resume", "idle"]);
    for _ in 0..2 {
        rig.eventually(PATIENCE, "it leaves", || state(rig, "idle") == "suspended");
        assert_eq!(used_by(rig, "idle"), 0);
        let why = ok(rig, &["why", "idle"]);
        assert!(
            why.contains("because it was idle, and comes back at its next call"),
            "{why}"
        );
        // The first time it is wanted too soon, and has to be idle for twice as long.
        client.expect("check a 165", "check 0 0");
        assert_eq!(state(rig, "idle"), "running");
    }
    let events = ok(rig, &["events"]);
    assert!(events.contains("did nothing with its GPU for "), "{events}");
    ok(rig, &["suspend", "idle"]);
    client.tell("check a 165");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(client.try_answer(), None, "a command keeps it away");
    ok(rig, &["resume", "idle"]);
    assert_eq!(client.answer(), "check 0 0");
}
