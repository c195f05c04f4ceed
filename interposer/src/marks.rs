// SPDX-License-Identifier: Apache-2.0
//! Marks: sequence numbers that the device itself writes into the shared page, so that the broker sees when work runs
//! and when it has ended, whatever has become of this process. Only while the broker asks for them.
//!
//! ```text
//!   stream ──► begun := n ─► unit ─► unit ─► … ─► ended := n ──► begun := n + 1 ─► unit …
//!              └───────────── batch n ──────────────┘
//! ```
//! A *batch* is what runs between two marks of a *lane*, which a stream has from its first marked launch until another
//! needs it. A batch ends after so many launches or so much time ([`lane`]), at once when nothing older is
//! in flight in its lane, and before whatever the program waits, asks or synchronises by. A mark is put only
//!
//! - into a stream that is not captured (it would become a node and be replayed),
//! - next to a launch in the same stream; for the legacy default stream immediately before and after it. There a mark
//!   is ordered with the other streams exactly as that launch is, and a late one would order work that the program left
//!   unordered;
//! - never before a kernel that may begin before the one ahead of it ends (programmatic dependent launch), and in a
//!   lane that saw one no sooner than before another kind of work: what stands between the two would undo the overlap.
//!
//! Whoever puts marks into a lane holds its flag, so that numbers are in the stream in their order; who does not get it
//! leaves the mark to the next. What the driver refuses to write counts as written: nobody could say better.

mod book;
mod lane;
mod launch;
mod name;
mod outstanding;
mod settle;
mod timers;

pub use launch::{Marked, after, before, unlaned};
pub use name::Name;
pub use outstanding::{Outstanding, knowledge, learn_bound, outstanding, read_lengths};
pub use settle::{Settled, context_ended, graph_changed, let_go, orphan, settle, settle_all, settle_stream};
