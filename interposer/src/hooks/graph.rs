// SPDX-License-Identifier: Apache-2.0
//! Graphs that allocate: found when they are instantiated, charged when they are launched.
//!
//! No graph is looked at before a call has made, or captured, an allocation node in this process.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_char, c_int, c_ulonglong, c_void};
use core::sync::atomic::Ordering;

use partage_abi::types::*;
use partage_abi::values::*;
use partage_records::graph::{self, Block, Needs};

use crate::gate;
use crate::guest::errno;
use crate::guest::sys;
use crate::marks;
use crate::memory::pools::table;
use crate::memory::pools::{self, Source};
use crate::real::Library;
use crate::real::call;
use crate::state::{self, State};
use crate::stream::{StreamName, is_captured};

/// Child graphs in child graphs are looked at this deep.
const DEEPEST: u32 = 16;

/// This process's state, if a graph with allocations may exist.
fn with_graph_memory() -> Option<&'static State> {
    state::get().filter(|state| table::pools(state).graph_memory.load(Ordering::Relaxed) != 0)
}

fn allocation_node_comes() {
    if let Some(state) = state::get() {
        table::pools(state).graph_memory.store(1, Ordering::Relaxed);
    }
}

pub fn cuGraphAddMemAllocNode(
    real: &Library,
    graph_node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    num_dependencies: usize,
    node_params: *mut CudaMemAllocNodeParams,
) -> CuResult {
    allocation_node_comes();
    call!(
        real,
        cuGraphAddMemAllocNode(graph_node, graph, dependencies, num_dependencies, node_params)
    )
}

pub fn cuGraphAddNode(
    real: &Library,
    graph_node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    num_dependencies: usize,
    node_params: *mut CuGraphNodeParams,
) -> CuResult {
    node_comes(node_params);
    call!(
        real,
        cuGraphAddNode(graph_node, graph, dependencies, num_dependencies, node_params)
    )
}

pub fn cuGraphAddNode_v2(
    real: &Library,
    graph_node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    dependency_data: *const CuGraphEdgeData,
    num_dependencies: usize,
    node_params: *mut CuGraphNodeParams,
) -> CuResult {
    node_comes(node_params);
    call!(
        real,
        cuGraphAddNode_v2(
            graph_node,
            graph,
            dependencies,
            dependency_data,
            num_dependencies,
            node_params
        )
    )
}

pub fn cuGraphAddNode_v3(
    real: &Library,
    graph_node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    dependency_data: *const CuGraphEdgeData,
    num_dependencies: usize,
    node_params: *mut CuGraphNodeParams,
) -> CuResult {
    node_comes(node_params);
    call!(
        real,
        cuGraphAddNode_v3(
            graph_node,
            graph,
            dependencies,
            dependency_data,
            num_dependencies,
            node_params
        )
    )
}

fn node_comes(node_params: *mut CuGraphNodeParams) {
    // SAFETY: by the contract of the entry point null or parameters; only their first word is read.
    if !node_params.is_null() && unsafe { (&raw const (*node_params).kind).read() } == CU_GRAPH_NODE_TYPE_MEM_ALLOC {
        allocation_node_comes();
    }
}

// ---- making ------------------------------------------------------------------------------------------------------

pub fn cuGraphInstantiate(
    real: &Library,
    graph_exec: *mut CuGraphExec,
    graph: CuGraph,
    error_node: *mut CuGraphNode,
    log_buffer: *mut c_char,
    buffer_size: usize,
) -> CuResult {
    instantiate(real, graph_exec, graph, false, &|| {
        call!(
            real,
            cuGraphInstantiate(graph_exec, graph, error_node, log_buffer, buffer_size)
        )
    })
}

pub fn cuGraphInstantiate_v2(
    real: &Library,
    graph_exec: *mut CuGraphExec,
    graph: CuGraph,
    error_node: *mut CuGraphNode,
    log_buffer: *mut c_char,
    buffer_size: usize,
) -> CuResult {
    instantiate(real, graph_exec, graph, false, &|| {
        call!(
            real,
            cuGraphInstantiate_v2(graph_exec, graph, error_node, log_buffer, buffer_size)
        )
    })
}

pub fn cuGraphInstantiateWithFlags(
    real: &Library,
    graph_exec: *mut CuGraphExec,
    graph: CuGraph,
    flags: c_ulonglong,
) -> CuResult {
    // Without a stream there is nothing to upload in.
    instantiate(real, graph_exec, graph, false, &|| {
        call!(real, cuGraphInstantiateWithFlags(graph_exec, graph, flags))
    })
}

pub fn cuGraphInstantiateWithParams(
    real: &Library,
    graph_exec: *mut CuGraphExec,
    graph: CuGraph,
    instantiate_params: *mut CudaGraphInstantiateParams,
) -> CuResult {
    instantiate(real, graph_exec, graph, uploads(instantiate_params), &|| {
        call!(
            real,
            cuGraphInstantiateWithParams(graph_exec, graph, instantiate_params)
        )
    })
}

