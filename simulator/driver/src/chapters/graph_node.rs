// SPDX-License-Identifier: Apache-2.0
//! Nodes of graphs: adding them, and reading and changing what they do, for each type and in the general form.
//!
//! The parameters of each type are read and written in `graph_work`; adding a node, changing it and changing it in an
//! instantiated graph share that.

use partage_abi::types::*;

use super::copy::describe;
use super::graph_memory::{add_general_allocation, add_general_free};
use super::graph_spot::Spot;
use super::graph_work::*;
use crate::event::Event;
use crate::executor::op::KernelLaunch;
use crate::graph::find_node;
use crate::graph::{Work, kind};
use crate::state::{Answer, code, store};

// ---- adding ---------------------------------------------------------------------------------------------------

pub fn cuGraphAddKernelNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    params: *const CudaKernelNodeParamsV1,
) -> CuResult {
    Spot::new(node, graph, dependencies, count).add(|| kernel(&widen(&read(params)?), None))
}

pub fn cuGraphAddKernelNode_v2(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    params: *const CudaKernelNodeParams,
) -> CuResult {
    Spot::new(node, graph, dependencies, count).add(|| kernel(&read(params)?, None))
}

pub fn cuGraphAddMemcpyNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    params: *const CudaMemcpy3d,
    context: CuContext,
) -> CuResult {
    Spot::new(node, graph, dependencies, count).add(|| copy(&read(params)?, context))
}

pub fn cuGraphAddMemsetNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    params: *const CudaMemsetNodeParams,
    context: CuContext,
) -> CuResult {
    Spot::new(node, graph, dependencies, count).add(|| fill(&read(params)?, context))
}

pub fn cuGraphAddHostNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    params: *const CudaHostNodeParams,
) -> CuResult {
    Spot::new(node, graph, dependencies, count).add(|| host(&read(params)?))
}

pub fn cuGraphAddChildGraphNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    inner: CuGraph,
) -> CuResult {
    Spot::new(node, graph, dependencies, count).add(|| child(inner))
}

pub fn cuGraphAddEmptyNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
) -> CuResult {
    Spot::new(node, graph, dependencies, count).add(|| Ok(Work::Empty))
}

pub fn cuGraphAddEventRecordNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    event: CuEvent,
) -> CuResult {
    Spot::new(node, graph, dependencies, count).add(|| Ok(Work::Record(Event::find(event)?)))
}

pub fn cuGraphAddEventWaitNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    event: CuEvent,
) -> CuResult {
    Spot::new(node, graph, dependencies, count).add(|| Ok(Work::Wait(Event::find(event)?)))
}

pub fn cuGraphAddBatchMemOpNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    params: *const CudaBatchMemOpNodeParams,
) -> CuResult {
    Spot::new(node, graph, dependencies, count).add(|| words(&read(params)?))
}

pub fn cuGraphAddNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    params: *mut CuGraphNodeParams,
) -> CuResult {
    cuGraphAddNode_v2(node, graph, dependencies, std::ptr::null(), count, params)
}

pub fn cuGraphAddNode_v2(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    data: *const CuGraphEdgeData,
    count: usize,
    params: *mut CuGraphNodeParams,
) -> CuResult {
    let spot = Spot {
        node,
        graph,
        dependencies,
        data,
        count,
    };
    let kind = match read(params.cast_const()) {
        Ok(given) => given.kind,
        Err(code) => return code,
    };
    match kind {
        kind::MEM_ALLOC => return add_general_allocation(spot, params),
        kind::MEM_FREE => return add_general_free(spot, params),
        _ => {}
    }
    let added = spot.add(|| general(params, None));
    if added == CuResult::SUCCESS && kind == kind::GRAPH {
        // The parameters name the graph inside the node afterwards, not the one that it was copied from.
        // SAFETY: both were read and written just now.
        return unsafe { cuGraphChildGraphNodeGetGraph(node.read_unaligned(), &raw mut (*params).params.graph.graph) };
    }
    added
}

pub fn cuGraphAddNode_v3(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    data: *const CuGraphEdgeData,
    count: usize,
    params: *mut CuGraphNodeParams,
) -> CuResult {
    cuGraphAddNode_v2(node, graph, dependencies, data, count, params)
}

