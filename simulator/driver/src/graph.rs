// SPDX-License-Identifier: Apache-2.0
//! Graphs: work that is described once and launched often.
//!
//! [`nodes`] is the structure, pure; [`Work`] what a node does, which is also the form in which work is submitted to a
//! stream, so that capturing it needs no second description; [`exec`] an instantiated graph; [`memory`] what nodes
//! allocate; [`user_object`] what a program lets graphs keep. This module ties them to handles. A node's handle
//! ends with the node; handles of another graph's nodes are refused.
//!
//! Lock order: a graph, then the graph inside one of its nodes.

pub mod exec;
pub mod memory;
pub mod nodes;
pub mod user_object;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use partage_abi::types::{CuGraph, CuGraphNode, CuResult};

use self::nodes::{Edge, NodeKey, Nodes};
use self::user_object::Objects;
use crate::context::Context;
use crate::event::Event;
use crate::executor::Op;
use crate::executor::op::{Copy, Fill, HostCall, KernelLaunch, WordStep};
use crate::handles::{HandleKind, Handles};
use crate::memory::{Allocation, memory};
use crate::state::{Answer, driver};

/// Types of nodes as the driver numbers them (`CU_GRAPH_NODE_TYPE_*`).
pub mod kind {
    /// A kernel.
    pub const KERNEL: i32 = 0;
    /// A copy.
    pub const MEMCPY: i32 = 1;
    /// A memory set.
    pub const MEMSET: i32 = 2;
    /// A function of the program.
    pub const HOST: i32 = 3;
    /// A graph.
    pub const GRAPH: i32 = 4;
    /// Nothing.
    pub const EMPTY: i32 = 5;
    /// A wait for an event of outside.
    pub const WAIT_EVENT: i32 = 6;
    /// The recording of an event.
    pub const EVENT_RECORD: i32 = 7;
    /// An allocation.
    pub const MEM_ALLOC: i32 = 10;
    /// A free.
    pub const MEM_FREE: i32 = 11;
    /// Stream memory operations.
    pub const BATCH_MEM_OP: i32 = 12;
}

/// What a node does.
#[derive(Clone)]
pub enum Work {
    /// Launches a kernel.
    Kernel(Box<KernelLaunch>),
    /// Copies, on a context's device if one was named.
    Copy(Box<Copy>, Option<Arc<Context>>),
    /// Sets memory, on a context's device if one was named.
    Fill(Fill, Option<Arc<Context>>),
    /// Calls a function.
    Host(HostCall),
    /// Runs a graph.
    Child(Arc<Graph>),
    /// Does nothing.
    Empty,
    /// Waits for an event recorded outside.
    Wait(Arc<Event>),
    /// Records an event for outside.
    Record(Arc<Event>),
    /// Waits for and writes words.
    Words(Vec<WordStep>),
    /// Allocates memory whose address is known already.
    Allocate(Arc<Allocation>),
    /// Frees memory that a graph allocated.
    Free(Arc<Allocation>),
}

impl Work {
    /// Its type as the driver numbers it.
    pub fn kind(&self) -> i32 {
        match self {
            Self::Kernel(_) => kind::KERNEL,
            Self::Copy(..) => kind::MEMCPY,
            Self::Fill(..) => kind::MEMSET,
            Self::Host(_) => kind::HOST,
            Self::Child(_) => kind::GRAPH,
            Self::Empty => kind::EMPTY,
            Self::Wait(_) => kind::WAIT_EVENT,
            Self::Record(_) => kind::EVENT_RECORD,
            Self::Words(_) => kind::BATCH_MEM_OP,
            Self::Allocate(_) => kind::MEM_ALLOC,
            Self::Free(_) => kind::MEM_FREE,
        }
    }

