// SPDX-License-Identifier: Apache-2.0
//! Which memory pools this process charges, and what is charged for each.
//!
//! A few entries in an array of their own, found by looking through them. The memory is `MADV_DONTFORK` and never the
//! program's: a child starts with an empty state.
//! Precondition of everything but the atomics: the caller holds `State::books`.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64};

use partage_abi::types::{CuMemoryPool, CuResult};
use partage_abi::values::{
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
};
use partage_protocol::pool::{GRANULE, PoolAccount};

use super::launch::Exec;
use crate::guest::lock::Held;
use crate::guest::sys;
use crate::memory::account::Charge;
use crate::memory::allocations::SystemPages;
use crate::real::call;
use crate::real::{self, Library};
use crate::state::{MAX_ORDINALS, State};

/// Everything that [`State`] keeps about pools. All-zero memory is "none".
pub struct Pools {
    /// Entries that are charged: 0 lets every other hook skip pools.
    pub count: AtomicU32,
    /// Not 0: a synchronisation may make a pool give memory back, so one that ends is followed by a look.
    pub watched: AtomicU32,
    /// Not 0: a stream was captured in this process, so every stream is asked whether it is.
    pub captures: AtomicU32,
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
    table: UnsafeCell<Table>,
    /// Those graphs.
    exec_table: UnsafeCell<partage_records::Table<Exec, SystemPages>>,
}

impl Pools {
    /// The entries.
    #[allow(clippy::mut_from_ref)] // the lock that is held makes it the only one
    pub fn table<'a>(&'a self, _books: &'a Held<'_>) -> &'a mut Table {
        // SAFETY: `books` is held: the reference lives no longer than that borrow, and nobody else makes one.
        unsafe { &mut *self.table.get() }
    }

    /// The executable graphs that take memory.
    #[allow(clippy::mut_from_ref)] // as above
    pub fn exec_table<'a>(&'a self, _books: &'a Held<'_>) -> &'a mut partage_records::Table<Exec, SystemPages> {
        // SAFETY: as above.
        unsafe { &mut *self.exec_table.get() }
    }
}

/// Whose memory an entry is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Source {
    kind: Kind,
    /// The pool's handle, or the ordinal of the device.
    number: u64,
    /// Of the driver in another linker namespace.
    is_second: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pool,
    Graph,
}

/// What a driver said about a pool.
pub enum Reading {
    /// Bytes.
    Bytes(u64),
    /// There is no such pool any more.
    Gone,
    /// It did not say.
    Unknown,
}

impl Source {
    /// A pool by its handle.
    pub fn pool(real: &Library, pool: CuMemoryPool) -> Self {
        Self::of(real, Kind::Pool, pool.0 as u64)
    }

    /// The memory of graphs on a device.
    pub fn graph(real: &Library, ordinal: i32) -> Self {
        Self::of(real, Kind::Graph, ordinal as u64)
    }

    fn of(real: &Library, kind: Kind, number: u64) -> Self {
        Self {
            kind,
            number,
            is_second: core::ptr::eq(real, &raw const real::SECOND_DRIVER),
        }
    }

    /// Its driver.
    pub fn library(&self) -> &'static Library {
        if self.is_second {
            &real::SECOND_DRIVER
        } else {
            &real::DRIVER
        }
    }

    /// Is it the memory of graphs?
    pub fn is_graph(&self) -> bool {
        self.kind == Kind::Graph
    }

    /// Bytes that it holds of its device.
    pub fn reserved(&self) -> Reading {
        self.read(
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
        )
    }

    /// Bytes of those that programs hold. `None`: the driver did not say.
    pub fn used(&self) -> Option<u64> {
        match self.read(CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) {
            Reading::Bytes(bytes) => Some(bytes),
            Reading::Gone | Reading::Unknown => None,
        }
    }

    /// Bytes that it holds and nobody uses, while it holds no more than is charged for it.
    pub fn idle_of(&self, charged: u64) -> u64 {
        match (self.reserved(), self.used()) {
            (Reading::Bytes(reserved), Some(used)) if reserved <= charged => reserved.saturating_sub(used),
            _ => 0,
        }
    }

    fn read(&self, of_pool: i32, of_graph: i32) -> Reading {
        let mut bytes = 0_u64;
        let into: *mut c_void = (&raw mut bytes).cast();
        let result = match self.kind {
            Kind::Pool => call!(self.library(), cuMemPoolGetAttribute(self.handle(), of_pool, into)),
            Kind::Graph => call!(
                self.library(),
                cuDeviceGetGraphMemAttribute(self.number as i32, of_graph, into)
            ),
        };
        if result.is_success() {
            Reading::Bytes(bytes)
        } else if self.kind == Kind::Pool && (result == CuResult::INVALID_VALUE || result == CuResult::INVALID_HANDLE) {
            Reading::Gone
        } else {
            Reading::Unknown
        }
    }

    /// Has the driver give back what nobody uses.
    pub fn trim(&self) {
        // A driver that refuses has given nothing back, which the next reading shows.
        let _ = match self.kind {
            Kind::Pool => call!(self.library(), cuMemPoolTrimTo(self.handle(), 0)),
            Kind::Graph => call!(self.library(), cuDeviceGraphMemTrim(self.number as i32)),
        };
    }

    fn handle(&self) -> CuMemoryPool {
        CuMemoryPool(self.number as *mut c_void)
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
    /// A page of [`Known`]; null before the first.
    pub known: *mut Known,
    /// Which of them count: 1 to 511, and 0 before the first.
    pub known_since: u64,
    /// Blocks that streams freed a moment ago; none with 0 bytes.
    pub freed: [Freed; FREED],
}

