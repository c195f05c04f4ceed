// SPDX-License-Identifier: Apache-2.0
//! Memory nodes: where a graph's allocations lie, what graphs with such nodes may not do, and what becomes of the
//! memory when an instantiated one is launched.
//!
//! Terms: an allocation is *lasting* if its own graph does not free it, *foreign* to a graph that frees it without
//! having allocated it. Nodes and edges of a graph with memory nodes are never removed, so that two allocations that
//! cannot be in use at the same time when the second one is added never can be: they may share their addresses.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard};

use partage_abi::types::CuResult;

use super::nodes::{Edge, NodeKey};
use super::{Content, Graph, Nodes, Work};
use crate::executor::{Op, OpId};
use crate::memory::{Allocation, Binding, GraphPool, Occupied, Span, Wish, memory, windows};
use crate::state::{Answer, Driver, driver};
use crate::stream::Stream;

impl Graph {
    /// Adds a node that allocates. Its address is fixed from now on.
    pub fn add_allocation(
        self: &Arc<Self>,
        wish: Wish,
        after: &[(NodeKey, Edge)],
    ) -> Answer<(NodeKey, Arc<Allocation>)> {
        let made = {
            let nodes = self.lock();
            memory()?.plan(self.id, wish, &spans(&nodes, after)?)?
        };
        let key = self.add_with_edges(Work::Allocate(Arc::clone(&made)), after)?;
        Ok((key, made))
    }

    /// Adds a node that frees what an allocation node, of this graph or of another one, allocates. INVALID_VALUE if a
    /// node of this graph or of the one that allocates does so already.
    pub fn add_free(self: &Arc<Self>, address: u64, after: &[(NodeKey, Edge)]) -> Answer<NodeKey> {
        let memory = memory()?;
        let allocation = memory.plan_free(self.id, address)?;
        self.add_with_edges(Work::Free(Arc::clone(&allocation)), after)
            .inspect_err(|_| memory.forget_free(self.id, &allocation))
    }

    /// Whether it has memory nodes.
    pub fn has_memory(&self) -> bool {
        let nodes = self.lock();
        let is_memory = |key| nodes.get(key).is_some_and(|content| content.work.is_memory());
        nodes.keys().into_iter().any(is_memory)
    }

    /// INVALID_VALUE if it has memory nodes: nothing can be removed from it.
    pub fn check_removal(&self) -> Answer {
        if self.has_memory() {
            Err(CuResult::INVALID_VALUE)
        } else {
            Ok(())
        }
    }

    /// NOT_SUPPORTED if it has memory nodes: there can be no copy of it.
    pub fn check_copy(&self) -> Answer {
        if self.has_memory() {
            Err(CuResult::NOT_SUPPORTED)
        } else {
            Ok(())
        }
    }
}

/// The spans of a graph, with what may be in use when a node after `after` runs.
fn spans(nodes: &Nodes<Content>, after: &[(NodeKey, Edge)]) -> Answer<Vec<Occupied>> {
    let ahead = nodes.ahead_of_all(after.iter().map(|&(key, _)| key));
    let work = |key| nodes.get(key).map(|content| &content.work);
    let mut freed: Vec<u64> = Vec::new();
    for &key in &ahead {
        if let Some(Work::Free(allocation)) = work(key) {
            freed.push(allocation.id);
        }
    }
    let windows = windows()?;
    let mut spans: Vec<Occupied> = Vec::new();
    for key in nodes.keys() {
        let Some(Work::Allocate(allocation)) = work(key) else {
            continue;
        };
        let Some(part) = allocation.graph_part() else { continue };
        let place = spans.iter().position(|(span, _)| Arc::ptr_eq(span, &part.span));
        let place = place.unwrap_or_else(|| {
            spans.push((Arc::clone(&part.span), Vec::new()));
            spans.len() - 1
        });
        if !freed.contains(&allocation.id) {
            spans[place].1.push(part.range(windows, allocation));
        }
    }
    Ok(spans)
}

/// What an instantiated graph does with memory.
pub struct Plan {
    /// Its own allocations that it does not free.
    lasting: Vec<Arc<Allocation>>,
    /// What it frees of other graphs.
    foreign: Vec<Arc<Allocation>>,
    /// Where its allocations lie.
    spans: Vec<Arc<Span>>,
    /// Lives as long as the instantiated graph: there is only one.
    _lease: Arc<()>,
}

