// SPDX-License-Identifier: Apache-2.0
//! Events that stay: over broker's restarts, for [`files::KEPT_FOR`] or as long as they have room.
//!
//! ```text
//!   event loop ── each event ──────────────► bounded channel ──► thread ──► a file for each user, a line an event
//!        │     ── who asks, and for what ──►                       │
//!        │                                                         ▼ reads, filters, merges by number
//!        └◄──────────── channel of few, eventfd as bell ──────── a page
//! ```
//! The loop waits for no disk: where the thread is behind by more than the channel holds, an event is counted as not
//! kept. What a full disk does not take stays in memory, as much of it as [`EventLog`](crate::watch::events::EventLog)
//! holds. A page has a bound in events and in bytes read, so that a long history keeps nobody else from being written.

mod files;
mod page;
#[cfg(test)]
mod tests;
mod thread;

pub use files::{Files, HISTORY_BYTES, HISTORY_BYTES_PRIVATE};
pub use page::Ask;
pub use thread::History;
