// SPDX-License-Identifier: Apache-2.0
//! What is read of the clients' pages, how often, and what the kernel is asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use partage_gpu_time::GpuTimeEstimator;
use partage_protocol::gate;
use partage_protocol::units::ClientId;
use partage_scheduling::Terms;

use super::{Bench, MS, is_open, join, show_busy, terms};
use crate::dispatcher::device::{CREDIT_NS, SAMPLING};
use crate::dispatcher::gates::Dispatcher;
use crate::state::pages::PagePair;

/// Two jobs that always want the device, and how often it is sampled at between two instants.
struct Sampled {
    bench: Bench,
    dispatcher: Dispatcher<Bench>,
    pages: [Arc<PagePair>; 2],
    now: u64,
}

impl Sampled {
    fn new() -> Self {
        let bench = Bench::default();
        let mut dispatcher = Dispatcher::new(bench.clone());
        for job in [1, 2] {
            terms(&mut dispatcher, 0, job, Terms::default());
        }
        let pages = [join(&mut dispatcher, 0, 1, 1), join(&mut dispatcher, 0, 2, 2)];
        Self {
            bench,
            dispatcher,
            pages,
            now: 0,
        }
    }

    /// Goes on for so long while each sample costs `cost_ns`; returns how many there were.
    fn pass(&mut self, ns: u64, cost_ns: u64) -> u64 {
        self.bench.0.cost_ns.set(cost_ns);
        let before = self.bench.0.spent_ns.get();
        let end = self.now + ns;
        while self.now < end {
            for pages in &self.pages {
                show_busy(pages, false);
                show_busy(pages, is_open(pages));
            }
            self.dispatcher.run_once(self.now);
            self.now += MS / 100;
        }
        // Two questions for each sample: the time between them is one.
        (self.bench.0.spent_ns.get() - before) / cost_ns / 2
    }
}

/// A job alone with a cap that it does not reach: it is measured, and its gate is open.
fn capped_alone() -> (Dispatcher<Bench>, Arc<PagePair>) {
    let mut dispatcher = Dispatcher::new(Bench::default());
    let capped = Terms {
        cap_ppm: Some(900_000),
        ..Terms::default()
    };
    terms(&mut dispatcher, 0, 1, capped);
    let pages = join(&mut dispatcher, 0, 1, 1);
    (dispatcher, pages)
}

#[test]
fn the_kernel_is_asked_about_a_client_only_when_nothing_of_it_moves() {
    let bench = Bench::default();
    let mut dispatcher = Dispatcher::new(bench.clone());
    for job in [1, 2] {
        terms(&mut dispatcher, 0, job, Terms::default());
    }
    let pages = [join(&mut dispatcher, 0, 1, 1), join(&mut dispatcher, 0, 2, 2)];
    for now in (0..200 * MS).step_by(MS as usize / 10) {
        for pages in &pages {
            show_busy(pages, false);
            show_busy(pages, is_open(pages));
        }
        dispatcher.run_once(now);
    }
    assert_eq!(bench.0.asked.get(), 0, "both made progress all the time");
    bench.0.stopped.borrow_mut().insert(1);
    for now in (200 * MS..400 * MS).step_by(MS as usize / 10) {
        show_busy(&pages[1], false);
        show_busy(&pages[1], is_open(&pages[1]));
        show_busy(&pages[0], true);
        dispatcher.run_once(now);
    }
    assert!(
        (1..=20).contains(&bench.0.asked.get()),
        "{} questions",
        bench.0.asked.get()
    );
}

/// A job alone under a cap of a tenth has work whenever its gate is open, and is sampled. Answers whether that is
/// open.
fn sample(dispatcher: &mut Dispatcher<Bench>, pages: &PagePair, now: u64) -> bool {
    show_busy(pages, false);
    show_busy(pages, is_open(pages));
    dispatcher.run_once(now);
    is_open(pages)
}

