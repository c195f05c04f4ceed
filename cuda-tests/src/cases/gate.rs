// SPDX-License-Identifier: Apache-2.0
//! The gate from the client's side: which calls wait there, which never do, and how a thread leaves it.
//!
//! The test opens and closes the gate itself, in the client's own page.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::sync::atomic::Ordering;

use partage_protocol::gate::{GATES_COPIES, HEARTBEAT_NS, NEEDS_FENCE};

use super::{Case, Random, tenth};
use crate::artefacts::{kernels, program};
use crate::client::Client;
use crate::pages::{Pages, Stopped, now_ns};
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    const PAGES: &str = "only the broker's user may open a client's pages";
    vec![
        Case::new("gate::every_family_waits_while_it_is_closed", families_wait).simulated(PAGES),
        Case::new("gate::what_launches_nothing_never_waits", others_pass).simulated(PAGES),
        Case::new("gate::copies_of_the_host_wait_in_turns_only", copies_in_turns).simulated(PAGES),
        Case::new("gate::captures_go_on_while_it_is_closed", captures).simulated(PAGES),
        Case::new("gate::other_streams_wait_during_a_capture", other_streams).simulated(PAGES),
        Case::new("gate::signals_end_or_interrupt_the_wait", signals).simulated(PAGES),
        Case::new("gate::a_child_is_not_held_by_its_parents_gate", children).simulated(PAGES),
        Case::new("gate::opens_by_itself_without_a_heartbeat", heartbeat).simulated(PAGES),
        Case::new("gate::many_threads_pass_and_leave_no_trace", many_threads).simulated(PAGES),
        Case::new("gate::each_device_has_its_own", devices).simulated(PAGES),
        Case::new("gate::a_lone_launch_takes_few_instructions", instructions)
            .simulated("counts the library's instructions, with a driver that adds none"),
    ]
}

/// Calls that pass the gate in every regime, with what the driver answers to those that cannot succeed here.
const ALWAYS: [&str; 20] = [
    "kernel",
    "kernel_null",
    "kernel_ptsz",
    "kernel_ex",
    "cooperative",
    "grid",
    "grid_async",
    "launch",
    "together",
    "graph",
    "graph_ptsz",
    "memset",
    "memset_ptsz",
    "memset_2d",
    "memset_now",
    "dtod",
    "dtod_async",
    "unified_inside",
    "copy_2d",
    "prefetch",
];
/// Copies that pass it in Turns.
const IN_TURNS: [&str; 6] = [
    "htod",
    "dtoh",
    "htod_async",
    "dtoh_async",
    "unified_across",
    "copy_2d_across",
];
/// Calls that never do.
const NEVER: [&str; 13] = [
    "host_function",
    "event_record",
    "stream_wait",
    "event_query",
    "stream_query",
    "graph_upload",
    "alloc_and_free",
    "alloc_and_free_async",
    "stream_life",
    "event_life",
    "event_sync",
    "stream_sync",
    "context_sync",
];

pub fn ready(rig: &Rig) -> Client {
    prepare(rig.client(&["-m", "1GiB"]))
}

/// It has a context, the kernels, and a slot.
pub fn prepare(mut client: Client) -> Client {
    client.ready();
    client.expect(&format!("gateready {}", kernels().display()), "gateready 0");
    // The first launch takes a slot.
    client.expect("do kernel", "do 0");
    client
}

