// SPDX-License-Identifier: Apache-2.0
//! Memory pools: what a pool reserves of its device is charged, whoever holds it at the moment.
//!
//! ```text
//!   begin ──► Granted ── driver called, its pool read ──► settled: U says what the pool reserves
//!     │          └─ the pool grew beyond what was reserved and the limit ──► undone, OUT_OF_MEMORY
//!     ├──► Denied, after this process's pools have given back what nobody uses
//!     └──► NotCharged: nobody to charge
//! ```
//! The arithmetic is [`partage_protocol::pool`]'s. Pools shrink when programs synchronise, trim and destroy, and
//! when the driver needs room: [`refresh`] reads them again. A free in stream order of memory that is not a pool's is
//! refunded at the next synchronisation that may have waited for it; where that is too early for another stream's, the
//! broker's measurement shows the rest as overhead until then.
//!
//! A handle is never given to the driver after the program destroyed it: whoever reads a pool is counted in its entry,
//! and a destruction waits for them.

mod call;
mod entries;
pub mod exec;
mod free;
mod known;
mod launch;
mod leaving;
mod life;
mod look;
mod settle;
mod source;
pub mod table;

use core::sync::atomic::Ordering;

pub use call::{Call, End, Reuse, begin};
pub use free::{Freeing, Waited, synchronised};
pub use launch::{forget_exec, launch, needs_of_exec, remember_exec, upload};
pub use life::{Kind, begin_destroy, context_ended, created, set_threshold};
pub use look::{all_changed, changed, make_room, shrink_after_undo};
pub use table::Source;

use crate::state;

/// Does this process charge any pool?
#[inline]
pub fn are_any() -> bool {
    state::get().is_some_and(|state| table::pools(state).count.load(Ordering::Relaxed) != 0)
}
