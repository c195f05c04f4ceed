// SPDX-License-Identifier: Apache-2.0
//! Which device memory this process holds: address or handle (a [`Key`](crate::tracked::Key)) to size, slot and context, so that a free knows what to give back
//! and the end of a context gives back what it took along.
//!
//! An open-addressing table (linear probing, backward-shift deletion) in memory of its own: the program's allocator is
//! never called. It is `MADV_DONTFORK`: a child starts with an empty state and never looks here.
//! Precondition of everything: the caller holds `State::books`.

use core::ffi::c_void;

use crate::account::Charge;
use crate::sys;

/// One live allocation. An address of 0 marks a free place.
#[derive(Clone, Copy)]
pub struct Allocation {
    /// The number of its key.
    pub address: u64,
    /// Bytes charged.
    pub bytes: u64,
    /// The context it dies with; 0 when unknown.
    pub context: u64,
    /// The slot charged, in the numbering of `is_standalone`.
    pub slot: u32,
    /// Charged before a broker answered.
    pub is_standalone: bool,
    /// Managed memory.
    pub is_managed: bool,
}

impl Allocation {
    /// What a refund gives back.
    pub fn charge(&self) -> Charge {
        Charge {
            slot: self.slot,
            bytes: self.bytes,
            is_standalone: self.is_standalone,
            is_managed: self.is_managed,
        }
    }
}

/// The table. All-zero memory is an empty one.
pub struct Allocations {
    places: *mut Allocation,
    /// Places, a power of two; 0 while there is no table.
    capacity: usize,
    /// Places taken.
    count: usize,
    /// Places promised to allocations that are in the driver.
    promised: usize,
}

const FIRST_CAPACITY: usize = 512;

impl Allocations {
    /// Promises a place, so that what the driver allocates can always be recorded. `false`: the host has no memory.
    pub fn promise(&mut self) -> bool {
        // Two thirds full at most: probes stay short.
        if (self.count + self.promised + 1).saturating_mul(3) > self.capacity.saturating_mul(2) && !self.grow() {
            return false;
        }
        self.promised += 1;
        true
    }

    /// Takes a promise back.
    pub fn break_promise(&mut self) {
        self.promised = self.promised.saturating_sub(1);
    }

    /// Records an allocation under an earlier promise. Answers what stood under the same address: a record whose memory
    /// is gone without our having seen it, or the driver could not have handed the address out again.
    pub fn insert(&mut self, allocation: Allocation) -> Option<Allocation> {
        self.break_promise();
        self.put(allocation)
    }

    /// Records again what [`Allocations::take`] took, when the driver refused to free it.
    pub fn restore(&mut self, allocation: Allocation) {
        // Taking left a free place; if another thread used it, there may be none until the table grows.
        if self.promise() {
            let _ = self.insert(allocation);
        }
    }

    /// Removes and answers the allocation at `address`.
    pub fn take(&mut self, address: u64) -> Option<Allocation> {
        let index = self.find(address)?;
        let found = self.get(index)?;
        self.remove(index);
        Some(found)
    }

    /// Gives every allocation of one context to another name for it; answers how many there were.
    pub fn rename_context(&mut self, from: u64, to: u64) {
        for index in 0..self.capacity {
            if let Some(mut allocation) = self.get(index)
                && allocation.context == from
            {
                allocation.context = to;
                self.set(index, allocation);
            }
        }
    }

    /// Removes every allocation that `is_gone` names, handing each to `refund`.
    pub fn retire(&mut self, mut is_gone: impl FnMut(&Allocation) -> bool, mut refund: impl FnMut(Allocation)) {
        let mut index = 0;
        while index < self.capacity {
            match self.get(index) {
                Some(allocation) if is_gone(&allocation) => {
                    self.remove(index);
                    refund(allocation);
                    // The place may now hold one that stood behind: look at it again.
                }
                _ => index += 1,
            }
        }
    }

    fn get(&self, index: usize) -> Option<Allocation> {
        if index >= self.capacity {
            return None;
        }
        // SAFETY: within the table.
        let allocation = unsafe { self.places.add(index).read() };
        (allocation.address != 0).then_some(allocation)
    }

    fn set(&mut self, index: usize, allocation: Allocation) {
        if index < self.capacity {
            // SAFETY: within the table.
            unsafe { self.places.add(index).write(allocation) };
        }
    }

    fn home(&self, address: u64) -> usize {
        // Fibonacci hashing: the low bits of device addresses are all zero.
        (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize & self.capacity.wrapping_sub(1)
    }

    fn next(&self, index: usize) -> usize {
        (index + 1) & self.capacity.wrapping_sub(1)
    }

    fn find(&self, address: u64) -> Option<usize> {
        if address == 0 || self.capacity == 0 {
            return None;
        }
        let mut index = self.home(address);
        while let Some(allocation) = self.get(index) {
            if allocation.address == address {
                return Some(index);
            }
            index = self.next(index);
        }
        None
    }

    fn put(&mut self, allocation: Allocation) -> Option<Allocation> {
        if self.capacity == 0 {
            return None;
        }
        let mut index = self.home(allocation.address);
        while let Some(there) = self.get(index) {
            if there.address == allocation.address {
                self.set(index, allocation);
                return Some(there);
            }
            index = self.next(index);
        }
        self.set(index, allocation);
        self.count += 1;
        None
    }

    fn remove(&mut self, index: usize) {
        let mut hole = index;
        let mut probe = index;
        loop {
            probe = self.next(probe);
            let Some(candidate) = self.get(probe) else { break };
            let home = self.home(candidate.address);
            // The candidate may move to the hole unless its home lies (cyclically) after the hole.
            let distance = |from: usize, to: usize| to.wrapping_sub(from) & self.capacity.wrapping_sub(1);
            if distance(home, probe) >= distance(hole, probe) {
                self.set(hole, candidate);
                hole = probe;
            }
        }
        self.set(
            hole,
            Allocation {
                address: 0,
                bytes: 0,
                context: 0,
                slot: 0,
                is_standalone: false,
                is_managed: false,
            },
        );
        self.count = self.count.saturating_sub(1);
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let capacity = if self.capacity == 0 {
            FIRST_CAPACITY
        } else {
            self.capacity.saturating_mul(2)
        };
        let Some(length) = capacity.checked_mul(size_of::<Allocation>()) else {
            return false;
        };
        let Some(memory) = sys::map_private(length) else {
            return false;
        };
        sys::advise(memory, length, libc::MADV_DONTFORK);
        let former = Self {
            places: self.places,
            capacity: self.capacity,
            count: self.count,
            promised: 0,
        };
        self.places = memory.cast();
        self.capacity = capacity;
        self.count = 0;
        for index in 0..former.capacity {
            if let Some(allocation) = former.get(index) {
                let _ = self.put(allocation);
            }
        }
        if former.capacity > 0 {
            // SAFETY: everything was copied, and `places` points to the new table.
            unsafe {
                sys::unmap(
                    former.places.cast::<c_void>(),
                    former.capacity * size_of::<Allocation>(),
                )
            };
        }
        true
    }
}
