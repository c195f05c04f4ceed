// SPDX-License-Identifier: Apache-2.0
//! The keeper between real pages and the real scheduler, with a clock and a kernel of the test's own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use partage_scheduling::Terms;

use super::*;

const MS: u64 = 1_000_000;
const DEVICE: DeviceUuid = DeviceUuid {
    is_mig: false,
    bytes: [7; 16],
};

/// Counts what is asked of it.
#[derive(Clone, Default)]
struct Bench(Rc<Inner>);

#[derive(Default)]
struct Inner {
    barriers: Cell<u32>,
    /// Whose gate is looked at when a barrier is asked for, and at how many it was closed.
    watched: RefCell<Option<Arc<PagePair>>>,
    closed: Cell<u32>,
    wakes: Cell<u32>,
    has_no_barrier: Cell<bool>,
    stopped: RefCell<BTreeSet<u32>>,
    looks: Cell<u32>,
    /// What each question for the time spent adds to it.
    cost_ns: Cell<u64>,
    spent_ns: Cell<u64>,
}

impl Kernel for Bench {
    fn heavy_barrier(&self) -> bool {
        self.0.barriers.set(self.0.barriers.get() + 1);
        let is_closed = self.0.watched.borrow().as_ref().is_some_and(|pages| !is_open(pages));
        self.0.closed.set(self.0.closed.get() + u32::from(is_closed));
        !self.0.has_no_barrier.get()
    }
    fn wake(&self, _word: &AtomicU32) {
        self.0.wakes.set(self.0.wakes.get() + 1);
    }
    fn is_stopped(&self, pid: u32) -> bool {
        self.0.looks.set(self.0.looks.get() + 1);
        self.0.stopped.borrow().contains(&pid)
    }
    fn spent_ns(&self) -> u64 {
        self.0.spent_ns.set(self.0.spent_ns.get() + self.0.cost_ns.get());
        self.0.spent_ns.get()
    }
}

fn join(keeper: &mut Keeper<Bench>, now: u64, client: u64, job: u64) -> Arc<PagePair> {
    let (pages, _descriptors) = PagePair::create(ClientId(client), 1).expect("pages");
    let pages = Arc::new(pages);
    keeper.take(
        now,
        Message::Joined(Joined {
            client: ClientId(client),
            job: JobId(job),
            pid: client as u32,
            devices: vec![DEVICE],
            pages: Arc::clone(&pages),
        }),
    );
    pages
}

fn terms(keeper: &mut Keeper<Bench>, now: u64, job: u64, terms: Terms) {
    let (job, devices) = (JobId(job), vec![DEVICE]);
    keeper.take(now, Message::Terms { job, devices, terms });
}

fn is_open(pages: &PagePair) -> bool {
    pages.broker().devices[0].gate.load(Ordering::SeqCst) & OPEN != 0
}

/// Shows work in flight that has begun, or none.
fn show_busy(pages: &PagePair, is_busy: bool) {
    let lane = &pages.time().devices[0].lanes[0];
    lane.stream.store(1, Ordering::SeqCst);
    let submitted = lane.submitted.load(Ordering::SeqCst);
    if is_busy {
        if lane.ended.load(Ordering::SeqCst) == submitted {
            lane.submitted.store(submitted + 1, Ordering::SeqCst);
            lane.begun.store(submitted + 1, Ordering::SeqCst);
        }
    } else {
        lane.begun.store(submitted, Ordering::SeqCst);
        lane.ended.store(submitted, Ordering::SeqCst);
    }
}

#[test]
fn a_job_alone_has_its_gate_open_and_no_bound() {
    let mut keeper = Keeper::new(Bench::default());
    terms(&mut keeper, 0, 1, Terms::default());
    let pages = join(&mut keeper, 0, 1, 1);
    keeper.turn(0);
    assert!(is_open(&pages));
    assert_eq!(pages.broker().devices[0].depth_ns.load(Ordering::SeqCst), UNBOUNDED);
    assert_eq!(
        pages.broker().devices[0].gate_flags.load(Ordering::SeqCst) & MEASURED,
        0
    );
    assert_eq!(keeper.view(0), [], "nothing is measured, so nothing is said");
}

