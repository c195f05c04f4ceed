// SPDX-License-Identifier: Apache-2.0
//! Which process owns a charge: children of every kind, programs that replace themselves, daemons, reused pids, many
//! processes.

use std::time::Duration;

use super::Case;
use super::launcher::private_tmp;
use super::races::siblings;
use super::ruled_host::Host;
use crate::artefacts::built;
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "ownership::a_child_of_a_fork_releases_nothing_of_its_parent",
            forked_after_init,
        ),
        Case::new("ownership::children_share_the_limit_however_started", children),
        Case::new("ownership::a_daemon_keeps_its_job_and_its_charge", daemon),
        Case::new("ownership::the_preload_alone_keeps_a_process_in_its_job", preload_alone),
        Case::new(
            "ownership::the_preload_alone_finds_the_broker_of_a_managed_host",
            preload_on_a_managed_host,
        )
        .simulated("needs a managed broker, root and the simulated machine"),
        Case::new("ownership::a_reused_pid_inherits_nothing", reused_pid),
        Case::new("ownership::eight_processes_hold_an_eighth_each", eight),
    ]
}

const SECOND: Duration = Duration::from_secs(1);

fn forked_after_init(rig: &Rig) {
    let mut under = rig.client(&["-m", "1GiB"]);
    let mut bare = rig.bare_client("dlopen");
    under.ready();
    rig.wait_for_overhead();
    bare.ready();
    let room = under.room();
    under.expect(&format!("alloc {} mine", 256 * MIB), "alloc 0");
    bare.expect(&format!("alloc {} mine", 256 * MIB), "alloc 0");
    for child in ["exit 7", "closefds", "init 0", "freekeep mine", "alloc 4096 other"] {
        for client in [&mut under, &mut bare] {
            client.tell("fork");
        }
        if child != "exit 7" {
            assert_eq!(under.say(child), bare.say(child), "in a forked child: {child}");
        }
        for client in [&mut under, &mut bare] {
            client.expect("exit 7", "forked 7");
        }
        assert_eq!(under.room(), room - 256 * MIB, "after a child that did `{child}`");
    }
    under.expect("free mine", "free 0");
    assert_eq!(under.room(), room);
    rig.eventually(SECOND, "one charge, one owner", || rig.ledger_used() == 0);
}

/// A process that lost its parents, its session and every variable but the preload (and what leads to the driver).
fn preload_alone(rig: &Rig) {
    let client = crate::artefacts::client().display().to_string();
    let driver = "LD_LIBRARY_PATH=$LD_LIBRARY_PATH PARTAGE_SIM_DIR=$PARTAGE_SIM_DIR";
    let left = format!("env -i LD_PRELOAD=$LD_PRELOAD {driver} setsid {client} dlopen");
    let script = format!("exec 3<&0; ({left} <&3 &)");
    let options = ["-m", "1GiB", "--name", "left"];
    let mut gone = Client::start(rig.run(&options, std::path::Path::new("/bin/sh"), &["-c", &script]));
    gone.ready();
    assert_eq!(rig.jobs().len(), 1, "{:?}", rig.jobs());
    gone.expect("total 0", &format!("total 0 {GIB}"));
    gone.expect(&format!("alloc {} fits", 512 * MIB), "alloc 0");
    gone.expect(&format!("alloc {} over", 513 * MIB), "alloc 2");
    // Nothing was put beside the one copy of the library for it.
    let files = std::fs::read_dir(rig.socket_dir().join("lib")).expect("the copies' folder");
    let names = files
        .flatten()
        .map(|file| file.file_name().to_string_lossy().into_owned());
    let libraries: Vec<String> = names.filter(|name| !name.starts_with("broker-")).collect();
    assert_eq!(libraries.len(), 1, "{libraries:?}");
}

/// A user's copy of the library lies in that user's own folder, beside what a private broker left there before the host
/// was managed: the host's broker is meant.
fn preload_on_a_managed_host(rig: &Rig) {
    let _host = Host::start(rig, "schema = 1\n");
    let client = crate::artefacts::client().display().to_string();
    let driver = "LD_LIBRARY_PATH=$LD_LIBRARY_PATH PARTAGE_SIM_DIR=$PARTAGE_SIM_DIR";
    let left = format!("env -i LD_PRELOAD=/tmp/partage-7/lib${{LD_PRELOAD#/run/partage/lib}} {driver} {client} dlopen");
    let script = format!("cp $LD_PRELOAD /tmp/partage-7/lib && exec {left}");
    let setup = format!(
        "{} mount -t tmpfs -o mode=755 none /run; \
         mkdir -p /run/partage/client /tmp/partage-7/client /tmp/partage-7/lib; \
         mount --bind '{}/client' /run/partage/client; \
         PARTAGE_SOCKET_DIR=/run/partage exec {} run -m 1GiB -- /bin/sh -c '{script}'",
        private_tmp(rig),
        rig.socket_dir().display(),
        built("partage").display(),
    );
    let mut command = rig.command("/usr/bin/unshare");
    command.args(["--mount", "--propagation", "private", "/bin/bash", "-c", &setup]);
    let mut under = Client::start(command);
    under.ready();
    under.expect("total 0", &format!("total 0 {GIB}"));
    under.expect(&format!("alloc {GIB} over"), "alloc 2");
}

