// SPDX-License-Identifier: Apache-2.0
//! The addresses of graphs: an allocation has its own from the making of its node on, for all launches. Offsets and
//! lengths in bytes.
//!
//! Terms. *Span*: addresses of one graph, whole pages; several allocations of the graph lie in it, also in the same
//! place if they are never in use at the same time. *Planned*: it has an address, whether or not a launch has
//! allocated it. Invariant: a planned allocation lives as long as its node, an instantiated graph that has it, a launch
//! under way, or the memory that a launch left.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use partage_abi::types::{CuContext, CuResult};

use super::allocation::{Allocation, AllocationKind, GraphPart, all_planned, enter_address};
use super::allocations::Memory;
use super::lock::lock;
use super::span::{Occupied, Span, Wish};
use super::windows::cost;
use crate::state::Answer;

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
            None => (Span::new(self.windows, wish.device, cost)?, 0),
        };
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let offset = span.offset + at;
        let address = self.windows.space.visible(offset);
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
            alias: self.windows.space.alias(offset) as usize,
        });
        enter_address(place, &made);
        Ok(made)
    }

    /// Chooses what a node of a graph that frees an address frees, and remembers it. INVALID_VALUE for an address that
    /// no allocation node has, or that a node frees already.
    pub fn plan_free(&self, graph: u32, address: u64) -> Answer<Arc<Allocation>> {
        for found in all_planned(self.windows, address, 1) {
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
