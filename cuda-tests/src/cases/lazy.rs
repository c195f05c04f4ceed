// SPDX-License-Identifier: Apache-2.0
//! `partage run --lazy`: a job begins at the first use of a GPU, and not before.

use std::path::Path;
use std::time::Duration;

use super::Case;
use super::races::siblings;
use crate::artefacts::client;
use crate::client::Client;
use crate::rig::{GIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("lazy::without_a_gpu_there_is_no_job_and_no_broker", no_gpu),
        Case::new("lazy::all_processes_are_one_job_from_the_first_use_on", one_job),
        Case::new("lazy::nvml_before_the_first_use_shows_what_the_job_would_have", nvml)
            .simulated("needs two devices of 16 GiB"),
        Case::new("lazy::a_full_card_is_waited_for_or_refused", full_card)
            .simulated("its numbers are those of a GPU of 16 GiB"),
        Case::new("lazy::hidden_gpus_stay_hidden", hidden),
        Case::new("lazy::options_that_cannot_be_had_are_refused", options),
    ]
}

const SHELL: &str = "/bin/sh";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn no_gpu(rig: &Rig) {
    let output = rig.output(rig.run(&["--lazy", "-m", "25%"], Path::new(SHELL), &["-c", "echo fine; exit 7"]));
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("fine\n".into(), String::new())
    );
    assert!(rig.broker_pid_quick().is_none(), "nobody was asked");
}

fn one_job(rig: &Rig) {
    let options = ["--lazy", "-g", "0", "-m", "2GiB", "--name", "late", "--label", "a=b"];
    let mut job = siblings(rig, &options, 0);
    assert!(rig.broker_pid_quick().is_none(), "nobody was asked yet");
    let mut members: Vec<Client> = (0..3).map(|_| job.start(rig)).collect();
    // At once: each asks for the job, and it is one.
    members.iter_mut().for_each(|member| member.tell("init 0"));
    for member in &mut members {
        assert_eq!(member.answer(), "init 0", "{}", member.stderr());
        member.expect("ctx 0", "ctx 0");
        member.expect("count", "count 0 1");
    }
    let jobs = rig.jobs();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    assert_eq!(jobs[0]["name"], "late");
    assert_eq!(jobs[0]["labels"][0][1], "b");
    assert_eq!(jobs[0]["devices"][0]["limit_bytes"], 2 * GIB);
    assert_eq!(jobs[0]["devices"][0]["request_bytes"], 2 * GIB);
    assert_eq!(jobs[0]["clients"].as_array().map(Vec::len), Some(3), "{jobs:?}");
    members[0].expect(&format!("alloc {GIB} a"), "alloc 0");
    members[1].expect(&format!("alloc {GIB} a"), "alloc 2");
    // The one whose request it was is one like the others.
    let first = members
        .iter()
        .position(|member| jobs[0]["pid"] == member.pid())
        .expect("one of them began it");
    drop(members.remove(first));
    rig.eventually(Duration::from_secs(2), "it goes on with the others", || {
        rig.jobs()[0]["clients"].as_array().map(Vec::len) == Some(2)
    });
    members.clear();
    rig.eventually(Duration::from_secs(15), "it ends with the last", || {
        rig.jobs().is_empty()
    });
    // The shell is still there, and what it starts next is a job again.
    let mut next = job.start(rig);
    next.ready();
    assert_eq!(rig.jobs().len(), 1);
    job.shell.kill();
}

/// NVML, before `cuInit`, shows the devices and the limit that the driver shows afterwards, and nothing is promised for
/// that. A handle from then stands for the job's device, also where that has become another one.
fn nvml(rig: &Rig) {
    let job = siblings(rig, &["--lazy", "-m", "8GiB"], 0);
    let mut looks = [job.start(rig), job.start(rig)];
    let mut uuids = Vec::new();
    for client in &mut looks {
        client.expect("nvml", "nvml 0");
        let devices = client.say("nvmldevices");
        let uuid = devices
            .strip_prefix("nvmldevices 0 1 good ")
            .expect("one device")
            .to_owned();
        client.expect("nvmlkeep 0", "nvmlkeep 0");
        assert_eq!(client.numbers("nvmlmem 0")[..4], [0, 8 * GIB, 8 * GIB, 0]);
        client.expect("nvmlkept", &format!("nvmlkept 0 {} {uuid} 0 same", 8 * GIB));
        uuids.push(uuid);
    }
    assert_eq!(uuids[0], uuids[1]);
    assert!(rig.jobs().is_empty(), "nothing is promised for a look");
    let uses = &mut looks[0];
    uses.expect("init 0", "init 0");
    uses.expect("ctx 0", "ctx 0");
    uses.expect("uuid 0", &format!("uuid 0 {}", uuids[0]));
    let pid = uses.pid();
    // The one that looks sees the job that there is by now, and is no part of it.
    for client in &mut looks {
        client.expect("nvmlkept", &format!("nvmlkept 0 {} {} 0 same {pid}", 8 * GIB, uuids[0]));
    }
    let memory = looks[1].numbers("nvmlmem 0");
    assert!(memory[3] > 0 && memory[2] + memory[3] == 8 * GIB, "{memory:?}");
    assert_eq!(rig.jobs()[0]["clients"].as_array().map(Vec::len), Some(1));
    // Another takes the device that was foreseen.
    let other = siblings(rig, &["--lazy", "-m", "6GiB"], 0);
    let mut late = other.start(rig);
    late.expect("nvml", "nvml 0");
    let foreseen = late.say("nvmldevices");
    late.expect("nvmlkeep 0", "nvmlkeep 0");
    let gpu = foreseen.rsplit(' ').next().expect("a UUID").to_owned();
    let mut holder = rig.client(&["-m", "12GiB", "-g", &gpu]);
    holder.ready();
    late.expect("init 0", "init 0");
    late.expect("ctx 0", "ctx 0");
    late.expect("uuid 0", &format!("uuid 0 {}", uuids[0]));
    let pid = late.pid();
    late.expect("nvmlkept", &format!("nvmlkept 0 {} {} 0 same {pid}", 6 * GIB, uuids[0]));
}

