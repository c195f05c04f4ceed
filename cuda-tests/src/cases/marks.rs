// SPDX-License-Identifier: Apache-2.0
//! The marks that a client has its devices write while the broker asks for them.
//!
//! The test asks in the broker's place and reads the lanes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use partage_protocol::gate::{self, LANES, MEASURED, UNBOUNDED, UNSHARED};

use super::Case;
use super::gate::ready;
use crate::client::Client;
use crate::pages::{Pages, Stopped, now_ns};
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    const PAGES: &str = "only the broker's user may open a client's pages";
    vec![
        Case::new("marks::each_kind_of_work_leaves_one_and_it_retires", kinds).simulated(PAGES),
        Case::new("marks::nothing_is_marked_unless_asked_for", unasked).simulated(PAGES),
        Case::new("marks::work_that_has_not_begun_is_in_flight_and_not_busy", waiting_work).simulated(PAGES),
        Case::new("marks::a_batch_ends_before_the_program_waits", batches).simulated(PAGES),
        Case::new("marks::captures_stay_what_they_were", captures).simulated(PAGES),
        Case::new("marks::overlapping_kernels_have_none_between_them", overlaps).simulated(PAGES),
        Case::new("marks::more_streams_than_lanes_are_counted", many_streams).simulated(PAGES),
        Case::new("marks::threads_and_streams_come_and_go", threads).simulated(PAGES),
        Case::new("marks::lengths_of_units_are_learnt", lengths).simulated(PAGES),
        Case::new("marks::work_in_flight_is_bounded_in_time", depth).simulated(PAGES),
        Case::new(
            "marks::work_of_unknown_length_is_bounded_from_the_first_launch_on",
            first_launches,
        )
        .simulated(PAGES),
        Case::new("marks::lengths_in_the_legacy_stream_are_learnt_too", legacy_lengths).simulated(PAGES),
        Case::new("marks::a_stream_that_stands_in_a_host_function_is_idle", host_functions).simulated(PAGES),
        Case::new("marks::long_units_wait_behind_one_and_not_behind_eight", long_units).simulated(PAGES),
        Case::new("marks::a_bound_never_holds_work_for_ever", stall).simulated(PAGES),
        Case::new("marks::a_context_takes_its_marks_with_it", contexts).simulated(PAGES),
    ]
}

const SOON: Duration = Duration::from_secs(30);

/// A client whose work is marked from now on.
fn measured(rig: &Rig) -> (Client, Pages, Stopped) {
    let client = ready(rig);
    let (pages, stopped) = (Pages::of(client.pid()), Stopped::broker(rig));
    pages.keep_alive();
    pages.line(0).gate_flags.fetch_or(MEASURED, Ordering::Relaxed);
    (client, pages, stopped)
}

/// Σ over lanes of the batches that were begun, and of those that ended.
fn sums(pages: &Pages) -> (u64, u64) {
    let lanes = &pages.time(0).lanes;
    let submitted = lanes.iter().map(|lane| lane.submitted.load(Ordering::Acquire)).sum();
    (
        submitted,
        pages.time(0).retired() - pages.time(0).unlaned_ended.load(Ordering::Relaxed),
    )
}

fn is_idle(pages: &Pages) -> bool {
    !pages.time(0).is_busy(now_ns()) && pages.time(0).lanes.iter().all(|lane| !lane.is_in_flight())
}

#[track_caller]
fn wait_until_idle(rig: &Rig, pages: &Pages) {
    rig.eventually(SOON, "everything retires", || is_idle(pages));
}

fn kinds(rig: &Rig) {
    let (mut client, pages, _stopped) = measured(rig);
    for call in [
        "kernel",
        "kernel_null",
        "kernel_ptsz",
        "kernel_ex",
        "cooperative",
        "graph",
        "graph_ptsz",
        "memset",
        "memset_now",
        "dtod",
        "dtod_async",
        "unified_inside",
        "copy_2d",
    ] {
        let (before, _) = sums(&pages);
        client.expect(&format!("do {call}"), "do 0");
        let (after, _) = sums(&pages);
        assert_eq!(after, before + 1, "{call} alone is a batch");
        // Nobody synchronises: the device says so by itself.
        wait_until_idle(rig, &pages);
        assert_eq!(sums(&pages), (after, after), "{call}");
    }
    let (before, _) = sums(&pages);
    for call in [
        "htod",
        "dtoh",
        "htod_async",
        "dtoh_async",
        "unified_across",
        "copy_2d_across",
        "host_function",
    ] {
        client.expect(&format!("do {call}"), "do 0");
    }
    assert_eq!(
        sums(&pages).0,
        before,
        "copies of the host and host functions do not occupy the device"
    );
    assert_eq!(pages.time(0).unlaned.load(Ordering::Relaxed), 0);
}

