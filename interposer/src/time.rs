// SPDX-License-Identifier: Apache-2.0
//! The client's side of time: every launch passes the gate that the broker opens and closes.
//!
//! ```text
//!   launch ── fast path? ── no ────────────────────────────────┐
//!               │ yes                                          ▼
//!             gate open? ── no ──► [`slow_path`]: attached? shared? captured? ── wait ────────── open, or nobody there
//!               │ yes                                          │                                     │
//!             driver ◄─────────────────────────────────────────┴─────────────────────────────────────┘
//!               │
//!             slot := 0
//! ```
//! The *fast path* is what a launch needs while nothing is amiss: this process's thread slots and the broker's line of
//! its only device, with no system call, lock or full fence between the program and the driver ([`FastPath`]). A
//! process that sees several devices has none and asks the driver each time which one a launch is for.
//!
//! Never waited for here: work that is captured into a graph (it runs with the graph's launch), host functions, what
//! synchronises, asks or frees, and everything while no broker ever was there or sharing is off. The calling thread
//! waits, so that errors, order and default streams are what they would be. It holds no lock of ours meanwhile: the
//! gate is the first thing a hook does.

mod depth;
mod fast_path;
mod lane;
mod marks;
mod slow_path;
mod thread_tag;
mod timers;
mod work;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use partage_abi::types::{CuGraphExec, CuStream};
use partage_gpu_time::length::Lengths;
use partage_protocol::message::MAX_DEVICES;

use crate::guard;
use crate::guest::errno;
use crate::real::Library;
use crate::state;
use crate::stream::StreamName;

#[cfg(not(target_arch = "x86_64"))]
pub use fast_path::passed;
pub use fast_path::{CheckFirst, FastPath, around, begin, end, is_per_thread, pass};
pub use marks::{Settled, context_ended, orphan};
pub use slow_path::count_out_the_dead;
pub use work::{Across, Configured, Graph, Inside, Kernel, Shaped, Together, Unified, read};

/// What this process remembers of its gates and marks. All-zero memory is "nothing yet".
pub struct Time {
    /// Distinguishes this process from the one it was forked from, whose thread had a slot too; 0 before the first
    /// launch.
    generation: AtomicU32,
    /// The kernel gave us no part in others' barriers.
    is_fenced: AtomicBool,
    /// The broker's heartbeat when a gate was last passed because that stood still, plus one; 0: never.
    dead_heartbeat: AtomicU64,
    /// A launch was marked once.
    is_marking: AtomicBool,
    marks: [marks::Book; MAX_DEVICES],
    /// How long units take.
    lengths: Lengths,
}

/// An executable graph does something else from now on, or is gone.
pub fn graph_changed(exec: CuGraphExec) {
    if let Some(state) = state::at_hand() {
        state.time.lengths.forget(work::graph_name(exec));
    }
}

/// Ends the batch of marks in a stream that the program is about to wait for, ask for, or have others wait for.
#[inline]
pub fn settle(real: &Library, handle: CuStream, is_per_thread: bool) {
    if let Some(state) = state::at_hand()
        && state.time.is_marking.load(Ordering::Relaxed)
        && !guard::is_inside()
    {
        errno::preserving(|| marks::settle(state, real, StreamName { handle, is_per_thread }));
    }
}
