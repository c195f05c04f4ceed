// SPDX-License-Identifier: Apache-2.0
//! A GPU without memory of its own (GB10): NVML has no figures of it, and what the host uses the GPU lacks.

use std::path::Path;
use std::time::Duration;

use super::Case;
use super::residence::said::{filled_with, no, ok, state, train, used_by};
use crate::client::{Client, PATIENCE};
use crate::rig::{CONTEXT_BYTES, GIB, MIB, Rig};

const WHY: &str = "needs the profile gb10";
/// Of the machine's 16 GiB the host's programs have one 32nd, and one 16th is kept for the host.
const HOST: u64 = GIB / 2;
const KEPT: u64 = GIB;
/// NVML's NOT_SUPPORTED.
const NOT_SUPPORTED: u64 = 3;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("unified::every_command_works_without_nvmls_memory_figures", commands).simulated(WHY),
        Case::new("unified::a_program_sees_its_limit_and_not_the_hosts_memory", views).simulated(WHY),
        Case::new("unified::what_the_host_takes_the_gpu_lacks", host).simulated(WHY),
        Case::new("unified::a_job_without_a_limit_leaves_the_host_its_reserve", unlimited).simulated(WHY),
        Case::new("unified::what_a_suspended_job_keeps_is_no_room", suspended).simulated(WHY),
        Case::new("unified::the_ledger_counts_where_nvml_lists_nobody", unlisted).simulated(WHY),
        Case::new("unified::a_size_that_nobody_tells_is_said", no_size).simulated(WHY),
        Case::new("unified::the_demos_programs_run", demo).simulated(WHY),
    ]
}

/// The rig's machine with one GB10 in place of its devices.
fn gb10(rig: &Rig) {
    rig.change_machine(|spec| {
        spec.devices.truncate(1);
        for device in &mut spec.devices {
            "gb10".clone_into(&mut device.profile);
        }
    });
}

/// Switches faults of the machine on, for all its processes.
fn fault(rig: &Rig, faults: &str) {
    std::fs::write(rig.sim_dir().join("faults"), faults).expect("writable");
}

/// What `status` has of the one device.
fn device(rig: &Rig, field: &str) -> u64 {
    let status = rig.json(&["status"]);
    let device = &status["devices"][0];
    let value = device.get(field).unwrap_or(&device["unified"][field]);
    value.as_u64().unwrap_or_else(|| panic!("{field}: {status}"))
}

fn commands(rig: &Rig) {
    gb10(rig);
    let said = "GPU 0 has no memory of its own and uses the host's: 512 MiB in use by";
    for command in ["status", "doctor"] {
        let text = ok(rig, &[command]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(said), "{command}, no broker: {text}");
    }
    let mut client = filled_with(rig, "train", "4GiB", 1024, &[]);
    for command in ["status", "doctor"] {
        let text = ok(rig, &[command]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(said), "{command}: {text}");
        assert!(!text.contains("processes of no job use"), "{command}: {text}");
    }
    rig.wait_for_overhead();
    assert_eq!(
        used_by(rig, "train"),
        GIB + CONTEXT_BYTES,
        "NVML still lists what it has"
    );
    assert_eq!(device(rig, "total_bytes"), 16 * GIB);
    assert_eq!(device(rig, "usable_bytes"), 16 * GIB - KEPT);
    assert_eq!(device(rig, "kept_bytes"), KEPT);
    assert_eq!(device(rig, "unmanaged_bytes"), 0);
    rig.eventually(PATIENCE, "what is in use", || {
        device(rig, "used_bytes") == HOST + GIB + CONTEXT_BYTES && device(rig, "host_bytes") == HOST
    });
    // A limit that holds, and one that is changed.
    client.expect(&format!("alloc {} b", 3 * GIB), "alloc 2");
    let why = ok(rig, &["why", "train"]);
    assert!(why.contains("more than the limit of 4 GiB"), "{why}");
    ok(rig, &["set", "train", "mem=6GiB"]);
    client.expect(&format!("alloc {} b", 3 * GIB), "alloc 0");
    client.expect("free b", "free 0");
    let partage = crate::artefacts::built("partage").display().to_string();
    ok(
        rig,
        &["verify", "-m", "1GiB", "--", &partage, "run", "-m", "1GiB", "--"],
    );
    // What is beyond the room waits, and is said why.
    let (code, refused) = no(rig, &["run", "-m", "14GiB", "--on-full", "fail", "--", "true"]);
    assert_eq!(code, Some(124), "{refused}");
    let mut waiting = rig.client(&["-m", "14GiB", "--name", "next"]);
    waiting.tell("init 0");
    rig.eventually(PATIENCE, "it waits", || state(rig, "next") == "waiting");
    let queue = ok(rig, &["queue"]);
    assert!(queue.contains("14 GiB"), "{queue}");
    ok(rig, &["suspend", "train"]);
    assert_eq!(state(rig, "train"), "suspended");
    ok(rig, &["resume", "train"]);
    client.expect("check a 165", "check 0 0");
    assert!(client.finish().success());
    assert_eq!(waiting.answer(), "init 0", "{}", waiting.stderr());
    waiting.expect("ctx 0", "ctx 0");
    assert!(waiting.finish().success());
    rig.eventually(PATIENCE, "nothing is left", || {
        device(rig, "used_bytes") == HOST && device(rig, "committed_bytes") == HOST
    });
}

