// SPDX-License-Identifier: Apache-2.0
//! What can be in the way of a restore: a snapshot that does not fit, a broker that dies, a disk that is full.

use std::path::{Path, PathBuf};
use std::process::Command;

use partage_protocol::message::MAJOR;
use partage_protocol::snapshot::{FORMAT, Manifest};

use super::super::Case;
use super::said::{filled_with, ok, state};
use super::saved::{criu, folder, not_restored, restore, save, slow_criu, with_criu};
use crate::client::{Client, PATIENCE};
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    const WHY: &str = "a real GPU's cycle with CRIU is the acceptance script's";
    vec![
        Case::new(
            "residence::a_snapshot_that_does_not_fit_is_refused_by_the_name_of_the_field",
            unfit,
        )
        .simulated(WHY),
        Case::new("residence::a_brokers_death_in_a_restore_loses_nothing", broker_dies).simulated(WHY),
        Case::new("residence::a_restore_without_disk_fails_and_can_be_repeated", full).simulated(WHY),
        Case::new("residence::a_snapshot_on_a_read_only_disk_is_restored", read_only).simulated(WHY),
    ]
}

/// A job that was saved and ended.
pub(super) fn saved(rig: &Rig, criu: &Path) {
    let mut client = filled_with(rig, "one", "4GiB", 64, &[]);
    save(rig, criu, &["--stop"]).expect("saved");
    client.kill();
    rig.eventually(PATIENCE, "it has ended", || state(rig, "one").is_empty());
}

fn runs_again(rig: &Rig, mut again: Client) {
    again.expect("check a 165", "check 0 0");
    assert_eq!(again.finish().code(), Some(0));
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}

fn manifest_path(rig: &Rig) -> PathBuf {
    Path::new(&folder(rig)).join("gen-0001/manifest.json")
}

/// Makes a manifest say something else.
type Change = fn(&mut Manifest);

fn unfit(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    saved(rig, &criu);
    let whole = std::fs::read(manifest_path(rig)).expect("there");
    let wrong: [(&str, Change); 10] = [
        ("format: ", |manifest| manifest.format = FORMAT + 1),
        ("uid: it was a job of uid ", |manifest| manifest.job.uid += 1),
        ("processor: this one lacks ", |manifest| {
            manifest.processor = "GenuineIntel; fpu avx4096".to_owned();
        }),
        ("protocol: ", |manifest| manifest.protocol = Some(MAJOR + 1)),
        ("library: ", |manifest| {
            manifest.files.retain(|file| !file.path.starts_with("files/"))
        }),
        ("driver: 570.1 was saved, and ", |manifest| {
            manifest.driver = "570.1".to_owned()
        }),
        ("devices: ", |manifest| {
            let mut other = manifest.devices[0].clone();
            other.uuid = other.uuid.chars().rev().collect();
            manifest.devices.push(other);
        }),
        ("devices: ", |manifest| manifest.devices[0].name.push('X')),
        ("devices: ", |manifest| manifest.devices[0].total_bytes *= 2),
        ("devices: ", |manifest| {
            manifest.devices[0].uuid = "GPU-00000000-0000-0000-0000-000000000000".to_owned()
        }),
    ];
    let events = ok(rig, &["events"]);
    for (field, change) in wrong {
        let mut manifest = Manifest::parse(&whole).expect("whole");
        change(&mut manifest);
        std::fs::write(manifest_path(rig), manifest.text()).expect("ours");
        let (code, said) = not_restored(rig, &criu, &[]);
        assert_eq!(code, Some(125), "{said}");
        assert!(
            said.contains(&format!(" cannot be restored: {field}")) || said.contains(&format!("here: {field}")),
            "{said}"
        );
    }
    // No job was begun for any of them.
    let later = ok(rig, &["events"]);
    assert_eq!(
        events.matches("job-admitted").count(),
        later.matches("job-admitted").count()
    );
    std::fs::write(manifest_path(rig), &whole).expect("ours");
    // Somebody else's.
    let owner = |uid| std::os::unix::fs::chown(folder(rig), Some(uid), None).expect("root may");
    owner(65_534);
    let (code, said) = not_restored(rig, &criu, &[]);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("belongs to uid 65534, not to uid 0"), "{said}");
    owner(0);
    runs_again(rig, restore(rig, &criu, &[]));
}

fn broker_dies(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    saved(rig, &criu);
    let (slow, go) = slow_criu(rig, &criu, "restore");
    let again = restore(rig, &slow, &[]);
    rig.eventually(PATIENCE, "it is to come back", || state(rig, "one") == "suspended");
    let old = rig.broker_pid_quick().expect("a broker");
    // SAFETY: the process is this rig's own broker.
    unsafe { libc::kill(old.cast_signed(), libc::SIGKILL) };
    std::fs::write(&go, b"").expect("ours");
    runs_again(rig, again);
}

/// `partage restore` after `first`, in a mount namespace of its own.
fn after(rig: &Rig, criu: &Path, first: &str) -> Command {
    let folder = folder(rig);
    let restore = with_criu(rig, criu, &["restore", &folder]);
    let mut command = rig.command("unshare");
    let script = format!("set -e; {first}; exec \"$0\" \"$@\"");
    command
        .args(["--mount", "sh", "-c", &script])
        .arg(restore.get_program());
    command.args(restore.get_args()).env("PARTAGE_CRIU", criu);
    command
}

fn full(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    saved(rig, &criu);
    let small = rig.dir.join("small");
    std::fs::create_dir(&small).expect("ours");
    let path = small.display();
    let first = format!("mount -t tmpfs -o size=16k small '{path}'; cat /dev/zero >'{path}/all' 2>/dev/null || true");
    let mut command = after(rig, &criu, &first);
    command.env("TMPDIR", &small);
    let output = rig.output(command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(
        said.contains("the processes could not be restored: ") && said.contains("No space left on device"),
        "{said}"
    );
    rig.eventually(PATIENCE, "nothing is left", || {
        state(rig, "one").is_empty() && rig.ledger_used() == 0
    });
    runs_again(rig, restore(rig, &criu, &[]));
}

fn read_only(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    saved(rig, &criu);
    let folder = folder(rig);
    let first = format!("mount --bind '{folder}' '{folder}'; mount -o remount,bind,ro '{folder}'");
    let again = Client::start(after(rig, &criu, &first));
    runs_again(rig, again);
}
