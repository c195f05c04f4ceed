// SPDX-License-Identifier: Apache-2.0
//! A helper or one of three processes killed in any call of a move: the job runs whole on one GPU, or is away whole.

use std::time::Duration;

use super::super::Case;
use super::faults::{end, helper_of, set_faults, standing_in, three};
use super::moved::index_of;
use super::said::{filled, ok, state};
use crate::client::PATIENCE;
use crate::rig::{MIB, Rig};

pub fn cases() -> Vec<Case> {
    let two = "needs two devices";
    vec![
        Case::new(
            "residence::a_helper_killed_in_any_call_of_a_move_is_replaced",
            helper_dies,
        )
        .simulated(two),
        Case::new(
            "residence::of_three_processes_one_dies_in_any_call_of_a_move",
            target_dies,
        )
        .simulated(two),
    ]
}

const CALLS: [&str; 5] = ["state", "lock", "checkpoint", "restore", "unlock"];
const SOON: Duration = Duration::from_secs(60);

fn other_than(gpu: u64) -> String {
    (1 - gpu).to_string()
}

/// There and back once, so that the map was tried on a process of the broker's own.
fn try_map(rig: &Rig, job: &str) {
    for _ in 0..2 {
        ok(rig, &["migrate", job, "--to", &other_than(index_of(rig, job))]);
    }
}

fn is_at_rest(rig: &Rig, job: &str, what: &str) {
    rig.eventually(SOON, what, || ["running", "suspended"].contains(&&*state(rig, job)));
    ok(rig, &["resume", job]);
}

fn helper_dies(rig: &Rig) {
    let mut client = filled(rig, "one", "2GiB");
    try_map(rig, "one");
    for call in CALLS {
        let to = other_than(index_of(rig, "one"));
        let mut command = standing_in(rig, call, &["migrate", "one", "--to", &to]);
        let broker = rig.broker_pid_quick().expect("a broker");
        rig.eventually(PATIENCE, "a helper is there", || helper_of(broker).is_some());
        let helper = helper_of(broker).expect("a helper");
        // SAFETY: the process is a child of this rig's own broker.
        unsafe { libc::kill(helper as libc::pid_t, libc::SIGKILL) };
        std::thread::sleep(Duration::from_millis(100));
        set_faults(rig, "");
        let _ = command.wait();
        is_at_rest(rig, "one", call);
        client.expect("check a 165", "check 0 0");
        client.expect(&format!("alloc {MIB} b"), "alloc 0");
        client.expect("free b", "free 0");
        rig.eventually(PATIENCE, "the books agree", || rig.books_agree());
    }
}

fn target_dies(rig: &Rig) {
    let mut probe = filled(rig, "probe", "1GiB");
    try_map(rig, "probe");
    probe.kill();
    for call in CALLS {
        let (mut job, third) = three(rig, call);
        let moved = rig
            .output(rig.partage(&["migrate", "three", "--to", "1"]))
            .status
            .success();
        let what = format!("{call}, moved {moved}");
        is_at_rest(rig, "three", &what);
        assert_eq!(third.finish().code(), None, "it was not killed in {call}");
        for (client, value) in job.members.iter_mut().zip(6..) {
            client.expect(&format!("check a {value}"), "check 0 0");
            client.expect("count", "count 0 1");
        }
        rig.eventually(PATIENCE, "the books agree", || rig.books_agree());
        end(rig, job);
    }
}
