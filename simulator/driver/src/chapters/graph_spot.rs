// SPDX-License-Identifier: Apache-2.0
//! Where a call adds a node to a graph.

use std::sync::Arc;

use partage_abi::types::*;

use super::flavours::answer;
use super::graph::{edges_from, nodes_from};
use crate::graph::nodes::{Edge, NodeKey};
use crate::graph::{Graph, Work};
use crate::state::{Answer, store};

/// Where a new node goes.
pub(super) struct Spot {
    /// Told the node's handle.
    pub(super) node: *mut CuGraphNode,
    /// In this graph.
    pub(super) graph: CuGraph,
    /// After these nodes.
    pub(super) dependencies: *const CuGraphNode,
    /// Of the edges from them; null for plain ones.
    pub(super) data: *const CuGraphEdgeData,
    /// How many they are.
    pub(super) count: usize,
}

impl Spot {
    /// As most calls name it: without data for the edges.
    pub(super) fn new(node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, count: usize) -> Self {
        Self {
            node,
            graph,
            dependencies,
            data: std::ptr::null(),
            count,
        }
    }

    /// Adds a node that does `work`.
    pub(super) fn add(self, work: impl FnOnce() -> Answer<Work>) -> CuResult {
        self.add_with(|graph, after| graph.add_with_edges(work()?, after))
    }

    /// Adds a node in a way of its own: with the graph, and what it comes after.
    pub(super) fn add_with(self, add: impl FnOnce(&Arc<Graph>, &[(NodeKey, Edge)]) -> Answer<NodeKey>) -> CuResult {
        answer(|| {
            if self.node.is_null() {
                return Err(CuResult::INVALID_VALUE);
            }
            let graph = Graph::find(self.graph)?;
            let ahead = nodes_from(&graph, self.dependencies, self.count)?;
            let edges = edges_from(self.data, self.count)?;
            let after: Vec<(NodeKey, Edge)> = ahead.into_iter().zip(edges).collect();
            let key = add(&graph, &after)?;
            store(self.node, graph.handle_of(key))
        })
    }
}
