// SPDX-License-Identifier: Apache-2.0
//! The hold from the client's side: every call that the library sees stands at it, nobody is in the driver behind the
//! barrier, and what ties a process to its device is said.
//!
//! The test opens and closes the hold itself, in the client's own page.

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::Ordering;

use partage_protocol::gate::{HEARTBEAT_NS, THREADS};
use partage_protocol::hold::{FENCED, close_hard, close_parked, close_softly, ties};

use super::gate::ready;
use super::{Case, Random, tenth};
use crate::artefacts::{kernels, package_dir, program};
use crate::client::{Client, PATIENCE};
use crate::pages::{Pages, Stopped, now_ns};
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    const PAGES: &str = "only the broker's user may open a client's pages";
    vec![
        Case::new("hold::every_kind_of_call_stands_at_it", kinds).simulated(PAGES),
        Case::new("hold::threads_stand_and_go_on_with_right_results", threads).simulated(PAGES),
        Case::new("hold::soft_opens_without_a_heartbeat_and_hard_does_not", heartbeat).simulated(PAGES),
        Case::new("hold::a_thread_at_a_closed_gate_is_not_inside", at_the_gate).simulated(PAGES),
        Case::new("hold::signals_end_a_thread_there_or_it_stands_on", signals).simulated(PAGES),
        Case::new("hold::a_cancelled_thread_is_neither_inside_nor_waiting", |rig| {
            cancelled(rig, 0);
            cancelled(rig, THREADS);
        })
        .simulated(PAGES),
        Case::new("hold::a_thread_that_left_a_call_by_a_jump_is_outside", jumped).simulated(PAGES),
        Case::new("hold::a_child_does_not_stand_at_its_parents", children).simulated(PAGES),
        Case::new("hold::each_tie_is_said_once_it_is_made", each_tie).simulated(PAGES),
    ]
}

/// Commands of `do` whose every call the library sees.
const CALLS: [&str; 25] = [
    "kernel",
    "kernel_ptsz",
    "kernel_ex",
    "cooperative",
    "graph",
    "memset",
    "memset_now",
    "dtod",
    "unified_inside",
    "copy_2d",
    "prefetch",
    "htod",
    "dtoh",
    "htod_async",
    "dtoh_async",
    "unified_across",
    "host_function",
    "event_record",
    "stream_wait",
    "stream_query",
    "graph_upload",
    "alloc_and_free",
    "event_sync",
    "stream_sync",
    "context_sync",
];

