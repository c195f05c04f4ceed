// SPDX-License-Identifier: Apache-2.0
//! Contexts on a simulated machine, where they cost something: what a job uses is what the driver holds for it.

use std::time::{Duration, Instant};

use partage_protocol::units::{GIB, MIB};

use crate::client::ClientProcess;
use crate::rig::{PATIENCE, Rig};

const CONTEXT: u64 = 512 * MIB;

/// What the driver holds for everybody on device 0.
fn truth(rig: &Rig) -> u64 {
    let machine = rig.machine.as_ref().expect("a machine");
    machine.occupants(0).iter().map(|occupant| occupant.used).sum()
}

#[test]
fn a_context_is_measured_and_counts_at_once() {
    let rig = Rig::with_contexts(1, 16 * GIB, CONTEXT);
    let mut client = ClientProcess::start(&rig);
    let job = client.run_and_attach(r#"{"verb":"run","mem":"4GiB"}"#);
    assert_eq!(client.call("context 0"), "ok");
    let view = rig.job(&job).devices.remove(0);
    assert_eq!((view.used_bytes, view.overhead_bytes), (CONTEXT, CONTEXT));
    assert_eq!(client.call(&format!("reserve 0 {}", 4 * GIB - CONTEXT)), "ok");
    assert_eq!(client.call("reserve 0 1"), "Limit");
    assert_eq!(rig.job(&job).devices[0].used_bytes, truth(&rig));
    assert_eq!(client.call("free 0 512"), "ok");
    assert_eq!(rig.job(&job).devices[0].used_bytes, truth(&rig));
}

#[test]
fn two_processes_at_the_limit_do_not_both_get_a_context() {
    let rig = Rig::with_contexts(1, 16 * GIB, CONTEXT);
    let mut first = ClientProcess::start(&rig);
    let job = first.run_and_attach(r#"{"verb":"run","mem":"2GiB"}"#);
    assert_eq!(first.call("context 0"), "ok");
    assert_eq!(first.call(&format!("reserve 0 {}", GIB)), "ok");
    let mut siblings = [first.sibling(&rig), first.sibling(&rig)];
    for sibling in &mut siblings {
        assert_eq!(sibling.call("attach"), format!("attached {job}"));
    }
    // Both at once: what contexts cost here is known, so the second is refused before it makes one.
    for sibling in &mut siblings {
        sibling.tell("context 0");
    }
    let mut answers: Vec<String> = siblings.iter_mut().map(ClientProcess::answer).collect();
    answers.sort();
    assert_eq!(answers, ["ok", "refused 1"]);
    assert_eq!(rig.job(&job).denied.overhead, 1);
    assert_eq!((rig.job(&job).devices[0].used_bytes, truth(&rig)), (2 * GIB, 2 * GIB));
}

#[test]
fn a_context_that_does_not_fit_is_told_to_go_and_its_room_comes_back() {
    let rig = Rig::with_contexts(1, 16 * GIB, CONTEXT);
    let mut first = ClientProcess::start(&rig);
    let job = first.run_and_attach(r#"{"verb":"run","mem":"400MiB"}"#);
    assert_eq!(first.call("context 0"), "destroyed 1");
    let view = rig.job(&job);
    assert_eq!((view.devices[0].used_bytes, view.state.as_str()), (0, "running"));
    assert_eq!(first.call("context 0"), "refused 1", "it is known now what it costs");
    assert_eq!(view.denied.overhead, 1);
}

#[test]
fn what_nobody_measures_is_found() {
    let rig = Rig::with_contexts(1, 16 * GIB, CONTEXT);
    let mut client = ClientProcess::start(&rig);
    let job = client.run_and_attach(r#"{"verb":"run","mem":"4GiB"}"#);
    // Opens its context without a word.
    assert_eq!(client.call(&format!("reserve 0 {GIB}")), "ok");
    let since = Instant::now();
    while rig.job(&job).devices[0].used_bytes != truth(&rig) {
        assert!(since.elapsed() < PATIENCE, "{:?}", rig.job(&job));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(truth(&rig), GIB + CONTEXT);
}

#[test]
fn overhead_is_known_to_the_next_broker() {
    let mut rig = Rig::with_contexts(1, 16 * GIB, CONTEXT);
    let mut client = ClientProcess::start(&rig);
    let job = client.run_and_attach(r#"{"verb":"run","mem":"2GiB"}"#);
    assert_eq!(client.call("context 0"), "ok");
    for is_ledger_lost in [false, true] {
        rig.kill();
        if is_ledger_lost {
            std::fs::remove_file(rig.socket_dir().join("state/ledger")).expect("removed");
        }
        rig.start();
        assert_eq!(client.call("attach"), format!("attached {job}"));
        assert_eq!(rig.job(&job).devices[0].overhead_bytes, CONTEXT);
        assert_eq!(client.call(&format!("reserve 0 {}", 2 * GIB - CONTEXT + 1)), "Limit");
    }
    client.kill();
    rig.wait_for_status("free of it", |status| status.broker.clients == 0);
}
