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
//! its only device, with no system call, lock or full fence between the program and the driver
//! ([`FastPath`](crate::hold::path::FastPath)). A process that sees several devices has none and asks the driver each
//! time which one a launch is for.
//!
//! Never waited for here: work that is captured into a graph (it runs with the graph's launch), host functions, what
//! synchronises, asks or frees, and everything while no broker ever was there or sharing is off. The calling thread
//! waits, so that errors, order and default streams are what they would be. It holds no lock of ours meanwhile: the
//! gate is the first thing a hook does.

mod depth;
mod fast_path;
mod passage;
mod slow_path;

#[cfg(target_arch = "aarch64")]
pub use fast_path::passed;
pub use fast_path::{around, begin, end, is_per_thread, pass};

/// What passes the gate.
pub use crate::stream::work::{Across, CheckFirst, Configured, Graph, Inside, Kernel, Shaped, Together, Unified, read};
