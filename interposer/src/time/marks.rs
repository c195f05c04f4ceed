// SPDX-License-Identifier: Apache-2.0
//! Marks: sequence numbers that the device itself writes into the shared page, so that the broker sees when work runs
//! and when it has ended, whatever has become of this process. Only while the broker asks for them.
//!
//! ```text
//!   stream ──► begun := n ─► unit ─► unit ─► … ─► ended := n ──► begun := n + 1 ─► unit …
//!              └───────────── batch n ──────────────┘
//! ```
//! A *batch* is what runs between two marks of a *lane*, which a stream has from its first marked launch until another
//! needs it. A batch ends after so many launches or so much time ([`lane`](super::lane)), at once when nothing older is
//! in flight in its lane, and before whatever the program waits, asks or synchronises by. A mark is put only
//!
//! - into a stream that is not captured (it would become a node and be replayed),
//! - next to a launch in the same stream; for the legacy default stream immediately before and after it. There a mark
//!   is ordered with the other streams exactly as that launch is, and a late one would order work that the program left
//!   unordered;
//! - never before a kernel that may begin before the one ahead of it ends (programmatic dependent launch), and in a
//!   lane that saw one no sooner than before another kind of work: what stands between the two would undo the overlap.
//!
//! Whoever puts marks into a lane holds its flag, so that numbers are in the stream in their order; who does not get it
//! leaves the mark to the next. What the driver refuses to write counts as written: nobody could say better.

use core::sync::atomic::{AtomicU64, Ordering};

use partage_abi::types::{CuContext, CuDevicePtr, CuResult, CuStream};
use partage_abi::values::{CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE};
use partage_protocol::gate::{self, HEARTBEAT_NS, KEPT, LANES, MARKS_BYTES, TimePage, UNKNOWN_NS, UNSHARED};

use partage_gpu_time::depth::{InFlight, Knowledge};
use partage_gpu_time::length::Length;
use partage_protocol::page::{BrokerPage, GrantLine};

use super::lane::{LEGACY, LaneBook, PER_THREAD, Side};
use super::timers::{self, Around, TIMERS, Timer};
use super::work::{Kind, Work};
use crate::devices;
use crate::guard;
use crate::guest::errno;
use crate::guest::lock::Lock;
use crate::guest::sys;
use crate::real::Library;
use crate::real::call;
use crate::state::{self, State};
use crate::stream::{StreamName, device_of, is_captured, relaxed};

/// A batch whose launches are expected to take so long ends, in nanoseconds of the device.
const LONG_NS: u64 = 100_000;
/// Of so many launches of a lane one is timed, of those whose length is not sure more, and each of which nothing is
/// known. Primes: programs repeat themselves, and slices fit so many units, often in powers of two.
const TIMED: u64 = 31;
const TIMED_UNSURE: u64 = 7;
/// The owner of a lane whose stream is gone, or will be captured: it belongs to nobody once its work has retired.
const ORPHAN: u64 = u64::MAX;

/// What this process knows of the marks on one device. All-zero memory is "none yet".
pub struct Book {
    /// Guards who owns which lane; never held over a call of the driver.
    turn: Lock,
    /// One of the constants below, or where the device sees the page.
    address: AtomicU64,
    /// The context in which the page was registered.
    registered_in: AtomicU64,
    /// The stream of all launches without a lane since the last synchronisation; 0: none, [`ORPHAN`]: several.
    unlaned: AtomicU64,
    /// Launches into all lanes.
    entered: AtomicU64,
    lanes: [LaneBook; LANES],
    timers: [Timer; TIMERS],
}

