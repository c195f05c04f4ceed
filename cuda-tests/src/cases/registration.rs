// SPDX-License-Identifier: Apache-2.0
//! Membership by control group, as a container has one: whatever is in the group is of the job that owns it, and what
//! reads as a container's beginning becomes a job before its program runs. No container engine is needed here.

mod by_root;
mod engines;
mod numbers;
mod without_library;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::control_group::{Group, ID, NO_RULE, Waiting, register, wrapped};
use super::ruled_host::{Host, SOON};
use super::{Case, tenth};
use crate::artefacts::{built, client};
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

const WHY: &str = "compares with the simulator's books";
const TWO: &str = "needs two devices";

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("registration::who_enters_a_group_is_of_its_job", entering).simulated(WHY),
        Case::new(
            "registration::a_process_in_it_without_the_library_is_named_and_killed",
            unmanaged,
        )
        .simulated(WHY),
        Case::new(
            "registration::programs_that_load_no_library_are_named_and_killed",
            without_library::named_and_killed,
        )
        .simulated(WHY),
        Case::new(
            "registration::a_hook_makes_a_container_a_job_or_keeps_it_from_starting",
            hook,
        )
        .simulated(WHY),
        Case::new("registration::nobody_registers_from_inside", inside).simulated(WHY),
        Case::new("registration::who_enters_a_pid_namespace_is_of_its_job", namespace).simulated(WHY),
        Case::new("registration::killed_at_any_step_nothing_leaks", killed).simulated(WHY),
        Case::new(
            "registration::what_root_registered_is_a_ceiling_for_its_owner",
            by_root::ceiling,
        )
        .simulated(WHY),
        Case::new(
            "registration::an_engines_job_lives_by_its_control_group",
            engines::lived_by,
        )
        .simulated(TWO),
        Case::new(
            "registration::what_an_engine_gave_is_raised_by_nobody",
            engines::held_down,
        )
        .simulated(WHY),
        Case::new(
            "registration::visible_devices_are_of_whoever_set_them",
            numbers::whoever_set_them,
        )
        .simulated(TWO),
    ]
}

/// A client that has the library and nothing else of a job, as in a container whose `ld.so.preload` names it.
fn bare(rig: &Rig, variables: &[(&str, &str)]) -> Command {
    let mut command = rig.command(client());
    command.arg("dlopen").env("LD_PRELOAD", built("libpartage.so"));
    command.envs(variables.iter().copied());
    command
}