fn views(rig: &Rig) {
    gb10(rig);
    let mut bare = rig.bare_client("dlopen");
    bare.ready();
    bare.expect("nvml", "nvml 0");
    let answers = bare.numbers("nvmlmem 0");
    assert_eq!((answers[0], answers[4]), (NOT_SUPPORTED, NOT_SUPPORTED), "{answers:?}");
    assert!(bare.finish().success());
    let mut client = filled_with(rig, "seeing", "4GiB", 1024, &[]);
    rig.wait_for_overhead();
    let free = 3 * GIB - CONTEXT_BYTES;
    assert_eq!(client.numbers("info"), [0, free, 4 * GIB]);
    client.expect("nvml", "nvml 0");
    let shown = [0, 4 * GIB, free, GIB + CONTEXT_BYTES];
    assert_eq!(client.numbers("nvmlmem 0"), [shown, shown].concat());
    // Without a limit all of it is the job's as far as the host leaves it, as without Partage.
    let mut open = rig.client(&["--name", "open"]);
    open.ready();
    open.expect("nvml", "nvml 0");
    let answers = open.numbers("nvmlmem 0");
    assert_eq!((answers[0], answers[4]), (NOT_SUPPORTED, NOT_SUPPORTED), "{answers:?}");
    let info = open.numbers("info");
    assert_eq!(info[2], 16 * GIB);
    assert!(
        info[1] < 15 * GIB - HOST,
        "what others and the host have is not free: {info:?}"
    );
    ok(rig, &["set", "open", "mem=2GiB"]);
    rig.eventually(PATIENCE, "the limit is seen", || {
        open.numbers("nvmlmem 0")[..2] == [0, 2 * GIB]
    });
}

fn host(rig: &Rig) {
    gb10(rig);
    let mut job = filled_with(rig, "early", "4GiB", 64, &[]);
    fault(rig, &format!("host:{}", 6 * GIB));
    rig.eventually(PATIENCE, "the host's use is seen", || {
        device(rig, "host_bytes") == HOST + 6 * GIB
    });
    // 16 GiB less 6.5 of the host, 1 for it, 4 of the job.
    let (code, said) = no(rig, &["run", "-m", "6GiB", "--on-full", "fail", "--", "true"]);
    assert_eq!(code, Some(124), "{said}");
    assert!(
        said.contains("the host has 6.5 GiB") || said.contains("the host 6.5 GiB"),
        "{said}"
    );
    ok(rig, &["run", "-m", "4GiB", "--on-full", "fail", "--", "true"]);
    let mut waiting = rig.client(&["-m", "8GiB", "--name", "late"]);
    waiting.tell("init 0");
    rig.eventually(PATIENCE, "it waits", || state(rig, "late") == "waiting");
    // A promise stays one: the job has its limit.
    job.expect(&format!("alloc {} b", 3 * GIB), "alloc 0");
    fault(rig, "");
    assert_eq!(waiting.answer(), "init 0", "{}", waiting.stderr());
}

fn unlimited(rig: &Rig) {
    gb10(rig);
    let mut clients = [rig.client(&["--name", "first"]), rig.client(&["--name", "second"])];
    clients.iter_mut().for_each(Client::ready);
    rig.wait_for_overhead();
    // What the host has of it counts a look at the device later.
    let room = 16 * GIB - KEPT - 2 * CONTEXT_BYTES;
    let mut had = 0;
    while had <= room && clients[0].say(&format!("alloc {} a{had}", 256 * MIB)) == "alloc 0" {
        had += 256 * MIB;
    }
    assert!(
        had <= room && had > room / 2 - GIB,
        "{} of {} MiB",
        had / MIB,
        room / MIB
    );
    while had <= room && clients[1].say(&format!("alloc {} b{had}", 256 * MIB)) == "alloc 0" {
        had += 256 * MIB;
    }
    assert!(
        had <= room && had > room - GIB - HOST,
        "{} of {} MiB",
        had / MIB,
        room / MIB
    );
}

