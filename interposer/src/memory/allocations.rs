// SPDX-License-Identifier: Apache-2.0
//! Which device memory this process holds: address or handle (a [`Key`]) to size, slot and
//! context, so that a free knows what to give back and the end of a context gives back what it took along.

use partage_records::{Entry, Pages, Table};

use crate::guest::sys;
use crate::memory::charge::Charge;

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

/// Under what an allocation is recorded: a device address or a handle, each kind in a number space of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

/// Addresses and handles are below this: user space ends at 2^57 on the widest machines.
const VALUE_BITS: u32 = 58;

impl Key {
    /// A device address.
    pub fn address(address: u64) -> Self {
        Self::of(address, 0)
    }

    /// A CUDA array.
    pub fn array(handle: u64) -> Self {
        Self::of(handle, 1)
    }

    /// A mipmapped array.
    pub fn mipmapped_array(handle: u64) -> Self {
        Self::of(handle, 2)
    }

    /// An address in a pool that the program made.
    pub fn pooled(address: u64) -> Self {
        Self::of(address, 9)
    }

    /// The address or handle in a key's number.
    pub fn value(number: u64) -> u64 {
        number & ((1 << VALUE_BITS) - 1)
    }

    fn of(value: u64, kind: u64) -> Self {
        if value == 0 {
            return Self(0);
        }
        Self(value & ((1 << VALUE_BITS) - 1) | kind << VALUE_BITS)
    }

    /// The number in the table; 0 for null, which is never recorded.
    pub fn number(self) -> u64 {
        self.0
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
        charge: Charge::nothing(0, false),
    };
    fn key(&self) -> u64 {
        self.key
    }
}

/// Names the pool of a recorded allocation where others name their context; no context's handle is so high.
const POOL: u64 = 0xffff << 48;

impl Allocation {
    /// An allocation from a pool that the program made.
    pub fn pooled(address: u64, pool: u64, charge: Charge) -> Self {
        Self {
            key: Key::pooled(address).number(),
            context: POOL | pool,
            charge,
        }
    }

    /// The id of the pool that it is from, if that is one that the program made.
    pub fn pool(&self) -> Option<u64> {
        (self.context & POOL == POOL).then_some(self.context & !POOL)
    }
}

/// The table. All-zero memory is an empty one.
pub type Allocations = Table<Allocation, SystemPages>;