/// `fork` before the driver is initialised, `vfork` and `posix_spawn` at any time: a client of its own, of the same
/// job.
fn children(rig: &Rig) {
    let mut parent = rig.client(&["-m", "4GiB"]);
    for kind in ["fork", "vfork", "spawn"] {
        // The child reads the same input until it says `exit`; the parent goes on after it.
        parent.tell(kind);
        parent.ready();
        parent.expect(&format!("alloc {} over", 4 * GIB + 1), "alloc 2");
        parent.expect(&format!("alloc {} part", 2 * GIB), "alloc 0");
        parent.expect("exit 5", &format!("{kind}ed 5"));
        if kind == "fork" {
            parent.ready();
            parent.expect(&format!("alloc {} keep", GIB), "alloc 0");
        }
        rig.eventually(
            SECOND,
            "what the child had is back, what the parent has is kept",
            || rig.ledger_used() == GIB,
        );
    }
    // While both live, together they have the job's limit.
    parent.tell("spawn");
    parent.ready();
    let room = parent.room();
    assert!(room <= 3 * GIB, "the parent's part is taken: {room}");
    parent.expect(&format!("alloc {room} rest"), "alloc 0");
    parent.expect("alloc 1 more", "alloc 2");
    parent.expect("exit 5", "spawned 5");
    rig.eventually(SECOND, "the parent's alone again", || rig.ledger_used() == GIB);
}

/// The first process is gone, the daemon closed every descriptor: the job lives as long as its client does.
fn daemon(rig: &Rig) {
    let mut job = siblings(rig, &["-m", "1GiB", "--name", "served"], 1);
    let client = &mut job.members[0];
    client.expect("setsid", "setsid");
    client.expect(&format!("alloc {} mine", 256 * MIB), "alloc 0");
    client.expect("closefds", "closefds");
    job.shell.kill();
    // Longer than a job without a process lives.
    std::thread::sleep(Duration::from_secs(6));
    let jobs = rig.jobs();
    assert_eq!(jobs.len(), 1, "the job lives: {jobs:?}");
    assert_eq!(jobs[0]["name"], "served");
    assert_eq!(rig.ledger_used(), 256 * MIB);
    job.members[0].expect("free mine", "free 0");
    job.members[0].kill();
    rig.eventually(Duration::from_secs(20), "the job ends with its client", || {
        rig.jobs().is_empty()
    });
}

/// Another process under the pid of a dead client: neither charged, nor shown, nor a reason to keep anything.
fn reused_pid(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect(&format!("alloc {} mine", 256 * MIB), "alloc 0");
    let pid = client.pid();
    client.kill();
    let Some(other) = ChosenPid::start(pid) else {
        println!("SKIPPED: this kernel or user may not choose a process's pid");
        return;
    };
    rig.eventually(SECOND, "the dead client's charge is gone", || rig.ledger_used() == 0);
    rig.eventually(Duration::from_secs(20), "and so is its job", || rig.jobs().is_empty());
    drop(other);
}

/// A sleeping process with a pid of our choice.
struct ChosenPid(libc::pid_t);

impl ChosenPid {
    fn start(pid: u32) -> Option<Self> {
        #[repr(C)]
        #[derive(Default)]
        struct CloneArgs {
            flags: u64,
            pidfd: u64,
            child_tid: u64,
            parent_tid: u64,
            exit_signal: u64,
            stack: u64,
            stack_size: u64,
            tls: u64,
            set_tid: u64,
            set_tid_size: u64,
            cgroup: u64,
        }
        let wanted = pid as libc::pid_t;
        let arguments = CloneArgs {
            exit_signal: libc::SIGCHLD as u64,
            set_tid: (&raw const wanted) as u64,
            set_tid_size: 1,
            ..CloneArgs::default()
        };
        // SAFETY: a fork with a chosen pid; the child only makes system calls until it ends.
        let child = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<CloneArgs>()) };
        if child == 0 {
            loop {
                // SAFETY: waits for a signal; touches nothing.
                unsafe { libc::pause() };
            }
        }
        (child > 0).then_some(Self(child as libc::pid_t))
    }
}

impl Drop for ChosenPid {
    fn drop(&mut self) {
        let mut status = 0;
        // SAFETY: our own unreaped child.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        // SAFETY: as above.
        unsafe { libc::waitpid(self.0, &raw mut status, 0) };
    }
}

fn eight(rig: &Rig) {
    let mut job = siblings(rig, &["-m", "8GiB"], 8);
    rig.wait_for_overhead();
    let room = job.members[0].room();
    let eighth = room / 8 / 512 * 512;
    for client in &mut job.members {
        client.expect(&format!("alloc {eighth} mine"), "alloc 0");
    }
    let rest = room - 8 * eighth;
    for client in &mut job.members {
        client.expect(&format!("alloc {} more", rest + 1), "alloc 2");
    }
    rig.eventually(SECOND, "all is used", || rig.ledger_used() == 8 * eighth);
    let mut dead: Client = job.members.remove(3);
    dead.kill();
    let heir = &mut job.members[0];
    rig.eventually(SECOND, "a sibling takes what the dead one had", || {
        heir.say(&format!("alloc {eighth} heritage")) == "alloc 0"
    });
}
