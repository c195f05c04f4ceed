// SPDX-License-Identifier: Apache-2.0
//! What a plain key of `partage quota` bounds: all jobs of its subject together, or nothing at all.

use super::super::ruled_host::bare;
use super::host::{Host, SOON};
use crate::rig::{GIB, MIB, Rig};

/// Two jobs without limits of their own share what their user, or group, may have; a limit of each job is another one.
pub fn together(rig: &Rig) {
    let Some(host) = Host::start(rig) else { return };
    for subject in ["user:root", "group:root"] {
        let said = host.done(&["quota", "set", subject, "mem=2GiB"]);
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let who = subject.trim_start_matches("user:").replace(':', " ");
        assert!(
            words.contains(&format!(
                "all jobs of {who} together: at most 2GiB on each GPU {who} has now: no job"
            )),
            "{said}"
        );
        let mut first = rig.client(&["-g", "0"]);
        first.ready();
        first.expect(&format!("alloc {} a", 1600 * MIB), "alloc 0");
        let mut second = rig.client(&["-g", "0"]);
        second.ready();
        second.expect(&format!("alloc {} a", 1600 * MIB), "alloc 2");
        let said = host.done(&["quota", "set", subject, "each-job.mem=3GiB", "mem=4GiB"]);
        assert!(
            said.contains(&format!("{who} has now: ")) && said.contains(" on GPU 0 (2 jobs)"),
            "{said}"
        );
        second.expect(&format!("alloc {} a", 1600 * MIB), "alloc 0");
        for client in [&mut first, &mut second] {
            assert_eq!(client.numbers("info")[2], 3 * GIB, "what each job may have");
        }
        host.done(&["quota", "unset", subject]);
        first.kill();
        second.kill();
        rig.eventually(SOON, "the jobs have ended", || rig.jobs().is_empty());
    }
    // Every key that is listed goes into the file, and one that limits nothing here is questioned.
    let total = ["mem=900GiB", "compute=40%", "gpus=9", "jobs=5"];
    let each = [
        "each-user.mem=8GiB",
        "each-user.compute=30%",
        "each-user.gpus=1",
        "each-user.jobs=2",
    ];
    let job = [
        "each-job.mem=8GiB",
        "each-job.process-mem=1GiB",
        "each-job.compute=30%",
        "each-job.compute-max=50%",
        "each-job.weight=50",
        "each-job.priority=low",
        "each-job.gpus=1",
        "each-job.time-limit=1h",
        "class=small",
    ];
    let said = host.done(&[&["quota", "set", "*"][..], &total, &each, &job].concat());
    let warning = |text: &str| format!("warning: {text} limits nothing: ");
    assert!(
        said.contains(&warning("mem=900GiB"))
            && said.contains(&warning("gpus=9"))
            && said.matches("warning").count() == 2,
        "{said}"
    );
    let listed = host.done(&["quota", "list"]);
    for setting in total.iter().chain(&each).chain(&job) {
        assert!(listed.contains(setting), "{setting}: {listed}");
    }
}

/// `0` leaves a subject no new job, and the jobs that run no more memory.
pub fn barred(rig: &Rig) {
    let Some(host) = Host::start(rig) else { return };
    for bar in ["mem=0", "gpus=0", "jobs=0", "each-job.mem=0"] {
        let mut job = rig.client(&["-g", "0", "-m", "2GiB"]);
        job.ready();
        job.expect(&format!("alloc {} a", 512 * MIB), "alloc 0");
        let said = host.done(&["quota", "set", "user:root", bar]);
        assert!(said.contains("root is barred: "), "{said}");
        job.expect(&format!("alloc {MIB} b"), "alloc 2");
        let (code, text) = host.say(&["run", "--", "/bin/true"]);
        assert!(
            code == Some(125) && text.contains("no job of this user may use a GPU here: the rule quota-user-root"),
            "{bar}: {code:?}: {text}"
        );
        // Without run no memory is to be had either.
        let mut other = bare(rig, &[]);
        other.expect("init", "init 0");
        assert_eq!(other.say("ctx 0"), "ctx 2", "{bar}: not even a context has room");
        other.kill();
        host.done(&["quota", "unset", "user:root"]);
        job.expect(&format!("alloc {MIB} b"), "alloc 0");
        job.kill();
    }
}
