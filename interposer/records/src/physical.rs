// SPDX-License-Identifier: Apache-2.0
//! Physical memory of `cuMemCreate`: who still holds it.
//!
//! ```text
//!   created ─► held by its handle ─┬─ retained: one hold more        ┌─► gone: its cost is refunded
//!                                  ├─ mapped: one reference more     │
//!                                  ├─ released: one hold less ───────┤ when no reference is left
//!                                  └─ unmapped: one reference less ──┘
//! ```
//! Terms. *Memory*: what one `cuMemCreate` made. *Hold*: one release that the program still owes for a handle.
//! *Reference*: a hold, a mapping, or a call that is under way.
//!
//! Invariants, checked by search against a model of the driver (`tests/physical.rs`):
//! 1. What the driver holds is never refunded: a reference goes only after the driver succeeded.
//! 2. At rest exactly what the driver holds is charged, whatever order handles and mappings went in.
//! 3. A call that the driver refused changes nothing.
//!
//! A handle or a mapping leaves its table *before* the driver is called (its number may be somebody else's the moment
//! it is free), under a ticket that puts it back if the driver refuses. Handles that we did not see made are not known
//! and cost nothing; their mappings are recorded all the same, so that an unmapping that spans several is followed.

use crate::table::{Entry, Pages, Table};

/// The memories of a process. All-zero memory is an empty one. `C` is what a memory cost.
pub struct Physicals<C: Copy, P: Pages> {
    memories: Table<Memory<C>, P>,
    handles: Table<Handle, P>,
    mappings: Table<Mapping, P>,
    /// Numbers given to memories and tickets so far.
    numbers: u64,
}

#[derive(Clone, Copy)]
struct Memory<C> {
    number: u64,
    references: u64,
    /// `None` only in a free place.
    cost: Option<C>,
}

#[derive(Clone, Copy)]
struct Handle {
    handle: u64,
    memory: u64,
    holds: u64,
}

#[derive(Clone, Copy)]
struct Mapping {
    /// The address, or [`LEAVING`] and a ticket.
    key: u64,
    address: u64,
    bytes: u64,
    /// The memory's number; [`UNKNOWN`] for one that is not ours.
    memory: u64,
}

const UNKNOWN: u64 = 0;
/// No address has this bit.
const LEAVING: u64 = 1 << 63;

impl<C: Copy> Entry for Memory<C> {
    const NONE: Self = Self {
        number: 0,
        references: 0,
        cost: None,
    };
    fn key(&self) -> u64 {
        self.number
    }
}

impl Entry for Handle {
    const NONE: Self = Self {
        handle: 0,
        memory: 0,
        holds: 0,
    };
    fn key(&self) -> u64 {
        self.handle
    }
}

impl Entry for Mapping {
    const NONE: Self = Self {
        key: 0,
        address: 0,
        bytes: 0,
        memory: 0,
    };
    fn key(&self) -> u64 {
        self.key
    }
}

/// A mapping under way.
pub struct Mapped {
    memory: u64,
    is_promised: bool,
}

/// A release under way.
pub struct Released {
    handle: u64,
    memory: u64,
    is_promised: bool,
}

/// An unmapping under way, or its end, step by step.
pub struct Unmapped {
    first: u64,
    count: u64,
    done: u64,
    /// What the records did not cover of the range: from here to the end.
    rest: (u64, u64),
}

/// One step of the end of an unmapping.
pub enum Step<C> {
    /// Go on.
    More,
    /// A memory is gone: refund, and go on.
    Gone(C),
    /// That was all.
    Done,
}

impl<C: Copy, P: Pages> Default for Physicals<C, P> {
    fn default() -> Self {
        Self {
            memories: Table::default(),
            handles: Table::default(),
            mappings: Table::default(),
            numbers: 0,
        }
    }
}

impl<C: Copy, P: Pages> Physicals<C, P> {
    /// Promises that what is about to be created can be recorded. `false`: the host has no memory.
    pub fn promise(&mut self) -> bool {
        if !self.memories.promise() {
            return false;
        }
        let is_promised = self.handles.promise();
        if !is_promised {
            self.memories.break_promise();
        }
        is_promised
    }

