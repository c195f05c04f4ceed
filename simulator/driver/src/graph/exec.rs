// SPDX-License-Identifier: Apache-2.0
//! Instantiated graphs: a fixed shape whose parameters can be changed, launched as if it were one operation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use partage_abi::types::{CuGraphExec, CuResult};

use super::memory::{Plan, Started};
use super::nodes::NodeKey;
use super::user_object::Objects;
use super::{Graph, Work, next_id};
use crate::context::Context;
use crate::event::Event;
use crate::executor::pool::Task;
use crate::executor::workers::{GraphTask, submit_graph};
use crate::executor::{Op, OpId};
use crate::handles::{HandleKind, Handles};
use crate::state::{Answer, driver};
use crate::stream::Stream;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
pub const AUTO_FREE_ON_LAUNCH: u64 = 1;

static EXECS: Handles<Exec> = Handles::new(HandleKind::GraphExec);

/// One node of an instantiated graph.
pub struct ExecNode {
    /// The node that it was made from.
    pub origin: NodeKey,
    /// What it does.
    pub work: ExecWork,
    /// Indices of the nodes that it waits for.
    pub after: Vec<usize>,
    /// Whether it does anything (`cuGraphNodeSetEnabled`).
    pub is_enabled: bool,
}

/// What a node of an instantiated graph does.
pub enum ExecWork {
    /// The same as the original.
    Plain(Work),
    /// The nodes of the graph inside.
    Child(Vec<ExecNode>),
}

/// Why an instantiated graph cannot take on another graph's parameters (`CU_GRAPH_EXEC_UPDATE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The driver's number for the reason.
    pub reason: i32,
    /// The node of the new graph, if it is one node's.
    pub node: Option<NodeKey>,
}

/// `CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED`.
const TOPOLOGY_CHANGED: i32 = 2;
/// `CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED`.
const NODE_TYPE_CHANGED: i32 = 3;
/// `CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED`.
const UPDATE_NOT_SUPPORTED: i32 = 6;
/// `CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE`.
const UNSUPPORTED_FUNCTION_CHANGE: i32 = 7;

/// One instantiated graph.
pub struct Exec {
    /// What the program calls it; null for one that only a stream launch uses.
    pub handle: CuGraphExec,
    /// Unique in the process, among graphs too.
    pub id: u32,
    /// As instantiated.
    pub flags: u64,
    nodes: Mutex<Vec<ExecNode>>,
    /// What it does with memory, if it has memory nodes.
    memory: Option<Plan>,
    /// The operation that ends the last launch: an instantiated graph does not run beside itself.
    last: Mutex<Option<OpId>>,
    /// What it keeps for the program, as the graph did when it was instantiated.
    objects: Mutex<Objects>,
}

impl Exec {
    /// Instantiates a graph without a handle. INVALID_VALUE if it has a cycle.
    pub fn of(graph: &Graph, flags: u64) -> Answer<Self> {
        let nodes = Mutex::new(instantiate(graph).map_err(|_| CuResult::INVALID_VALUE)?);
        Ok(Self {
            handle: CuGraphExec::NULL,
            id: next_id(),
            flags,
            nodes,
            memory: Plan::of(graph).map_err(|(code, _)| code)?,
            last: Mutex::default(),
            objects: Mutex::default(),
        })
    }

    /// Instantiates a graph. INVALID_VALUE and a node of it if it has a cycle, or frees what is not allocated before;
    /// INVALID_VALUE if it has memory nodes and is instantiated already.
    pub fn create(graph: &Graph, flags: u64) -> Result<Arc<Self>, (CuResult, Option<NodeKey>)> {
        let nodes = instantiate(graph).map_err(|node| (CuResult::INVALID_VALUE, Some(node)))?;
        let memory = Plan::of(graph)?;
        let objects = Mutex::new(graph.objects().retained());
        let make = |handle| {
            let (handle, nodes) = (CuGraphExec(handle), Mutex::new(nodes));
            Arc::new(Self {
                handle,
                id: next_id(),
                flags,
                nodes,
                memory,
                last: Mutex::default(),
                objects,
            })
        };
        EXECS.insert_with(make).ok_or((CuResult::OUT_OF_MEMORY, None))
    }

    /// The instantiated graph behind a handle. INVALID_VALUE for one that is null, stale or made up.
    pub fn find(handle: CuGraphExec) -> Answer<Arc<Self>> {
        driver()?;
        EXECS.get(handle.0).ok_or(CuResult::INVALID_VALUE)
    }