/// Each call stands; nobody is inside then; it goes on when the hold opens, with the answer that it always has.
fn kinds(rig: &Rig) {
    let mut client = ready(rig);
    let open: Vec<_> = CALLS.iter().map(|call| client.say(&format!("do {call}"))).collect();
    client.expect("do context_sync", "do 0");
    client.expect("nvml", "nvml 0");
    let memory = client.say("nvmlmem 0");
    let (pages, _stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    for (call, open) in CALLS.iter().zip(open) {
        let close = if call.len() % 2 == 0 { close_softly } else { close_hard };
        let word = pages.close_hold(close);
        client.tell(&format!("do {call}"));
        rig.eventually(PATIENCE, &format!("{call} stands"), || {
            pages.wants() == 1
                || client
                    .try_answer()
                    .is_some_and(|answer| panic!("{call} did not stand: {answer}"))
        });
        assert_eq!(client.try_answer(), None, "{call} did not stand");
        assert!(
            !pages.client().is_anybody_inside(word),
            "{call} is inside while it stands"
        );
        pages.open_hold();
        let answer = client.answer();
        let is_moment = call.ends_with("query") && ["do 0", "do 600"].contains(&&*answer);
        assert!(answer == open || is_moment, "{call}: {answer} instead of {open}");
        assert_eq!(pages.wants(), 0, "{call}");
    }
    // NVML's do not, and are not inside; but while the process is saved they stand, and want nothing.
    let is_in_nvml = || {
        pages
            .client()
            .time
            .places()
            .any(partage_protocol::gate::ThreadSlot::is_in_nvml)
    };
    for close in [close_softly, close_hard] {
        let word = pages.close_hold(close);
        client.expect("nvmlmem 0", &memory);
        assert!(!pages.client().is_anybody_inside(word) && !is_in_nvml());
    }
    let word = pages.close_hold(close_parked);
    client.tell("nvmlmem 0");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!((client.try_answer(), pages.wants()), (None, 0));
    assert!(!pages.client().is_anybody_inside(word) && !is_in_nvml());
    pages.close_hold(close_hard);
    assert_eq!(client.answer(), memory);
}

/// Threads that do everything, held at random moments; more of them than slots, and with a broker that has no barrier.
fn threads(rig: &Rig) {
    let mut client = ready(rig);
    let (pages, _stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    let mut random = Random::new(16);
    let mut holds = 0_u32;
    for (threads, rounds, fence) in [(8, 1200, 0), (8, 400, FENCED), (150, 40, 0)] {
        pages.broker().head.hold.fetch_or(fence, Ordering::SeqCst);
        client.tell(&format!("holdthreads {threads} {}", rounds / tenth() + 4));
        let answer = loop {
            if let Some(answer) = client.try_answer() {
                break answer;
            }
            let close = if random.below(2) == 0 { close_softly } else { close_hard };
            let word = pages.close_hold(close);
            pages.wait_for_nobody(rig, word);
            let done = || {
                let file = pages.client();
                let launches =
                    |sum: u64, slot: &partage_protocol::gate::ThreadSlot| sum + slot.launches.load(Ordering::Acquire);
                let line = &file.page.devices[0];
                (
                    file.time.threads.iter().fold(0, launches),
                    line.started.load(Ordering::Acquire),
                    line.finished.load(Ordering::Acquire),
                )
            };
            let before = done();
            for _ in 0..random.below(20) {
                std::thread::yield_now();
            }
            // Who comes late shows for the moment of a look, too.
            pages.wait_for_nobody(rig, word);
            assert_eq!(done(), before, "a call passed the closed hold");
            pages.open_hold();
            holds += 1;
            for _ in 0..random.below(200) {
                std::thread::yield_now();
            }
        };
        assert_eq!(answer, "holdthreads 0", "{threads} threads");
    }
    rig.note(format!("held {holds} times"));
    assert!(holds > 20, "the threads were held {holds} times only");
    // All eight at once, at the end of their calls, and nobody else.
    client.tell("holdthreads 8 4");
    let word = pages.close_hold(close_hard);
    pages.wait_for_nobody(rig, word);
    pages.wait_for_wants(rig, 8);
    pages.open_hold();
    assert_eq!(client.answer(), "holdthreads 0");
    assert_eq!(pages.wants(), 0);
    assert!(pages.client().time.places().all(|place| !place.is_inside()));
    assert_eq!(pages.client().page.head.ties.load(Ordering::Relaxed), 0);
}

fn heartbeat(rig: &Rig) {
    let mut client = ready(rig);
    let (pages, _stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    let die = || {
        let old = now_ns().saturating_sub(HEARTBEAT_NS);
        pages.broker().head.heartbeat_ns.store(old, Ordering::Relaxed);
    };
    for call in ["kernel", "alloc_and_free"] {
        let word = pages.close_hold(close_softly);
        client.tell(&format!("do {call}"));
        pages.wait_for_wants(rig, 1);
        die();
        assert_eq!(client.answer(), "do 0", "soft, {call}");
        assert_eq!(pages.wants(), 0);
        pages.wait_for_nobody(rig, word);
        // Whoever comes later does not wait again.
        client.expect("do context_sync", "do 0");
        // Hardened after that, it holds without a heartbeat.
        let word = pages.close_hold(close_hard);
        die();
        client.tell(&format!("do {call}"));
        pages.wait_for_wants(rig, 1);
        let until = std::time::Instant::now() + std::time::Duration::from_nanos(HEARTBEAT_NS / 4 * 3);
        rig.eventually(PATIENCE, "time passes", || std::time::Instant::now() > until);
        assert_eq!((pages.wants(), client.try_answer()), (1, None), "hard, {call}");
        assert!(!pages.client().is_anybody_inside(word));
        pages.open_hold();
        assert_eq!(client.answer(), "do 0");
    }
}

fn at_the_gate(rig: &Rig) {
    let mut client = ready(rig);
    let (pages, _stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    for call in ["kernel", "graph", "memset"] {
        pages.close(0);
        client.tell(&format!("do {call}"));
        pages.wait_for(rig, 0, 1);
        let word = pages.close_hold(close_softly);
        pages.wait_for_nobody(rig, word);
        pages.open(0);
        pages.wait_for_wants(rig, 1);
        assert_eq!(client.try_answer(), None, "{call} passed the hold behind its gate");
        pages.open_hold();
        assert_eq!(client.answer(), "do 0", "{call}");
        assert_eq!((pages.waiting(0), pages.wants()), (0, 0));
        assert!(pages.is_quiet());
    }
}

fn signals(rig: &Rig) {
    let mut client = ready(rig);
    client.expect(&format!("caught {}", libc::SIGUSR1), "caught 0");
    let (pages, stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    pages.close_hold(close_hard);
    client.tell("do alloc_and_free");
    pages.wait_for_wants(rig, 1);
    client.signal(libc::SIGUSR1);
    let asked = now_ns();
    rig.eventually(PATIENCE, "some steps pass", || now_ns() > asked + 300_000_000);
    assert_eq!(
        (pages.wants(), client.try_answer()),
        (1, None),
        "it stands on after a signal"
    );
    pages.open_hold();
    assert_eq!(client.answer(), "do 0");
    client.expect("handled", "handled 1");
    pages.close_hold(close_hard);
    client.tell("do context_sync");
    pages.wait_for_wants(rig, 1);
    client.signal(libc::SIGTERM);
    assert_eq!(client.finish().signal(), Some(libc::SIGTERM));
    drop(stopped);
}

/// `others`: threads of the program that have called before, and live.
fn cancelled(rig: &Rig, others: usize) {
    let path = program("cancel_wait", "cancel_wait.c", &["-ldl", "-lpthread"]);
    let mut client = Client::start(rig.run(&["-m", "1GiB"], &path, &[&others.to_string()]));
    assert_eq!(client.answer(), "ready");
    let (pages, _stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    let word = pages.close_hold(close_hard);
    client.tell("launch");
    pages.wait_for_wants(rig, 1);
    client.tell("cancel");
    assert_eq!(client.answer(), "cancelled");
    rig.eventually(PATIENCE, "nobody is counted at the hold", || pages.wants() == 0);
    pages.wait_for_nobody(rig, word);
}

fn jumped(rig: &Rig) {
    let path = program("jump_rest", "jump_rest.c", &["-ldl"]);
    let kernels = package_dir().join("kernels/time_kernels.ptx").display().to_string();
    let mut client = Client::start(rig.run(&["-m", "1GiB"], &path, &[&kernels]));
    assert_eq!(client.answer(), "inside");
    assert_eq!(client.answer(), "outside");
    let (pages, _stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    let is_left = |slot: &partage_protocol::gate::ThreadSlot| slot.is_inside();
    assert!(pages.client().time.places().any(is_left), "nothing was left behind");
    for close in [close_softly, close_hard] {
        let word = pages.close_hold(close);
        assert!(pages.client().is_anybody_inside(word), "nobody has looked yet");
        pages.wait_for_nobody(rig, word);
        pages.open_hold();
    }
    client.signal(libc::SIGKILL);
}

fn children(rig: &Rig) {
    let mut client = ready(rig);
    let pages = Pages::of(client.pid());
    let word = pages.close_hold(close_hard);
    client.expect("doing alloc_and_free", "doing 0");
    pages.wait_for_wants(rig, 1);
    // The child is a new image, a client of its own with a hold of its own; the parent waits for it.
    client.tell("fork");
    client.expect("exec dlopen", "exec");
    client.ready();
    client.expect(&format!("gateready {}", kernels().display()), "gateready 0");
    client.expect("do kernel", "do 0");
    client.expect("do context_sync", "do 0");
    assert_eq!(pages.wants(), 1);
    assert!(!pages.client().is_anybody_inside(word));
    client.expect("exit 9", "forked 9");
    pages.open_hold();
    client.expect("done", "done 0");
}

fn each_tie(rig: &Rig) {
    let said = |client: &Client| Pages::of(client.pid()).client().page.head.ties.load(Ordering::Acquire);
    let start = || {
        let mut client = rig.client(&["-m", "1GiB", "-g", "0"]);
        client.ready();
        assert_eq!(said(&client), 0);
        client
    };
    let mut client = start();
    let mut expected = 0;
    let mut step = |client: &mut Client, line: &str, answer: &str, tie: u64| {
        let found = client.say(line);
        assert!(found.starts_with(answer), "{line}: {found}");
        expected |= tie;
        assert_eq!(said(client), expected, "after {line}");
        found.strip_prefix(answer).unwrap_or_default().trim().to_owned()
    };
    step(&mut client, "alloc 1048576 plain", "alloc 0", 0);
    step(&mut client, "free plain", "free 0", 0);
    step(&mut client, "managed 1048576 m", "managed 0", ties::MANAGED_MEMORY);
    // A tie stays.
    step(&mut client, "free m", "free 0", 0);
    step(&mut client, "alloc 1048576 shared", "alloc 0", 0);
    let handle = step(&mut client, "ipcget shared", "ipcget 0", ties::IPC_MEMORY_EXPORTED);
    step(&mut client, "createfd 2097152 a", "createfd 0", 0);
    let descriptor = step(&mut client, "vexport a", "vexport 0", ties::HANDLE_EXPORTED);
    step(
        &mut client,
        &format!("vimport {descriptor} b"),
        "vimport 0",
        ties::HANDLE_IMPORTED,
    );
    step(&mut client, "poolfd p", "poolfd 0", 0);
    let pool = step(&mut client, "poolexport p", "poolexport 0", ties::SHARED_POOL);
    step(&mut client, "external 1048576", "external 0", ties::EXTERNAL_MEMORY);
    // What the driver refuses ties nothing.
    for kind in ["eventget", "eventopen", "multicast", "dmabuf", "semaphore", "graphics"] {
        step(&mut client, &format!("tie {kind}"), "tie refused", 0);
    }
    let mut other = start();
    other.expect(&format!("ipcopen {handle} it"), "ipcopen 0");
    assert_eq!(said(&other), ties::IPC_MEMORY_OPENED);
    // A pool that came from elsewhere, here from the process itself.
    let mut importer = start();
    importer.expect("poolfd p", "poolfd 0");
    let own = importer.say("poolexport p");
    let own = own.strip_prefix("poolexport 0 ").expect("exported").to_owned();
    importer.expect(&format!("poolimport {own}"), "poolimport 0");
    assert_eq!(said(&importer), ties::SHARED_POOL);
    assert_ne!(pool, "-1");
}
