// SPDX-License-Identifier: Apache-2.0
//! Programs in a container's control group that use a GPU without the library, because they load none.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::artefacts::{built, program};
use crate::cases::commands::build_by_musl;
use crate::cases::control_group::{Group, ID, NO_RULE, Waiting, register};
use crate::cases::ruled_host::{Host, SOON};
use crate::client::Client;
use crate::rig::{MIB, Rig};

const OTHER_ID: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";

/// Programs whose limit does not follow: a static one, one of another C library, one whose loader ignores the variable
/// because the file's owner is another user.
fn loading_none(rig: &Rig) -> Vec<(&'static str, PathBuf)> {
    let source = "passes_on.c";
    let mut all = vec![("static", program("passes-on-static", source, &["-static"]))];
    let (musl, setuid) = (rig.dir.join("passes-on-musl"), rig.dir.join("passes-on-setuid"));
    if build_by_musl(source, &musl, &[]) {
        all.push(("musl", musl));
    }
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED: a setuid program: only root can make another user's");
        return all;
    }
    std::fs::copy(program("passes-on", source, &[]), &setuid).expect("writable");
    std::os::unix::fs::chown(&setuid, Some(65534), Some(65534)).expect("root");
    std::fs::set_permissions(&setuid, std::fs::Permissions::from_mode(0o4755)).expect("ours");
    all.push(("setuid", setuid));
    all
}

/// Starts each of them in the group, with the library named, and has it hold memory of GPU 0, as a program does that
/// asks the kernel's driver itself.
fn holding(rig: &Rig, group: &Group, programs: &[(&'static str, PathBuf)]) -> Vec<(&'static str, Client)> {
    let machine = partage_machine::Machine::open(&rig.sim_dir()).expect("the machine is there");
    let start = |(name, path): &(&'static str, PathBuf)| {
        let mut command = rig.command(path);
        command.env("LD_PRELOAD", built("libpartage.so"));
        let client = Client::start(group.inside(command));
        assert_eq!(client.next_answer(), "ready", "{name} runs with the library named");
        let seat = machine.let_in(client.pid()).expect("it runs");
        machine.reserve(seat, 0, 64 * MIB).expect("there is room");
        (*name, client)
    };
    programs.iter().map(start).collect()
}

/// They are named as the job's in `ps`, `why` and `status`, and killed where the job is strict.
pub fn named_and_killed(rig: &Rig) {
    let (Some(group), Some(strict)) = (Group::make(rig, ID), Group::make(rig, OTHER_ID)) else {
        return;
    };
    let _host = Host::start(rig, NO_RULE);
    let firsts = [Waiting::start(rig, &group), Waiting::start(rig, &strict)];
    let options = ["-m", "1GiB", "-g", "0"];
    let (code, said) = register(rig, &firsts[0].pid(), &options);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = register(rig, &firsts[1].pid(), &[&options[..], &["--strict"]].concat());
    assert_eq!(code, Some(0), "{said}");
    let programs = loading_none(rig);
    let named = holding(rig, &group, &programs);
    let shown = |pid: u32| {
        let unmanaged = rig.json(&["ps"])["unmanaged"].clone();
        let mut all = unmanaged.as_array().cloned().unwrap_or_default().into_iter();
        all.find(|process| process["pid"] == pid)
    };
    for (name, client) in &named {
        let pid = client.pid();
        let mut seen = Value::Null;
        rig.eventually(SOON, name, || {
            seen = shown(pid).unwrap_or_default();
            !seen.is_null()
        });
        let expected = (&json!("j1"), &json!(0), &json!(64 * MIB));
        assert_eq!(
            (&seen["job"], &seen["gpu"], &seen["used_bytes"]),
            expected,
            "{name}: {seen}"
        );
        rig.eventually(SOON, "the job's own account names it", || {
            let why = rig.output(rig.partage(&["why", "j1"]));
            String::from_utf8_lossy(&why.stdout).contains(&format!("pid {pid} "))
        });
    }
    let bytes = 64 * MIB * named.len() as u64;
    assert_eq!(rig.json(&["status"])["devices"][0]["unmanaged_bytes"], json!(bytes));
    let mut killed = holding(rig, &strict, &programs);
    for (name, client) in &mut killed {
        rig.eventually(SOON, name, || client.has_ended());
    }
    rig.eventually(SOON, "what they held is free", || {
        rig.json(&["status"])["devices"][0]["unmanaged_bytes"] == json!(bytes)
    });
    for (name, mut client) in named {
        assert!(!client.has_ended(), "{name} is of a job that is not strict");
        client.kill();
    }
}
