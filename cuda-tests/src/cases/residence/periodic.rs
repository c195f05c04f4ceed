// SPDX-License-Identifier: Apache-2.0
//! Jobs that are saved again and again by their broker.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use partage_protocol::snapshot::Manifest;
use partage_protocol::units::SECOND_NS;

use super::super::Case;
use super::said::{kill_broker, ok, state};
use super::saved::{criu, folder, restore, save, with_criu};
use crate::artefacts;
use crate::client::{Client, PATIENCE};
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    const WHY: &str = "a real GPU's cycle with CRIU is the acceptance script's";
    vec![
        Case::new("residence::a_job_is_saved_again_and_again", again_and_again).simulated(WHY),
        Case::new("residence::the_next_broker_saves_a_job_when_it_is_due", goes_on).simulated(WHY),
        Case::new(
            "residence::a_periodic_save_that_cannot_work_is_refused_at_the_start",
            refused,
        )
        .simulated(WHY),
    ]
}

/// The next broker goes on from the newest generation's time, not from its own start.
fn goes_on(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let out = folder(rig);
    let every = ["--checkpoint-every", "1h", "--checkpoint-out", &out];
    let options = [&["-m", "4GiB", "-g", "0", "--name", "one"][..], &every].concat();
    let mut run = rig.run(&options, &artefacts::client(), &[]);
    run.env("PARTAGE_CRIU", &criu);
    let mut client = Client::start(run);
    client.ready();
    client.expect("alloc 67108864 a", "alloc 0");
    client.expect("fill a 165", "fill 0 165 165");
    save(rig, &criu, &[]).expect("saved");
    // Two hours went by; the broker that lives counts from what it saw.
    let path = Path::new(&out).join("gen-0001/manifest.json");
    let mut manifest = Manifest::parse(&std::fs::read(&path).expect("there")).expect("whole");
    manifest.made_unix_ns -= 2 * 3_600 * SECOND_NS;
    std::fs::write(&path, manifest.text()).expect("ours");
    kill_broker(rig);
    rig.eventually(PATIENCE, "the next broker saves it", || {
        Path::new(&out).join("gen-0002").exists()
    });
    rig.eventually(PATIENCE, "it goes on", || state(rig, "one") == "running");
    client.expect("check a 165", "check 0 0");
    // Once, and not again before an hour is over.
    kill_broker(rig);
    client.expect("check a 165", "check 0 0");
    assert!(ok(rig, &["why", "one"]).contains("every 1h"));
    assert!(!Path::new(&out).join("gen-0003").exists());
    client.kill();
}

/// How many saves came to an end well, and how many did not.
fn saves(rig: &Rig) -> (usize, usize) {
    let events = ok(rig, &["events"]);
    (
        events.matches("job-saved").count(),
        events.matches("save-failed").count(),
    )
}

/// Waits for one more of them.
fn one_more(rig: &Rig, what: &str, count: impl Fn(&Rig) -> usize) {
    let before = count(rig);
    rig.eventually(PATIENCE, what, || count(rig) > before);
}

fn again_and_again(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let out = folder(rig);
    let mut run = rig.run(
        &[
            "-m",
            "4GiB",
            "-g",
            "0",
            "--name",
            "one",
            "--checkpoint-every",
            "1s",
            "--checkpoint-out",
            &out,
        ],
        &artefacts::client(),
        &[],
    );
    run.env("PARTAGE_CRIU", &criu);
    let mut client = Client::start(run);
    client.ready();
    client.expect("alloc 67108864 a", "alloc 0");
    client.expect("fill a 165", "fill 0 165 165");
    let rule = format!("it is saved in {out} every 1s (--checkpoint-every)");
    assert!(ok(rig, &["why", "one"]).contains(&rule));
    rig.eventually(PATIENCE, "it is saved", || saves(rig).0 >= 3);
    // What cannot be written to now can be later.
    let mode = |mode| std::fs::set_permissions(&out, std::fs::Permissions::from_mode(mode)).expect("ours");
    mode(0o755);
    one_more(rig, "a save fails", |rig| saves(rig).1);
    assert!(ok(rig, &["events"]).contains("j1 goes on, and is not saved: "));
    client.expect("check a 165", "check 0 0");
    mode(0o700);
    one_more(rig, "it is saved again", |rig| saves(rig).0);
    kill_broker(rig);
    assert!(ok(rig, &["why", "one"]).contains(&rule));
    one_more(rig, "the next broker saves it", |rig| saves(rig).0);
    client.expect("check a 165", "check 0 0");
    // While it is suspended it is not.
    rig.eventually(PATIENCE, "it is suspended", || {
        rig.output(rig.partage(&["suspend", "one"])).status.success()
    });
    let count = saves(rig);
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    assert_eq!(saves(rig), count);
    ok(rig, &["resume", "one"]);
    one_more(rig, "it is saved when it is back", |rig| saves(rig).0);
    client.kill();
    rig.eventually(PATIENCE, "it has ended", || state(rig, "one").is_empty());
    let kept = std::fs::read_dir(&out).expect("there").flatten();
    let kept = kept
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("gen-"))
        .count();
    assert!((1..=2).contains(&kept), "{kept} generations");
    let mut again = restore(rig, &criu, &[]);
    again.expect("check a 165", "check 0 0");
    assert_eq!(again.finish().code(), Some(0));
}