    /// Whether it allocates or frees.
    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Allocate(_) | Self::Free(_))
    }

    /// The same work for another node: a graph inside is copied.
    pub fn copy(&self) -> Answer<Self> {
        match self {
            Self::Child(graph) => Ok(Self::Child(graph.copy(true)?)),
            other => Ok(other.clone()),
        }
    }

    /// The operation that does it, where it is a single one. A recording is numbered by its event when it is launched.
    pub fn op(&self) -> Option<Op> {
        Some(match self {
            Self::Kernel(launch) => Op::Kernel(launch.clone()),
            Self::Copy(copy, _) => Op::Copy(copy.clone()),
            Self::Fill(fill, _) => Op::Fill(*fill),
            Self::Host(call) => Op::Host(*call),
            Self::Words(steps) => Op::Words(steps.clone()),
            Self::Allocate(allocation) => Op::Allocate(Arc::clone(allocation)),
            Self::Free(allocation) => Op::Free(Arc::clone(allocation)),
            Self::Empty | Self::Wait(_) => Op::Nothing,
            Self::Child(_) | Self::Record(_) => return None,
        })
    }

    /// The context whose device does it, if that is not the stream's.
    pub fn context(&self) -> Option<&Arc<Context>> {
        match self {
            Self::Kernel(launch) => Some(&launch.context),
            Self::Copy(_, context) | Self::Fill(_, context) => context.as_ref(),
            _ => None,
        }
    }
}

static GRAPHS: Handles<Graph> = Handles::new(HandleKind::Graph);
static NODES: Handles<NodeName> = Handles::new(HandleKind::GraphNode);
static NEXT_ID: AtomicU32 = AtomicU32::new(1);
static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

/// A number for a graph or an instantiated graph, unique among both.
fn next_id() -> u32 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// What a node's handle stands for.
pub struct NodeName {
    /// The graph that it is in.
    pub graph: Weak<Graph>,
    /// Which node.
    pub key: NodeKey,
}

/// What a node holds.
#[derive(Clone)]
pub struct Content {
    /// What the program calls it.
    pub handle: CuGraphNode,
    /// What it does.
    pub work: Work,
}

/// One graph.
pub struct Graph {
    /// What the program calls it.
    pub handle: CuGraph,
    /// Unique in the process.
    pub id: u32,
    /// It is the graph inside a child-graph node, which alone may end it.
    is_embedded: bool,
    nodes: Mutex<Nodes<Content>>,
    /// Lives while it is instantiated; only kept of graphs with memory nodes.
    instance: Mutex<Weak<()>>,
    /// What it keeps for the program.
    objects: Mutex<Objects>,
}

impl Graph {
    /// An empty graph.
    pub fn create() -> Answer<Arc<Self>> {
        Self::with(Nodes::default(), false)
    }

    /// An empty graph that is to be inside a node.
    pub fn embedded() -> Answer<Arc<Self>> {
        Self::with(Nodes::default(), true)
    }

    fn with(nodes: Nodes<Content>, is_embedded: bool) -> Answer<Arc<Self>> {
        driver()?;
        let id = next_id();
        let make = |handle| {
            Arc::new(Self {
                handle: CuGraph(handle),
                id,
                is_embedded,
                nodes: Mutex::new(nodes),
                instance: Mutex::default(),
                objects: Mutex::default(),
            })
        };
        GRAPHS.insert_with(make).ok_or(CuResult::OUT_OF_MEMORY)
    }

    /// The graph behind a handle. INVALID_VALUE for one that is null, stale or made up.
    pub fn find(handle: CuGraph) -> Answer<Arc<Self>> {
        driver()?;
        GRAPHS.get(handle.0).ok_or(CuResult::INVALID_VALUE)
    }

    /// Ends the handle of a graph, with those of its nodes. INVALID_VALUE for the graph inside a node.
    pub fn destroy(handle: CuGraph) -> Answer {
        let graph = Self::find(handle)?;
        if graph.is_embedded {
            return Err(CuResult::INVALID_VALUE);
        }
        graph.end();
        Ok(())
    }

    /// The capture that was filling it failed.
    pub fn discard_capture(&self) {
        self.end();
    }

    fn end(&self) {
        GRAPHS.remove(self.handle.0);
        // Not under the lock: memory that ends with its node has locks of its own.
        let contents = self.lock().take_all();
        for (_, content) in contents {
            content.end(self.id);
        }
        let objects = std::mem::take(&mut *self.objects());
        objects.release();
    }

