// SPDX-License-Identifier: Apache-2.0
//! What this process remembers of its gates.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use super::path::FastPath;
use crate::guest::wiped::Wiped;

/// Threads without a slot that are counted as waiting at the same time. They stand for all that wait.
pub const CROWD: usize = 64;

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
    /// What a launch looks at while nothing is amiss.
    pub fast_path: FastPath,
}

// SAFETY: all-zero memory is a value: atomic numbers, and null.
static GATES: Wiped<Gates> = unsafe { Wiped::new() };

/// This process's; `None` when the machine has no page left for it.
pub fn get() -> Option<&'static Gates> {
    GATES.get()
}

/// The fast path, where the kernel wipes it at a fork: elsewhere a child would take its parent's.
pub fn fast_path() -> Option<&'static FastPath> {
    GATES.at_hand().map(|gates| &gates.fast_path)
}
