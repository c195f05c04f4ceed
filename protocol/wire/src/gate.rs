// SPDX-License-Identifier: Apache-2.0
//! The gate: how a launch passes without a system call, and how the broker is sure that none passes any more.
//!
//! Per (client, device) the broker writes one *gate word*; per thread the client writes one *slot word*. Clients cannot
//! write the gate word. When the broker's heartbeat stops, threads ignore a closed gate, unless the job asked to wait;
//! the word stays as it is.
//!
//! ```text
//!   client, each launch                      broker, to close
//!     slot := device + 1                       gate := closed, another epoch
//!     light barrier                            heavy barrier
//!     gate open? ── no ──► slot := 0, wait     slots that name the device: launches admitted before;
//!       │ yes                                  none appears after the heavy barrier
//!     call the driver
//!     slot := 0
//! ```
//! The light barrier is a compiler fence: the broker's heavy barrier is `membarrier(GLOBAL_EXPEDITED)`, which runs a
//! full barrier on every processor that executes a registered process, so the store to the slot and the load of the
//! gate are ordered there as by a fence of their own. A client that could not register uses a full fence; so do all
//! clients when the broker may not call membarrier ([`NEEDS_FENCE`]). A client's usual way is [`enter_shortly`]: it
//! asks the flags beside the gate as well, and only when one is set, or the gate closed, does the longer way begin.
//!
//! Invariant (checked by loom, `protocol/tests/gate_loom.rs`): once [`close`] and its heavy barrier are done, each
//! launch that passed the gate shows in its slot or has ended, and no other launch passes until the gate opens again.
//! The same holds of a flag that is set, for launches on the short way; [`HELD`] stands for the [hold](crate::hold).
//!
//! *Marks* say when work has ended without the client's help: the device itself writes sequence numbers into a *lane*,
//! one lane for each stream that has work in flight. *begun* is written before the first operation of a batch, *ended*
//! after the last. All of it is a hint of the client; the broker recomputes what it enforces.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

/// In a gate word: launches pass. The other bits are an epoch that changes with each change of the word.
pub const OPEN: u32 = 1;
/// In `GrantLine::gate_flags`: the broker reads marks, so work that could leave none in time is marked at once.
pub const MEASURED: u32 = 1;
/// In `GrantLine::gate_flags`: the broker has no membarrier; clients use a full fence.
pub const NEEDS_FENCE: u32 = 2;
/// In `GrantLine::gate_flags`: copies and memsets pass the gate too (the regime is Turns).
pub const GATES_COPIES: u32 = 4;
/// In `GrantLine::gate_flags`: while this client's gate is open, nobody else's work runs on the device, so what events
/// tell of its units is their own time.
pub const UNSHARED: u32 = 8;
/// In `GrantLine::gate_flags`: the hold is closed or about to be, so launches take the way on which they stand at it.
pub const HELD: u32 = 16;
/// `GrantLine::depth_ns` when work in flight is not bounded.
pub const UNBOUNDED: u64 = u64::MAX;
/// A gate that stays closed while the broker's heartbeat is older than this opens by itself (time fails open).
pub const HEARTBEAT_NS: u64 = 2_000_000_000;

/// Threads with a slot of their own; more share [`TimePages::crowd`].
pub const THREADS: usize = 128;
/// Places for the others, each for the length of a call.
pub const SPARE: usize = 256;
/// Streams of one device that are marked at the same time.
pub const LANES: usize = 16;
/// Ended batches of a lane that are told apart.
pub const KEPT: usize = 64;

/// One shared 32-bit word. The machine's is [`AtomicU32`]; loom brings its own.
pub trait Word {
    /// Reads; nothing after it moves before it.
    fn load(&self) -> u32;
    /// Writes; nothing before it moves after it.
    fn store(&self, value: u32);
    /// Orders an earlier store before a later load, relying on the other side's heavy barrier.
    fn light();
    /// Orders an earlier store before a later load by itself.
    fn full();
}

impl Word for AtomicU32 {
    #[inline(always)]
    fn load(&self) -> u32 {
        Self::load(self, Ordering::Acquire)
    }
    #[inline(always)]
    fn store(&self, value: u32) {
        Self::store(self, value, Ordering::Release);
    }
    #[inline(always)]
    fn light() {
        compiler_fence(Ordering::SeqCst);
    }
    fn full() {
        fence(Ordering::SeqCst);
    }
}

