// SPDX-License-Identifier: Apache-2.0
//! Nodes of graphs: adding them, and reading and changing what they do, for each type and in the general form.
//!
//! Each type has one way from the vendor's parameters to [`Work`] and one back; adding a node, changing it and
//! changing it in an instantiated graph share them.

use std::cell::RefCell;
use std::sync::Arc;

use partage_abi::types::*;

use super::copy::{describe, volume};
use super::flavours::answer;
use super::graph::{edges_from, nodes_from};
use super::stream::steps;
use crate::event::Event;
use crate::executor::op::words::Until;
use crate::executor::op::{Fill, HostCall, KernelLaunch, WordStep};
use crate::graph::nodes::{Edge, NodeKey};
use crate::graph::work::{Work, kind};
use crate::graph::{Graph, find_node};
use crate::launch::{Given, Shape, Wishes, prepare};
use crate::state::{Answer, Context, code, current, driver, store};

fn read<T: Copy>(from: *const T) -> Answer<T> {
    if from.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: not null, and by the entry point's contract a value of the vendor's type; it need not be aligned.
    Ok(unsafe { from.read_unaligned() })
}

fn context_of(handle: CuContext) -> Answer<Arc<Context>> {
    if handle.is_null() {
        current()
    } else {
        driver()?.context(handle)
    }
}

// ---- kernels --------------------------------------------------------------------------------------------------

/// The parameters of the first ABI in the form of the second.
pub(super) fn widen(params: &CudaKernelNodeParamsV1) -> CudaKernelNodeParams {
    CudaKernelNodeParams {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
        ..CudaKernelNodeParams::default()
    }
}

fn widen_v3(params: &CudaKernelNodeParamsV3) -> CudaKernelNodeParams {
    CudaKernelNodeParams {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
        kern: params.kern,
        ctx: params.ctx,
    }
}

/// A kernel node's work. `old` is what the node did before: settings that the parameters do not hold stay.
pub(super) fn kernel(params: &CudaKernelNodeParams, old: Option<&KernelLaunch>) -> Answer<Work> {
    // A kernel may be named in either field; where both are empty there is nothing to launch.
    let function = if params.func.is_null() {
        CuFunction(params.kern.0)
    } else {
        params.func
    };
    if function.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    let context = match old {
        Some(old) if params.ctx.is_null() => Arc::clone(&old.context),
        _ => function_context(function, params.ctx)?,
    };
    let shape = Shape {
        grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
        block: [params.blockDimX, params.blockDimY, params.blockDimZ],
        shared: params.sharedMemBytes,
    };
    let wishes = Wishes {
        is_cooperative: old.is_some_and(|old| old.is_cooperative),
        priority: old.and_then(|old| old.priority),
        ..Wishes::default()
    };
    let given = Given {
        params: params.kernelParams,
        extra: params.extra,
    };
    Ok(Work::Kernel(Box::new(prepare(
        &context, function, shape, given, wishes,
    )?)))
}

/// The context that a kernel node works in: the one named, else the function's own, else the current one.
fn function_context(function: CuFunction, named: CuContext) -> Answer<Arc<Context>> {
    if !named.is_null() {
        return driver()?.context(named);
    }
    match crate::function::lookup(function)?.context() {
        Some(context) => Ok(context),
        None => current(),
    }
}

/// Pointers to parameters, and what keeps their values alive.
type Answered = (Vec<*mut c_void>, Option<Arc<[u8]>>);

thread_local! {
    /// The parameters that the last question about a kernel node answered: the driver owns them. The launch keeps the
    /// values alive that the pointers lead to.
    static ANSWERED: RefCell<Answered> = const { RefCell::new((Vec::new(), None)) };
}

