// SPDX-License-Identifier: Apache-2.0
//! Checkpoint and restore: a job is saved with the real CRIU, killed, and comes back from its folder.
//!
//! Where there is no CRIU, or no right to run it, each case says so by its name and does nothing.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::super::Case;
use super::said::{filled_with, no, ok, state, used_by};
use crate::client::{Client, PATIENCE};
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    const WHY: &str = "a real GPU's cycle with CRIU is the acceptance script's";
    vec![
        Case::new("residence::a_saved_job_goes_on_and_comes_back_after_a_kill", comes_back).simulated(WHY),
        Case::new("residence::a_snapshot_is_restored_again_but_not_twice_at_once", twice).simulated(WHY),
        Case::new("residence::a_job_that_is_saved_to_stop_ends_with_its_snapshot", stops).simulated(WHY),
        Case::new(
            "residence::a_brokers_death_while_a_job_is_saved_loses_nothing",
            broker_dies,
        )
        .simulated(WHY),
        Case::new("residence::a_criu_that_is_killed_takes_no_snapshot_with_it", criu_dies).simulated(WHY),
        Case::new("residence::a_detached_restore_returns_once_the_job_runs", detached).simulated(WHY),
        Case::new("residence::what_cannot_be_saved_is_refused_and_goes_on", refused).simulated(WHY),
        Case::new(
            "residence::a_damaged_snapshot_is_refused_by_the_name_of_the_field",
            damaged,
        )
        .simulated(WHY),
    ]
}

/// Is this a CRIU that Partage takes? Debian's podman brings an older one along, which is in `PATH` then.
fn is_new_enough(program: &Path) -> bool {
    let Ok(output) = std::process::Command::new(program).arg("--version").output() else {
        return false;
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = said.lines().find_map(|line| line.strip_prefix("Version:"));
    let mut parts = version
        .unwrap_or_default()
        .trim()
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(4), Some(2))
}

/// The CRIU to use. `None`, with a note: the case is skipped.
pub(super) fn criu(rig: &Rig) -> Option<PathBuf> {
    let named = std::env::var_os("PARTAGE_CRIU").map(PathBuf::from);
    let built = crate::artefacts::bin_dir()
        .parent()
        .map(|target| target.join("tools/criu/criu"));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&paths).map(|folder| folder.join("criu"));
    let found = named
        .into_iter()
        .chain(built)
        .chain(installed)
        .find(|path| is_new_enough(path));
    // SAFETY: takes nothing.
    let is_root = unsafe { libc::geteuid() } == 0;
    if found.is_none() || !is_root {
        let lack = if is_root {
            "CRIU 4.2 or later (scripts/criu)"
        } else {
            "the right to run CRIU"
        };
        rig.note(format!("skipped: this machine lacks {lack}"));
        return None;
    }
    found
}

pub(super) fn folder(rig: &Rig) -> String {
    rig.dir.join("snapshot").to_string_lossy().into_owned()
}

/// `partage` with that CRIU.
pub(super) fn with_criu(rig: &Rig, criu: &Path, arguments: &[&str]) -> std::process::Command {
    let mut command = rig.partage(arguments);
    command.env("PARTAGE_CRIU", criu);
    command
}

/// `partage checkpoint`: what it says, or its code and why not.
pub(super) fn save(rig: &Rig, criu: &Path, more: &[&str]) -> Result<String, (Option<i32>, String)> {
    let folder = folder(rig);
    let mut arguments = vec!["checkpoint", "one", "--out", &folder];
    arguments.extend(more);
    let output = rig.output(with_criu(rig, criu, &arguments));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err((output.status.code(), text(&output.stderr))),
    }
}

/// `partage restore`, as the job that it becomes.
pub(super) fn restore(rig: &Rig, criu: &Path, more: &[&str]) -> Client {
    let folder = folder(rig);
    let mut arguments = vec!["restore", &folder];
    arguments.extend(more);
    Client::start(with_criu(rig, criu, &arguments))
}

