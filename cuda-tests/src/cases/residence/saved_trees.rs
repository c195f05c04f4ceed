// SPDX-License-Identifier: Apache-2.0
//! Jobs of several processes in a snapshot: what they share by name comes back with them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::super::Case;
use super::said::{state, train, trains};
use super::saved::{criu, folder, restore, save, slow_criu, with_criu};
use super::trained::Held;
use crate::artefacts::package_dir;
use crate::cases::matrix::python;
use crate::cases::{Random, tenth};
use crate::client::{Client, PATIENCE};
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    const WHY: &str = "a real GPU's cycle with CRIU is the acceptance script's";
    vec![
        Case::new("residence::training_is_saved_and_comes_back_bit_by_bit", training).simulated(WHY),
        Case::new(
            "residence::processes_that_share_semaphores_and_pipes_come_back_together",
            ring,
        )
        .simulated(WHY),
        Case::new(
            "residence::a_job_of_which_a_process_ends_while_it_is_saved_goes_on_unsaved",
            one_ends,
        )
        .simulated(WHY),
        Case::new(
            "residence::a_job_whose_session_began_outside_is_not_saved_and_goes_on",
            outside,
        )
        .simulated(WHY),
    ]
}

/// A process and all below it.
fn tree(root: u32) -> Vec<u32> {
    let mut tree = vec![root];
    let mut at = 0;
    while at < tree.len() {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", tree[at]));
        for task in tasks.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            tree.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        at += 1;
    }
    tree
}

/// SIGKILL to all of a job, at once.
pub(super) fn kill_all(rig: &Rig, root: u32, job: &str) {
    let tree = tree(root);
    for pid in &tree {
        // SAFETY: processes of a job of this rig's.
        unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
    }
    rig.eventually(PATIENCE, "it has ended", || state(rig, job).is_empty());
}

fn training(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let steps = 400 / tenth() * 2;
    let Some(alone) = train(rig, "alone", steps) else {
        return;
    };
    let alone = rig.output(alone);
    assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stderr));
    let mut random = Random::new(0x5a7e);
    // At random moments, and once where it stands still and can be looked at before and after.
    let rounds = 10 / tenth();
    for round in 0..=rounds {
        let Some(mut train) = train(rig, "one", steps) else {
            return;
        };
        let stops = Stops::of(rig, round);
        if round == 0 {
            train.env("STOPS", &stops.0);
        }
        let mut train = train.spawn().expect("it starts");
        trains(rig, "one");
        let early = (round == 0).then(|| stops.held(rig));
        std::thread::sleep(Duration::from_millis(random.below(200)));
        let processes = tree(train.id()).len();
        save(rig, &criu, &[]).expect("saved");
        kill_all(rig, train.id(), "one");
        train.wait().expect("ours");
        // The last one as after a reboot.
        if round == rounds {
            forget_everything(rig);
        }
        let folder = folder(rig);
        let mut again = with_criu(rig, &criu, &["restore", &folder]);
        again.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let again = again.spawn().expect("it starts");
        if let Some(early) = early {
            trains(rig, "one");
            let late = stops.held(rig);
            rig.note(format!("{early:?} before, {late:?} restored"));
            late.is_flat(&early);
        }
        stops.go_on();
        let again = again.wait_with_output().expect("ours");
        let said = String::from_utf8_lossy(&again.stderr).into_owned();
        assert!(again.status.success(), "round {round}, {processes} processes: {said}");
        let (alone, again) = (
            String::from_utf8_lossy(&alone.stdout),
            String::from_utf8_lossy(&again.stdout),
        );
        assert_eq!(alone, again, "the losses differ in round {round}");
        rig.note(format!("round {round}: {processes} processes"));
        rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
    }
}

/// Where a training stands until it may go on.
struct Stops(PathBuf);

impl Stops {
    fn of(rig: &Rig, round: usize) -> Self {
        let folder = rig.dir.join(format!("stops{round}"));
        std::fs::create_dir(&folder).expect("ours");
        Self(folder)
    }

    /// What the job's first process holds, once it stands.
    fn held(&self, rig: &Rig) -> Held {
        rig.eventually(PATIENCE, "it stands", || self.0.join("settled").exists());
        let jobs = rig.jobs();
        let job = jobs.iter().find(|view| view["name"] == "one").expect("it is listed");
        let pid = job["clients"][0]["pid"].as_u64().expect("a client");
        Held::of(rig, "one", u32::try_from(pid).expect("a pid"))
    }

    fn go_on(&self) {
        for name in ["settled.go", "done.go"] {
            std::fs::write(self.0.join(name), b"").expect("ours");
        }
    }
}

/// No broker, nothing of its folder, another machine of the same devices.
fn forget_everything(rig: &Rig) {
    if let Some(broker) = rig.broker_pid_quick() {
        // SAFETY: the process is this rig's own broker.
        unsafe { libc::kill(broker.cast_signed(), libc::SIGKILL) };
        rig.eventually(PATIENCE, "the broker is gone", || {
            !Path::new(&format!("/proc/{broker}/fd/0")).exists()
        });
    }
    std::fs::remove_dir_all(rig.socket_dir()).expect("ours");
    rig.remake_machine();
}

pub(super) fn start_ring(rig: &Rig) -> Client {
    let script = package_dir().join("programs/ring.py").display().to_string();
    Client::start(rig.run(&["-m", "2GiB", "-g", "0", "--name", "one"], &python(), &[&script]))
}