fn describe_kernel(launch: &KernelLaunch) -> CudaKernelNodeParams {
    let params = ANSWERED.with_borrow_mut(|(pointers, values)| {
        let base = launch.arguments.as_ptr();
        let place = |offset: u32| base.wrapping_add(offset as usize).cast_mut().cast();
        *pointers = launch
            .function
            .parameters()
            .iter()
            .map(|parameter| place(parameter.offset))
            .collect();
        *values = Some(Arc::clone(&launch.arguments));
        pointers.as_mut_ptr()
    });
    CudaKernelNodeParams {
        func: launch.function.handle(),
        gridDimX: launch.grid[0],
        gridDimY: launch.grid[1],
        gridDimZ: launch.grid[2],
        blockDimX: launch.block[0],
        blockDimY: launch.block[1],
        blockDimZ: launch.block[2],
        sharedMemBytes: launch.shared,
        kernelParams: params,
        extra: std::ptr::null_mut(),
        kern: CuKernel::NULL,
        ctx: launch.context.handle,
    }
}

fn narrow(params: &CudaKernelNodeParams) -> CudaKernelNodeParamsV1 {
    CudaKernelNodeParamsV1 {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
    }
}

// ---- the other types ------------------------------------------------------------------------------------------

pub(super) fn copy(params: &CudaMemcpy3d, context: CuContext) -> Answer<Work> {
    let context = context_of(context)?;
    let copy = volume(params)?;
    if copy.is_empty() {
        return Err(CuResult::INVALID_VALUE);
    }
    copy.check()?;
    Ok(Work::Copy(Box::new(copy), Some(context)))
}

pub(super) fn fill(params: &CudaMemsetNodeParams, context: CuContext) -> Answer<Work> {
    let context = context_of(context)?;
    let fill = Fill {
        address: params.dst,
        pitch: params.pitch as u64,
        value: params.value,
        element: u64::from(params.elementSize),
        width: params.width as u64,
        height: params.height as u64,
    };
    if fill.width == 0 || fill.height == 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    fill.check()?;
    Ok(Work::Fill(fill, Some(context)))
}

fn describe_fill(fill: &Fill) -> CudaMemsetNodeParams {
    CudaMemsetNodeParams {
        dst: fill.address,
        pitch: fill.pitch as usize,
        value: fill.value,
        elementSize: fill.element as u32,
        width: fill.width as usize,
        height: fill.height as usize,
    }
}

pub(super) fn host(params: &CudaHostNodeParams) -> Answer<Work> {
    let function = params.function.ok_or(CuResult::INVALID_VALUE)?;
    Ok(Work::Host(HostCall::Function {
        function,
        data: params.userData,
    }))
}

fn describe_host(call: &HostCall) -> Answer<CudaHostNodeParams> {
    match *call {
        HostCall::Function { function, data } => Ok(CudaHostNodeParams {
            function: Some(function),
            userData: data,
        }),
        HostCall::Callback { .. } => Err(CuResult::INVALID_VALUE),
    }
}

fn child(graph: CuGraph) -> Answer<Work> {
    Ok(Work::Child(Graph::find(graph)?.copy(true)?))
}

pub(super) fn words(params: &CudaBatchMemOpNodeParams) -> Answer<Work> {
    context_of(params.ctx)?;
    Ok(Work::Words(steps(params.count, params.paramArray, params.flags)?))
}

thread_local! {
    /// The steps that the last question about a node of memory operations answered.
    static STEPS: RefCell<Vec<CuStreamBatchMemOpParams>> = const { RefCell::new(Vec::new()) };
}

fn describe_words(steps: &[WordStep]) -> CudaBatchMemOpNodeParams {
    let described = steps.iter().map(|step| match *step {
        WordStep::Wait {
            address,
            value,
            bytes,
            until,
        } => CuStreamBatchMemOpParams {
            waitValue: CuStreamBatchMemOpParamsWaitValue {
                operation: if bytes == 4 { 1 } else { 4 },
                address,
                value: CuStreamBatchMemOpParamsWaitValueValue { value64: value },
                flags: match until {
                    Until::AtLeast => 0,
                    Until::Equal => 1,
                    Until::And => 2,
                    Until::Nor => 3,
                },
                alias: 0,
            },
        },
        WordStep::Write { address, value, bytes } => CuStreamBatchMemOpParams {
            writeValue: CuStreamBatchMemOpParamsWriteValue {
                operation: if bytes == 4 { 2 } else { 5 },
                address,
                value: CuStreamBatchMemOpParamsWriteValueValue { value64: value },
                flags: 0,
                alias: 0,
            },
        },
        WordStep::Fence => CuStreamBatchMemOpParams { operation: 6 },
    });
    let list: Vec<_> = described.collect();
    let count = list.len() as u32;
    let array = STEPS.with_borrow_mut(|kept| {
        *kept = list;
        kept.as_mut_ptr()
    });
    CudaBatchMemOpNodeParams {
        ctx: CuContext::NULL,
        count,
        paramArray: array,
        flags: 0,
    }
}

