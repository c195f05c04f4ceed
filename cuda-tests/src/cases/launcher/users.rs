// SPDX-License-Identifier: Apache-2.0
//! Two users of one machine.

use std::process::{Command, Output};

use super::output::text;
use crate::artefacts::built;
use crate::cases::user::{GROUP, MEMBER, OTHER, OWNER, User, is_root, open_to_all};
use crate::client::Client;
use crate::rig::{GIB, Rig};

/// Runs `command` as another uid, or says why it cannot.
fn as_nobody(rig: &Rig, arguments: &[&str]) -> Option<Output> {
    if !is_root() {
        println!("SKIPPED: only root can act as another user");
        return None;
    }
    let mut command = rig.command("/usr/bin/setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(rig.installed())
        .args(arguments);
    Some(rig.output(command))
}

pub fn others_jobs(rig: &Rig) {
    let mut mine = rig.client(&["-m", "1GiB", "--name", "mine"]);
    mine.ready();
    for arguments in [&["set", "mine", "mem=2GiB"][..], &["stop", "mine"], &["stop", "j1"]] {
        let Some(output) = as_nobody(rig, arguments) else {
            return;
        };
        assert!(
            matches!(output.status.code(), Some(3..=5)),
            "{arguments:?}: {:?} {}",
            output.status,
            text(&output.stderr)
        );
    }
    assert_eq!(mine.numbers("info")[2], GIB, "untouched");
}

fn is_admin(rig: &Rig, user: &User) -> bool {
    let (code, said) = user.say(rig, &["status", "--json"]);
    assert_eq!(code, Some(0), "{said}");
    let status: serde_json::Value = serde_json::from_str(&said).expect("a document");
    status["broker"]["is_admin"].as_bool().expect("it says so")
}

pub fn administrators(rig: &Rig) {
    if !is_root() {
        println!("SKIPPED: only root can act as another user");
        return;
    }
    let config = rig.dir.join("partage.toml");
    std::fs::write(&config, "schema = 1\n").expect("writable");
    let mut command = rig.command(built("partaged"));
    command.arg("--managed").arg("--config").arg(&config);
    command.arg("--socket-dir").arg(rig.socket_dir());
    let mut broker = command.spawn().expect("the broker starts");
    let (open, closed) = ("client/client.sock", "admin.sock");
    let sockets = [open, closed].map(|name| rig.socket_dir().join(name));
    let soon = std::time::Duration::from_secs(30);
    rig.eventually(soon, "the broker listens", || sockets.iter().all(|path| path.exists()));
    // As the broker itself does where the host has the group `partage`.
    std::os::unix::fs::chown(&sockets[1], None, Some(GROUP)).expect("root");
    let client = open_to_all(rig);
    let mut command = OWNER.partage(rig);
    command.args(["run", "-m", "1GiB", "--name", "secret", "--"]);
    command.arg(&client).arg("dlopen");
    let mut job = Client::start(command);
    job.ready();
    assert_eq!(job.numbers("info")[2], GIB);
    // Nobody else gets at it, and its name is its owner's.
    for arguments in [&["set", "j1", "mem=2GiB"][..], &["stop", "j1"]] {
        let (code, said) = OTHER.say(rig, arguments);
        assert_eq!(code, Some(3), "{arguments:?}: {said}");
    }
    assert!(!is_admin(rig, &OTHER) && !is_admin(rig, &OWNER));
    assert!(!OTHER.say(rig, &["ps"]).1.contains("secret"));
    assert_eq!(job.numbers("info")[2], GIB, "untouched");
    // An administrator does, by name too.
    assert!(is_admin(rig, &MEMBER));
    let (code, said) = MEMBER.say(rig, &["set", "secret", "mem=2GiB"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(job.numbers("info")[2], 2 * GIB);
    assert_eq!(rig.json(&["status"])["broker"]["is_admin"], true, "root");
    assert!(rig.json(&["ps"])["jobs"][0]["command"].to_string().contains("dlopen"));
    let stopped = rig.output(rig.partage(&["stop", "secret"]));
    assert!(stopped.status.success(), "{}", text(&stopped.stderr));
    job.kill();
    // The broker is not the job's owner's.
    assert_eq!(OWNER.say(rig, &["broker", "stop"]).0, Some(3));
    assert!(rig.output(rig.partage(&["broker", "stop"])).status.success());
    assert!(broker.wait().expect("our own child").success());
}

pub fn two_users(rig: &Rig) {
    if !is_root() {
        println!("SKIPPED: only root can act as another user");
        return;
    }
    // Both may use the machine; each has a broker of its own.
    let _ = Command::new("/bin/chmod").args(["-R", "a+rwX"]).arg(&rig.dir).status();
    let mut mine = rig.client(&["-g", "0", "-m", "50%"]);
    mine.ready();
    let bytes = mine.numbers("info")[1];
    mine.expect(&format!("alloc {bytes} all"), "alloc 0");
    let other = rig.dir.join("theirs");
    std::fs::create_dir(&other).expect("writable");
    std::os::unix::fs::chown(&other, Some(65534), Some(65534)).expect("root");
    let run = |mem: &str| {
        let mut command = rig.command("/usr/bin/setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(rig.installed())
            .args(["run", "-g", "0", "-m", mem, "--on-full", "fail", "--", "/bin/true"])
            .env("PARTAGE_SOCKET_DIR", other.join("sock"))
            .env("HOME", &other);
        rig.output(command)
    };
    let fits = run("25%");
    assert_eq!(
        fits.status.code(),
        Some(0),
        "a quarter is there: {}",
        text(&fits.stderr)
    );
    let too_much = run("75%");
    assert_eq!(
        too_much.status.code(),
        Some(124),
        "three quarters are not: {}",
        text(&too_much.stderr)
    );
}
