// SPDX-License-Identifier: Apache-2.0
//! `partage demo`: right numbers, a reason where it cannot show them, and nothing left behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Case;
use crate::artefacts::built;
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    const WHY: &str = "asks for a simulated machine";
    vec![
        Case::new("demo::shows_right_numbers_and_leaves_nothing", right_numbers).simulated(WHY),
        Case::new("demo::says_why_it_cannot_go_on", no_room).simulated(WHY),
        Case::new("demo::leaves_nothing_when_it_is_ended", ended).simulated(WHY),
    ]
}

/// A command as on a machine without GPU and simulation.
fn bare(rig: &Rig, words: &[&str]) -> Command {
    let mut command = rig.partage(words);
    for name in ["PARTAGE_SIM_DIR", "LD_LIBRARY_PATH", "PARTAGE_SOCKET_DIR"] {
        command.env_remove(name);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The folder of a simulated machine.
fn folder(machine: &str) -> PathBuf {
    // SAFETY: geteuid cannot fail.
    PathBuf::from(format!("/tmp/partage-sim-{}", unsafe { libc::geteuid() })).join(machine)
}

/// Nothing of the machine is there, and no process of it.
fn is_gone(machine: &Path) -> bool {
    let name = machine.display().to_string();
    let is_of_it = |entry: std::fs::DirEntry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&name)
    };
    let processes = std::fs::read_dir("/proc").expect("proc");
    !machine.exists() && !processes.flatten().any(is_of_it)
}

/// Its code, both outputs, and the machine that it made.
fn outcome(mut command: Command) -> (Option<i32>, String, String, PathBuf) {
    let child = command.spawn().expect("partage starts");
    let machine = folder(&format!("demo-{}", child.id()));
    let output = child.wait_with_output().expect("our own child");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
        machine,
    )
}

fn right_numbers(rig: &Rig) {
    let start = std::time::Instant::now();
    let (code, out, err, machine) = outcome(bare(rig, &["demo"]));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    // State, bytes and limit of each program in each of the three tables, without the cost of a context.
    let rows: Vec<Vec<&str>> = out
        .lines()
        .filter(|line| line.starts_with("j1 ") || line.starts_with("j2 "))
        .map(|line| line.split_whitespace().collect())
        .filter(|words: &Vec<&str>| words.get(1).is_some_and(|word| word.starts_with("demo-")))
        .collect();
    let shown: Vec<(&str, &str, String)> = rows
        .iter()
        .map(|words| (words[1], words[2], words[words.len() - 2..].join(" ")))
        .collect();
    let row = |name, state, limit: &str| (name, state, limit.to_owned());
    let expected = [
        row("demo-first", "running", "2 GiB"),
        row("demo-second", "running", "1 GiB"),
        row("demo-first", "running", "3 GiB"),
        row("demo-second", "running", "1 GiB"),
        row("demo-first", "suspended", "3 GiB"),
        row("demo-second", "running", "1 GiB"),
    ];
    assert_eq!(shown, expected, "{out}");
    assert_eq!(rows[4][4..6], ["0", "MiB"], "{out}");
    for sentence in [
        "CUDA error 2, out of",
        "j1: limit 3 GiB on GPU 0, in use 1.5 GiB",
        "j1 is suspended: its 2.5 GiB are in host memory",
        "j1 runs again",
        "All 24 checked numbers are right.",
    ] {
        assert!(out.contains(sentence), "{sentence}: {out}");
    }
    assert!(is_gone(&machine), "{} is left", machine.display());

    let (code, out, err, machine) = outcome(bare(rig, &["demo", "--json"]));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let document: serde_json::Value = serde_json::from_str(&out).expect("one document");
    assert_eq!(document["kind"], "demo");
    assert_eq!(document["checks"].as_array().map(Vec::len), Some(24), "{document}");
    assert!(is_gone(&machine), "{} is left", machine.display());
}

/// On a GPU that is too small for the third step.
fn no_room(rig: &Rig) {
    let name = format!("small-{}", std::process::id());
    let partage = built("partage").display().to_string();
    let words = ["sim", "--memory", "3GiB", "--machine", &name, "--", &partage, "demo"];
    let (code, out, err, _) = outcome(bare(rig, &words));
    assert_eq!(code, Some(1), "{out}{err}");
    for part in ["3 GiB cannot be promised to j1", "mem=3GiB` failed"] {
        assert!(err.contains(part), "{part}: {err}");
    }
    assert!(!out.contains("checked numbers are right"), "{out}");
    rig.eventually(Duration::from_secs(10), "the machine is removed", || {
        is_gone(&folder(&name))
    });
}

fn ended(rig: &Rig) {
    // At one moment and another: while a program starts, while it is asked, between the steps.
    for millis in [0, 30, 100, 300] {
        ended_after(rig, Duration::from_millis(millis));
    }
}

fn ended_after(rig: &Rig, pause: Duration) {
    let mut command = bare(rig, &["demo"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("partage starts");
    let machine = folder(&format!("demo-{}", child.id()));
    let has_begun = || machine.join("broker/client/client.sock").exists();
    rig.eventually(Duration::from_secs(10), "its broker listens", has_begun);
    std::thread::sleep(pause);
    // SAFETY: our own child, which is not reaped yet.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    let status = child.wait().expect("our own child");
    assert_eq!(status.code(), Some(128 + libc::SIGTERM));
    rig.eventually(Duration::from_secs(10), "nothing is left", || is_gone(&machine));
}
