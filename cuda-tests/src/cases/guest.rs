// SPDX-License-Identifier: Apache-2.0
//! Guest rules: what the library must not do to the program it is in.

use std::os::unix::fs::PermissionsExt;

use super::Case;
use super::races::siblings;
use crate::artefacts::program;
use crate::client::{Client, PATIENCE};
use crate::rig::{GIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("guest::nothing_before_init", before_init),
        Case::new("guest::signals_umask_and_files", state_is_kept),
        Case::new("guest::errno_is_kept", errno_is_kept),
        Case::new("guest::no_child_of_ours", no_child),
        Case::new("guest::fork_and_exec", fork_and_exec),
        Case::new("guest::program_closes_every_descriptor", closed_descriptors),
        Case::new("guest::a_jump_out_of_a_launch_leaves_the_limit_in_force", |rig| {
            jump_out(rig, &[]);
        }),
        Case::new(
            "guest::a_jump_out_of_a_synchronisation_leaves_the_limit_in_force",
            |rig| {
                let kernels = crate::artefacts::kernels().with_file_name("time_kernels.ptx");
                jump_out(rig, &[kernels.to_str().expect("plain")]);
            },
        ),
        Case::new("guest::a_jump_out_of_a_question_leaves_no_lock", |rig| {
            lock_out(rig, "jump")
        }),
        Case::new("guest::a_thread_cancelled_in_a_question_leaves_no_lock", |rig| {
            lock_out(rig, "cancel");
        }),
        Case::new("guest::another_thread_takes_over_what_a_jump_left_locked", |rig| {
            lock_out(rig, "other");
        }),
        Case::new("guest::another_thread_takes_over_from_one_that_computes_on", |rig| {
            lock_out(rig, "spin");
        }),
        Case::new("guest::a_program_without_an_entry_for_debuggers", no_debug_entry),
    ]
}

/// Calls of the same caller after the jump lie where the driver's own would.
fn jump_out(rig: &Rig, kernels: &[&str]) {
    let path = program("jump_out", "jump_out.c", &["-ldl"]);
    let beyond = (2 * GIB).to_string();
    let arguments = [&[beyond.as_str()], kernels].concat();
    let output = rig.output(rig.run(&["-m", "1GiB"], &path, &arguments));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "rounds 20 given 0");
}

/// The call that is left waits for a broker that stands still.
fn lock_out(rig: &Rig, how: &str) {
    // Of two processes each has to ask what both of them use.
    let job = siblings(rig, &["-m", "1GiB"], 1);
    let mut command = rig.command(program("lock_out", "lock_out.c", &["-ldl", "-lpthread"]));
    command.arg(how).envs(job.environment());
    let mut client = Client::start(command);
    assert_eq!(client.answer(), "ready");
    let broker = rig.broker_pid().expect("it answers") as i32;
    // SAFETY: the broker of this rig, which lives until its jobs have ended.
    let signal = |number| unsafe { libc::kill(broker, number) };
    partage_machine::process::stop(broker as u32);
    client.tell("leave");
    let left = client.answer();
    signal(libc::SIGCONT);
    assert_eq!(left, "out");
    client.expect("again", "again 0");
    // Its thread of ours is not shut out either: it comes back to the next broker.
    signal(libc::SIGKILL);
    rig.eventually(PATIENCE, "a new broker has the client", || {
        let is_new = rig.broker_pid_quick().is_some_and(|pid| pid as i32 != broker);
        is_new
            && rig
                .jobs()
                .iter()
                .any(|job| job.to_string().contains(&client.pid().to_string()))
    });
}

