// SPDX-License-Identifier: Apache-2.0
//! What root in a container may try to have more than its container was given: it is refused, or seen.

use super::podman::{CLASSES, Podman, describe, has_one_gib, stderr};
use crate::cases::ruled_host::Host;
use crate::client::Client;
use crate::rig::{GIB, Rig};

/// The token in the environment of a process.
fn token(pid: u32) -> String {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("it runs");
    let text = String::from_utf8_lossy(&environment).into_owned();
    let token = text.split('\0').find_map(|entry| entry.strip_prefix("PARTAGE_TOKEN="));
    token.expect("it has a token").to_owned()
}

/// The jobs' clients, all together.
fn clients(rig: &Rig) -> usize {
    let count = |job: &serde_json::Value| job["clients"].as_array().map_or(0, Vec::len);
    rig.jobs().iter().map(count).sum()
}

pub fn claims(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let _host = Host::start(rig, CLASSES);
    describe(rig);
    let mut rich = rig.client(&["-m", "8GiB", "-g", "0", "--name", "rich"]);
    rich.ready();
    let stolen = format!("-e=PARTAGE_TOKEN={}", token(rich.pid()));
    // What is written beside a container raises nothing.
    for annotation in ["partage.dev/mem=8GiB", "partage.dev/class=large"] {
        let annotation = format!("--annotation={annotation}");
        let mut client = podman.client("small", &[&annotation, &stolen]);
        has_one_gib(&mut client);
        assert_eq!(
            (rig.jobs().len(), clients(rig)),
            (2, 2),
            "a job of its own: {:?}",
            rig.jobs()
        );
        client.kill();
        rig.eventually(crate::client::PATIENCE, "the job ends", || rig.jobs().len() == 1);
    }
    podman.waiting("web", "small", &["--pid=host"]);
    podman.waiting("victim", "small", &[]);
    let jobs = rig.jobs();
    // It sees the other's processes, and registers neither them nor itself anew.
    let (own, other) = (podman.pid("web").to_string(), podman.pid("victim").to_string());
    for pid in [&own, &other] {
        let words = [
            "exec",
            "web",
            "/bin/partage",
            "--socket-dir",
            "/run/partage",
            "register",
        ];
        let words = [&words[..], &["--pid", pid, "-m", "8GiB", "-g", "0"]].concat();
        let output = podman.output(&words);
        let is_own = *pid == own;
        assert_eq!(
            output.status.code(),
            Some(if is_own { 0 } else { 3 }),
            "{}",
            stderr(&output)
        );
    }
    assert_eq!(rig.jobs().len(), jobs.len());
    let mut member = podman.enter("web", &["--privileged", &stolen]);
    has_one_gib(&mut member);
    assert_eq!((rig.jobs().len(), clients(rig)), (3, 2));
}

/// Leaves each control group that lets it, and becomes a client. What is no file of the kernel's is not written.
const LEAVES: &str = "for group in /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/cgroup.procs; do \
                      [ -e $group ] && echo $$ > $group && moved=1; done 2>/dev/null; \
                      echo moved ${moved:-0}; exec /bin/client dlopen";

pub fn group(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let _host = Host::start(rig, CLASSES);
    describe(rig);
    let leaving = ["/bin/sh", "-c", LEAVES];
    let start = |options: &[&str]| {
        let options = [&["-i", "--rm"], options].concat();
        Client::start(podman.run("small", &options, &leaving))
    };
    // The groups are for looking only.
    let mut shut = start(&[]);
    assert_eq!(shut.answer(), "moved 0");
    has_one_gib(&mut shut);
    shut.kill();
    rig.eventually(crate::client::PATIENCE, "the job ends", || rig.jobs().is_empty());
    // Those of the host, for writing: its first process stays what it is, by its own number.
    let open = [
        "--privileged",
        "--cgroupns=host",
        "-v=/sys/fs/cgroup:/sys/fs/cgroup:rw",
        "--name=web",
    ];
    let mut first = start(&open);
    assert_eq!(first.answer(), "moved 1");
    has_one_gib(&mut first);
    assert_eq!((rig.jobs().len(), clients(rig)), (1, 1));
    // What enters and leaves has no parent there. Where a hierarchy is left that it cannot reach, it stays; else it is
    // another job's, and shown.
    let words = [&["exec", "-i", "web"], &leaving[..]].concat();
    let mut second = Client::start(podman.command(&words));
    assert_eq!(second.answer(), "moved 1");
    second.ready();
    let got = second.say(&format!("alloc {} a", 2 * GIB));
    let jobs = rig.jobs();
    rig.note(format!("what left its group is of one of {} jobs, {got}", jobs.len()));
    assert_eq!(clients(rig), 2, "{jobs:?}");
    assert_eq!(got, if jobs.len() == 1 { "alloc 2" } else { "alloc 0" }, "{jobs:?}");
}
