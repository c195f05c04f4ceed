// SPDX-License-Identifier: Apache-2.0
//! A thread's tag: which slot of the shared pages it has, and what it was doing when a signal's handler took it away.
//!
//! ```text
//!   63 ─────── 32   31 ──────────── 22   21 ──── 14   13 ───── 6   5 ─ 0
//!   generation      launches without     waits for    its slot     0
//!                   a slot               a device     plus one
//! ```
//! The slot stands there as its offset in bytes, so that the fast path adds it to an address. The *generation* is its
//! process's, because a forked child inherits the tag of the thread that forked; its two highest bits are set, its
//! lowest is not.

use core::mem::size_of;

use partage_protocol::gate::{THREADS, ThreadSlot};
use partage_protocol::message::MAX_DEVICES;

use crate::guard;

const SLOT: u32 = 6;
const WAITING: u32 = 14;
const COUNT: u32 = 22;
/// In place of a slot: the thread has none, and tries again after [`TRIES`] launches.
const CROWDED: u32 = 0xff;
const TRIES: u32 = 1 << (32 - COUNT);

/// This thread's tag.
#[derive(Clone, Copy)]
pub struct ThreadTag(u64);

/// Whether a thread has a slot.
pub enum Own {
    /// The slot of this index.
    Slot(usize),
    /// It has none, and need not look for one yet.
    Crowded,
    /// It has to look for one.
    Unknown,
}

/// What has to be added to the word of a thread of a process to learn how far its slot is from the end of all.
pub const fn key(generation: u32) -> u64 {
    ((generation as u64) << 32 | (THREADS as u64 + 1) << SLOT).wrapping_neg()
}

/// Distinguishes a process by these bits.
pub const fn generation(bits: u32) -> u32 {
    (bits | 0b11 << 30) & !1
}

/// The place of a thread's slot in bytes below the end of all slots, negative, from its word with the key added. `None`
/// without a slot, with one of the process that this one was forked from, in a wait, with an address instead of a word,
/// and with no key (0).
#[inline(always)]
pub fn below_end(word_and_key: u64) -> Option<isize> {
    const LOWEST: u64 = (-((THREADS << SLOT) as i64)) as u64;
    (word_and_key >= LOWEST).then_some(word_and_key as isize)
}

impl ThreadTag {
    /// As this process of that generation may read it.
    pub fn read(generation: u32) -> Self {
        let word = guard::time_word();
        let is_mine = (word >> 32) as u32 == generation;
        Self(if is_mine { word } else { u64::from(generation) << 32 })
    }

    /// Writes it.
    pub fn keep(self) {
        guard::set_time_word(self.0);
    }

    /// The thread's slot; counts a launch that does without.
    pub fn own(&mut self) -> Own {
        match self.field(SLOT, 0xff) {
            0 => Own::Unknown,
            CROWDED => {
                let tried = (self.field(COUNT, TRIES - 1) + 1) % TRIES;
                self.set_field(COUNT, TRIES - 1, tried);
                if tried == 0 { Own::Unknown } else { Own::Crowded }
            }
            own => Own::Slot(own as usize - 1),
        }
    }

    /// The index of the thread's slot; beyond all of them without one.
    pub fn slot(self) -> usize {
        (self.field(SLOT, 0xff) as usize).wrapping_sub(1)
    }

    /// The thread has this slot, or none.
    pub fn set_own(&mut self, slot: Option<usize>) {
        self.set_field(SLOT, 0xff, slot.map_or(CROWDED, |index| index as u32 + 1));
        self.set_field(COUNT, TRIES - 1, 0);
    }

    /// The slot of the device that the thread waits for.
    pub fn waits_for(self) -> Option<usize> {
        (self.field(WAITING, 0xff) as usize).checked_sub(1)
    }

    /// The thread waits for a device, or no more.
    pub fn set_waits_for(&mut self, device: Option<usize>) {
        self.set_field(WAITING, 0xff, device.map_or(0, |device| device as u32 + 1));
    }

    fn field(self, at: u32, mask: u32) -> u32 {
        self.0 as u32 >> at & mask
    }

    fn set_field(&mut self, at: u32, mask: u32, value: u32) {
        self.0 = self.0 & !u64::from(mask << at) | u64::from((value & mask) << at);
    }
}

const _: () = assert!(size_of::<ThreadSlot>() == 1 << SLOT && THREADS < CROWDED as usize && MAX_DEVICES < 0xff);