// ---- reading and changing -------------------------------------------------------------------------------------

/// Asks something of a node's work. INVALID_VALUE if it is of another type: `ask` answers `None`.
fn ask<T>(node: CuGraphNode, ask: impl FnOnce(&Work) -> Option<T>) -> Answer<T> {
    let (graph, key) = find_node(node)?;
    let nodes = graph.lock();
    nodes
        .get(key)
        .and_then(|content| ask(&content.work))
        .ok_or(CuResult::INVALID_VALUE)
}

/// Replaces a node's work by work of the same type.
fn change(node: CuGraphNode, work: impl FnOnce(&Work) -> Answer<Work>) -> CuResult {
    code(find_node(node).and_then(|(graph, key)| {
        let old = graph
            .lock()
            .get(key)
            .map(|content| content.work.clone())
            .ok_or(CuResult::INVALID_VALUE)?;
        let new = work(&old)?;
        if old.kind() != new.kind() {
            return Err(CuResult::INVALID_VALUE);
        }
        if let Some(content) = graph.lock().get_mut(key) {
            content.work = new;
        }
        Ok(())
    }))
}

pub fn cuGraphKernelNodeGetParams(node: CuGraphNode, params: *mut CudaKernelNodeParamsV1) -> CuResult {
    let found = ask(node, |work| launch_of(work).map(describe_kernel));
    code(found.and_then(|found| store(params, narrow(&found))))
}

pub fn cuGraphKernelNodeGetParams_v2(node: CuGraphNode, params: *mut CudaKernelNodeParams) -> CuResult {
    let found = ask(node, |work| launch_of(work).map(describe_kernel));
    code(found.and_then(|found| store(params, found)))
}

pub fn cuGraphKernelNodeSetParams(node: CuGraphNode, params: *const CudaKernelNodeParamsV1) -> CuResult {
    change(node, |old| kernel(&widen(&read(params)?), launch_of(old)))
}

pub fn cuGraphKernelNodeSetParams_v2(node: CuGraphNode, params: *const CudaKernelNodeParams) -> CuResult {
    change(node, |old| kernel(&read(params)?, launch_of(old)))
}

pub fn cuGraphMemcpyNodeGetParams(node: CuGraphNode, params: *mut CudaMemcpy3d) -> CuResult {
    let found = ask(node, |work| match work {
        Work::Copy(copy, _) => Some(describe(copy)),
        _ => None,
    });
    code(found.and_then(|found| store(params, found)))
}

pub fn cuGraphMemcpyNodeSetParams(node: CuGraphNode, params: *const CudaMemcpy3d) -> CuResult {
    change(node, |old| {
        copy(
            &read(params)?,
            old.context().map_or(CuContext::NULL, |context| context.handle),
        )
    })
}

pub fn cuGraphMemsetNodeGetParams(node: CuGraphNode, params: *mut CudaMemsetNodeParams) -> CuResult {
    let found = ask(node, |work| match work {
        Work::Fill(fill, _) => Some(describe_fill(fill)),
        _ => None,
    });
    code(found.and_then(|found| store(params, found)))
}

pub fn cuGraphMemsetNodeSetParams(node: CuGraphNode, params: *const CudaMemsetNodeParams) -> CuResult {
    change(node, |old| {
        fill(
            &read(params)?,
            old.context().map_or(CuContext::NULL, |context| context.handle),
        )
    })
}

pub fn cuGraphHostNodeGetParams(node: CuGraphNode, params: *mut CudaHostNodeParams) -> CuResult {
    let found = ask(node, |work| match work {
        Work::Host(call) => Some(describe_host(call)),
        _ => None,
    });
    code(found.and_then(|found| store(params, found?)))
}

pub fn cuGraphHostNodeSetParams(node: CuGraphNode, params: *const CudaHostNodeParams) -> CuResult {
    change(node, |_| host(&read(params)?))
}

pub fn cuGraphChildGraphNodeGetGraph(node: CuGraphNode, graph: *mut CuGraph) -> CuResult {
    let found = ask(node, |work| match work {
        Work::Child(inner) => Some(inner.handle),
        _ => None,
    });
    code(found.and_then(|found| store(graph, found)))
}