/// `partage restore` that is refused: code and words.
pub(super) fn not_restored(rig: &Rig, criu: &Path, more: &[&str]) -> (Option<i32>, String) {
    let folder = folder(rig);
    let mut arguments = vec!["restore", &folder];
    arguments.extend(more);
    let output = rig.output(with_criu(rig, criu, &arguments));
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// A job with 64 MiB of one byte.
fn one(rig: &Rig) -> Client {
    filled_with(rig, "one", "4GiB", 64, &[])
}

fn is_in_books(rig: &Rig, used: u64) {
    rig.eventually(PATIENCE, "the ledger says what the driver says", || {
        used_by(rig, "one") == used && rig.books_agree()
    });
}

fn comes_back(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = one(rig);
    rig.wait_for_overhead();
    let used = used_by(rig, "one");
    let said = save(rig, &criu, &[]).expect("saved");
    assert!(
        said.contains("j1 is saved in ") && said.contains(", generation 1: ") && said.contains("; it stood for "),
        "{said}"
    );
    assert_eq!(state(rig, "one"), "running");
    client.expect("check a 165", "check 0 0");
    // What it does after that is lost with it.
    client.expect("fill a 7", "fill 0 7 7");
    client.kill();
    let mut again = restore(rig, &criu, &[]);
    again.expect("check a 165", "check 0 0");
    is_in_books(rig, used);
    again.expect("alloc 1048576 more", "alloc 0");
    again.expect("free more", "free 0");
    assert_eq!(state(rig, "one"), "running");
    assert_eq!(again.finish().code(), Some(0));
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}

fn twice(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = one(rig);
    save(rig, &criu, &[]).expect("saved");
    // The original lives.
    let (code, said) = not_restored(rig, &criu, &[]);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("j1 lives, which was saved in this snapshot"), "{said}");
    client.expect("check a 165", "check 0 0");
    client.kill();
    for round in 0..2 {
        let mut again = restore(rig, &criu, &[]);
        again.expect("check a 165", "check 0 0");
        let (code, said) = not_restored(rig, &criu, &[]);
        assert_eq!(code, Some(125), "{said}");
        assert!(
            said.contains(" lives, which was saved in this snapshot or restored from it"),
            "{said}"
        );
        assert_eq!(again.finish().code(), Some(0), "round {round}");
    }
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}

fn stops(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = one(rig);
    for _ in 0..3 {
        save(rig, &criu, &[]).expect("saved");
        client.expect("check a 165", "check 0 0");
    }
    client.expect("fill a 7", "fill 0 7 7");
    let said = save(rig, &criu, &["--stop", "--keep", "3"]).expect("saved");
    assert!(
        said.contains(", generation 4: ") && said.contains("; it has ended"),
        "{said}"
    );
    client.kill();
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
    let kept = |number: &str| Path::new(&folder(rig)).join(number).exists();
    assert!(!kept("gen-0001") && kept("gen-0002") && kept("gen-0003") && kept("gen-0004"));
    let mut before = restore(rig, &criu, &["--generation", "3"]);
    before.expect("check a 165", "check 0 0");
    assert_eq!(before.finish().code(), Some(0));
    let mut again = restore(rig, &criu, &[]);
    again.expect("check a 7", "check 0 0");
    assert_eq!(again.finish().code(), Some(0));
}

/// A CRIU that does `what` once a file is there.
pub(super) fn slow_criu(rig: &Rig, criu: &Path, what: &str) -> (PathBuf, PathBuf) {
    let (slow, go) = (rig.dir.join("slow-criu"), rig.dir.join("go"));
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *' {what} '*) until [ -e '{}' ]; do sleep 0.05; done ;; esac\nexec '{}' \"$@\"\n",
        go.display(),
        criu.display()
    );
    std::fs::write(&slow, script).expect("ours");
    std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o755)).expect("ours");
    (slow, go)
}

fn broker_dies(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = one(rig);
    let folder = folder(rig);
    let (slow, go) = slow_criu(rig, &criu, "dump");
    let snapshots = rig.socket_dir().join("state/snapshots");
    let mut command = with_criu(rig, &slow, &["checkpoint", "one", "--out", &folder]);
    let command = command.stderr(Stdio::piped()).spawn().expect("it starts");
    rig.eventually(PATIENCE, "the dump is under way", || {
        snapshots.join("j1.order").exists()
    });
    let (code, said) = no(rig, &["broker", "stop"]);
    assert!(code == Some(1) && said.contains("j1 is being saved"), "{code:?} {said}");
    let (code, said) = save(rig, &criu, &[]).expect_err("one at a time");
    assert!(
        code == Some(1) && said.contains("a snapshot of j1 is being written"),
        "{code:?} {said}"
    );
    let old = rig.broker_pid_quick().expect("a broker");
    // SAFETY: the process is this rig's own broker.
    unsafe { libc::kill(old as libc::pid_t, libc::SIGKILL) };
    // The command starts the next one: nobody else does.
    let output = command.wait_with_output().expect("ours");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("another one is there"),
        "{said}"
    );
    std::fs::write(&go, b"").expect("ours");
    client.expect("check a 165", "check 0 0");
    rig.eventually(PATIENCE, "it runs", || state(rig, "one") == "running");
    // The dump went on without the broker.
    client.kill();
    let mut again = restore(rig, &criu, &[]);
    again.expect("check a 165", "check 0 0");
    assert_eq!(again.finish().code(), Some(0));
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}

/// The process of CRIU that dumps into a folder: it works in that of the images.
fn dumping(folder: &str) -> Option<i32> {
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.find(|pid| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let place = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains("\0dump\0--tree\0") && place.starts_with(folder)
    })
}