#[test]
fn work_is_marked_for_as_long_as_a_neighbour_is_there() {
    let mut keeper = Keeper::new(Bench::default());
    for job in [1, 2] {
        terms(&mut keeper, 0, job, Terms::default());
    }
    let pages = [join(&mut keeper, 0, 1, 1), join(&mut keeper, 0, 2, 2)];
    let is_marked = |pages: &PagePair| pages.broker().devices[0].gate_flags.load(Ordering::SeqCst) & MEASURED != 0;
    keeper.turn(0);
    assert!(pages.iter().all(|pages| is_marked(pages)));
    assert_eq!(keeper.view(0).len(), 2);
    keeper.take(MS, Message::Left(ClientId(2)));
    keeper.take(MS, Message::JobGone(JobId(2)));
    keeper.turn(MS);
    assert!(!is_marked(&pages[0]) && is_open(&pages[0]));
}

/// A client's flags.
fn flags(pages: &PagePair) -> u32 {
    pages.broker().devices[0].gate_flags.load(Ordering::SeqCst)
}

#[test]
fn who_has_the_device_for_itself_is_told_so() {
    let mut keeper = Keeper::new(Bench::default());
    terms(&mut keeper, 0, 1, Terms::default());
    let first = join(&mut keeper, 0, 1, 1);
    keeper.turn(0);
    assert_eq!(flags(&first), 0, "alone it is not measured");
    let capped = Terms {
        cap_ppm: Some(500_000),
        ..Terms::default()
    };
    terms(&mut keeper, MS, 1, capped);
    keeper.turn(MS);
    keeper.turn(2 * MS);
    assert_eq!(flags(&first) & (MEASURED | UNSHARED), MEASURED | UNSHARED);
    // Processes of no job have slices, too.
    for (now, strangers, is_told) in [
        (10 * MS, UnmanagedLoad::Felt, false),
        (20 * MS, UnmanagedLoad::Quiet, true),
    ] {
        keeper.take(now, Message::Unmanaged(DEVICE, strangers));
        keeper.turn(now + 5 * MS);
        assert_eq!(flags(&first) & UNSHARED != 0, is_told, "{strangers:?}");
    }
    // Two in Overlap: each may have the other's slices in its own time. In Turns the one whose turn it is has not.
    terms(&mut keeper, 30 * MS, 1, Terms::default());
    terms(&mut keeper, 30 * MS, 2, Terms::default());
    let second = join(&mut keeper, 30 * MS, 2, 2);
    let both = [first, second];
    let (mut told, mut turns) = ([0; 2], 0);
    for now in (31 * MS..1_500 * MS).step_by(MS as usize / 20) {
        for pages in &both {
            show_busy(pages, is_open(pages));
            pages.time().devices[0]
                .waiting
                .store(u32::from(!is_open(pages)), Ordering::SeqCst);
        }
        keeper.turn(now);
        let is_turns = keeper.looks.values().any(|look| look.regime == Regime::Turns);
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

/// A job alone with a cap that it does not reach: it is measured, and its gate is open.
fn capped_alone() -> (Keeper<Bench>, Arc<PagePair>) {
    let mut keeper = Keeper::new(Bench::default());
    let capped = Terms {
        cap_ppm: Some(900_000),
        ..Terms::default()
    };
    terms(&mut keeper, 0, 1, capped);
    let pages = join(&mut keeper, 0, 1, 1);
    (keeper, pages)
}

#[test]
fn what_retired_work_took_is_what_is_charged() {
    let (mut keeper, pages) = capped_alone();
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
        keeper.turn(now);
        if now % (200 * MS) == 0 {
            used.push(keeper.view(now)[0].used_ns);
        }
    }
    let part = (keeper.view(400 * MS)[0].used_ns - used[1]) as f64 / (200 * MS) as f64;
    assert!((part - 0.4).abs() < 0.01, "{part}");
}

/// A capped job alone, of whose work nothing is known, comes to an idle device that is seldom looked at.
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
    // It came and went between two looks.
    assert!(!look(20, 2, 2) && look(24, 2, 2));
}

