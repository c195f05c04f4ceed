// SPDX-License-Identifier: Apache-2.0
//! What a forked child still has of its parent's session: open descriptors, though the state that knew them is wiped.
//!
//! Their numbers are kept in memory that a fork copies, so that the child can close them when it first meets the driver
//! itself. The child never reads from them or writes to them.
//!
//! Of the rest a child has this:
//! - the library's state: empty, because the kernel wipes it at the fork (`guest/wiped.rs`), locks and records with it;
//! - the shared pages: not mapped (`MADV_DONTFORK`), so the child cannot change what its parent is charged;
//! - the driver's library and the functions found in it: as the parent left them;
//! - the library's thread: none, because a fork copies the calling thread alone;
//! - the environment, with the job's token: the child attaches by it at its own first `cuInit`, as another client.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::guest::descriptor::Kept;
use crate::guest::lock::Guarded;
use crate::guest::sys;

static OWNER: AtomicU32 = AtomicU32::new(0);
static KEPT: Guarded<[Kept; 3]> = Guarded::new([Kept::NONE; 3]);

/// Notes what this process keeps.
pub fn remember(kept: [Kept; 3]) {
    // A fork in the middle leaves the child's copy of the lock held; then nobody there looks at the list again.
    if let Some(mut place) = KEPT.try_hold() {
        *place = kept;
        OWNER.store(sys::pid(), Ordering::Release);
    }
}

/// Closes what a parent kept, where the numbers still mean the same. For the first attach of a process.
pub fn close_all() {
    let owner = OWNER.load(Ordering::Acquire);
    if owner == 0 || owner == sys::pid() {
        return;
    }
    if let Some(mut kept) = KEPT.try_hold() {
        for descriptor in &mut *kept {
            descriptor.close();
        }
        OWNER.store(0, Ordering::Release);
    }
}
