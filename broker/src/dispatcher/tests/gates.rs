// SPDX-License-Identifier: Apache-2.0
//! Which gates are open, what clients are told, and what jobs get by it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use partage_policy::UnmanagedLoad;
use partage_protocol::gate::{MEASURED, NEEDS_FENCE, UNBOUNDED, UNSHARED};
use partage_protocol::units::{ClientId, JobId};
use partage_scheduling::{Regime, Terms};

use super::{Bench, DEVICE, MS, is_open, join, show_busy, terms};
use crate::dispatcher::gates::Dispatcher;
use crate::dispatcher::message::Message;
use crate::state::pages::PagePair;

#[test]
fn a_job_alone_has_its_gate_open_and_no_bound() {
    let mut dispatcher = Dispatcher::new(Bench::default());
    terms(&mut dispatcher, 0, 1, Terms::default());
    let pages = join(&mut dispatcher, 0, 1, 1);
    dispatcher.run_once(0);
    assert!(is_open(&pages));
    assert_eq!(pages.broker().devices[0].depth_ns.load(Ordering::SeqCst), UNBOUNDED);
    assert_eq!(
        pages.broker().devices[0].gate_flags.load(Ordering::SeqCst) & MEASURED,
        0
    );
    assert_eq!(dispatcher.view(0), [], "nothing is measured, so nothing is said");
}

#[test]
fn work_is_marked_for_as_long_as_a_neighbour_is_there() {
    let mut dispatcher = Dispatcher::new(Bench::default());
    for job in [1, 2] {
        terms(&mut dispatcher, 0, job, Terms::default());
    }
    let pages = [join(&mut dispatcher, 0, 1, 1), join(&mut dispatcher, 0, 2, 2)];
    let is_marked = |pages: &PagePair| pages.broker().devices[0].gate_flags.load(Ordering::SeqCst) & MEASURED != 0;
    dispatcher.run_once(0);
    assert!(pages.iter().all(|pages| is_marked(pages)));
    assert_eq!(dispatcher.view(0).len(), 2);
    dispatcher.take(MS, Message::Left(ClientId(2)));
    dispatcher.take(MS, Message::JobGone(JobId(2)));
    dispatcher.run_once(MS);
    assert!(!is_marked(&pages[0]) && is_open(&pages[0]));
}

/// A client's flags.
fn flags(pages: &PagePair) -> u32 {
    pages.broker().devices[0].gate_flags.load(Ordering::SeqCst)
}

#[test]
fn who_has_the_device_for_itself_is_told_so() {
    let mut dispatcher = Dispatcher::new(Bench::default());
    terms(&mut dispatcher, 0, 1, Terms::default());
    let first = join(&mut dispatcher, 0, 1, 1);
    dispatcher.run_once(0);
    assert_eq!(flags(&first), 0, "alone it is not measured");
    let capped = Terms {
        cap_ppm: Some(500_000),
        ..Terms::default()
    };
    terms(&mut dispatcher, MS, 1, capped);
    dispatcher.run_once(MS);
    dispatcher.run_once(2 * MS);
    assert_eq!(flags(&first) & (MEASURED | UNSHARED), MEASURED | UNSHARED);
    // Processes of no job have slices, too.
    for (now, strangers, is_told) in [
        (10 * MS, UnmanagedLoad::Felt, false),
        (20 * MS, UnmanagedLoad::Quiet, true),
    ] {
        dispatcher.take(now, Message::Unmanaged(DEVICE, strangers));
        dispatcher.run_once(now + 5 * MS);
        assert_eq!(flags(&first) & UNSHARED != 0, is_told, "{strangers:?}");
    }
    // Two in Overlap: each may have the other's slices in its own time. In Turns the one whose turn it is has not.
    terms(&mut dispatcher, 30 * MS, 1, Terms::default());
    terms(&mut dispatcher, 30 * MS, 2, Terms::default());
    let second = join(&mut dispatcher, 30 * MS, 2, 2);
    let both = [first, second];
    let (mut told, mut turns) = ([0; 2], 0);
    for now in (31 * MS..1_500 * MS).step_by(MS as usize / 20) {
        for pages in &both {
            show_busy(pages, is_open(pages));
            pages.time().devices[0]
                .waiting
                .store(u32::from(!is_open(pages)), Ordering::SeqCst);
        }
        dispatcher.run_once(now);
        let is_turns = dispatcher.states.values().any(|state| state.regime == Regime::Turns);
        turns += u32::from(is_turns);
        let alone: Vec<usize> = (0..2).filter(|at| flags(&both[*at]) & UNSHARED != 0).collect();
        assert!(alone.len() <= 1 && (is_turns || alone.is_empty()), "{alone:?} at {now}");
        alone.iter().for_each(|at| told[*at] += 1);
    }
    assert!(
        turns > 1_000 && told.iter().all(|told| *told > 1_000),
        "{turns} {told:?}"
    );
}

