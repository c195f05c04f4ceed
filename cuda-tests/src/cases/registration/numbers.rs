// SPDX-License-Identifier: Apache-2.0
//! `CUDA_VISIBLE_DEVICES` of a process that came without `run`: the machine's numbers, as a manager of jobs writes
//! them.

use std::process::Command;

use crate::cases::control_group::{Group, ID, Waiting, register};
use crate::cases::ruled_host::{Host, bare_command};
use crate::client::Client;
use crate::rig::Rig;

/// What a program sees with this value: the devices' UUIDs, in its order; none where `cuInit` finds no device.
fn seen(mut command: Command, visible: Option<&str>) -> Vec<String> {
    if let Some(visible) = visible {
        command.env("CUDA_VISIBLE_DEVICES", visible);
    }
    let mut client = Client::start(command);
    let uuids = match client.say("init 0").as_str() {
        "init 0" => {
            let count = client.numbers("count")[1];
            let uuid = |ordinal: u64| client.say(&format!("uuid {ordinal}")).replace("uuid 0 ", "");
            (0..count).map(uuid).collect()
        }
        "init 100" => Vec::new(),
        other => panic!("{other}: {}", client.stderr()),
    };
    client.kill();
    uuids
}

pub fn whoever_set_them(rig: &Rig) {
    let Some(group) = Group::make(rig, ID) else { return };
    let _host = Host::start(rig, "schema = 1\n\n[[rule]]\nname = \"one\"\ngpu = 1\n");
    let bare = || bare_command(rig, &[]);
    let status = rig.json(&["status"]);
    let uuid = |index: usize| {
        status["devices"][index]["uuid"]
            .as_str()
            .expect("two devices")
            .to_owned()
    };
    let (zero, one) = (uuid(0), uuid(1));
    let first = Waiting::start(rig, &group);
    let (code, said) = register(rig, &first.pid(), &["-m", "1GiB", "-g", "1"]);
    assert_eq!(code, Some(0), "{said}");
    let only_one = [one.clone()];
    let inside = |visible| seen(group.inside(bare()), visible);
    // A list of which none is the job's is read as one of places in the job.
    for visible in [None, Some("1"), Some("0,1"), Some("1,0"), Some("0"), Some(one.as_str())] {
        assert_eq!(inside(visible), only_one, "{visible:?}: the job has GPU 1");
    }
    for visible in ["", "-1", "2", "x,1", zero.as_str()] {
        assert!(inside(Some(visible)).is_empty(), "{visible}: none of the job's");
    }
    // With a token too, as an engine gives it to what its job starts.
    let token = "f".repeat(64);
    let with_token = group.inside(bare_command(rig, &[("PARTAGE_TOKEN", &token)]));
    assert_eq!(seen(with_token, Some("1")), only_one, "the machine's number");
    // A default job that the rule keeps to GPU 1.
    assert_eq!(seen(bare(), Some("1")), only_one);
    assert!(seen(bare(), Some("2")).is_empty());
    // Inside `run` it is the job's numbering, and the caller's own value chose among the machine's.
    let client = crate::artefacts::client();
    let env = "/usr/bin/env".as_ref();
    let client = client.to_str().expect("a path");
    let run = |visible: &str| {
        rig.run(
            &["-g", "1"],
            env,
            &[&format!("CUDA_VISIBLE_DEVICES={visible}"), client, "dlopen"],
        )
    };
    assert_eq!(seen(run("0"), Some("1")), only_one);
    assert!(seen(run("1"), Some("1")).is_empty());
}