#[test]
fn a_cap_closes_the_gate_for_the_rest_of_each_period_and_wakes_who_waits() {
    let bench = Bench::default();
    let mut keeper = Keeper::new(bench.clone());
    let capped = Terms {
        cap_ppm: Some(250_000),
        ..Terms::default()
    };
    terms(&mut keeper, 0, 1, capped);
    let pages = join(&mut keeper, 0, 1, 1);
    keeper.turn(0);
    let (mut open_ns, step) = (0, MS / 10);
    let before = bench.0.barriers.get();
    *bench.0.watched.borrow_mut() = Some(Arc::clone(&pages));
    let mut closings = 0;
    for now in (0..2_000 * MS).step_by(step as usize) {
        // Its work ends as soon as nothing new passes.
        let was_open = is_open(&pages);
        show_busy(&pages, was_open);
        keeper.turn(now);
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
    let shown = keeper.view(2_000 * MS);
    assert_eq!(shown.len(), 1);
    assert!((shown[0].got_60s_ppm as i64 - 250_000).abs() < 15_000, "{shown:?}");
}

#[test]
fn two_jobs_that_always_want_the_device_get_their_weights() {
    let mut keeper = Keeper::new(Bench::default());
    let weigh = |weight| Terms {
        weight,
        ..Terms::default()
    };
    terms(&mut keeper, 0, 1, weigh(300));
    terms(&mut keeper, 0, 2, weigh(100));
    let pages = [join(&mut keeper, 0, 1, 1), join(&mut keeper, 0, 2, 2)];
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
        keeper.turn(now);
    }
    let part = got[0] as f64 / (got[0] + got[1]) as f64;
    assert!((part - 0.75).abs() < 0.01, "{part} of what both got");
    assert!(got[0] + got[1] > 3_900 * MS, "the device was left idle: {got:?}");
}

#[test]
fn who_leaves_finds_its_gate_open_and_so_does_everybody_when_the_keeper_ends() {
    let mut keeper = Keeper::new(Bench::default());
    let none = Terms {
        cap_ppm: Some(10_000),
        ..Terms::default()
    };
    for job in [1, 2] {
        terms(&mut keeper, 0, job, none);
    }
    let pages = [join(&mut keeper, 0, 1, 1), join(&mut keeper, 0, 2, 2)];
    let mut now = 0;
    while now < 300 * MS && pages.iter().any(|pages| is_open(pages)) {
        for pages in &pages {
            show_busy(pages, true);
        }
        keeper.turn(now);
        now += MS / 10;
    }
    assert!(pages.iter().all(|pages| !is_open(pages)), "both are over their caps");
    keeper.take(now, Message::Left(ClientId(1)));
    assert!(is_open(&pages[0]) && !is_open(&pages[1]));
    keeper.open_all();
    assert!(is_open(&pages[1]));
}

#[test]
fn a_kernel_without_membarrier_makes_clients_fence_for_themselves() {
    let bench = Bench::default();
    bench.0.has_no_barrier.set(true);
    let mut keeper = Keeper::new(bench);
    terms(&mut keeper, 0, 1, Terms::default());
    let pages = join(&mut keeper, 0, 1, 1);
    assert_ne!(
        pages.broker().devices[0].gate_flags.load(Ordering::SeqCst) & NEEDS_FENCE,
        0
    );
}

#[test]
fn the_kernel_is_asked_about_a_client_only_when_nothing_of_it_moves() {
    let bench = Bench::default();
    let mut keeper = Keeper::new(bench.clone());
    for job in [1, 2] {
        terms(&mut keeper, 0, job, Terms::default());
    }
    let pages = [join(&mut keeper, 0, 1, 1), join(&mut keeper, 0, 2, 2)];
    for now in (0..200 * MS).step_by(MS as usize / 10) {
        for pages in &pages {
            show_busy(pages, false);
            show_busy(pages, is_open(pages));
        }
        keeper.turn(now);
    }
    assert_eq!(bench.0.looks.get(), 0, "both made progress all the time");
    bench.0.stopped.borrow_mut().insert(1);
    for now in (200 * MS..400 * MS).step_by(MS as usize / 10) {
        show_busy(&pages[1], false);
        show_busy(&pages[1], is_open(&pages[1]));
        show_busy(&pages[0], true);
        keeper.turn(now);
    }
    assert!((1..=20).contains(&bench.0.looks.get()), "{} looks", bench.0.looks.get());
}

