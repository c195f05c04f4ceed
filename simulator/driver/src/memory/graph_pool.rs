// SPDX-License-Identifier: Apache-2.0
//! The physical memory of graphs: one pool for the graphs of this process on each device. Offsets and lengths in bytes.
//!
//! Terms. *Span*: addresses of one [graph](super::planned). *Slab*: memory of a device, at least as long as a span that
//! it is behind. A slab is behind spans of several graphs at once
//! if these never run at the same time: one may use it when the stream that launches it comes after all earlier uses.
//! *Live*: allocated by a launch, not freed by the same graph nor by anything since. Invariants: a span has at most
//! one slab; a slab with live allocations is used by no other graph; reserved is the sum of the slabs.
//!
//! Slabs are found when a graph is launched or uploaded and kept until the program trims, or the last context of the
//! device ends. The operation that begins the launch does the mapping, so that a launch before it keeps the old one.
//!
//! Lock order: the graph pool, then a memory pool's figures, then what those come before. An allocation that leaves
//! the process is dropped under none of them but the table's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use partage_abi::types::CuResult;

use super::allocation::Allocation;
use super::allocations::{Memory, memory};
use super::lock::lock;
use super::over::are_complete;
use super::pool::take_physical;
use super::span::Span;
use crate::executor::OpId;
use crate::state::{Answer, Driver};

/// Physical memory behind spans.
#[derive(Debug)]
struct Slab {
    id: u64,
    device: usize,
    /// Where it is in the device's window.
    offset: u64,
    bytes: u64,
    live: u32,
    /// Uses that may not be over: key of the stream, and the operation that ends the use.
    uses: Vec<(u64, OpId)>,
    spans: Vec<Weak<Span>>,
}

impl Slab {
    fn is_idle(&self) -> bool {
        self.live == 0 && self.uses.iter().all(|&(_, op)| are_complete(&[op]))
    }

    fn is_free_for(&self, is_before: &dyn Fn(u64, OpId) -> bool) -> bool {
        let is_over = |&(stream, op): &(u64, OpId)| is_before(stream, op) || are_complete(&[op]);
        self.live == 0 && self.uses.iter().all(is_over)
    }

    /// The spans that it is behind.
    fn spans(&self) -> Vec<Arc<Span>> {
        let spans = self.spans.iter().filter_map(Weak::upgrade);
        spans.filter(|span| span.has_slab(self.id)).collect()
    }

    fn is_associated(&self) -> bool {
        !self.is_idle() || self.spans().iter().any(|span| span.has_lease())
    }
}

/// What a device says of the memory of its graphs; bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct GraphFigures {
    /// Of the slabs that are behind an instantiated graph or in use.
    pub used: u64,
    /// The most since it was set back.
    pub used_high: u64,
    /// Of all slabs.
    pub reserved: u64,
    /// The most since it was set back.
    pub reserved_high: u64,
}

/// The physical memory of the graphs of this process.
#[derive(Debug)]
pub struct GraphPool {
    slabs: Vec<Slab>,
    /// The live allocations by address.
    live: BTreeMap<u64, Arc<Allocation>>,
    /// The high marks of each device: used, reserved.
    highs: BTreeMap<usize, (u64, u64)>,
    next: u64,
}

/// A span that gets another slab behind it.
#[derive(Clone, Debug)]
pub struct Binding {
    span: Arc<Span>,
    /// Where the slab is in the device's window.
    from: u64,
}

impl GraphPool {
    /// Finds a slab for every span; all or none. `is_before` says whether the launch comes after an operation of a
    /// stream. Answers what has to be mapped when the launch begins. OUT_OF_MEMORY when the device is full.
    pub fn bind(
        &mut self,
        driver: &Driver,
        spans: &[Arc<Span>],
        is_before: &dyn Fn(u64, OpId) -> bool,
    ) -> Answer<Vec<Binding>> {
        let mut chosen: Vec<u64> = Vec::new();
        let mut bindings: Vec<(Arc<Span>, u64)> = Vec::new();
        let (keep, find): (Vec<&Arc<Span>>, Vec<_>) = spans.iter().partition(|span| {
            let slab = self.slabs.iter().find(|slab| span.has_slab(slab.id));
            slab.is_some_and(|slab| slab.is_free_for(is_before)) || self.has_live(span)
        });
        chosen.extend(keep.iter().filter_map(|span| *lock(&span.slab)));
        let mut fresh = Vec::new();
        for span in find {
            let slab = match self.choose(span, &chosen, is_before) {
                Some(slab) => slab,
                None => match self.take(driver, span, &chosen) {
                    Ok(slab) => {
                        fresh.push(slab);
                        slab
                    }
                    Err(code) => {
                        self.give(driver, |slab| fresh.contains(&slab.id));
                        return Err(code);
                    }
                },
            };
            chosen.push(slab);
            bindings.push((Arc::clone(span), slab));
        }
        let mut answer = Vec::new();
        for (span, id) in bindings {
            let Some(slab) = self.slabs.iter_mut().find(|slab| slab.id == id) else {
                continue;
            };
            *lock(&span.slab) = Some(id);
            slab.spans.retain(|other| other.strong_count() > 0);
            slab.spans.push(Arc::downgrade(&span));
            let from = slab.offset;
            answer.push(Binding { span, from });
        }
        spans.iter().for_each(|span| self.note_highs(span.device));
        Ok(answer)
    }

