// SPDX-License-Identifier: Apache-2.0
//! The marks around a launch: before the driver has it, and after.

use core::sync::atomic::Ordering;

use partage_gpu_time::length::{Length, Lengths};
use partage_protocol::gate::{self, HEARTBEAT_NS, LANES, TimePage, UNKNOWN_NS, UNSHARED};
use partage_protocol::page::BrokerPage;

use super::book::{self, Book, REFUSED};
use super::lane::Side;
use super::name::Name;
use super::timers::{self, Around, TIMERS};
use crate::guest::sys;
use crate::real::Library;
use crate::state::State;
use crate::stream::work::Work;
use crate::stream::{is_captured, relaxed};

/// A batch whose launches are expected to take so long ends, in nanoseconds of the device.
const LONG_BATCH_NS: u64 = 100_000;
/// Of so many launches of a lane one is timed, of those whose length is not sure more, and each of which nothing is
/// known. Primes: programs repeat themselves, and slices fit so many units, often in powers of two.
const TIMED: u64 = 31;
const TIMED_UNSURE: u64 = 7;
/// How a launch is marked: what [`before`] says to [`after`].
#[derive(Clone, Copy)]
pub struct Marked {
    /// The device's slot.
    pub device: usize,
    /// The lane.
    pub lane: usize,
    /// The batch ends after this launch.
    pub is_long: bool,
    /// The timer around it.
    pub timer: Option<usize>,
}

impl Marked {
    /// In a lane, and nothing else.
    fn by(device: usize, lane: usize) -> Self {
        Self {
            device,
            lane,
            is_long: false,
            timer: None,
        }
    }

    /// In the bits that a passage has for it.
    pub fn bits(self) -> u32 {
        let timer = self.timer.map_or(0, |timer| timer as u32 + 1);
        let is_long = if self.is_long { IS_LONG } else { 0 };
        IS_MARKED | is_long | (self.device as u32 & 15) << DEVICE | (self.lane as u32 & 15) << LANE | timer << TIMER
    }

    /// From those bits.
    pub fn of(bits: u32) -> Option<Self> {
        (bits & IS_MARKED != 0).then_some(Self {
            device: (bits >> DEVICE & 15) as usize,
            lane: (bits >> LANE & 15) as usize,
            is_long: bits & IS_LONG != 0,
            timer: (bits >> TIMER & 15).checked_sub(1).map(|timer| timer as usize),
        })
    }
}

const DEVICE: u32 = 16;
const LANE: u32 = 20;
const TIMER: u32 = 24;
const IS_LONG: u32 = 1 << 28;
const IS_MARKED: u32 = 1 << 30;
const _: () = assert!(TIMERS < 15 && LANES <= 16);

/// Counts a launch in, and marks where it begins.
pub fn before(
    state: &'static State,
    (broker, page): (&BrokerPage, &TimePage),
    device: usize,
    real: &Library,
    &Work { stream, kind }: &Work,
) -> Option<Marked> {
    let line = broker.devices.get(device)?;
    let books = book::get()?;
    let book = books.devices.get(device)?;
    if is_captured(state, real, stream) {
        return None;
    }
    let name = Name::of(real, stream);
    books.is_marking.store(true, Ordering::Relaxed);
    let (lane, side) = enter(state, real, book, page, &name)?;
    let (unit, overlaps) = kind.unit();
    let expected = unit.and_then(|unit| books.lengths.expected(unit));
    let work = expected_work(&books.lengths, expected, overlaps);
    let before = book.count(&side, work);
    let mut marked = Marked::by(device, lane);
    if overlaps {
        side.own.overlaps.store(true, Ordering::Relaxed);
        if expected.is_none() {
            side.own.add_unknown(side.next_mark());
        }
        side.expect_silence();
        return Some(marked);
    }
    let overlapped = side.own.overlaps.load(Ordering::Relaxed);
    if overlapped {
        // Nothing may begin before what is in flight ends: here a mark stands in nobody's way.
        side.end(real);
    }
    let spoiled = line.spoiled.load(Ordering::Acquire);
    let batch_ns = begin_batch(&side, real, before.plus(work));
    marked.is_long = expected.is_none() || batch_ns >= LONG_BATCH_NS;
    if expected.is_none() {
        side.own.add_unknown(side.next_mark());
    }
    if !marked.is_long {
        side.expect_silence();
    }
    if let Some(unit) = unit
        && is_timed(expected, before.units)
        && !overlapped
    {
        timers::read(&book.timers, page, spoiled, &books.lengths, real);
        let around = Around {
            is_unshared: line.gate_flags.load(Ordering::Relaxed) & UNSHARED != 0 && is_broker_there(state, broker),
            spoiled,
            entered: side.own.entered.load(Ordering::Relaxed),
            entered_all: book.entered.load(Ordering::Relaxed),
        };
        let is_bare_due = !books.lengths.has_overhead() || before.units.is_multiple_of(TIMED * TIMED);
        let launch = Timed {
            book,
            side: &side,
            name: &name,
            lane,
            around,
        };
        marked.timer = launch.start(state, real, unit, is_bare_due);
    }
    Some(marked)
}

