// SPDX-License-Identifier: Apache-2.0
//! The attachment: a broker comes and goes under programs that allocate and fork, a thousand times in all, and each
//! process comes back as the client that it was, with the descriptors and mappings that it had.

use std::path::Path;
use std::time::Duration;

use super::races::{Siblings, siblings};
use super::{Case, tenth};
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("attachment::a_thousand_losses_leave_nothing_behind", thousand)
            .simulated("a thousand deaths of a broker say nothing about a driver"),
        Case::new(
            "attachment::an_allocation_waits_until_a_sibling_is_back",
            sibling_is_away,
        )
        .simulated("who is back says nothing about a driver"),
    ]
}

/// Processes that lose a broker and come back at each of its deaths.
const MEMBERS: usize = 20;
/// Deaths of the broker under `scripts/test --soak`: a thousand losses.
const DEATHS: usize = 50;
/// What each member holds all the time.
const HELD: u64 = 32 * MIB;
/// Longest time until a broker is back and has welcomed everybody, on a busy machine.
const BACK: Duration = Duration::from_secs(30);

/// A process of the job that says in `log` when it attaches and when it is connected again.
fn member(rig: &Rig, job: &Siblings, log: &Path) -> Client {
    let mut command = rig.command(crate::artefacts::client());
    command.arg("dlopen").envs(job.environment()).env("PARTAGE_LOG", log);
    let mut member = Client::start(command);
    member.ready();
    member.expect(&format!("alloc {HELD} held"), "alloc 0");
    member
}

/// How often somebody said this.
fn said(log: &Path, what: &str) -> usize {
    std::fs::read_to_string(log).map_or(0, |text| text.matches(what).count())
}

/// Open descriptors and mappings of files of a process. Memory of its own comes and goes.
fn holdings(pid: u32) -> (usize, usize) {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process is there");
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process is there");
    let shared = maps
        .lines()
        .filter(|line| line.split(' ').nth(1).is_some_and(|access| access.ends_with('s')));
    (descriptors.count(), shared.count())
}

fn thousand(rig: &Rig) {
    let deaths = DEATHS / tenth();
    let log = rig.dir.join("members.log");
    let job = siblings(rig, &["-m", "12GiB", "--name", "members"], 0);
    let mut members: Vec<Client> = (0..MEMBERS).map(|_| member(rig, &job, &log)).collect();
    let mut load = siblings(rig, &["-m", "1GiB", "--name", "load"], 2);
    for client in &mut load.members {
        client.expect("loopforever 67108864 7", "loopforever");
    }
    rig.eventually(BACK, "all attached", || said(&log, "attached") >= MEMBERS);
    // A member closes the log, and the lock under which it starts a broker, after it has said so.
    for member in &mut members {
        member.expect("alloc 1048576 small", "alloc 0");
        member.expect("free small", "free 0");
    }
    let before: Vec<_> = members.iter().map(|member| holdings(member.pid())).collect();
    for death in 1..=deaths {
        let old = rig.broker_pid_quick().expect("a broker serves this rig");
        // SAFETY: this rig's own broker.
        unsafe { libc::kill(old as libc::pid_t, libc::SIGKILL) };
        // While nobody is there: a copy of a member that never meets the driver, and a new process that attaches.
        let one = &mut members[death % MEMBERS];
        one.tell("fork");
        one.expect("exit 7", "forked 7");
        one.tell("spawn");
        one.ready();
        one.expect("exit 0", "spawned 0");
        rig.eventually(BACK, "everybody is back", || {
            said(&log, "connected again") >= death * MEMBERS
        });
    }
    for (member, before) in members.iter().zip(before) {
        rig.eventually(BACK, "the same descriptors and mappings", || {
            holdings(member.pid()) == before
        });
    }
    for client in &mut load.members {
        client.kill();
    }
    let held = HELD * MEMBERS as u64;
    rig.eventually(BACK, "each charge once", || {
        rig.ledger_used() == held && rig.truth_allocated() == held
    });
    for member in &mut members {
        member.expect(&format!("alloc {} over", 12 * GIB), "alloc 2");
        member.expect("free held", "free 0");
    }
    rig.eventually(BACK, "nothing left", || {
        rig.ledger_used() == 0 && rig.truth_allocated() == 0
    });
    rig.note(format!("{} losses", deaths * MEMBERS));
}

/// A sibling that is stopped while the broker changes counts with its whole grant: what finds no room is not denied.
fn sibling_is_away(rig: &Rig) {
    let mut job = siblings(rig, &["-m", "12GiB", "--name", "pair"], 2);
    let [asker, sibling] = &mut job.members[..] else {
        panic!("two members")
    };
    asker.expect(&format!("alloc {GIB} held"), "alloc 0");
    sibling.expect(&format!("alloc {} most", 9 * GIB), "alloc 0");
    sibling.expect("free most", "free 0");
    sibling.signal(libc::SIGSTOP);
    let old = rig.broker_pid_quick().expect("a broker serves this rig");
    // SAFETY: this rig's own broker.
    unsafe { libc::kill(old as libc::pid_t, libc::SIGKILL) };
    rig.eventually(BACK, "a broker serves again", || rig.jobs().len() == 1);
    asker.tell(&format!("alloc {} more", 8 * GIB));
    std::thread::sleep(Duration::from_millis(200));
    sibling.signal(libc::SIGCONT);
    // A library waits for 3 s, which a busy machine can outlast. The limit denies nothing.
    let first = asker.answer();
    if first != "alloc 0" {
        rig.note("the machine was too slow for the first try");
        rig.eventually(BACK, "the memory is there", || {
            asker.say(&format!("alloc {} more", 8 * GIB)) == "alloc 0"
        });
    }
    assert_eq!(rig.jobs()[0]["denied"]["limit"], 0);
}