fn suspended(rig: &Rig) {
    gb10(rig);
    let low = ["--priority", "low"];
    let mut client = filled_with(rig, "low", "6GiB", 64, &low);
    client.expect(&format!("alloc {} b", 4 * GIB), "alloc 0");
    rig.wait_for_overhead();
    // To suspend it would make no room, so nobody is suspended for a job of higher priority.
    let mut high = rig.client(&["-m", "12GiB", "--name", "high", "--priority", "high"]);
    high.tell("init 0");
    rig.eventually(PATIENCE, "it waits", || state(rig, "high") == "waiting");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(
        (state(rig, "low"), state(rig, "high")),
        ("running".into(), "waiting".into())
    );
    high.kill();
    ok(rig, &["suspend", "low"]);
    let kept = 4 * GIB + 64 * MIB;
    rig.eventually(PATIENCE, "its memory is the host's", || {
        device(rig, "host_bytes") == HOST + kept
    });
    let (code, said) = no(rig, &["run", "-m", "12GiB", "--on-full", "fail", "--", "true"]);
    assert_eq!(code, Some(124), "{said}");
    ok(rig, &["run", "-m", "9GiB", "--on-full", "fail", "--", "true"]);
    ok(rig, &["resume", "low"]);
    client.expect("check a 165", "check 0 0");
    rig.eventually(PATIENCE, "it is the job's again", || device(rig, "host_bytes") == HOST);
    // To be taken off it is copied within the same memory.
    ok(rig, &["set", "low", "mem=12GiB"]);
    client.expect(&format!("alloc {} c", 5 * GIB), "alloc 0");
    rig.eventually(PATIENCE, "it is seen", || {
        device(rig, "used_bytes") > HOST + kept + 5 * GIB
    });
    let (code, said) = no(rig, &["suspend", "low"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("host memory") && said.contains("available"), "{said}");
    client.expect("check a 165", "check 0 0");
    // One that ends while it is away leaves nothing.
    client.expect("free c", "free 0");
    rig.eventually(PATIENCE, "that is seen", || {
        device(rig, "used_bytes") < HOST + kept + GIB
    });
    ok(rig, &["suspend", "low"]);
    client.kill();
    rig.eventually(PATIENCE, "it is gone", || device(rig, "host_bytes") == HOST);
}

fn unlisted(rig: &Rig) {
    for faults in ["untold", "code:nvmlDeviceGetComputeRunningProcesses_v3:*:3"] {
        gb10(rig);
        fault(rig, faults);
        let mut client = filled_with(rig, "alone", "2GiB", 64, &[]);
        client.expect(&format!("alloc {} b", 2 * GIB), "alloc 2");
        client.expect(&format!("alloc {GIB} b"), "alloc 0");
        rig.eventually(PATIENCE, "the ledger counts", || {
            used_by(rig, "alone") == GIB + 64 * MIB
        });
        // What its context has is in use, and nobody says by whom.
        rig.eventually(PATIENCE, "the rest is the host's", || {
            device(rig, "host_bytes") == HOST + CONTEXT_BYTES
        });
        let ps = ok(rig, &["ps"]);
        assert!(ps.contains("alone"), "{ps}");
        ok(rig, &["why", "alone"]);
        ok(rig, &["doctor"]);
        assert!(client.finish().success());
        rig.eventually(PATIENCE, "nothing is left", || {
            rig.jobs().is_empty() && device(rig, "used_bytes") == HOST
        });
        ok(rig, &["broker", "stop"]);
    }
}

fn no_size(rig: &Rig) {
    gb10(rig);
    fault(rig, "code:cuDeviceTotalMem_v2:*:999");
    let (code, said) = no(rig, &["run", "-m", "1GiB", "--", "true"]);
    assert_eq!(code, Some(125), "{said}");
    let why = "NVML has no memory figures of GPU 0, and the driver does not tell its size: the driver answered \
               CUDA_ERROR_UNKNOWN (999)";
    assert!(said.contains(why), "{said}");
    assert!(
        ok(rig, &["status"])
            .replace('\n', " ")
            .contains("CUDA_ERROR_UNKNOWN (999)")
    );
}

fn demo(rig: &Rig) {
    gb10(rig);
    let over = crate::artefacts::package_dir().join("programs/over_limit.py");
    let command = rig.run(
        &["-m", "12.5%", "--name", "third"],
        &super::matrix::python(),
        &[&over.display().to_string()],
    );
    let output = rig.output(command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.contains("the device shows 1.88 GiB in all"),
        "12.5 % of what is usable: {text}"
    );
    let Some(first) = train(rig, "small", 20) else { return };
    let mut bare = rig.command(super::matrix::python());
    let script = crate::artefacts::package_dir().join("programs/train.py");
    bare.args([Path::new(&script), Path::new("20")]);
    bare.envs([("DEV", "CUDA"), ("CUDA", "1"), ("PTX", "1")])
        .env("HOME", &rig.dir);
    let (limited, bare) = (rig.output(first), rig.output(bare));
    assert!(limited.status.success(), "{}", String::from_utf8_lossy(&limited.stderr));
    assert!(
        !bare.stdout.is_empty() && limited.stdout == bare.stdout,
        "the same losses, bit by bit"
    );
}