fn ring(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = start_ring(rig);
    client.expect("round 5", "round 5 5 5 good");
    save(rig, &criu, &[]).expect("saved");
    client.expect("round 3", "round 8 8 8 good");
    save(rig, &criu, &["--stop"]).expect("saved");
    client.kill();
    rig.eventually(PATIENCE, "it has ended", || state(rig, "one").is_empty());
    forget_names(rig, 2);
    for (generation, count) in [("1", 5), ("2", 8), ("1", 5)] {
        let mut again = restore(rig, &criu, &["--generation", generation]);
        for count in [count + 1, count + 2] {
            again.expect("round 1", &format!("round {count} {count} {count} good"));
        }
        assert_eq!(again.finish().code(), Some(0));
        rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
    }
}

/// A job's semaphores are left with it; CRIU's links beside them are not.
pub(super) fn forget_names(rig: &Rig, generation: u64) {
    for name in saved_names(rig, generation) {
        let path = Path::new("/dev/shm").join(&name);
        match name.starts_with("link_remap.") {
            // Another save of this moment may have one of that name.
            true => drop(rig.eventually(PATIENCE, "CRIU's link is gone", || !path.exists())),
            false => drop(std::fs::remove_file(path)),
        }
    }
}

/// The names in `/dev/shm` that a generation has: the semaphore's and the block's at least, and CRIU's links.
fn saved_names(rig: &Rig, generation: u64) -> Vec<String> {
    let path = Path::new(&folder(rig)).join(format!("gen-{generation:04}/manifest.json"));
    let manifest: Value = serde_json::from_slice(&std::fs::read(path).expect("there")).expect("a manifest");
    let files = manifest["shared"]["files"].as_array().cloned().unwrap_or_default();
    assert!(files.len() >= 2, "{files:?}");
    let names = files.iter().filter_map(|file| file["names"].as_array()).flatten();
    let names: Vec<String> = names.filter_map(|name| name.as_str().map(str::to_owned)).collect();
    assert!(names.iter().any(|name| name.starts_with("link_remap.")), "{names:?}");
    names
}

fn one_ends(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut client = start_ring(rig);
    client.expect("round 5", "round 5 5 5 good");
    save(rig, &criu, &[]).expect("saved");
    let (slow, go) = slow_criu(rig, &criu, "dump");
    let folder = folder(rig);
    let mut command = with_criu(rig, &slow, &["checkpoint", "one", "--out", &folder]);
    let command = command.stderr(Stdio::piped()).spawn().expect("it starts");
    rig.eventually(PATIENCE, "the dump is under way", || {
        rig.socket_dir().join("state/snapshots/j1.order").exists()
    });
    let member = tree(client.pid()).into_iter().rfind(|pid| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains("spawn_main")
    });
    let member = member.expect("a member");
    // SAFETY: a process of a job of this rig's.
    unsafe { libc::kill(member.cast_signed(), libc::SIGKILL) };
    std::fs::write(&go, b"").expect("ours");
    let output = command.wait_with_output().expect("ours");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = format!("j1 goes on, and is not saved: pid {member}: ");
    assert!(output.status.code() == Some(1) && said.contains(&text), "{said}");
    assert_eq!(state(rig, "one"), "running");
    kill_all(rig, client.pid(), "one");
    client.kill();
    // The generation before is the newest.
    let mut again = restore(rig, &criu, &[]);
    again.expect("round 1", "round 6 6 6 good");
    assert_eq!(again.finish().code(), Some(0));
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}

/// CRIU cannot say whose session that was. One of the job's own is saved, in the same namespace.
fn outside(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    for (own_session, code, text) in [
        (
            "",
            "1",
            "is in a session that began outside its pid namespace, which CRIU cannot save: start it with setsid \
                   partage run",
        ),
        ("setsid ", "0", "j1 is saved in "),
    ] {
        let mut client = in_namespace(rig, &criu, own_session);
        client.ready();
        client.expect("alloc 67108864 a", "alloc 0");
        client.expect("fill a 165", "fill 0 165 165");
        std::fs::write(rig.dir.join("ask"), b"").expect("ours");
        let (code_file, said) = (rig.dir.join("code"), rig.dir.join("said"));
        let mut found = String::new();
        rig.eventually(PATIENCE, "the command ended", || {
            found = std::fs::read_to_string(&code_file).unwrap_or_default();
            found.ends_with('\n')
        });
        let said = std::fs::read_to_string(said).expect("there");
        assert!(found.trim() == code && said.contains(text), "{found} {said}");
        client.expect("check a 165", "check 0 0");
        assert_eq!(client.finish().code(), Some(0));
        for name in ["ask", "code", "said"] {
            std::fs::remove_file(rig.dir.join(name)).expect("ours");
        }
        std::fs::remove_dir_all(rig.socket_dir()).expect("ours");
    }
}

/// A client in a pid namespace of its own, and a command there that saves it once a file says so. Nobody in the
/// namespace leads its session, but for what `own_session` starts.
fn in_namespace(rig: &Rig, criu: &Path, own_session: &str) -> Client {
    let words = |command: &Command| {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<String> = words.map(|word| format!("'{}'", word.to_string_lossy())).collect();
        words.join(" ")
    };
    let client = crate::artefacts::client();
    let run = rig.run(&["-m", "1GiB", "-g", "0", "--name", "one"], &client, &[]);
    let folder = folder(rig);
    let save = with_criu(rig, criu, &["checkpoint", "one", "--out", &folder]);
    let dir = rig.dir.display();
    let script = format!(
        "exec 3<&0; {own_session}{} <&3 & until [ -e '{dir}/ask' ]; do sleep 0.05; done; {} >'{dir}/said' 2>&1; \
         echo $? >'{dir}/code'; wait $!",
        words(&run),
        words(&save)
    );
    let mut outer = rig.command("unshare");
    outer.args(["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", &script]);
    outer.env("PARTAGE_CRIU", criu);
    Client::start(outer)
}
