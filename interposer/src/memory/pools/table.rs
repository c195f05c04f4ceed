// SPDX-License-Identifier: Apache-2.0
//! Which memory pools this process charges, and what is charged for each.
//!
//! A few entries in an array of their own, found by looking through them. The memory is `MADV_DONTFORK` and never the
//! program's: a child starts with an empty state. The table lies in [`Tables`](crate::memory::tables::Tables); what
//! every hook looks at first lies beside, in [`Pools`].

use core::sync::atomic::{AtomicU32, AtomicU64};

use partage_abi::MAX_ORDINALS;
use partage_protocol::pool::PoolAccount;

use super::known::Blocks;
use crate::guest::sys;
use crate::memory::charge::Charge;
use crate::state::State;
use crate::state::rooms::{Owner, Room};

/// What a process knows of its pools without looking at the table. All-zero memory is "none".
pub struct Pools {
    /// Entries that are charged: 0 lets every other hook skip pools.
    pub count: AtomicU32,
    /// Not 0: a synchronisation may make a pool give memory back, so one that ends is followed by a look.
    pub watched: AtomicU32,
    /// Allocations recorded for pools that programs made.
    pub records: AtomicU32,
    /// Not 0: a graph with memory of its own may exist.
    pub graph_memory: AtomicU32,
    /// Executable graphs that take memory when they are launched.
    pub execs: AtomicU32,
    /// The pool that streams of each ordinal allocate from; 0 while unknown. Of the first driver only.
    pub current: [AtomicU64; MAX_ORDINALS],
    /// Goes up when `current` may be wrong.
    pub current_turn: AtomicU32,
}

// SAFETY: all-zero memory is "none"; nothing else lies in this room.
unsafe impl Room for Pools {
    const OWNER: Owner = Owner::Pools;
}

/// What this process knows of its pools without looking at the table.
#[inline(always)]
pub fn pools(state: &State) -> &Pools {
    state.room()
}

/// Whose memory an entry is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// A pool's, or that of a device's graphs.
    pub kind: Kind,
    /// The pool's handle, or the ordinal of the device.
    pub number: u64,
    /// Of the driver in another linker namespace.
    pub is_second: bool,
}

/// The two kinds of sources.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A pool.
    Pool,
    /// The graphs of a device.
    Graph,
}

impl Source {
    /// Is it the memory of graphs?
    pub fn is_graph(&self) -> bool {
        self.kind == Kind::Graph
    }
}

/// What becomes of allocations from an entry's pool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Charged.
    Charged,
    /// Not device memory of ours: host memory, or a pool that another process is charged for.
    Exempt,
    /// About to be destroyed: nobody may use its handle.
    Ending,
    /// Destroyed; what is charged are the allocations that outlived it.
    Destroyed,
}

/// One pool. An id of 0 marks a free place.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Never used twice in a process.
    pub id: u64,
    /// Whose memory.
    pub source: Source,
    /// What becomes of allocations.
    pub standing: Standing,
    /// Where it is charged; its `bytes` are not used.
    pub charge: Charge,
    /// What is charged.
    pub account: PoolAccount,
    /// Bytes that it keeps at a synchronisation although nobody uses them.
    pub threshold: u64,
    /// Made by the program: each allocation is recorded, because the pool may be destroyed before them.
    pub is_custom: bool,
    /// Bytes of allocations recorded for a custom pool.
    pub live: u64,
    /// Threads that may be calling the driver with its handle.
    pub users: u32,
    /// The last call without a reservation did not make it grow.
    pub reuses: bool,
    /// Memory that it is known to hold.
    pub blocks: Blocks,
}

impl Entry {
    /// Its handle may be used, and what it holds is charged.
    pub fn is_readable(&self) -> bool {
        self.standing == Standing::Charged
    }
}

/// A free in stream order that its stream may not have come to: its refund waits for a synchronisation.
#[derive(Clone, Copy)]
pub struct Leaving {
    /// What is freed.
    pub address: u64,
    /// What is given back. No bytes: a free place.
    pub charge: Charge,
    /// Counted as an allocation of its own.
    pub is_allocation: bool,
    /// The stream.
    pub stream: u64,
    /// Named in a per-thread entry point.
    pub is_per_thread: bool,
}

/// Frees that can wait at the same time; the oldest is refunded early when there are more.
pub const LEAVING: usize = 64;

/// The entries.
pub struct Table {
    places: *mut Entry,
    capacity: usize,
    last_id: u64,
    leaving: [Leaving; LEAVING],
    next_leaving: usize,
}

const FIRST_CAPACITY: usize = 32;

