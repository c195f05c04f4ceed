// SPDX-License-Identifier: Apache-2.0
//! What ends gives its memory to who asks next: workers to their parent, to a sibling and to the next job, contexts to
//! their own program; and where the driver does not free it, the denial says so.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use super::races::siblings;
use super::{Case, tenth};
use crate::artefacts::program;
use crate::rig::{MIB, Rig};

pub fn cases() -> Vec<Case> {
    let why = "faults are the simulator's";
    vec![
        Case::new("ends::who_asks_next_gets_what_a_worker_had", next_gets_it).simulated(why),
        Case::new("ends::memory_that_does_not_come_back_is_named", never_back).simulated(why),
        Case::new("ends::a_context_that_ended_is_free_at_once", context).simulated(why),
    ]
}

/// The job's limit, and a job that leaves no room for another on a card of 16 GiB.
const LIMIT: &str = "2GiB";
/// What a worker has: with its context more than half of that.
const WORKER_MIB: &str = "1300";
/// What a job asks for of which the card holds one.
const LARGE: &str = "10GiB";
const WAYS: [&str; 3] = ["exit", "kill", "segv"];

fn slow_list(rig: &Rig, ms: u32) {
    let fault = format!("slow:nvmlDeviceGetComputeRunningProcesses_v3:*:{ms}");
    let lines = if ms == 0 { "" } else { &fault };
    std::fs::write(rig.sim_dir().join("faults"), lines).expect("writable");
    // Read within 20 ms.
    std::thread::sleep(std::time::Duration::from_millis(60));
}

fn ends() -> PathBuf {
    program("ends", "ends.c", &["-ldl"])
}

fn next_gets_it(rig: &Rig) {
    // A round has nine ends: three ways before parent, sibling and next job. 1,080 ends in a soak, a tenth otherwise;
    // where each takes long, fewer.
    for (ms, many) in [(0, 6), (25, 5), (300, 1)] {
        slow_list(rig, ms);
        let rounds = many * 10 / tenth();
        let mut command = rig.run(&["-m", LIMIT], &ends(), &[&rounds.to_string(), WORKER_MIB]);
        let output = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "list of {ms} ms: {said}\n{errors}");
        rig.note(format!("list of {ms} ms: {said}"));
        for way in WAYS {
            for round in 0..rounds {
                let options = ["-g", "0", "-m", LARGE, "--on-full", "fail"];
                let mut command = rig.run(&options, &ends(), &["worker", way, WORKER_MIB]);
                let output = command.output().expect("it starts");
                let errors = String::from_utf8_lossy(&output.stderr);
                let has_run = match way {
                    "exit" => output.status.success(),
                    _ => output.status.signal().is_some(),
                };
                assert!(
                    has_run,
                    "list of {ms} ms, {way}, job {round}: {:?} {errors}",
                    output.status
                );
            }
        }
    }
    slow_list(rig, 0);
}

fn never_back(rig: &Rig) {
    let mut job = siblings(rig, &["-m", LIMIT, "--name", "workers"], 2);
    let mib = 1300 * MIB;
    job.members[0].expect(&format!("alloc {mib} a"), "alloc 0");
    let pid = job.members[0].say("pid");
    // Longer than anybody waits, and not so long that the device counts as lost.
    slow_list(rig, 2_700);
    job.members[0].kill();
    job.members[1].expect(&format!("alloc {mib} b"), "alloc 2");
    let why = rig.json(&["why", "workers"]);
    let denial = &why["denials"][0];
    assert_eq!(format!("pid {}", denial["unfreed"]["pid"]), pid, "{why}");
    assert!(denial["unfreed"]["bytes"].as_u64() >= Some(mib), "{why}");
    let sentence = "had ended, but the driver had not freed its";
    assert!(why["sentences"].to_string().contains(sentence), "{why}");
    // What has room beside it is nobody's to wait for.
    job.members[1].expect(&format!("alloc {MIB} c"), "alloc 0");
    slow_list(rig, 0);
    rig.eventually(crate::client::PATIENCE, "it is free after all", || {
        job.members[1].say(&format!("alloc {mib} b")) == "alloc 0"
    });
}

fn context(rig: &Rig) {
    let mut client = rig.client(&["-m", "4GiB"]);
    client.ready();
    rig.wait_for_overhead();
    let before = client.say("info");
    slow_list(rig, 25);
    for _ in 0..10 {
        client.expect("ctx 1 0", "ctx 0");
        assert_ne!(client.say("info"), before, "a context costs something");
        client.expect("ctxdestroy 1", "ctxdestroy 0");
        client.expect("use 0", "use 0");
        assert_eq!(client.say("info"), before, "what it held is free when the call returns");
    }
    slow_list(rig, 0);
}
