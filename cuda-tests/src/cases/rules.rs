// SPDX-License-Identifier: Apache-2.0
//! An administrator's rule: no user gets more by any way, as the driver itself counts; and a reload while programs
//! allocate.

mod cgroups;
mod under_load;

use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use super::ruled_host::{Host, SOON, bare, broker, config, exhausted, held, said};
use super::{Case, tenth};
use crate::artefacts::built;
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

const WHY: &str = "compares with the simulator's books";

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("rules::an_option_above_a_rule_is_refused_with_file_and_line", refused).simulated(WHY),
        Case::new("rules::no_variable_raises_a_job_above_a_rule", variables).simulated(WHY),
        Case::new("rules::set_raises_no_job_above_a_rule_but_by_force", set).simulated(WHY),
        Case::new("rules::no_process_of_a_job_leaves_its_rule", processes).simulated(WHY),
        Case::new("rules::without_run_a_rule_holds_whatever_the_environment", without_run).simulated(WHY),
        Case::new("rules::a_class_for_each_process_is_each_ones_own", each_process).simulated(WHY),
        Case::new(
            "rules::a_scope_of_ones_own_making_gets_no_more_than_a_user_has",
            own_scopes,
        )
        .simulated(WHY),
        Case::new("rules::a_rule_by_cgroup_reads_every_hierarchy", cgroups::hierarchies).simulated(WHY),
        Case::new("rules::a_rule_outlives_the_broker", broker_killed).simulated(WHY),
        Case::new("rules::a_reload_is_followed_while_programs_allocate", reloads).simulated(WHY),
        Case::new(
            "rules::reloads_under_load_end_nobody_and_grant_nothing_above_them",
            under_load::reloads,
        )
        .simulated(WHY),
    ]
}

/// What the rule allows.
const MOST: u64 = 2 * GIB;
const RULE: &str = "schema = 1\n\n[[rule]]\nname = \"students\"\nmax = { mem = \"2GiB\" }\n";
/// Takes all that it gets, and is found to hold what the rule allows, and hardly less.
#[track_caller]
fn takes_no_more(rig: &Rig, client: &mut Client, how: &str) {
    let mut count = 0;
    for part in [256 * MIB, 32 * MIB, MIB] {
        while client.say(&format!("alloc {part} a{count}")) == "alloc 0" {
            count += 1;
            assert!(count < 1_000, "{how}: it gets without end");
        }
    }
    let bytes = held(rig, client.pid());
    assert!(bytes <= MOST, "{how}: the driver holds {} MiB for it", bytes / MIB);
    // A context's cost may be counted before the driver holds all of it, and no more than twice that is missing.
    assert!(
        bytes >= MOST - 256 * MIB,
        "{how}: only {} MiB: something else denied it",
        bytes / MIB
    );
}

fn refused(rig: &Rig) {
    let host = Host::start(rig, RULE);
    let (code, text) = said(rig, &["run", "-m", "8GiB", "--", "/bin/true"]);
    assert_eq!(code, Some(125), "{text}");
    let place = format!("the rule students, max.mem = 2GiB ({}:5) holds", config(rig).display());
    assert!(
        text.contains("--mem 8GiB is not allowed here") && text.contains(&place),
        "{text}"
    );
    let mut job = rig.client(&["-m", "2GiB"]);
    job.ready();
    takes_no_more(rig, &mut job, "what is allowed");
    drop(job);
    let (code, text) = said(rig, &["config", "show"]);
    assert!(
        code == Some(0) && text.contains("rule students") && text.contains("at most mem = 2GiB"),
        "{text}"
    );
    drop(host);
    // The same words from the file alone.
    let bad = rig.dir.join("bad.toml");
    std::fs::write(&bad, "schema = 1\n[[rule]]\nname = \"a\"\nmaxx = {}\n").expect("writable");
    let (code, text) = said(rig, &["config", "check", &bad.to_string_lossy()]);
    assert!(
        code == Some(1) && text.contains("line 4, column 1: unknown key `maxx`; did you mean `max`?"),
        "{text}"
    );
    let (code, text) = said(rig, &["config", "check", &config(rig).to_string_lossy()]);
    assert!(code == Some(0) && text.contains("ok: 0 classes and 1 rule"), "{text}");
}