/// What a slot word says while a launch on a device is on its way.
#[inline(always)]
pub const fn name(device: u32) -> u32 {
    device.wrapping_add(1)
}

/// What a launch found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Entered {
    /// The gate is open and the slot says so: call the driver, then [`leave`].
    Passed,
    /// Closed, with the word to wait on; the slot is clear.
    Closed(u32),
}

/// Client: stands before the gate with a thread's own slot.
#[inline(always)]
pub fn enter<W: Word>(slot: &W, gate: &W, device: u32, is_fenced: bool) -> Entered {
    slot.store(name(device));
    if is_fenced {
        W::full();
    } else {
        W::light();
    }
    let word = gate.load();
    if word & OPEN != 0 {
        return Entered::Passed;
    }
    slot.store(0);
    Entered::Closed(word)
}

/// Client: stands before the gate, and passes only if it is open and no flag asks for more than that. `name` is the
/// device's ([`name`]). Otherwise the slot is clear: [`enter`] finds out why.
#[inline(always)]
pub fn enter_shortly<W: Word>(slot: &W, gate: &W, flags: &W, name: u32) -> bool {
    slot.store(name);
    W::light();
    if gate.load() & OPEN != 0 && flags.load() == 0 {
        return true;
    }
    slot.store(0);
    false
}

/// Client: the driver has the launch.
#[inline(always)]
pub fn leave<W: Word>(slot: &W) {
    slot.store(0);
}

/// Broker: closes; the heavy barrier is the caller's next step. Answers the new word.
pub fn close<W: Word>(gate: &W) -> u32 {
    let word = next(gate.load()) & !OPEN;
    gate.store(word);
    word
}

/// Broker: opens; whoever waits on the word has to be woken. Answers the new word.
pub fn open<W: Word>(gate: &W) -> u32 {
    let word = next(gate.load()) | OPEN;
    gate.store(word);
    word
}

fn next(word: u32) -> u32 {
    word.wrapping_add(2)
}

/// One thread of a client.
#[derive(Default)]
#[repr(C, align(64))]
pub struct ThreadSlot {
    /// 0, or the slot of a device plus one while a launch on it is between its look at the gate and its end.
    pub word: AtomicU32,
    /// The thread that has this place; 0 until one has. Places are taken in order.
    pub thread: AtomicU32,
    /// Launches of the thread, all devices.
    pub launches: AtomicU64,
    /// 0, or the slot of a device plus one while the thread is counted in that one's `waiting`. Whoever sets it back to
    /// 0 counts the thread out: itself, or another one once it is dead.
    pub waits_for: AtomicU32,
    /// Not 0 while a call of the thread is between its look at the hold and its end ([`hold`](crate::hold)).
    pub inside: AtomicU32,
    /// 1 while the thread is counted in `ClientHead::wants`. Whoever sets it back to 0 counts the thread out.
    pub wants: AtomicU32,
    /// The closed hold word under which the thread was found outside although its words say that it is inside.
    pub out: AtomicU32,
    /// Where the thread keeps what its library knows of it: an address in the client's process, of use to that alone.
    pub home: AtomicU64,
}

impl ThreadSlot {
    /// The device in whose `waiting` the thread was counted, and is no more. The caller counts it out there.
    pub fn stop_waiting(&self) -> Option<usize> {
        (self.waits_for.swap(0, Ordering::AcqRel) as usize).checked_sub(1)
    }
}

/// Marks of one stream with work in flight. The two words that the device writes have a cache line of their own.
#[repr(C, align(128))]
pub struct Lane {
    /// The last number that the client handed to the device.
    pub submitted: AtomicU64,
    /// Launches after that one that have no mark yet.
    pub unmarked: AtomicU64,
    /// The stream's handle plus one, 0 until a stream has the lane. Lanes are taken in order.
    pub stream: AtomicU64,
    /// When, in monotonic nanoseconds, launches without a mark are expected to have ended at the latest: the program
    /// may fall silent before they get one.
    pub unmarked_until_ns: AtomicU64,
    padding: [u64; 4],
    /// Written by the device before the first operation of a batch.
    pub begun: AtomicU64,
    /// Written by the device after the last operation of a batch.
    pub ended: AtomicU64,
}

