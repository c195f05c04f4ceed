// SPDX-License-Identifier: Apache-2.0
//! Suspend and resume while something dies, hangs, refuses or is in the way: the job runs whole or is away whole.

use std::process::Child;
use std::sync::atomic::Ordering;
use std::time::Duration;

use partage_protocol::hold::HARD;

use super::said::{filled, next_broker, no, ok, state, used_by};
use crate::artefacts::kernels;
use crate::cases::Case;
use crate::cases::races::{Siblings, siblings};
use crate::client::{Client, PATIENCE};
use crate::pages::Pages;
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    let why = "faults are the simulator's";
    vec![
        Case::new("residence::a_broker_killed_in_any_call_leaves_a_whole_job", broker_dies).simulated(why),
        Case::new("residence::a_helper_killed_in_any_call_is_replaced", helper_dies).simulated(why),
        Case::new("residence::of_three_processes_one_dies_in_any_call", target_dies).simulated(why),
        Case::new("residence::what_the_driver_refuses_is_undone", refused).simulated(why),
        Case::new(
            "residence::work_that_does_not_end_and_a_thread_that_stays_inside_are_given_up",
            endless,
        )
        .simulated(why),
        Case::new("residence::processes_of_no_job_are_never_restored_over", competitor).simulated("fills a device"),
        Case::new("residence::a_process_that_the_driver_loses_is_poisoned", poisoned).simulated(why),
    ]
}

/// The driver's operations, and the command in which each is.
const CALLS: [(&str, &str); 5] = [
    ("state", "suspend"),
    ("lock", "suspend"),
    ("checkpoint", "suspend"),
    ("restore", "resume"),
    ("unlock", "resume"),
];

pub fn set_faults(rig: &Rig, lines: &str) {
    std::fs::write(rig.sim_dir().join("faults"), lines).expect("writable");
    // Read within 20 ms.
    std::thread::sleep(Duration::from_millis(60));
}

/// A command that stands in an operation of the driver.
fn standing(rig: &Rig, (operation, command): (&str, &str)) -> Child {
    standing_in(rig, operation, &[command, "one"])
}

/// The same with all its words.
pub fn standing_in(rig: &Rig, operation: &str, command: &[&str]) -> Child {
    set_faults(rig, &format!("stands:{operation}"));
    let mut started = rig.partage(command);
    started
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut child = started.spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        child.try_wait().expect("ours").is_none(),
        "{command:?} does not stand in {operation}"
    );
    child
}

/// The job is at rest, and brought back if it is away; its memory is what it was.
fn is_whole(rig: &Rig, client: &mut Client, what: &str) {
    rig.eventually(Duration::from_secs(30), what, || {
        ["running", "suspended"].contains(&&*state(rig, "one"))
    });
    ok(rig, &["resume", "one"]);
    client.expect("check a 165", "check 0 0");
    client.expect(&format!("alloc {MIB} b"), "alloc 0");
    client.expect("free b", "free 0");
}

fn broker_dies(rig: &Rig) {
    let mut client = filled(rig, "one", "10GiB");
    let pages = Pages::of(client.pid());
    for call in CALLS {
        if call.1 == "resume" {
            ok(rig, &["suspend", "one"]);
        }
        let mut command = standing(rig, call);
        let old = rig.broker_pid_quick().expect("a broker");
        // SAFETY: the process is this rig's own broker.
        unsafe { libc::kill(old as libc::pid_t, libc::SIGKILL) };
        let _ = command.wait();
        if call.0 == "checkpoint" {
            // The next broker knows the client again before the driver has said how far the checkpoint is.
            next_broker(rig, old);
            rig.eventually(PATIENCE, "the client is back", || {
                let jobs = rig.jobs();
                jobs.iter().any(|job| job["clients"][0]["state"] == "attached")
            });
            let hold = pages.broker().head.hold.load(Ordering::Acquire);
            assert_ne!(hold & HARD, 0, "a hold over a checkpoint was softened");
        }
        set_faults(rig, "");
        next_broker(rig, old);
        is_whole(rig, &mut client, &format!("{call:?}"));
    }
    assert!(client.finish().success());
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}

/// The broker's checkpoint helper.
pub fn helper_of(broker: u32) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").ok()?;
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_it = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        parent == Some(broker) && String::from_utf8_lossy(&words).contains("--checkpoint-helper")
    };
    { pids }.find(is_it)
}

fn helper_dies(rig: &Rig) {
    let mut client = filled(rig, "one", "10GiB");
    for call in CALLS {
        if call.1 == "resume" && state(rig, "one") == "running" {
            ok(rig, &["suspend", "one"]);
        }
        let mut command = standing(rig, call);
        let broker = rig.broker_pid_quick().expect("a broker");
        rig.eventually(PATIENCE, "a helper is there", || helper_of(broker).is_some());
        let helper = helper_of(broker).expect("a helper");
        // SAFETY: the process is a child of this rig's own broker.
        unsafe { libc::kill(helper as libc::pid_t, libc::SIGKILL) };
        std::thread::sleep(Duration::from_millis(100));
        set_faults(rig, "");
        let _ = command.wait();
        is_whole(rig, &mut client, &format!("{call:?}"));
    }
}

/// A job of three processes: two with memory that is known, and one that dies in this call of the driver's.
pub(super) fn three(rig: &Rig, call: &str) -> (Siblings, Client) {
    let mut job = siblings(rig, &["-m", "6GiB", "-g", "0", "--name", "three"], 2);
    for (client, value) in job.members.iter_mut().zip(6..) {
        client.expect(&format!("alloc {} a", 64 * MIB), "alloc 0");
        client.expect(&format!("fill a {value}"), &format!("fill 0 {value} {value}"));
    }
    let mut third = rig.command(crate::artefacts::client());
    third.arg("dlopen").envs(job.environment());
    third.env("PARTAGE_SIM_FAULTS", format!("dies:{call}:1"));
    let mut third = Client::start(third);
    third.ready();
    third.expect(&format!("alloc {} a", 64 * MIB), "alloc 0");
    (job, third)
}

