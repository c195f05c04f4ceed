// SPDX-License-Identifier: Apache-2.0
//! One lane of marks, the client's side and the shared one: batches begin and end here (see [`marks`](super)).

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use partage_abi::types::CuStream;
use partage_gpu_time::depth::MOST;
use partage_protocol::gate::{Ends, Lane, WorkCell};

use super::name::{LEGACY, Name, PER_THREAD};
use crate::guard;
use crate::guest::sys;
use crate::real::Library;
use crate::real::call;
use crate::state;
use crate::stream::StreamName;

/// Launches in a batch.
const MOST_UNITS: u64 = 32;
/// Nanoseconds of this thread's clock from a batch's first launch to its last.
const MOST_NS: u64 = 200_000;
/// A program that falls silent with unmarked launches counts as busy for so many times what they are expected to take,
/// because others have their slices meanwhile, and for one slice of each of a few others.
const SILENT_TIMES: u64 = 8;
const SILENT_NS: u64 = 4_000_000;
/// The client's own side of a lane.
pub struct LaneBook {
    /// Which stream has the lane; 0: none.
    pub owner: AtomicU64,
    /// Its context.
    pub context: AtomicU64,
    /// Its handle, as this thread names it.
    pub handle: AtomicU64,
    pub is_per_thread: AtomicBool,
    /// The thread that puts marks into it now; 0: none.
    pub marker: AtomicU64,
    /// The thread that launched last.
    pub launcher: AtomicU64,
    /// The batch has begun and not ended.
    pub is_open: AtomicBool,
    /// Programmatic dependent launches were seen.
    pub overlaps: AtomicBool,
    /// Launches that were counted before the driver was called, that came back, and that lie before an end mark.
    pub entered: AtomicU64,
    pub launched: AtomicU64,
    pub covered: AtomicU64,
    /// When the batch began, in nanoseconds.
    pub opened_ns: AtomicU64,
    /// Everything that was given to the lane, by whatever stream.
    pub total: WorkCell,
    /// The batches of the last launches of unknown length, and how many such launches there were.
    unknown_in: [AtomicU64; MOST as usize],
    unknown: AtomicU64,
}

impl LaneBook {
    /// Counts a launch of unknown length into the batch with this number.
    pub fn add_unknown(&self, number: u64) {
        let count = self.unknown.fetch_add(1, Ordering::Relaxed);
        if let Some(last) = self.unknown_in.get((count % MOST) as usize) {
            last.store(number, Ordering::Relaxed);
        }
    }

    /// Launches of unknown length behind the batch with this number; of more than [`MOST`] so many.
    pub fn unknown_since(&self, ended: u64) -> u64 {
        let is_ahead = |number: &&AtomicU64| number.load(Ordering::Relaxed) > ended;
        self.unknown_in.iter().filter(is_ahead).count() as u64
    }

    /// Nothing of unknown length is in the lane any more.
    fn forget_unknown(&self) {
        self.unknown_in
            .iter()
            .for_each(|number| number.store(0, Ordering::Relaxed));
    }

    /// Another stream has the lane from now on. The caller holds the turn; nothing is in flight in it.
    pub fn give(&self, name: &Name) {
        self.context.store(name.context, Ordering::Relaxed);
        self.handle.store(name.stream.handle.0 as u64, Ordering::Relaxed);
        self.is_per_thread.store(name.stream.is_per_thread, Ordering::Relaxed);
        self.is_open.store(false, Ordering::Relaxed);
        self.overlaps.store(false, Ordering::Relaxed);
        self.forget_unknown();
        for count in [&self.entered, &self.launched, &self.covered] {
            count.store(0, Ordering::Relaxed);
        }
        self.owner.store(name.key, Ordering::Release);
    }
}

/// A lane, both sides of it.
pub struct Side<'a> {
    pub own: &'a LaneBook,
    pub lane: &'a Lane,
    /// What the batches of the lane were.
    pub ends: &'a Ends,
    /// Where the device sees the lane.
    pub address: u64,
}