#[test]
fn a_broker_that_was_stopped_charges_a_quarter_of_a_second() {
    let bench = Bench::default();
    let mut dispatcher = Dispatcher::new(bench.clone());
    let capped = Terms {
        cap_ppm: Some(100_000),
        ..Terms::default()
    };
    terms(&mut dispatcher, 0, 1, capped);
    let pages = join(&mut dispatcher, 0, 1, 1);
    let mut now = 0;
    while !sample(&mut dispatcher, &pages, now) || now < 1_000 * MS {
        now += MS / 10;
    }
    let stretch = dispatcher.view(now)[0].stretch;
    now += 6_000 * MS;
    let stopped_until = now;
    while !sample(&mut dispatcher, &pages, now) || now < stopped_until + 2 * MS {
        now += MS / 10;
    }
    let stood = (now - stopped_until) / MS;
    assert!(stood <= 2_700, "{stood} ms");
    assert_eq!(
        dispatcher.view(now)[0].stretch,
        stretch + 1,
        "nor does NVML's figure count"
    );
    // Stopped after the clock was read: what the sample sees is of later.
    now += MS / 10;
    bench.0.now_ns.set(now + 6_000 * MS);
    sample(&mut dispatcher, &pages, now);
    assert_eq!(dispatcher.view(now)[0].stretch, stretch + 2);
}

#[test]
fn who_is_stopped_at_the_gate_holds_up_nobody() {
    let bench = Bench::default();
    let mut dispatcher = Dispatcher::new(bench.clone());
    for job in [1, 2] {
        terms(&mut dispatcher, 0, job, Terms::default());
    }
    let pages = [join(&mut dispatcher, 0, 1, 1), join(&mut dispatcher, 0, 2, 2)];
    let line = |index: usize| &pages[index].time().devices[0];
    let mut now = 0;
    // For so long each works while its gate is open; the first stands still while it is stopped. What the second got.
    let mut work = |ns: u64, is_stopped: bool| {
        let (until, mut got) = (now + ns, 0);
        while now < until {
            let mut busy = Vec::new();
            for (index, pages) in pages.iter().enumerate().skip(usize::from(is_stopped)) {
                let is_open = is_open(pages);
                line(index).waiting.store(u32::from(!is_open), Ordering::SeqCst);
                show_busy(pages, false);
                show_busy(pages, is_open);
                busy.extend(is_open.then_some(index));
            }
            if busy.contains(&1) {
                got += MS / 20 / busy.len() as u64;
            }
            dispatcher.run_once(now);
            now += MS / 20;
        }
        got * 100 / ns
    };
    work(2_000 * MS, false);
    for _ in 0..3 {
        // Caught where it waits, with nothing on the device.
        while line(0).waiting.load(Ordering::SeqCst) == 0 {
            work(MS / 20, false);
        }
        bench.0.stopped.borrow_mut().insert(1);
        let got = work(500 * MS, true);
        assert!(got >= 90, "the other got {got} % of half a second");
        bench.0.stopped.borrow_mut().clear();
        work(200 * MS, false);
        let got = work(1_000 * MS, false);
        assert!((45..=55).contains(&got), "{got} % when both run again");
    }
}

#[test]
fn samples_that_take_long_are_fewer() {
    // Of 2 s a fifth is 400 samples of 1 ms.
    let samples = Sampled::new().pass(2_000 * MS, MS);
    assert!((300..=450).contains(&samples), "{samples} samples");
}

#[test]
fn one_costly_sample_does_not_keep_the_next_ones_away() {
    let mut sampled = Sampled::new();
    let usual = sampled.pass(100 * MS, MS / 100) / 100;
    assert!(usual >= 3, "{usual} samples in a millisecond");
    let costly = sampled.pass(MS / usual, MS * 3 / 2);
    assert!((1..=2).contains(&costly), "{costly}");
    let next = sampled.pass(MS, MS / 100);
    assert!(
        next + 1 >= usual,
        "{next} samples in the next millisecond, {usual} before"
    );
}

