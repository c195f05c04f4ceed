// SPDX-License-Identifier: Apache-2.0
//! The addresses of graphs: an allocation has its own from the making of its node on, for all launches. Offsets and
//! lengths in bytes.
//!
//! Terms. *Span*: addresses of one graph, whole pages; several allocations of the graph lie in it, also in the same
//! place if they are never in use at the same time. *Planned*: it has an address, whether or not a launch has
//! allocated it. Invariant: a planned allocation lives as long as its node, an instantiated graph that has it, a launch
//! under way, or the memory that a launch left.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use partage_abi::types::{CuContext, CuMemAccessDesc, CuMemPoolProps, CuResult};

use super::allocations::{Allocation, AllocationKind, Memory, lock, memory};
use super::linear::cost;
use super::space::LARGE_PAGE;
use crate::state::Answer;

/// Addresses of one graph.
#[derive(Debug)]
pub struct Span {
    pub(super) device: usize,
    /// Where it is in the space.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The slab behind it, or that will be when what was launched so far has run.
    pub(super) slab: Mutex<Option<u64>>,
    /// Lives as long as the instantiated graph that uses it.
    lease: Mutex<Weak<()>>,
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Ok(memory) = memory() {
            memory.forget_span(self);
        }
    }
}

impl Span {
    /// An instantiated graph uses it as long as `lease` lives.
    pub fn set_lease(&self, lease: &Arc<()>) {
        *lock(&self.lease) = Arc::downgrade(lease);
    }

    /// Whether an instantiated graph uses it.
    pub(super) fn has_lease(&self) -> bool {
        lock(&self.lease).strong_count() > 0
    }

    /// Whether a slab is behind it.
    pub(super) fn has_slab(&self, slab: u64) -> bool {
        *lock(&self.slab) == Some(slab)
    }
}

/// What an allocation node is asked for with.
pub struct Wish {
    /// The machine device.
    pub device: usize,
    /// That device as the program numbers it.
    pub ordinal: i32,
    /// Bytes.
    pub bytes: u64,
    /// Whose kernels reach it, one bit per machine device.
    pub reach: u32,
    /// As asked for.
    pub properties: CuMemPoolProps,
    /// As asked for.
    pub access: Vec<CuMemAccessDesc>,
}

/// What is special about an allocation of a graph.
#[derive(Debug)]
pub struct GraphPart {
    /// The graph whose node allocates it.
    pub graph: u32,
    /// Where it lies.
    pub span: Arc<Span>,
    /// As asked for.
    pub properties: CuMemPoolProps,
    /// As asked for.
    pub access: Vec<CuMemAccessDesc>,
    /// The graphs that have a node that frees it.
    freed_in: Mutex<Vec<u32>>,
    /// Where it is among those that have an address: by address, then by number.
    place: (u64, u64),
}

// SAFETY: the pointer in the properties is the program's and is only handed back.
unsafe impl Send for GraphPart {}
// SAFETY: as above.
unsafe impl Sync for GraphPart {}

impl Drop for GraphPart {
    fn drop(&mut self) {
        if let Ok(memory) = memory() {
            lock(&memory.planned).remove(&self.place);
        }
    }
}

impl GraphPart {
    /// Whether the graph that allocates it frees it too.
    pub fn is_freed_by_its_graph(&self) -> bool {
        lock(&self.freed_in).contains(&self.graph)
    }
}

impl Allocation {
    /// What is special about it as an allocation of a graph.
    pub fn graph_part(&self) -> Option<&GraphPart> {
        match &self.kind {
            AllocationKind::Graph(part) => Some(part),
            _ => None,
        }
    }
}

/// Allocations of graphs that have an address, in use or not.
pub(super) type Planned = BTreeMap<(u64, u64), Weak<Allocation>>;

/// A span, and the parts of it that are in use: start and end.
pub type Occupied = (Arc<Span>, Vec<(u64, u64)>);

impl Memory {
    /// Gives an allocation of a graph its address: in one of the graph's spans, whose parts that may be in use at the
    /// same time are named, or in a new one.
    pub fn plan(&self, graph: u32, wish: Wish, spans: &[Occupied]) -> Answer<Arc<Allocation>> {
        if wish.bytes == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let cost = cost(wish.bytes)?;
        let place = spans.iter().filter(|(span, _)| span.device == wish.device);
        let place = place.filter_map(|(span, busy)| Some((Arc::clone(span), gap(busy, span.bytes, cost)?)));
        let (span, at) = match place.min_by_key(|(span, _)| span.bytes) {
            Some(place) => place,
            None => (self.new_span(wish.device, cost)?, 0),
        };
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let offset = span.offset + at;
        let address = self.space.visible(offset);
        let place = (address, NUMBER.fetch_add(1, Ordering::Relaxed));
        let part = GraphPart {
            graph,
            span,
            properties: wish.properties,
            access: wish.access,
            freed_in: Mutex::default(),
            place,
        };
        let made = Arc::new(Allocation {
            address,
            bytes: wish.bytes,
            cost,
            kind: AllocationKind::Graph(part),
            device: wish.device,
            ordinal: wish.ordinal,
            // Belongs to no context and outlives them all.
            context: 0,
            owner: CuContext(std::ptr::null_mut()),
            flags: 0,
            sync_copies: false.into(),
            sharing: Mutex::default(),
            id: self.next_id(),
            reach: wish.reach.into(),
            alias: self.space.alias(offset) as usize,
        });
        lock(&self.planned).insert(place, Arc::downgrade(&made));
        Ok(made)
    }

