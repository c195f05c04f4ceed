// SPDX-License-Identifier: Apache-2.0
//! The gate from the client's side: a waiting thread that is cancelled, and a program in another time namespace.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::Case;
use crate::artefacts::{client, kernels, program};
use crate::client::{Client, PATIENCE};
use crate::pages::{Pages, Stopped};
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    const PAGES: &str = "only the broker's user may open a client's pages";
    vec![
        Case::new("gate::a_cancelled_thread_is_no_longer_counted_as_waiting", |rig| {
            cancelled(rig, 0);
        })
        .simulated(PAGES),
        Case::new("gate::a_cancelled_thread_without_a_slot_is_no_longer_counted", |rig| {
            cancelled(rig, partage_protocol::gate::THREADS);
        })
        .simulated(PAGES),
        Case::new("gate::a_time_namespace_does_not_open_it", other_clock).simulated(PAGES),
    ]
}

/// `others`: threads of the program that have launched before, and live.
fn cancelled(rig: &Rig, others: usize) {
    let path = program("cancel_wait", "cancel_wait.c", &["-ldl", "-lpthread"]);
    let mut client = Client::start(rig.run(&["-m", "1GiB"], &path, &[&others.to_string()]));
    assert_eq!(client.answer(), "ready");
    let (pages, _stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    pages.close(0);
    client.tell("launch");
    pages.wait_for(rig, 0, 1);
    client.tell("cancel");
    assert_eq!(client.answer(), "cancelled");
    rig.eventually(PATIENCE, "nobody is counted as waiting", || pages.waiting(0) == 0);
    assert!(pages.is_quiet());
}

fn other_clock(rig: &Rig) {
    // The clock of the program is a day ahead, beyond any heartbeat here; then behind.
    for offset in ["86400", "-60"] {
        let options = ["-T", "--monotonic", offset];
        let mut probe = rig.command("unshare");
        if !probe
            .args(options)
            .arg("true")
            .status()
            .is_ok_and(|status| status.success())
        {
            rig.note("SKIPPED: gate::a_time_namespace_does_not_open_it: no time namespace can be made here");
            return;
        }
        let program = client().display().to_string();
        let arguments = [&options[..], &[&program, "dlopen"]].concat();
        let mut client = Client::start(rig.run(&["-m", "1GiB"], Path::new("unshare"), &arguments));
        client.ready();
        client.expect(&format!("gateready {}", kernels().display()), "gateready 0");
        client.expect("do kernel", "do 0");
        let (pages, _stopped) = (Pages::of(child_of(client.pid())), Stopped::broker(rig));
        pages.close(0);
        client.tell("do kernel");
        pages.wait_for(rig, 0, 1);
        // Longer than anybody waits without a heartbeat.
        let waited = || pages.time(0).waited_ns.load(Ordering::Relaxed);
        rig.eventually(PATIENCE, "it goes on waiting", || {
            waited() > 1_000_000_000 || pages.waiting(0) == 0
        });
        assert_eq!((pages.waiting(0), client.try_answer()), (1, None));
        assert_eq!(pages.time(0).failed_open.load(Ordering::Relaxed), 0);
        pages.open(0);
        assert_eq!(client.answer(), "do 0");
    }
}

/// `unshare` runs the program in a child: only what is born there has the other clock.
fn child_of(pid: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children
        .split_whitespace()
        .next()
        .and_then(|child| child.parse().ok())
        .unwrap_or(pid)
}