fn criu_dies(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = one(rig);
    save(rig, &criu, &[]).expect("saved");
    let folder = folder(rig);
    let mut killed = 0;
    for round in 0..4 {
        let mut command = with_criu(rig, &criu, &["checkpoint", "one", "--out", &folder]);
        let mut command = command.spawn().expect("it starts");
        let mut code = None;
        rig.eventually(PATIENCE, "CRIU dumps", || {
            code = command.try_wait().expect("ours");
            let found = dumping(&folder).filter(|_| code.is_none());
            if let Some(pid) = found {
                std::thread::sleep(Duration::from_millis(20 * round));
                // SAFETY: a CRIU of this rig's.
                killed += i32::from(unsafe { libc::kill(pid, libc::SIGKILL) } == 0);
            }
            found.is_some() || code.is_some()
        });
        let code = command.wait().expect("ours").code();
        rig.note(format!("round {round}: exit status {code:?}"));
        if state(rig, "one") != "running" {
            // CRIU had borrowed its code: it ended.
            break;
        }
        client.expect("check a 165", "check 0 0");
    }
    assert!(killed > 0, "nothing was killed");
    client.kill();
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
    let mut again = restore(rig, &criu, &[]);
    again.expect("check a 165", "check 0 0");
    assert_eq!(again.finish().code(), Some(0));
}

fn detached(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = one(rig);
    save(rig, &criu, &["--stop"]).expect("saved");
    client.kill();
    let folder = folder(rig);
    let mut command = with_criu(rig, &criu, &["restore", &folder, "--detach"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut command = command.spawn().expect("it starts");
    // The client ends with its input.
    let input = command.stdin.take();
    assert_eq!(command.wait().expect("ours").code(), Some(0));
    assert!(ok(rig, &["events"]).contains("j2 runs again"));
    assert_eq!(state(rig, "one"), "running");
    drop(input);
    rig.eventually(PATIENCE, "it ends", || {
        state(rig, "one").is_empty() && rig.ledger_used() == 0
    });
}

fn refused(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = one(rig);
    let out = folder(rig);
    std::fs::create_dir(&out).expect("made");
    std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o755)).expect("ours");
    let (code, said) = save(rig, &criu, &[]).expect_err("others could read it");
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("has mode 755: others could read the job's memory in it"),
        "{said}"
    );
    std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o700)).expect("ours");
    let (code, said) = save(rig, Path::new("/bin/true"), &[]).expect_err("it is no CRIU");
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("j1 goes on, and is not saved: ") && said.contains("/bin/true --version"),
        "{said}"
    );
    client.expect("check a 165", "check 0 0");
    let (code, said) = not_restored(rig, &criu, &[]);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("holds no snapshot"), "{said}");
    save(rig, &criu, &[]).expect("now it can be");
    client.expect("check a 165", "check 0 0");
    assert!(client.finish().success());
    with_mounts(rig, &criu);
}

/// A job that sees other files than its broker does.
fn with_mounts(rig: &Rig, criu: &Path) {
    let run = rig.run(
        &["-m", "1GiB", "-g", "0", "--name", "one"],
        &crate::artefacts::client(),
        &[],
    );
    let mut command = rig.command("unshare");
    command.arg("--mount").arg(run.get_program()).args(run.get_args());
    let mut client = Client::start(command);
    client.ready();
    let (code, said) = save(rig, criu, &[]).expect_err("its mounts are its own");
    let text = "j2 has a pid or mount namespace of its own (a container, a unit with PrivateTmp=), and a restore would \
                find other files";
    assert!(code == Some(1) && said.contains(text), "{said}");
    assert!(client.finish().success());
}

fn damaged(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = one(rig);
    save(rig, &criu, &[]).expect("saved");
    save(rig, &criu, &[]).expect("saved");
    client.kill();
    let newest = Path::new(&folder(rig)).join("gen-0002");
    let pages = newest.join("criu/pages-1.img");
    let mut content = std::fs::read(&pages).expect("there");
    let middle = content.len() / 2;
    content[middle] ^= 1;
    std::fs::write(&pages, &content).expect("ours");
    let (code, said) = not_restored(rig, &criu, &[]);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("files: criu/pages-1.img is damaged"), "{said}");
    content.truncate(middle);
    std::fs::write(&pages, &content).expect("ours");
    let (_, said) = not_restored(rig, &criu, &[]);
    assert!(said.contains("files: criu/pages-1.img has "), "{said}");
    std::fs::remove_file(&pages).expect("ours");
    let (_, said) = not_restored(rig, &criu, &[]);
    assert!(said.contains("files: criu/pages-1.img: No such file"), "{said}");
    let mut before = restore(rig, &criu, &["--generation", "1"]);
    before.expect("check a 165", "check 0 0");
    assert_eq!(before.finish().code(), Some(0));
}