#[test]
fn samples_of_unlike_cost_take_no_more_of_a_processor() {
    let mut sampled = Sampled::new();
    let mut spent = 0;
    for _ in 0..400 {
        spent += sampled.pass(5 * MS, MS / 100) * (MS / 100);
        spent += sampled.pass(MS / 10, 3 * MS) * 3 * MS;
    }
    let most = sampled.now / SAMPLING + CREDIT_NS + 3 * MS;
    assert!(
        spent > sampled.now / 20 && spent <= most,
        "{spent} ns of {}",
        sampled.now
    );
}

#[test]
fn who_stays_inside_a_launch_without_work_holds_up_nobody() {
    let mut dispatcher = Dispatcher::new(Bench::default());
    for job in [1, 2] {
        terms(&mut dispatcher, 0, job, Terms::default());
    }
    let pages = [join(&mut dispatcher, 0, 1, 1), join(&mut dispatcher, 0, 2, 2)];
    let slot = &pages[0].time().threads[0];
    slot.thread.store(1, Ordering::SeqCst);
    slot.word.store(gate::name(0), Ordering::SeqCst);
    let mut got = 0;
    for now in (0..2_000 * MS).step_by(MS as usize / 20) {
        let is_open = is_open(&pages[1]);
        pages[1].time().devices[0]
            .waiting
            .store(u32::from(!is_open), Ordering::SeqCst);
        show_busy(&pages[1], false);
        show_busy(&pages[1], is_open);
        got += u64::from(is_open && now >= 500 * MS) * MS / 20;
        dispatcher.run_once(now);
    }
    assert!(got >= 1_400 * MS, "the other got {got} ns of 1.5 s");
}

/// A capped job alone, of whose work nothing is known, comes to an idle device that is seldom sampled at.
#[test]
fn launches_without_a_lane_are_nothing_that_is_known() {
    let (pages, _descriptors) = PagePair::create(ClientId(1), 1).expect("pages");
    let page = &pages.time().devices[0];
    show_busy(&pages, true);
    let mut time = GpuTimeEstimator::default();
    let mut done = gate::Work::default();
    let mut look = |now: u64, launched: u64, ended: u64| {
        done = done.plus(gate::Work {
            ns: 4 * MS,
            unknown_ns: 0,
            units: 1,
        });
        page.ends[0].write(page.lanes[0].ended.load(Ordering::SeqCst), done);
        page.unlaned.store(launched, Ordering::SeqCst);
        page.unlaned_ended.store(ended, Ordering::SeqCst);
        !time.update(page, true, now * MS).is_estimate
    };
    assert!(!look(0, 0, 0) && look(4, 0, 0));
    assert!(!look(8, 1, 0), "under way");
    assert!(!look(12, 1, 1) && look(16, 1, 1), "over");
    // It came and went between two samples.
    assert!(!look(20, 2, 2) && look(24, 2, 2));
}

#[test]
fn what_retired_work_took_is_what_is_charged() {
    let (mut dispatcher, pages) = capped_alone();
    let page = &pages.time().devices[0];
    let mut done = gate::Work::default();
    let mut used = Vec::new();
    // It seems to be busy all the time; each millisecond a unit of 0.4 ms retires.
    for now in (0..400 * MS).step_by(MS as usize / 10) {
        if now % MS == 0 {
            let ns = 400_000;
            done = done.plus(gate::Work {
                ns,
                unknown_ns: 0,
                units: 1,
            });
            page.ends[0].write(page.lanes[0].submitted.load(Ordering::SeqCst), done);
            show_busy(&pages, false);
        }
        show_busy(&pages, true);
        dispatcher.run_once(now);
        if now % (200 * MS) == 0 {
            used.push(dispatcher.view(now)[0].used_ns);
        }
    }
    let part = (dispatcher.view(400 * MS)[0].used_ns - used[1]) as f64 / (200 * MS) as f64;
    assert!((part - 0.4).abs() < 0.01, "{part}");
}
