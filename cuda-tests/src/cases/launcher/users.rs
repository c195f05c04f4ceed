// SPDX-License-Identifier: Apache-2.0
//! Two users of one machine.

use std::process::{Command, Output};

use super::output::text;
use crate::rig::{GIB, Rig};

/// Runs `command` as another uid, or says why it cannot.
fn as_nobody(rig: &Rig, arguments: &[&str]) -> Option<Output> {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
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

pub fn two_users(rig: &Rig) {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
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