fn unasked(rig: &Rig) {
    let (mut client, pages, _stopped) = measured(rig);
    client.expect("do kernel", "do 0");
    wait_until_idle(rig, &pages);
    let before = sums(&pages);
    pages.line(0).gate_flags.store(0, Ordering::Relaxed);
    for call in ["kernel", "kernel_null", "graph", "stream_sync"] {
        client.expect(&format!("do {call}"), "do 0");
    }
    assert_eq!(sums(&pages), before);
}

fn waiting_work(rig: &Rig) {
    let (mut client, pages, _stopped) = measured(rig);
    client.expect("do context_sync", "do 0");
    wait_until_idle(rig, &pages);
    client.expect("stream s", "stream 0");
    client.expect("hold s", "hold 0");
    // An event in the held stream holds the other one too.
    client.expect("do event_record", "do 0");
    client.expect("behind s", "behind 0");
    client.expect("do kernel", "do 0");
    let lane = || {
        let lanes = pages.time(0).lanes.iter();
        lanes.filter(|lane| lane.is_in_flight()).count()
    };
    assert_eq!(lane(), 1);
    assert!(!pages.time(0).is_busy(now_ns()), "it waits for another stream");
    client.expect("unhold", "unhold");
    wait_until_idle(rig, &pages);
}

fn batches(rig: &Rig) {
    for wait in [
        "do stream_sync",
        "do context_sync",
        "do event_record",
        "do stream_query",
        "do htod_async",
        "do host_function",
        "do callback",
    ] {
        let (mut client, pages, _stopped) = measured(rig);
        client.expect("stream s", "stream 0");
        client.expect("hold s", "hold 0");
        client.expect("behind s", "behind 0");
        // The first is a batch of its own; the others wait behind it and share one.
        for _ in 0..4 {
            client.expect("do memset", "do 0");
        }
        let unmarked = |pages: &Pages| -> u64 {
            let lanes = pages.time(0).lanes.iter();
            lanes.map(|lane| lane.unmarked.load(Ordering::Relaxed)).sum()
        };
        let open = unmarked(&pages);
        client.expect("unhold", "unhold");
        let answer = client.say(wait);
        assert!(["do 0", "do 600"].contains(&&*answer), "{wait}: {answer}");
        assert_eq!(
            unmarked(&pages),
            0,
            "{wait}: {open} launches had no mark, and still have none"
        );
        wait_until_idle(rig, &pages);
    }
}

fn captures(rig: &Rig) {
    let (mut client, pages, stopped) = measured(rig);
    client.expect("do kernel", "do 0");
    wait_until_idle(rig, &pages);
    for mode in 0..3 {
        let before = sums(&pages).0;
        client.expect(&format!("capture {mode}"), "capture 0 3");
        assert_eq!(sums(&pages).0, before, "mode {mode}");
        client.expect(&format!("capturebegin {mode}"), "capturebegin 0");
        client.expect("otherkernel", "otherkernel 0");
        assert_eq!(
            sums(&pages).0,
            before + 1,
            "other streams are marked during a capture in mode {mode}"
        );
        client.expect("captureend", "captureend 0 3");
        client.expect("do context_sync", "do 0");
    }
    drop((client, pages, stopped));
    // The first marked launch of all may fall into a capture of another stream.
    let (mut client, pages, _stopped) = measured(rig);
    let before = sums(&pages).0;
    client.expect("capturebegin 0", "capturebegin 0");
    client.expect("otherkernel", "otherkernel 0");
    client.expect("captureend", "captureend 0 3");
    wait_until_idle(rig, &pages);
    assert_eq!(sums(&pages), (before + 1, before + 1));
}

