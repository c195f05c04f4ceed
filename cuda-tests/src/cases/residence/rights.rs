// SPDX-License-Identifier: Apache-2.0
//! What another user, or a job's own, may not do to restores, helpers and root's processes: each attempt fails, and the
//! next honest command works.

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use partage_protocol::snapshot::Manifest;

use super::faults::{helper_of, set_faults};
use super::restored::saved;
use super::said::{ok, state};
use super::saved::{criu, folder, not_restored, restore, save, slow_criu, with_criu};
use super::users::{filled_of, is_skipped};
use crate::cases::Case;
use crate::cases::ruled_host::{Host, config};
use crate::cases::user::{MEMBER, OWNER};
use crate::client::{Client, PATIENCE};
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    const WHY: &str = "other users' attempts are made on the simulated machine";
    vec![
        Case::new(
            "residence::a_restore_takes_and_writes_no_file_in_a_folder_of_others",
            folder_of_others,
        )
        .simulated(WHY),
        Case::new(
            "residence::a_restore_that_does_not_come_back_ends_at_its_deadline",
            late,
        )
        .simulated(WHY),
        Case::new(
            "residence::a_user_cannot_signal_the_helper_that_calls_for_the_job",
            helper_is_safe,
        )
        .simulated(WHY),
        Case::new("residence::a_users_stop_leaves_roots_processes_alone", stop_spares).simulated(WHY),
        Case::new(
            "residence::a_configuration_that_others_may_write_is_not_taken",
            open_configuration,
        )
        .simulated(WHY),
    ]
}

/// `partage restore` by a broker of another folder.
fn elsewhere(rig: &Rig, criu: &Path) -> (Command, PathBuf) {
    let other = rig.dir.join("other-sockets");
    let folder = folder(rig);
    let mut command = with_criu(rig, criu, &["restore", &folder, "--timeout", "60s"]);
    command.env("PARTAGE_SOCKET_DIR", &other);
    (command, other)
}

/// The socket folder of the save is gone, as after a reboot, and somebody else made one.
fn folder_of_others(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    saved(rig, &criu);
    ok(rig, &["broker", "stop"]);
    let (old, roots) = (rig.socket_dir(), rig.dir.join("roots"));
    let names = std::fs::read_dir(old.join("lib")).expect("the library's copies");
    let names: Vec<_> = names.flatten().map(|entry| entry.file_name()).collect();
    assert!(!names.is_empty());
    std::fs::remove_dir_all(&old).expect("ours");
    std::fs::write(&roots, "root's").expect("ours");
    // Theirs, with links to a file of root's for whatever is opened or made there.
    std::fs::create_dir_all(old.join("lib")).expect("ours");
    for name in &names {
        symlink(&roots, old.join("lib").join(name)).expect("ours");
    }
    for path in [old.join("lib"), old.clone()] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("ours");
        chown(&path, Some(OWNER.number()), None).expect("root may");
    }
    let (command, other) = elsewhere(rig, &criu);
    let output = rig.output(command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    let words = format!("{} belongs to uid 65534", old.display());
    assert!(said.contains(&words), "{said}");
    assert_eq!(std::fs::read_to_string(&roots).expect("there"), "root's");
    // A link in its place is not followed either.
    std::fs::remove_dir_all(&old).expect("root may");
    symlink(rig.dir.join("theirs"), &old).expect("ours");
    let output = rig.output(elsewhere(rig, &criu).0);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(125) && said.contains("links are not followed"),
        "{said}"
    );
    std::fs::remove_file(&old).expect("ours");
    // Once it is gone: the folder of the new broker is where the processes know theirs, and the library is there too.
    let mut again = Client::start(elsewhere(rig, &criu).0);
    again.expect("check a 165", "check 0 0");
    let listed = std::fs::read_dir(other.join("lib")).into_iter().flatten().flatten();
    let listed: Vec<_> = listed.map(|entry| entry.file_name()).collect();
    assert!(
        !listed.contains(&names[0]),
        "the library lies where the job alone sees it"
    );
    // What the job is saved from then is as good as the first.
    let folder = folder(rig);
    let mut command = with_criu(rig, &criu, &["checkpoint", "one", "--out", &folder, "--stop"]);
    command.env("PARTAGE_SOCKET_DIR", &other);
    let output = rig.output(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    again.kill();
    let text = std::fs::read(Path::new(&folder).join("gen-0002/manifest.json")).expect("there");
    let manifest = Manifest::parse(&text).expect("whole");
    assert_eq!(Path::new(&manifest.socket_dir), old, "where the processes look");
    let mut again = Client::start(elsewhere(rig, &criu).0);
    again.expect("check a 165", "check 0 0");
    assert_eq!(again.finish().code(), Some(0));
    let mut stop = rig.partage(&["broker", "stop"]);
    stop.env("PARTAGE_SOCKET_DIR", &other);
    rig.output(stop);
}