    /// Takes a promise back.
    pub fn break_promise(&mut self) {
        self.memories.break_promise();
        self.handles.break_promise();
    }

    /// Memory was created, under an earlier promise. Answers the cost of what was still held under the same handle and
    /// is gone without our having seen it, or the driver could not have given the handle again.
    pub fn created(&mut self, handle: u64, cost: C) -> Option<C> {
        let number = self.number();
        let _ = self.memories.insert(Memory {
            number,
            references: 1,
            cost: Some(cost),
        });
        let former = self.handles.insert(Handle {
            handle,
            memory: number,
            holds: 1,
        });
        former.and_then(|former| self.let_go(former.memory, former.holds))
    }

    /// The driver gave a handle for the memory behind an address.
    pub fn retained(&mut self, handle: u64, address: u64) {
        if self.hold_again(handle) {
            return;
        }
        let holds =
            |mapping: &Mapping| mapping.key & LEAVING == 0 && address.wrapping_sub(mapping.address) < mapping.bytes;
        // Whoever released every handle and retains one again has kept nothing but the address: this is rare.
        let found = self.mappings.search(holds).map_or(UNKNOWN, |mapping| mapping.memory);
        if found != UNKNOWN
            && handle != 0
            && self.handles.add(Handle {
                handle,
                memory: found,
                holds: 1,
            })
        {
            self.refer(found);
        }
    }

    /// The driver gave a handle for memory that somebody exported. If that was this process, and it is the same handle
    /// again, it is held once more; else it is not ours to know.
    pub fn imported(&mut self, handle: u64) {
        let _ = self.hold_again(handle);
    }

    fn hold_again(&mut self, handle: u64) -> bool {
        let Some(known) = self.handles.get(handle) else {
            return false;
        };
        self.handles
            .change(handle, |known| known.holds = known.holds.saturating_add(1));
        self.refer(known.memory);
        true
    }

    /// What a handle's memory cost. `None`: it is not known.
    pub fn cost(&self, handle: u64) -> Option<C> {
        self.memories.get(self.handles.get(handle)?.memory)?.cost
    }

    /// The driver is about to map a handle's memory.
    pub fn begin_map(&mut self, handle: u64) -> Mapped {
        let is_promised = self.mappings.promise();
        let memory = self.handles.get(handle).map_or(UNKNOWN, |known| known.memory);
        self.refer(memory);
        Mapped { memory, is_promised }
    }

    /// The driver mapped it, or refused. Answers the cost of a memory that is gone with this.
    pub fn end_map(&mut self, mapped: Mapped, address: u64, bytes: u64, is_mapped: bool) -> Option<C> {
        let Mapped { memory, is_promised } = mapped;
        if is_mapped && is_promised && address & LEAVING == 0 && address != 0 {
            let former = self.mappings.insert(Mapping {
                key: address,
                address,
                bytes,
                memory,
            });
            return former.and_then(|former| self.let_go(former.memory, 1));
        }
        if is_promised {
            self.mappings.break_promise();
        }
        self.let_go(memory, 1)
    }

    /// The driver is about to release a handle once. `None`: it is not known.
    pub fn begin_release(&mut self, handle: u64) -> Option<Released> {
        let known = self.handles.get(handle)?;
        let mut is_promised = false;
        if known.holds > 1 {
            self.handles
                .change(handle, |known| known.holds = known.holds.saturating_sub(1));
        } else {
            let _ = self.handles.take(handle);
            // The place is free, so this costs nothing; it is for putting the handle back.
            is_promised = self.handles.promise();
        }
        Some(Released {
            handle,
            memory: known.memory,
            is_promised,
        })
    }