fn overlaps(rig: &Rig) {
    let (mut client, pages, _stopped) = measured(rig);
    client.expect("do stream_sync", "do 0");
    wait_until_idle(rig, &pages);
    let before = sums(&pages).0;
    for _ in 0..100 {
        client.expect("do kernel_ex_overlapping", "do 0");
    }
    assert_eq!(sums(&pages).0, before, "a mark between two kernels that overlap");
    let until = |lane: &gate::Lane| lane.unmarked_until_ns.load(Ordering::Relaxed);
    let until = pages.time(0).lanes.iter().map(until).max().unwrap_or(0);
    assert!(
        pages.time(0).is_busy(until),
        "what has no mark counts as running for a while"
    );
    assert!(!pages.time(0).is_busy(until + 1), "and not for ever");
    client.expect("do stream_sync", "do 0");
    wait_until_idle(rig, &pages);
    assert_eq!(sums(&pages), (before + 1, before + 1));
    // A kernel of the usual kind gets its mark before the next, not between itself and one that may overlap.
    client.expect("do kernel", "do 0");
    client.expect("do kernel_ex_overlapping", "do 0");
    let (_, ended) = sums(&pages);
    assert_eq!(ended, before + 1);
    client.expect("do kernel", "do 0");
    client.expect("do stream_sync", "do 0");
    wait_until_idle(rig, &pages);
}

fn many_streams(rig: &Rig) {
    let (mut client, pages, _stopped) = measured(rig);
    client.expect("do context_sync", "do 0");
    wait_until_idle(rig, &pages);
    client.expect("hold", "hold 0");
    client.expect("stream s", "stream 0");
    client.expect("hold s", "hold 0");
    client.expect("eventin s", "eventin 0");
    let streams = LANES + 4;
    client.expect(&format!("many {streams}"), "many 0");
    let count = |word: &std::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
    let page = pages.time(0);
    assert_eq!((count(&page.unlaned), count(&page.unlaned_ended)), (4, 0));
    assert!(page.is_busy(now_ns()));
    client.expect("unhold", "unhold");
    client.expect("do context_sync", "do 0");
    assert_eq!(count(&page.unlaned_ended), 4);
    wait_until_idle(rig, &pages);
    // Their lanes serve others now.
    client.expect(&format!("many {}", LANES / 2), "many 0");
    assert_eq!(count(&page.unlaned), 4);
}

fn threads(rig: &Rig) {
    let (mut client, pages, _stopped) = measured(rig);
    for threads in [1, 8, 40] {
        client.expect(&format!("gatethreads {threads} 64"), "gatethreads 0");
        client.expect("do context_sync", "do 0");
        wait_until_idle(rig, &pages);
        let (submitted, ended) = sums(&pages);
        assert_eq!(submitted, ended);
        assert!(submitted > 0);
    }
    assert!(pages.is_quiet());
}

/// What the client says that the next kernel of its only lane takes, in nanoseconds.
fn announced(client: &mut Client, pages: &Pages, verb: &str, length_ns: u64) -> gate::Work {
    let page = pages.time(0);
    let (lane, ends) = (&page.lanes[0], &page.ends[0]);
    let before = ends.of(lane.submitted.load(Ordering::Acquire));
    client.expect(&format!("{verb} 1 {length_ns}"), &format!("{verb} 0"));
    client.expect("do context_sync", "do 0");
    ends.of(lane.submitted.load(Ordering::Acquire)).since(before)
}

/// Has a client learn, round by round, until its next kernel is announced as what it is, to a fiftieth: while a loaded
/// machine stands still the simulated device has gaps, which are timed too, and the next rounds outweigh them.
fn learnt(client: &mut Client, pages: &Pages, (verb, length_ns): (&str, u64), round: impl Fn(&mut Client)) {
    let mut said = Vec::new();
    while said.len() < 10 {
        round(client);
        let unit = pages.time(0).unit_ns.load(Ordering::Relaxed);
        let work = announced(client, pages, verb, length_ns);
        assert_eq!((work.units, work.unknown_ns), (1, 0), "{work:?}");
        if [unit, work.ns]
            .iter()
            .all(|ns| ns.abs_diff(length_ns) <= length_ns / 50)
        {
            return;
        }
        said.push((unit, work.ns));
    }
    panic!("kernels of {length_ns} ns were taken for, and announced as: {said:?} ns");
}

