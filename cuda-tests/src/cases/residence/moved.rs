// SPDX-License-Identifier: Apache-2.0
//! A job moves to another device of the node: its data, its ordinal and its views, and everything that is in the way.

use std::time::Duration;

use super::super::Case;
use super::faults::{set_faults, standing_in};
use super::said::{filled, kill_broker, next_broker, no, ok, state, used_by};
use crate::cases::races::siblings;
use crate::client::{Client, PATIENCE};
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    let two = "needs two devices";
    vec![
        Case::new("residence::a_job_moves_there_and_back", there_and_back).simulated(two),
        Case::new("residence::all_processes_of_a_job_move_together", several).simulated(two),
        Case::new("residence::an_nvml_handle_from_before_a_move_is_the_jobs", handles).simulated(two),
        Case::new("residence::a_moved_job_outlives_the_broker", outlives).simulated(two),
        Case::new(
            "residence::a_broker_killed_in_any_call_of_a_move_leaves_a_whole_job",
            broker_dies,
        )
        .simulated(two),
        Case::new("residence::a_refused_map_leaves_the_job_where_it_was", refused_map).simulated(two),
        Case::new(
            "residence::a_target_that_filled_up_leaves_the_job_where_it_was",
            filled_up,
        )
        .simulated(two),
        Case::new("residence::a_stale_pci_address_is_noticed", stale).simulated(two),
        Case::new(
            "residence::a_driver_that_maps_no_masked_process_touches_no_job",
            unmasked,
        )
        .simulated(two),
        Case::new("residence::moves_that_cannot_be_are_refused", bad_inputs).simulated(two),
    ]
}

/// The UUIDs of GPU 0 and GPU 1.
pub fn uuids(rig: &Rig) -> [String; 2] {
    let status = rig.json(&["status"]);
    [0, 1].map(|index: usize| status["devices"][index]["uuid"].as_str().expect("a UUID").to_owned())
}

/// On which GPU `ps` has a job, and which its program sees: by the driver and by NVML.
pub fn is_on(rig: &Rig, client: &mut Client, name: &str, gpu: usize) {
    let uuid = uuids(rig)[gpu].clone();
    let jobs = rig.jobs();
    let job = jobs.iter().find(|job| job["name"] == name).expect("it is listed");
    assert_eq!(job["devices"][0]["index"], gpu, "{job}");
    client.expect("count", "count 0 1");
    client.expect("uuid 0", &format!("uuid 0 {uuid}"));
    client.expect("nvmldevices", &format!("nvmldevices 0 1 good {uuid}"));
    let pid = client.pid();
    client.expect("nvmllist compute3 0 8", &format!("nvmllist 0 1 {pid}"));
}

/// A program keeps a handle, and a monitor beside it keeps another one: both stand for the job's slot.
fn handles(rig: &Rig) {
    let mut other = rig.client(&["-m", "5GiB", "-g", "1"]);
    other.ready();
    other.expect(&format!("alloc {GIB} a"), "alloc 0");
    let mut job = siblings(rig, &["-m", "2GiB", "-g", "0", "--name", "one"], 1);
    let mut beside = job.start(rig);
    let pid = job.members[0].pid();
    job.members[0].expect(&format!("alloc {} a", 64 * MIB), "alloc 0");
    for client in [&mut job.members[0], &mut beside] {
        client.expect("nvml", "nvml 0");
        client.expect("nvmlkeep 0", "nvmlkeep 0");
    }
    for gpu in [1, 0] {
        ok(rig, &["migrate", "one", "--to", &gpu.to_string()]);
        let told = format!("nvmlkept 0 {} {} 0 same {pid}", 2 * GIB, uuids(rig)[gpu]);
        for client in [&mut job.members[0], &mut beside] {
            client.expect("nvmlkept", &told);
        }
    }
}

