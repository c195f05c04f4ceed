// SPDX-License-Identifier: Apache-2.0
//! What a forked child still has of its parent's session: open descriptors, though the state that knew them is wiped.
//!
//! Their numbers are kept in memory that a fork copies, so that the child can close them when it first meets the driver
//! itself. It never reads from or writes to them.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::guest::descriptor::Kept;
use crate::guest::lock::Lock;
use crate::guest::sys;

static OWNER: AtomicU32 = AtomicU32::new(0);
static BUSY: Lock = Lock::new();
static mut KEPT: [Kept; 3] = [Kept::NONE; 3];

/// Notes what this process keeps.
pub fn remember(kept: [Kept; 3]) {
    // A fork in the middle leaves the child's copy of the lock held; then nobody there looks at the list again.
    if let Some(_held) = BUSY.try_hold() {
        // SAFETY: the lock is held.
        unsafe { (&raw mut KEPT).write(kept) };
        OWNER.store(sys::pid(), Ordering::Release);
    }
}

/// Closes what a parent kept, where the numbers still mean the same. For the first attach of a process.
pub fn close_all() {
    let owner = OWNER.load(Ordering::Acquire);
    if owner == 0 || owner == sys::pid() {
        return;
    }
    if let Some(_held) = BUSY.try_hold() {
        // SAFETY: the lock is held.
        let mut kept = unsafe { (&raw const KEPT).read() };
        for descriptor in &mut kept {
            descriptor.close();
        }
        // SAFETY: as above.
        unsafe { (&raw mut KEPT).write(kept) };
        OWNER.store(0, Ordering::Release);
    }
}