impl Side<'_> {
    pub fn stream(&self) -> StreamName {
        StreamName {
            handle: CuStream(self.own.handle.load(Ordering::Relaxed) as *mut _),
            is_per_thread: self.is_per_thread_entry(),
        }
    }

    pub fn is_per_thread_entry(&self) -> bool {
        self.own.is_per_thread.load(Ordering::Relaxed)
    }

    pub fn is_per_thread(&self) -> bool {
        let handle = self.own.handle.load(Ordering::Relaxed) as usize;
        handle == PER_THREAD || handle == 0 && self.is_per_thread_entry()
    }

    pub fn is_legacy(&self) -> bool {
        let handle = self.own.handle.load(Ordering::Relaxed) as usize;
        handle == LEGACY || handle == 0 && !self.is_per_thread_entry()
    }

    /// Marks the beginning of a batch, unless one is under way.
    pub fn begin(&self, real: &Library) {
        if self.own.is_open.load(Ordering::Acquire) {
            return;
        }
        let Some(_marking) = self.mark() else { return };
        if !self.own.is_open.load(Ordering::Acquire) {
            let number = self.lane.submitted.load(Ordering::Relaxed).wrapping_add(1);
            self.lane.submitted.store(number, Ordering::Release);
            self.put(real, &self.lane.begun, number);
            self.own.opened_ns.store(sys::now_ns(), Ordering::Relaxed);
            self.own.is_open.store(true, Ordering::Release);
        }
    }

    /// The number of the next end mark, at the earliest: as long as nobody ends the batch that is under way.
    pub fn next_mark(&self) -> u64 {
        let ahead = u64::from(!self.own.is_open.load(Ordering::Relaxed));
        self.lane.submitted.load(Ordering::Relaxed).wrapping_add(ahead)
    }

    /// Has an earlier batch than this one not ended yet, and is the launch still the last of so many?
    pub fn is_behind(&self, number: u64, entered: u64) -> bool {
        self.lane.ended.load(Ordering::Acquire).wrapping_add(1) < number
            && self.own.entered.load(Ordering::Relaxed) == entered
    }

    /// Is the batch to end after the launch that just came back?
    pub fn is_time(&self) -> bool {
        let own = self.own;
        let batch = own
            .launched
            .load(Ordering::Acquire)
            .wrapping_sub(own.covered.load(Ordering::Relaxed));
        let submitted = self.lane.submitted.load(Ordering::Relaxed);
        let is_first_in_flight = self.lane.ended.load(Ordering::Acquire).wrapping_add(1) >= submitted;
        is_first_in_flight
            || self.is_legacy()
            || batch >= MOST_UNITS
            || sys::now_ns().wrapping_sub(own.opened_ns.load(Ordering::Relaxed)) >= MOST_NS
    }

    /// Marks the end of what was launched, if anything has none.
    #[inline(never)]
    pub fn end(&self, real: &Library) {
        let own = self.own;
        let is_covered = || own.launched.load(Ordering::Acquire) == own.covered.load(Ordering::Acquire);
        if is_covered() {
            return;
        }
        let Some(_marking) = self.mark() else { return };
        // Read before the mark is put: what comes back meanwhile may lie behind it.
        let (launched, covered) = (
            own.launched.load(Ordering::Acquire),
            own.covered.load(Ordering::Relaxed),
        );
        if launched == covered {
            return;
        }
        let mut number = self.lane.submitted.load(Ordering::Relaxed);
        if !own.is_open.load(Ordering::Acquire) {
            number = number.wrapping_add(1);
            self.lane.submitted.store(number, Ordering::Release);
            self.put(real, &self.lane.begun, number);
        }
        self.ends.write(number, own.total.read());
        own.is_open.store(false, Ordering::Release);
        self.put(real, &self.lane.ended, number);
        own.covered.store(launched, Ordering::Release);
        self.lane
            .unmarked
            .fetch_sub(launched.wrapping_sub(covered), Ordering::AcqRel);
    }

    /// A launch has come back.
    pub fn launched(&self) {
        self.own.launched.fetch_add(1, Ordering::AcqRel);
    }

    /// What is launched now may be the last for long, and has no mark: says until when it is expected to run.
    #[inline(never)]
    pub fn expect_silence(&self) {
        let own = self.own;
        let ended = self.ends.of(self.lane.ended.load(Ordering::Relaxed));
        let ns = own.total.read().since(ended).ns.saturating_mul(SILENT_TIMES);
        let until = machine_time(sys::now_ns()).saturating_add(ns).saturating_add(SILENT_NS);
        self.lane.unmarked_until_ns.store(until, Ordering::Relaxed);
    }

    /// The work is gone and nobody writes its marks.
    #[inline(never)]
    pub fn write_off(&self) {
        let submitted = self.lane.submitted.load(Ordering::Acquire);
        self.ends.write(submitted, self.own.total.read());
        self.lane.begun.store(submitted, Ordering::Release);
        self.lane.ended.store(submitted, Ordering::Release);
        let own = self.own;
        own.forget_unknown();
        let entered = own.entered.load(Ordering::Relaxed);
        let covered = own.covered.swap(entered, Ordering::Relaxed);
        own.launched.store(entered, Ordering::Relaxed);
        own.is_open.store(false, Ordering::Relaxed);
        self.lane
            .unmarked
            .fetch_sub(entered.wrapping_sub(covered), Ordering::AcqRel);
    }

    /// Has the device write a number when it gets there.
    #[inline(never)]
    pub fn put(&self, real: &Library, word: &AtomicU64, number: u64) {
        let offset = (core::ptr::from_ref(word) as u64).wrapping_sub(core::ptr::from_ref(self.lane) as u64);
        let (stream, address) = (self.stream(), self.address.wrapping_add(offset));
        let result = if stream.is_per_thread {
            call!(real, cuStreamWriteValue64_v2_ptsz(stream.handle, address, number, 0))
        } else {
            call!(real, cuStreamWriteValue64_v2(stream.handle, address, number, 0))
        };
        if !result.is_success() {
            word.store(number, Ordering::Release);
        }
    }

    /// The right to put marks, if nobody else has it.
    pub fn mark(&self) -> Option<Marking<'_>> {
        let me = guard::thread_key();
        match self
            .own
            .marker
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Acquire)
        {
            Ok(_) => Some(Marking(&self.own.marker)),
            // A signal's handler left the driver by a long jump.
            Err(holder) if holder == me => Some(Marking(&self.own.marker)),
            Err(_) => None,
        }
    }
}

pub struct Marking<'a>(&'a AtomicU64);

impl Drop for Marking<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// The clock of what stands in shared pages.
fn machine_time(own_ns: u64) -> u64 {
    state::get().map_or(own_ns, |state| state.machine_time(own_ns))
}