fn there_and_back(rig: &Rig) {
    let mut client = filled(rig, "one", "10GiB");
    client.expect("nvml", "nvml 0");
    is_on(rig, &mut client, "one", 0);
    let used = used_by(rig, "one");
    let plan = rig.json(&["migrate", "one", "--to", "1", "--dry-run"]);
    assert_eq!(plan["move"]["bytes"], used, "{plan}");
    assert_eq!(plan["move"]["to"], uuids(rig)[1], "{plan}");
    assert!(
        plan["move"]["steps"].as_array().is_some_and(|steps| steps.len() > 8),
        "{plan}"
    );
    let said = ok(rig, &["migrate", "one", "--to", "1", "--dry-run"]);
    assert!(
        said.contains("j1 would move from GPU 0 to GPU 1: ") && said.contains("a pause of about"),
        "{said}"
    );
    is_on(rig, &mut client, "one", 0);
    for round in 0..4 {
        let to = 1 - round % 2;
        let said = ok(rig, &["migrate", "one", "--to", &to.to_string()]);
        let text = format!("j1 moved from GPU {} to GPU {to}, after ", 1 - to);
        assert!(said.starts_with(&text), "{said}");
        is_on(rig, &mut client, "one", to);
        client.expect("check a 165", "check 0 0");
        client.expect(&format!("alloc {MIB} b"), "alloc 0");
        client.expect("free b", "free 0");
        rig.eventually(PATIENCE, "its contexts are measured again", || {
            used_by(rig, "one") == used
        });
        // What it left is another job's, whose promise would not fit beside it.
        let left = (1 - to).to_string();
        let mut other = rig.client(&["-m", "14GiB", "-g", &left, "--name", "other", "--on-full", "fail"]);
        other.ready();
        other.expect(&format!("alloc {} b", 12 * GIB), "alloc 0");
        assert!(other.finish().success());
        rig.eventually(PATIENCE, "it ended", || state(rig, "other").is_empty());
    }
    // A child of a moved process begins where its job is.
    ok(rig, &["migrate", "one", "--to", "1"]);
    // And a suspend leads back there.
    ok(rig, &["suspend", "one"]);
    ok(rig, &["resume", "one"]);
    is_on(rig, &mut client, "one", 1);
    client.expect("check a 165", "check 0 0");
    let events = ok(rig, &["events"]);
    assert!(
        events.contains("job-moved") && !events.contains("wrong-device"),
        "{events}"
    );
    assert!(client.finish().success());
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}

fn several(rig: &Rig) {
    let mut job = siblings(rig, &["-m", "12GiB", "-g", "0", "--name", "three"], 3);
    for (client, value) in job.members.iter_mut().zip(6..) {
        client.expect(&format!("alloc {} a", 256 * MIB), "alloc 0");
        client.expect(&format!("fill a {value}"), &format!("fill 0 {value} {value}"));
    }
    let mut to = uuids(rig);
    for _ in 0..3 {
        to.swap(0, 1);
        ok(rig, &["migrate", "three", "--to", &to[0]]);
        for (client, value) in job.members.iter_mut().zip(6..) {
            client.expect(&format!("check a {value}"), "check 0 0");
            client.expect("uuid 0", &format!("uuid 0 {}", to[0]));
        }
        let mut late = job.start(rig);
        late.expect("init 0", "init 0");
        late.expect("uuid 0", &format!("uuid 0 {}", to[0]));
        late.expect("ctx 0", "ctx 0");
        assert!(late.finish().success());
    }
}

/// The next broker takes the hello of a process that has not made a call since its job moved.
fn outlives(rig: &Rig) {
    let mut client = filled(rig, "kept", "10GiB");
    client.expect("nvml", "nvml 0");
    ok(rig, &["migrate", "kept", "--to", "1"]);
    kill_broker(rig);
    rig.eventually(PATIENCE, "the client is back", || {
        rig.jobs().iter().any(|job| job["clients"][0]["state"] == "attached")
    });
    assert!(!ok(rig, &["events"]).contains("wrong-device"));
    is_on(rig, &mut client, "kept", 1);
    client.expect("check a 165", "check 0 0");
    client.expect(&format!("alloc {MIB} b"), "alloc 0");
    ok(rig, &["migrate", "kept", "--to", "0"]);
    is_on(rig, &mut client, "kept", 0);
    client.expect("check a 165", "check 0 0");
}

