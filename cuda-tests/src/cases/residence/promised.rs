// SPDX-License-Identifier: Apache-2.0
//! A job whose processes do not use a GPU yet (it downloads, it compiles) has a promise there and nothing else: it can
//! be taken back in one step, and moved.

use super::super::Case;
use super::moved::{index_of, uuids};
use super::said::{kill_broker, no, ok, state};
use crate::cases::races::{Siblings, siblings};
use crate::client::PATIENCE;
use crate::rig::{GIB, Rig};

pub fn cases() -> Vec<Case> {
    const SIZE: &str = "its numbers are those of two GPUs of 16 GiB";
    vec![
        Case::new(
            "residence::a_promise_of_a_job_that_uses_no_gpu_yet_is_taken_back",
            suspended,
        )
        .simulated(SIZE),
        Case::new(
            "residence::a_job_that_uses_no_gpu_yet_leaves_for_one_of_a_higher_class",
            preempted,
        )
        .simulated(SIZE),
        Case::new("residence::a_job_that_uses_no_gpu_yet_moves", moved).simulated(SIZE),
    ]
}

/// A job of 12 GiB without a client.
fn early(rig: &Rig, more: &[&str]) -> Siblings {
    let mut options = vec!["-m", "12GiB", "-g", "0", "--name", "early"];
    options.extend(more);
    siblings(rig, &options, 0)
}

fn suspended(rig: &Rig) {
    let mut job = early(rig, &[]);
    let said = ok(rig, &["suspend", "early"]);
    let expected = "j1 is suspended: no process of it uses a GPU yet, and its promises are free for others";
    assert_eq!(said, expected);
    assert_eq!(state(rig, "early"), "suspended");
    let why = ok(rig, &["why", "early"]);
    assert!(
        why.contains("it is suspended: no process of it uses a GPU yet"),
        "{why}"
    );
    // Its promise is another job's.
    let mut other = rig.client(&["-m", "12GiB", "-g", "0", "--name", "other", "--on-full", "fail"]);
    other.ready();
    // Its first process comes, and waits, over a broker's death too.
    let mut client = job.start(rig);
    client.tell("init 0");
    kill_broker(rig);
    other.expect(&format!("alloc {} b", 11 * GIB), "alloc 0");
    assert_eq!((state(rig, "early").as_str(), client.try_answer()), ("suspended", None));
    let (code, said) = no(rig, &["resume", "early", "--on-full", "fail"]);
    assert!(code == Some(1) && said.contains("needs 12 GiB on GPU 0"), "{said}");
    assert_eq!(client.try_answer(), None, "there is no room");
    assert!(other.finish().success());
    ok(rig, &["resume", "early"]);
    assert_eq!(
        (client.answer(), state(rig, "early").as_str()),
        ("init 0".to_owned(), "running")
    );
    client.expect("ctx 0", "ctx 0");
    client.expect(&format!("alloc {} a", 11 * GIB), "alloc 0");
    assert_eq!(ok(rig, &["resume", "early"]), "j1 is not suspended");
    assert!(client.finish().success());
    job.shell.kill();
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}

fn preempted(rig: &Rig) {
    let mut job = early(rig, &["--priority", "low"]);
    let mut high = rig.client(&["-m", "12GiB", "-g", "0", "--name", "high", "--priority", "high"]);
    high.ready();
    high.expect(&format!("alloc {} b", 11 * GIB), "alloc 0");
    assert_eq!(state(rig, "early"), "suspended");
    let mut client = job.start(rig);
    client.tell("init 0");
    let why = ok(rig, &["why", "early"]);
    assert!(
        why.contains("it is suspended for j2, and comes back by itself") && why.contains("the job needs 12 GiB"),
        "{why}"
    );
    assert_eq!(client.try_answer(), None, "there is no room");
    assert!(high.finish().success());
    assert_eq!(client.answer(), "init 0");
    assert_eq!(state(rig, "early"), "running");
    client.kill();
    job.shell.kill();
}

fn moved(rig: &Rig) {
    let mut job = early(rig, &[]);
    ok(rig, &["migrate", "early", "--to", "1"]);
    assert_eq!((index_of(rig, "early"), state(rig, "early").as_str()), (1, "running"));
    let said = ok(rig, &["drain", "1"]);
    assert!(said.contains("  j1 moved to GPU 0"), "{said}");
    ok(rig, &["undrain", "1"]);
    let mut full = rig.client(&["-m", "12GiB", "-g", "1", "--name", "full", "--on-full", "fail"]);
    full.ready();
    let (code, said) = no(rig, &["migrate", "early", "--to", "1"]);
    assert!(
        code == Some(1) && said.contains("the job needs 12 GiB on GPU 1"),
        "{said}"
    );
    assert_eq!((index_of(rig, "early"), state(rig, "early").as_str()), (0, "running"));
    assert!(full.finish().success());
    ok(rig, &["migrate", "early", "--to", "1"]);
    let mut client = job.start(rig);
    client.ready();
    client.expect("uuid 0", &format!("uuid 0 {}", uuids(rig)[1]));
    client.expect(&format!("alloc {} a", 11 * GIB), "alloc 0");
    client.kill();
    job.shell.kill();
}
