// SPDX-License-Identifier: Apache-2.0
//! What a call that passed the gate has to undo after the driver.

use core::sync::atomic::AtomicU32;

/// The part of a passage's rest that says in which crowds it counts.
pub const CROWDS: u32 = 0xffff;

/// The call is inside ([`hold`](crate::hold)), and says so otherwise than by `word`.
pub const INSIDE: u32 = 1 << 29;
/// The call comes from inside another hook.
pub const NESTED: u32 = 1 << 31;

/// Leave to call the driver, and what has to be undone after.
#[derive(Clone, Copy)]
pub struct Passage {
    /// The thread's slot word, to be cleared; null when the call does not stand in the slots.
    pub word: *const AtomicU32,
    /// What else is to be done after the call: the devices in whose crowd it counts, a bit each, and above
    /// [`CROWDS`] how it was marked, [`INSIDE`] and [`NESTED`] ([`marks`](crate::marks)).
    pub rest: u32,
}

impl Passage {
    /// Nothing to undo.
    pub const FREE: Self = Self {
        word: core::ptr::null(),
        rest: 0,
    };
    /// With the slot of this thread, which says so.
    pub fn through(word: &AtomicU32) -> Self {
        Self { word, rest: 0 }
    }
}