fn broker_dies(rig: &Rig) {
    let mut client = filled(rig, "one", "10GiB");
    client.expect("nvml", "nvml 0");
    for operation in ["state", "lock", "checkpoint", "restore", "unlock"] {
        // Each broker tries a map first, on a process of its own; then what stands stands in the job.
        let from = on(rig);
        ok(rig, &["migrate", "one", "--to", &(1 - from).to_string()]);
        ok(rig, &["migrate", "one", "--to", &from.to_string()]);
        let to = (1 - from).to_string();
        let mut command = standing_in(rig, operation, &["migrate", "one", "--to", &to]);
        let old = rig.broker_pid_quick().expect("a broker");
        // SAFETY: the process is this rig's own broker.
        unsafe { libc::kill(old as libc::pid_t, libc::SIGKILL) };
        let _ = command.wait();
        set_faults(rig, "");
        next_broker(rig, old);
        rig.eventually(Duration::from_secs(30), operation, || {
            ["running", "suspended"].contains(&&*state(rig, "one"))
        });
        if state(rig, "one") == "suspended" {
            ok(rig, &["resume", "one"]);
        }
        client.expect("check a 165", "check 0 0");
        let now = on(rig);
        is_on(rig, &mut client, "one", now);
        rig.eventually(PATIENCE, "the books agree", || rig.books_agree());
    }
    assert!(client.finish().success());
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}

/// On which GPU the first job is.
fn on(rig: &Rig) -> usize {
    let jobs = rig.jobs();
    jobs[0]["devices"][0]["index"].as_u64().expect("an index") as usize
}

fn refused_map(rig: &Rig) {
    let mut client = filled(rig, "one", "10GiB");
    let used = used_by(rig, "one");
    ok(rig, &["migrate", "one", "--to", "1"]);
    ok(rig, &["migrate", "one", "--to", "0"]);
    set_faults(rig, "code:cuCheckpointProcessRestore:1:1");
    let (code, said) = no(rig, &["migrate", "one", "--to", "1"]);
    set_faults(rig, "");
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("j1 stays on GPU 0: ") && said.contains("the driver refuses this exchange of devices (1)"),
        "{said}"
    );
    assert_eq!(state(rig, "one"), "running");
    client.expect("nvml", "nvml 0");
    is_on(rig, &mut client, "one", 0);
    client.expect("check a 165", "check 0 0");
    rig.eventually(PATIENCE, "its contexts are measured again", || {
        used_by(rig, "one") == used
    });
    // The room there is free again.
    let mut other = rig.client(&["-m", "14GiB", "-g", "1", "--on-full", "fail"]);
    other.ready();
    other.expect(&format!("alloc {} b", 12 * GIB), "alloc 0");
}