#[test]
fn who_is_stopped_at_the_gate_holds_up_nobody() {
    let bench = Bench::default();
    let mut keeper = Keeper::new(bench.clone());
    for job in [1, 2] {
        terms(&mut keeper, 0, job, Terms::default());
    }
    let pages = [join(&mut keeper, 0, 1, 1), join(&mut keeper, 0, 2, 2)];
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
            keeper.turn(now);
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

/// Two jobs that always want the device, and how often it is looked at between two instants.
struct Looked {
    bench: Bench,
    keeper: Keeper<Bench>,
    pages: [Arc<PagePair>; 2],
    now: u64,
}

impl Looked {
    fn new() -> Self {
        let bench = Bench::default();
        let mut keeper = Keeper::new(bench.clone());
        for job in [1, 2] {
            terms(&mut keeper, 0, job, Terms::default());
        }
        let pages = [join(&mut keeper, 0, 1, 1), join(&mut keeper, 0, 2, 2)];
        Self {
            bench,
            keeper,
            pages,
            now: 0,
        }
    }

    /// Goes on for so long while each look costs `cost_ns`; returns how many there were.
    fn pass(&mut self, ns: u64, cost_ns: u64) -> u64 {
        self.bench.0.cost_ns.set(cost_ns);
        let before = self.bench.0.spent_ns.get();
        let end = self.now + ns;
        while self.now < end {
            for pages in &self.pages {
                show_busy(pages, false);
                show_busy(pages, is_open(pages));
            }
            self.keeper.turn(self.now);
            self.now += MS / 100;
        }
        // Two questions for each look: the time between them is one.
        (self.bench.0.spent_ns.get() - before) / cost_ns / 2
    }
}

#[test]
fn looks_that_take_long_are_fewer() {
    // Of 2 s a fifth is 400 looks of 1 ms.
    let looks = Looked::new().pass(2_000 * MS, MS);
    assert!((300..=450).contains(&looks), "{looks} looks");
}

#[test]
fn one_costly_look_does_not_keep_the_next_ones_away() {
    let mut looked = Looked::new();
    let usual = looked.pass(100 * MS, MS / 100) / 100;
    assert!(usual >= 3, "{usual} looks in a millisecond");
    let costly = looked.pass(MS / usual, MS * 3 / 2);
    assert!((1..=2).contains(&costly), "{costly}");
    let next = looked.pass(MS, MS / 100);
    assert!(
        next + 1 >= usual,
        "{next} looks in the next millisecond, {usual} before"
    );
}

#[test]
fn looks_of_unlike_cost_take_no_more_of_a_processor() {
    let mut looked = Looked::new();
    let mut spent = 0;
    for _ in 0..400 {
        spent += looked.pass(5 * MS, MS / 100) * (MS / 100);
        spent += looked.pass(MS / 10, 3 * MS) * 3 * MS;
    }
    let most = looked.now / LOOKING + CREDIT_NS + 3 * MS;
    assert!(spent > looked.now / 20 && spent <= most, "{spent} ns of {}", looked.now);
}

#[test]
fn who_stays_inside_a_launch_without_work_holds_up_nobody() {
    let mut keeper = Keeper::new(Bench::default());
    for job in [1, 2] {
        terms(&mut keeper, 0, job, Terms::default());
    }
    let pages = [join(&mut keeper, 0, 1, 1), join(&mut keeper, 0, 2, 2)];
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
        keeper.turn(now);
    }
    assert!(got >= 1_400 * MS, "the other got {got} ns of 1.5 s");
}