impl Plan {
    /// The plan of a graph that is being instantiated; `None` if it has no memory nodes. INVALID_VALUE while it is
    /// instantiated already, and with the node if one frees what is not allocated before.
    pub fn of(graph: &Graph) -> Result<Option<Self>, (CuResult, Option<NodeKey>)> {
        if !graph.has_memory() {
            return Ok(None);
        }
        let mut instance = graph.instance();
        if instance.strong_count() > 0 {
            return Err((CuResult::INVALID_VALUE, None));
        }
        let nodes = graph.lock();
        let (mut own, mut foreign) = (HashMap::new(), Vec::new());
        let work = |key| nodes.get(key).map(|content| &content.work);
        for key in nodes.keys() {
            if let Some(Work::Allocate(allocation)) = work(key) {
                own.insert(allocation.id, (key, Arc::clone(allocation)));
            }
        }
        for key in nodes.keys() {
            let Some(Work::Free(allocation)) = work(key) else {
                continue;
            };
            match own.get(&allocation.id) {
                None => foreign.push(Arc::clone(allocation)),
                Some((at, _)) if nodes.ahead_of_all([key]).contains(at) => {}
                Some(_) => return Err((CuResult::INVALID_VALUE, Some(key))),
            }
        }
        let lease = Arc::new(());
        let mut spans: Vec<Arc<Span>> = Vec::new();
        for part in own.values().filter_map(|(_, allocation)| allocation.graph_part()) {
            if !spans.iter().any(|span| Arc::ptr_eq(span, &part.span)) {
                part.span.set_lease(&lease);
                spans.push(Arc::clone(&part.span));
            }
        }
        let is_lasting = |allocation: &Arc<Allocation>| {
            allocation
                .graph_part()
                .is_some_and(|part| !part.is_freed_by_its_graph())
        };
        let lasting = own.into_values().map(|(_, allocation)| allocation);
        *instance = Arc::downgrade(&lease);
        Ok(Some(Self {
            lasting: lasting.filter(is_lasting).collect(),
            foreign,
            spans,
            _lease: lease,
        }))
    }

    /// Prepares a launch in a stream, after the last one, which ended with `last`. INVALID_VALUE while something that
    /// the last launch allocated is not freed, unless `frees_first`, or when what the graph is to free is not there.
    /// OUT_OF_MEMORY when the device has no room.
    pub fn begin(&self, stream: &Stream, last: Option<OpId>, frees_first: bool) -> Answer<Started<'_>> {
        let driver = driver()?;
        let mut pool = memory()?.graph_pool();
        let left: Vec<_> = self.lasting.iter().filter(|lasting| pool.is_live(lasting)).collect();
        let is_missing = self.foreign.iter().any(|foreign| !pool.is_live(foreign));
        if is_missing || !left.is_empty() && !frees_first {
            return Err(CuResult::INVALID_VALUE);
        }
        for allocation in left {
            // As if the program had freed it in this stream.
            let op = stream.submit(Op::Free(Arc::clone(allocation)), &[])?;
            pool.set_freed(allocation, Some((stream.key, op)));
        }
        let bindings = self.bind(driver, &mut pool, stream, last)?;
        Ok(Started {
            plan: self,
            pool,
            bindings,
        })
    }

    fn bind(&self, driver: &Driver, pool: &mut GraphPool, stream: &Stream, last: Option<OpId>) -> Answer<Vec<Binding>> {
        let seen = stream.seen();
        pool.bind(driver, &self.spans, &|key, op| {
            key == stream.key || last == Some(op) || seen.covers(key, op)
        })
    }

    /// Finds memory for the next launch and puts it behind the addresses, in stream order. Answers the operation that
    /// does that.
    pub fn upload(&self, stream: &Stream, last: Option<OpId>) -> Answer<OpId> {
        let driver = driver()?;
        let mut pool = memory()?.graph_pool();
        let bindings = self.bind(driver, &mut pool, stream, last)?;
        let after: Vec<OpId> = last.into_iter().collect();
        let op = stream.submit(Op::Map(bindings.into()), &after)?;
        pool.use_until(&self.spans, stream.key, op);
        Ok(op)
    }
}

/// A launch that has its memory and is about to be submitted. Nobody else changes the memory of graphs meanwhile.
pub struct Started<'a> {
    plan: &'a Plan,
    pool: MutexGuard<'static, GraphPool>,
    bindings: Vec<Binding>,
}

impl Started<'_> {
    /// What the launch begins with.
    pub fn first(&mut self) -> Op {
        match std::mem::take(&mut self.bindings) {
            none if none.is_empty() => Op::Nothing,
            bindings => Op::Map(bindings.into()),
        }
    }

    /// The launch was submitted to a stream and ends with `end`.
    pub fn submitted(mut self, stream: u64, end: OpId) {
        self.pool.use_until(&self.plan.spans, stream, end);
        for allocation in &self.plan.lasting {
            self.pool.set_live(allocation);
        }
        for allocation in &self.plan.foreign {
            self.pool.set_freed(allocation, Some((stream, end)));
        }
    }
}
