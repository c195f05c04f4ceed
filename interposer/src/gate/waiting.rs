// SPDX-License-Identifier: Apache-2.0
//! Threads that stand at a gate or at the bound on work in flight, counted for the broker while they do.

use core::sync::atomic::Ordering;

use partage_protocol::gate::{self, ThreadSlot, TimePage};
use partage_protocol::page::ClientFile;

use super::process;
use super::thread_tag::ThreadTag;
use crate::guest::sys;

/// Counts a thread out that waits no more, by its slot.
pub fn stop_waiting(file: &ClientFile, slot: &ThreadSlot) {
    let page = slot.stop_waiting().and_then(|device| file.time.devices.get(device));
    if let Some(page) = page {
        page.waiting.fetch_sub(1, Ordering::Release);
    }
}

/// Counts a thread out that waits no more for a device. Without a slot nobody else could have done it.
pub fn count_out(file: &ClientFile, slot: Option<&ThreadSlot>, device: usize) {
    match (slot, file.time.devices.get(device)) {
        (Some(slot), _) => stop_waiting(file, slot),
        (None, Some(page)) => {
            page.waiting.fetch_sub(1, Ordering::Release);
        }
        (None, None) => {}
    }
}

/// Counts out the threads that died in a wait: cancelled ones leave without a word.
pub fn count_out_the_dead(file: &ClientFile) {
    for slot in &file.time.threads {
        if slot.waits_for.load(Ordering::Acquire) != 0 && !sys::has_thread(slot.thread.load(Ordering::Relaxed)) {
            stop_waiting(file, slot);
        }
    }
}

/// A thread that stands at the gate or at the bound on work in flight, and is counted there.
pub struct Waiting<'a> {
    file: &'a ClientFile,
    page: &'a TimePage,
    device: usize,
    /// Distinguishes the process in the thread's tag.
    generation: u32,
    /// Up to when its time is counted, in monotonic nanoseconds.
    until_ns: u64,
}

impl<'a> Waiting<'a> {
    /// From now on.
    pub fn begin(file: &'a ClientFile, device: usize) -> Option<Self> {
        let page = file.time.devices.get(device)?;
        let generation = process::get()?.generation.load(Ordering::Relaxed);
        page.waiting.fetch_add(1, Ordering::AcqRel);
        if let Some(slot) = file.time.threads.get(note(generation, Some(device)).slot()) {
            slot.waits_for.store(gate::name(device as u32), Ordering::Release);
        }
        Some(Self {
            file,
            page,
            device,
            generation,
            until_ns: sys::now_ns(),
        })
    }

    /// Counts the time until now, which it answers.
    pub fn count(&mut self) -> u64 {
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
        count_out(self.file, self.file.time.threads.get(tag.slot()), self.device);
    }
}

/// Leaves a note in the thread's tag: a signal's handler may jump out of a wait.
fn note(generation: u32, device: Option<usize>) -> ThreadTag {
    let mut tag = ThreadTag::read(generation);
    tag.set_waits_for(device);
    tag.keep();
    tag
}