    /// What it keeps for the program.
    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What lives while it is instantiated. Lock before the structure.
    fn instance(&self) -> MutexGuard<'_, Weak<()>> {
        self.instance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its structure.
    pub fn lock(&self) -> MutexGuard<'_, Nodes<Content>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a node after others of this graph.
    pub fn add(self: &Arc<Self>, work: Work, after: &[NodeKey]) -> Answer<NodeKey> {
        let after: Vec<(NodeKey, Edge)> = after.iter().map(|&key| (key, Edge::default())).collect();
        self.add_with_edges(work, &after)
    }

    /// Adds a node after others of this graph, with edge data. INVALID_VALUE if one of them is not there.
    pub fn add_with_edges(self: &Arc<Self>, work: Work, after: &[(NodeKey, Edge)]) -> Answer<NodeKey> {
        let key = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
        let handle = self.name(key)?;
        let added = self.lock().add(key, Content { handle, work }, after);
        if added.is_err() {
            NODES.remove(handle.0);
        }
        added.map(|()| key).map_err(|_| CuResult::INVALID_VALUE)
    }

    fn name(self: &Arc<Self>, key: NodeKey) -> Answer<CuGraphNode> {
        let handle = NODES.insert(Arc::new(NodeName {
            graph: Arc::downgrade(self),
            key,
        }));
        if handle.is_null() {
            Err(CuResult::OUT_OF_MEMORY)
        } else {
            Ok(CuGraphNode(handle))
        }
    }

    /// Removes a node and its edges. INVALID_VALUE if the graph has memory nodes.
    pub fn remove(&self, key: NodeKey) -> Answer {
        self.check_removal()?;
        let removed = self.lock().remove(key);
        if let Some(content) = removed {
            content.end(self.id);
        }
        Ok(())
    }

    /// A copy whose nodes remember which ones they are copies of. NOT_SUPPORTED if the graph has memory nodes.
    pub fn copy(&self, is_embedded: bool) -> Answer<Arc<Self>> {
        self.check_copy()?;
        let originals = self.lock().clone();
        let copy = Self::with(Nodes::default(), is_embedded)?;
        let mut failed = None;
        let nodes = originals.copy(
            || NEXT_KEY.fetch_add(1, Ordering::Relaxed),
            |key, content: &Content| {
                let work = content.work.copy().unwrap_or_else(|code| {
                    failed = Some(code);
                    Work::Empty
                });
                let handle = copy.name(key).unwrap_or_else(|code| {
                    failed = Some(code);
                    CuGraphNode::NULL
                });
                Content { handle, work }
            },
        );
        *copy.lock() = nodes;
        *copy.objects() = self.objects().retained();
        match failed {
            None => Ok(copy),
            Some(code) => {
                copy.end();
                Err(code)
            }
        }
    }

    /// The handle of a node.
    pub fn handle_of(&self, key: NodeKey) -> CuGraphNode {
        self.lock().get(key).map_or(CuGraphNode::NULL, |content| content.handle)
    }

    /// The keys of nodes of this graph by handle. INVALID_VALUE if one is another graph's.
    pub fn keys_of(&self, handles: &[CuGraphNode]) -> Answer<Vec<NodeKey>> {
        handles.iter().map(|&handle| find_in(handle, self)).collect()
    }
}

impl Content {
    /// Ends the handle of a node of this graph, and the graph inside it.
    fn end(&self, graph: u32) {
        NODES.remove(self.handle.0);
        match &self.work {
            Work::Child(graph) => graph.end(),
            // An instantiated graph still frees its own; another graph may free it from now on.
            Work::Free(allocation) if allocation.graph_part().is_some_and(|part| part.graph != graph) => {
                if let Ok(memory) = memory() {
                    memory.forget_free(graph, allocation);
                }
            }
            _ => {}
        }
    }
}

/// The graph and the node behind a node's handle. INVALID_VALUE for one that is null, stale or made up.
pub fn find_node(handle: CuGraphNode) -> Answer<(Arc<Graph>, NodeKey)> {
    driver()?;
    let name = NODES.get(handle.0).ok_or(CuResult::INVALID_VALUE)?;
    let graph = name.graph.upgrade().ok_or(CuResult::INVALID_VALUE)?;
    Ok((graph, name.key))
}

fn find_in(handle: CuGraphNode, graph: &Graph) -> Answer<NodeKey> {
    let (own, key) = find_node(handle)?;
    if own.id == graph.id {
        Ok(key)
    } else {
        Err(CuResult::INVALID_VALUE)
    }
}