impl Table {
    /// The entry of a source.
    pub fn find(&mut self, source: Source) -> Option<&mut Entry> {
        self.search(|entry| entry.source == source && entry.standing != Standing::Destroyed)
    }

    /// The entry with an id.
    pub fn get(&mut self, id: u64) -> Option<&mut Entry> {
        self.search(|entry| entry.id == id)
    }

    /// The entry with the smallest id above `after` that is meant.
    pub fn next(&mut self, after: u64, is_meant: impl Fn(&Entry) -> bool) -> Option<&mut Entry> {
        let mut best = u64::MAX;
        for entry in self.entries() {
            if entry.id > after && entry.id < best && is_meant(entry) {
                best = entry.id;
            }
        }
        self.get(best)
    }

    /// Adds an entry under a new id. `None`: the host has no memory.
    pub fn add(&mut self, mut entry: Entry) -> Option<&mut Entry> {
        if !self.entries().iter().any(|entry| entry.id == 0) && !self.grow() {
            return None;
        }
        self.last_id = self.last_id.wrapping_add(1);
        entry.id = self.last_id;
        let place = self.entries().iter_mut().find(|entry| entry.id == 0)?;
        *place = entry;
        Some(place)
    }

    /// Removes the entry with an id.
    pub fn remove(&mut self, id: u64) {
        if let Some(entry) = self.get(id) {
            entry.id = 0;
            entry.blocks.give_back();
        }
    }

    /// Remembers a free under way. Answers the one that had to make room.
    pub fn leave(&mut self, leaving: Leaving) -> Option<Leaving> {
        if let Some(place) = self.leaving.iter_mut().find(|place| place.charge.bytes == 0) {
            *place = leaving;
            return None;
        }
        self.next_leaving = (self.next_leaving + 1) % LEAVING;
        let place = self.leaving.get_mut(self.next_leaving)?;
        Some(core::mem::replace(place, leaving))
    }

    /// Takes one free under way that is meant.
    pub fn take_left(&mut self, is_meant: impl Fn(&Leaving) -> bool) -> Option<Leaving> {
        let place = self
            .leaving
            .iter_mut()
            .find(|place| place.charge.bytes != 0 && is_meant(place))?;
        let taken = *place;
        place.charge.bytes = 0;
        Some(taken)
    }

    /// A stream frees a block of a pool.
    pub fn free(&mut self, stream: u64, address: u64) {
        for entry in self.entries() {
            entry.blocks.free(stream, address);
        }
    }

    /// A block that a stream was said to free is still held.
    pub fn never_freed(&mut self, address: u64) {
        for entry in self.entries() {
            entry.blocks.never_freed(address);
        }
    }

    /// The addresses of frees under way that are meant; 0 elsewhere.
    pub fn left(&self, is_meant: &dyn Fn(&Leaving) -> bool) -> [u64; LEAVING] {
        let meant = |place: &Leaving| place.charge.bytes != 0 && is_meant(place);
        self.leaving
            .each_ref()
            .map(|place| if meant(place) { place.address } else { 0 })
    }

    /// Is there no room for one more?
    pub fn is_crowded(&self) -> bool {
        self.leaving.iter().all(|place| place.charge.bytes != 0)
    }

    /// Are there frees under way?
    pub fn has_leaving(&self) -> bool {
        self.leaving.iter().any(|place| place.charge.bytes != 0)
    }

    fn search(&mut self, is_meant: impl Fn(&Entry) -> bool) -> Option<&mut Entry> {
        self.entries().iter_mut().find(|entry| entry.id != 0 && is_meant(entry))
    }

    fn entries(&mut self) -> &mut [Entry] {
        if self.capacity == 0 {
            return &mut [];
        }
        // SAFETY: `capacity` initialised places (zeroes are a free one), which this table alone leads to.
        unsafe { core::slice::from_raw_parts_mut(self.places, self.capacity) }
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let capacity = (self.capacity * 2).max(FIRST_CAPACITY);
        let length = capacity * size_of::<Entry>();
        let Some(memory) = sys::map_private(length) else {
            return false;
        };
        sys::advise(memory, length, libc::MADV_DONTFORK);
        let (former, places) = (self.places, self.capacity);
        if places > 0 {
            // SAFETY: the new mapping is at least as long as the former, which nobody uses after it was copied.
            unsafe {
                core::ptr::copy_nonoverlapping(former, memory.cast(), places);
                sys::unmap(former.cast(), places * size_of::<Entry>());
            }
        }
        self.places = memory.cast();
        self.capacity = capacity;
        true
    }
}
