// SPDX-License-Identifier: Apache-2.0
//! Graph nodes whose parameters the runtime has in a form of its own: kernels, copies and fills.

use partage_abi::types::*;

use super::{copy, inside, put};
use crate::context::{check, current};
use crate::registry::find_function;
use crate::types::{KernelNode, Memcpy3d, MemsetNode};
use crate::{driver, refuse};

/// `CU_GRAPH_NODE_TYPE_KERNEL`.
const KERNEL: c_int = 0;
/// `CU_GRAPH_NODE_TYPE_MEMCPY`, whose parameters differ from the driver's.
const MEMCPY: c_int = 1;
/// `CU_GRAPH_NODE_TYPE_MEMSET`.
const MEMSET: c_int = 2;
/// `CU_MEMORYTYPE_UNIFIED`.
const UNIFIED: c_int = 4;

/// The driver's form of a kernel node.
fn kernel(parameters: *const KernelNode) -> Result<CudaKernelNodeParams, CuResult> {
    // SAFETY: the program's struct, or null.
    let given = unsafe { parameters.as_ref() }.ok_or(CuResult::INVALID_VALUE)?;
    Ok(CudaKernelNodeParams {
        func: find_function(given.function)?,
        gridDimX: given.grid.x,
        gridDimY: given.grid.y,
        gridDimZ: given.grid.z,
        blockDimX: given.block.x,
        blockDimY: given.block.y,
        blockDimZ: given.block.z,
        sharedMemBytes: given.shared_bytes,
        kernelParams: given.arguments,
        extra: given.extra,
        kern: CuKernel::NULL,
        ctx: current()?,
    })
}

/// Adds a kernel.
pub fn cudaGraphAddKernelNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    parameters: *const KernelNode,
) -> CuResult {
    inside(|| {
        let asked = kernel(parameters)?;
        check(driver::cuGraphAddKernelNode_v2(
            node,
            graph,
            dependencies,
            count,
            &asked,
        ))
    })
}

/// Changes a kernel.
pub fn cudaGraphKernelNodeSetParams(node: CuGraphNode, parameters: *const KernelNode) -> CuResult {
    inside(|| check(driver::cuGraphKernelNodeSetParams_v2(node, &kernel(parameters)?)))
}

/// Changes a kernel of an instantiated graph.
pub fn cudaGraphExecKernelNodeSetParams(
    exec: CuGraphExec,
    node: CuGraphNode,
    parameters: *const KernelNode,
) -> CuResult {
    inside(|| {
        check(driver::cuGraphExecKernelNodeSetParams_v2(
            exec,
            node,
            &kernel(parameters)?,
        ))
    })
}

/// Adds a copy.
pub fn cudaGraphAddMemcpyNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    parameters: *const Memcpy3d,
) -> CuResult {
    inside(|| {
        let asked = copy::layers(parameters)?;
        check(driver::cuGraphAddMemcpyNode(
            node,
            graph,
            dependencies,
            count,
            &asked,
            current()?,
        ))
    })
}

/// Adds a copy of linear memory.
pub fn cudaGraphAddMemcpyNode1D(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    target: CuDevicePtr,
    source: CuDevicePtr,
    bytes: usize,
    _kind: c_int,
) -> CuResult {
    inside(|| {
        let asked = CudaMemcpy3d {
            srcMemoryType: UNIFIED,
            srcDevice: source,
            dstMemoryType: UNIFIED,
            dstDevice: target,
            WidthInBytes: bytes,
            Height: 1,
            Depth: 1,
            ..CudaMemcpy3d::default()
        };
        check(driver::cuGraphAddMemcpyNode(
            node,
            graph,
            dependencies,
            count,
            &asked,
            current()?,
        ))
    })
}

/// Adds a fill.
pub fn cudaGraphAddMemsetNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    parameters: *const MemsetNode,
) -> CuResult {
    inside(|| {
        check(driver::cuGraphAddMemsetNode(
            node,
            graph,
            dependencies,
            count,
            parameters,
            current()?,
        ))
    })
}

/// Changes a fill of an instantiated graph.
pub fn cudaGraphExecMemsetNodeSetParams(
    exec: CuGraphExec,
    node: CuGraphNode,
    parameters: *const MemsetNode,
) -> CuResult {
    inside(|| {
        check(driver::cuGraphExecMemsetNodeSetParams(
            exec,
            node,
            parameters,
            current()?,
        ))
    })
}

/// Adds a node of any kind, in the order of CUDA 13's arguments.
pub fn cudaGraphAddNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    edges: *const CuGraphEdgeData,
    count: usize,
    parameters: *mut CuGraphNodeParams,
) -> CuResult {
    inside(|| {
        // SAFETY: the program's struct, or null.
        let given = unsafe { parameters.as_mut() }.ok_or(CuResult::INVALID_VALUE)?;
        let mut asked = *given;
        match asked.kind {
            KERNEL => {
                // SAFETY: the kind says which member is meant; the runtime's has the kernel's host function where the
                // driver's has the function, and nothing where it has kernel and context.
                unsafe {
                    let host = asked.params.kernel.func.0;
                    asked.params.kernel.func = find_function(host)?;
                    asked.params.kernel.kern = CuKernel::NULL;
                    asked.params.kernel.ctx = current()?;
                }
            }
            MEMCPY => return Err(refuse::of_runtime("cudaGraphAddNode of a copy")),
            MEMSET => asked.params.memset.ctx = current()?,
            _ => {}
        }
        check(driver::cuGraphAddNode_v2(
            node,
            graph,
            dependencies,
            edges,
            count,
            &mut asked,
        ))?;
        if !matches!(asked.kind, KERNEL | MEMSET) {
            // An allocation's address, the body of a condition.
            *given = asked;
        }
        Ok(())
    })
}

/// The same under CUDA 12's name.
pub fn cudaGraphAddNode_v2(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    edges: *const CuGraphEdgeData,
    count: usize,
    parameters: *mut CuGraphNodeParams,
) -> CuResult {
    cudaGraphAddNode(node, graph, dependencies, edges, count, parameters)
}

/// Adds a node of any kind, without data of edges.
pub fn cudaGraphAddNode_v12(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    parameters: *mut CuGraphNodeParams,
) -> CuResult {
    cudaGraphAddNode(node, graph, dependencies, core::ptr::null(), count, parameters)
}

/// Makes a condition of a graph, in the thread's context.
pub fn cudaGraphConditionalHandleCreate(
    handle: *mut CuGraphConditionalHandle,
    graph: CuGraph,
    value: c_uint,
    flags: c_uint,
) -> CuResult {
    inside(|| {
        put(handle, 0)?;
        check(driver::cuGraphConditionalHandleCreate(
            handle,
            graph,
            current()?,
            value,
            flags,
        ))
    })
}

/// Copies a kernel node's attributes; CUDA 12's runtime names the source first.
pub fn cudaGraphKernelNodeCopyAttributes_v12(source: CuGraphNode, target: CuGraphNode) -> CuResult {
    inside(|| check(driver::cuGraphKernelNodeCopyAttributes(target, source)))
}
