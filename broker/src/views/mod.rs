// SPDX-License-Identifier: Apache-2.0
//! `ps`, `status`, `queue`, `get` and `why`: made beside the event loop.
//!
//! ```text
//!   event loop ── who asks, and for what (ViewRequest) ──► Queue, by user
//!        │                                                   │ the worker is idle: a batch
//!        │ copies books and words (Published) ───────────────┤
//!        │                                                   ▼
//!        │                                                 worker ── /proc, the document, its packets
//!        └◄──────── channel of few, eventfd as bell ─────────┘
//! ```
//! The copy of a batch is made after all of it was asked for, so a view has every change that was answered before it.
//! While the worker has a batch no other copy is made: however many ask, there is never more than one, and the loop
//! makes one for each batch. The loop waits for the worker nowhere.

mod answers;
mod desk;
mod frozen;
mod published;
mod queue;
#[cfg(test)]
mod tests;
mod worker;

pub use answers::Found;
pub use desk::Views;
pub use frozen::Frozen;
pub use published::{Published, ViewRequest, What};
pub use worker::Answer;
