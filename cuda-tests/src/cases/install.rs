// SPDX-License-Identifier: Apache-2.0
//! One broker for every user of a host, by `partage install`: on a host of namespaces, with an /etc, a /run, a /tmp and
//! a /usr/local of its own, and two users, alice and bob.

mod host;
mod preload;
mod recipes;

use std::time::Duration;

use serde_json::Value;

use super::Case;
use crate::client::Client;
use crate::rig::Rig;
use host::{Host, SYSTEMCTL, code_and_text};

pub fn cases() -> Vec<Case> {
    const SIM: &str = "the installed broker finds the simulated driver alone";
    vec![
        Case::new("install::two_users_share_what_one_broker_promises", two_users).simulated(SIM),
        Case::new(
            "install::twice_changes_nothing_and_uninstall_leaves_the_configuration",
            twice,
        )
        .simulated(SIM),
        Case::new("install::uninstall_removes_or_names_all_that_is_left", all_that_is_left).simulated(SIM),
        Case::new("install::a_broker_that_does_not_start_is_undone", undone).simulated(SIM),
        Case::new(
            "install::with_the_system_preload_every_program_is_under_the_rules",
            preload::rules,
        )
        .simulated(SIM),
        Case::new(
            "install::the_system_preload_runs_nothing_of_a_user_as_root",
            preload::users,
        )
        .simulated(SIM),
        Case::new("install::without_a_driver_it_says_what_was_not_shown", without_driver).simulated(SIM),
        Case::new("install::the_service_of_systemd_takes_over", service).simulated(SIM),
        Case::new("install::without_it_other_users_brokers_are_named", named).simulated(SIM),
        Case::new(
            "install::the_recipes_of_the_page_hold_as_they_are_written",
            recipes::as_written,
        )
        .simulated(SIM),
    ]
}

const SOON: Duration = Duration::from_secs(30);