fn variables(rig: &Rig) {
    let _host = Host::start(rig, RULE);
    for variables in [
        &[][..],
        &[("PARTAGE_MEM", "8GiB")],
        &[("PARTAGE_MEM_REQUEST", "1GiB")],
        &[("CUDA_DEVICE_MEMORY_LIMIT", "8g")],
        &[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=8G,1=8G")],
        &[
            ("NVIDIA_GPU_MEMORY_LIMIT", "8192"),
            ("NVIDIA_GPU_MEMORY_REQUEST", "1024"),
        ],
        &[("PARTAGE_MEM_BYTES", "8589934592")],
    ] {
        let mut command = rig.run(&["-g", "0"], &crate::artefacts::client(), &["dlopen"]);
        command.envs(variables.iter().copied());
        let mut job = Client::start(command);
        job.ready();
        takes_no_more(rig, &mut job, &format!("{variables:?}"));
    }
}

fn set(rig: &Rig) {
    let _host = Host::start(rig, RULE);
    let mut job = rig.client(&["--name", "train"]);
    job.ready();
    for value in ["mem=8GiB", "mem=none", "mem-request=8GiB"] {
        let (code, text) = said(rig, &["set", "train", value]);
        assert!(
            code == Some(3) && text.contains("max.mem = 2GiB"),
            "{value}: {code:?}: {text}"
        );
    }
    takes_no_more(rig, &mut job, "set");
    let (code, text) = said(rig, &["set", "train", "mem=3GiB", "--force"]);
    assert_eq!(code, Some(0), "{text}");
    job.expect(&format!("alloc {} more", 512 * MIB), "alloc 0");
    for command in [&["ps"][..], &["why", "train"]] {
        let (_, text) = said(rig, command);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("partage set mem=3GiB --force by"), "{text}");
    }
}

fn processes(rig: &Rig) {
    let _host = Host::start(rig, RULE);
    let client = crate::artefacts::client().display().to_string();
    let library = built("libpartage.so").display().to_string();
    let partage = built("partage").display().to_string();
    let keep = format!("LD_PRELOAD={library} PARTAGE_SOCKET_DIR=$PARTAGE_SOCKET_DIR PARTAGE_SIM_DIR=$PARTAGE_SIM_DIR");
    let keep = format!("{keep} LD_LIBRARY_PATH=$LD_LIBRARY_PATH");
    for script in [
        format!("exec env -i {keep} {client} dlopen"),
        format!(
            "for v in $(env | grep ^PARTAGE_ | grep -v _DIR | cut -d= -f1); do unset $v; done; exec {client} dlopen"
        ),
        format!("exec setsid {client} dlopen"),
        format!("exec {partage} run -m 8GiB -- {client} dlopen"),
        format!("exec env PARTAGE_MEM_BYTES=8589934592 CUDA_DEVICE_MEMORY_LIMIT=8g {client} dlopen"),
    ] {
        let command = rig.run(&[], std::path::Path::new("/bin/sh"), &["-c", &script]);
        let mut job = Client::start(command);
        job.ready();
        takes_no_more(rig, &mut job, &script);
    }
    // A process that leaves its job's tree, session and environment at once.
    let script = format!("exec 3<&0; (env -i {keep} setsid {client} dlopen <&3 &)");
    let mut gone = Client::start(rig.run(&[], std::path::Path::new("/bin/sh"), &["-c", &script]));
    gone.ready();
    for part in ["a", "b", "c", "d", "e", "f", "g"] {
        gone.say(&format!("alloc {} {part}", 512 * MIB));
    }
    let machine = partage_machine::Machine::open(&rig.sim_dir()).expect("the machine is there");
    let most = machine
        .occupants(0)
        .iter()
        .chain(&machine.occupants(1))
        .map(|occupant| occupant.used)
        .max();
    assert!(
        most.is_some_and(|bytes| (512 * MIB..=MOST).contains(&bytes)),
        "{most:?}"
    );
}