    /// The driver released it, or refused. Answers the cost of a memory that is gone with this.
    pub fn end_release(&mut self, released: Released, is_released: bool) -> Option<C> {
        let Released {
            handle,
            memory,
            is_promised,
        } = released;
        if is_released {
            if is_promised {
                self.handles.break_promise();
            }
            return self.let_go(memory, 1);
        }
        let is_there = self
            .handles
            .change(handle, |known| known.holds = known.holds.saturating_add(1));
        if is_promised {
            self.handles.break_promise();
        }
        if !is_there {
            // Its own place was free a moment ago. Should there be none now, the handle is forgotten and its reference
            // stays: charged too long rather than too short.
            let _ = self.handles.add(Handle {
                handle,
                memory,
                holds: 1,
            });
        }
        None
    }

    /// The driver is about to unmap a range, whole mappings that lie side by side.
    pub fn begin_unmap(&mut self, address: u64, bytes: u64) -> Unmapped {
        let end = address.saturating_add(bytes);
        let first = self.numbers.wrapping_add(1);
        let (mut at, mut count) = (address, 0_u64);
        while let Some(mut mapping) = self.mappings.get(at).filter(|_| at < end) {
            let next = at.saturating_add(mapping.bytes);
            if mapping.bytes == 0 || next > end {
                break;
            }
            let _ = self.mappings.take(at);
            mapping.key = LEAVING | self.number();
            // The place it just left is free.
            let _ = self.mappings.add(mapping);
            count = count.saturating_add(1);
            at = next;
        }
        Unmapped {
            first,
            count,
            done: 0,
            rest: (at, end),
        }
    }

    /// Do any of the mappings that are leaving belong to memory of ours?
    pub fn concerns_ours(&self, unmapped: &Unmapped) -> bool {
        (0..unmapped.count).any(|index| {
            let mapping = self.mappings.get(LEAVING | unmapped.first.wrapping_add(index));
            mapping.is_some_and(|mapping| mapping.memory != UNKNOWN)
        })
    }

    /// The driver unmapped the range, or refused: one step, to be repeated until it is done.
    pub fn end_unmap(&mut self, unmapped: &mut Unmapped, is_unmapped: bool) -> Step<C> {
        if unmapped.done < unmapped.count {
            let key = LEAVING | unmapped.first.wrapping_add(unmapped.done);
            unmapped.done = unmapped.done.wrapping_add(1);
            let Some(mapping) = self.mappings.take(key) else {
                return Step::More;
            };
            let gone = if is_unmapped {
                mapping.memory
            } else {
                let key = mapping.address;
                // What stands there now was mapped since, so this one is not there any more.
                match self.mappings.get(key) {
                    Some(_) => mapping.memory,
                    None => {
                        let _ = self.mappings.add(Mapping { key, ..mapping });
                        UNKNOWN
                    }
                }
            };
            return self.let_go(gone, 1).map_or(Step::More, Step::Gone);
        }
        let (start, end) = unmapped.rest;
        if !is_unmapped || start >= end {
            return Step::Done;
        }
        // The driver unmapped what we have no full record of: whatever we have of it is gone too.
        let lies_there = |mapping: &Mapping| mapping.key & LEAVING == 0 && (start..end).contains(&mapping.address);
        let Some(found) = self.mappings.search(lies_there) else {
            return Step::Done;
        };
        let _ = self.mappings.take(found.key);
        self.let_go(found.memory, 1).map_or(Step::More, Step::Gone)
    }

    /// Memories that are charged.
    pub fn count(&self) -> usize {
        self.memories.count()
    }

    fn number(&mut self) -> u64 {
        self.numbers = self.numbers.wrapping_add(1);
        self.numbers
    }

    fn refer(&mut self, memory: u64) {
        self.memories
            .change(memory, |memory| memory.references = memory.references.saturating_add(1));
    }

    /// Takes references away. Answers the memory's cost when the last one went.
    fn let_go(&mut self, memory: u64, references: u64) -> Option<C> {
        let left = self.memories.get(memory)?.references.saturating_sub(references);
        if left > 0 {
            self.memories.change(memory, |memory| memory.references = left);
            return None;
        }
        self.memories.take(memory)?.cost
    }
}
