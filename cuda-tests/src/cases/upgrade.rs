// SPDX-License-Identifier: Apache-2.0
//! What was installed goes away, or another version takes its place, under jobs that run: limits hold, and a job whose
//! broker ends has another one.

use std::path::Path;
use std::time::Duration;

use super::Case;
use super::races::siblings_by;
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    let why = "the broker's word is compared with the simulated device's own count";
    vec![
        Case::new("upgrade::an_environment_that_is_deleted_leaves_jobs_whole", deleted).simulated(why),
        Case::new("upgrade::another_version_takes_the_place_of_the_broker", replaced).simulated(why),
    ]
}

const LIMIT: u64 = 2 * GIB;

/// Of a job of [`LIMIT`] bytes: the old process and a new one hold no more together, by the driver's own count.
fn holds_after(rig: &Rig, change: impl Fn(&Path)) {
    let program = rig.installed();
    let bin = program.parent().expect("a folder");
    let mut job = siblings_by(rig, &program, &["-m", "2GiB", "--name", "one"], 1);
    job.members[0].expect(&format!("alloc {GIB} held"), "alloc 0");
    rig.wait_for_overhead();
    let broker = |rig: &Rig| rig.broker_pid_quick();
    let old = broker(rig).expect("a broker serves this rig");
    change(bin);
    // SAFETY: this rig's own broker.
    unsafe { libc::kill(old.cast_signed(), libc::SIGKILL) };
    job.members[0].expect(&format!("alloc {GIB} x"), "alloc 2");
    let mut next = job.start(rig);
    next.ready();
    next.expect(&format!("alloc {GIB} x"), "alloc 2");
    rig.eventually(Duration::from_secs(20), "another broker", || {
        broker(rig).is_some_and(|pid| pid != old)
    });
    rig.eventually(Duration::from_secs(20), "the new process gets its part", || {
        next.say(&format!("alloc {} y", 256 * MIB)) == "alloc 0"
    });
    job.members[0].expect(&format!("alloc {GIB} x"), "alloc 2");
    next.expect(&format!("alloc {GIB} x"), "alloc 2");
    assert!(rig.truth_allocated() <= LIMIT, "{} bytes", rig.truth_allocated());
    let program = std::fs::read_link(format!("/proc/{}/exe", broker(rig).expect("it serves"))).expect("ours");
    assert!(
        program.to_string_lossy().contains("/lib/broker-"),
        "it is a copy of its own: {}",
        program.display()
    );
    job.members[0].expect("free held", "free 0");
    next.expect(&format!("alloc {GIB} x"), "alloc 0");
}

fn deleted(rig: &Rig) {
    holds_after(rig, |bin| std::fs::remove_dir_all(bin).expect("ours"));
}

/// As pip and dpkg do it: by rename. The new files are no programs, so that nothing of them could serve.
fn replaced(rig: &Rig) {
    holds_after(rig, |bin| {
        for name in ["partage", "partaged", "libpartage.so"] {
            let beside = bin.join("new");
            std::fs::write(&beside, "another version").expect("ours");
            std::fs::rename(&beside, bin.join(name)).expect("ours");
        }
    });
}