/// Its processes end, and nothing of them is left.
pub(super) fn end(rig: &Rig, mut job: Siblings) {
    job.members.iter_mut().for_each(Client::kill);
    job.shell.kill();
    rig.eventually(PATIENCE, "nothing is left", || {
        rig.ledger_used() == 0 && rig.jobs().is_empty()
    });
}

fn target_dies(rig: &Rig) {
    for (operation, _) in CALLS {
        let (mut job, third) = three(rig, operation);
        let suspended = rig.output(rig.partage(&["suspend", "three"])).status.success();
        let what = format!("{operation}, suspended {suspended}");
        rig.eventually(Duration::from_secs(30), &what, || {
            ["running", "suspended"].contains(&&*state(rig, "three"))
        });
        let _ = rig.output(rig.partage(&["resume", "three"]));
        rig.eventually(Duration::from_secs(30), &what, || state(rig, "three") == "running");
        for (client, value) in job.members.iter_mut().zip(6..) {
            client.expect(&format!("check a {value}"), "check 0 0");
        }
        assert_eq!(third.finish().code(), None, "it was not killed in {operation}");
        end(rig, job);
    }
}

fn refused(rig: &Rig) {
    let mut client = filled(rig, "one", "10GiB");
    let used = used_by(rig, "one");
    let pid = client.pid();
    for (call, code, why) in [
        (
            "cuCheckpointProcessLock",
            600,
            "work on the GPU did not end in time (600)",
        ),
        (
            "cuCheckpointProcessCheckpoint",
            801,
            "the process has memory that the driver cannot move (managed) (801)",
        ),
        (
            "cuCheckpointProcessCheckpoint",
            2,
            "the driver has no host memory for it, or the GPU is in MIG mode (2)",
        ),
    ] {
        set_faults(rig, &format!("code:{call}:*:{code}"));
        let (exit, said) = no(rig, &["suspend", "one"]);
        assert_eq!(exit, Some(1), "{said}");
        let what = if call.ends_with("Lock") {
            "lock the process"
        } else {
            "move its device memory into host memory"
        };
        let text = format!("j1 goes on: pid {pid}: could not {what}: {why}");
        assert!(said.contains(&text), "{said}");
        client.expect("check a 165", "check 0 0");
        assert_eq!((state(rig, "one"), used_by(rig, "one")), ("running".into(), used));
    }
    set_faults(rig, "");
    ok(rig, &["suspend", "one"]);
    is_whole(rig, &mut client, "it is back");
}

fn endless(rig: &Rig) {
    let mut client = filled(rig, "one", "10GiB");
    client.expect(&format!("gateready {}", kernels().display()), "gateready 0");
    set_faults(rig, "stuck:cuMemAlloc_v2:1");
    client.tell(&format!("alloc {MIB} b"));
    std::thread::sleep(Duration::from_millis(200));
    set_faults(rig, "");
    let (exit, said) = no(rig, &["suspend", "one", "--drain-timeout", "1s"]);
    assert_eq!(exit, Some(1), "{said}");
    assert!(
        said.contains("a thread stayed inside a driver call for too long"),
        "{said}"
    );
    assert_eq!(state(rig, "one"), "running");
    // Nobody else waited for it.
    let mut other = filled(rig, "other", "2GiB");
    other.expect("check a 165", "check 0 0");
}

fn competitor(rig: &Rig) {
    let mut client = filled(rig, "one", "10GiB");
    client.expect(&format!("alloc {} more", 7 * GIB), "alloc 0");
    ok(rig, &["suspend", "one"]);
    let mut bare = rig.bare_client("dlopen");
    bare.ready();
    bare.expect(&format!("alloc {} b", 9 * GIB), "alloc 0");
    // The queue counts what NVML shows of it.
    rig.eventually(PATIENCE, "it is seen", || {
        let status = rig.json(&["status"]);
        status["devices"][0]["unmanaged_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes >= 9 * GIB)
    });
    let (exit, said) = no(rig, &["resume", "one", "--on-full", "fail"]);
    assert_eq!(exit, Some(1), "{said}");
    assert!(
        said.contains("stays suspended") && said.contains(&format!("pid {}", bare.pid())),
        "{said}"
    );
    assert_eq!(state(rig, "one"), "suspended");
    let mut resume = rig.partage(&["resume", "one"]).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(300));
    assert!(resume.try_wait().expect("ours").is_none());
    bare.kill();
    assert!(resume.wait().expect("ours").success());
    client.expect("check a 165", "check 0 0");
}

fn poisoned(rig: &Rig) {
    let mut client = filled(rig, "one", "10GiB");
    ok(rig, &["suspend", "one"]);
    set_faults(rig, "code:cuCheckpointProcessRestore:*:2");
    let (exit, said) = no(rig, &["resume", "one"]);
    assert_eq!(exit, Some(1), "{said}");
    set_faults(rig, "");
    let text = "could not move its memory back to the device: the GPU was full; the process can never run again (2)";
    assert!(said.contains(text), "{said}");
    assert_eq!(state(rig, "one"), "poisoned");
    let why = ok(rig, &["why", "one"])
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        why.contains("which can never run again and stays charged until it ends"),
        "{why}"
    );
    assert_eq!(no(rig, &["resume", "one"]).0, Some(1));
    ok(rig, &["stop", "one", "--grace", "100ms"]);
    client.kill();
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}