pub fn cuGraphInstantiateWithParams_ptsz(
    real: &Library,
    graph_exec: *mut CuGraphExec,
    graph: CuGraph,
    instantiate_params: *mut CudaGraphInstantiateParams,
) -> CuResult {
    instantiate(real, graph_exec, graph, uploads(instantiate_params), &|| {
        call!(
            real,
            cuGraphInstantiateWithParams_ptsz(graph_exec, graph, instantiate_params)
        )
    })
}

fn uploads(params: *mut CudaGraphInstantiateParams) -> bool {
    // SAFETY: by the contract of the entry point null or parameters.
    !params.is_null()
        && unsafe { (&raw const (*params).flags).read() } & u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0
}

fn instantiate(
    real: &Library,
    exec: *mut CuGraphExec,
    graph: CuGraph,
    is_uploaded: bool,
    instantiate: &dyn Fn() -> CuResult,
) -> CuResult {
    let Some(state) = with_graph_memory().filter(|_| !exec.is_null()) else {
        return instantiate();
    };
    let needs = errno::preserving(|| needs_of(real, graph));
    let result = if is_uploaded {
        pools::upload(state, real, needs, instantiate)
    } else {
        instantiate()
    };
    if result.is_success() {
        // SAFETY: the driver succeeded with this pointer.
        pools::remember_exec(state, unsafe { exec.read() }.0 as u64, needs);
    }
    result
}

pub fn cuGraphExecUpdate(
    real: &Library,
    graph_exec: CuGraphExec,
    graph: CuGraph,
    error_node_out: *mut CuGraphNode,
    update_result_out: *mut c_int,
) -> CuResult {
    let result = call!(
        real,
        cuGraphExecUpdate(graph_exec, graph, error_node_out, update_result_out)
    );
    updated(real, graph_exec, graph, result)
}

pub fn cuGraphExecUpdate_v2(
    real: &Library,
    graph_exec: CuGraphExec,
    graph: CuGraph,
    result_info: *mut CuGraphExecUpdateResultInfo,
) -> CuResult {
    let result = call!(real, cuGraphExecUpdate_v2(graph_exec, graph, result_info));
    updated(real, graph_exec, graph, result)
}

fn updated(real: &Library, exec: CuGraphExec, graph: CuGraph, result: CuResult) -> CuResult {
    marks::graph_changed(exec);
    if result.is_success()
        && let Some(state) = with_graph_memory()
    {
        let needs = errno::preserving(|| needs_of(real, graph));
        pools::remember_exec(state, exec.0 as u64, needs);
    }
    result
}

pub fn cuGraphExecDestroy(real: &Library, graph_exec: CuGraphExec) -> CuResult {
    marks::graph_changed(graph_exec);
    let state = state::get().filter(|state| table::pools(state).execs.load(Ordering::Relaxed) != 0);
    // Before the driver is called: the handle may be another thread's the moment it is free.
    let Some((state, exec)) = state.and_then(|state| Some((state, pools::forget_exec(state, graph_exec.0 as u64)?)))
    else {
        return call!(real, cuGraphExecDestroy(graph_exec));
    };
    let result = call!(real, cuGraphExecDestroy(graph_exec));
    if result.is_success() {
        for need in exec.needs.iter().filter(|need| need.bytes > 0) {
            pools::changed(state, Source::graph(real, need.ordinal));
        }
    } else {
        pools::remember_exec(state, graph_exec.0 as u64, exec.needs);
    }
    result
}

pub fn cuDeviceGraphMemTrim(real: &Library, device: CuDevice) -> CuResult {
    let result = call!(real, cuDeviceGraphMemTrim(device));
    if let Some(state) = state::get() {
        pools::changed(state, Source::graph(real, device));
    }
    result
}

// ---- running -----------------------------------------------------------------------------------------------------

pub fn cuGraphLaunch(real: &Library, graph: CuGraphExec, stream: CuStream) -> CuResult {
    gate::around(real, gate::read(gate::Graph(graph, stream), false), || {
        launch(
            real,
            graph,
            StreamName::plain(stream),
            &|| call!(real, cuGraphLaunch(graph, stream)),
            &|| call!(real, cuGraphUpload(graph, stream)),
        )
    })
}

pub fn cuGraphLaunch_ptsz(real: &Library, graph: CuGraphExec, stream: CuStream) -> CuResult {
    gate::around(real, gate::read(gate::Graph(graph, stream), true), || {
        launch(
            real,
            graph,
            StreamName::per_thread(stream),
            &|| call!(real, cuGraphLaunch_ptsz(graph, stream)),
            &|| call!(real, cuGraphUpload_ptsz(graph, stream)),
        )
    })
}

fn launch(
    real: &Library,
    exec: CuGraphExec,
    stream: StreamName,
    launch: &dyn Fn() -> CuResult,
    upload: &dyn Fn() -> CuResult,
) -> CuResult {
    match state::get() {
        Some(state)
            if table::pools(state).execs.load(Ordering::Relaxed) != 0
                // A captured launch runs with the graph that it goes into.
                && !is_captured(state, real, stream) =>
        {
            pools::launch(state, real, exec.0 as u64, launch, upload)
        }
        _ => launch(),
    }
}