/// Its linker left DT_DEBUG out, which otherwise says where the list of mapped objects is.
fn no_debug_entry(rig: &Rig) {
    let mut bytes = std::fs::read(crate::artefacts::client()).expect("the client");
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize;
    let (headers, count) = (word(32), usize::from(bytes[56]));
    let dynamic = (0..count)
        .map(|i| headers + 56 * i)
        .find(|at| bytes[*at..*at + 4] == 2_u32.to_le_bytes())
        .map(|at| word(at + 8))
        .expect("a dynamic section");
    let entry = (0..)
        .map(|i| dynamic + 16 * i)
        .find(|at| [0, 21].contains(&word(*at)))
        .expect("it ends");
    assert_eq!(word(entry), 21, "DT_DEBUG");
    // A number that no linker knows.
    bytes[entry..entry + 8].copy_from_slice(&0x6000_0001_u64.to_le_bytes());
    let path = rig.dir.join("no_debug_entry");
    std::fs::write(&path, bytes).expect("writable");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("ours");
    let mut client = Client::start(rig.run(&["-m", "1GiB"], &path, &["dlopen"]));
    client.ready();
    assert!(client.room() <= 1 << 30, "under its limit");
}

fn before_init(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.expect("threads", "threads 1");
    client.expect("dlsym handle cuMemAlloc_v2", "dlsym found");
    client.expect("threads", "threads 1");
}

fn state_is_kept(rig: &Rig) {
    let mut under = rig.client(&["-m", "1GiB"]);
    let mut bare = rig.bare_client("dlopen");
    for line in ["guest", "fds", "init 0", "ctx 0", "guest"] {
        assert_eq!(under.say(line), bare.say(line), "{line}");
    }
    // Descriptors below 64 are the program's; ours lie high.
    assert_eq!(under.say("fds"), bare.say("fds"));
    assert_eq!(under.stderr(), "", "nothing on standard error");
}

fn errno_is_kept(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect("errno 4096", "errno 0 77");
    client.expect(&format!("errno {}", GIB + 1), "errno 2 77");
    // Every family's allocation and free, and the synchronisation that refunds.
    client.expect("mixerrno 3000000", "mixerrno 0");
}

fn no_child(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    // 10 is ECHILD: no child, before and after the driver and our session started.
    client.expect("wait", "wait -1 10");
    client.ready();
    client.expect("wait", "wait -1 10");
    let children = format!("/proc/{}/task/{}/children", client.pid(), client.pid());
    assert_eq!(std::fs::read_to_string(children).unwrap_or_default().trim(), "");
}

fn fork_and_exec(rig: &Rig) {
    let mut client = rig.client(&["-m", "4GiB"]);
    // Before the driver is initialised a child is a client of its own, of the same job.
    client.tell("fork");
    client.ready();
    client.expect(&format!("alloc {} a", 4 * GIB + 1), "alloc 2");
    client.expect(&format!("alloc {} a", 2 * GIB), "alloc 0");
    client.expect("exit 9", "forked 9");
    client.ready();
    // The child's memory is back within a second of its end.
    let mut room = 0;
    rig.eventually(std::time::Duration::from_secs(1), "the child's memory is back", || {
        room = client.room();
        room > 3 * GIB && client.say(&format!("alloc {room} all")) == "alloc 0"
    });
    client.expect("alloc 1 more", "alloc 2");
    client.expect("free all", "free 0");
    // After exec it is the same process and the same job.
    client.expect("exec dlopen", "exec");
    client.ready();
    client.expect(&format!("alloc {} x", 4 * GIB + 1), "alloc 2");
    let again = client.room();
    assert!(
        again >= room,
        "nothing of the image before is still charged: {again} < {room}"
    );
    client.expect(&format!("alloc {again} x"), "alloc 0");
    client.expect("alloc 1 y", "alloc 2");
}

fn closed_descriptors(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    let room = client.room();
    client.expect(&format!("alloc {} a", GIB / 2), "alloc 0");
    client.expect("closefds", "closefds");
    client.expect(&format!("alloc {} b", GIB), "alloc 2");
    client.expect("free a", "free 0");
    client.expect(&format!("alloc {} b", room / 512 * 512), "alloc 0");
}
