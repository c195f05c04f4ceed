// SPDX-License-Identifier: Apache-2.0
//! Deaths: a killed client's memory comes back within a second, a killed broker is replaced and its jobs go on.

use std::time::Duration;

use super::races::siblings;
use super::{Case, Random, tenth};
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("death::killed_clients_give_their_memory_back", killed_clients)
            .simulated("compares with the simulator's books"),
        Case::new("death::killed_client_frees_its_share_for_the_queue", queue_moves_on),
        Case::new("death::broker_killed_under_two_jobs", broker_killed),
        Case::new("death::stopped_client_keeps_its_memory", stopped_client),
        Case::new("death::late_worker_keeps_devices_and_limit", late_worker).simulated("needs two devices"),
    ]
}

/// A second, and what a busy two-core machine may add to any wait.
const SECOND: Duration = Duration::from_millis(1000);

fn killed_clients(rig: &Rig) {
    let mut random = Random::new(5);
    let kills = 50 / tenth().min(5);
    let mut other = rig.client(&["-m", "1GiB", "--name", "other"]);
    other.ready();
    other.expect(&format!("alloc {} keep", 128 * MIB), "alloc 0");
    for _ in 0..kills {
        let mut client = rig.client(&["-m", "25%"]);
        client.ready();
        client.expect("loopforever 67108864 7", "loopforever");
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        client.kill();
        rig.eventually(SECOND, "ledger = truth after kill -9", || {
            rig.truth_allocated() == 128 * MIB && rig.ledger_used() == 128 * MIB
        });
    }
    other.expect("free keep", "free 0");
    rig.eventually(SECOND, "nothing left", || {
        rig.ledger_used() == 0 && rig.truth_allocated() == 0
    });
    rig.note(format!("{kills} kills"));
}

fn queue_moves_on(rig: &Rig) {
    let mut first = rig.client(&["-g", "0", "-m", "75%"]);
    first.ready();
    let mut second = rig.client(&["-g", "0", "-m", "50%"]);
    rig.eventually(crate::client::PATIENCE, "the second waits", || {
        rig.json(&["status"])["queue"]
            .as_array()
            .is_some_and(|queue| queue.len() == 1)
    });
    first.kill();
    // A job lives five seconds after its last client; then the promise is free.
    second.ready();
    second.expect(&format!("alloc {MIB} a"), "alloc 0");
}

fn broker_killed(rig: &Rig) {
    let mut first = rig.client(&["-m", "2GiB", "--name", "first"]);
    first.ready();
    let mut second = siblings(rig, &["-m", "4GiB", "--name", "second"], 1);
    rig.wait_for_overhead();
    let room = first.room();
    first.expect(&format!("alloc {} held", 512 * MIB), "alloc 0");
    second.members[0].expect(&format!("alloc {} held", 512 * MIB), "alloc 0");
    let identity = || {
        rig.jobs()
            .iter()
            .map(|job| (job["job"].clone(), job["pid"].clone()))
            .collect::<Vec<_>>()
    };
    let before = identity();
    let old = rig.broker_pid_quick().expect("a broker serves this rig");
    // SAFETY: this rig's own broker.
    unsafe { libc::kill(old as libc::pid_t, libc::SIGKILL) };
    // They go on under their limits at once, broker or not.
    first.expect(&format!("alloc {} x", 2 * GIB), "alloc 2");
    first.expect(&format!("alloc {} x", room - 512 * MIB), "alloc 0");
    first.expect("alloc 1 y", "alloc 2");
    // A new worker process of a job, started while no broker may be there: it runs, within the job's limit.
    let mut worker = second.start(rig);
    worker.ready();
    worker.expect(&format!("alloc {} w", 4 * GIB + 1), "alloc 2");
    rig.eventually(Duration::from_secs(20), "the worker gets its part", || {
        worker.say(&format!("alloc {} w", GIB)) == "alloc 0"
    });
    // A broker comes back without anyone typing a command: look at processes, not through a command that starts one.
    rig.eventually(Duration::from_secs(20), "a new broker", || {
        rig.broker_pid_quick().is_some_and(|pid| pid != old)
    });
    rig.eventually(Duration::from_secs(5), "adopted with right totals", || {
        identity() == before && rig.ledger_used() == room + GIB + 512 * MIB
    });
    first.expect("free held", "free 0");
    rig.eventually(SECOND, "the new broker sees the free", || {
        rig.ledger_used() == room + GIB
    });
    let rest = second.members[0].room();
    assert!(
        rest <= 4 * GIB - GIB - 512 * MIB,
        "four gibibytes less what both hold: {rest}"
    );
    second.members[0].expect(&format!("alloc {} z", rest + 1), "alloc 2");
    second.members[0].expect(&format!("alloc {rest} z"), "alloc 0");
    worker.expect("alloc 512 v", "alloc 2");
}

fn stopped_client(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect(&format!("alloc {} a", 512 * MIB), "alloc 0");
    client.signal(libc::SIGSTOP);
    // Others are served while it is stopped, and its memory stays its own.
    let mut other = rig.client(&["-m", "1GiB"]);
    other.ready();
    let room = other.room();
    other.expect(&format!("alloc {room} b"), "alloc 0");
    assert_eq!(rig.ledger_used(), room + 512 * MIB);
    client.signal(libc::SIGCONT);
    client.expect("free a", "free 0");
}

/// A process that outlived its job has no promise any more, and sees and takes no more than the job could.
fn late_worker(rig: &Rig) {
    let mut bare = rig.bare_client("dlopen");
    bare.expect("init 0", "init 0");
    let second = bare.say("uuid 1");
    let mut job = siblings(rig, &["-g", "1", "-m", "1GiB"], 0);
    job.shell.kill();
    rig.eventually(Duration::from_secs(20), "the job's end", || rig.jobs().is_empty());
    let mut worker = job.start(rig);
    worker.expect("init 0", "init 0");
    worker.expect("count", "count 0 1");
    worker.expect("uuid 0", &second);
    worker.expect("ctx 0", "ctx 0");
    worker.expect(&format!("alloc {} over", GIB + 1), "alloc 2");
    let room = worker.room();
    worker.expect(&format!("alloc {room} fits"), "alloc 0");
    worker.expect("alloc 1 more", "alloc 2");
}