fn refused(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let out = folder(rig);
    let foreign = rig.dir.join("foreign").display().to_string();
    std::fs::create_dir(&foreign).expect("ours");
    std::fs::set_permissions(&foreign, std::fs::Permissions::from_mode(0o700)).expect("ours");
    std::os::unix::fs::chown(&foreign, Some(65_534), None).expect("root may");
    let open = rig.dir.join("open").display().to_string();
    std::fs::create_dir(&open).expect("ours");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).expect("ours");
    let wrong: [(&[&str], String); 7] = [
        (
            &["--checkpoint-every", "1", "--checkpoint-out", &out],
            "--checkpoint-every: ".to_owned(),
        ),
        (
            &["--checkpoint-every", "500ms", "--checkpoint-out", &out],
            "--checkpoint-every: \"500ms\" is less than 1s".to_owned(),
        ),
        (
            &["--checkpoint-every", "10m"],
            "--checkpoint-every: where to? Say --checkpoint-out DIR too".to_owned(),
        ),
        (
            &["--checkpoint-out", &out],
            "--checkpoint-out: how often? Say --checkpoint-every DUR too".to_owned(),
        ),
        (
            &["--checkpoint-every", "10m", "--checkpoint-out", "/nowhere/at/all"],
            "cannot make /nowhere/at/all: ".to_owned(),
        ),
        (
            &["--checkpoint-every", "10m", "--checkpoint-out", &foreign],
            format!("--checkpoint-every: {foreign} belongs to uid 65534, not to uid 0"),
        ),
        (
            &["--checkpoint-every", "10m", "--checkpoint-out", &open],
            format!("--checkpoint-every: {open} has mode 755: others could read the job's memory in it"),
        ),
    ];
    for (options, sentence) in wrong {
        let mut run = rig.run(options, Path::new("/bin/true"), &[]);
        run.env("PARTAGE_CRIU", &criu);
        let output = rig.output(run);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(125) && said.contains(&sentence),
            "{options:?}: {said}"
        );
    }
    assert_eq!(ok(rig, &["events"]).matches("job-admitted").count(), 0);
    refused_by_disk(rig, &criu);
}

/// A disk that is read-only for its broker.
fn refused_by_disk(rig: &Rig, criu: &Path) {
    let out = folder(rig);
    std::fs::create_dir_all(&out).expect("ours");
    std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o700)).expect("ours");
    ok(rig, &["broker", "stop"]);
    let run = with_criu(
        rig,
        criu,
        &[
            "run",
            "--checkpoint-every",
            "10m",
            "--checkpoint-out",
            &out,
            "/bin/true",
        ],
    );
    let mut command = rig.command("unshare");
    let script = format!("mount --bind '{out}' '{out}'; mount -o remount,bind,ro '{out}'; exec \"$0\" \"$@\"");
    command.args(["--mount", "sh", "-c", &script]).arg(run.get_program());
    command.args(run.get_args()).env("PARTAGE_CRIU", criu);
    let output = rig.output(command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let sentence = format!("--checkpoint-every: cannot write to {out}: read-only file system");
    assert!(output.status.code() == Some(125) && said.contains(&sentence), "{said}");
}
