// SPDX-License-Identifier: Apache-2.0
//! Threads that stand at a gate or at the bound on work in flight, counted for the broker while they do.
//!
//! A thread that is cancelled in a wait leaves without a word, so each that is counted is known: by its slot, and where
//! living threads have them all by a place in the process's crowd, its id above the number of
//! a device plus one. Who finds
//! no place there waits all the same and is not counted, nor needed: so many others are.

use core::sync::atomic::{AtomicU64, Ordering};

use partage_protocol::gate::{self, ThreadSlot, TimePage};
use partage_protocol::page::ClientFile;

use super::process::{self, Gates};
use super::thread_tag::ThreadTag;
use crate::guest::sys;

/// Counts a thread out that waits no more, by its slot.
pub fn stop_waiting(file: &ClientFile, slot: &ThreadSlot) {
    let page = slot.stop_waiting().and_then(|device| file.time.devices.get(device));
    if let Some(page) = page {
        page.waiting.fetch_sub(1, Ordering::Release);
    }
}

/// Counts this thread out, which waits no more: by its slot, or by its place in the crowd.
pub fn count_out(gates: &Gates, file: &ClientFile, slot: Option<&ThreadSlot>) {
    match slot {
        Some(slot) => stop_waiting(file, slot),
        None => leave_crowd(gates, file, sys::thread_id()),
    }
}

/// Counts out the threads that died in a wait: cancelled ones leave without a word.
pub fn count_out_the_dead(file: &ClientFile) {
    for slot in &file.time.threads {
        if slot.waits_for.load(Ordering::Acquire) != 0 && !sys::has_thread(slot.thread.load(Ordering::Relaxed)) {
            stop_waiting(file, slot);
        }
    }
    let Some(gates) = process::get() else { return };
    for place in &gates.crowd {
        let thread = (place.load(Ordering::Acquire) >> THREAD) as u32;
        if thread != 0 && !sys::has_thread(thread) {
            leave_crowd(gates, file, thread);
        }
    }
}

/// In a place of the crowd: above these bits the thread, in them the device.
const THREAD: u32 = 8;

/// Takes a place in the crowd. `false`: there is none left.
fn join_crowd(gates: &Gates, thread: u32, device: usize) -> bool {
    let mine = u64::from(thread) << THREAD | (device as u64 + 1);
    let take = |place: &AtomicU64| {
        place
            .compare_exchange(0, mine, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    gates.crowd.iter().any(take)
}

/// Counts out whoever has a place in the crowd under that id.
fn leave_crowd(gates: &Gates, file: &ClientFile, thread: u32) {
    for place in &gates.crowd {
        let held = place.load(Ordering::Acquire);
        let is_left = held >> THREAD == u64::from(thread)
            && place
                .compare_exchange(held, 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        let device = (held as usize & ((1 << THREAD) - 1)).wrapping_sub(1);
        if let Some(page) = file.time.devices.get(device).filter(|_| is_left) {
            page.waiting.fetch_sub(1, Ordering::Release);
        }
    }
}

/// A thread that stands at the gate or at the bound on work in flight, and is counted there.
pub struct Waiting<'a> {
    gates: &'static Gates,
    file: &'a ClientFile,
    page: &'a TimePage,
    device: usize,
    is_counted: bool,
    /// Distinguishes the process in the thread's tag.
    generation: u32,
    /// Up to when its time is counted, in monotonic nanoseconds.
    until_ns: u64,
}

impl<'a> Waiting<'a> {
    /// From now on.
    pub fn begin(file: &'a ClientFile, device: usize) -> Option<Self> {
        let gates = process::get()?;
        let mut waiting = Self {
            gates,
            file,
            page: file.time.devices.get(device)?,
            device,
            is_counted: false,
            generation: gates.generation.load(Ordering::Relaxed),
            until_ns: sys::now_ns(),
        };
        waiting.count_in();
        Some(waiting)
    }

    fn count_in(&mut self) {
        self.page.waiting.fetch_add(1, Ordering::AcqRel);
        let tag = note(self.generation, Some(self.device));
        match self.file.time.threads.get(tag.slot()) {
            Some(slot) => {
                slot.waits_for.store(gate::name(self.device as u32), Ordering::Release);
                self.is_counted = true;
            }
            None => {
                let me = sys::thread_id();
                // Whoever had this id before us may have died in a wait.
                leave_crowd(self.gates, self.file, me);
                self.is_counted = join_crowd(self.gates, me, self.device);
            }
        }
        if !self.is_counted {
            self.page.waiting.fetch_sub(1, Ordering::Release);
        }
    }

    /// Counts the time until now, which it answers.
    pub fn count(&mut self) -> u64 {
        if !self.is_counted {
            self.count_in();
        }
        let now = sys::now_ns();
        let waited = now.saturating_sub(self.until_ns);
        self.page.waited_ns.fetch_add(waited, Ordering::Relaxed);
        self.until_ns = now;
        now
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let tag = note(self.generation, None);
        count_out(self.gates, self.file, self.file.time.threads.get(tag.slot()));
    }
}

/// Leaves a note in the thread's tag: a signal's handler may jump out of a wait.
fn note(generation: u32, device: Option<usize>) -> ThreadTag {
    let mut tag = ThreadTag::read(generation);
    tag.set_waits_for(device);
    tag.keep();
    tag
}
