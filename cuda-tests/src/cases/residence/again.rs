// SPDX-License-Identifier: Apache-2.0
//! Restored jobs are saved like any other: again and again, from namespace to namespace.

use std::path::Path;
use std::process::{Command, Stdio};

use partage_protocol::snapshot::{Manifest, SavedTerms};
use partage_protocol::units::SECOND_NS;

use super::super::Case;
use super::said::{filled_with, kill_broker, next_broker, ok, state};
use super::saved::{criu, folder, save, slow_criu, with_criu};
use super::saved_trees::{forget_names, start_ring};
use crate::client::{Client, PATIENCE};
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    const WHY: &str = "a real GPU's cycle with CRIU is the acceptance script's";
    vec![
        Case::new("residence::a_restored_job_is_saved_and_restored_again", rounds).simulated(WHY),
        Case::new(
            "residence::a_restored_tree_is_saved_with_its_semaphores_and_restored_again",
            ring,
        )
        .simulated(WHY),
        Case::new("residence::a_restored_job_keeps_what_it_asked_for", terms).simulated(WHY),
        Case::new(
            "residence::a_restore_is_not_ended_by_what_it_ignores_and_leaves_nothing_behind",
            ignores,
        )
        .simulated(WHY),
        Case::new(
            "residence::a_restored_job_is_saved_again_and_again_by_its_broker",
            by_itself,
        )
        .simulated(WHY),
        Case::new(
            "residence::a_brokers_death_while_a_restored_job_is_saved_loses_nothing",
            broker_dies,
        )
        .simulated(WHY),
        Case::new(
            "residence::a_job_that_was_restored_on_a_terminal_is_not_saved_and_goes_on",
            terminal,
        )
        .simulated(WHY),
    ]
}

/// `partage restore` in a session without a terminal, wherever the tests run.
fn command(rig: &Rig, criu: &Path, more: &[&str]) -> Command {
    let folder = folder(rig);
    let restore = with_criu(rig, criu, &[&["restore", &folder][..], more].concat());
    let mut command = rig.command("setsid");
    command.arg(restore.get_program()).args(restore.get_args());
    command.env("PARTAGE_CRIU", criu);
    command
}

fn restore(rig: &Rig, criu: &Path, more: &[&str]) -> Client {
    Client::start(command(rig, criu, more))
}

fn one(rig: &Rig, more: &[&str]) -> Client {
    filled_with(rig, "one", "4GiB", 64, more)
}

fn is_over(rig: &Rig) {
    rig.eventually(PATIENCE, "nothing is left", || {
        state(rig, "one").is_empty() && rig.ledger_used() == 0
    });
}

fn rounds(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = one(rig, &[]);
    let pid = client.say("pid");
    for round in 0_u32..4 {
        let byte = 165 + round;
        client.expect(&format!("check a {byte}"), "check 0 0");
        client.expect(&format!("fill a {}", byte + 1), &format!("fill 0 {0} {0}", byte + 1));
        if round == 2 {
            // The next broker knows it as one that was restored.
            kill_broker(rig);
            rig.eventually(PATIENCE, "its client is back", || {
                rig.output(rig.partage(&["suspend", "one"])).status.success()
            });
            ok(rig, &["resume", "one"]);
        }
        let more: &[&str] = if round == 3 { &["--stop"] } else { &[] };
        let said = save(rig, &criu, more).expect("saved");
        assert!(said.contains(&format!(", generation {}: ", round + 1)), "{said}");
        if round < 3 {
            client.expect(&format!("check a {}", byte + 1), "check 0 0");
            // What it does after that is lost with it.
            client.expect("fill a 7", "fill 0 7 7");
        }
        client.kill();
        is_over(rig);
        client = restore(rig, &criu, &[]);
        assert_eq!(client.say("pid"), pid, "its own number");
    }
    client.expect("check a 169", "check 0 0");
    ok(rig, &["suspend", "one"]);
    ok(rig, &["resume", "one"]);
    client.expect("check a 169", "check 0 0");
    assert_eq!(client.finish().code(), Some(0));
    is_over(rig);
    // What was saved of a restored job is as good a snapshot as the first one.
    let mut before = restore(rig, &criu, &["--generation", "3"]);
    before.expect("check a 168", "check 0 0");
    assert_eq!(before.finish().code(), Some(0));
}

