// SPDX-License-Identifier: Apache-2.0
//! Events that stay: over a restart of the broker, by number, kind, user and job; and the program of `[notify]`.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::Case;
use super::ruled_host::{Host, SOON, said};
use crate::rig::{GIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("events::stay_over_a_restart_and_are_found", found).simulated("a host's broker of the test's own"),
        Case::new("events::a_follower_misses_none_and_sees_none_twice", followed)
            .simulated("a host's broker of the test's own"),
        Case::new("events::a_program_is_told_and_keeps_nobody", notified)
            .simulated("a host's broker of the test's own"),
    ]
}

/// What `events --json` shows with these options.
#[track_caller]
fn events(rig: &Rig, options: &[&str]) -> Vec<Value> {
    let output = rig.output(rig.partage(&[&["events", "--json"], options].concat()));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options:?}: {errors}");
    let out = String::from_utf8_lossy(&output.stdout);
    let documents = out.lines().map(|line| serde_json::from_str(line).expect("a document"));
    documents.map(|document: Value| document["event"].clone()).collect()
}

fn numbers(events: &[Value]) -> Vec<u64> {
    events
        .iter()
        .map(|event| event["number"].as_u64().expect("a number"))
        .collect()
}

fn found(rig: &Rig) {
    let host = Host::start(rig, "schema = 1\n");
    let mut client = rig.client(&["-m", "1GiB", "--name", "first"]);
    client.ready();
    client.expect(&format!("alloc {} a", 3 * GIB), "alloc 2");
    client.finish();
    rig.eventually(SOON, "its end is said", || {
        !events(rig, &["--kind", "job-ended"]).is_empty()
    });
    let before = events(rig, &[]);
    let host = host.again();
    let mut client = rig.client(&["-m", "1GiB", "--name", "second"]);
    client.ready();
    client.finish();
    rig.eventually(SOON, "its end is said", || {
        events(rig, &["--kind", "job-ended"]).len() == 2
    });
    let all = events(rig, &[]);
    assert_eq!(all[..before.len()], before, "as they were");
    assert!(
        numbers(&all).is_sorted_by(|one, next| one < next),
        "{:?}",
        numbers(&all)
    );
    // Each option by itself, and all together.
    let denied = events(rig, &["--kind", "denied"]);
    assert_eq!((denied.len(), &denied[0]["asked_bytes"]), (1, &(3 * GIB).into()));
    assert_eq!(denied[0]["user"], rig.json(&["get", "second"])["job"]["user"]);
    // SAFETY: geteuid has no preconditions and always answers.
    let me = unsafe { libc::geteuid() }.to_string();
    assert_eq!(
        events(
            rig,
            &["--user", &me, "--job", "j1", "--kind", "denied,drift", "--since", "1h"]
        ),
        denied
    );
    assert_eq!(
        events(rig, &["--user", "4294967294", "--kind", "denied"]),
        [] as [Value; 0]
    );
    assert_eq!(events(rig, &["--job", "j7"]), [] as [Value; 0]);
    assert_eq!(events(rig, &["--until", "1h"]), [] as [Value; 0]);
    let last = before.last().expect("some")["number"].to_string();
    assert_eq!(events(rig, &["--after", &last]), all[before.len()..]);
    let (code, text) = said(rig, &["events", "--kind", "deneid"]);
    assert!(code == Some(2) && text.contains("--kind denied"), "{code:?} {text}");
    let (code, text) = said(rig, &["events", "--user", "nobody-of-this-name"]);
    assert!(code == Some(2) && text.contains("there is no user"), "{code:?} {text}");
    drop(host);
}

fn followed(rig: &Rig) {
    let host = Host::start(rig, "schema = 1\n");
    let run = |name: &str| {
        let output = rig.output(rig.run(&["--name", name], std::path::Path::new("/bin/true"), &[]));
        assert!(output.status.success());
    };
    (0..5).for_each(|number| run(&format!("before{number}")));
    let mut follower = rig.partage(&["events", "-f", "--json", "--kind", "job-ended"]);
    let mut follower = follower.stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(follower.stdout.take().expect("piped")).lines();
    let mut told = lines.map(|line| serde_json::from_str::<Value>(&line.expect("a line")).expect("a document"));
    let mut next = || told.next().map(|document| document["event"]["job"].clone());
    // While its pages come, and after.
    (5..10).for_each(|number| run(&format!("meanwhile{number}")));
    for number in 1..=10 {
        assert_eq!(next(), Some(format!("j{number}").into()));
    }
    run("after");
    assert_eq!(next(), Some("j11".into()));
    drop(host);
    assert_eq!(next(), None, "a broker that leaves ends the story");
    assert!(follower.wait().expect("ended").success());
}

/// A program of this text.
fn program(rig: &Rig, text: &str) -> PathBuf {
    let path = rig.dir.join("told");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("writable");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("ours");
    path
}

fn notified(rig: &Rig) {
    let log = rig.dir.join("told.jsonl");
    let path = program(rig, "exec /bin/cat >> \"$1\"");
    let config = format!(
        "schema = 1\n[notify]\nexec = [\"{}\", \"{}\"]\nkinds = [\"denied\"]\n",
        path.display(),
        log.display()
    );
    let host = Host::start(rig, &config);
    let deny = || {
        let mut client = rig.client(&["-m", "1GiB"]);
        client.ready();
        client.expect(&format!("alloc {} a", 3 * GIB), "alloc 2");
        client.finish();
    };
    deny();
    let read = || -> Vec<Value> {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    };
    rig.eventually(SOON, "the program is told", || !read().is_empty());
    let told: Vec<Value> = read().iter().map(|document| document["event"].clone()).collect();
    assert_eq!(told, events(rig, &["--kind", "denied"]), "of these alone");
    // One that hangs keeps neither the loop nor other events.
    program(rig, "exec sleep 1000");
    deny();
    assert_eq!(events(rig, &["--kind", "denied"]).len(), 2);
    let broker = || rig.json(&["status"])["broker"].clone();
    rig.eventually(Duration::from_secs(60), "it is given up", || {
        broker()["events_untold"] == 1
    });
    let errors = broker()["errors"].to_string();
    assert!(errors.contains("did not end within 10 s"), "{errors}");
    let (code, text) = said(rig, &["doctor"]);
    assert!(code != Some(0) && text.contains("did not end within"), "{text}");
    // One that others can write to is not run, and a broker with it does not start.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("ours");
    assert!(!host.reload(&config), "refused");
    let (_, text) = said(rig, &["config", "reload"]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("notify.exec") && text.contains("has mode 777"), "{text}");
    drop(host);
}