fn lengths(rig: &Rig) {
    const NS: u64 = 3_000_000;
    let (mut client, pages, _stopped) = measured(rig);
    pages.line(0).gate_flags.fetch_or(UNSHARED, Ordering::Relaxed);
    // All wait in their stream, so that each follows what is ahead of it without a gap.
    client.expect("stream s", "stream 0");
    learnt(&mut client, &pages, ("spins", NS), |client| {
        // The last launch reads what was timed of those before.
        for count in [16, 16, 16, 16, 1] {
            client.expect("hold s", "hold 0");
            client.expect("behind s", "behind 0");
            client.expect(&format!("spins {count} {NS}"), "spins 0");
            client.expect("unhold", "unhold");
            client.expect("do stream_sync", "do 0");
        }
    });
    wait_until_idle(rig, &pages);
}

/// Each launch waits for the one before, and its length is its own all the same: plain CUDA programs know no other
/// stream.
fn legacy_lengths(rig: &Rig) {
    const NS: u64 = 3_000_000;
    let (mut client, pages, _stopped) = measured(rig);
    pages.line(0).gate_flags.fetch_or(UNSHARED, Ordering::Relaxed);
    learnt(&mut client, &pages, ("nullspins", NS), |client| {
        for count in [16, 16, 16, 16, 1] {
            client.expect(&format!("nullspins {count} {NS}"), "nullspins 0");
            client.expect("do context_sync", "do 0");
        }
    });
    wait_until_idle(rig, &pages);
}

/// Has the client learn how long its kernels take, and bounds what it may have in flight.
fn bounded(client: &mut Client, pages: &Pages, length_ns: u64) {
    for _ in 0..4 {
        client.expect(&format!("spins 4 {length_ns}"), "spins 0");
        client.expect("do stream_sync", "do 0");
    }
    pages.line(0).depth_ns.store(500_000, Ordering::Relaxed);
}

/// Lets so many kernels of one length through the bound; answers how many were in flight at most.
fn deepest(client: &mut Client, pages: &Pages, kernels: u64, length_ns: u64) -> u64 {
    deepest_of(client, pages, ("spins", kernels, length_ns))
}

/// As [`deepest`], of kernels that this verb of the client launches.
fn deepest_of(client: &mut Client, pages: &Pages, (verb, kernels, length_ns): (&str, u64, u64)) -> u64 {
    let page = pages.time(0);
    let mut deepest = 0;
    client.tell(&format!("{verb} {kernels} {length_ns}"));
    let answer = loop {
        if let Some(answer) = client.try_answer() {
            break answer;
        }
        let ended = || -> u64 { page.lanes.iter().map(|lane| lane.ended.load(Ordering::Acquire)).sum() };
        let before = ended();
        let lanes = page.lanes.iter();
        let submitted: u64 = lanes.map(|lane| lane.submitted.load(Ordering::Acquire)).sum();
        // What ended between the two looks was not in flight beside the rest.
        if ended() == before {
            deepest = submitted.saturating_sub(before).max(deepest);
        }
        std::thread::yield_now();
    };
    assert_eq!(answer, format!("{verb} 0"));
    client.expect("do context_sync", "do 0");
    deepest
}

/// What is in flight before any length is known is what would be if the length were: a job that waits for it waits for
/// one kernel, or two, not for all that the program launches in its first milliseconds.
fn first_launches(rig: &Rig) {
    const NS: u64 = 3_000_000;
    for verb in ["spins", "nullspins"] {
        for (depth_ns, most) in [(500_000, 2), (200_000, 1), (0, 1)] {
            let (mut client, pages, _stopped) = measured(rig);
            pages.line(0).depth_ns.store(depth_ns, Ordering::Relaxed);
            let first = deepest_of(&mut client, &pages, (verb, 12, NS));
            assert_eq!(first, most, "{verb} with a bound of {depth_ns} ns");
            // And once it is known.
            let later = deepest_of(&mut client, &pages, (verb, 12, NS));
            assert_eq!(later, most, "{verb} with a bound of {depth_ns} ns, of known length");
        }
    }
    // No event stands between kernels that overlap: eight, and then a mark.
    let (mut client, pages, _stopped) = measured(rig);
    pages.line(0).depth_ns.store(500_000, Ordering::Relaxed);
    client.expect(&format!("overlappingspins 24 {NS}"), "overlappingspins 0");
    client.expect("do context_sync", "do 0");
    let (lane, ends) = (&pages.time(0).lanes[0], &pages.time(0).ends[0]);
    let submitted = lane.submitted.load(Ordering::Acquire);
    let batches: Vec<u64> = (1..=submitted)
        .map(|number| ends.of(number).since(ends.of(number - 1)).units)
        .collect();
    assert_eq!(batches.iter().sum::<u64>(), 24);
    assert!(
        batches[0] == 8 && batches.iter().all(|units| *units <= 8),
        "{batches:?}"
    );
}

