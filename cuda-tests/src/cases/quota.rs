// SPDX-License-Identifier: Apache-2.0
//! `partage quota`: limits of users and groups as rules in a file of the host's, and the log of who changed what.

mod host;
mod together;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use self::host::Host;
use super::Case;
use crate::artefacts::built;
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

const WHY: &str = "compares with the simulator's books";

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "quota::set_holds_for_running_jobs_at_once_and_unset_gives_back",
            set_and_unset,
        )
        .simulated(WHY),
        Case::new("quota::what_is_wrong_changes_nothing_and_says_why", refused).simulated(WHY),
        Case::new(
            "quota::a_plain_key_bounds_all_jobs_of_its_subject_together",
            together::together,
        )
        .simulated(WHY),
        Case::new("quota::nothing_bars_a_subject", together::barred).simulated(WHY),
        Case::new(
            "quota::the_audit_log_says_who_changed_what_and_outlives_the_broker",
            audit,
        )
        .simulated(WHY),
    ]
}

fn set_and_unset(rig: &Rig) {
    let Some(host) = Host::start(rig) else { return };
    assert!(host.done(&["quota", "list"]).contains("no quotas"));
    let mut job = rig.client(&["-g", "0", "-m", "4GiB", "--name", "train"]);
    job.ready();
    let said = host.done(&["quota", "set", "user:root", "mem=2GiB", "gpus=1"]);
    assert!(
        said.contains("user:root: mem 2GiB\n") && said.contains("1 class and 1 rule"),
        "{said}"
    );
    assert_eq!(job.numbers("info")[2], 2 * GIB, "it holds at once");
    job.expect(&format!("alloc {} a", 2 * GIB), "alloc 2");
    let (_, why) = host.say(&["why", "train"]);
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(why.contains("rule quota-user-root, each_user.mem = 2GiB"), "{why}");
    several(rig, &host, &mut job);
    assert_eq!(job.numbers("info")[2], 3 * GIB);
    host.done(&["quota", "unset", "user:root", "each-job.mem"]);
    assert_eq!(job.numbers("info")[2], 4 * GIB, "what was asked is back");
    for subject in ["user:root", "group:root", "*"] {
        host.done(&["quota", "unset", subject]);
    }
    assert!(host.done(&["quota", "list"]).contains("no quotas"));
}

/// A user's, a group's and everybody's quotas, of jobs together, of each job and of each process.
fn several(rig: &Rig, host: &Host<'_>, job: &mut Client) {
    // A comment by hand stays, and the quota of a group is another rule.
    let commented = host.text().replace("[[rule]]", "# until June\n[[rule]]");
    std::fs::write(host.file(), commented).expect("writable");
    let said = host.done(&["quota", "set", "user:root", "mem=3GiB"]);
    assert!(said.contains("user:root: mem 3GiB (was 2GiB)"), "{said}");
    host.done(&["quota", "set", "group:root", "class=small", "each-job.compute-max=80%"]);
    host.done(&["quota", "set", "*", "each-job.weight=50"]);
    let each = ["process-mem=1GiB", "each-job.mem=3GiB"];
    let together = ["jobs=1", "each-user.mem=6GiB", "compute=50%"];
    let said = host.done(&[&["quota", "set", "user:root"][..], &each, &together].concat());
    assert!(
        said.contains("user:root: mem 6GiB (was 3GiB)"),
        "the alias of mem: {said}"
    );
    let (code, text) = host.say(&["run", "--on-full", "fail", "--", "/bin/true"]);
    assert!(
        code == Some(124) && text.contains("quota-user-root"),
        "{code:?}: {text}"
    );
    assert!(host.text().contains("# until June"), "{}", host.text());
    assert_eq!(job.numbers("info")[2], GIB, "what each process may have is its card");
    let quotas = rig.json(&["quota", "list"])["quotas"].to_string();
    for part in [
        "user:root",
        "[\"mem\",\"6GiB\"]",
        "[\"each-job.mem\",\"3GiB\"]",
        "[\"each-job.process-mem\",\"1GiB\"]",
        "[\"jobs\",\"1\"]",
        "group:root",
        "[\"class\",\"small\"]",
        "\"*\"",
        "[\"each-job.weight\",\"50\"]",
    ] {
        assert!(quotas.contains(part), "{part}: {quotas}");
    }
    job.expect(&format!("alloc {} a", 512 * MIB), "alloc 0");
    rig.wait_for_overhead();
    let user = rig.json(&["get", "@root"]);
    let device = &user["devices"][0];
    assert!(device["used_bytes"].as_u64() >= Some(512 * MIB), "{user}");
    assert_eq!(
        (&device["limit_bytes"], &device["jobs"]),
        (&(3 * GIB).into(), &1.into()),
        "{user}"
    );
    assert!(user["rules"].to_string().contains("quota-user-root"), "{user}");
    totals(host, &user);
    host.done(&["quota", "unset", "user:root", "process-mem", "jobs", "mem", "compute"]);
}