// ---- adding ---------------------------------------------------------------------------------------------------

/// Where a new node goes.
struct Spot {
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    data: *const CuGraphEdgeData,
    count: usize,
}

impl Spot {
    fn new(node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, count: usize) -> Self {
        Self {
            node,
            graph,
            dependencies,
            data: std::ptr::null(),
            count,
        }
    }

    fn add(self, work: impl FnOnce() -> Answer<Work>) -> CuResult {
        answer(|| {
            if self.node.is_null() {
                return Err(CuResult::INVALID_VALUE);
            }
            let graph = Graph::find(self.graph)?;
            let ahead = nodes_from(&graph, self.dependencies, self.count)?;
            let edges = edges_from(self.data, self.count)?;
            let after: Vec<(NodeKey, Edge)> = ahead.into_iter().zip(edges).collect();
            let key = graph.add_with_edges(work()?, &after)?;
            store(self.node, graph.handle_of(key))
        })
    }
}

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

/// The work of the general form. NOT_SUPPORTED for types that are not built: semaphores, allocations, conditions.
pub(super) fn general(params: *const CuGraphNodeParams, old: Option<&KernelLaunch>) -> Answer<Work> {
    let given = read(params)?;
    // SAFETY: the kind says which member is meant; all are plain data.
    unsafe {
        match given.kind {
            kind::KERNEL => kernel(&widen_v3(&given.params.kernel), old),
            kind::MEMCPY => copy(&given.params.memcpy.copyParams, given.params.memcpy.copyCtx),
            kind::MEMSET => {
                let set = given.params.memset;
                let (dst, pitch, value) = (set.dst, set.pitch, set.value);
                let (elementSize, width, height) = (set.elementSize, set.width, set.height);
                fill(
                    &CudaMemsetNodeParams {
                        dst,
                        pitch,
                        value,
                        elementSize,
                        width,
                        height,
                    },
                    set.ctx,
                )
            }
            kind::HOST => {
                let call = given.params.host;
                host(&CudaHostNodeParams {
                    function: call.function,
                    userData: call.userData,
                })
            }
            kind::GRAPH => child(given.params.graph.graph),
            kind::EMPTY => Ok(Work::Empty),
            kind::WAIT_EVENT => Ok(Work::Wait(Event::find(given.params.eventWait.event)?)),
            kind::EVENT_RECORD => Ok(Work::Record(Event::find(given.params.eventRecord.event)?)),
            kind::BATCH_MEM_OP => {
                let CudaBatchMemOpNodeParamsV2 {
                    ctx,
                    count,
                    paramArray,
                    flags,
                } = given.params.memOp;
                words(&CudaBatchMemOpNodeParams {
                    ctx,
                    count,
                    paramArray,
                    flags,
                })
            }
            8..=15 => Err(CuResult::NOT_SUPPORTED),
            _ => Err(CuResult::INVALID_VALUE),
        }
    }
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
    let added = spot.add(|| general(params, None));
    let is_child = added == CuResult::SUCCESS && read(params.cast_const()).is_ok_and(|given| given.kind == kind::GRAPH);
    if is_child {
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

/// The launch in a kernel node's work.
pub(super) fn launch_of(work: &Work) -> Option<&KernelLaunch> {
    match work {
        Work::Kernel(launch) => Some(launch),
        _ => None,
    }
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