    /// Ends the handle; launches under way go on.
    pub fn destroy(handle: CuGraphExec) -> Answer {
        driver()?;
        let gone = EXECS.remove(handle.0).ok_or(CuResult::INVALID_VALUE)?;
        let objects = std::mem::take(&mut *gone.objects());
        objects.release();
        Ok(())
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ExecNode>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the node that was made from a node of the graph, also of a graph inside it. INVALID_VALUE if there is
    /// none.
    pub fn with_node<T>(&self, origin: NodeKey, work: impl FnOnce(&mut ExecNode) -> Answer<T>) -> Answer<T> {
        let mut nodes = self.lock();
        work(find_node(&mut nodes, origin).ok_or(CuResult::INVALID_VALUE)?)
    }

    /// Takes on the parameters of a graph of the same shape.
    pub fn update(&self, graph: &Graph) -> Result<(), Refusal> {
        let whole = Refusal {
            reason: TOPOLOGY_CHANGED,
            node: None,
        };
        let new = instantiate(graph).map_err(|node| Refusal {
            node: Some(node),
            ..whole
        })?;
        let mut nodes = self.lock();
        check_shape(&nodes, &new)?;
        take_over(&mut nodes, new);
        drop(nodes);
        let former = std::mem::replace(&mut *self.objects(), graph.objects().retained());
        former.release();
        Ok(())
    }

    /// Puts a graph of the same shape in place of the one inside a node. Its type is refused with GRAPH_EXEC_UPDATE.
    pub fn set_child(&self, origin: NodeKey, graph: &Graph) -> Answer {
        let new = instantiate(graph).map_err(|_| CuResult::INVALID_VALUE)?;
        self.with_node(origin, |node| match &mut node.work {
            ExecWork::Child(nodes) => {
                check_shape(nodes, &new).map_err(|_| CuResult::INVALID_VALUE)?;
                take_over(nodes, new);
                Ok(())
            }
            ExecWork::Plain(_) => Err(CuResult::INVALID_VALUE),
        })
    }

    /// A graph that does the same, for a node of another graph. It belongs to that node. NOT_SUPPORTED with memory
    /// nodes.
    pub fn to_graph(&self) -> Answer<Arc<Graph>> {
        if self.memory.is_some() {
            return Err(CuResult::NOT_SUPPORTED);
        }
        let graph = Graph::embedded()?;
        fill(&graph, &self.lock())?;
        Ok(graph)
    }

    /// Finds memory for the next launch and puts it in place, in stream order.
    pub fn upload(&self, stream: &Arc<Stream>) -> Answer {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.memory {
            None => stream.submit(Op::Nothing, &[]).map(drop),
            Some(plan) => {
                // A launch in another stream comes after it too.
                *last = Some(plan.upload(stream, *last)?);
                Ok(())
            }
        }
    }

    /// Submits all of it to a stream that is not captured. INVALID_VALUE and OUT_OF_MEMORY as [`Plan::begin`] says.
    pub fn launch(&self, stream: &Arc<Stream>) -> Answer {
        let context = stream.context()?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let frees_first = self.flags & AUTO_FREE_ON_LAUNCH != 0;
        let started = self.memory.as_ref().map(|plan| plan.begin(stream, *last, frees_first));
        let mut started = started.transpose()?;
        let mut tasks = Vec::new();
        let mut records = Vec::new();
        let mut launch = Launch {
            context: &context,
            priority: stream.priority,
            tasks: &mut tasks,
            records: &mut records,
        };
        launch.add_all(&self.lock(), &[]);
        let ends = |op| Task {
            context: Arc::clone(&context),
            op,
            priority: stream.priority,
        };
        let after: Vec<OpId> = last.iter().copied().collect();
        let first = started.as_mut().map_or(Op::Nothing, Started::first);
        let kept = self.objects().retained();
        let finish = match kept.is_empty() {
            true => Op::Nothing,
            false => Op::LetGo(Arc::new(Mutex::new(kept))),
        };
        let (ops, end) = submit_graph(stream.lane(), ends(first), tasks, ends(finish), &after);
        *last = Some(end);
        if let Some(started) = started {
            started.submitted(stream.key, end);
        }
        for (event, recording, index) in records {
            event.set_op(recording, ops[index]);
        }
        Ok(())
    }
}

/// The tasks of one launch as they are gathered.
struct Launch<'a> {
    context: &'a Arc<Context>,
    priority: i32,
    tasks: &'a mut Vec<GraphTask>,
    records: &'a mut Vec<(Arc<Event>, u64, usize)>,
}