/// `get @root` shows each total with what is used of it, and where it is written.
fn totals(host: &Host<'_>, user: &Value) {
    let all = user["totals"].as_array().cloned().unwrap_or_default();
    let total = |key: &str, gpu: Value| {
        let found = all.iter().find(|total| total["key"] == key && total["gpu"] == gpu);
        found.unwrap_or_else(|| panic!("{key} of {gpu}: {all:#?}")).clone()
    };
    assert_eq!(all.len(), 6, "memory and time of two GPUs, GPUs, and jobs: {all:#?}");
    let mem = total("each_user.mem", "0".into());
    assert_eq!(
        (&mem["limit"], &mem["used"]),
        (&(6 * GIB).into(), &user["devices"][0]["used_bytes"])
    );
    assert_eq!(total("each_user.mem", "1".into())["used"], 0);
    assert_eq!(total("each_user.compute", "0".into())["limit"], 0.5);
    let jobs = total("each_user.jobs", Value::Null);
    assert_eq!(
        (&jobs["limit"], &jobs["used"], &jobs["rule"]),
        (&1.into(), &1.into(), &"quota-user-root".into())
    );
    let line = jobs["line"].as_u64().expect("a number") as usize;
    let text = host.text();
    let written = text.lines().nth(line - 1).expect("a line of it");
    assert!(
        written.contains("jobs = 1") && jobs["file"] == host.file().display().to_string(),
        "{written}"
    );
    let said = host
        .done(&["get", "@root"])
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let part = format!(
        "total jobs together: 1 of 1, by rule quota-user-root, each_user.jobs = 1 ({}:{line})",
        host.file().display()
    );
    assert!(said.contains(&part), "{said}");
    assert!(
        said.contains("total memory together, GPU 0: ")
            && said.contains(" of 6 GiB, by rule quota-user-root, each_user.mem = 6GiB ("),
        "{said}"
    );
}

/// Words, the exit code, and a part of what is said.
const WRONG: &[(&[&str], i32, &str)] = &[
    (
        &["set", "user:root", "meme=1GiB"],
        2,
        "unknown key `meme`; there are, for all jobs of SUBJECT together: mem, compute, gpus, jobs;",
    ),
    (&["set", "user:root", "mem=8GG"], 2, "mem: "),
    (&["set", "user:root", "mem"], 2, "has no value"),
    (
        &["set", "user:root", "gpus=many"],
        2,
        "gpus: \"many\" is no whole number",
    ),
    (
        &["set", "user:root", "class=smal"],
        2,
        "class: there is no class \"smal\"; did you mean `small`?",
    ),
    (
        &["set", "user:no-such-user", "mem=1GiB"],
        4,
        "this host has no user \"no-such-user\"",
    ),
    (&["set", "root", "mem=1GiB"], 2, "write user:NAME, group:NAME or '*'"),
    (
        &["set", "group:root", "compute-max=20%"],
        2,
        "there is none of several jobs together: write each-job.compute-max",
    ),
    (&["set", "user:root", "gpus=-1"], 2, "gpus: -1 is not from 0"),
    (
        &["unset", "user:root", "each-job.weight"],
        4,
        "user:root has no quota of each-job.weight",
    ),
    (&["unset", "group:root"], 4, "group:root has no quota"),
];

fn refused(rig: &Rig) {
    let Some(host) = Host::start(rig) else { return };
    host.done(&["quota", "set", "user:root", "mem=2GiB"]);
    let before = host.text();
    for (words, code, part) in WRONG {
        let all: Vec<&str> = std::iter::once("quota").chain(words.iter().copied()).collect();
        let (got, text) = host.say(&all);
        assert!(got == Some(*code) && text.contains(part), "{words:?}: {got:?}: {text}");
        assert!(!text.contains(".90-quota.toml."), "no name of a passing file: {text}");
    }
    assert_eq!(host.text(), before, "nothing was changed");
    let reading = rig.json(&["status"])["broker"]["config"].clone();
    assert!(
        reading["generation"] == 2 && reading["error"].is_null(),
        "the broker was not asked: {reading}"
    );
    // Something else is wrong: the quota is not written beside it.
    std::fs::write(rig.dir.join("partage.toml"), "schema = 1\nrul = 3\n").expect("writable");
    let (code, text) = host.say(&["quota", "set", "user:root", "mem=1GiB"]);
    assert!(
        code == Some(2) && text.contains("partage.toml, line 2"),
        "{code:?}: {text}"
    );
    assert_eq!(host.text(), before);
    let left: Vec<_> = std::fs::read_dir(rig.dir.join("conf.d"))
        .expect("there")
        .flatten()
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
    others(rig);
    drop(host);
    private(rig);
}

