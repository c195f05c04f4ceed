// SPDX-License-Identifier: Apache-2.0
//! The path of a launch while the gate is open: a few nanoseconds.
//!
//! What is loaded: the thread's words (one line of its own memory), the [`FastPath`](crate::hold::path::FastPath) (one
//! line), the broker's gate and flags (one line). What is stored: the thread's slot and its frame, before the driver's
//! call and after. There is one answer to everything that is amiss, the hook's longer body, so the short one has
//! nothing to carry over the call but where its two stores went. Everything else is
//! [`slow_path`](super::slow_path)'s.

use core::sync::atomic::Ordering;

use partage_abi::types::CuResult;
#[cfg(target_arch = "aarch64")]
use partage_protocol::gate::ThreadSlot;
use partage_protocol::gate::{self, GATES_COPIES, MEASURED};

use super::passage::{INSIDE, NESTED, Passage};
use super::slow_path;
use crate::guard;
use crate::hold::path::fast_path;
use crate::hold::{self, Held, thread_tag};
use crate::real::Library;
use crate::stream::work::{CheckFirst, Work};

/// Is a symbol one whose default stream is the thread's own?
pub const fn is_per_thread(symbol: &str) -> bool {
    matches!(
        symbol.as_bytes(),
        [.., b'_', b'p', b't', b's', b'z'] | [.., b'_', b'p', b't', b'd', b's']
    )
}

/// The first half of a short hook: passes the gate if nothing is amiss. After the driver's call the second half clears
/// the slot that the thread's words name, and lets them say what they say outside of hooks.
#[inline(always)]
pub fn pass() -> bool {
    let mine = guard::mine();
    let path = fast_path();
    // An address instead of a word, if this is inside another hook.
    if let Some(offset) = thread_tag::below_end(mine.now_and(path.key.load(Ordering::Acquire))) {
        // Before the slot says anything: a signal's handler that launches, too, must not clear it.
        mine.set_inside();
        let slot = path.slot(offset);
        mine.set_slot(core::ptr::from_ref(slot) as usize);
        if path.is_open_for(slot) {
            return true;
        }
    }
    // Elsewhere the longer body has an entry of its own that does.
    #[cfg(target_arch = "x86_64")]
    guard::mine().set_outside_if_here();
    false
}

/// The second half, where it is not written by hand. Everything is found again: what lives over the call costs a
/// register that has to be saved and restored.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn passed() {
    let mine = guard::mine();
    let slot = mine.slot() as *const ThreadSlot;
    // SAFETY: left there by `pass`; the slots stay mapped as long as the process.
    gate::leave(unsafe { &(*slot).word });
    mine.set_outside();
}

/// The longer body of a hook that gives the device work, in two halves that many hooks share. `here` is where the hook
/// stands. A call from inside another hook goes straight through.
#[inline(never)]
pub fn begin(real: &Library, here: usize, work: &Work, look: CheckFirst) -> Passage {
    if !guard::enter_at(here) {
        let by_itself = hold::begin_nested() == Held::NESTED_BY_ITSELF;
        return Passage {
            rest: if by_itself { NESTED | INSIDE } else { NESTED },
            ..Passage::FREE
        };
    }
    // Whoever passes the gate shortly looks at the hold's flag, too, and is inside by its slot.
    if let Some(passage) = shortly(look) {
        return passage;
    }
    hold::pass();
    let mut passage = enter(real, work, look);
    passage.rest |= INSIDE;
    passage
}

/// The other half.
#[inline(never)]
pub fn end(real: &Library, passage: Passage) {
    if passage.rest & NESTED != 0 {
        if passage.rest & INSIDE != 0 {
            hold::leave_nested();
        }
        return;
    }
    leave(real, passage);
    if passage.rest & INSIDE != 0 {
        hold::leave();
    }
    guard::leave();
}

/// Calls the driver when the gate lets the work pass, in a hook that is known to be the outermost.
pub fn around(real: &Library, (work, look): (Work, CheckFirst), call: impl FnOnce() -> CuResult) -> CuResult {
    let passage = enter(real, &work, look);
    let result = call();
    leave(real, passage);
    result
}

#[inline(always)]
fn enter(real: &Library, work: &Work, look: CheckFirst) -> Passage {
    let at_once = match look {
        CheckFirst::Gate => shortly(look),
        CheckFirst::Flags => bypass(),
        CheckFirst::Nothing => None,
    };
    match at_once {
        Some(passage) => passage,
        None => slow_path::enter(real, *work),
    }
}

/// Passes the gate by the thread's slot if nothing is amiss.
#[inline(always)]
fn shortly(look: CheckFirst) -> Option<Passage> {
    if !matches!(look, CheckFirst::Gate) {
        return None;
    }
    let path = fast_path();
    thread_tag::below_end(guard::time_word().wrapping_add(path.key.load(Ordering::Acquire)))
        .map(|offset| path.slot(offset))
        .filter(|slot| path.is_open_for(slot))
        .map(|slot| Passage::through(&slot.word))
}

#[inline(always)]
fn leave(real: &Library, passage: Passage) {
    if passage.rest & !INSIDE != 0 {
        slow_path::leave(real, passage.rest);
    }
    // SAFETY: null, or a slot of the client's file, which stays mapped as long as the process.
    if let Some(word) = unsafe { passage.word.as_ref() } {
        gate::leave(word);
    }
}

/// Work that passes a gate only while the broker asks for that.
#[inline(always)]
fn bypass() -> Option<Passage> {
    let path = fast_path();
    if path.key.load(Ordering::Acquire) == 0 {
        return None;
    }
    // SAFETY: there is a fast path, so this is a line of the broker's page, which stays mapped.
    let line = unsafe { &*path.line.load(Ordering::Relaxed) };
    (line.gate_flags.load(Ordering::Relaxed) & (GATES_COPIES | MEASURED) == 0).then_some(Passage::FREE)
}