/// Before the command, and after it looked.
fn filled_up(rig: &Rig) {
    let mut client = filled(rig, "one", "10GiB");
    client.expect("nvml", "nvml 0");
    let mut other = rig.client(&["-m", "12GiB", "-g", "1", "--name", "other"]);
    other.ready();
    let (code, said) = no(rig, &["migrate", "one", "--to", "1"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("j1 stays on GPU 0: the job needs 10 GiB on GPU 1, which has ") && said.contains("j2"),
        "{said}"
    );
    assert!(other.finish().success());
    rig.eventually(PATIENCE, "it ended", || state(rig, "other").is_empty());
    // The first move of a broker tries a map; the next one stands in the job.
    ok(rig, &["migrate", "one", "--to", "1"]);
    ok(rig, &["migrate", "one", "--to", "0"]);
    let mut command = standing_in(rig, "lock", &["migrate", "one", "--to", "1"]);
    let mut other = rig.client(&["-m", "12GiB", "-g", "1", "--name", "other", "--on-full", "fail"]);
    other.ready();
    set_faults(rig, "");
    assert_eq!(command.wait().expect("ours").code(), Some(1));
    assert_eq!(state(rig, "one"), "running");
    is_on(rig, &mut client, "one", 0);
    client.expect("check a 165", "check 0 0");
    other.expect(&format!("alloc {} b", 11 * GIB), "alloc 0");
    let events = ok(rig, &["events"]);
    assert!(events.contains("migrate-failed"), "{events}");
}

/// The machine's rule is what nobody has measured on a GPU.
fn unmasked(rig: &Rig) {
    let file = rig.sim_dir().join("machine.toml");
    let text = std::fs::read_to_string(&file).expect("a machine");
    let changed = text.replace("map = \"machine\"", "map = \"unmasked\"");
    assert_ne!(text, changed, "{text}");
    std::fs::write(&file, changed).expect("writable");
    let mut client = filled(rig, "one", "10GiB");
    client.expect("nvml", "nvml 0");
    let text = "this driver does not exchange the GPUs of a process that sees some of the GPUs only: it answered \
                CUDA_ERROR_INVALID_VALUE (1) for a process of Partage's own, and j1 was not touched; only a job of all \
                GPUs can move with this driver";
    for more in [&[][..], &["--dry-run"]] {
        let mut all = vec!["migrate", "one", "--to", "1"];
        all.extend(more);
        let (code, said) = no(rig, &all);
        assert!(code == Some(1) && said.contains(text), "{all:?}: {code:?} {said}");
    }
    is_on(rig, &mut client, "one", 0);
    client.expect("check a 165", "check 0 0");
    assert!(
        !ok(rig, &["events"]).contains("unmanaged"),
        "the process of our own is no stranger"
    );
}

fn stale(rig: &Rig) {
    set_faults(rig, "stale");
    let mut client = filled(rig, "one", "10GiB");
    ok(rig, &["migrate", "one", "--to", "1"]);
    client.expect("check a 165", "check 0 0");
    client.expect(&format!("alloc {MIB} b"), "alloc 0");
    rig.eventually(PATIENCE, "it is noticed", || {
        let events = ok(rig, &["events"]);
        let line = events.lines().find(|line| line.contains("stale-pci"));
        line.is_some_and(|line| line.contains(&format!("pid {}", client.pid())) && line.contains("of GPU 1"))
    });
}

fn bad_inputs(rig: &Rig) {
    let mut client = filled(rig, "one", "10GiB");
    client.expect("nvml", "nvml 0");
    let refused = |arguments: &[&str], code: i32, text: &str| {
        let mut all = vec!["migrate", "one"];
        all.extend(arguments);
        for more in [&[][..], &["--dry-run"]] {
            let mut all = all.clone();
            all.extend(more);
            let (found, said) = no(rig, &all);
            assert!(found == Some(code) && said.contains(text), "{all:?}: {found:?} {said}");
        }
    };
    refused(&["--to", "0"], 1, "the job has that GPU already; choose another GPU");
    refused(&["--to", "7"], 4, "no GPU 7 here");
    refused(&["--to", "first"], 2, "\"first\" is no GPU");
    refused(&["--to", "1", "--from", "1"], 2, "j1 is not on GPU 1, but on GPU 0");
    assert_eq!(no(rig, &["migrate", "nobody", "--to", "1"]).0, Some(4));
    client.expect(&format!("managed {MIB} m"), "managed 0");
    refused(&["--to", "1"], 1, "has managed memory, which the driver cannot save");
    is_on(rig, &mut client, "one", 0);
    client.expect("check a 165", "check 0 0");
    let mut both = rig.client(&["-m", "1GiB", "-g", "0,1", "--name", "both"]);
    both.ready();
    let (code, said) = no(rig, &["migrate", "both", "--to", "1"]);
    assert!(
        code == Some(2) && said.contains("j2 has several GPUs: GPU 0, GPU 1") && said.contains("--from GPU"),
        "{said}"
    );
    let mut away = filled(rig, "away", "1GiB");
    ok(rig, &["suspend", "away"]);
    let (code, said) = no(rig, &["migrate", "away", "--to", "1"]);
    assert!(
        code == Some(1) && said.contains("is suspended now; to bring it back: partage resume j"),
        "{said}"
    );
    away.kill();
}

/// On which GPU a job is.
pub fn index_of(rig: &Rig, name: &str) -> u64 {
    let jobs = rig.jobs();
    let job = jobs.iter().find(|job| job["name"] == name).expect("it is listed");
    job["devices"][0]["index"].as_u64().expect("an index")
}
