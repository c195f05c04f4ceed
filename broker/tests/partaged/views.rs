// SPDX-License-Identifier: Apache-2.0
//! `ps`, `status`, `queue`, `get` and `why` are made beside the loop, and say what they would say in it.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use partage_protocol::admin::{Reply, Request};
use partage_protocol::frame;
use partage_protocol::units::{GIB, MIB};

use crate::client::ClientProcess;
use crate::rig::{Rig, Wire, ask};

/// Asks for views until it is over, thirty at once; every one of them is answered.
fn ask_until(is_over: &AtomicBool, socket: &std::path::Path) -> usize {
    let mut answered = 0;
    let views = [Request::Ps { all: true, after: None }, Request::Status, Request::Queue];
    while !is_over.load(Ordering::Relaxed) {
        let wires: Vec<Wire> = views
            .iter()
            .cycle()
            .take(30)
            .map(|view| {
                let wire = Wire::connect(socket).expect("connected");
                wire.request(view);
                wire
            })
            .collect();
        for wire in wires {
            let reply = wire.reply().expect("answered");
            assert!(matches!(reply, Reply::Ps { .. } | Reply::Status(_) | Reply::Queue(_)));
            assert!(wire.reply().is_none(), "one answer, and the end");
            answered += 1;
        }
    }
    answered
}

#[test]
fn a_view_has_every_change_that_was_answered_before_it_however_many_ask() {
    let rig = Rig::new(1, 16 * GIB);
    let mut client = ClientProcess::start(&rig);
    let job = client.run_and_attach(r#"{"verb":"run","mem":"4GiB"}"#);
    let is_over = AtomicBool::new(false);
    let socket = rig.client_socket();
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..3).map(|_| scope.spawn(|| ask_until(&is_over, &socket))).collect();
        for mebibytes in 1_000..1_200 {
            let reply = client.run(&format!(r#"{{"verb":"set","target":"{job}","mem":"{mebibytes}MiB"}}"#));
            assert!(matches!(reply, Reply::Job(_)), "{reply:?}");
            assert_eq!(rig.job(&job).devices[0].limit_bytes, Some(mebibytes * MIB));
            let all = Request::Ps {
                all: false,
                after: None,
            };
            let Reply::Ps { jobs, .. } = ask(&socket, &all) else {
                panic!("no list");
            };
            assert_eq!(jobs[0].devices[0].limit_bytes, Some(mebibytes * MIB));
        }
        is_over.store(true, Ordering::Relaxed);
        for other in others {
            assert!(other.join().expect("ends") > 0);
        }
    });
}

#[test]
fn whoever_does_not_wait_for_its_answer_harms_nobody() {
    let rig = Rig::new(1, 16 * GIB);
    let mut client = ClientProcess::start(&rig);
    let job = client.run_and_attach(r#"{"verb":"run","mem":"4GiB"}"#);
    for _ in 0..20 {
        // Some go before their requests are read, some while they wait for the worker, some while it has them.
        let gone: Vec<Wire> = (0..50)
            .map(|_| {
                let wire = Wire::connect(&rig.client_socket()).expect("connected");
                wire.request(&Request::Why { target: job.clone() });
                wire
            })
            .collect();
        drop(gone);
        assert_eq!(rig.job(&job).job, job);
    }
    // A command that speaks while its view is made is closed, answered or not: it is never answered twice.
    let wire = Wire::connect(&rig.client_socket()).expect("connected");
    wire.request(&Request::Queue);
    let again = serde_json::to_vec(&Request::Queue).expect("encodes");
    for packet in frame::packets(&again) {
        // Refused where the first one is answered already.
        let _ = wire.send(&packet, &[]);
    }
    let replies: Vec<Reply> = std::iter::from_fn(|| wire.reply()).collect();
    assert!(replies.len() <= 1, "{replies:?}");
}

#[test]
fn a_view_tells_which_jobs_are_stopped_and_later_ones_that_they_go_on() {
    let rig = Rig::new(1, 16 * GIB);
    let mut client = ClientProcess::start(&rig);
    let job = client.run_and_attach(r#"{"verb":"run","mem":"4GiB"}"#);
    let process = Pid::from_raw(rig.job(&job).pid.cast_signed());
    for _ in 0..20 {
        for (signal, is_stopped) in [(Signal::SIGSTOP, true), (Signal::SIGCONT, false)] {
            kill(process, signal).expect("there");
            wait_until_stopped(process, is_stopped);
            assert_eq!(rig.job(&job).state == "stopped", is_stopped);
        }
    }
}

/// A signal takes effect a moment after `kill`.
fn wait_until_stopped(process: Pid, is_stopped: bool) {
    let stat = || std::fs::read_to_string(format!("/proc/{process}/stat")).expect("there");
    while stat().contains(") T ") != is_stopped {
        std::thread::yield_now();
    }
}
