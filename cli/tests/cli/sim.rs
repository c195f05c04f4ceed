// SPDX-License-Identifier: Apache-2.0
//! `partage sim`: the machine's life, what COMMAND sees, its code and signals.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use partage_protocol::admin::Reply;

use crate::bench::{Bench, result};
use crate::played_broker::{job, play};

/// A machine name of this test's own.
fn machine() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("t{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn folder(machine: &str) -> PathBuf {
    // SAFETY: geteuid has no preconditions.
    PathBuf::from(format!("/tmp/partage-sim-{}", unsafe { libc::geteuid() })).join(machine)
}

fn sim(bench: &Bench, machine: &str, more: &[&str]) -> std::process::Command {
    let mut arguments = vec!["sim", "--memory", "1GiB", "--machine", machine];
    arguments.extend(more);
    let mut command = bench.partage(&arguments);
    command.env_remove("PARTAGE_SOCKET_DIR");
    command
}

/// A `partage sim` whose COMMAND waits for its standard input to end.
fn occupy(bench: &Bench, machine: &str) -> Child {
    let mut command = sim(bench, machine, &["sh", "-c", "echo ready; cat >/dev/null"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped"))
        .read_line(&mut line)
        .expect("reads");
    assert_eq!(line, "ready\n");
    child
}

#[test]
fn the_command_meets_a_machine_of_its_own_that_is_gone_afterwards() {
    let (bench, name) = (Bench::new(), machine());
    let mut command = sim(
        &bench,
        &name,
        &["--", "sh", "-c", "env; ls $PARTAGE_SIM_DIR/lib; exit 9"],
    );
    command.env("LD_LIBRARY_PATH", "/opt/lib");
    let (code, out, err) = result(command);
    assert_eq!((code, err.as_str()), (9, ""));
    let dir = folder(&name);
    for line in [
        format!("PARTAGE_SIM_DIR={}", dir.display()),
        format!("PARTAGE_SOCKET_DIR={}/broker", dir.display()),
        format!("LD_LIBRARY_PATH={}/lib:/opt/lib", dir.display()),
        "libcuda.so.1".to_owned(),
        "libnvidia-ml.so.1".to_owned(),
    ] {
        assert!(out.lines().any(|l| l == line), "{line}: {out}");
    }
    assert!(
        !dir.exists() && !dir.with_extension("lock").exists(),
        "the last one out removes it"
    );
}

#[test]
fn a_second_sim_joins_and_the_last_one_removes() {
    let (bench, name) = (Bench::new(), machine());
    let mut first = occupy(&bench, &name);
    let file = folder(&name).join("machine.toml");
    let before = std::fs::read(&file).expect("the machine is there");
    assert_eq!(result(sim(&bench, &name, &["true"])).0, 0);
    assert_eq!(std::fs::read(&file).expect("and still is"), before);
    let other = bench.partage(&["sim", "--gpus", "5", "--machine", &name, "true"]);
    let (code, _, err) = result(other);
    assert_eq!(code, 125);
    assert!(
        err.contains("alive with 2 × h200 of 1 GiB") && err.contains("--machine"),
        "{err}"
    );
    drop(first.stdin.take());
    assert!(first.wait().expect("ends").success());
    assert!(!file.exists());
}

#[test]
fn a_broken_file_of_the_stand_ins_leaves_no_machine() {
    let (bench, name) = (Bench::new(), machine());
    for library in ["libpartage_sim_runtime.so", "libpartage_sim_blas.so"] {
        std::fs::write(bench.lib().join(library), "no library").expect("writable");
    }
    let (code, out, err) = result(sim(&bench, &name, &["--cuda-runtime", "--", "true"]));
    assert_eq!((code, out.as_str()), (125, ""), "{err}");
    assert!(
        err.contains("libpartage_sim_runtime.so is no shared object") && err.contains("install Partage again"),
        "{err}"
    );
    assert!(!folder(&name).exists());
}

#[test]
fn other_users_reach_a_shared_machine_and_no_other() {
    let (bench, shared, own) = (Bench::new(), machine(), machine());
    let mode = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        path.metadata().expect("it is there").permissions().mode() & 0o7777
    };
    let mut alone = occupy(&bench, &own);
    let show = [
        "--shared",
        "--",
        "sh",
        "-c",
        "stat -c %a $PARTAGE_SIM_DIR/.. $PARTAGE_SIM_DIR",
    ];
    let (code, out, err) = result(sim(&bench, &shared, &show));
    assert_eq!((code, out.as_str()), (0, "711\n777\n"), "{err}");
    assert_eq!(mode(&folder(&own)), 0o700);
    drop(alone.stdin.take());
    assert!(alone.wait().expect("ends").success());
}

#[test]
fn a_machine_whose_users_were_killed_is_made_anew() {
    let (bench, name) = (Bench::new(), machine());
    let mut killed = occupy(&bench, &name);
    let file = folder(&name).join("machine.toml");
    let before = std::fs::read(&file).expect("the machine is there");
    killed.kill().expect("kill -9");
    killed.wait().expect("reaped");
    // Its devices have the UUIDs of a machine of this name; whatever else the old one held is gone.
    let left = folder(&name).join("left");
    std::fs::write(&left, b"").expect("written");
    let script = format!("test ! -e {} && cat {}", left.display(), file.display());
    let (code, out, err) = result(sim(&bench, &name, &["sh", "-c", &script]));
    assert_eq!(
        (code, out.as_bytes()),
        (0, before.as_slice()),
        "another machine of this name: {err}"
    );
    assert!(!file.exists());
}

#[test]
fn codes_and_signals_are_the_commands() {
    let (bench, name) = (Bench::new(), machine());
    assert_eq!(result(sim(&bench, &name, &["sh", "-c", "kill -KILL $$"])).0, 128 + 9);
    assert_eq!(result(sim(&bench, &name, &["no-such-program-here"])).0, 127);
    assert_eq!(result(sim(&bench, &name, &["/etc/passwd"])).0, 126);
    // A signal sent to `partage sim` reaches the command.
    let mut command = sim(
        &bench,
        &name,
        &[
            "sh",
            "-c",
            "trap 'exit 33' TERM; echo ready; while :; do sleep 0.01; done",
        ],
    );
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped"))
        .read_line(&mut line)
        .expect("reads");
    // SAFETY: the child has not been waited for, so the pid is its own.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    assert_eq!(child.wait().expect("ends").code(), Some(33));
    assert!(!folder(&name).exists());
}

#[test]
fn standard_input_and_output_are_the_commands() {
    let (bench, name) = (Bench::new(), machine());
    let mut child = sim(&bench, &name, &["cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(b"through")
        .expect("writes");
    assert_eq!(child.wait_with_output().expect("ends").stdout, b"through");
}

#[test]
fn sim_inside_a_job_is_refused() {
    let (bench, name) = (Bench::new(), machine());
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Job(job("train"))]]);
    let mut command = bench.partage(&["sim", "--machine", &name, "true"]);
    command.env("PARTAGE_TOKEN", "ab".repeat(32));
    let (code, _, err) = result(command);
    assert_eq!(code, 125);
    assert!(
        err.contains("sim inside j42") && err.contains("partage sim -- partage run"),
        "{err}"
    );
    assert!(!folder(&name).exists());
}

#[test]
fn partage_is_found_inside_without_being_in_the_path() {
    let (bench, name) = (Bench::new(), machine());
    let (code, out, err) = result(sim(&bench, &name, &["partage", "version"]));
    assert!(code == 0 && out.starts_with("partage "), "{err}");
    let (code, out, err) = result(sim(&bench, &name, &["sh", "-c", "partage version"]));
    assert!(code == 0 && out.starts_with("partage "), "{err}");
}
