// SPDX-License-Identifier: Apache-2.0
//! What root in a container may try to have more than its container was given: it is refused, or seen.

use super::podman::{CLASSES, PARTAGE, Podman, describe, has_one_gib, jobs_and_clients, leaving, stderr};
use crate::cases::ruled_host::Host;
use crate::client::Client;
use crate::rig::Rig;

/// The token in the environment of a process.
fn token(pid: u32) -> String {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("it runs");
    let text = String::from_utf8_lossy(&environment).into_owned();
    let token = text.split('\0').find_map(|entry| entry.strip_prefix("PARTAGE_TOKEN="));
    token.expect("it has a token").to_owned()
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
        jobs_and_clients(rig, 2, 2);
        client.kill();
        rig.eventually(crate::client::PATIENCE, "the job ends", || rig.jobs().len() == 1);
    }
    podman.waiting("web", "small", &["--pid=host"]);
    podman.waiting("victim", "small", &[]);
    jobs_and_clients(rig, 3, 1);
    // It sees the other's processes, and registers neither them nor itself anew.
    let (own, other) = (podman.pid("web").to_string(), podman.pid("victim").to_string());
    for pid in [&own, &other] {
        let output = podman.partage_in("web", &["register", "--pid", pid, "-m", "8GiB", "-g", "0"]);
        let is_own = *pid == own;
        assert_eq!(
            output.status.code(),
            Some(if is_own { 0 } else { 3 }),
            "{}",
            stderr(&output)
        );
    }
    jobs_and_clients(rig, 3, 1);
    let mut member = podman.enter("web", &["--privileged", &stolen]);
    has_one_gib(&mut member);
    jobs_and_clients(rig, 3, 2);
}

pub fn group(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let _host = Host::start(rig, CLASSES);
    describe(rig);
    let client = leaving(&["/bin/client", "dlopen"]);
    // The groups are for looking only.
    let mut shut = Client::start(podman.run("small", &["-i", "--rm"], &client));
    assert_eq!(shut.answer(), "moved 0");
    has_one_gib(&mut shut);
    shut.kill();
    rig.eventually(crate::client::PATIENCE, "the job ends", || rig.jobs().is_empty());
    // Those of the host, for writing: its first process stays what it is, by its own number.
    let open = [
        "-i",
        "--rm",
        "--privileged",
        "--cgroupns=host",
        "-v=/sys/fs/cgroup:/sys/fs/cgroup:rw",
    ];
    let named = [&open[..], &["--name=web"]].concat();
    let mut first = Client::start(podman.run("small", &named, &client));
    assert_eq!(first.answer(), "moved 1");
    has_one_gib(&mut first);
    jobs_and_clients(rig, 1, 1);
    // What enters and leaves has no parent there, and is told by its pid namespace.
    let mut second = Client::start(podman.command(&[&["exec", "-i", "web"], &client[..]].concat()));
    assert_eq!(second.answer(), "moved 1");
    has_one_gib(&mut second);
    jobs_and_clients(rig, 1, 2);
    // Over that socket root owns no job, wherever it is.
    let set = leaving(&[PARTAGE, &["set", "j2", "mem=none"]].concat());
    let output = podman.output(&[&["exec", "web"], &set[..]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    drop((first, second));
    rig.eventually(crate::client::PATIENCE, "the jobs end", || rig.jobs().is_empty());
    changes_nothing(rig, &podman, &open);
}

/// The first process of a container left its groups: root there changes nothing either.
fn changes_nothing(rig: &Rig, podman: &Podman<'_>, open: &[&str]) {
    let options = [open, &["--annotation=partage.dev/name=web"]].concat();
    for (words, expected) in [
        (&["set", "j3", "mem=none"][..], "j3 belongs to root"),
        (&["register", "--pid", "1", "-m", "8GiB"], "another pid namespace"),
    ] {
        let program = [PARTAGE, words].concat();
        let output = rig.output(podman.run("small", &options, &leaving(&program)));
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
        assert!(said.contains("moved 1") && said.contains(expected), "{words:?}: {said}");
        assert_eq!(output.status.code(), Some(3), "{words:?}: {said}");
        rig.eventually(crate::client::PATIENCE, "the job ends", || rig.jobs().is_empty());
    }
}