/// 80 % of a GPU's time and 75 % of its memory, twice on a machine of one GPU to be had: the second waits and is told
/// who holds what.
fn two_users(rig: &Rig) {
    let Some(host) = Host::new(rig) else { return };
    let (code, said) = host.install(&["install"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("\nshown ") && said.contains("without systemd"), "{said}");
    assert!(!said.contains("nothing changed"), "{said}");
    assert!(
        !host.say("0", &["ls", "/tmp"]).1.contains("partage-65534"),
        "nothing of the proof is left"
    );
    let status = host.json("60001", &["partage", "status", "--json"]);
    assert_eq!(
        (&status["broker"]["kind"], &status["broker"]["is_admin"]),
        (&"managed".into(), &false.into())
    );
    let asked = ["partage", "run", "-g", "0", "-c", "80%", "-m", "75%"];
    let with = |more: &[&'static str]| -> Vec<&'static str> { asked.iter().chain(more).copied().collect() };
    let mut command = host.command("60001", false, &with(&["--name", "first", "--", "sleep", "600"]));
    let mut first = command.spawn().expect("it starts");
    let jobs = || {
        host.json("0", &["partage", "ps", "--json"])["jobs"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    rig.eventually(SOON, "the first is admitted", || jobs().len() == 1);
    assert_eq!(jobs()[0]["user"], "alice");
    // Another user's job has no room beside it, and is told who holds what.
    let (code, said) = host.say("60002", &with(&["--wait-timeout", "2s", "--", "true"]));
    assert_eq!(code, Some(124), "{said}");
    let id = jobs()[0]["job"].as_str().expect("an id").to_owned();
    assert!(
        said.contains("waiting: ") && said.contains(&format!("held by {id} ")),
        "{said}"
    );
    assert!(said.contains("12 GiB") || said.contains("80 % of the time"), "{said}");
    // A user is no administrator: neither over the other's job nor over the broker.
    assert_eq!(host.say("60002", &["partage", "stop", &id]).0, Some(3));
    assert_eq!(host.say("60002", &["partage", "broker", "stop"]).0, Some(3));
    let (code, said) = host.say("0", &["partage", "stop", "first"]);
    assert_eq!(code, Some(0), "root is: {said}");
    let _ = first.wait();
    let (code, said) = host.say("60002", &with(&["--wait-timeout", "20s", "--", "true"]));
    assert_eq!(code, Some(0), "{said}");
}

fn twice(rig: &Rig) {
    let Some(host) = Host::new(rig) else { return };
    let before = host.state();
    let not_root = host.say("60001", &[&rig.installed().display().to_string(), "install"]);
    assert_eq!(not_root.0, Some(3), "{}", not_root.1);
    assert_eq!(host.state(), before);
    assert_eq!(host.install(&["install"]).0, Some(0));
    let (installed, pid) = (host.state(), broker_pid(&host));
    assert!(host.say("0", &["getent", "group", "partage"]).1.starts_with("partage:"));
    for program in [
        rig.installed().display().to_string(),
        "/usr/local/bin/partage".to_owned(),
    ] {
        let words = [program.as_str(), "install"];
        let (code, said) = code_and_text(&rig.output(host.command("0", true, &words)));
        assert_eq!(code, Some(0), "{said}");
        assert!(said.ends_with("nothing changed\n"), "{said}");
        assert_eq!((host.state(), broker_pid(&host)), (installed.clone(), pid));
    }
    // Members of the group are administrators from the broker's start on.
    let gid = host.say("0", &["getent", "group", "partage"]).1;
    let gid = gid.split(':').nth(2).expect("a gid").to_owned();
    let admin = host.say("0", &["stat", "-c", "%a %g", "/run/partage/admin.sock"]).1;
    assert_eq!(admin.trim(), format!("660 {gid}"));
    // A configuration of the administrator's own, an older library.
    let write = "echo 'schema = 1' >/etc/partage/partage.toml; echo old >/usr/local/lib/partage/libpartage.so";
    assert_eq!(host.say("0", &["sh", "-c", write]).0, Some(0));
    let (code, said) = host.install(&["install"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("replaced   /usr/local/lib/partage/libpartage.so"),
        "{said}"
    );
    assert!(said.contains("kept       /etc/partage/partage.toml"), "{said}");
    assert_ne!(broker_pid(&host), pid, "its files changed: another broker took over");
    assert_eq!(host.say("0", &["cat", "/etc/partage/partage.toml"]).1, "schema = 1\n");
    let (code, said) = code_and_text(&rig.output(host.command("0", false, &["/usr/local/bin/partage", "uninstall"])));
    assert_eq!(code, Some(0), "{said}");
    assert_left_is_the_configuration(&host, &before);
    let (code, said) = host.install(&["uninstall"]);
    assert!(code == Some(0) && said.starts_with("nothing to remove"), "{said}");
}

fn broker_pid(host: &Host<'_>) -> u64 {
    let status = host.json("0", &["partage", "status", "--json"]);
    status["broker"]["pid"].as_u64().expect("a broker")
}

/// Descriptions for containers go with the library that they name, or every container with the device would fail;
/// users' folders, of which programs may still load, are named.
fn all_that_is_left(rig: &Rig) {
    let Some(host) = Host::new(rig) else { return };
    let before = host.state();
    assert_eq!(host.install(&["install"]).0, Some(0));
    let (code, said) = host.say("0", &["partage", "cdi", "generate"]);
    assert!(code == Some(0) && said.contains("/etc/cdi/partage.json"), "{said}");
    let elsewhere = ["--files", "/usr/local/own", "--output", "/etc/cdi/own.json"];
    let words: Vec<&str> = ["partage", "cdi", "generate"].into_iter().chain(elsewhere).collect();
    assert_eq!(host.say("0", &words).0, Some(0));
    let other = "echo '{\"kind\": \"nvidia.com/gpu\"}' >/etc/cdi/nvidia.json";
    assert_eq!(host.say("0", &["sh", "-c", other]).0, Some(0));
    let (code, said) = host.say("60001", &["partage", "run", "-m", "1GiB", "--", "true"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = host.say("0", &["/usr/local/bin/partage", "uninstall"]);
    assert_eq!(code, Some(0), "{said}");
    let flat = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for gone in ["/etc/cdi/partage.json", "/etc/cdi/own.json", "/var/lib/partage"] {
        assert!(flat.contains(&format!("removed {gone}")), "{gone}: {said}");
    }
    for named in ["/usr/local/own/libpartage-", "/tmp/partage-60001"] {
        assert!(flat.contains(named), "{named}: {said}");
    }
    let kept = ["rm", "-r", "/etc/cdi/nvidia.json", "/usr/local/own"];
    assert_eq!(
        host.say("0", &kept).0,
        Some(0),
        "what is not ours, or named, is still there"
    );
    let others = before.lines().filter(|line| line.starts_with("/etc/cdi/")).count();
    let left = host.say("0", &["ls", "/etc/cdi"]).1;
    assert_eq!(left.lines().count(), others, "nothing else is in it: {left}");
    if !before.lines().any(|line| line.starts_with("/etc/cdi ")) {
        assert_eq!(host.say("0", &["rmdir", "/etc/cdi"]).0, Some(0));
    }
    assert_left_is_the_configuration(&host, &before);
}

/// Files and folders that were not there before are those of the configuration alone.
#[track_caller]
fn assert_left_is_the_configuration(host: &Host<'_>, before: &str) {
    let names = |state: &str| -> Vec<String> {
        let paths = state.lines().filter_map(|line| line.split(' ').next());
        paths.map(str::to_owned).collect()
    };
    let (before, after) = (names(before), names(&host.state()));
    // The host's own commands for groups keep what the file was before.
    let is_groups = |path: &&String| path.starts_with("/etc/group") || path.starts_with("/etc/gshadow");
    let new = after.iter().filter(|path| !before.contains(path) && !is_groups(path));
    let new: Vec<&String> = new.collect();
    assert_eq!(new, ["/etc/partage", "/etc/partage/partage.toml"]);
    assert!(before.iter().all(|path| after.contains(path)), "nothing else is gone");
    let left = host.say("0", &["getent", "group", "partage"]);
    assert_eq!(left.0, Some(2), "the group is gone: {}", left.1);
    assert!(!host.say("0", &["ps", "-eo", "args"]).1.contains("partaged --managed"));
}

/// With a configuration that the broker refuses nothing is left of the try, and the broker's own words say why.
fn undone(rig: &Rig) {
    let Some(host) = Host::new(rig) else { return };
    let write = "mkdir -p /etc/partage; echo 'schema = 1\nresrve = 1' >/etc/partage/partage.toml";
    assert_eq!(host.say("0", &["sh", "-c", write]).0, Some(0));
    let before = host.state();
    let (code, said) = host.install(&["install"]);
    assert_eq!(code, Some(5), "no broker runs: {said}");
    assert!(
        said.contains("resrve") && said.contains("everything before it is undone"),
        "{said}"
    );
    let names = |state: &str| {
        state
            .lines()
            .filter_map(|line| line.split(' ').next())
            .map(str::to_owned)
            .collect()
    };
    let (before, after): (Vec<String>, Vec<String>) = (names(&before), names(&host.state()));
    let new = after.iter().filter(|path| !before.contains(path));
    let new: Vec<&String> = new.filter(|path| !path.starts_with("/etc/g")).collect();
    assert!(new.is_empty(), "left: {new:?}");
}

fn without_driver(rig: &Rig) {
    let Some(host) = Host::new(rig) else { return };
    let program = rig.installed().display().to_string();
    let output = rig.output(host.command("0", false, &[&program, "install", "--json"]));
    let (code, said) = code_and_text(&output);
    assert_eq!(code, Some(0), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    let proof = &document["proof"];
    if proof["is_shown"] == true {
        println!("SKIPPED: this machine has a driver of its own");
        return;
    }
    let text = proof["text"].as_str().expect("a sentence");
    assert!(text.starts_with("user nobody reaches this broker."), "{said}");
    assert!(
        text.contains("Not shown that a job of another user is bound: no NVIDIA driver"),
        "{said}"
    );
}

/// As on a host that systemd runs, with a stand-in for `systemctl`: the service is made, enabled and started, a broker
/// that was started by hand gives way to it, and all of it goes again.
fn service(rig: &Rig) {
    let Some(host) = Host::new(rig) else { return };
    std::fs::write(rig.dir.join("systemctl"), SYSTEMCTL).expect("writable");
    let stand_in = format!(
        "mkdir -p /run/systemd/system /usr/local/bin && install -m 755 {0}/systemctl /usr/local/bin/systemctl",
        rig.dir.display()
    );
    assert_eq!(host.say("0", &["sh", "-c", &stand_in]).0, Some(0));
    let by_hand = format!(
        "setsid {}d --managed </dev/null >/dev/null 2>&1 &",
        rig.installed().display()
    );
    assert_eq!(
        code_and_text(&rig.output(host.command("0", true, &["sh", "-c", &by_hand]))).0,
        Some(0)
    );
    let status = |user| host.json(user, &[&rig.installed().display().to_string(), "status", "--json"]);
    rig.eventually(SOON, "the broker by hand answers", || {
        status("60001")["broker"]["kind"] == "managed"
    });
    let first = status("60001")["broker"]["pid"].as_u64();
    let before = host.state();
    let (code, said) = host.install(&["install"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("\nshown ") && !said.contains("without systemd"), "{said}");
    let calls = || host.say("0", &["cat", "/run/systemd/calls"]).1;
    assert!(
        calls().contains("daemon-reload")
            && calls().contains("enable partaged.service partaged.socket partaged-admin.socket")
            && calls().contains("start partaged.socket partaged-admin.socket"),
        "{}",
        calls()
    );
    let pid = host.say("0", &["cat", "/run/systemd/pid"]).1.trim().to_owned();
    let second = status("60001")["broker"]["pid"].as_u64();
    assert_eq!(second.map(|pid| pid.to_string()), Some(pid));
    assert_ne!(first, second, "the service's");
    let (code, said) = host.install(&["install"]);
    assert!(code == Some(0) && said.ends_with("nothing changed\n"), "{said}");
    assert_eq!(status("60001")["broker"]["pid"].as_u64(), second, "it was left alone");
    read_units(rig, &host);
    let (code, said) = host.install(&["uninstall"]);
    assert_eq!(code, Some(0), "{said}");
    let gone = "disable --now partaged.service partaged.socket partaged-admin.socket";
    assert!(calls().contains(gone), "{}", calls());
    let state = host.state();
    for gone in [
        "partaged.service",
        "partaged.socket",
        "partaged-admin.socket",
        "/run/partage ",
        "/usr/local/bin/partage",
        "/run/systemd/enabled",
    ] {
        assert!(!state.contains(gone), "{gone} is left: {state}");
    }
    assert!(before.contains("/run/partage ") && state.contains("/etc/partage/partage.toml "));
}

/// The real one reads the units, where it is there to.
fn read_units(rig: &Rig, host: &Host<'_>) {
    if !std::path::Path::new("/usr/bin/systemd-analyze").exists() {
        println!("SKIPPED: systemd-analyze is not here to read the units");
        return;
    }
    let units = ["partaged.service", "partaged.socket", "partaged-admin.socket"];
    let units = units.map(|unit| format!("/etc/systemd/system/{unit}"));
    let mut verify = vec!["systemd-analyze", "verify", "--man=no"];
    verify.extend(units.iter().map(String::as_str));
    let (code, said) = host.say("0", &verify);
    assert!(code == Some(0) && !said.contains("partaged"), "{said}");
    let security = ["systemd-analyze", "security", "--offline=true", &units[0]];
    let (_, said) = host.say("0", &security);
    let figure = said.lines().find(|line| line.contains("exposure level"));
    rig.note(figure.unwrap_or("this systemd-analyze gives no figure").trim());
}

/// While only private brokers are there, `run`, `ps`, `status` and `why` name the other users'; `install` does, too.
fn named(rig: &Rig) {
    let Some(host) = Host::new(rig) else { return };
    let program = rig.installed().display().to_string();
    let client = rig.dir.join("client").display().to_string();
    let start = |user: &str, options: &[&str]| {
        let mut words = vec![program.as_str(), "run", "-g", "0"];
        words.extend(options);
        words.extend(["--", client.as_str(), "dlopen"]);
        Client::start(host.command(user, true, &words))
    };
    let mut first = start("60001", &["-m", "2GiB"]);
    first.ready();
    let ask = |user: &str, words: &[&str]| {
        let words: Vec<&str> = std::iter::once(program.as_str()).chain(words.iter().copied()).collect();
        code_and_text(&rig.output(host.command(user, true, &words))).1
    };
    for command in ["ps", "status"] {
        let said = ask("60001", &[command]);
        assert!(
            !said.contains("private brokers") && !said.contains("has a private broker"),
            "{said}"
        );
    }
    let beside = "alice has a private broker on this host as well";
    let loud = ask("60002", &["run", "-m", "1GiB", "--", "true"]);
    assert_eq!(loud.matches(beside).count(), 1, "{loud}");
    assert!(loud.contains("sudo partage install"), "{loud}");
    let quiet = ask("60002", &["run", "-q", "-m", "1GiB", "--", "true"]);
    assert_eq!(quiet, "", "-q");
    for command in ["ps", "status"] {
        assert!(
            ask("60002", &[command]).replace('\n', " ").contains(beside),
            "{command}"
        );
        let document: Value = serde_json::from_str(&ask("60002", &[command, "--json"])).expect("a document");
        assert_eq!(document["other_brokers"][0]["user"], "alice", "{document}");
    }
    // A process of hers that is a client of her broker is hers, and one without the library is not.
    let unmanaged = |user: &str| -> Vec<Value> {
        let document: Value = serde_json::from_str(&ask(user, &["ps", "--json"])).expect("a document");
        document["unmanaged"].as_array().cloned().unwrap_or_default()
    };
    let mut job = start("60002", &["-m", "1GiB", "--name", "beside"]);
    job.ready();
    let mut bare = Client::start(host.command("60001", true, &[&client, "dlopen"]));
    bare.ready();
    rig.eventually(SOON, "both are seen", || unmanaged("60002").len() == 2);
    let owners = || -> Vec<Option<String>> {
        let owner = |process: &Value| process["other_broker"].as_str().map(str::to_owned);
        let mut all: Vec<_> = unmanaged("60002").iter().map(owner).collect();
        all.sort();
        all
    };
    rig.eventually(SOON, "one is alice's", || owners() == [None, Some("alice".to_owned())]);
    let said = ask("60002", &["ps"]);
    assert_eq!(said.matches(", managed by alice's broker").count(), 1, "{said}");
    bare.kill();
    job.kill();
    let (code, said) = host.install(&["install"]);
    assert_eq!(code, Some(0), "{said}");
    let note = "a private broker of alice still runs at /tmp/partage-60001";
    assert!(said.replace('\n', " ").replace("  ", " ").contains(note), "{said}");
    first.kill();
}