fn without_run(rig: &Rig) {
    let _host = Host::start(rig, RULE);
    for variables in [
        &[][..],
        &[("CUDA_DEVICE_MEMORY_LIMIT", "8g")],
        &[("PARTAGE_MEM_BYTES", "8589934592")],
        &[(
            "PARTAGE_TOKEN",
            "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        )],
    ] {
        let is_free = |job: &serde_json::Value| {
            let devices = job["devices"].as_array().cloned().unwrap_or_default();
            devices.iter().all(|device| device["used_bytes"] == 0)
        };
        rig.eventually(SOON, "the one before is gone", || rig.jobs().iter().all(is_free));
        let mut client = bare(rig, variables);
        client.ready();
        takes_no_more(rig, &mut client, &format!("without run: {variables:?}"));
    }
}

/// A class of what the rule allows elsewhere, for programs without `run`.
fn class_per(per: &str) -> String {
    let class = "schema = 1\n[class.small]\nmem = \"2GiB\"\n";
    format!("{class}[[rule]]\nname = \"students\"\nclass = \"small\"\nper = \"{per}\"\n")
}

fn each_process(rig: &Rig) {
    let host = Host::start(rig, &class_per("process"));
    let mut clients = [bare(rig, &[]), bare(rig, &[("CUDA_DEVICE_MEMORY_LIMIT", "8g")])];
    for (number, client) in clients.iter_mut().enumerate() {
        client.ready();
        takes_no_more(rig, client, &format!("process {number}"));
    }
    let jobs = rig.jobs();
    assert_eq!(jobs.len(), 2, "a job for each: {jobs:?}");
    let (_, text) = said(rig, &["config", "show"]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("class small per process"), "{text}");
    // Together they have twice what a scope has: nobody dies of it, and nobody grows.
    assert!(host.reload(&class_per("scope")));
    for client in &mut clients {
        assert_eq!(client.say("alloc 512 more"), "alloc 2");
    }
    let mut third = bare(rig, &[]);
    third.expect("init", "init 0");
    assert_eq!(third.say("ctx 0"), "ctx 2", "not even a context has room");
    let why = rig.json(&["why", "j1"]).to_string();
    assert!(
        why.contains("rule students, class small.mem = 2GiB per scope ("),
        "{why}"
    );
}

/// A control group that looks like a login scope. It goes once nobody is in it any more.
struct Scope(PathBuf);

impl Scope {
    /// One below our own group; none where we may not make one.
    fn make(name: &str) -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(PathBuf::from);
        let mount = mounts.into_iter().find(|mount| mount.join("cgroup.procs").exists())?;
        let scope = mount
            .join(path)
            .join(format!("partage-{}-{name}.scope", std::process::id()));
        std::fs::create_dir(&scope).ok()?;
        let scope = Self(scope);
        let enter = format!("echo $$ > {}", scope.0.join("cgroup.procs").display());
        let status = Command::new("/bin/sh").args(["-c", &enter]).status().ok()?;
        status.success().then_some(scope)
    }

    /// A program with the library and without `run`, in this scope.
    fn bare(&self, rig: &Rig) -> Client {
        let mut command = rig.command(PathBuf::from("/bin/sh"));
        let enter = format!(
            "echo $$ > {} && exec \"$0\" dlopen",
            self.0.join("cgroup.procs").display()
        );
        command.arg("-c").arg(enter).arg(crate::artefacts::client());
        command.env("LD_PRELOAD", built("libpartage.so"));
        Client::start(command)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn own_scopes(rig: &Rig) {
    let Some(scopes) = ["one", "two"].into_iter().map(Scope::make).collect::<Option<Vec<_>>>() else {
        return rig.note("no control group can be made here: not tried".to_owned());
    };
    let each_user = "schema = 1\n[[rule]]\nname = \"students\"\neach_user = { mem = \"2GiB\" }\n";
    let host = Host::start(rig, each_user);
    for text in [each_user.to_owned(), class_per("user")] {
        assert!(host.reload(&text));
        let mut clients: Vec<Client> = scopes.iter().map(|scope| scope.bare(rig)).collect();
        clients.iter_mut().for_each(Client::ready);
        let all = exhausted(rig, &mut clients);
        assert!((MOST - 256 * MIB..=MOST).contains(&all), "{text}: {} MiB", all / MIB);
        clients.iter_mut().for_each(Client::kill);
    }
}

fn broker_killed(rig: &Rig) {
    let mut host = Host::start(rig, RULE);
    let mut job = rig.client(&["-g", "0"]);
    job.ready();
    let _ = host.broker.kill();
    let _ = host.broker.wait();
    job.say(&format!("alloc {} a", 1_536 * MIB));
    job.say(&format!("alloc {} b", 1_536 * MIB));
    assert!(held(rig, job.pid()) <= MOST, "without a broker");
    host.broker = broker(rig);
    rig.eventually(SOON, "the job is known again", || rig.jobs().len() == 1);
    takes_no_more(rig, &mut job, "under the next broker");
    let (_, text) = said(rig, &["why", "j1"]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("rule students, max.mem = 2GiB"), "{text}");
}

fn reloads(rig: &Rig) {
    let limit = |gib: u64| format!("schema = 1\n[[rule]]\nname = \"all\"\nmax = {{ mem = \"{gib}GiB\" }}\n");
    let host = Host::start(rig, &limit(1));
    let mut clients: Vec<Client> = (0..8).map(|_| rig.client(&["-g", "0"])).collect();
    for client in &mut clients {
        client.ready();
    }
    let rounds = 100 / tenth();
    for round in 0..rounds {
        let gib = 1 + u64::from(round % 2 == 0);
        if round % 2 == 1 {
            assert!(
                !host.reload("schema = 1\n[[rule]]\nname = \"all\"\nmaxx = {}\n"),
                "a broken file is refused"
            );
        }
        assert!(host.reload(&limit(gib)), "a whole one is taken");
        // The answer comes once the rules hold.
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.numbers("info")[2], gib * GIB, "round {round}, client {number}");
            let name = format!("r{round}");
            if client.say(&format!("alloc {} {name}", 1_280 * MIB)) == "alloc 0" {
                assert_eq!(gib, 2, "beyond the limit that holds");
                client.expect(&format!("free {name}"), "free 0");
            }
            assert!(held(rig, client.pid()) <= gib * GIB);
        }
    }
    let status = rig.json(&["status"]);
    assert_eq!(status["broker"]["config"]["generation"], rounds as u64 + 1);
    assert!(!host.reload("schema = 2\n"));
    let config = || rig.json(&["status"])["broker"]["config"].clone();
    let error = config()["error"].as_str().unwrap_or_default().to_owned();
    assert!(error.contains("line 1, column 10: schema"), "{error}");
    assert_eq!(rig.jobs().len(), 8, "nobody died");
    // The service manager's way.
    let generation = config()["generation"].as_u64();
    std::fs::write(super::ruled_host::config(rig), limit(1)).expect("writable");
    hang_up(&host.broker);
    rig.eventually(SOON, "the broker read the file again", || {
        config()["generation"].as_u64() > generation
    });
    assert!(config()["error"].is_null(), "what was wrong is mended");
    drop(clients);
}

fn hang_up(broker: &Child) {
    let status = Command::new("/bin/kill")
        .args(["-HUP", &broker.id().to_string()])
        .status();
    assert!(status.is_ok_and(|status| status.success()));
}