fn full_card(rig: &Rig) {
    let mut holder = rig.client(&["-g", "0", "-m", "12GiB"]);
    holder.ready();
    let mut refused = rig.client(&["--lazy", "-g", "0", "-m", "8GiB", "--on-full", "fail"]);
    refused.expect("init 0", "init 2");
    refused.wait_for_stderr("gets no GPU: ");
    refused.expect("init 0", "init 2");
    assert_eq!(refused.stderr(), "", "said once");
    let mut waiting = rig.client(&["--lazy", "-g", "0", "-m", "8GiB"]);
    waiting.tell("init 0");
    waiting.wait_for_stderr("partage: waiting: ");
    assert_eq!(waiting.try_answer(), None);
    assert_eq!(rig.jobs().iter().filter(|job| job["state"] == "waiting").count(), 1);
    drop(holder);
    assert_eq!(waiting.answer(), "init 0", "{}", waiting.stderr());
    waiting.expect("ctx 0", "ctx 0");
    assert!(waiting.room() <= 8 * GIB);
}

fn hidden(rig: &Rig) {
    let program = client().display().to_string();
    // By the caller of `run`, and inside the program.
    let mut outer = rig.run(&["--lazy", "-q", "-m", "25%"], &client(), &["dlopen"]);
    outer.env("CUDA_VISIBLE_DEVICES", "");
    let line = format!("CUDA_VISIBLE_DEVICES= exec {program} dlopen");
    let inner = rig.run(&["--lazy", "-q", "-m", "25%"], Path::new(SHELL), &["-c", &line]);
    for command in [outer, inner] {
        let mut blind = Client::start(command);
        blind.expect("init 0", "init 100");
        assert_eq!(blind.stderr(), "");
    }
    // What it starts with a GPU in sight is under the limit.
    let line = format!("exec env -u CUDA_VISIBLE_DEVICES {program} dlopen");
    let mut outer = rig.run(&["--lazy", "-m", "1GiB"], Path::new(SHELL), &["-c", &line]);
    outer.env("CUDA_VISIBLE_DEVICES", "-1");
    assert!(rig.broker_pid_quick().is_none(), "nothing was promised to anybody");
    let mut seeing = Client::start(outer);
    seeing.ready();
    assert!(seeing.room() <= GIB);
}

fn options(rig: &Rig) {
    let truth = Path::new("/bin/true");
    let output = rig.output(rig.run(&["--lazy", "--summary"], truth, &[]));
    assert_eq!(output.status.code(), Some(125));
    let said = "partage: --summary and --lazy do not go together";
    assert!(text(&output.stderr).starts_with(said), "{}", text(&output.stderr));
    let output = rig.output(rig.run(&["--lazy", "-m", "1000%"], truth, &[]));
    assert_eq!(output.status.code(), Some(125), "a wrong option is refused at once");
    let output = rig.output(rig.run(&["--lazy", "-m", "25%", "--dry-run"], Path::new("/bin/false"), &[]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(
        said.contains("would start now on GPU") && said.contains("COMMAND starts at once"),
        "{said}"
    );
    // One inside another adds nothing: the outer one's options hold.
    let line = format!(
        "exec {} run --lazy -m 1GiB -- {} dlopen",
        crate::artefacts::built("partage").display(),
        client().display()
    );
    let mut inside = Client::start(rig.run(&["--lazy", "-m", "2GiB"], Path::new(SHELL), &["-c", &line]));
    inside.ready();
    let jobs = rig.jobs();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    assert_eq!(jobs[0]["devices"][0]["limit_bytes"], 2 * GIB);
}