/// Counts a launch into a lane of its stream. `None`: it leaves no marks.
fn enter<'a>(
    state: &State,
    real: &Library,
    book: &'a Book,
    page: &'a TimePage,
    name: &Name,
) -> Option<(usize, Side<'a>)> {
    let address = book.address(state, real, page, name.context);
    let Some((lane, address)) = address.and_then(|address| Some((book.enter(page, name)?, address))) else {
        unlaned(page);
        book.unlaned_by(name.key);
        return None;
    };
    Some((lane, book.side(page, lane, address)?))
}

/// Begins a batch unless one is under way. Answers how long it is, with all that was `given` to the lane.
fn begin_batch(side: &Side<'_>, real: &Library, given: gate::Work) -> u64 {
    side.begin(real);
    let ahead = side.lane.submitted.load(Ordering::Relaxed).wrapping_sub(1);
    given.since(side.ends.of(ahead)).ns
}

/// What a launch adds to its lane, as far as its length is known.
fn expected_work(lengths: &Lengths, expected: Option<Length>, overlaps: bool) -> gate::Work {
    let ns = expected.map_or_else(|| lengths.mean(), |length| length.ns);
    let unknown_ns = match expected {
        Some(length) if length.is_known && !overlaps => 0,
        Some(_) => ns,
        None => ns.max(UNKNOWN_NS),
    };
    gate::Work {
        ns,
        unknown_ns,
        units: 1,
    }
}

/// A launch that is to be timed.
struct Timed<'a> {
    book: &'a Book,
    side: &'a Side<'a>,
    name: &'a Name,
    lane: usize,
    around: Around,
}

impl Timed<'_> {
    /// Starts a timer around it, and before it one around nothing where that is due. Answers which timer.
    fn start(&self, state: &State, real: &Library, unit: u64, is_bare_due: bool) -> Option<usize> {
        let Self {
            book,
            side,
            name,
            lane,
            around,
        } = self;
        if is_bare_due {
            let next = (*lane, side.next_mark());
            let is_behind = |entered| side.is_behind(next.1, entered);
            relaxed(state, real, || {
                let waits_for_all = side.is_legacy().then_some(around.entered_all);
                let around = (*around, waits_for_all);
                timers::time_nothing(&book.timers, name.context, real, name.stream, next, around, is_behind);
            });
        }
        let timer = relaxed(state, real, || timers::take(&book.timers, name.context, real))
            .filter(|timer| timer.start(real, name.stream, unit, *around))?;
        book.timers.iter().position(|other| core::ptr::eq(other, timer))
    }
}

/// Does the broker look at its gates? What a dead one said of the device need not be so.
fn is_broker_there(state: &State, broker: &BrokerPage) -> bool {
    let heartbeat = broker.head.heartbeat_ns.load(Ordering::Relaxed);
    state.machine_time(sys::now_ns()).saturating_sub(heartbeat) < HEARTBEAT_NS
}

/// Is the next launch of a lane timed, after so many?
fn is_timed(expected: Option<Length>, units: u64) -> bool {
    expected.is_none_or(|length| units.is_multiple_of(if length.is_known { TIMED } else { TIMED_UNSURE }))
}

/// A launch that leaves no marks.
pub fn unlaned(page: &TimePage) {
    page.unlaned.fetch_add(1, Ordering::AcqRel);
}

/// The driver has the launch: marks where the batch ends, if it is time.
pub fn after(page: &TimePage, real: &Library, marked: Marked) {
    let found = || {
        let book = book::get()?.devices.get(marked.device)?;
        let address = book.address.load(Ordering::Acquire);
        (address > REFUSED).then_some(())?;
        Some((book, book.side(page, marked.lane, address)?))
    };
    let Some((book, side)) = found() else { return };
    side.launched();
    if let Some(timer) = marked.timer.and_then(|timer| book.timers.get(timer)) {
        let number = side.next_mark();
        let waits_for_all = side.is_legacy().then(|| book.entered.load(Ordering::Relaxed));
        timer.stop(real, side.stream(), (marked.lane, number), waits_for_all, |entered| {
            side.is_behind(number, entered)
        });
    }
    if side.own.overlaps.load(Ordering::Relaxed) && !side.is_legacy() {
        return;
    }
    if marked.is_long || side.is_time() {
        side.end(real);
    }
}