fn ring(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = start_ring(rig);
    let mut count = 0;
    for generation in 1..=3 {
        count += 2;
        client.expect("round 2", &format!("round {count} {count} {count} good"));
        save(rig, &criu, &["--stop"]).expect("saved");
        client.kill();
        is_over(rig);
        forget_names(rig, generation);
        client = restore(rig, &criu, &[]);
    }
    client.expect("round 1", "round 7 7 7 good");
    assert_eq!(client.finish().code(), Some(0));
    is_over(rig);
}

fn manifest(rig: &Rig, generation: u64) -> Manifest {
    let path = Path::new(&folder(rig)).join(format!("gen-{generation:04}/manifest.json"));
    Manifest::parse(&std::fs::read(path).expect("there")).expect("whole")
}

fn terms(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let asked = [
        ["--process-mem", "3GiB"],
        ["--time-limit", "1h"],
        ["--idle-release", "30m"],
        ["--label", "team=vision"],
    ];
    let mut asked = asked.concat();
    asked.extend(["--strict", "--preemptible"]);
    let mut client = one(rig, &asked);
    save(rig, &criu, &["--stop"]).expect("saved");
    client.kill();
    is_over(rig);
    let mut client = restore(rig, &criu, &[]);
    client.expect("check a 165", "check 0 0");
    save(rig, &criu, &[]).expect("saved");
    assert_eq!(client.finish().code(), Some(0));
    let (first, second) = (manifest(rig, 1).job, manifest(rig, 2).job);
    let left = |terms: &SavedTerms| terms.time_left_ns.expect("it has a limit");
    let (before, after) = (left(&first.terms), left(&second.terms));
    assert!(after <= before && before < 3_600 * SECOND_NS && after > 3_000 * SECOND_NS);
    let whole = SavedTerms {
        process_bytes: Some(3 << 30),
        time_left_ns: Some(before),
        preemptible: Some(true),
        idle_release_ns: Some(1_800 * SECOND_NS),
        strict: true,
        labels: vec![("team".to_owned(), "vision".to_owned())],
    };
    assert_eq!(first.terms, whole);
    let later = SavedTerms {
        time_left_ns: Some(after),
        ..whole
    };
    assert_eq!(second.terms, later);
    let numbers = |job: &partage_protocol::snapshot::SavedJob| (job.limit_bytes, job.request_bytes, job.token.clone());
    assert_eq!(numbers(&first), numbers(&second));
}

/// As `nohup` starts it.
fn ignores(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = one(rig, &[]);
    save(rig, &criu, &["--stop"]).expect("saved");
    client.kill();
    is_over(rig);
    let work = rig.dir.join("work");
    std::fs::create_dir(&work).expect("ours");
    let restore = command(rig, &criu, &[]);
    let mut patient = rig.command("nohup");
    patient.arg(restore.get_program()).args(restore.get_args());
    patient.env("PARTAGE_CRIU", &criu).env("TMPDIR", &work);
    let mut client = Client::start(patient);
    client.expect("check a 165", "check 0 0");
    client.signal(libc::SIGHUP);
    std::thread::sleep(std::time::Duration::from_millis(300));
    client.expect("check a 165", "check 0 0");
    save(rig, &criu, &["--stop"]).expect("saved");
    assert!(!client.finish().success());
    is_over(rig);
    let left = std::fs::read_dir(&work).expect("there").count();
    assert_eq!(left, 0, "files in {}", work.display());
}