/// In [`Book::address`]: not registered yet; somebody is at it; the driver will not.
const UNKNOWN: u64 = 0;
const BUSY: u64 = 1;
const REFUSED: u64 = 2;

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
    let book = state.time.marks.get(device)?;
    if is_captured(state, real, stream) {
        return None;
    }
    let name = Name::of(real, stream);
    let address = book.address(state, real, page, name.context);
    let lane = address.and_then(|_| book.enter(page, &name));
    state.time.is_marking.store(true, Ordering::Relaxed);
    let (Some(lane), Some(address)) = (lane, address) else {
        unlaned(page);
        book.unlaned_by(name.key);
        return None;
    };
    let side = book.side(page, lane, address)?;
    let lengths = &state.time.lengths;
    let (unit, overlaps) = kind.unit();
    let expected = unit.and_then(|unit| lengths.expected(unit));
    let ns = expected.map_or_else(|| lengths.mean(), |length| length.ns);
    let unknown_ns = match expected {
        Some(length) if length.is_known && !overlaps => 0,
        Some(_) => ns,
        None => ns.max(UNKNOWN_NS),
    };
    let work = gate::Work {
        ns,
        unknown_ns,
        units: 1,
    };
    let before = book.count(&side, work);
    let mut marked = Marked {
        device,
        lane,
        is_long: false,
        timer: None,
    };
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
    // Asked for only where something is timed: it reads the clock.
    let is_unshared = || line.gate_flags.load(Ordering::Relaxed) & UNSHARED != 0 && is_broker_there(state, broker);
    side.begin(real);
    let ahead = side.lane.submitted.load(Ordering::Relaxed).wrapping_sub(1);
    let batch_ns = before.plus(work).since(side.ends.of(ahead)).ns;
    marked.is_long = expected.is_none() || batch_ns >= LONG_NS;
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
        timers::read(&book.timers, page, spoiled, lengths, real);
        let around = Around {
            is_unshared: is_unshared(),
            spoiled,
            entered: side.own.entered.load(Ordering::Relaxed),
            entered_all: book.entered.load(Ordering::Relaxed),
        };
        if !lengths.has_overhead() || before.units.is_multiple_of(TIMED * TIMED) {
            let next = (lane, side.next_mark());
            let is_behind = |entered| side.is_behind(next.1, entered);
            relaxed(state, real, || {
                let waits_for_all = side.is_legacy().then_some(around.entered_all);
                timers::time_nothing(
                    &book.timers,
                    name.context,
                    real,
                    stream,
                    next,
                    (around, waits_for_all),
                    is_behind,
                );
            });
        }
        let timer = relaxed(state, real, || timers::take(&book.timers, name.context, real));
        let timer = timer.filter(|timer| timer.start(real, stream, unit, around));
        marked.timer = timer.and_then(|timer| book.timers.iter().position(|other| core::ptr::eq(other, timer)));
    }
    Some(marked)
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
pub fn after(state: &'static State, page: &TimePage, real: &Library, marked: Marked) {
    let found = || {
        let book = state.time.marks.get(marked.device)?;
        let address = book.address.load(Ordering::Acquire);
        (address > REFUSED).then_some(())?;
        book.side(page, marked.lane, address)
    };
    let Some(side) = found() else { return };
    side.launched();
    let timer = || state.time.marks.get(marked.device)?.timers.get(marked.timer?);
    if let Some(timer) = timer() {
        let number = side.next_mark();
        let book = state.time.marks.get(marked.device);
        let waits_for_all = book
            .filter(|_| side.is_legacy())
            .map(|book| book.entered.load(Ordering::Relaxed));
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

/// What is on a device and has not retired.
#[derive(Clone, Copy, Default)]
pub struct Outstanding {
    /// In all streams.
    pub all: InFlight,
    /// In the one that was asked for.
    pub own: InFlight,
    /// No lane is free for it.
    pub has_no_lane: bool,
}

/// What has not retired on a device, the short launches of open batches left out; `key` names a stream.
pub fn outstanding(state: &State, page: &TimePage, device: usize, key: u64) -> Outstanding {
    let mut sum = Outstanding::default();
    let Some(book) = state.time.marks.get(device) else {
        return sum;
    };
    let mut has_lane = book.address.load(Ordering::Acquire) <= REFUSED;
    for ((own, lane), ends) in book.lanes.iter().zip(&page.lanes).zip(&page.ends) {
        let owner = own.owner.load(Ordering::Relaxed);
        has_lane |= owner == key || owner == 0 || !lane.is_in_flight();
        if owner == 0 {
            continue;
        }
        let ended = lane.ended.load(Ordering::Acquire);
        let is_open = own.is_open.load(Ordering::Acquire);
        let closed = lane.submitted.load(Ordering::Acquire).wrapping_sub(u64::from(is_open));
        // Of a longer queue only the last batches are known, which is enough to be too long.
        let kept = ended.max(closed.saturating_sub(KEPT as u64 - 2));
        let ahead = if own.overlaps.load(Ordering::Relaxed) {
            // These are without a mark until somebody wants one.
            own.total.read().since(ends.of(kept))
        } else if closed > ended {
            ends.of(closed).since(ends.of(kept))
        } else {
            gate::Work::default()
        };
        let unknown = own.unknown_since(ended);
        let is_asked = owner == key;
        for sum in [Some(&mut sum.all), is_asked.then_some(&mut sum.own)]
            .into_iter()
            .flatten()
        {
            sum.ns = sum.ns.saturating_add(ahead.ns);
            sum.units = sum.units.saturating_add(ahead.units);
            sum.unknown = sum.unknown.saturating_add(unknown);
        }
    }
    sum.has_no_lane = !has_lane;
    sum
}

/// What is known of the length of a launch.
pub fn knowledge(state: &State, kind: Kind) -> Knowledge {
    let (unit, overlaps) = kind.unit();
    match unit {
        Some(unit) if state.time.lengths.expected(unit).is_some() => Knowledge::Known,
        Some(_) if !overlaps => Knowledge::Unknown,
        _ => Knowledge::Untold,
    }
}

/// Learns what the events tell that have been reached.
pub fn read_lengths(state: &State, line: &GrantLine, page: &TimePage, device: usize, real: &Library) {
    if let Some(book) = state.time.marks.get(device) {
        let spoiled = line.spoiled.load(Ordering::Acquire);
        timers::read(&book.timers, page, spoiled, &state.time.lengths, real);
    }
}

/// The program is about to wait for a stream, to ask for it, or to have others wait: what was launched there so far
/// gets its mark.
#[cold]
#[inline(never)]
pub fn settle(state: &'static State, real: &Library, stream: StreamName) {
    if is_captured(state, real, stream) {
        return;
    }
    let name = Name::of(real, stream);
    each_side(state, |side| {
        if side.own.owner.load(Ordering::Relaxed) == name.key {
            side.end(real);
        }
    });
}

/// As [`settle`], for every stream that this thread may mark: while nothing was captured in this process, any; later
/// only those into which it launched last itself, because another thread may be capturing its own.
#[cold]
#[inline(never)]
pub fn settle_all(state: &'static State, real: &Library) {
    let was_captured = state.pools.captures.load(Ordering::Relaxed) != 0;
    each_side(state, |side| {
        let own = side.own;
        let is_mine = own.launcher.load(Ordering::Relaxed) == guard::thread_key();
        // Another thread's default stream cannot be named here.
        let is_nameable = is_mine || !(was_captured || side.is_per_thread());
        if is_nameable && !(was_captured && is_captured(state, real, side.stream())) {
            side.end(real);
        }
    });
}

/// What a synchronisation waits for, between its two moments.
pub struct Settled {
    /// The launches without a lane that had been counted before, and on which device.
    unlaned: Option<(&'static State, usize, u64)>,
}

impl Settled {
    /// Before the driver is called: ends the batches in what it waits for, a stream or the current context.
    #[inline]
    pub fn begin(real: &Library, waited_for: Option<StreamName>) -> Self {
        match state::at_hand().filter(|state| state.time.is_marking.load(Ordering::Relaxed)) {
            Some(state) => errno::preserving(|| Self::settle(state, real, waited_for)),
            None => Self { unlaned: None },
        }
    }

    #[cold]
    #[inline(never)]
    fn settle(state: &'static State, real: &Library, waited_for: Option<StreamName>) -> Self {
        match waited_for {
            Some(stream) => settle(state, real, stream),
            None => settle_all(state, real),
        }
        let unlaned = || {
            let stream = waited_for.unwrap_or(StreamName::plain(CuStream::NULL));
            let device = devices::slot_of_device(state, real, device_of(state, real, stream)?)?;
            let key = state.time.marks.get(device)?.unlaned.load(Ordering::Relaxed);
            let waits_for_all = waited_for.is_none_or(|stream| Name::of(real, stream).key == key);
            let count = state
                .client_file()?
                .time
                .devices
                .get(device)?
                .unlaned
                .load(Ordering::Acquire);
            (key != 0 && waits_for_all).then_some((state, device, count))
        };
        Self { unlaned: unlaned() }
    }

    /// It has waited.
    #[inline]
    pub fn end(self, result: CuResult) {
        if let Some((state, device, count)) = self.unlaned.filter(|_| result.is_success())
            && let (Some(file), Some(book)) = (state.client_file(), state.time.marks.get(device))
            && let Some(page) = file.time.devices.get(device)
        {
            page.unlaned_ended.fetch_max(count, Ordering::AcqRel);
            if page.unlaned.load(Ordering::Acquire) == count {
                book.unlaned.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// A stream is about to be destroyed or captured: its lane ends with what is in it.
pub fn orphan(real: &Library, stream: StreamName) {
    if let Some(state) = state::at_hand().filter(|state| state.time.is_marking.load(Ordering::Relaxed)) {
        errno::preserving(|| leave_lane(state, real, stream));
    }
}

#[cold]
#[inline(never)]
fn leave_lane(state: &'static State, real: &Library, stream: StreamName) {
    let name = Name::of(real, stream);
    each_side(state, |side| {
        if side.own.owner.load(Ordering::Relaxed) == name.key {
            if !is_captured(state, real, stream) {
                side.end(real);
            }
            side.own.owner.store(ORPHAN, Ordering::Release);
        }
    });
}

/// A context is gone, and with it its work and perhaps the registration of the page.
pub fn context_ended(state: &State, context: u64) {
    let Some(file) = state.client_file() else { return };
    for (book, page) in state.time.marks.iter().zip(&file.time.devices) {
        if book.registered_in.load(Ordering::Relaxed) == context {
            book.registered_in.store(0, Ordering::Relaxed);
            book.address.store(UNKNOWN, Ordering::Release);
        }
        timers::forget(&book.timers, context);
        for side in (0..LANES).filter_map(|lane| book.side(page, lane, 0)) {
            let own = side.own;
            if own.owner.load(Ordering::Relaxed) != 0 && own.context.load(Ordering::Relaxed) == context {
                side.write_off();
                own.owner.store(ORPHAN, Ordering::Release);
            }
        }
    }
}

/// Shows every lane that somebody has on a device whose page is registered.
fn each_side(state: &'static State, mut show: impl FnMut(Side<'_>)) {
    let Some(file) = state.client_file() else { return };
    for (book, page) in state.time.marks.iter().zip(&file.time.devices) {
        let address = book.address.load(Ordering::Acquire);
        if address <= REFUSED {
            continue;
        }
        for lane in 0..LANES {
            if let Some(side) = book.side(page, lane, address)
                && side.own.owner.load(Ordering::Relaxed) != 0
            {
                show(side);
            }
        }
    }
}

/// A stream as lanes know it.
pub struct Name {
    /// Differs from that of every other stream.
    pub key: u64,
    /// Its context.
    pub context: u64,
    /// How the driver is to be told of it.
    pub stream: StreamName,
}

impl Name {
    /// Default streams are a context's, or a context's and a thread's; other handles are unique.
    pub fn of(real: &Library, stream: StreamName) -> Self {
        let mut context = CuContext::NULL;
        let _ = call!(real, cuCtxGetCurrent(&raw mut context));
        let context = context.0 as u64;
        let handle = stream.handle.0 as usize;
        let key = match (handle, stream.is_per_thread) {
            (PER_THREAD, _) | (0, true) => context.rotate_left(8) ^ guard::thread_key() | PER_THREAD as u64,
            (LEGACY, _) | (0, false) => context.wrapping_add(LEGACY as u64),
            _ => handle as u64,
        };
        Self { key, context, stream }
    }
}

impl Book {
    fn unlaned_by(&self, key: u64) {
        let former = self.unlaned.load(Ordering::Relaxed);
        let now = if former == 0 || former == key { key } else { ORPHAN };
        self.unlaned.store(now, Ordering::Relaxed);
    }

    /// Where the device sees the page; registers it at the first need.
    fn address(&self, state: &State, real: &Library, page: &TimePage, context: u64) -> Option<u64> {
        let known = self.address.load(Ordering::Acquire);
        if known == UNKNOWN
            && self
                .address
                .compare_exchange(UNKNOWN, BUSY, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            let found = relaxed(state, real, || register(real, page));
            self.registered_in.store(context, Ordering::Relaxed);
            self.address.store(found.unwrap_or(REFUSED), Ordering::Release);
            return found;
        }
        (known > REFUSED).then_some(known)
    }

    /// Finds the lane of a stream, or gives it one, and counts a launch into it. `None`: work is in flight in all.
    fn enter(&self, page: &TimePage, name: &Name) -> Option<usize> {
        let _turn = self.turn.hold();
        let owner = |lane: &LaneBook| lane.owner.load(Ordering::Relaxed);
        let own = self.lanes.iter().position(|lane| owner(lane) == name.key);
        let index = own.or_else(|| {
            let index = self.lanes.iter().zip(&page.lanes).position(|(own, lane)| {
                owner(own) == 0 || !lane.is_in_flight() && own.marker.load(Ordering::Acquire) == 0
            })?;
            self.lanes.get(index)?.give(name);
            Some(index)
        })?;
        let (own, lane) = (self.lanes.get(index)?, page.lanes.get(index)?);
        lane.stream
            .store((name.stream.handle.0 as u64).wrapping_add(1), Ordering::Relaxed);
        lane.unmarked.fetch_add(1, Ordering::AcqRel);
        own.entered.fetch_add(1, Ordering::AcqRel);
        self.entered.fetch_add(1, Ordering::AcqRel);
        own.launcher.store(guard::thread_key(), Ordering::Relaxed);
        Some(index)
    }

    /// Adds work to what was given to a lane. Answers what had been given before. Threads that launch into one stream
    /// take turns.
    fn count(&self, side: &Side<'_>, work: gate::Work) -> gate::Work {
        let _turn = self.turn.hold();
        let before = side.own.total.read();
        side.own.total.write(before.plus(work));
        before
    }

    fn side<'a>(&'a self, page: &'a TimePage, index: usize, address: u64) -> Option<Side<'a>> {
        let (own, lane, ends) = (self.lanes.get(index)?, page.lanes.get(index)?, page.ends.get(index)?);
        let offset = (core::ptr::from_ref(lane) as u64).wrapping_sub(core::ptr::from_ref(page) as u64);
        Some(Side {
            own,
            lane,
            ends,
            address: address.wrapping_add(offset),
        })
    }
}

fn register(real: &Library, page: &TimePage) -> Option<u64> {
    let memory = core::ptr::from_ref(page).cast_mut().cast();
    let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    let mut address: CuDevicePtr = 0;
    let result = call!(real, cuMemHostRegister_v2(memory, MARKS_BYTES, flags));
    // An earlier context may have left it registered.
    if !result.is_success() && result != CuResult::HOST_MEMORY_ALREADY_REGISTERED {
        return None;
    }
    call!(real, cuMemHostGetDevicePointer_v2(&raw mut address, memory, 0))
        .is_success()
        .then_some(address)
        .filter(|address| *address > REFUSED)
}
