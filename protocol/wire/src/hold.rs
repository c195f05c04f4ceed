// SPDX-License-Identifier: Apache-2.0
//! The hold: where threads stop before the driver while their job's memory leaves its device or is away, and what keeps
//! a process from being held at all.
//!
//! The broker writes one *hold word* per client; per thread the client writes one *inside* word. It is the gate's
//! protocol (see [`gate`](crate::gate)) for every call that the library sees, not only for launches:
//! ```text
//!   client, each hooked call                 broker, to hold
//!     inside := 1                              flag HELD beside each gate, hold := soft, another epoch
//!     light barrier                            heavy barrier
//!     hold open? ── no ──► inside := 0, wait   whoever is inside now called before; nobody comes in after
//!       │ yes                                  nobody inside? then hold := hard, and the driver is asked
//!     call the driver
//!     inside := 0
//! ```
//! Launches on their short way say *inside* by their slot word and look at the flag [`HELD`](crate::gate::HELD).
//! *Soft* opens by itself like a gate, when the broker's heartbeat stops: nothing is locked yet. *Hard* never opens by
//! itself, whatever becomes of the broker: a thread in a checkpointed driver could crash its program.
//!
//! NVML is no use of the device: its calls ([`enter_nvml`]) pass a closed hold, are not *inside*, and wait only while
//! the word says [`PARKED`]: the process is saved then, and must have no device open and write to no page.
//!
//! A thread that left a call by a jump, or died in it, leaves *inside* behind. The library's own thread finds such and
//! writes the hold word under which it found them to their `out`: under that word they are outside, because whoever
//! comes in under it stands. No word of another thread is changed, so nothing can be cleared that was just set.
//!
//! Invariant (checked by loom, `protocol/tests/hold_loom.rs`): once [`close_softly`] and the heavy barrier are done,
//! each call that passed shows as inside or has ended, and no other passes until the hold opens.

use core::sync::atomic::Ordering;

use crate::gate::{ThreadSlot, TimePages, Word};
use crate::page::ClientFile;

/// In a hold word: closed, and opens by itself when the broker's heartbeat stops.
pub const SOFT: u32 = 1;
/// In a hold word: closed, and never opens by itself.
pub const HARD: u32 = 2;
/// In a hold word, open or closed: the broker has no membarrier; clients use a full fence.
pub const FENCED: u32 = 4;
/// In a hold word, beside [`HARD`]: the job is being saved, and NVML's calls wait, too.
pub const PARKED: u32 = 8;
/// In a hold word: one step of the epoch, which changes with each change of the word.
const STEP: u32 = 16;

/// In a thread's `inside`: it is in a call of the driver.
pub const IN_DRIVER: u32 = 1;
/// In a thread's `inside`: it is in a call of NVML.
pub const IN_NVML: u32 = 2;

/// Is the hold closed? A word of zero is open.
#[inline(always)]
pub const fn is_closed(word: u32) -> bool {
    word & (SOFT | HARD) != 0
}

/// Do NVML's calls wait, too?
pub const fn is_parked(word: u32) -> bool {
    word & (HARD | PARKED) == HARD | PARKED
}

/// What stands in a thread's `out` while it is found out whether it is outside under this closed word: no word of a
/// hold.
#[inline]
pub const fn judging(word: u32) -> u32 {
    word | SOFT | HARD
}

/// What a call found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Entered {
    /// The hold is open and *inside* says so: call the driver, then [`leave`].
    Passed,
    /// Closed, with the word to wait on; *inside* is clear.
    Held(u32),
}

/// Client: passes if the hold is open and nothing asks for more than that. Otherwise *inside* is clear: [`enter`] finds
/// out why.
#[inline(always)]
pub fn enter_shortly<W: Word>(inside: &W, hold: &W) -> bool {
    inside.store(IN_DRIVER);
    W::light();
    if hold.load() & (SOFT | HARD | FENCED) == 0 {
        return true;
    }
    inside.store(0);
    false
}

/// Client: stands before the hold, with a fence of its own.
pub fn enter<W: Word>(inside: &W, hold: &W) -> Entered {
    inside.store(IN_DRIVER);
    W::full();
    let word = hold.load();
    if is_closed(word) {
        inside.store(0);
        return Entered::Held(word);
    }
    Entered::Passed
}

/// Client: a call of NVML stands before the hold.
pub fn enter_nvml<W: Word>(inside: &W, hold: &W) -> Entered {
    inside.store(IN_NVML);
    W::full();
    let word = hold.load();
    if is_parked(word) {
        inside.store(0);
        return Entered::Held(word);
    }
    Entered::Passed
}