fn by_itself(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = one(rig, &[]);
    save(rig, &criu, &["--stop"]).expect("saved");
    client.kill();
    is_over(rig);
    for (wrong, sentence) in [
        (&["--checkpoint-every", "1"][..], "--checkpoint-every: "),
        (
            &["--checkpoint-every", "500ms"][..],
            "--checkpoint-every: \"500ms\" is less than 1s",
        ),
        (&["--checkpoint-out", "/tmp"][..], "--checkpoint-every"),
    ] {
        let output = rig.output(command(rig, &criu, wrong));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(125) && said.contains(sentence),
            "{wrong:?}: {said}"
        );
    }
    let mut client = restore(rig, &criu, &["--checkpoint-every", "1s"]);
    client.expect("check a 165", "check 0 0");
    client.expect("fill a 9", "fill 0 9 9");
    let saves = || ok(rig, &["events"]).matches("job-saved").count();
    let before = saves();
    rig.eventually(PATIENCE, "it is saved twice", || saves() >= before + 2);
    let rule = format!("it is saved in {} every 1s (--checkpoint-every)", folder(rig));
    assert!(ok(rig, &["why", "one"]).contains(&rule));
    assert!(!ok(rig, &["events"]).contains("save-failed"));
    client.kill();
    is_over(rig);
    let mut client = restore(rig, &criu, &[]);
    client.expect("check a 9", "check 0 0");
    assert_eq!(client.finish().code(), Some(0));
}

fn broker_dies(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = one(rig, &[]);
    save(rig, &criu, &["--stop"]).expect("saved");
    client.kill();
    is_over(rig);
    let mut client = restore(rig, &criu, &[]);
    client.expect("fill a 9", "fill 0 9 9");
    let folder = folder(rig);
    let (slow, go) = slow_criu(rig, &criu, "dump");
    let mut command = with_criu(rig, &slow, &["checkpoint", "one", "--out", &folder]);
    let mut command = command.stderr(Stdio::null()).spawn().expect("it starts");
    rig.eventually(PATIENCE, "the dump is under way", || {
        rig.socket_dir().join("state/snapshots/j2.order").exists()
    });
    let old = rig.broker_pid_quick().expect("a broker");
    // SAFETY: the process is this rig's own broker.
    unsafe { libc::kill(old.cast_signed(), libc::SIGKILL) };
    next_broker(rig, old);
    assert!(!command.wait().expect("ours").success());
    std::fs::write(&go, b"").expect("ours");
    client.expect("check a 9", "check 0 0");
    rig.eventually(PATIENCE, "it runs", || state(rig, "one") == "running");
    client.kill();
    is_over(rig);
    let mut client = restore(rig, &criu, &["--generation", "2"]);
    client.expect("check a 9", "check 0 0");
    assert_eq!(client.finish().code(), Some(0));
}

/// Takes a terminal of its own, and becomes a command in its session.
const ON_A_TERMINAL: &str = "
import fcntl, os, sys, termios
master, slave = os.openpty()
os.set_inheritable(master, True)
os.setsid()
fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
";

fn terminal(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = one(rig, &[]);
    save(rig, &criu, &["--stop"]).expect("saved");
    client.kill();
    is_over(rig);
    let folder = folder(rig);
    let restore = with_criu(rig, &criu, &["restore", &folder]);
    let mut command = rig.command(crate::cases::matrix::python());
    command.args(["-c", ON_A_TERMINAL]).arg(restore.get_program());
    command.args(restore.get_args()).env("PARTAGE_CRIU", &criu);
    let mut client = Client::start(command);
    client.expect("check a 165", "check 0 0");
    let (code, said) = save(rig, &criu, &[]).expect_err("its session is the terminal's");
    let text = "is in a session that began outside its pid namespace, which CRIU cannot save: restore it with --detach";
    assert!(code == Some(1) && said.contains(text), "{said}");
    client.expect("check a 165", "check 0 0");
    assert_eq!(client.finish().code(), Some(0));
    is_over(rig);
}
