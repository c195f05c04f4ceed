// SPDX-License-Identifier: Apache-2.0
//! One of three processes stands in the way of the others: the job runs whole, or is away whole.

use super::super::Case;
use super::faults::{end, set_faults};
use super::moved::index_of;
use super::said::{no, ok, state, used_by};
use crate::cases::races::{Siblings, siblings};
use crate::client::{Client, PATIENCE};
use crate::rig::{MIB, Rig};

pub fn cases() -> Vec<Case> {
    let why = "faults are the simulator's";
    vec![
        Case::new("residence::of_three_processes_one_is_refused_in_any_call", refused).simulated(why),
        Case::new("residence::of_three_processes_one_never_leaves_the_driver", inside).simulated(why),
        Case::new("residence::of_three_processes_one_can_never_be_restored", lost).simulated(why),
    ]
}

const OPTIONS: [&str; 6] = ["-m", "6GiB", "-g", "0", "--name", "three"];

fn fill(client: &mut Client, value: usize) {
    client.expect(&format!("alloc {} a", 64 * MIB), "alloc 0");
    client.expect(&format!("fill a {value}"), &format!("fill 0 {value} {value}"));
}

/// A job with so many processes, and memory that is known.
fn job_of(rig: &Rig, count: usize) -> Siblings {
    let mut job = siblings(rig, &OPTIONS, count);
    job.members
        .iter_mut()
        .zip(6..)
        .for_each(|(client, value)| fill(client, value));
    job
}

/// One more, with faults of its own.
fn with_faults(rig: &Rig, job: &Siblings, faults: &str) -> Client {
    let mut command = rig.command(crate::artefacts::client());
    command.arg("dlopen").envs(job.environment());
    command.env("PARTAGE_SIM_FAULTS", faults);
    let mut client = Client::start(command);
    client.ready();
    fill(&mut client, 60);
    client
}

fn is_whole(job: &mut Siblings) {
    for (client, value) in job.members.iter_mut().zip(6..) {
        client.expect(&format!("check a {value}"), "check 0 0");
    }
}

/// The driver refuses the second or third process in one of the calls.
fn refused(rig: &Rig) {
    let mut job = job_of(rig, 3);
    let (suspend, migrate) = (&["suspend", "three"][..], &["migrate", "three", "--to", "1"][..]);
    // There and back once, so that the map was tried on a process of the broker's own.
    ok(rig, migrate);
    ok(rig, &["migrate", "three", "--to", "0"]);
    for (fault, command, why) in [
        ("cuCheckpointProcessLock:2:600", suspend, "(600)"),
        ("cuCheckpointProcessCheckpoint:2:2", suspend, "(2)"),
        ("cuCheckpointProcessCheckpoint:3:801", suspend, "(801)"),
        ("cuCheckpointProcessLock:3:600", migrate, "(600)"),
        ("cuCheckpointProcessCheckpoint:3:801", migrate, "(801)"),
        ("cuCheckpointProcessRestore:2:1", migrate, "(1)"),
    ] {
        set_faults(rig, &format!("code:{fault}"));
        let (code, said) = no(rig, command);
        assert!(code == Some(1) && said.contains(why), "{fault} {command:?}: {said}");
        set_faults(rig, "");
        assert_eq!(
            (&*state(rig, "three"), index_of(rig, "three")),
            ("running", 0),
            "{fault}"
        );
        is_whole(&mut job);
        rig.eventually(PATIENCE, "the books agree", || rig.books_agree());
    }
    ok(rig, suspend);
    assert_eq!(used_by(rig, "three"), 0);
    ok(rig, &["resume", "three"]);
    is_whole(&mut job);
    end(rig, job);
}

fn inside(rig: &Rig) {
    let mut job = job_of(rig, 2);
    let mut third = with_faults(rig, &job, "stuck:cuMemAlloc_v2:2");
    rig.eventually(PATIENCE, "the books agree", || rig.books_agree());
    let used = used_by(rig, "three");
    third.tell(&format!("alloc {} b", 64 * MIB));
    // It is counted inside before its memory is.
    rig.eventually(PATIENCE, "it is in the driver", || {
        used_by(rig, "three") >= used + 64 * MIB
    });
    for command in [&["suspend", "three"][..], &["migrate", "three", "--to", "1"]] {
        let more = [command, &["--drain-timeout", "1s"]].concat();
        let (code, said) = no(rig, &more);
        let text = "a thread stayed inside a driver call for too long";
        assert!(code == Some(1) && said.contains(text), "{more:?}: {said}");
        assert_eq!((&*state(rig, "three"), index_of(rig, "three")), ("running", 0));
        is_whole(&mut job);
    }
    third.kill();
    ok(rig, &["suspend", "three"]);
    ok(rig, &["resume", "three"]);
    is_whole(&mut job);
    end(rig, job);
}

/// Once it has ended the others come back.
fn lost(rig: &Rig) {
    let mut job = job_of(rig, 2);
    let mut third = with_faults(rig, &job, "imports");
    ok(rig, &["suspend", "three"]);
    let (code, said) = no(rig, &["resume", "three"]);
    assert!(
        code == Some(1) && said.contains(&format!("pid {}", third.pid())),
        "{said}"
    );
    assert_eq!(state(rig, "three"), "poisoned");
    for client in &mut job.members {
        client.tell("ctxsync");
        assert_eq!(client.try_answer(), None, "it runs without the others");
    }
    third.kill();
    rig.eventually(PATIENCE, "what is left is suspended", || {
        state(rig, "three") == "suspended"
    });
    ok(rig, &["resume", "three"]);
    for client in &mut job.members {
        assert_eq!(client.answer(), "ctxsync 0");
    }
    is_whole(&mut job);
    rig.eventually(PATIENCE, "the books agree", || rig.books_agree());
    end(rig, job);
}