#[test]
fn a_cap_closes_the_gate_for_the_rest_of_each_period_and_wakes_who_waits() {
    let bench = Bench::default();
    let mut dispatcher = Dispatcher::new(bench.clone());
    let capped = Terms {
        cap_ppm: Some(250_000),
        ..Terms::default()
    };
    terms(&mut dispatcher, 0, 1, capped);
    let pages = join(&mut dispatcher, 0, 1, 1);
    dispatcher.run_once(0);
    let (mut open_ns, step) = (0, MS / 10);
    let before = bench.0.barriers.get();
    *bench.0.watched.borrow_mut() = Some(Arc::clone(&pages));
    let mut closings = 0;
    for now in (0..2_000 * MS).step_by(step as usize) {
        // Its work ends as soon as nothing new passes.
        let was_open = is_open(&pages);
        show_busy(&pages, was_open);
        dispatcher.run_once(now);
        open_ns += if is_open(&pages) { step } else { 0 };
        closings += u32::from(was_open && !is_open(&pages));
    }
    assert_eq!(
        bench.0.closed.get(),
        closings,
        "each closing has a barrier, after the gate is closed"
    );
    let part = open_ns as f64 / (2_000 * MS) as f64;
    assert!((part - 0.25).abs() < 0.01, "open for {part} of the time");
    let barriers = bench.0.barriers.get() - before;
    assert!(barriers >= 15, "{barriers} closings with a barrier");
    assert!(bench.0.wakes.get() >= barriers, "each opening wakes");
    let shown = dispatcher.view(2_000 * MS);
    assert_eq!(shown.len(), 1);
    assert!((shown[0].got_60s_ppm as i64 - 250_000).abs() < 15_000, "{shown:?}");
}

#[test]
fn two_jobs_that_always_want_the_device_get_their_weights() {
    let mut dispatcher = Dispatcher::new(Bench::default());
    let weigh = |weight| Terms {
        weight,
        ..Terms::default()
    };
    terms(&mut dispatcher, 0, 1, weigh(300));
    terms(&mut dispatcher, 0, 2, weigh(100));
    let pages = [join(&mut dispatcher, 0, 1, 1), join(&mut dispatcher, 0, 2, 2)];
    let mut got = [0_u64; 2];
    let step = MS / 20;
    for now in (0..4_000 * MS).step_by(step as usize) {
        let open: Vec<bool> = pages.iter().map(|pages| is_open(pages)).collect();
        let busy = open.iter().filter(|open| **open).count() as u64;
        for (index, pages) in pages.iter().enumerate() {
            pages.time().devices[0]
                .waiting
                .store(u32::from(!open[index]), Ordering::SeqCst);
            // What was there has retired by now.
            show_busy(pages, false);
            show_busy(pages, open[index]);
            got[index] += if open[index] { step / busy } else { 0 };
        }
        dispatcher.run_once(now);
    }
    let part = got[0] as f64 / (got[0] + got[1]) as f64;
    assert!((part - 0.75).abs() < 0.01, "{part} of what both got");
    assert!(got[0] + got[1] > 3_900 * MS, "the device was left idle: {got:?}");
}

#[test]
fn who_leaves_finds_its_gate_open_and_so_does_everybody_when_the_dispatcher_ends() {
    let mut dispatcher = Dispatcher::new(Bench::default());
    let none = Terms {
        cap_ppm: Some(10_000),
        ..Terms::default()
    };
    for job in [1, 2] {
        terms(&mut dispatcher, 0, job, none);
    }
    let pages = [join(&mut dispatcher, 0, 1, 1), join(&mut dispatcher, 0, 2, 2)];
    let mut now = 0;
    while now < 300 * MS && pages.iter().any(|pages| is_open(pages)) {
        for pages in &pages {
            show_busy(pages, true);
        }
        dispatcher.run_once(now);
        now += MS / 10;
    }
    assert!(pages.iter().all(|pages| !is_open(pages)), "both are over their caps");
    dispatcher.take(now, Message::Left(ClientId(1)));
    assert!(is_open(&pages[0]) && !is_open(&pages[1]));
    dispatcher.open_all();
    assert!(is_open(&pages[1]));
}

#[test]
fn a_kernel_without_membarrier_makes_clients_fence_for_themselves() {
    let bench = Bench::default();
    bench.0.has_no_barrier.set(true);
    let mut dispatcher = Dispatcher::new(bench);
    terms(&mut dispatcher, 0, 1, Terms::default());
    let pages = join(&mut dispatcher, 0, 1, 1);
    assert_ne!(
        pages.broker().devices[0].gate_flags.load(Ordering::SeqCst) & NEEDS_FENCE,
        0
    );
}
