// SPDX-License-Identifier: Apache-2.0
//! Jobs of `--idle-release` leave when they are idle and come back at their next call, in virtual time.

use partage_policy::{Action, Event};
use partage_protocol::admin::RunRequest;
use partage_protocol::units::{GIB, JobId, SECOND_NS};

use crate::host::{Host, mem};
use crate::preemption::{Engine, at_work, of};

const IDLE_NS: u64 = 10 * SECOND_NS;

fn leaves_when_idle() -> RunRequest {
    RunRequest {
        idle_release_ns: Some(IDLE_NS),
        ..mem("6g")
    }
}

/// What the broker's looks at the pages find.
fn quiet(host: &mut Host, job: JobId, for_ns: u64) {
    host.step(Event::Quiet { job, for_ns });
}

#[test]
fn it_leaves_after_that_time_and_comes_back_at_its_next_call() {
    let mut host = Host::new(&[8]);
    let (job, client) = at_work(&mut host, leaves_when_idle(), 4);
    let mut engine = Engine::default();
    engine.told(&host);
    quiet(&mut host, job, IDLE_NS - 1);
    assert!(engine.told(&host).is_empty());
    assert_eq!(host.policy.leave_when_idle().collect::<Vec<_>>(), [(job, false)]);
    quiet(&mut host, job, IDLE_NS);
    engine.work(&mut host);
    assert_eq!(host.state_of(job), "suspended");
    assert_eq!(host.policy.leave_when_idle().collect::<Vec<_>>(), [(job, true)]);
    assert_eq!(host.policy.waiting_jobs(), 0, "nothing wants it back");
    let (other, first) = host.admitted(2, mem("6g"));
    host.step(Event::Wanted(job));
    engine.work(&mut host);
    assert_eq!(host.state_of(job), "suspended", "it waits for room");
    host.finish(other, first);
    host.pass(6 * SECOND_NS);
    engine.work(&mut host);
    assert_eq!(host.state_of(job), "running");
    assert_eq!(host.used(client, 0), 4 * GIB);
}

#[test]
fn a_job_that_did_not_ask_for_it_or_that_has_just_begun_stays() {
    let mut host = Host::new(&[16]);
    let (other, _) = at_work(&mut host, mem("6g"), 4);
    let (job, first) = host.admitted(1, leaves_when_idle());
    let client = host.attach(job, first);
    assert!(host.allocate(client, 0, 4 * GIB));
    let mut engine = Engine::default();
    engine.told(&host);
    quiet(&mut host, other, 100 * IDLE_NS);
    quiet(&mut host, job, IDLE_NS);
    assert!(engine.told(&host).is_empty());
    host.pass(90 * SECOND_NS);
    quiet(&mut host, job, IDLE_NS);
    assert_eq!(engine.told(&host), [job], "ten times a swap of 4 GiB have passed");
}

#[test]
fn a_call_a_little_after_that_time_again_and_again_does_not_move_it_each_time() {
    let mut host = Host::new(&[8]);
    let (job, _) = at_work(&mut host, leaves_when_idle(), 4);
    let mut engine = Engine::default();
    for _ in 0..200 {
        for second in 1..=10 {
            host.pass(SECOND_NS);
            quiet(&mut host, job, second * SECOND_NS);
        }
        engine.work(&mut host);
        if host.state_of(job) == "suspended" {
            host.pass(SECOND_NS / 2);
            host.step(Event::Wanted(job));
            engine.work(&mut host);
        }
        assert_eq!(host.state_of(job), "running");
    }
    assert_eq!(engine.swaps, 1, "from then on it has to be idle for twice as long");
    // Idle for long, it leaves, and after that it is as patient as it was told.
    quiet(&mut host, job, 2 * IDLE_NS);
    engine.work(&mut host);
    host.pass(100 * SECOND_NS);
    host.step(Event::Wanted(job));
    engine.work(&mut host);
    host.pass(60 * SECOND_NS);
    quiet(&mut host, job, IDLE_NS);
    engine.work(&mut host);
    assert_eq!((host.state_of(job), engine.swaps), ("suspended".into(), 3));
}

#[test]
fn a_suspend_by_command_and_a_restart_are_kept_apart() {
    let mut host = Host::new(&[8]);
    let (job, _) = at_work(&mut host, leaves_when_idle(), 4);
    let mut engine = Engine::default();
    quiet(&mut host, job, IDLE_NS);
    engine.work(&mut host);
    let records = host.records();
    let mut next = host.clone();
    next.restart(records);
    assert_eq!(next.policy.leave_when_idle().collect::<Vec<_>>(), [(job, true)]);
    next.step(Event::Wanted(job));
    assert_eq!(
        next.policy.waiting_jobs() + usize::from(came(&next, job)),
        1,
        "the next broker, too, brings it back"
    );
    host.step(Event::Stays(job));
    host.step(Event::Wanted(job));
    assert!(!came(&host, job), "a command keeps it away");
    assert_eq!(host.policy.waiting_jobs(), 0);
}

fn came(host: &Host, job: JobId) -> bool {
    host.commands.contains(&Action::Come(job))
}

#[test]
fn the_room_of_an_idle_job_that_left_is_free_at_once() {
    let mut host = Host::new(&[8]);
    let request = RunRequest {
        idle_release_ns: Some(IDLE_NS),
        ..of("low", "6g")
    };
    let (job, _) = at_work(&mut host, request, 4);
    let mut engine = Engine::default();
    quiet(&mut host, job, IDLE_NS);
    engine.work(&mut host);
    let (ticket, _) = host.run(2, of("high", "6g"));
    assert!(host.job_of(ticket).is_some(), "its room is free");
    assert_eq!(engine.swaps, 1);
}
