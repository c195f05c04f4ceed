// SPDX-License-Identifier: Apache-2.0
//! A call that never returns, a device that fell off the bus, a process that cannot die: each is
//! named, and no other process waits.

mod user_database;

use std::time::Duration;

use super::Case;
use super::races::siblings;
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    let why = "faults are the simulator's";
    vec![
        Case::new(
            "faults::a_driver_call_that_never_returns_holds_up_nobody_else",
            stuck_driver,
        )
        .simulated(why),
        Case::new("faults::an_nvml_call_that_never_returns_holds_up_nobody", stuck_nvml).simulated(why),
        Case::new("faults::a_lost_device_is_named_and_the_other_serves", lost_device).simulated(why),
        Case::new(
            "faults::a_user_database_that_never_answers_delays_no_attach",
            user_database::stuck_user_database,
        )
        .simulated(why),
        Case::new("faults::a_process_that_cannot_die_keeps_its_charge", lingering).simulated(why),
    ]
}

const SECOND: Duration = Duration::from_secs(1);
/// What the broker may need to find that NVML hangs: its helpers' deadlines, one after the other.
const DEADLINES: Duration = Duration::from_secs(60);

fn set_faults(rig: &Rig, lines: &str) {
    std::fs::write(rig.sim_dir().join("faults"), lines).expect("writable");
    // The drivers look at the file at most this often.
    std::thread::sleep(Duration::from_millis(40));
}

fn stuck_driver(rig: &Rig) {
    let mut job = siblings(rig, &["-m", "1GiB", "--name", "job"], 1);
    let mut command = rig.command(crate::artefacts::client());
    command
        .arg("dlopen")
        .envs(job.environment())
        .env("PARTAGE_SIM_FAULTS", "stuck:cuMemAlloc_v2:1");
    let mut stuck = Client::start(command);
    stuck.ready();
    rig.wait_for_overhead();
    stuck.tell(&format!("alloc {} never", 256 * MIB));
    // It is inside the driver as soon as its charge shows.
    rig.eventually(Duration::from_secs(5), "the charge of the call under way", || {
        rig.ledger_used() == 256 * MIB
    });
    // Its sibling has the rest of the limit, and no more; another job all of its own.
    let sibling = &mut job.members[0];
    let room = sibling.room();
    assert!(room <= GIB - 256 * MIB, "the bytes under way are taken: {room}");
    sibling.expect(&format!("alloc {room} rest"), "alloc 0");
    sibling.expect("alloc 1 more", "alloc 2");
    let mut other = rig.client(&["-m", "1GiB"]);
    other.ready();
    let all = other.room();
    other.expect(&format!("alloc {all} all"), "alloc 0");
    assert!(stuck.try_answer().is_none(), "the call has not returned");
    stuck.kill();
    rig.eventually(SECOND, "its charge is the sibling's to take", || {
        sibling.say(&format!("alloc {} heritage", 256 * MIB)) == "alloc 0"
    });
}

fn stuck_nvml(rig: &Rig) {
    let mut before = rig.client(&["-m", "1GiB", "--name", "before"]);
    before.ready();
    before.expect(&format!("alloc {} a", 256 * MIB), "alloc 0");
    set_faults(rig, "stuck:nvmlDeviceGetComputeRunningProcesses_v3:*");
    // Allocations and commands never wait for NVML.
    before.expect(&format!("alloc {} b", 256 * MIB), "alloc 0");
    before.expect("free a", "free 0");
    assert_eq!(rig.jobs().len(), 1, "ps answers");
    rig.eventually(DEADLINES, "the devices that do not answer are named", || {
        let status = rig.json(&["status"]);
        let devices = status["devices"].as_array().cloned().unwrap_or_default();
        let is_named = |device: &serde_json::Value| {
            let state = device["state"].as_str().unwrap_or_default();
            state.starts_with("lost") && state.contains("no answer within the deadline")
        };
        devices.iter().all(is_named)
    });
    before.expect("free b", "free 0");
    let room = before.room();
    before.expect(&format!("alloc {room} c"), "alloc 0");
    before.expect("alloc 1 d", "alloc 2");
    // A promise that cannot be checked against the device is refused, and says so; nothing hangs.
    let output = rig.output(rig.partage(&["set", "before", "mem=2GiB"]));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("partage:"), "{text}");
    set_faults(rig, "");
    rig.eventually(DEADLINES, "NVML answers again", || {
        !rig.json(&["status"]).to_string().contains("\"lost")
            && rig
                .output(rig.run(&["-m", "1GiB", "--on-full", "fail"], "/bin/true".as_ref(), &[]))
                .status
                .success()
    });
}

