// SPDX-License-Identifier: Apache-2.0
//! Jobs from admission to end: limits, waiting, changing, stopping, deaths, strictness, the broker's own life.

use std::time::Instant;

use partage_protocol::admin::{ErrorCode, Reply, Request};
use partage_protocol::units::{GIB, MIB};

use crate::client::ClientProcess;
use crate::rig::{PATIENCE, Rig};

fn error_code(reply: &Reply) -> ErrorCode {
    match reply {
        Reply::Error(error) => error.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_second_broker_yields_and_an_idle_one_leaves() {
    let mut rig = Rig::without_driver();
    assert!(rig.start_another().success());
    rig.kill();
    rig.start_with(&["--idle-exit", "1"]);
    assert!(rig.wait_for_exit().success());
}

#[test]
fn without_a_driver_run_says_so_and_a_driver_that_appears_is_found() {
    let mut rig = Rig::without_driver();
    let mut client = ClientProcess::start(&rig);
    let request = r#"{"verb":"run","mem":"1GiB","wait":true}"#;
    assert_eq!(error_code(&client.run(request)), ErrorCode::NoDriver);
    assert!(rig.status().broker.driver.starts_with("no driver"));
    rig.install(1, 4 * GIB);
    rig.wait_for_status("a driver", |status| {
        status.broker.driver == "ok" && status.devices.len() == 1
    });
    client.run_and_attach(request);
}

#[test]
fn two_processes_of_a_job_share_its_limit_exactly() {
    let rig = Rig::new(2, 16 * GIB);
    let mut first = ClientProcess::start(&rig);
    let job = first.run_and_attach(r#"{"verb":"run","mem":"25%","gpu":"1","name":"train"}"#);
    assert_eq!(first.call(&format!("reserve 0 {}", 3 * GIB)), "ok");
    assert_eq!(first.call(&format!("reserve 0 {}", GIB + 1)), "Limit");
    assert_eq!(first.call(&format!("reserve 0 {GIB}")), "ok");
    assert_eq!(first.call("reserve 0 1"), "Limit");
    assert_eq!(first.call(&format!("free 0 {}", 2 * GIB)), "ok");

    let mut second = first.sibling(&rig);
    assert_eq!(second.call("attach"), format!("attached {job}"));
    assert_eq!(second.call(&format!("reserve 0 {}", 2 * GIB + 1)), "Limit");
    assert_eq!(second.call(&format!("reserve 0 {}", GIB)), "ok");
    assert_eq!(first.call(&format!("reserve 0 {}", GIB + 1)), "Limit");
    assert_eq!(first.call(&format!("free 0 {GIB}")), "ok");
    assert_eq!(second.call(&format!("reserve 0 {}", 2 * GIB)), "ok");
    second.kill();

    rig.wait_for_status("rid of the second", |status| status.broker.clients == 1);
    let view = rig.job(&job);
    assert_eq!(view.name.as_deref(), Some("train"));
    assert_eq!((view.devices[0].index, view.devices[0].limit_bytes), (1, Some(4 * GIB)));
    assert_eq!(view.devices[0].used_bytes, GIB);
    assert_eq!(view.denied.limit, 4);
}

#[test]
fn killed_clients_give_their_quota_back_and_the_job_ends_with_the_last() {
    let rig = Rig::new(1, 16 * GIB);
    let events = rig.follow();
    let mut first = ClientProcess::start(&rig);
    let job = first.run_and_attach(r#"{"verb":"run","mem":"8GiB"}"#);
    assert_eq!(first.call(&format!("reserve 0 {}", 8 * GIB)), "ok");
    let killed = Instant::now();
    first.kill();
    events.wait_for("client-died");
    // At once: a machine that runs all tests is late by seconds at times.
    assert!(killed.elapsed() < PATIENCE, "{:?}", killed.elapsed());
    assert_eq!(events.wait_for("job-ended").job.as_deref(), Some(job.as_str()));
    assert_eq!(rig.job(&job).state, "ended");
    assert_eq!(rig.status().devices[0].committed_bytes, 0);
}

#[test]
fn a_program_replaced_by_exec_is_a_client_no_more() {
    let rig = Rig::new(1, 16 * GIB);
    let events = rig.follow();
    let mut first = ClientProcess::start(&rig);
    let job = first.run_and_attach(r#"{"verb":"run","mem":"8GiB"}"#);
    assert_eq!(first.call(&format!("reserve 0 {}", 5 * GIB)), "ok");
    first.tell("exec");
    events.wait_for("client-died");
    let view = rig.job(&job);
    assert_eq!(view.state, "running", "its first process lives");
    assert!(
        view.clients.is_empty() && view.devices[0].granted_bytes == 0,
        "{view:#?}"
    );
}

#[test]
fn a_job_waits_for_room_and_starts_when_the_holder_ends() {
    let rig = Rig::new(1, 16 * GIB);
    let mut holder = ClientProcess::start(&rig);
    let job = holder.run_and_attach(r#"{"verb":"run","mem":"75%"}"#);
    let mut waiter = ClientProcess::start(&rig);
    assert_eq!(
        error_code(&waiter.run(r#"{"verb":"run","mem":"50%"}"#)),
        ErrorCode::NoRoom
    );
    waiter.tell(r#"run {"verb":"run","mem":"50%","wait":true}"#);
    let waiting = waiter.answer();
    assert!(waiting.starts_with("waiting "), "{waiting}");
    assert_eq!(rig.status().queue.len(), 1);
    let stopped = rig.ask(&Request::Stop {
        target: job,
        grace_ns: 10_000_000,
    });
    assert!(matches!(stopped, Reply::Done { .. }), "{stopped:?}");
    let admitted = waiter.answer();
    assert!(admitted.contains("admitted"), "{admitted}");
}

#[test]
fn a_waiting_run_that_is_given_up_leaves_the_queue() {
    let rig = Rig::new(1, 16 * GIB);
    let mut holder = ClientProcess::start(&rig);
    holder.run_and_attach(r#"{"verb":"run","mem":"75%"}"#);
    let mut waiter = ClientProcess::start(&rig);
    waiter.tell(r#"run {"verb":"run","mem":"50%","wait":true}"#);
    waiter.answer();
    waiter.kill();
    rig.wait_for_status("without a queue", |status| status.queue.is_empty());
}

#[test]
fn a_limit_changes_live() {
    let rig = Rig::new(1, 16 * GIB);
    let mut client = ClientProcess::start(&rig);
    let job = client.run_and_attach(r#"{"verb":"run","mem":"4GiB"}"#);
    let set = |mem: &str| {
        rig.ask(&Request::Set {
            name: None,
            force: false,
            target: job.clone(),
            mem: Some(mem.to_owned()),
            mem_request: None,
            process_mem: None,
            terms: Default::default(),
        })
    };
    assert_eq!(client.call(&format!("reserve 0 {}", 5 * GIB)), "Limit");
    assert!(matches!(set("8GiB"), Reply::Job(_)));
    assert_eq!(client.call(&format!("reserve 0 {}", 5 * GIB)), "ok");
    assert!(matches!(set("2GiB"), Reply::Job(_)));
    assert_eq!(rig.job(&job).state, "over limit");
    assert_eq!(client.call("reserve 0 1"), "Limit");
    assert_eq!(error_code(&set("99GiB")), ErrorCode::Impossible);
}

#[test]
fn a_strict_job_loses_a_child_that_does_not_attach_within_two_seconds() {
    let rig = Rig::new(1, 16 * GIB);
    let events = rig.follow();
    let mut first = ClientProcess::start(&rig);
    let job = first.run_and_attach(r#"{"verb":"run","mem":"8GiB","strict":true}"#);
    assert_eq!(first.call(&format!("reserve 0 {}", 64 * MIB)), "ok");
    events.wait_for("client-attached");
    let since = Instant::now();
    let pid: u32 = first.call(&format!("stranger {GIB}")).parse().expect("a pid");
    let status = first.call("wait-child");
    assert!(status.contains("signal: 9"), "{status}");
    assert!(
        since.elapsed() < PATIENCE,
        "{:?}: 2 s from the first byte",
        since.elapsed()
    );
    let event = events.wait_for("unmanaged");
    assert_eq!((event.pid, event.job.as_deref()), (Some(pid), Some(job.as_str())));
    assert_eq!(first.call("reserve 0 1"), "ok", "the job itself goes on");
}

#[test]
fn a_process_outside_any_job_is_listed_and_counted() {
    let rig = Rig::with_contexts(1, 16 * GIB, 512 * MIB);
    let mut stranger = ClientProcess::start(&rig);
    assert_eq!(stranger.call(&format!("hold 0 {}", 12 * GIB)), "true");
    let mut client = ClientProcess::start(&rig);
    // The broker looks before it admits.
    let reply = client.run(r#"{"verb":"run","mem":"50%"}"#);
    assert_eq!(error_code(&reply), ErrorCode::NoRoom);
    let Reply::Ps { unmanaged, .. } = rig.ask(&Request::Ps {
        all: false,
        after: None,
    }) else {
        panic!("no ps");
    };
    assert_eq!(unmanaged[0].pid, stranger.pid());
    assert!(unmanaged[0].used_bytes > 12 * GIB, "its context counts too");
}

#[test]
fn processes_without_run_share_the_default_job_of_their_scope() {
    let rig = Rig::new(2, 16 * GIB);
    let mut client = ClientProcess::start(&rig);
    let attached = client.call("attach");
    assert!(attached.starts_with("attached j"), "{attached}");
    assert_eq!(client.call(&format!("reserve 1 {}", 10 * GIB)), "ok");
    let job = rig.job(attached.trim_start_matches("attached "));
    assert_eq!((job.devices.len(), job.pid), (2, 0));
    assert_eq!(job.devices[1].used_bytes, 10 * GIB);
    let mut other = ClientProcess::start(&rig);
    assert_eq!(other.call("attach"), attached);
}
