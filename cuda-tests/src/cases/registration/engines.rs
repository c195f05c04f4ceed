// SPDX-License-Identifier: Apache-2.0
//! A job of an engine that divides machines, such as Slurm's: a control group that is no container's. It lives by its
//! group, is called as the engine calls it, and what the engine gave it is a most that nobody raises.

use serde_json::json;

use crate::cases::control_group::{Group, Waiting, register};
use crate::cases::ruled_host::{Host, SOON, bare_command, broker, said};
use crate::cases::user::{OWNER, is_root, open_to_all};
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

/// Every job of the host has at most this.
const RULE: &str = "schema = 1\n\n[[rule]]\nname = \"half\"\nmax = { mem = \"8GiB\" }\n";
const ENGINE: [&str; 4] = ["--engine", "slurm:4711", "--engine-words", "shard:5 of 10"];

/// What `why` says of it, in one line.
fn why(rig: &Rig, job: &str) -> String {
    let (_, text) = said(rig, &["why", job]);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One group: its processes come and go one after the other, with brokers killed between them.
pub fn lived_by(rig: &Rig) {
    let Some(group) = Group::make(rig, "job_4711") else {
        return;
    };
    let mut host = Host::start(rig, RULE);
    let mut first = Waiting::start(rig, &group);
    let options = [&ENGINE[..], &["--name", "train", "-m", "1GiB", "-g", "0"]].concat();
    let (code, text) = register(rig, &first.pid(), &options);
    assert_eq!(code, Some(0), "{text}");
    let get = || rig.json(&["get", "slurm:4711"])["job"].clone();
    let job = get();
    let id = job["job"].as_str().expect("an id").to_owned();
    let engine = json!({ "id": "slurm:4711", "words": "shard:5 of 10" });
    assert_eq!((&job["engine"], &job["name"]), (&engine, &json!("train")), "{job}");
    assert_eq!(job["container"]["id"], json!(""), "it is no container: {job}");
    assert!(
        why(rig, &id).contains("for slurm:4711 (shard:5 of 10)"),
        "{}",
        why(rig, &id)
    );
    // The next step of the same job: other numbers change nothing.
    let mut second = Waiting::start(rig, &group);
    let output = rig.json(&["register", "--pid", &second.pid(), "-m", "4GiB", "-g", "1"]);
    assert_eq!(
        (&output["job"], &output["is_new"]),
        (&json!(id), &json!(false)),
        "{output}"
    );
    first.kill();
    let pid = |waits: &Waiting| json!(waits.pid().parse::<u32>().expect("a number"));
    rig.eventually(SOON, "the second is its first", || get()["pid"] == pid(&second));
    let mut member = Client::start(group.inside(bare_command(rig, &[("PARTAGE_MEM_BYTES", "8589934592")])));
    member.ready();
    assert_eq!(member.numbers("info").get(2), Some(&GIB));
    member.kill();
    // While no broker is there the second ends, and a third is left that nobody registered.
    let third = Waiting::start(rig, &group);
    let _ = host.broker.kill();
    let _ = host.broker.wait();
    second.kill();
    host.broker = broker(rig);
    rig.eventually(SOON, "the next broker finds the third", || get()["pid"] == pid(&third));
    drop(third);
    rig.eventually(SOON, "the group is empty, and the job is over", || {
        rig.jobs().is_empty()
    });
    let (_, ended) = said(rig, &["why", &id]);
    assert!(ended.contains("its last process is gone"), "{ended}");
    assert_eq!(rig.truth_allocated(), 0);
    // A process that nobody waits for any more leaves the room to the next one at once.
    let next = Waiting::start(rig, &group);
    let (code, text) = register(rig, &next.pid(), &["-m", "8GiB", "-g", "0"]);
    assert_eq!(code, Some(0), "{text}");
}

/// The job's owner sets its numbers, and root does.
fn nobody_raises(rig: &Rig, id: &str, round: &str) {
    let words = "--at-most of the registration for slurm:4711 (shard:5 of 10), ";
    for setting in ["mem=2GiB", "mem=none", "compute-max=60%"] {
        let by_root = said(rig, &["set", "slurm:4711", setting]);
        for (code, text) in [OWNER.say(rig, &["set", "slurm:4711", setting]), by_root] {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                code == Some(3) && text.contains(words),
                "{round}: {setting}: {code:?}: {text}"
            );
        }
    }
    for setting in ["mem=512MiB", "mem=1GiB"] {
        let (code, text) = OWNER.say(rig, &["set", "slurm:4711", setting]);
        assert_eq!(code, Some(0), "{round}: {setting}: {text}");
    }
    let why = why(rig, id);
    assert!(
        why.contains("with at most mem 1GiB, compute-max 50% (--at-most)"),
        "{why}"
    );
}

/// The engine's most, the node's rule, and the user between them.
pub fn held_down(rig: &Rig) {
    if !is_root() {
        return rig.note("skipped: only root registers other users' processes".to_owned());
    }
    let Some(group) = Group::make(rig, "job_4712") else {
        return;
    };
    let mut host = Host::start(rig, RULE);
    open_to_all(rig);
    rig.installed();
    let first = Waiting::of_user(rig, &group, &OWNER);
    // No engine raises what a rule of the node forbids.
    let (code, text) = register(rig, &first.pid(), &["-m", "9GiB", "-g", "0"]);
    assert!(
        code == Some(3) && text.contains("rule half, max.mem = 8GiB"),
        "{code:?}: {text}"
    );
    let most = [
        "--at-most",
        "mem=1GiB,compute-max=50%",
        "-m",
        "4GiB",
        "--compute-max",
        "80%",
        "-g",
        "0",
    ];
    let (code, text) = register(rig, &first.pid(), &[&ENGINE[..], &most].concat());
    assert_eq!(code, Some(0), "{text}");
    let job = rig.json(&["get", "slurm:4711"])["job"].clone();
    let id = job["job"].as_str().expect("an id").to_owned();
    assert_eq!(job["devices"][0]["limit_bytes"], json!(GIB), "{job}");
    assert_eq!(job["terms"]["cap"], json!(0.5), "{job}");
    // No user raises what an engine gave, nor does an administrator without knowing it.
    for round in ["at once", "after a reload", "at the next broker"] {
        match round {
            "at once" => {}
            "after a reload" => assert!(host.reload(&format!("{RULE}# read again\n"))),
            _ => host = host.again(),
        }
        nobody_raises(rig, &id, round);
    }
    // Nor does whoever is inside the group.
    let output = rig.output(group.inside(rig.partage(&["set", &id, "mem=512MiB"])));
    assert_eq!(
        output.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (code, text) = said(rig, &["set", &id, "mem=2GiB", "--force"]);
    assert!(code == Some(0) && text.contains("2 GiB"), "{text}");
    assert_eq!(rig.jobs()[0]["devices"][0]["limit_bytes"], json!(2048 * MIB));
}
