// SPDX-License-Identifier: Apache-2.0
//! The way of a launch while the gate is open: a few nanoseconds.
//!
//! What is loaded: the state, the way, the thread's word, the broker's flags and gate. What is stored: the thread's slot,
//! before the look at the gate and after the driver's call. Everything else is [`stand`](super::stand)'s.

use core::sync::atomic::{AtomicU32, Ordering};

use partage_abi::types::CuResult;
use partage_protocol::gate::{self, Entered, GATES_COPIES, MEASURED};

use super::stand;
use super::work::{Gated, Work};
use crate::guard;
use crate::real::Library;
use crate::state;

/// The part of a passage's rest that says in which crowds it counts.
pub const CROWDS: u32 = 0xffff;

/// Leave to call the driver, and what has to be undone after.
#[derive(Clone, Copy)]
pub struct Passage {
    /// The thread's slot word, to be cleared; null when the call does not stand in the slots.
    pub word: *const AtomicU32,
    /// What else is to be done after the call: the devices in whose crowd it counts, a bit each, and above
    /// [`CROWDS`] how it was marked ([`marks`](super::marks)).
    pub rest: u32,
}

impl Passage {
    /// Nothing to undo.
    pub const FREE: Self = Self {
        word: core::ptr::null(),
        rest: 0,
    };
    /// No passage on the short way.
    const LONG_WAY: Self = Self {
        word: core::ptr::null(),
        rest: u32::MAX,
    };
    /// A call from inside another hook.
    const NESTED: Self = Self {
        word: core::ptr::null(),
        rest: 1 << 31,
    };

    /// With the slot of this thread, which says so.
    pub fn through(word: &AtomicU32) -> Self {
        Self { word, rest: 0 }
    }
}

/// Is a symbol one whose default stream is the thread's own?
pub const fn is_per_thread(symbol: &str) -> bool {
    matches!(
        symbol.as_bytes(),
        [.., b'_', b'p', b't', b's', b'z'] | [.., b'_', b'p', b't', b'd', b's']
    )
}

/// Calls the driver when the gate lets the work pass, with a way of its own in each hook that is called often. A call
/// from inside another hook goes straight through.
#[inline(always)]
pub fn around<G: Gated>(
    real: &Library,
    is_outermost: bool,
    is_per_thread: bool,
    work: impl FnOnce() -> G,
    call: impl FnOnce() -> CuResult,
) -> CuResult {
    let mut passage = Passage::FREE;
    if is_outermost {
        passage = short_way();
        if passage.rest == Passage::LONG_WAY.rest {
            passage = stand::enter(real, work().work(is_per_thread));
        }
    }
    let result = call();
    if passage.rest != 0 {
        stand::leave(real, passage.rest);
    }
    // SAFETY: null, or a slot of the client's file, which stays mapped as long as the process.
    if let Some(word) = unsafe { passage.word.as_ref() } {
        gate::leave(word);
    }
    result
}

/// [`around`] for what is called less often, in two halves that many hooks share. `here` is where the hook stands.
#[inline(never)]
pub fn begin(real: &Library, here: usize, work: &Work, is_always: bool) -> Passage {
    if !guard::enter_at(here) {
        return Passage::NESTED;
    }
    let passage = if is_always { short_way() } else { bypass() };
    if passage.rest == Passage::LONG_WAY.rest {
        return stand::enter(real, *work);
    }
    passage
}

/// The other half.
#[inline(never)]
pub fn end(real: &Library, passage: Passage) {
    if passage.rest == Passage::NESTED.rest {
        return;
    }
    if passage.rest != 0 {
        stand::leave(real, passage.rest);
    }
    // SAFETY: null, or a slot of the client's file, which stays mapped as long as the process.
    if let Some(word) = unsafe { passage.word.as_ref() } {
        gate::leave(word);
    }
    guard::leave();
}

/// Work that passes a gate only while the broker asks for that.
#[inline(always)]
fn bypass() -> Passage {
    let passage = || {
        // SAFETY: null or a line of the broker's page, which stays mapped.
        let line = unsafe { state::at_hand()?.time.line.load(Ordering::Acquire).as_ref() }?;
        (line.gate_flags.load(Ordering::Relaxed) & (GATES_COPIES | MEASURED) == 0).then_some(Passage::FREE)
    };
    passage().unwrap_or(Passage::LONG_WAY)
}

/// Passes the gate if nothing is amiss.
#[inline(always)]
fn short_way() -> Passage {
    let passage = || {
        let time = &state::at_hand()?.time;
        // SAFETY: null or a line of the broker's page, which stays mapped.
        let line = unsafe { time.line.load(Ordering::Acquire).as_ref() }?;
        if line.gate_flags.load(Ordering::Relaxed) != 0 {
            return None;
        }
        // SAFETY: set before the line, to the slots of the client's file, which stays mapped.
        let threads = unsafe { &*time.threads.load(Ordering::Relaxed) };
        // Not so small in a thread that has no slot, lost it in a wait, or has it from the process this was forked from.
        let index = guard::time_word().wrapping_sub(time.first_word.load(Ordering::Relaxed));
        let slot = threads.get(usize::try_from(index).ok()?)?;
        let device = time.slot_word.load(Ordering::Relaxed).wrapping_sub(1);
        match gate::enter(&slot.word, &line.gate, device, false) {
            Entered::Passed => {
                let launches = slot.launches.load(Ordering::Relaxed);
                slot.launches.store(launches.wrapping_add(1), Ordering::Relaxed);
                Some(Passage::through(&slot.word))
            }
            Entered::Closed(_) => None,
        }
    };
    passage().unwrap_or(Passage::LONG_WAY)
}