    /// The spans that a slab is behind, and where that is in the device's window.
    fn mapped(&self) -> Vec<(Arc<Span>, u64)> {
        let of = |slab: &Slab| {
            slab.spans()
                .into_iter()
                .map(|span| (span, slab.offset))
                .collect::<Vec<_>>()
        };
        self.slabs.iter().flat_map(of).collect()
    }

    fn has_live(&self, span: &Arc<Span>) -> bool {
        let parts = self.live.values().filter_map(|live| live.graph_part());
        parts.into_iter().any(|part| Arc::ptr_eq(&part.span, span))
    }

    /// A slab that is there: one behind no graph rather than one behind another, then the smallest.
    fn choose(&self, span: &Span, chosen: &[u64], is_before: &dyn Fn(u64, OpId) -> bool) -> Option<u64> {
        let fits = |slab: &&Slab| {
            slab.device == span.device
                && slab.bytes >= span.bytes
                && !chosen.contains(&slab.id)
                && slab.is_free_for(is_before)
        };
        let best = self.slabs.iter().filter(fits);
        best.min_by_key(|slab| (slab.is_associated(), slab.bytes))
            .map(|slab| slab.id)
    }

    fn take(&mut self, driver: &Driver, span: &Span, chosen: &[u64]) -> Answer<u64> {
        memory()?.windows.open_device(driver, span.device)?;
        let try_it = || take_physical(driver, span.device, span.bytes);
        let offset = try_it().or_else(|_| {
            // Idle slabs that are too short each make room for one that is not.
            self.give(driver, |slab| {
                slab.device == span.device && !chosen.contains(&slab.id) && slab.is_idle()
            });
            try_it()
        })?;
        self.next += 1;
        self.slabs.push(Slab {
            id: self.next,
            device: span.device,
            offset,
            bytes: span.bytes,
            live: 0,
            uses: Vec::new(),
            spans: Vec::new(),
        });
        Ok(self.next)
    }

    /// Gives the slabs that `goes` chooses back to their device.
    fn give(&mut self, driver: &Driver, goes: impl Fn(&Slab) -> bool) {
        let Ok(memory) = memory() else { return };
        let (gone, kept) = std::mem::take(&mut self.slabs).into_iter().partition(|slab| goes(slab));
        self.slabs = kept;
        let gone: Vec<Slab> = gone;
        for slab in gone {
            for span in slab.spans() {
                memory.unmap_span(&span);
                *lock(&span.slab) = None;
            }
            memory
                .windows
                .give_physical(driver, slab.device, slab.offset, slab.bytes);
        }
    }

    /// The spans are in use until an operation of a stream is over. Precondition: they were bound for that.
    pub fn use_until(&mut self, spans: &[Arc<Span>], stream: u64, op: OpId) {
        for slab in &mut self.slabs {
            if spans.iter().any(|span| span.has_slab(slab.id)) {
                if slab.live == 0 {
                    // It was free for this use, so the end of this one comes after all the others.
                    slab.uses.clear();
                }
                slab.note_use(stream, op);
            }
        }
    }

    /// A launch leaves an allocation behind.
    pub fn set_live(&mut self, allocation: &Arc<Allocation>) {
        if let Some(slab) = self.slab_of(allocation) {
            slab.live += 1;
        }
        self.live.insert(allocation.address, Arc::clone(allocation));
    }

    /// Whether an allocation is live.
    pub fn is_live(&self, allocation: &Allocation) -> bool {
        self.live
            .get(&allocation.address)
            .is_some_and(|live| live.id == allocation.id)
    }

    /// The live allocation at an address.
    pub fn live_at(&self, address: u64) -> Option<Arc<Allocation>> {
        self.live.get(&address).cloned()
    }

    /// An allocation is freed: by an operation of a stream, or at once.
    pub fn set_freed(&mut self, allocation: &Allocation, by: Option<(u64, OpId)>) {
        if let Some(slab) = self.slab_of(allocation) {
            slab.live = slab.live.saturating_sub(1);
            if let Some((stream, op)) = by {
                slab.note_use(stream, op);
            }
        }
        self.live.remove(&allocation.address);
    }

    fn slab_of(&mut self, allocation: &Allocation) -> Option<&mut Slab> {
        let id = (*lock(&allocation.graph_part()?.span.slab))?;
        self.slabs.iter_mut().find(|slab| slab.id == id)
    }

