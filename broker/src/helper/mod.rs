// SPDX-License-Identifier: Apache-2.0
//! Helper processes: calls that can hang for ever, or crash their process, run in a process that the broker can kill.
//!
//! ```text
//!   owner ── HelperCommand ──► Helper (child + Channel) ── ask, answer ──► owner
//!     ▲                            │ deadline, error, death
//!     └──── BackOff::fail ◄── Killed::kill, Killed::reap
//! ```
//! The broker's loop never waits for a helper: reads do not block, and a deadline is a time that the owner compares.
//! The owner (today `host/nvml/`) says when a helper starts, what it is asked and what its death means.

pub mod channel;
pub mod process;

#[cfg(test)]
mod tests;
