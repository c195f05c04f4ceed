// SPDX-License-Identifier: Apache-2.0
//! Descriptors that other processes send: taken, checked and closed off the event loop.
//!
//! Closing a file can take as long as its sender likes: a TCP connection with `SO_LINGER`, a file of a FUSE server that
//! does not answer `flush`. Unread descriptors in a connection are closed with it. So the event loop neither takes
//! descriptors nor closes connections:
//!
//! ```text
//!   event loop ── order + connection (SCM_RIGHTS) ──► porter ── starts ──► workers ── close by ending
//!        ▲                                                                   │ pages of a client that came back
//!        └──────────────────── channel, one packet as bell ◄─────────────────┘
//! ```
//! Porter and workers have descriptor tables of their own (`unshare(CLONE_FILES)`), so that one that hangs holds
//! neither the broker's lock nor its sockets. The porter only ever drops descriptors that somebody else still holds. A
//! worker never closes what it was given: it ends, and a task that ends does not linger. One that hangs all the same
//! counts against its user: each has two workers (`CHECKERS_PER_USER`).
//!
//! A container may refuse `unshare` (`Table::Shared`). Then all share the broker's table, and a worker closes its
//! descriptors when its work is done. A slow close then blocks that worker only, with what came in the same order.
//!
//! Nothing here may log: the log's descriptor is another file in these tables.

mod handle;
mod order;
mod porter;
#[cfg(test)]
mod tests;
mod worker;

pub use handle::{Checked, Foreign};
