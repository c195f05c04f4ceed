// SPDX-License-Identifier: Apache-2.0
//! What this process remembers of its gates.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use partage_protocol::gate::ThreadSlot;

use super::path::FastPath;
use super::thread_tag;
use crate::guest::sys;
use crate::guest::wiped::Wiped;
use crate::state::State;

/// Threads without a slot that are counted as waiting at the same time. They stand for all that wait.
pub const CROWD: usize = 64;
/// Calls at the same time that begin before this process is a client.
const EARLY: usize = 64;

/// What a forked child has to find out anew. All-zero memory is "nothing yet".
pub struct Gates {
    /// Distinguishes this process from the one it was forked from, whose thread had a slot too; 0 before the first
    /// launch.
    pub generation: AtomicU32,
    /// The kernel gave us no part in others' barriers.
    pub is_fenced: AtomicBool,
    /// The broker's heartbeat when a gate was last passed because that stood still, plus one; 0: never.
    pub dead_heartbeat: AtomicU64,
    /// Threads without a slot that are counted as waiting: see [`waiting`](super::waiting).
    pub crowd: [AtomicU64; CROWD],
    /// Calls that began before this process was a client: see [`early`](super::early).
    pub early: [ThreadSlot; EARLY],
    /// There were more of them at a time than places.
    pub has_uncounted: AtomicBool,
    /// What a launch looks at while nothing is amiss.
    pub fast_path: FastPath,
    /// Starts the library's thread, once: [`set_starter`].
    starter: AtomicPtr<c_void>,
}

// SAFETY: all-zero memory is a value: atomic numbers, and null.
static GATES: Wiped<Gates> = unsafe { Wiped::new() };

/// This process's; `None` when the machine has no page left for it.
pub fn get() -> Option<&'static Gates> {
    GATES.get()
}

/// Says what starts the library's thread: a thread that is about to wait at a hold may be the first to need it.
pub fn set_starter(start: fn(&'static State)) {
    if let Some(gates) = get() {
        gates.starter.store(start as *mut c_void, Ordering::Release);
    }
}

impl Gates {
    /// Starts the library's thread unless there is one.
    pub fn start_thread(&self, state: &'static State) {
        let start = self.starter.load(Ordering::Acquire);
        if !start.is_null() {
            // SAFETY: `set_starter` stores such a function and nothing else does.
            let start = unsafe { core::mem::transmute::<*mut c_void, fn(&'static State)>(start) };
            start(state);
        }
    }
}

/// The fast path, where the kernel wipes it at a fork: elsewhere a child would take its parent's.
pub fn fast_path() -> Option<&'static FastPath> {
    GATES.at_hand().map(|gates| &gates.fast_path)
}

/// This process may have lost what [`join`] got for it, and what it remembers of a clock.
pub fn join_again() {
    let Some(gates) = get() else { return };
    gates.dead_heartbeat.store(0, Ordering::Relaxed);
    if !sys::join_barriers() {
        gates.is_fenced.store(true, Ordering::Relaxed);
    }
}

/// The first call of this process that passes a gate or the hold: what is done once.
pub fn join(gates: &Gates) {
    if gates.generation.load(Ordering::Acquire) != 0 {
        return;
    }
    if !sys::join_barriers() {
        gates.is_fenced.store(true, Ordering::Relaxed);
    }
    // Differs from that of the process we were forked from, whose thread's tag we may have.
    let now = (sys::now_ns() >> 10) as u32;
    let generation = thread_tag::generation(now ^ sys::pid().rotate_left(16));
    let _ = gates
        .generation
        .compare_exchange(0, generation, Ordering::AcqRel, Ordering::Acquire);
}