    fn new_span(&self, device: usize, cost: u64) -> Answer<Arc<Span>> {
        let bytes = cost
            .checked_next_multiple_of(LARGE_PAGE)
            .ok_or(CuResult::OUT_OF_MEMORY)?;
        let offset = lock(&self.reservations)
            .free
            .take(bytes, LARGE_PAGE)
            .ok_or(CuResult::OUT_OF_MEMORY)?;
        Ok(Arc::new(Span {
            device,
            offset: self.space.managed_window().start + offset,
            bytes,
            slab: Mutex::default(),
            lease: Mutex::default(),
        }))
    }

    /// The allocations of graphs that hold a range, in use or not; the one made last first.
    fn all_planned(&self, address: u64, bytes: u64) -> Vec<Arc<Allocation>> {
        let is_managed = self
            .space
            .offset(address)
            .is_some_and(|offset| offset >= self.space.managed_window().start);
        let Some(end) = address.checked_add(bytes).filter(|_| is_managed) else {
            return Vec::new();
        };
        // All references are let go after the lock: an allocation that ends takes it.
        let near: Vec<Arc<Allocation>> = lock(&self.planned)
            .range(..=(address, u64::MAX))
            .filter_map(|(_, known)| known.upgrade())
            .collect();
        let mut found: Vec<_> = near.into_iter().filter(|known| end <= known.end()).collect();
        found.sort_by_key(|known| std::cmp::Reverse(known.id));
        found
    }

    /// An allocation of a graph that holds a range, in use or not.
    pub fn find_planned(&self, address: u64, bytes: u64) -> Option<Arc<Allocation>> {
        self.all_planned(address, bytes).into_iter().next()
    }

    /// Chooses what a node of a graph that frees an address frees, and remembers it. INVALID_VALUE for an address that
    /// no allocation node has, or that a node frees already.
    pub fn plan_free(&self, graph: u32, address: u64) -> Answer<Arc<Allocation>> {
        for found in self.all_planned(address, 1) {
            let Some(part) = found.graph_part().filter(|_| found.address == address) else {
                continue;
            };
            let mut freed_in = lock(&part.freed_in);
            let is_taken = if part.graph == graph {
                !freed_in.is_empty()
            } else {
                freed_in.contains(&graph) || freed_in.contains(&part.graph)
            };
            if !is_taken {
                freed_in.push(graph);
                drop(freed_in);
                return Ok(found);
            }
        }
        Err(CuResult::INVALID_VALUE)
    }

    /// A node that frees an allocation is gone.
    pub fn forget_free(&self, graph: u32, allocation: &Allocation) {
        if let Some(part) = allocation.graph_part() {
            lock(&part.freed_in).retain(|&other| other != graph);
        }
    }

    fn forget_span(&self, span: &Span) {
        self.space.unmap(span.offset, span.bytes);
        let offset = span.offset - self.space.managed_window().start;
        lock(&self.reservations).free.give(offset, span.bytes);
    }
}

/// The first place for `bytes` in `0..length` beside what is busy (start and end, in any order).
fn gap(busy: &[(u64, u64)], length: u64, bytes: u64) -> Option<u64> {
    let mut busy = busy.to_vec();
    busy.sort_unstable();
    let mut at = 0;
    for (start, end) in busy {
        if start >= at + bytes {
            break;
        }
        at = at.max(end);
    }
    (at + bytes <= length).then_some(at)
}

impl GraphPart {
    /// Start and end in its span. Precondition: `allocation` is the one that this is a part of.
    pub fn range(&self, memory: &Memory, allocation: &Allocation) -> (u64, u64) {
        let start = allocation.address - memory.space.visible(self.span.offset);
        (start, start + allocation.cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_found_beside_what_overlaps() {
        assert_eq!(gap(&[], 10, 10), Some(0));
        assert_eq!(gap(&[], 10, 11), None);
        assert_eq!(gap(&[(4, 8), (0, 3)], 12, 1), Some(3));
        assert_eq!(gap(&[(4, 8), (0, 3), (2, 5)], 12, 4), Some(8));
        assert_eq!(gap(&[(0, 9), (1, 2)], 12, 3), Some(9));
        assert_eq!(gap(&[(0, 9), (1, 2)], 12, 4), None);
    }
}