fn entering(rig: &Rig) {
    let Some(group) = Group::make(rig, ID) else { return };
    let _host = Host::start(rig, NO_RULE);
    let mut first = Waiting::start(rig, &group);
    let (code, said) = register(rig, &first.pid(), &["--container-name", "web", "-m", "1GiB", "-g", "0"]);
    assert_eq!(code, Some(0), "{said}");
    let job = rig.json(&["get", &format!("container:{}", &ID[..12])]);
    assert_eq!(job["job"]["container"]["cgroup"], json!(group.path), "{job}");
    assert_eq!(job["job"]["container"]["id"], json!(ID));
    let id = job["job"]["job"].as_str().expect("an id").to_owned();
    // Neither a child of the first process, nor with its token: by the group alone, whatever they say of themselves.
    let token = "f".repeat(64);
    let mut members: Vec<Client> = Vec::new();
    for variables in [
        &[][..],
        &[("PARTAGE_MEM_BYTES", "8589934592")],
        &[("CUDA_DEVICE_MEMORY_LIMIT", "8g")],
        &[("PARTAGE_TOKEN", token.as_str())],
    ] {
        members.push(Client::start(group.inside(bare(rig, variables))));
    }
    // Another uid, by setpriv, which keeps the environment; the rig's files are opened to it.
    rig.installed();
    let mut other = rig.command(rig.dir.join("client"));
    std::fs::copy(client(), rig.dir.join("client")).expect("writable");
    other.arg("dlopen").env("LD_PRELOAD", rig.dir.join("bin/libpartage.so"));
    let _ = rig.output({
        let mut chmod = Command::new("chmod");
        chmod
            .args(["-R", "a+rwX"])
            .arg(rig.sim_dir())
            .arg(rig.dir.join("client"));
        chmod
    });
    let other = wrapped(&["setpriv", "--reuid", "12345", "--clear-groups"], other);
    members.push(Client::start(group.inside(other)));
    for member in &mut members {
        member.ready();
    }
    let clients = |rig: &Rig| rig.json(&["get", &id])["job"]["clients"].as_array().map_or(0, Vec::len);
    rig.eventually(SOON, "all are of one job", || clients(rig) == members.len());
    assert_eq!(rig.jobs().len(), 1, "{:?}", rig.jobs());
    // One limit for all of them together, to the driver's granularity.
    for (number, member) in members.iter_mut().enumerate() {
        let answer = member.say(&format!("alloc {} a{number}", 300 * MIB));
        assert!(answer == "alloc 0" || answer == "alloc 2", "{answer}");
    }
    assert!(rig.truth_allocated() <= GIB && rig.truth_allocated() >= 300 * MIB);
    // `run` inside stays in the job, and what is inside changes nothing.
    let output = rig.output(group.inside(rig.partage(&["run", "-m", "8GiB", "--", "true"])));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains(&id), "{said}");
    let output = rig.output(group.inside(rig.partage(&["set", &id, "mem=none"])));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    // The group's job ends with its first process and its last client, and nothing is waited for.
    for member in &mut members {
        member.kill();
    }
    first.kill();
    rig.eventually(SOON, "the job is over", || rig.jobs().is_empty());
    assert_eq!(rig.truth_allocated(), 0);
}