    // ---- figures --------------------------------------------------------------------------------------------------

    /// What a device says.
    pub fn figures(&self, device: usize) -> GraphFigures {
        let of_device = || self.slabs.iter().filter(|slab| slab.device == device);
        let (used_high, reserved_high) = self.highs.get(&device).copied().unwrap_or_default();
        GraphFigures {
            used: of_device()
                .filter(|slab| slab.is_associated())
                .map(|slab| slab.bytes)
                .sum(),
            used_high,
            reserved: of_device().map(|slab| slab.bytes).sum(),
            reserved_high,
        }
    }

    fn note_highs(&mut self, device: usize) {
        let now = self.figures(device);
        let highs = self.highs.entry(device).or_default();
        *highs = (highs.0.max(now.used), highs.1.max(now.reserved));
    }

    /// Sets a high mark back to what is now: of what is used, or of what is reserved.
    pub fn reset_high(&mut self, device: usize, is_used: bool) {
        let now = self.figures(device);
        let highs = self.highs.entry(device).or_default();
        if is_used {
            highs.0 = now.used;
        } else {
            highs.1 = now.reserved;
        }
    }
}

impl Slab {
    fn note_use(&mut self, stream: u64, op: OpId) {
        self.uses.retain(|&(_, op)| !are_complete(&[op]));
        self.uses.push((stream, op));
    }
}

static GRAPH_POOL: Mutex<GraphPool> = Mutex::new(GraphPool {
    slabs: Vec::new(),
    live: BTreeMap::new(),
    highs: BTreeMap::new(),
    next: 0,
});

impl Memory {
    /// The memory of graphs, locked.
    pub fn graph_pool(&self) -> MutexGuard<'_, GraphPool> {
        lock(&GRAPH_POOL)
    }

    /// Gives the memory back that graphs of a device neither use nor hold live.
    pub fn trim_graphs(&self, driver: &Driver, device: usize) {
        self.graph_pool()
            .give(driver, |slab| slab.device == device && slab.is_idle());
    }

    /// Nobody works on a device any more: ends what graphs left behind there, and gives everything back.
    pub fn end_graphs(&self, driver: &Driver, device: usize) {
        let mut pool = self.graph_pool();
        let live = std::mem::take(&mut pool.live);
        let (gone, kept): (BTreeMap<_, _>, _) = live.into_iter().partition(|(_, live)| live.device == device);
        pool.live = kept;
        pool.give(driver, |slab| slab.device == device);
        drop(pool);
        drop(gone);
    }

    /// Frees the live allocation of a graph that starts at an address. The caller has waited for the work that may use
    /// it. False when there is none.
    pub(super) fn free_of_graph(&self, address: u64) -> bool {
        let found = {
            let mut pool = self.graph_pool();
            let found = pool.live_at(address);
            if let Some(found) = &found {
                pool.set_freed(found, None);
            }
            found
        };
        found.is_some_and(|found| {
            self.leave(&found);
            true
        })
    }

    // ---- what the operations of a launch do -----------------------------------------------------------------------

    /// Puts a slab behind a span.
    pub fn map_span(&self, driver: &Driver, binding: &Binding) -> Answer {
        let Span {
            device, offset, bytes, ..
        } = *binding.span;
        let file = self.windows.open_device(driver, device)?;
        let file = file.get().ok_or(CuResult::OPERATING_SYSTEM)?;
        self.windows.space.map(offset, file, binding.from, bytes)
    }

    /// Nothing is reached at the addresses of graphs.
    pub(super) fn unmap_spans(&self) {
        for (span, _) in self.graph_pool().mapped() {
            self.windows.space.unmap(span.offset, span.bytes);
        }
    }

    /// The addresses of graphs lead to what they led to before [`unmap_spans`](Self::unmap_spans).
    pub(super) fn map_spans(&self, driver: &Driver) -> Answer {
        let mapped = self.graph_pool().mapped();
        for (span, from) in mapped {
            self.map_span(driver, &Binding { span, from })?;
        }
        Ok(())
    }

    /// A launch has come to an allocation.
    pub fn enter_planned(&self, allocation: &Arc<Allocation>) {
        self.change(|table| table.insert(allocation.address, Arc::clone(allocation)));
    }

    /// An allocation of a graph is no longer reached.
    pub fn leave(&self, allocation: &Allocation) {
        self.take(allocation.address, |found| found.id == allocation.id);
    }

    fn unmap_span(&self, span: &Span) {
        // Whatever may still lie there is reached no more.
        let of_span = |found: &Allocation| matches!(found.graph_part(), Some(part) if part.span.offset == span.offset);
        self.take_all(of_span);
        self.windows.space.unmap(span.offset, span.bytes);
    }
}