impl Launch<'_> {
    /// Adds the nodes of a graph, all after `first`. Returns the tasks that end them.
    fn add_all(&mut self, nodes: &[ExecNode], first: &[usize]) -> Vec<usize> {
        let mut ends: Vec<Vec<usize>> = Vec::with_capacity(nodes.len());
        for node in nodes {
            let after: Vec<usize> = match node.after[..] {
                [] => first.to_vec(),
                _ => node.after.iter().flat_map(|&index| ends[index].clone()).collect(),
            };
            ends.push(self.add(node, after));
        }
        ends.into_iter().flatten().collect()
    }

    fn add(&mut self, node: &ExecNode, after: Vec<usize>) -> Vec<usize> {
        let work = match &node.work {
            ExecWork::Child(nodes) if !nodes.is_empty() && node.is_enabled => return self.add_all(nodes, &after),
            ExecWork::Child(_) => &Work::Empty,
            ExecWork::Plain(work) if node.is_enabled => work,
            ExecWork::Plain(_) => &Work::Empty,
        };
        let index = self.tasks.len();
        let context = Arc::clone(work.context().unwrap_or(self.context));
        let (op, outside) = match work {
            Work::Record(event) => {
                let recording = event.begin_recording();
                self.records.push((Arc::clone(event), recording, index));
                (
                    Op::Record {
                        event: Arc::clone(event),
                        recording,
                    },
                    Vec::new(),
                )
            }
            Work::Wait(event) => Op::after(event),
            other => (other.op().unwrap_or(Op::Nothing), Vec::new()),
        };
        self.tasks.push(GraphTask {
            task: Task {
                context,
                op,
                priority: self.priority,
            },
            after,
            outside,
        });
        vec![index]
    }
}

/// The nodes of a graph in an order that can be run; a node of a cycle if there is one.
fn instantiate(graph: &Graph) -> Result<Vec<ExecNode>, NodeKey> {
    let nodes = graph.lock();
    let order = nodes.order()?;
    let place = |key: NodeKey| order.iter().position(|&other| other == key).unwrap_or(0);
    let mut made = Vec::with_capacity(order.len());
    for &key in &order {
        let Some(content) = nodes.get(key) else { continue };
        let work = match &content.work {
            Work::Child(inner) => ExecWork::Child(instantiate(inner)?),
            other => ExecWork::Plain(other.clone()),
        };
        let after = nodes.parents(key).into_iter().map(place).collect();
        made.push(ExecNode {
            origin: key,
            work,
            after,
            is_enabled: true,
        });
    }
    Ok(made)
}

/// Adds nodes that do the same to a graph.
fn fill(graph: &Arc<Graph>, nodes: &[ExecNode]) -> Answer {
    let mut keys = Vec::with_capacity(nodes.len());
    for node in nodes {
        let work = match &node.work {
            ExecWork::Child(nodes) => {
                let inner = Graph::embedded()?;
                fill(&inner, nodes)?;
                Work::Child(inner)
            }
            ExecWork::Plain(work) if node.is_enabled => work.clone(),
            ExecWork::Plain(_) => Work::Empty,
        };
        let after: Vec<NodeKey> = node.after.iter().map(|&index| keys[index]).collect();
        keys.push(graph.add(work, &after)?);
    }
    Ok(())
}

fn find_node(nodes: &mut [ExecNode], origin: NodeKey) -> Option<&mut ExecNode> {
    for node in nodes {
        if node.origin == origin {
            return Some(node);
        }
        if let ExecWork::Child(inner) = &mut node.work
            && let Some(found) = find_node(inner, origin)
        {
            return Some(found);
        }
    }
    None
}

fn check_shape(old: &[ExecNode], new: &[ExecNode]) -> Result<(), Refusal> {
    let whole = Refusal {
        reason: TOPOLOGY_CHANGED,
        node: None,
    };
    if old.len() != new.len() {
        return Err(whole);
    }
    for (old, new) in old.iter().zip(new) {
        let here = Refusal {
            node: Some(new.origin),
            ..whole
        };
        if old.after != new.after {
            return Err(here);
        }
        match (&old.work, &new.work) {
            (ExecWork::Child(old), ExecWork::Child(new)) => check_shape(old, new)?,
            (ExecWork::Plain(old), ExecWork::Plain(new)) if old.kind() != new.kind() => {
                return Err(Refusal {
                    reason: NODE_TYPE_CHANGED,
                    ..here
                });
            }
            (ExecWork::Plain(Work::Kernel(old)), ExecWork::Plain(Work::Kernel(new)))
                if old.context.id != new.context.id =>
            {
                return Err(Refusal {
                    reason: UNSUPPORTED_FUNCTION_CHANGE,
                    ..here
                });
            }
            // The memory of an instantiated graph is that of the graph it was made from.
            (
                ExecWork::Plain(Work::Allocate(old) | Work::Free(old)),
                ExecWork::Plain(Work::Allocate(new) | Work::Free(new)),
            ) if old.id != new.id => {
                return Err(Refusal {
                    reason: UPDATE_NOT_SUPPORTED,
                    ..here
                });
            }
            (ExecWork::Plain(_), ExecWork::Plain(_)) => {}
            _ => {
                return Err(Refusal {
                    reason: NODE_TYPE_CHANGED,
                    ..here
                });
            }
        }
    }
    Ok(())
}

/// Gives the nodes the work of others of the same shape. They keep their origin: handles of the first graph stay
/// valid for later changes, as the manual says.
fn take_over(old: &mut [ExecNode], new: Vec<ExecNode>) {
    for (old, new) in old.iter_mut().zip(new) {
        match (&mut old.work, new.work) {
            (ExecWork::Child(old), ExecWork::Child(new)) => take_over(old, new),
            (old, new) => *old = new,
        }
    }
}
