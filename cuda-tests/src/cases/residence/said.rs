// SPDX-License-Identifier: Apache-2.0
//! Commands and what they say, and a client whose memory can be told.

use crate::cases::matrix::python;
use crate::client::{Client, PATIENCE};
use crate::rig::{MIB, Rig};

/// What a command says that succeeds.
pub fn ok(rig: &Rig, arguments: &[&str]) -> String {
    let output = rig.output(rig.partage(arguments));
    let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    assert!(
        output.status.success(),
        "{arguments:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Exit code and standard error of a command that fails.
pub fn no(rig: &Rig, arguments: &[&str]) -> (Option<i32>, String) {
    let output = rig.output(rig.partage(arguments));
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
    )
}

/// `ps`'s word for a job, by its id or name; empty for none.
pub fn state(rig: &Rig, job: &str) -> String {
    let jobs = rig.jobs();
    let job = jobs.iter().find(|view| view["job"] == job || view["name"] == job);
    job.map_or_else(String::new, |view| {
        view["state"].as_str().unwrap_or_default().to_owned()
    })
}

/// Bytes that a job uses on its first device.
pub fn used_by(rig: &Rig, name: &str) -> u64 {
    let jobs = rig.jobs();
    let job = jobs.iter().find(|view| view["name"] == name).expect("it is listed");
    job["devices"][0]["used_bytes"].as_u64().expect("bytes")
}

/// A client with 512 MiB of one byte.
pub fn filled(rig: &Rig, name: &str, limit: &str) -> Client {
    filled_with(rig, name, limit, 512, &[])
}

/// The same with so many MiB, and with more options.
pub fn filled_with(rig: &Rig, name: &str, limit: &str, mib: u64, more: &[&str]) -> Client {
    let mut arguments = vec!["-m", limit, "-g", "0", "--name", name];
    arguments.extend(more);
    let mut client = rig.client(&arguments);
    client.ready();
    client.expect(&format!("alloc {} a", mib * MIB), "alloc 0");
    client.expect("fill a 165", "fill 0 165 165");
    client
}

/// Kills the broker and waits for the next one.
pub fn kill_broker(rig: &Rig) {
    let old = rig.broker_pid_quick().expect("a broker");
    // SAFETY: the process is this rig's own broker.
    unsafe { libc::kill(old as libc::pid_t, libc::SIGKILL) };
    next_broker(rig, old);
}

/// Waits for another broker than that of this process id. One that was killed may still take connections.
pub fn next_broker(rig: &Rig, old: u32) {
    rig.eventually(PATIENCE, "another broker", || {
        let started = rig.output(rig.partage(&["broker", "start"])).status.success();
        started && rig.broker_pid_quick().is_some_and(|pid| pid != old)
    });
}

/// A training run of so many steps, if tinygrad is installed.
pub fn train(rig: &Rig, name: &str, steps: usize) -> Option<std::process::Command> {
    let mut look = rig.command(python());
    look.args(["-c", "import tinygrad"]);
    if !rig.output(look).status.success() {
        println!("SKIPPED: tinygrad is not installed");
        return None;
    }
    let script = crate::artefacts::package_dir()
        .join("programs/train.py")
        .display()
        .to_string();
    let mut command = rig.run(
        &["-m", "2GiB", "-g", "0", "--name", name],
        &python(),
        &[&script, &steps.to_string()],
    );
    command.envs([("DEV", "CUDA"), ("CUDA", "1"), ("PTX", "1")]);
    command.env("HOME", &rig.dir).stdout(std::process::Stdio::piped());
    Some(command)
}

/// Waits until a job that trains has memory on its GPU.
pub fn trains(rig: &Rig, name: &str) {
    rig.eventually(PATIENCE, "it uses the GPU", || {
        rig.jobs().iter().any(|job: &serde_json::Value| {
            job["name"] == name
                && job["devices"][0]["used_bytes"]
                    .as_u64()
                    .is_some_and(|used| used > 64 * MIB)
        })
    });
}
