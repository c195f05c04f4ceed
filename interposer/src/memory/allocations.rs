// SPDX-License-Identifier: Apache-2.0
//! Which device memory this process holds: address or handle (a [`Key`](crate::memory::tracked::Key)) to size, slot and
//! context, so that a free knows what to give back and the end of a context gives back what it took along.
//!
//! Precondition of everything: the caller holds `State::books`.

use partage_records::{Entry, Pages, Table};

use crate::guest::sys;
use crate::memory::account::Charge;

/// The tables' memory: mappings of our own. A child starts with an empty state and never looks there.
pub struct SystemPages;

impl Pages for SystemPages {
    fn map(bytes: usize) -> Option<*mut u8> {
        let memory = sys::map_private(bytes)?;
        sys::advise(memory, bytes, libc::MADV_DONTFORK);
        Some(memory.cast())
    }
    unsafe fn unmap(memory: *mut u8, bytes: usize) {
        // SAFETY: the caller's contract.
        unsafe { sys::unmap(memory.cast(), bytes) };
    }
}

/// One live allocation.
#[derive(Clone, Copy)]
pub struct Allocation {
    /// The number of its key.
    pub key: u64,
    /// The context it dies with; 0 when unknown.
    pub context: u64,
    /// What a refund gives back.
    pub charge: Charge,
}

impl Entry for Allocation {
    const NONE: Self = Self {
        key: 0,
        context: 0,
        charge: Charge {
            slot: 0,
            bytes: 0,
            is_standalone: false,
            is_managed: false,
        },
    };
    fn key(&self) -> u64 {
        self.key
    }
}

/// The table. All-zero memory is an empty one.
pub type Allocations = Table<Allocation, SystemPages>;
