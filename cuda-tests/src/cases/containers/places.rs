// SPDX-License-Identifier: Apache-2.0
//! Who is in a container, in which namespaces, and which GPU it has: the limit holds, and each container is a job.

use serde_json::{Value, json};

use super::podman::{CLASSES, Podman, describe, has_one_gib, jobs_and_clients, leaving, stderr};
use crate::cases::ruled_host::{Host, SOON};
use crate::client::Client;
use crate::rig::{CONTEXT_BYTES, GIB, Rig};

/// Another uid may use the machine as well, as it may a real one.
fn open_to_all(rig: &Rig) {
    let machine = partage_machine::Machine::open(&rig.sim_dir()).expect("the machine is there");
    machine.open_to_all().expect("opened up");
}

pub fn another_uid(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let _host = Host::start(rig, CLASSES);
    describe(rig);
    open_to_all(rig);
    podman.waiting("web", "small", &[]);
    let mut root = podman.enter("web", &[]);
    root.ready();
    root.expect(&format!("alloc {} a", GIB / 2), "alloc 0");
    let mut other = podman.enter("web", &["--user", "1000:1000"]);
    other.ready();
    // One limit for both together.
    other.expect(&format!("alloc {} a", GIB / 2 + 512), "alloc 2");
    jobs_and_clients(rig, 1, 2);
    root.kill();
    jobs_and_clients(rig, 1, 1);
    rig.eventually(SOON, "what the first had is free", || {
        other.numbers("info").get(1) == Some(&(GIB - CONTEXT_BYTES))
    });
    other.expect(&format!("alloc {} all", GIB - CONTEXT_BYTES), "alloc 0");
    other.expect("alloc 512 more", "alloc 2");
}

/// A container whose ids are others outside: its root is no root of the host.
pub fn user_namespace(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let _host = Host::start(rig, CLASSES);
    describe(rig);
    open_to_all(rig);
    podman.give_root_to(100_000);
    let mapped = ["--uidmap=0:100000:65536", "--gidmap=0:100000:65536"];
    // Nor may it write the control groups of the host, where they are open to root.
    let open = [
        "-i",
        "--rm",
        "--name=web",
        "--cgroupns=host",
        "-v=/sys/fs/cgroup:/sys/fs/cgroup:rw",
    ];
    let program = leaving(&["/bin/client", "dlopen"]);
    let mut client = Client::start(podman.run("small", &[&open[..], &mapped].concat(), &program));
    assert_eq!(client.answer(), "moved 0");
    has_one_gib(&mut client);
    let jobs = jobs_and_clients(rig, 1, 1);
    let pid = jobs[0]["pid"].as_u64().expect("a number");
    let map = std::fs::read_to_string(format!("/proc/{pid}/uid_map")).expect("it runs");
    assert!(map.split_whitespace().eq(["0", "100000", "65536"]), "{map}");
    podman.is_refused_a_change("web", "j1");
}

/// Two containers that share a pid namespace, as those of a pod may.
pub fn one_pid_namespace(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let _host = Host::start(rig, CLASSES);
    describe(rig);
    podman.waiting("web", "small", &[]);
    podman.waiting("side", "small", &["--pid=container:web"]);
    assert_eq!(podman.pid_namespace("web"), podman.pid_namespace("side"));
    jobs_and_clients(rig, 2, 0);
    let mut members = ["web", "side"].map(|name| podman.enter(name, &[]));
    for member in &mut members {
        member.ready();
        let room = member.room();
        member.expect(&format!("alloc {room} all"), "alloc 0");
        member.expect("alloc 512 more", "alloc 2");
    }
    let jobs = jobs_and_clients(rig, 2, 2);
    let each_has_one = |job: &Value| job["clients"].as_array().is_some_and(|clients| clients.len() == 1);
    assert!(jobs.iter().all(each_has_one), "{jobs:?}");
    assert!(rig.truth_allocated() <= 2 * GIB, "the driver's own count");
    let [mut web, side] = members;
    drop(side);
    let _ = podman.output(&["kill", "side"]);
    rig.eventually(SOON, "one ends, the other stays", || rig.jobs().len() == 1);
    web.expect("free all", "free 0");
    has_one_gib(&mut web);
}

/// The UUID of a GPU, and of the one that a client shows as its first, without what they begin with.
fn bare_uuid(text: &str) -> &str {
    text.rsplit(' ').next().unwrap_or_default().trim_start_matches("GPU-")
}

fn shows_gpu_one_alone(rig: &Rig, client: &mut Client) {
    let machine = partage_machine::Machine::open(&rig.sim_dir()).expect("the machine is there");
    let own = machine.devices()[1].uuid_text();
    client.expect("init 0", "init 0");
    client.expect("count", "count 0 1");
    assert_eq!(bare_uuid(&client.say("uuid 0")), bare_uuid(&own));
    has_one_gib(client);
}

pub fn gpu_one(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let _host = Host::start(rig, CLASSES);
    describe(rig);
    for visible in [None, Some("-e=CUDA_VISIBLE_DEVICES=0")] {
        let options: Vec<&str> = visible.into_iter().chain(["-d", "--name=web"]).collect();
        let command = podman.run_with(Some(1), "small", &options, &["/bin/sleep", "600"]);
        let output = rig.output(command);
        assert!(output.status.success(), "{}", stderr(&output));
        let mut member = podman.enter("web", &[]);
        shows_gpu_one_alone(rig, &mut member);
        let jobs = jobs_and_clients(rig, 1, 1);
        let devices = jobs[0]["devices"].as_array().cloned().unwrap_or_default();
        let numbers: Vec<&Value> = devices.iter().map(|device| &device["index"]).collect();
        assert_eq!(numbers, [&json!(1)], "{visible:?}: its job has its GPU alone");
        drop(member);
        let _ = podman.output(&["rm", "-f", "-t", "0", "web"]);
        rig.eventually(SOON, "the job ends", || rig.jobs().is_empty());
    }
}
