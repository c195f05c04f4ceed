// SPDX-License-Identifier: Apache-2.0
//! Programs that have nothing to do with a GPU run unchanged; what cannot be managed is named, or refused by
//! `--strict`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use super::Case;
use crate::artefacts::program;
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("commands::ordinary_programs_run_unchanged", ordinary),
        Case::new("commands::static_binary", |rig| {
            unmanaged(rig, &static_binary(), &[], "static")
        }),
        Case::new("commands::musl_binary_and_as_a_child_of_bash", musl),
        Case::new("commands::setuid_binary", setuid),
        Case::new("commands::env_i_drops_the_library", |rig| {
            unmanaged(
                rig,
                Path::new("/usr/bin/env"),
                &["-i", "/bin/echo", "hello"],
                "LD_PRELOAD",
            )
        }),
        Case::new("commands::sudo_hands_the_work_on", sudo),
        Case::new("commands::docker_hands_the_work_on", |rig| {
            hand_off(rig, "docker", &["run", "--gpus", "all", "x"])
        }),
    ]
}

fn bare(rig: &Rig, program: &Path, arguments: &[&str]) -> Output {
    let mut command = rig.command(program);
    command.args(arguments);
    rig.output(command)
}

#[track_caller]
fn same(under: &Output, bare: &Output, what: &str) {
    assert_eq!(
        under.status,
        bare.status,
        "{what}: {}",
        String::from_utf8_lossy(&under.stderr)
    );
    assert_eq!(under.stdout, bare.stdout, "{what}: standard output");
}

fn ordinary(rig: &Rig) {
    let commands: &[(&str, &[&str])] = &[
        ("/bin/true", &[]),
        ("/bin/false", &[]),
        ("/bin/bash", &["-c", "echo out; echo err >&2; exit 7"]),
        ("/bin/sh", &["-c", "kill -TERM $$"]),
        ("/usr/bin/env", &["-u", "HOME", "/bin/echo", "hello"]),
    ];
    for (name, arguments) in commands {
        let (under, bare) = (
            rig.output(rig.run(&["-m", "25%"], Path::new(name), arguments)),
            bare(rig, Path::new(name), arguments),
        );
        same(&under, &bare, name);
        assert_eq!(under.stderr, bare.stderr, "{name}: not on a terminal, `run` is silent");
    }
    let python = super::matrix::python();
    for script in [
        "pass",
        "import sys, ctypes, threading, subprocess; print(1); sys.exit(3)",
    ] {
        let under = rig.output(rig.run(&["-m", "25%"], &python, &["-c", script]));
        same(&under, &bare(rig, &python, &["-c", script]), script);
        assert_eq!(under.stderr, b"");
    }
}

/// Runs the same, is named in one line, and `--strict` refuses it with the reason.
#[track_caller]
fn unmanaged(rig: &Rig, program: &Path, arguments: &[&str], reason: &str) {
    let under = rig.output(rig.run(&["-m", "25%"], program, arguments));
    same(&under, &bare(rig, program, arguments), reason);
    let text = String::from_utf8_lossy(&under.stderr).into_owned();
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("partage:")).collect();
    assert!(
        lines.len() == 1 && lines[0].contains(reason),
        "one line names it ({reason}): {text}"
    );
    let strict = rig.output(rig.run(&["-m", "25%", "--strict"], program, arguments));
    assert_eq!(strict.status.code(), Some(125), "--strict");
    assert!(
        String::from_utf8_lossy(&strict.stderr).contains(reason),
        "--strict says why"
    );
    assert_eq!(strict.stdout, b"", "--strict: the program did not run");
}

fn static_binary() -> PathBuf {
    program("hello-static", "hello.c", &["-static"])
}

/// A program of `programs/` with musl's C library at `path`; `false`: this machine has none, and is told to do without.
pub fn build_by_musl(source: &str, path: &Path, flags: &[&str]) -> bool {
    let Some(compiler) = ["/usr/bin/musl-gcc", "/usr/local/bin/musl-gcc"]
        .iter()
        .find(|path| Path::new(path).exists())
    else {
        // scripts/test installs it where it may; a machine without is told, not passed over.
        assert!(
            std::env::var_os("PARTAGE_SKIP_MUSL").is_some(),
            "musl-gcc is missing: install musl-tools or set PARTAGE_SKIP_MUSL=1"
        );
        println!("SKIPPED: programs of musl: PARTAGE_SKIP_MUSL is set");
        return false;
    };
    let source = crate::artefacts::package_dir().join("programs").join(source);
    let built = std::process::Command::new(compiler)
        .args(flags)
        .arg("-o")
        .arg(path)
        .arg(source)
        .status()
        .expect("musl-gcc runs");
    assert!(built.success());
    true
}

fn musl(rig: &Rig) {
    let path = rig.dir.join("hello-musl");
    if !build_by_musl("hello.c", &path, &[]) {
        return;
    }
    unmanaged(rig, &path, &[], "musl");
    let line = format!("{}; echo $?", path.display());
    let arguments = ["-c", line.as_str()];
    let under = rig.output(rig.run(&["-m", "25%"], Path::new("/bin/bash"), &arguments));
    same(
        &under,
        &bare(rig, Path::new("/bin/bash"), &arguments),
        "musl as a child of bash",
    );
}

fn setuid(rig: &Rig) {
    let from = program("hello", "hello.c", &[]);
    let path = rig.dir.join("hello-setuid");
    std::fs::copy(from, &path).expect("writable");
    // A setuid bit changes nothing for the file's own owner (the kernel starts it without secure mode), and as root the
    // library may be preloaded into it; somebody else's file is what cannot be managed.
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED: only root can make another user's setuid file");
        return;
    }
    std::os::unix::fs::chown(&path, Some(65534), Some(65534)).expect("root");
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        // Root's own setuid-root file changes nothing for root: somebody else's does.
        std::os::unix::fs::chown(&path, Some(65534), Some(65534)).expect("root");
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).expect("our own file");
    unmanaged(rig, &path, &[], "setuid");
}

/// The real one where it is installed (scripts/test installs it where it may), and a stand-in of its name everywhere.
fn sudo(rig: &Rig) {
    let arguments = ["-n", "true"];
    match Path::new("/usr/bin/sudo") {
        real if real.exists() => unmanaged(rig, real, &arguments, "sudo"),
        _ => println!("SKIPPED: commands::sudo: the real sudo is not installed; a stand-in of its name ran"),
    }
    hand_off(rig, "sudo", &arguments);
}

/// A stand-in of that name that prints its arguments: what matters is the name, not what it would do.
fn hand_off(rig: &Rig, name: &str, arguments: &[&str]) {
    let path = rig.dir.join(name);
    std::fs::write(&path, "#!/bin/sh\necho \"$@\"\nexit 5\n").expect("writable");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("our own file");
    unmanaged(rig, &path, arguments, name);
}