impl Lane {
    /// Is there work that has begun, or may have, and is not known to have ended? `now_ns` is monotonic.
    pub fn is_busy(&self, now_ns: u64) -> bool {
        let submitted = self.submitted.load(Ordering::Acquire);
        let ended = self.ended.load(Ordering::Acquire);
        let has_begun = self.has_begun();
        // What waits for a copy or for another stream does not occupy the multiprocessors.
        if submitted != ended && !has_begun {
            return false;
        }
        // Launches without a mark are the last, and their batch, if they have one, has no end in the stream yet.
        let is_silent = self.unmarked.load(Ordering::Relaxed) != 0;
        if is_silent && ended.wrapping_add(1) >= submitted {
            return now_ns <= self.unmarked_until_ns.load(Ordering::Relaxed);
        }
        submitted != ended
    }

    /// Is there a batch that has begun and not ended?
    fn has_begun(&self) -> bool {
        let ended = self.ended.load(Ordering::Acquire);
        self.begun.load(Ordering::Acquire) > ended
    }

    /// Is there a batch that has not begun?
    fn is_pending(&self) -> bool {
        !self.has_begun() && self.submitted.load(Ordering::Acquire) != self.ended.load(Ordering::Acquire)
    }

    /// Is there work that is not known to have ended, whether it has begun or not?
    pub fn is_in_flight(&self) -> bool {
        self.submitted.load(Ordering::Acquire) != self.ended.load(Ordering::Acquire)
            || self.unmarked.load(Ordering::Relaxed) != 0
    }
}

/// What is not known of a unit that was never timed counts as at least so much, in nanoseconds: it may take anything.
pub const UNKNOWN_NS: u64 = 1_000_000;

/// An amount of work, counted from the beginning of the client: what was given to a lane by some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// What it is expected to take, in nanoseconds of the device's time.
    pub ns: u64,
    /// The part of `ns` that is of units whose length is not known.
    pub unknown_ns: u64,
    /// Launches.
    pub units: u64,
}

impl Work {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            ns: self.ns.saturating_add(other.ns),
            unknown_ns: self.unknown_ns.saturating_add(other.unknown_ns),
            units: self.units.saturating_add(other.units),
        }
    }

    /// What has come since an earlier moment. Two threads that count at once may lose some: never less than nothing.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            ns: self.ns.saturating_sub(earlier.ns),
            unknown_ns: self.unknown_ns.saturating_sub(earlier.unknown_ns),
            units: self.units.saturating_sub(earlier.units),
        }
    }
}

/// A [`Work`] in shared memory. One thread writes it at a time.
#[repr(C)]
pub struct WorkCell {
    ns: AtomicU64,
    unknown_ns: AtomicU64,
    units: AtomicU64,
}

impl WorkCell {
    /// What it says.
    pub fn read(&self) -> Work {
        Work {
            ns: self.ns.load(Ordering::Relaxed),
            unknown_ns: self.unknown_ns.load(Ordering::Relaxed),
            units: self.units.load(Ordering::Relaxed),
        }
    }

    /// Says something else.
    pub fn write(&self, work: Work) {
        self.ns.store(work.ns, Ordering::Relaxed);
        self.unknown_ns.store(work.unknown_ns, Ordering::Relaxed);
        self.units.store(work.units, Ordering::Relaxed);
    }
}

/// Of a lane, what had been given to it by the end of each of its last batches, by the batch's number.
#[repr(C)]
pub struct Ends([WorkCell; KEPT]);

impl Ends {
    /// By the end of this batch; of an older one than the last [`KEPT`] this is another's.
    pub fn of(&self, number: u64) -> Work {
        self.0
            .get(number as usize % KEPT)
            .map_or(Work::default(), WorkCell::read)
    }

    /// Says so, before the device is told to write the number.
    pub fn write(&self, number: u64, work: Work) {
        // Whoever reads it meanwhile sees that the number was handed out (see `TimePage::done`).
        fence(Ordering::Release);
        if let Some(cell) = self.0.get(number as usize % KEPT) {
            cell.write(work);
        }
    }
}

/// How far a lane has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What has retired since the client began. `None`: the queue is too long to tell.
    pub done: Option<Work>,
    /// Work has begun that has not ended.
    pub is_running: bool,
}

/// What a client says about its time on one device. Its first [`MARKS_BYTES`] are a page of their own, so that they can
/// be registered with the driver.
#[repr(C, align(4096))]
pub struct TimePage {
    /// Threads that stand at the gate or at the depth limit now.
    pub waiting: AtomicU32,
    /// Nanoseconds that threads have stood there, all together; of waits under way all but the last tenth of a second.
    pub waited_ns: AtomicU64,
    /// The longest unit (kernel or graph) among the last measured ones, in nanoseconds.
    pub unit_ns: AtomicU64,
    /// Launches that met a closed gate while no broker's heartbeat was seen.
    pub failed_open: AtomicU64,
    /// Launches that no lane was free for, and the synchronisations after them: unequal means work without marks.
    pub unlaned: AtomicU64,
    /// See `unlaned`.
    pub unlaned_ended: AtomicU64,
    /// The lanes.
    pub lanes: [Lane; LANES],
    padding: [u64; 240],
    /// What was in them.
    pub ends: [Ends; LANES],
}

