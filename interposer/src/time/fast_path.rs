// SPDX-License-Identifier: Apache-2.0
//! The path of a launch while the gate is open: a few nanoseconds.
//!
//! What is loaded: the thread's words (one line of its own memory), the [`FastPath`] (one line), the broker's gate and
//! flags (one line). What is stored: the thread's slot and its frame, before the driver's call and after. There is one
//! answer to everything that is amiss, the hook's longer body, so that the short one has nothing to carry over the call
//! but where its two stores went. Everything else is [`slow_path`](super::slow_path)'s.

use core::arch::asm;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use partage_abi::types::CuResult;
use partage_protocol::gate::{self, GATES_COPIES, MEASURED, ThreadSlot};
use partage_protocol::page::GrantLine;

use super::slow_path;
use super::thread_tag;
use super::work::Work;
use crate::guard;
use crate::real::Library;

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

/// What a launch needs to know of its process while nothing is amiss. All-zero memory: there is no such path (yet).
#[repr(C, align(64))]
pub struct FastPath {
    /// [`thread_tag::key`] for this process; 0 while there is no fast path. Written last: once it has been seen, the
    /// others may be used, even when the path is forgotten meanwhile, because what they lead to stays mapped.
    key: AtomicU64,
    /// The end of the slots of this process's threads.
    slots_end: AtomicPtr<ThreadSlot>,
    /// The broker's line of the only device that the program sees.
    line: AtomicPtr<GrantLine>,
    /// What a thread with a slot writes there: the name of that device.
    name: AtomicU32,
}

impl FastPath {
    /// Is there one?
    pub fn is_known(&self) -> bool {
        self.key.load(Ordering::Relaxed) != 0
    }

    /// From now on launches may take it. Called again with the same only.
    pub fn set(&self, generation: u32, slots: &[ThreadSlot; gate::THREADS], line: &GrantLine, device: usize) {
        self.slots_end
            .store(slots.as_ptr_range().end.cast_mut(), Ordering::Relaxed);
        self.line.store(core::ptr::from_ref(line).cast_mut(), Ordering::Relaxed);
        self.name.store(gate::name(device as u32), Ordering::Relaxed);
        self.key.store(thread_tag::key(generation), Ordering::Release);
    }

    /// Launches take the slow path again.
    pub fn forget(&self) {
        self.key.store(0, Ordering::Release);
    }

    /// The slot that is so far from the end of all, as [`thread_tag::below_end`] said for this path.
    #[inline(always)]
    fn slot(&self, offset: isize) -> &'static ThreadSlot {
        // SAFETY: an offset exists only where there is a fast path and the thread has a slot: so far below the end of
        // the slots of the client's file, which stays mapped.
        unsafe { &*in_one_register(self.slots_end.load(Ordering::Relaxed).byte_offset(offset)) }
    }

    /// Passes the gate with that slot if nothing is amiss.
    #[inline(always)]
    fn is_open_for(&self, slot: &ThreadSlot) -> bool {
        // SAFETY: whoever has a slot from `slot` has seen a fast path, so this is a line of the broker's page, which
        // stays mapped.
        let line = unsafe { &*self.line.load(Ordering::Relaxed) };
        let name = self.name.load(Ordering::Relaxed);
        let has_passed = gate::enter_shortly(&slot.word, &line.gate, &line.gate_flags, name);
        if has_passed {
            let launches = slot.launches.load(Ordering::Relaxed);
            slot.launches.store(launches.wrapping_add(1), Ordering::Relaxed);
        }
        has_passed
    }

    /// Makes it the one that launches look at. It lies in memory that the kernel wipes when the process forks.
    pub fn publish(&'static self) {
        PATH.store(core::ptr::from_ref(self).cast_mut(), Ordering::Release);
    }
}

static NO_PATH: FastPath = FastPath {
    key: AtomicU64::new(0),
    slots_end: AtomicPtr::new(core::ptr::null_mut()),
    line: AtomicPtr::new(core::ptr::null_mut()),
    name: AtomicU32::new(0),
};
/// The fast path of this process; never null, so that nobody has to ask.
static PATH: AtomicPtr<FastPath> = AtomicPtr::new((&raw const NO_PATH).cast_mut());

#[inline(always)]
fn fast_path() -> &'static FastPath {
    // SAFETY: `NO_PATH`, or what `publish` stored, which lives as long as the process.
    unsafe { &*PATH.load(Ordering::Acquire) }
}

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
    guard::mine().set_outside_if_here();
    false
}

/// The second half, where it is not written by hand. Everything is found again: what lives over the call costs a
/// register that has to be saved and restored.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn passed() {
    let mine = guard::mine();
    let slot = mine.slot() as *const ThreadSlot;
    // SAFETY: left there by `pass`; the slots stay mapped as long as the process.
    gate::leave(unsafe { &(*slot).word });
    mine.set_outside();
}

/// Where to look before all else.
#[derive(Clone, Copy)]
pub enum CheckFirst {
    /// The work passes the gate in every regime.
    Gate,
    /// It does only while the broker asks for that.
    Flags,
    /// That was done, and something was amiss.
    Nothing,
}

/// The longer body of a hook that gives the device work, in two halves that many hooks share. `here` is where the hook
/// stands. A call from inside another hook goes straight through.
#[inline(never)]
pub fn begin(real: &Library, here: usize, work: &Work, look: CheckFirst) -> Passage {
    if !guard::enter_at(here) {
        return Passage::NESTED;
    }
    enter(real, work, look)
}

/// The other half.
#[inline(never)]
pub fn end(real: &Library, passage: Passage) {
    if passage.rest != Passage::NESTED.rest {
        leave(real, passage);
        guard::leave();
    }
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
        CheckFirst::Gate => {
            let path = fast_path();
            thread_tag::below_end(guard::time_word().wrapping_add(path.key.load(Ordering::Acquire)))
                .map(|offset| path.slot(offset))
                .filter(|slot| path.is_open_for(slot))
                .map(|slot| Passage::through(&slot.word))
        }
        CheckFirst::Flags => bypass(),
        CheckFirst::Nothing => None,
    };
    match at_once {
        Some(passage) => passage,
        None => slow_path::enter(real, *work),
    }
}

#[inline(always)]
fn leave(real: &Library, passage: Passage) {
    if passage.rest != 0 {
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

/// Has the compiler keep one address, and not the two parts of it in a register each.
#[inline(always)]
fn in_one_register<T>(mut address: *mut T) -> *mut T {
    // SAFETY: does nothing.
    unsafe { asm!("/* {} */", inout(reg) address, options(nostack, pure, readonly, preserves_flags)) };
    address
}