fn families_wait(rig: &Rig) {
    let mut client = ready(rig);
    let open: Vec<_> = ALWAYS.iter().map(|call| client.say(&format!("do {call}"))).collect();
    let (pages, _stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    for (call, open) in ALWAYS.iter().zip(open) {
        pages.close(0);
        let waited = pages.time(0).waited_ns.load(Ordering::Relaxed);
        client.tell(&format!("do {call}"));
        pages.wait_for(rig, 0, 1);
        assert_eq!(client.try_answer(), None, "{call} did not wait");
        assert!(pages.is_quiet(), "{call} stands in a slot while it waits");
        pages.open(0);
        assert_eq!(client.answer(), open, "{call}");
        assert!(
            pages.time(0).waited_ns.load(Ordering::Relaxed) > waited,
            "{call}: the wait is not counted"
        );
        assert_eq!(pages.waiting(0), 0, "{call}");
    }
    assert!(pages.is_quiet());
    let works: Vec<_> = ["kernel", "graph", "memset", "copy_2d"]
        .iter()
        .map(|call| client.say(&format!("do {call}")))
        .collect();
    assert_eq!(works, ["do 0"; 4]);
}

fn others_pass(rig: &Rig) {
    let mut client = ready(rig);
    let open: Vec<_> = NEVER
        .iter()
        .chain(&IN_TURNS)
        .map(|call| client.say(&format!("do {call}")))
        .collect();
    let (pages, _stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    pages.close(0);
    for (call, open) in NEVER.iter().chain(&IN_TURNS).zip(open) {
        let closed = client.say(&format!("do {call}"));
        // Whether earlier work has ended is the device's affair.
        let is_moment = call.ends_with("query") && ["do 0", "do 600"].contains(&&*closed);
        assert!(closed == open || is_moment, "{call}: {closed} instead of {open}");
    }
    assert_eq!(pages.time(0).waited_ns.load(Ordering::Relaxed), 0);
}

fn copies_in_turns(rig: &Rig) {
    let mut client = ready(rig);
    let (pages, _stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    pages.line(0).gate_flags.fetch_or(GATES_COPIES, Ordering::Relaxed);
    for call in IN_TURNS {
        client.expect(&format!("do {call}"), "do 0");
        pages.close(0);
        client.tell(&format!("do {call}"));
        pages.wait_for(rig, 0, 1);
        pages.open(0);
        assert_eq!(client.answer(), "do 0", "{call}");
    }
    pages.close(0);
    for call in ["event_record", "host_function", "stream_sync"] {
        client.expect(&format!("do {call}"), "do 0");
    }
}

fn captures(rig: &Rig) {
    let mut client = ready(rig);
    let (pages, _stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    for mode in 0..3 {
        let open = client.say(&format!("capture {mode}"));
        assert_eq!(open, "capture 0 3", "mode {mode}");
        pages.close(0);
        client.expect(&format!("capture {mode}"), &open);
        assert_eq!(
            pages.time(0).waited_ns.load(Ordering::Relaxed),
            0,
            "a captured call waited in mode {mode}"
        );
        pages.open(0);
    }
    pages.close(0);
    client.tell("do graph");
    pages.wait_for(rig, 0, 1);
    pages.open(0);
    assert_eq!(client.answer(), "do 0");
}

fn other_streams(rig: &Rig) {
    let mut client = ready(rig);
    let (pages, _stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    for mode in 0..3 {
        pages.close(0);
        client.expect(&format!("capturebegin {mode}"), "capturebegin 0");
        client.tell("otherkernel");
        pages.wait_for(rig, 0, 1);
        pages.open(0);
        assert_eq!(client.answer(), "otherkernel 0", "mode {mode}");
        client.expect("captureend", "captureend 0 3");
    }
}

fn signals(rig: &Rig) {
    let state = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().next())
            .map(str::to_owned)
    };
    let soon = std::time::Duration::from_secs(30);
    let start = || {
        let mut command = rig.run(&["-m", "1GiB"], &crate::artefacts::client(), &["dlopen"]);
        // A group of its own with a parent outside: terminal stops reach it.
        command.process_group(0);
        prepare(Client::start(command))
    };
    // Signals that stop, and one that is caught.
    let mut client = start();
    client.expect(&format!("caught {}", libc::SIGUSR1), "caught 0");
    let (pages, stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    pages.close(0);
    client.tell("do kernel");
    pages.wait_for(rig, 0, 1);
    client.signal(libc::SIGTSTP);
    rig.eventually(soon, "it stops", || state(client.pid()).as_deref() == Some("T"));
    client.signal(libc::SIGCONT);
    rig.eventually(soon, "it goes on", || state(client.pid()).as_deref() == Some("S"));
    client.signal(libc::SIGUSR1);
    let waited = || pages.time(0).waited_ns.load(Ordering::Relaxed);
    let before = waited();
    rig.eventually(soon, "the interrupted wait is counted", || waited() > before);
    assert_eq!(
        (pages.waiting(0), client.try_answer()),
        (1, None),
        "it waits on after a caught signal"
    );
    pages.open(0);
    assert_eq!(client.answer(), "do 0");
    client.expect("handled", "handled 1");
    drop((client, pages, stopped));
    // Signals that end.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
        let mut client = start();
        let (pages, stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
        pages.close(0);
        client.tell("do kernel");
        pages.wait_for(rig, 0, 1);
        client.signal(signal);
        assert_eq!(client.finish().signal(), Some(signal));
        drop(stopped);
    }
}

fn children(rig: &Rig) {
    let mut client = ready(rig);
    let pages = Pages::of(client.pid());
    pages.close(0);
    client.expect("doing kernel", "doing 0");
    pages.wait_for(rig, 0, 1);
    // The child is a new image, a client of its own with a gate of its own; the parent waits for it.
    client.tell("fork");
    client.expect("exec dlopen", "exec");
    client.ready();
    client.expect(&format!("gateready {}", kernels().display()), "gateready 0");
    client.expect("do kernel", "do 0");
    client.expect("do context_sync", "do 0");
    assert_eq!(pages.waiting(0), 1);
    client.expect("exit 9", "forked 9");
    pages.open(0);
    client.expect("done", "done 0");
    client.expect("do kernel", "do 0");
}

fn heartbeat(rig: &Rig) {
    let mut client = ready(rig);
    let (pages, stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    let failed = || pages.time(0).failed_open.load(Ordering::Relaxed);
    pages.close(0);
    let old = now_ns().saturating_sub(HEARTBEAT_NS);
    pages.broker().head.heartbeat_ns.store(old, Ordering::Relaxed);
    client.expect("do kernel", "do 0");
    assert_eq!(failed(), 1);
    let waited = pages.time(0).waited_ns.load(Ordering::Relaxed);
    // Whoever comes later does not wait again.
    client.expect("do graph", "do 0");
    assert_eq!((failed(), pages.time(0).waited_ns.load(Ordering::Relaxed)), (2, waited));
    // A broker that looks again is obeyed again.
    pages.close(0);
    client.tell("do kernel");
    pages.wait_for(rig, 0, 1);
    pages.open(0);
    assert_eq!(client.answer(), "do 0");
    assert_eq!(failed(), 2);
    drop((pages, stopped, client));

    let mut command = rig.run(&["-m", "1GiB"], &crate::artefacts::client(), &["dlopen"]);
    command.env("PARTAGE_TIME_FAIL", "closed");
    let mut client = prepare(Client::start(command));
    let (pages, _stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    pages.close(0);
    pages.broker().head.heartbeat_ns.store(old, Ordering::Relaxed);
    client.tell("do kernel");
    let failed = || pages.time(0).failed_open.load(Ordering::Relaxed);
    rig.eventually(std::time::Duration::from_secs(30), "it is counted", || failed() == 1);
    assert_eq!((pages.waiting(0), client.try_answer()), (1, None));
    pages.open(0);
    assert_eq!(client.answer(), "do 0");
}

fn many_threads(rig: &Rig) {
    let mut client = ready(rig);
    let (pages, _stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    let mut random = Random::new(4);
    for flags in [0, NEEDS_FENCE] {
        pages.line(0).gate_flags.store(flags, Ordering::Relaxed);
        // More threads than slots, then fewer, which take the places of the dead.
        for threads in [150, 40] {
            client.tell(&format!("gatethreads {threads} {}", 400 / tenth()));
            let answer = loop {
                if let Some(answer) = client.try_answer() {
                    break answer;
                }
                pages.close(0);
                // What was admitted before the barrier shows until it has ended, and nothing comes after.
                rig.eventually(std::time::Duration::from_secs(60), "the gate drains", || {
                    pages.is_quiet()
                });
                let launches = || -> u64 {
                    let slots = &pages.client().time.threads;
                    slots.iter().map(|slot| slot.launches.load(Ordering::Relaxed)).sum()
                };
                let before = launches();
                for _ in 0..random.below(20) {
                    std::thread::yield_now();
                }
                // Who comes late shows for the moment of a look, too.
                rig.eventually(std::time::Duration::from_secs(60), "nobody passes", || pages.is_quiet());
                assert_eq!(launches(), before, "a launch passed the closed gate");
                pages.open(0);
                for _ in 0..random.below(200) {
                    std::thread::yield_now();
                }
            };
            assert_eq!(answer, "gatethreads 0");
        }
    }
    assert!(pages.is_quiet());
    assert_eq!(pages.waiting(0), 0);
    let crowds = &pages.client().time.crowd;
    assert!(crowds.iter().all(|crowd| crowd.load(Ordering::Relaxed) == 0));
}

/// More instructions than a function that only forwards takes: 27 on x86-64. A system call, a lock or a second look
/// would show.
const MOST_INSTRUCTIONS: i64 = 40;

fn instructions(rig: &Rig) {
    if !cfg!(target_arch = "x86_64") {
        rig.note("this processor cannot be told to trap after each instruction of a program");
        return;
    }
    let bench = program("bench-steps", "bench.c", &["-ldl", "-lpthread"]);
    let output = rig.output(rig.run(&["-m", "1GiB"], &bench, &["steps", "1"]));
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let counts: Vec<i64> = text
        .split_whitespace()
        .map(|word| word.parse().unwrap_or_else(|_| panic!("{text}")))
        .collect();
    let [straight, forwarded, gated] = counts[..] else {
        panic!("{text}")
    };
    rig.note(format!(
        "{straight} instructions straight, {forwarded} forwarded, {gated} through the gate"
    ));
    assert!(
        straight < forwarded && forwarded < gated,
        "something was not counted: {text}"
    );
    assert!(gated - forwarded <= MOST_INSTRUCTIONS, "{text}");
}

fn devices(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB", "-g", "auto:2"]);
    client.expect("init 0", "init 0");
    client.expect("ctx 1", "ctx 0");
    client.expect(&format!("gateready {}", kernels().display()), "gateready 0");
    client.expect("do kernel", "do 0");
    let (pages, _stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    pages.close(0);
    client.expect("do kernel", "do 0");
    client.expect("do memset_now", "do 0");
    pages.close(1);
    for call in ["kernel", "kernel_null", "graph", "memset"] {
        pages.close(1);
        client.tell(&format!("do {call}"));
        pages.wait_for(rig, 1, 1);
        assert_eq!(pages.waiting(0), 0);
        pages.open(1);
        assert_eq!(client.answer(), "do 0", "{call}");
    }
}