/// A container without a control group of its own, which a process enters from outside.
fn namespace(rig: &Rig) {
    let apart = ["unshare", "--pid", "--fork", "--kill-child"];
    let inside = |words: &[&str], command| wrapped(&[&apart, words].concat(), command);
    if !rig.output(inside(&[], rig.command("true"))).status.success() {
        return rig.note("skipped: unshare --pid is not allowed here");
    }
    let _host = Host::start(rig, NO_RULE);
    let mut command = inside(&[], rig.command("sleep"));
    let mut outer = command.arg("600").spawn().expect("it starts");
    let children = format!("/proc/{0}/task/{0}/children", outer.id());
    let mut first = String::new();
    rig.eventually(SOON, "the first process is there", || {
        first = std::fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
        !first.is_empty()
    });
    let (code, said) = register(rig, &first, &["--container", ID, "-m", "1GiB", "-g", "0"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(rig.jobs()[0]["container"]["cgroup"], Value::Null, "{:?}", rig.jobs());
    let enter = ["nsenter", "--target", &first, "--pid"];
    let mut member = Client::start(wrapped(&enter, bare(rig, &[("PARTAGE_MEM_BYTES", "8589934592")])));
    member.ready();
    assert_eq!(member.numbers("info").get(2), Some(&GIB));
    member.expect(&format!("alloc {GIB} a"), "alloc 2");
    let jobs = rig.jobs();
    assert!(
        jobs.len() == 1 && jobs[0]["clients"].as_array().is_some_and(|clients| clients.len() == 1),
        "{jobs:?}"
    );
    member.kill();
    let _ = outer.kill();
    let _ = outer.wait();
    rig.eventually(SOON, "the job is over", || rig.jobs().is_empty());
}

fn unmanaged(rig: &Rig) {
    let Some(group) = Group::make(rig, ID) else { return };
    let _host = Host::start(rig, NO_RULE);
    let first = Waiting::start(rig, &group);
    let (code, said) = register(rig, &first.pid(), &["-m", "1GiB", "-g", "0", "--strict"]);
    assert_eq!(code, Some(0), "{said}");
    let mut command = rig.command(client());
    command.arg("dlopen");
    let mut stranger = Client::start(group.inside(command));
    stranger.ready();
    rig.eventually(SOON, "it is killed", || {
        let _ = stranger.try_answer();
        let why = rig.output(rig.partage(&["why", "j1"]));
        String::from_utf8_lossy(&why.stdout).contains("--strict killed pid")
    });
    stranger.kill();
}

/// A bundle, and the state that a runtime says of it.
fn bundle(rig: &Rig, pid: &str, annotations: &Value, gpus: &str) -> String {
    let folder = rig.dir.join(format!("bundle-{pid}"));
    std::fs::create_dir_all(&folder).expect("writable");
    let config = json!({
        "ociVersion": "1.0.2",
        "process": { "args": ["train"], "env": [format!("NVIDIA_VISIBLE_DEVICES={gpus}")] },
        "linux": { "devices": [] },
    });
    std::fs::write(folder.join("config.json"), config.to_string()).expect("writable");
    json!({
        "ociVersion": "1.0.2", "id": ID, "status": "creating", "pid": pid.parse::<u32>().expect("a number"),
        "bundle": folder, "annotations": annotations,
    })
    .to_string()
}

fn call(rig: &Rig, arguments: &[&str], state: &str) -> (Option<i32>, String) {
    let file = rig.dir.join("state.json");
    std::fs::write(&file, state).expect("writable");
    let mut words = vec!["hook", "create-runtime"];
    words.extend(arguments);
    let mut command = rig.partage(&words);
    command.stdin(std::fs::File::open(&file).expect("just written"));
    let output = rig.output(command);
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

fn hook(rig: &Rig) {
    let Some(group) = Group::make(rig, ID) else { return };
    let classes = "schema = 1\n[class.small]\nmem = \"1GiB\"\n";
    let host = Host::start(rig, classes);
    let first = Waiting::start(rig, &group);
    let state = bundle(
        rig,
        &first.pid(),
        &json!({ "partage.dev/mem": "512MiB", "team": "vision" }),
        "1",
    );
    assert_eq!(call(rig, &["--class", "small"], &state), (Some(0), String::new()));
    let job = &rig.jobs()[0];
    assert_eq!(job["devices"][0]["limit_bytes"], json!(512 * MIB), "{job}");
    assert_eq!(job["devices"][0]["index"], json!(1), "{job}");
    assert!(job["labels"].to_string().contains("vision"), "{job}");
    let mut member = Client::start(group.inside(bare(rig, &[])));
    member.ready();
    let room = member.room();
    assert!(room < 512 * MIB, "{room}");
    member.expect(&format!("alloc {room} all"), "alloc 0");
    member.expect("alloc 512 more", "alloc 2");
    member.kill();
    for (arguments, annotations, gpus, words) in [
        (&["--class", "huge"][..], json!({}), "0", "no class is called \"huge\""),
        (&["-m", "100GiB"], json!({}), "0", "100"),
        (
            &[],
            json!({ "partage.dev/memory": "1GiB" }),
            "0",
            "annotation partage.dev/memory: unknown",
        ),
        (
            &[],
            json!({ "partage.dev/mem": "8" }),
            "0",
            "annotation partage.dev/mem: ",
        ),
        (&[], json!({}), "none", "is given no GPU"),
        (&[], json!({}), "9", "9"),
    ] {
        let group = Group::make(rig, ID).expect("made before");
        let other = Waiting::start(rig, &group);
        let (code, said) = call(rig, arguments, &bundle(rig, &other.pid(), &annotations, gpus));
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        assert!(
            said.starts_with("partage: the container does not start: ") && said.contains(words),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "one sentence: {said}");
    }
    assert_eq!(call(rig, &[], "{").0, Some(1));
    assert_eq!(rig.jobs().len(), 1);
    drop(host);
    without_a_broker(rig, &state);
}

fn without_a_broker(rig: &Rig, state: &str) {
    let (code, said) = call(rig, &["--timeout", "300ms"], state);
    assert!(code == Some(1) && said.contains("no broker answers"), "{said}");
    let (code, said) = call(rig, &["--timeout", "300ms", "--open"], state);
    assert!(
        code == Some(0) && said.contains("starts without a limit (--open)"),
        "{said}"
    );
    // Nobody closes its standard input.
    let mut command = rig.partage(&["hook", "create-runtime", "--timeout", "200ms"]);
    let mut silent = command
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    rig.eventually(SOON, "it gives up", || silent.try_wait().is_ok_and(|end| end.is_some()));
    assert_eq!(silent.wait().expect("ours").code(), Some(1));
}

fn inside(rig: &Rig) {
    let Some(group) = Group::make(rig, ID) else { return };
    let Some(stranger) = Group::make(rig, ID) else { return };
    let _host = Host::start(rig, NO_RULE);
    let first = Waiting::start(rig, &group);
    let other = Waiting::start(rig, &stranger);
    let (code, said) = register(rig, &first.pid(), &["-m", "1GiB", "-g", "0"]);
    assert_eq!(code, Some(0), "{said}");
    let words = ["register", "--pid", &other.pid(), "-m", "8GiB", "-g", "0"];
    for (group, expected) in [(&group, "this is inside j1"), (&stranger, "this is inside a container")] {
        let output = rig.output(group.inside(rig.partage(&words)));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && said.contains(expected), "{said}");
    }
    // A runtime in the container registers what it starts: that stays in the job.
    let within = Waiting::start(rig, &group);
    let output = rig.output(group.inside(rig.partage(&["register", "--pid", &within.pid(), "-m", "8GiB"])));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Another pid namespace: its numbers mean other processes here.
    let mut apart = vec!["unshare", "--pid", "--fork", "--mount-proc"];
    apart.extend(["--"]);
    let output = rig.output(wrapped(&apart, rig.partage(&["register", "--pid", "1", "-m", "8GiB"])));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() != Some(0), "{said}");
    assert_eq!(rig.jobs().len(), 1);
    // Of a number that nobody has, and of a group that it is not in.
    for (pid, more, expected) in [("4194303", &[][..], 4), (&other.pid(), &["--cgroup", "/elsewhere"], 2)] {
        let (code, said) = register(rig, pid, more);
        assert_eq!(code, Some(expected), "{said}");
    }
}

fn killed(rig: &Rig) {
    let Some(group) = Group::make(rig, ID) else { return };
    let mut host = Host::start(rig, NO_RULE);
    // 1,000 where there is time for them.
    let rounds = if tenth() == 1 { 1_000 } else { 25 };
    let mut random = super::Random::new(18);
    let mut early = BTreeSet::new();
    for round in 0..rounds {
        let mut first = Waiting::start(rig, &group);
        // Whole GPUs: the next round has no room while anything of this one is left.
        let state = bundle(rig, &first.pid(), &json!({}), "0");
        let file = rig.dir.join("state.json");
        std::fs::write(&file, &state).expect("writable");
        let mut command = rig.partage(&["hook", "create-runtime", "-m", "16GiB", "--timeout", "20s"]);
        command
            .stdin(std::fs::File::open(&file).expect("just written"))
            .stderr(Stdio::piped());
        let mut hook = command.spawn().expect("starts");
        std::thread::sleep(Duration::from_micros(random.below(12_000)));
        match round % 4 {
            0 => host = host.again(),
            1 => drop(hook.kill()),
            2 => first.kill(),
            _ => {}
        }
        let end = hook.wait_with_output().expect("ours");
        let said = String::from_utf8_lossy(&end.stderr).into_owned();
        match round % 4 {
            1 | 2 => {}
            _ => assert_eq!(end.status.code(), Some(0), "round {round}: {said}"),
        }
        first.kill();
        rig.eventually(Duration::from_secs(20), "nothing is left", || rig.jobs().is_empty());
        if round < 8 {
            early.extend(files(&rig.socket_dir()));
        }
    }
    rig.eventually(SOON, "the broker keeps no file more than after eight rounds", || {
        files(&rig.socket_dir()).is_subset(&early)
    });
    drop(host);
    rig.note(format!("{rounds} rounds; {} files at most", early.len()));
}

/// What lies in a folder and below it.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let below = |path: PathBuf| match path.is_dir() {
        true => files(&path),
        false => BTreeSet::from([path]),
    };
    entries.flat_map(|entry| below(entry.path())).collect()
}