/// Another user changes none, and does not see who did.
fn others(rig: &Rig) {
    // The rig's folder is opened up for that, but for what was closed.
    let log = rig.socket_dir().join("state/audit.jsonl");
    let closed = std::fs::metadata(&log).expect("there").permissions();
    assert_eq!(closed.mode() & 0o777, 0o600);
    rig.installed();
    let _ = Command::new("/bin/chmod").args(["-R", "a+rX"]).arg(&rig.dir).status();
    let other = |words: &[&str]| {
        let mut command = rig.command("/usr/bin/setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(rig.installed()).args(words);
        rig.output(command)
    };
    let output = other(&["quota", "set", "user:root", "mem=1GiB"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(3) && text.contains("only root may change quotas"),
        "{text}"
    );
    std::fs::set_permissions(&log, closed).expect("root");
    let output = other(&["events", "--audit"]);
    assert_eq!(
        output.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A private broker has no quotas.
fn private(rig: &Rig) {
    let private = rig.dir.join("private");
    let mut command = rig.partage(&["run", "--", built("partage").to_str().expect("a path"), "quota", "list"]);
    command
        .env("PARTAGE_SOCKET_DIR", &private)
        .env("PARTAGE_IDLE_EXIT", "1");
    let output = rig.output(command);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && text.contains("one broker for everybody"),
        "{text}"
    );
}

fn audit(rig: &Rig) {
    let Some(mut host) = Host::start(rig) else { return };
    let mut job = rig.client(&["-g", "0", "-m", "4GiB", "--name", "train"]);
    job.ready();
    host.done(&["set", "train", "mem=3GiB"]);
    host.done(&["quota", "set", "user:root", "each-job.mem=2GiB"]);
    host.done(&["set", "train", "mem=5GiB", "--force"]);
    // Lowered at the door: by a variable, which is no option.
    let mut lowered = rig.run(&["-g", "0", "--name", "low"], "/bin/true".as_ref(), &[]);
    lowered.env("PARTAGE_MEM", "8GiB");
    assert!(rig.output(lowered).status.success());
    host.restart();
    let changes = host.changes();
    let find = |what: &str, job: &str, number: &str| {
        let is_it = |change: &&Value| {
            change["what"] == what && change["number"] == number && (job.is_empty() || change["job"] == job)
        };
        let found = changes.iter().find(is_it);
        found.unwrap_or_else(|| panic!("{what} of {job}'s {number}: {changes:#?}"))
    };
    let set = find("set", "j1", "mem");
    assert_eq!(
        (&set["old"], &set["new"], &set["by"]["uid"]),
        (&"4 GiB".into(), &"3 GiB".into(), &0.into())
    );
    assert!(
        set["by"]["pid"].as_u64() > Some(0) && set["from"].to_string().contains("partage set mem=3GiB by"),
        "{set}"
    );
    let ruled = find("reload", "j1", "mem");
    assert_eq!((&ruled["old"], &ruled["new"]), (&"3 GiB".into(), &"2 GiB".into()));
    let place = format!("rule quota-user-root, max.mem = 2GiB ({}:", host.file().display());
    assert!(
        ruled["from"].as_str().is_some_and(|from| from.contains(&place)),
        "{ruled}"
    );
    assert!(
        find("reload", "", "rule")["new"]
            .to_string()
            .contains("quota-user-root")
    );
    assert_eq!(find("set --force", "j1", "mem")["new"], "5 GiB");
    let lowered = find("admitted", "j2", "mem");
    assert_eq!((&lowered["old"], &lowered["new"]), (&"8 GiB".into(), &"2 GiB".into()));
    let text = host.done(&["events", "--audit"]);
    assert!(
        text.contains("uid 0 (pid ") && text.contains("j1 (root): mem 4 GiB -> 3 GiB"),
        "{text}"
    );
}