pub fn cuGraphEventRecordNodeGetEvent(node: CuGraphNode, event: *mut CuEvent) -> CuResult {
    let found = ask(node, |work| match work {
        Work::Record(event) => Some(event.handle),
        _ => None,
    });
    code(found.and_then(|found| store(event, found)))
}

pub fn cuGraphEventRecordNodeSetEvent(node: CuGraphNode, event: CuEvent) -> CuResult {
    change(node, |_| Ok(Work::Record(Event::find(event)?)))
}

pub fn cuGraphEventWaitNodeGetEvent(node: CuGraphNode, event: *mut CuEvent) -> CuResult {
    let found = ask(node, |work| match work {
        Work::Wait(event) => Some(event.handle),
        _ => None,
    });
    code(found.and_then(|found| store(event, found)))
}

pub fn cuGraphEventWaitNodeSetEvent(node: CuGraphNode, event: CuEvent) -> CuResult {
    change(node, |_| Ok(Work::Wait(Event::find(event)?)))
}

pub fn cuGraphBatchMemOpNodeGetParams(node: CuGraphNode, params: *mut CudaBatchMemOpNodeParams) -> CuResult {
    let found = ask(node, |work| match work {
        Work::Words(steps) => Some(describe_words(steps)),
        _ => None,
    });
    code(found.and_then(|found| store(params, found)))
}

pub fn cuGraphBatchMemOpNodeSetParams(node: CuGraphNode, params: *const CudaBatchMemOpNodeParams) -> CuResult {
    change(node, |_| words(&read(params)?))
}

pub fn cuGraphNodeSetParams(node: CuGraphNode, params: *mut CuGraphNodeParams) -> CuResult {
    change(node, |old| general(params, launch_of(old)))
}

pub fn cuGraphNodeSetParams_v2(node: CuGraphNode, params: *mut CuGraphNodeParams) -> CuResult {
    cuGraphNodeSetParams(node, params)
}

// ---- attributes of kernel nodes -------------------------------------------------------------------------------

/// `CU_LAUNCH_ATTRIBUTE_*` that are kept with a kernel node.
const COOPERATIVE: i32 = 2;
const PRIORITY: i32 = 8;

pub fn cuGraphKernelNodeGetAttribute(
    node: CuGraphNode,
    attribute: c_int,
    value: *mut CuLaunchAttributeValue,
) -> CuResult {
    let found = ask(node, |work| {
        launch_of(work).map(|launch| (launch.is_cooperative, launch.priority.unwrap_or(0)))
    });
    code(found.and_then(|(is_cooperative, priority)| match attribute {
        COOPERATIVE => store(
            value,
            CuLaunchAttributeValue {
                cooperative: c_int::from(is_cooperative),
            },
        ),
        PRIORITY => store(value, CuLaunchAttributeValue { priority }),
        _ => Err(CuResult::NOT_SUPPORTED),
    }))
}

pub fn cuGraphKernelNodeSetAttribute(
    node: CuGraphNode,
    attribute: c_int,
    value: *const CuLaunchAttributeValue,
) -> CuResult {
    change(node, |old| {
        let mut launch = launch_of(old).ok_or(CuResult::INVALID_VALUE)?.clone();
        let value = read(value)?;
        // SAFETY: the number says which member is meant; all are plain data.
        unsafe {
            match attribute {
                COOPERATIVE => launch.is_cooperative = value.cooperative != 0,
                PRIORITY => launch.priority = Some(value.priority),
                _ => return Err(CuResult::NOT_SUPPORTED),
            }
        }
        Ok(Work::Kernel(Box::new(launch)))
    })
}

pub fn cuGraphKernelNodeCopyAttributes(to: CuGraphNode, from: CuGraphNode) -> CuResult {
    let found = ask(from, |work| {
        launch_of(work).map(|launch| (launch.is_cooperative, launch.priority))
    });
    match found {
        Err(code) => code,
        Ok((is_cooperative, priority)) => change(to, |old| {
            let launch = launch_of(old).ok_or(CuResult::INVALID_VALUE)?.clone();
            Ok(Work::Kernel(Box::new(KernelLaunch {
                is_cooperative,
                priority,
                ..launch
            })))
        }),
    }
}