/// A block that a stream freed: the driver hands it to the same stream again, before the free has happened, and no
/// other call has come in between. It is one that its pool is known to hold.
#[derive(Clone, Copy)]
pub struct Freed {
    /// Its stream, never a thread's default one, of which there are many.
    pub stream: u64,
    /// Its address.
    pub address: u64,
    /// Its length in bytes, at least.
    pub bytes: u64,
}

impl Freed {
    /// No block.
    pub const NONE: Self = Self {
        stream: 0,
        address: 0,
        bytes: 0,
    };
}

/// Blocks remembered for each pool.
pub const FREED: usize = 4;

/// Memory that a pool handed out, and holds as long as no reading shows it to be smaller: an address, and in one word
/// the bytes that were allocated there last (a multiple of 512) and when that was.
#[repr(C)]
pub struct Known {
    address: u64,
    bytes_and_since: u64,
}

const PAGE: usize = 4096;
const KNOWN: usize = PAGE / size_of::<Known>();
const SINCE: u64 = GRANULE - 1;

impl Entry {
    /// Its handle may be used, and what it holds is charged.
    pub fn is_readable(&self) -> bool {
        self.standing == Standing::Charged
    }

    fn place(&mut self, address: u64) -> Option<&mut Known> {
        // Fibonacci hashing: the low bits of addresses are all zero.
        let index = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % KNOWN;
        // SAFETY: null, or a page of this entry's, within it; alone under `books`.
        unsafe { (!self.known.is_null()).then(|| &mut *self.known.add(index)) }
    }

    /// Does the pool hold these bytes as of its last reading? If so, they are what is allocated there now.
    pub fn knows(&mut self, address: u64, bytes: u64) -> bool {
        let since = self.known_since;
        let found = self.place(address).filter(|known| {
            known.address == address
                && known.bytes_and_since & SINCE == since
                && known.bytes_and_since & !SINCE >= bytes
        });
        let Some(place) = found else { return false };
        place.bytes_and_since = bytes & !SINCE | since;
        true
    }

    /// Remembers bytes that the pool holds as of its last reading.
    pub fn know(&mut self, address: u64, bytes: u64) {
        if self.known.is_null() {
            // Without memory for it, every call reads.
            self.known = sys::map_private(PAGE).map_or(core::ptr::null_mut(), <*mut c_void>::cast);
            self.known_since = 1;
            if !self.known.is_null() {
                sys::advise(self.known.cast(), PAGE, libc::MADV_DONTFORK);
            }
        }
        let since = self.known_since;
        if let Some(place) = self.place(address) {
            *place = Known {
                address,
                bytes_and_since: bytes & !SINCE | since,
            };
        }
    }

    /// A stream frees a block, if it is one that is known.
    pub fn free(&mut self, stream: u64, address: u64) {
        let since = self.known_since;
        let Some(bytes) = self
            .place(address)
            .filter(|known| known.address == address)
            .map(|known| known.bytes_and_since)
            .filter(|bytes| bytes & SINCE == since)
        else {
            return;
        };
        if let Some(place) = self.freed.iter_mut().find(|freed| freed.bytes == 0) {
            *place = Freed {
                stream,
                address,
                bytes: bytes & !SINCE,
            };
        }
    }

    /// A block of at least so many bytes that a stream freed and may have again. Whatever else was freed is no longer
    /// certain when there is none: the driver serves the call from wherever it likes.
    pub fn take_freed(&mut self, stream: u64, bytes: u64) -> Option<Freed> {
        let found = self
            .freed
            .iter_mut()
            .filter(|freed| freed.stream == stream && freed.bytes >= bytes)
            .min_by_key(|freed| freed.bytes);
        match found {
            Some(place) => {
                let freed = core::mem::replace(place, Freed::NONE);
                self.knows(freed.address, bytes).then_some(freed)
            }
            None => {
                self.freed = [Freed::NONE; FREED];
                None
            }
        }
    }

    /// The pool is smaller than it was.
    pub fn forget(&mut self) {
        self.freed = [Freed::NONE; FREED];
        if self.known.is_null() {
            return;
        }
        self.known_since += 1;
        if self.known_since > SINCE {
            // SAFETY: the entry's page, alone under `books`.
            unsafe { core::ptr::write_bytes(self.known.cast::<u8>(), 0, PAGE) };
            self.known_since = 1;
        }
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
            // Whoever goes through all places must not find what belonged to a pool that is gone.
            entry.freed = [Freed::NONE; FREED];
            let known = core::mem::replace(&mut entry.known, core::ptr::null_mut());
            if !known.is_null() {
                // SAFETY: the entry's page, which nothing leads to any more.
                unsafe { sys::unmap(known.cast(), PAGE) };
            }
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
            entry.free(stream, address);
        }
    }

    /// A block that a stream was said to free is still held.
    pub fn never_freed(&mut self, address: u64) {
        for entry in self.entries() {
            for freed in &mut entry.freed {
                if freed.address == address {
                    *freed = Freed::NONE;
                }
            }
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
        // SAFETY: `capacity` initialised places (zeroes are a free one), ours alone under `books`.
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

/// The entries of a process, with their lock.
pub fn with<R>(state: &State, act: impl FnOnce(&mut Table) -> R) -> R {
    let held = state.books.hold();
    act(state.pools.table(&held))
}
