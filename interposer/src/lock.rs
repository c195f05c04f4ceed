// SPDX-License-Identifier: Apache-2.0
//! A small lock that lives in memory which a fork wipes.
//!
//! Zero is *free*, so a child whose parent was forked in the middle of a critical section starts with free locks and
//! with the empty data they guard. Never held over a call of the driver.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

const FREE: u32 = 0;
const HELD: u32 = 1;
const HELD_AND_WAITED_FOR: u32 = 2;

/// The lock; all-zero memory is a free one.
#[repr(transparent)]
pub struct Lock(AtomicU32);

impl Lock {
    /// A free lock.
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Waits until the lock is ours.
    pub fn hold(&self) -> Held<'_> {
        if self
            .0
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            self.wait();
        }
        Held(self)
    }

    /// Takes the lock if it is free.
    pub fn try_hold(&self) -> Option<Held<'_>> {
        self.0
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Held(self))
    }

    #[cold]
    fn wait(&self) {
        while self.0.swap(HELD_AND_WAITED_FOR, Ordering::Acquire) != FREE {
            sys::wait_on(&self.0, HELD_AND_WAITED_FOR);
        }
    }
}

/// Proof that the lock is held; dropping it releases.
pub struct Held<'a>(&'a Lock);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.0.0.swap(FREE, Ordering::Release) == HELD_AND_WAITED_FOR {
            sys::wake_one(&self.0.0);
        }
    }
}