fn lost_device(rig: &Rig) {
    let mut on_lost = rig.client(&["-g", "0", "-m", "1GiB", "--name", "lost"]);
    on_lost.ready();
    on_lost.expect(&format!("alloc {} a", 256 * MIB), "alloc 0");
    let mut on_other = rig.client(&["-g", "1", "-m", "1GiB", "--name", "other"]);
    on_other.ready();
    set_faults(rig, "lost:0");
    rig.eventually(DEADLINES, "GPU 0 is lost", || {
        let status = rig.json(&["status"]);
        let devices = status["devices"].as_array().cloned().unwrap_or_default();
        let state = |device: usize| devices.get(device).and_then(|device| device["state"].as_str());
        state(0).is_some_and(|state| state.starts_with("lost")) && state(1) == Some("ok")
    });
    // The program has the driver's own word for it; the other device serves old jobs and new ones.
    assert_eq!(on_lost.say("alloc 4096 b"), "alloc 999");
    let room = on_other.room();
    on_other.expect(&format!("alloc {room} all"), "alloc 0");
    on_other.expect("alloc 1 more", "alloc 2");
    on_other.expect("free all", "free 0");
    let mut fresh = rig.client(&["-m", "1GiB"]);
    fresh.ready();
    fresh.expect(&format!("alloc {} x", 256 * MIB), "alloc 0");
    let refused = rig.output(rig.run(
        &["-g", "0", "-m", "1GiB", "--on-full", "fail"],
        "/bin/true".as_ref(),
        &[],
    ));
    assert!(!refused.status.success(), "nothing is admitted on a lost device");
    on_lost.kill();
    set_faults(rig, "");
    rig.eventually(DEADLINES, "GPU 0 is back", || {
        rig.json(&["status"])["devices"][0]["state"] == "ok"
    });
    let mut again = rig.client(&["-g", "0", "-m", "1GiB"]);
    again.ready();
    again.expect(&format!("alloc {} x", 256 * MIB), "alloc 0");
}

fn lingering(rig: &Rig) {
    let mut job = siblings(rig, &["-g", "0", "-m", "1GiB", "--name", "job"], 2);
    rig.wait_for_overhead();
    let room = job.members[0].room();
    job.members[0].expect(&format!("alloc {} mine", 256 * MIB), "alloc 0");
    set_faults(rig, "linger");
    job.members[0].kill();
    rig.eventually(Duration::from_secs(5), "the job is shown as dying", || {
        rig.jobs().iter().any(|job| job.to_string().contains("dying"))
    });
    // Its memory is still held: nobody gets it, and everybody goes on.
    assert_eq!(rig.ledger_used(), 256 * MIB);
    let sibling = &mut job.members[1];
    sibling.expect(&format!("alloc {} all", room), "alloc 2");
    let rest = sibling.room();
    assert!(rest <= room - 256 * MIB, "what the dead one holds is taken: {rest}");
    sibling.expect(&format!("alloc {rest} rest"), "alloc 0");
    sibling.expect("free rest", "free 0");
    let mut other = rig.client(&["-g", "0", "-m", "1GiB"]);
    other.ready();
    other.expect(&format!("alloc {} x", 256 * MIB), "alloc 0");
    other.expect("free x", "free 0");
    set_faults(rig, "");
    let sibling = &mut job.members[1];
    rig.eventually(SECOND, "the quota is whole again", || {
        sibling.say(&format!("alloc {room} all")) == "alloc 0"
    });
}