/// The part of a [`TimePage`] into which devices write.
pub const MARKS_BYTES: usize = core::mem::offset_of!(TimePage, ends);

impl TimePage {
    /// A number that changes when work retires.
    pub fn retired(&self) -> u64 {
        let ended = |sum: u64, lane: &Lane| sum.wrapping_add(lane.ended.load(Ordering::Relaxed));
        let unlaned = self.unlaned_ended.load(Ordering::Relaxed);
        self.used().fold(unlaned, ended)
    }

    /// The lanes that a stream has or had. Whoever looks often looks at no others.
    fn used(&self) -> impl Iterator<Item = &Lane> {
        let is_used = |lane: &&Lane| lane.stream.load(Ordering::Acquire) != 0;
        self.lanes.iter().take_while(is_used)
    }

    /// What has retired of work without a lane, since the client began. `None`: some may be under way.
    pub fn done_unlaned(&self) -> Option<Work> {
        let unlaned = self.unlaned.load(Ordering::Acquire);
        // Of what came and went without a lane nobody knows what it took.
        let work = Work {
            unknown_ns: unlaned.saturating_mul(UNKNOWN_NS),
            ..Work::default()
        };
        (unlaned == self.unlaned_ended.load(Ordering::Acquire)).then_some(work)
    }

    /// Each lane that was ever used.
    pub fn progress(&self) -> impl Iterator<Item = Progress> {
        self.used().zip(&self.ends).map(|(lane, ends)| {
            // First: what ends meanwhile has retired and is told.
            let is_running = lane.has_begun();
            let ended = lane.ended.load(Ordering::Acquire);
            let done = ends.of(ended);
            // Read after it: another batch may have taken its place meanwhile.
            fence(Ordering::Acquire);
            let ahead = lane.submitted.load(Ordering::Acquire).wrapping_sub(ended);
            let done = (ahead < KEPT as u64).then_some(done);
            Progress { done, is_running }
        })
    }

    /// Is there a batch that has not begun, and none that has and did not end?
    pub fn is_pending(&self) -> bool {
        self.running() == 0 && self.used().any(Lane::is_pending)
    }

    /// In how many lanes work has begun that has not ended.
    pub fn running(&self) -> u64 {
        self.used().filter(|lane| lane.has_begun()).count() as u64
    }

    /// Does the device work for the client, as far as marks tell? `now_ns` is monotonic.
    pub fn is_busy(&self, now_ns: u64) -> bool {
        self.used().any(|lane| lane.is_busy(now_ns))
            || self.unlaned.load(Ordering::Relaxed) != self.unlaned_ended.load(Ordering::Relaxed)
    }
}

/// The part of the client's file that is about time.
#[repr(C, align(4096))]
pub struct TimePages {
    /// Launches of threads without a slot, per device: counted up before the gate and down after.
    pub crowd: [AtomicU32; crate::message::MAX_DEVICES],
    padding: [u64; 504],
    /// The threads.
    pub threads: [ThreadSlot; THREADS],
    /// Threads without a slot, each while a call of it is in the driver or at the hold.
    pub spare: [ThreadSlot; SPARE],
    /// One page for each slot of a device.
    pub devices: [TimePage; crate::message::MAX_DEVICES],
}

impl TimePages {
    /// Is a launch on a device between its look at the gate and its end?
    pub fn is_entering(&self, device: usize) -> bool {
        let crowd = |crowd: &AtomicU32| crowd.load(Ordering::Acquire) != 0;
        let is_taken = |slot: &&ThreadSlot| slot.thread.load(Ordering::Acquire) != 0;
        let mut taken = self.threads.iter().take_while(is_taken);
        self.crowd.get(device).is_some_and(crowd)
            || taken.any(|slot| slot.word.load(Ordering::Acquire) == name(device as u32))
    }
}

const _: () =
    assert!(MARKS_BYTES == 4096 && size_of::<TimePage>() == 4096 * 7 && size_of::<TimePages>() == 4096 * (7 + 7 * 16));
