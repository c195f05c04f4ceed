// SPDX-License-Identifier: Apache-2.0
//! Monitors ask NVML while a job is off its GPU: each is answered, and none brings the job back or keeps it there.

use std::time::{Duration, Instant};

use super::super::races::{Siblings, siblings};
use super::super::{Case, tenth};
use super::preempted::high;
use super::said::{filled_with, ok, state};
use super::saved::{criu, restore, save};
use crate::client::{Client, PATIENCE};
use crate::rig::{MIB, Rig};

pub fn cases() -> Vec<Case> {
    const SIZE: &str = "its numbers are those of a GPU of 16 GiB";
    vec![
        Case::new(
            "residence::nvml_answers_in_a_suspended_job_and_wakes_nothing",
            suspended,
        )
        .simulated(SIZE),
        Case::new(
            "residence::nvml_answers_in_a_preempted_job_and_wakes_nothing",
            preempted,
        )
        .simulated(SIZE),
        Case::new("residence::nvml_answers_in_an_idle_job_and_is_no_use_of_it", idle).simulated(SIZE),
        Case::new("residence::a_job_is_saved_while_a_thread_of_it_asks_nvml", saved).simulated(SIZE),
    ]
}

const LIMIT: u64 = 12 << 30;

/// A job whose first process computes, and whose second one has asked NVML and nothing else.
fn polled(rig: &Rig, more: &[&str]) -> (Siblings, Client) {
    let mut arguments = vec!["-m", "12GiB", "-g", "0", "--name", "polled"];
    arguments.extend(more);
    let mut job = siblings(rig, &arguments, 1);
    let computes = &mut job.members[0];
    computes.expect(&format!("alloc {} a", 16 * MIB), "alloc 0");
    computes.expect("fill a 165", "fill 0 165 165");
    computes.expect("nvml", "nvml 0");
    let mut beside = job.start(rig);
    beside.expect("nvml", "nvml 0");
    // What a swap takes is known from then on.
    ok(rig, &["suspend", "polled"]);
    ok(rig, &["resume", "polled"]);
    (job, beside)
}

/// What a monitor asks; the answers of a job that is away are those of one that is there, but for what it does.
fn asks(client: &mut Client, devices: &str) {
    client.expect("nvmldevices", devices);
    let memory = client.numbers("nvmlmem 0");
    assert_eq!((memory[0], memory[1]), (0, LIMIT), "{memory:?}");
    // What others have on the card is not free.
    assert!(memory[2] + memory[3] <= LIMIT, "{memory:?}");
    let list = client.say("nvmllist compute3 0 8");
    assert!(list.starts_with("nvmllist 0 "), "{list}");
    let busy = client.say("nvmlbusy 0");
    assert!(busy.starts_with("nvmlbusy 0 0"), "{busy}");
}

/// Polls from inside, from beside and from a new process each time, until it is enough.
fn poll(rig: &Rig, job: &mut Siblings, beside: &mut Client, mut is_enough: impl FnMut() -> bool) -> usize {
    let mut polls = 0;
    loop {
        let devices = beside.say("nvmldevices");
        assert!(devices.starts_with("nvmldevices 0 1 good GPU-"), "{devices}");
        asks(&mut job.members[0], &devices);
        asks(beside, &devices);
        let mut newcomer = job.start(rig);
        newcomer.expect("nvml", "nvml 0");
        asks(&mut newcomer, &devices);
        assert!(newcomer.finish().success());
        polls += 1;
        if is_enough() {
            return polls;
        }
    }
}

/// 30 seconds under `--soak`, else 3.
fn for_a_while(rig: &Rig, job: &mut Siblings, beside: &mut Client) {
    let until = Instant::now() + Duration::from_secs(30) / u32::try_from(tenth()).expect("small");
    let polls = poll(rig, job, beside, || {
        assert_eq!(state(rig, "polled"), "suspended");
        Instant::now() >= until
    });
    rig.note(format!("{polls} rounds of polls"));
}

fn suspended(rig: &Rig) {
    let (mut job, mut beside) = polled(rig, &[]);
    ok(rig, &["suspend", "polled"]);
    for_a_while(rig, &mut job, &mut beside);
    // One that polled and goes on to CUDA waits like any other.
    beside.tell("init 0");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(beside.try_answer(), None, "it passes the hold");
    ok(rig, &["resume", "polled"]);
    assert_eq!(beside.answer(), "init 0");
    job.members[0].expect("check a 165", "check 0 0");
}

fn preempted(rig: &Rig) {
    let (mut job, mut beside) = polled(rig, &["--priority", "low"]);
    let high = high(rig);
    for_a_while(rig, &mut job, &mut beside);
    assert!(high.finish().success());
    job.members[0].expect("check a 165", "check 0 0");
    assert_eq!(state(rig, "polled"), "running");
}

fn idle(rig: &Rig) {
    let (mut job, mut beside) = polled(rig, &["--idle-release", "1s"]);
    let until = Instant::now() + PATIENCE;
    poll(rig, &mut job, &mut beside, || {
        assert!(Instant::now() < until, "polls keep it on its GPU");
        state(rig, "polled") == "suspended"
    });
    for_a_while(rig, &mut job, &mut beside);
    job.members[0].expect("check a 165", "check 0 0");
    assert_eq!(state(rig, "polled"), "running");
}

/// The thread stands while its process is dumped, and goes on in the job and in what is restored of it.
fn saved(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = filled_with(rig, "one", "4GiB", 16, &[]);
    client.expect("nvml", "nvml 0");
    client.expect("nvmlpolls on", "nvmlpolls 0");
    for _ in 0..2 {
        save(rig, &criu, &[]).expect("it can be saved");
        client.expect("check a 165", "check 0 0");
    }
    client.expect("nvmlpolls off", "nvmlpolls 1 0");
    client.kill();
    rig.eventually(PATIENCE, "it ended", || state(rig, "one").is_empty());
    let mut again = restore(rig, &criu, &[]);
    again.expect("check a 165", "check 0 0");
    again.expect("nvmlpolls off", "nvmlpolls 1 0");
    assert!(again.finish().success());
}