/// What waits behind the function has not begun, and what was ahead of it has ended: nobody is kept away for its sake.
fn host_functions(rig: &Rig) {
    let (mut client, pages, _stopped) = measured(rig);
    client.expect("do kernel", "do 0");
    client.expect("do kernel", "do 0");
    client.expect("standing", "standing 0");
    client.expect("do kernel", "do 0");
    rig.eventually(SOON, "what is ahead of the function retires", || {
        !pages.time(0).is_busy(now_ns())
    });
    assert!(pages.time(0).lanes.iter().any(|lane| lane.is_in_flight()));
    client.expect("unhold", "unhold");
    client.expect("do stream_sync", "do 0");
    wait_until_idle(rig, &pages);
}

fn depth(rig: &Rig) {
    let (mut client, pages, _stopped) = measured(rig);
    bounded(&mut client, &pages, 200_000);
    let page = pages.time(0);
    // Twice the bound, and one that is being launched.
    let short = deepest(&mut client, &pages, 400, 200_000);
    assert!((2..=7).contains(&short), "{short} of 0.2 ms");
    assert!(page.waited_ns.load(Ordering::Relaxed) > 0);
    wait_until_idle(rig, &pages);
    // Without a bound nothing waits.
    pages.line(0).depth_ns.store(UNBOUNDED, Ordering::Relaxed);
    let waited = page.waited_ns.load(Ordering::Relaxed);
    client.expect("spins 60 200000", "spins 0");
    client.expect("do stream_sync", "do 0");
    assert_eq!(page.waited_ns.load(Ordering::Relaxed), waited);
}

/// The next behind the one that runs; beside somebody more urgent that one alone.
fn long_units(rig: &Rig) {
    let (mut client, pages, _stopped) = measured(rig);
    bounded(&mut client, &pages, 3_000_000);
    assert_eq!(deepest(&mut client, &pages, 40, 3_000_000), 2);
    pages.line(0).depth_ns.store(200_000, Ordering::Relaxed);
    assert_eq!(deepest(&mut client, &pages, 20, 3_000_000), 1);
}

fn stall(rig: &Rig) {
    let (mut client, pages, _stopped) = measured(rig);
    bounded(&mut client, &pages, 200_000);
    client.expect("stream s", "stream 0");
    client.expect("hold s", "hold 0");
    client.expect("behind s", "behind 0");
    client.tell("spins 16 200000");
    pages.wait_for(rig, 0, 1);
    assert_eq!(client.try_answer(), None);
    // Nothing can retire before `unhold`, which comes after the launches.
    assert_eq!(client.answer(), "spins 0");
    assert!(pages.time(0).waited_ns.load(Ordering::Relaxed) > 50_000_000);
    client.expect("unhold", "unhold");
    client.expect("do stream_sync", "do 0");
    wait_until_idle(rig, &pages);
}

fn contexts(rig: &Rig) {
    let (mut client, pages, stopped) = measured(rig);
    client.expect("do kernel", "do 0");
    client.expect("do memset", "do 0");
    client.expect("ctxdestroy 0", "ctxdestroy 0");
    assert!(is_idle(&pages));
    // Without a broker that serves no context is made, and one that was waited for in vain is asked once it is heard.
    drop(stopped);
    rig.eventually(Duration::from_secs(20), "the broker is heard again", || {
        client.say("ctx 0") == "ctx 0"
    });
    let _stopped = Stopped::broker(rig);
    pages.line(0).gate_flags.fetch_or(MEASURED, Ordering::Relaxed);
    client.expect(
        &format!("gateready {}", crate::artefacts::kernels().display()),
        "gateready 0",
    );
    let (before, _) = sums(&pages);
    client.expect("do kernel", "do 0");
    assert_eq!(sums(&pages).0, before + 1);
    assert_eq!(pages.time(0).unlaned.load(Ordering::Relaxed), 0);
    wait_until_idle(rig, &pages);
}