/// Client: the call has ended.
#[inline(always)]
pub fn leave<W: Word>(inside: &W) {
    inside.store(0);
}

/// Broker: closes, so that it opens by itself without a heartbeat; the heavy barrier is the caller's next step. Answers
/// the new word.
pub fn close_softly<W: Word>(hold: &W) -> u32 {
    change(hold, SOFT)
}

/// Broker: closes for good; the heavy barrier is the caller's next step, and another look at who is inside: while it
/// was soft, somebody may have passed for want of a heartbeat. Answers the new word.
pub fn close_hard<W: Word>(hold: &W) -> u32 {
    change(hold, HARD)
}

/// Broker: closes for good, for NVML's calls too. Who was in one when it closed shows [`IN_NVML`] until its end.
pub fn close_parked<W: Word>(hold: &W) -> u32 {
    change(hold, HARD | PARKED)
}

/// Broker: opens; whoever waits on the word has to be woken. Answers the new word.
pub fn open<W: Word>(hold: &W) -> u32 {
    change(hold, 0)
}

fn change<W: Word>(hold: &W, to: u32) -> u32 {
    let before = hold.load();
    let word = before.wrapping_add(STEP) & !(SOFT | HARD | PARKED) | to;
    hold.store(word);
    word
}

/// What ties a process to its device, a bit each, in `ClientHead::ties`. A bit once set stays: the driver may keep what
/// made the tie after the program gave it up.
pub mod ties {
    /// Managed memory.
    pub const MANAGED_MEMORY: u64 = 1;
    /// Memory that another process may open (`cuIpcGetMemHandle`).
    pub const IPC_MEMORY_EXPORTED: u64 = 1 << 1;
    /// Memory of another process (`cuIpcOpenMemHandle`).
    pub const IPC_MEMORY_OPENED: u64 = 1 << 2;
    /// An event that another process may open.
    pub const IPC_EVENT_EXPORTED: u64 = 1 << 3;
    /// An event of another process.
    pub const IPC_EVENT_OPENED: u64 = 1 << 4;
    /// A memory handle that was given out as a descriptor or for the fabric.
    pub const HANDLE_EXPORTED: u64 = 1 << 5;
    /// A memory handle that came from such.
    pub const HANDLE_IMPORTED: u64 = 1 << 6;
    /// A pool that was exported or imported.
    pub const SHARED_POOL: u64 = 1 << 7;
    /// Memory of another API.
    pub const EXTERNAL_MEMORY: u64 = 1 << 8;
    /// A semaphore of another API.
    pub const EXTERNAL_SEMAPHORE: u64 = 1 << 9;
    /// A multicast object.
    pub const MULTICAST: u64 = 1 << 10;
    /// A resource, context or stream of a graphics API.
    pub const GRAPHICS: u64 = 1 << 11;
    /// A dma-buf of device memory.
    pub const DMA_BUF: u64 = 1 << 12;
    /// More threads were in the driver at a time than can be told apart: who is inside is not known.
    pub const UNCOUNTED: u64 = 1 << 13;
}

impl ThreadSlot {
    /// Is the thread between its look at the hold and the end of its call, a launch on its short way included? A call
    /// of NVML does not count.
    pub fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Acquire) & IN_DRIVER | self.word.load(Ordering::Acquire) != 0
    }

    /// Is the thread in a call of NVML?
    pub fn is_in_nvml(&self) -> bool {
        self.inside.load(Ordering::Acquire) & IN_NVML != 0
    }

    /// Is a thread's word to be believed while the hold says `hold`: was the thread not found outside under it?
    fn is_inside_under(&self, hold: u32) -> bool {
        self.thread.load(Ordering::Acquire) != 0
            && self.is_inside()
            && !(is_closed(hold) && self.out.load(Ordering::Acquire) == hold)
    }
}

impl TimePages {
    /// Every place in which a thread may say that it is inside.
    pub fn places(&self) -> impl Iterator<Item = &ThreadSlot> {
        self.threads.iter().chain(&self.spare)
    }
}

impl ClientFile {
    /// Broker: is a thread of the client in the driver, or may one be? To be asked after the heavy barrier that follows
    /// the closing; `hold` is the closed word.
    pub fn is_anybody_inside(&self, hold: u32) -> bool {
        let head = &self.page.head;
        self.time.places().any(|place| place.is_inside_under(hold))
            || head.early.load(Ordering::Acquire) != 0
            || head.ties.load(Ordering::Acquire) & ties::UNCOUNTED != 0
    }
}
