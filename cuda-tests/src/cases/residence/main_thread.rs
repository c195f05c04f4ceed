// SPDX-License-Identifier: Apache-2.0
//! A process whose main thread has ended lives on in its other threads, though `/proc/PID` shows a zombie.

use super::super::Case;
use super::moved::is_on;
use super::said::{filled, kill_broker, ok, state, used_by};
use super::saved::{criu, with_criu};
use crate::cases::races::siblings;
use crate::client::{Client, PATIENCE};
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "residence::a_process_whose_main_thread_has_ended_leaves_and_comes_back",
            leaves,
        )
        .simulated("needs two devices"),
        Case::new(
            "residence::a_process_whose_main_thread_has_ended_is_not_saved",
            not_saved,
        )
        .simulated("a real GPU's cycle with CRIU is the acceptance script's"),
    ]
}

/// From here on `/proc` shows a zombie.
fn end_main_thread(rig: &Rig, client: &mut Client) {
    client.expect("endmain", "endmain");
    let stat = format!("/proc/{}/stat", client.pid());
    rig.eventually(PATIENCE, "its main thread has ended", || {
        std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") Z "))
    });
}

fn leaves(rig: &Rig) {
    // A job of two: one that is as usual beside it must not hide that it stayed.
    let mut job = siblings(rig, &["-m", "4GiB", "-g", "0", "--name", "one"], 2);
    let both = &mut job.members;
    for client in both.iter_mut() {
        client.expect(&format!("alloc {} a", 128 * MIB), "alloc 0");
        client.expect("fill a 165", "fill 0 165 165");
    }
    end_main_thread(rig, &mut both[1]);
    rig.wait_for_overhead();
    ok(rig, &["suspend", "one"]);
    assert_eq!((state(rig, "one"), used_by(rig, "one")), ("suspended".to_owned(), 0));
    for client in both.iter_mut() {
        client.tell("check a 165");
        assert_eq!(client.try_answer(), None, "it works while its job is suspended");
    }
    let room = 15 * GIB + 512 * MIB;
    let mut other = rig.client(&["-m", &format!("{room}B"), "-g", "0", "--on-full", "fail"]);
    other.ready();
    assert!(other.finish().success(), "the whole device is free");
    ok(rig, &["resume", "one"]);
    for client in both.iter_mut() {
        assert_eq!(client.answer(), "check 0 0");
    }
    ok(rig, &["migrate", "one", "--to", "1"]);
    let uuid = super::moved::uuids(rig)[1].clone();
    for client in both.iter_mut() {
        client.expect("uuid 0", &format!("uuid 0 {uuid}"));
        client.expect("check a 165", "check 0 0");
    }
    let mut next = rig.client(&["-m", &format!("{room}B"), "-g", "0", "--on-full", "fail"]);
    next.ready();
    assert!(next.finish().success(), "nothing of it stayed there");
    for client in both.iter_mut() {
        client.kill();
    }
    job.shell.kill();
    alone(rig);
}

/// The only process of its job, over a broker's death.
fn alone(rig: &Rig) {
    let mut client = filled(rig, "alone", "4GiB");
    client.expect("nvml", "nvml 0");
    end_main_thread(rig, &mut client);
    ok(rig, &["suspend", "alone"]);
    kill_broker(rig);
    assert_eq!(state(rig, "alone"), "suspended");
    ok(rig, &["resume", "alone"]);
    client.expect("check a 165", "check 0 0");
    is_on(rig, &mut client, "alone", 0);
    assert!(client.finish().success());
}

/// CRIU could not bring it back: that is said before anything is touched.
fn not_saved(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = filled(rig, "one", "4GiB");
    end_main_thread(rig, &mut client);
    let folder = rig.dir.join("saved").display().to_string();
    let output = rig.output(with_criu(rig, &criu, &["checkpoint", "one", "--out", &folder]));
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = format!(
        "pid {} of j1 lives on in other threads after its main thread",
        client.pid()
    );
    assert!(output.status.code() == Some(1) && said.contains(&reason), "{said}");
    assert_eq!(state(rig, "one"), "running");
    client.expect("check a 165", "check 0 0");
}