pub fn cuGraphUpload(real: &Library, graph: CuGraphExec, stream: CuStream) -> CuResult {
    upload(real, graph, &|| call!(real, cuGraphUpload(graph, stream)))
}

pub fn cuGraphUpload_ptsz(real: &Library, graph: CuGraphExec, stream: CuStream) -> CuResult {
    upload(real, graph, &|| call!(real, cuGraphUpload_ptsz(graph, stream)))
}

fn upload(real: &Library, exec: CuGraphExec, upload: &dyn Fn() -> CuResult) -> CuResult {
    let needs = state::get()
        .filter(|state| table::pools(state).execs.load(Ordering::Relaxed) != 0)
        .and_then(|state| Some((state, pools::needs_of_exec(state, exec.0 as u64)?)));
    match needs {
        Some((state, needs)) => pools::upload(state, real, needs, upload),
        None => upload(),
    }
}

// ---- looking -----------------------------------------------------------------------------------------------------

/// A list in memory of its own, which grows.
struct Blocks {
    memory: *mut Block,
    capacity: usize,
    count: usize,
}

impl Blocks {
    fn push(&mut self, block: Block) {
        if self.count == self.capacity && !self.grow() {
            // Not one page left: the rest shows when the graph has run.
            return;
        }
        // SAFETY: within the mapping.
        unsafe { self.memory.add(self.count).write(block) };
        self.count += 1;
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let capacity = (self.capacity * 2).max(128);
        let Some(memory) = sys::map_private(capacity * size_of::<Block>()) else {
            return false;
        };
        let memory: *mut Block = memory.cast();
        if self.capacity > 0 {
            // SAFETY: the new mapping is longer than what is copied.
            unsafe { core::ptr::copy_nonoverlapping(self.memory, memory, self.count) };
        }
        self.give_back();
        self.memory = memory;
        self.capacity = capacity;
        true
    }

    fn give_back(&mut self) {
        if self.capacity > 0 {
            // SAFETY: our mapping of that length; nobody has a reference into it.
            unsafe { sys::unmap(self.memory.cast(), self.capacity * size_of::<Block>()) };
        }
    }
}

/// What a launch of a graph takes, its child graphs included.
fn needs_of(real: &Library, graph: CuGraph) -> Needs {
    let mut blocks = Blocks {
        memory: core::ptr::null_mut(),
        capacity: 0,
        count: 0,
    };
    collect(real, graph, &mut blocks, 0);
    let found = if blocks.count == 0 {
        &mut []
    } else {
        // SAFETY: `count` blocks were written there, and nobody else has them.
        unsafe { core::slice::from_raw_parts_mut(blocks.memory, blocks.count) }
    };
    let needs = graph::needs(found);
    blocks.give_back();
    needs
}

fn collect(real: &Library, graph: CuGraph, blocks: &mut Blocks, depth: u32) {
    let mut count = 0_usize;
    if depth > DEEPEST || !call!(real, cuGraphGetNodes(graph, core::ptr::null_mut(), &raw mut count)).is_success() {
        return;
    }
    let Some(length) = count.checked_mul(size_of::<CuGraphNode>()).filter(|length| *length > 0) else {
        return;
    };
    let Some(memory) = sys::map_private(length) else { return };
    let nodes: *mut CuGraphNode = memory.cast();
    if call!(real, cuGraphGetNodes(graph, nodes, &raw mut count)).is_success() {
        for index in 0..count.min(length / size_of::<CuGraphNode>()) {
            // SAFETY: within the mapping, where the driver wrote so many.
            look_at(real, unsafe { nodes.add(index).read() }, blocks, depth);
        }
    }
    // SAFETY: our mapping.
    unsafe { sys::unmap(memory, length) };
}

fn look_at(real: &Library, node: CuGraphNode, blocks: &mut Blocks, depth: u32) {
    let mut kind: c_int = CU_GRAPH_NODE_TYPE_EMPTY;
    if !call!(real, cuGraphNodeGetType(node, &raw mut kind)).is_success() {
        return;
    }
    match kind {
        CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
            // SAFETY: plain numbers and pointers: all zero is a value.
            let mut params: CudaMemAllocNodeParams = unsafe { core::mem::zeroed() };
            if call!(real, cuGraphMemAllocNodeGetParams(node, &raw mut params)).is_success()
                && params.poolProps.location.kind == CU_MEM_LOCATION_TYPE_DEVICE
            {
                blocks.push(Block {
                    address: params.dptr,
                    bytes: params.bytesize as u64,
                    ordinal: params.poolProps.location.id,
                });
            }
        }
        CU_GRAPH_NODE_TYPE_GRAPH => {
            let mut child = CuGraph(core::ptr::null_mut::<c_void>());
            if call!(real, cuGraphChildGraphNodeGetGraph(node, &raw mut child)).is_success() {
                collect(real, child, blocks, depth + 1);
            }
        }
        _ => {}
    }
}