fn late(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    saved(rig, &criu);
    let is_over = || {
        rig.eventually(PATIENCE, "nothing is left", || {
            state(rig, "one").is_empty() && rig.ledger_used() == 0
        });
    };
    // CRIU stands.
    let (slow, _) = slow_criu(rig, &criu, "restore");
    let (code, said) = not_restored(rig, &slow, &["--timeout", "2s"]);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("CRIU did not end within 2s"), "{said}");
    is_over();
    // A process that was saved does not say hello.
    let path = Path::new(&folder(rig)).join("gen-0001/manifest.json");
    let whole = std::fs::read(&path).expect("there");
    let mut manifest = Manifest::parse(&whole).expect("whole");
    let mut missing = manifest.clients[0].clone();
    missing.pid += 1_000;
    missing.client += 1_000;
    let pid = missing.pid;
    manifest.clients.push(missing);
    std::fs::write(&path, manifest.text()).expect("ours");
    let folder = folder(rig);
    let mut command = with_criu(rig, &criu, &["restore", &folder, "--timeout", "15s"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    // The job reads it, and would end by itself.
    let input = child.stdin.take();
    let output = child.wait_with_output().expect("ours");
    drop(input);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    let words = format!("did not come back within 15s: restored pid {pid} did not reach the broker at ");
    assert!(said.contains(&words), "{said}");
    is_over();
    std::fs::write(&path, &whole).expect("ours");
    let mut again = restore(rig, &criu, &[]);
    again.expect("check a 165", "check 0 0");
    assert!(save(rig, &criu, &[]).is_ok());
    assert_eq!(again.finish().code(), Some(0));
}

/// `kill` as the job's user; answers whether the signal was sent.
fn signals(rig: &Rig, signal: &str, pid: u32) -> bool {
    let mut command = MEMBER.command(rig, "/bin/kill");
    command.args([signal, &pid.to_string()]);
    rig.output(command).status.success()
}

fn helper_is_safe(rig: &Rig) {
    if is_skipped("a_user_cannot_signal_the_helper_that_calls_for_the_job") {
        return;
    }
    let host = Host::start(rig, "schema = 1\n");
    let mut client = filled_of(rig, &MEMBER, "theirs");
    set_faults(rig, "stands:lock");
    let mut suspend = rig.partage(&["suspend", "theirs"]);
    let mut suspend = suspend.stdout(Stdio::null()).spawn().expect("it starts");
    let mut helper = 0;
    rig.eventually(PATIENCE, "a helper calls for the job's user", || {
        helper = helper_of(host.broker.id()).unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{helper}/status")).unwrap_or_default();
        status
            .lines()
            .any(|line| line.starts_with("Uid:") && line.contains(MEMBER.uid))
    });
    for signal in ["-STOP", "-KILL", "-TERM"] {
        assert!(!signals(rig, signal, helper), "the user sent {signal} to the helper");
    }
    let mut trace = MEMBER.command(rig, "/bin/cat");
    trace.arg(format!("/proc/{helper}/environ"));
    assert!(
        !rig.output(trace).status.success(),
        "the user read the helper's environment"
    );
    // Root may; administrators see that it was lost, and the job leaves all the same. One that had just answered ends
    // unseen, and another one calls in its place.
    rig.eventually(PATIENCE, "its loss is an event", || {
        let said = ok(rig, &["events"]);
        if said.contains("helper-lost") {
            assert!(
                said.contains("j1: the helper that calls the driver for it was lost"),
                "{said}"
            );
            return true;
        }
        if let Some(helper) = helper_of(host.broker.id()) {
            // SAFETY: it is the broker's child, which the broker does not collect while it is asked for here.
            unsafe { libc::kill(helper.cast_signed(), libc::SIGKILL) };
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
        false
    });
    set_faults(rig, "");
    assert!(suspend.wait().expect("ours").success());
    assert_eq!(state(rig, "theirs"), "suspended");
    ok(rig, &["resume", "theirs"]);
    client.expect("check a 165", "check 0 0");
    assert!(client.finish().success());
    drop(host);
}

fn stop_spares(rig: &Rig) {
    if is_skipped("a_users_stop_leaves_roots_processes_alone") {
        return;
    }
    let host = Host::start(rig, "schema = 1\n");
    rig.installed();
    // What `sudo` does: the user's child becomes root's.
    let suid = rig.dir.join("suid");
    assert!(
        Command::new("/bin/cp")
            .arg("/usr/bin/setpriv")
            .arg(&suid)
            .status()
            .is_ok_and(|done| done.success())
    );
    std::fs::set_permissions(&suid, std::fs::Permissions::from_mode(0o4755)).expect("ours");
    let mut command = MEMBER.partage(rig);
    let script =
        "\"$0\" --reuid=0 --clear-groups /bin/sleep 600 >/dev/null 2>&1 </dev/null & echo $!; exec /bin/sleep 600";
    command
        .args(["run", "-m", "1GiB", "--name", "theirs", "--", "/bin/sh", "-c", script])
        .arg(&suid);
    let mut job = Client::start(command);
    let roots: u32 = job.answer().parse().expect("its number");
    let uids = || std::fs::read_to_string(format!("/proc/{roots}/status")).unwrap_or_default();
    if uids().is_empty() {
        rig.note("skipped: no program changes its user here");
        return;
    }
    rig.eventually(PATIENCE, "it is root's", || uids().contains("Uid:\t0\t0\t0\t0"));
    assert!(!signals(rig, "-TERM", roots), "its user may signal it");
    let (code, said) = MEMBER.say(rig, &["stop", "theirs", "--grace", "2s"]);
    assert_eq!(code, Some(0), "{said}");
    let words = format!("j1 has ended: pid {roots} of root was not signalled, which is another user's");
    assert!(said.contains(&words), "{said}");
    assert!(uids().contains("Uid:\t0"), "root's process was ended");
    // SAFETY: it was seen to be root's child of this case just now.
    unsafe { libc::kill(roots.cast_signed(), libc::SIGKILL) };
    job.kill();
    // Root stops all of one.
    let mut command = MEMBER.partage(rig);
    command
        .args(["run", "-m", "1GiB", "--name", "second", "--", "/bin/sh", "-c", script])
        .arg(&suid);
    let mut job = Client::start(command);
    let roots: u32 = job.answer().parse().expect("its number");
    let said = ok(rig, &["stop", "second"]);
    assert_eq!(said, "j2 has ended");
    rig.eventually(PATIENCE, "root's word ends both", || {
        let stat = std::fs::read_to_string(format!("/proc/{roots}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    });
    job.kill();
    drop(host);
}

fn open_configuration(rig: &Rig) {
    if is_skipped("a_configuration_that_others_may_write_is_not_taken") {
        return;
    }
    let host = Host::start(rig, "schema = 1\n");
    let path = config(rig);
    let mode = |mode: u32| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
    mode(0o666);
    // Another user writes, and root reads it again.
    let mut write = OWNER.command(rig, "/bin/sh");
    write
        .args(["-c", "printf '%s' \"$1\" > \"$0\""])
        .arg(&path)
        .arg("schema = 1\n# theirs\n");
    assert!(rig.output(write).status.success());
    let output = rig.output(rig.partage(&["config", "reload"]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let words = format!("{} has mode 666, and others may write to it", path.display());
    assert!(said.contains(&words), "{said}");
    // The next broker does not begin with it.
    let refused = |host: Host<'_>| {
        drop(host);
        let mut command = rig.command(crate::artefacts::built("partaged"));
        command.arg("--managed").arg("--config").arg(&path);
        rig.output(command)
    };
    let output = refused(host);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(&words), "{said}");
    mode(0o644);
    let host = Host::start(rig, "schema = 1\n");
    assert!(
        host.reload("schema = 1\n[audit]\ntolerance = \"32MiB\"\n"),
        "root's own is taken"
    );
    drop(host);
}
