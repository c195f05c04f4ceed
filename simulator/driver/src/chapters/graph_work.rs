// SPDX-License-Identifier: Apache-2.0
//! What nodes of graphs do, between the vendor's parameters and [`Work`]: for each type one way in and one way back.

use std::cell::RefCell;
use std::sync::Arc;

use partage_abi::types::*;
use partage_abi::values::*;

use super::copy::volume;
use super::stream::steps;
use crate::context::{Context, current};
use crate::event::Event;
use crate::executor::op::words::Until;
use crate::executor::op::{Fill, HostCall, KernelLaunch, WordStep};
use crate::graph::Graph;
use crate::graph::{Work, kind};
use crate::launch::{Given, Shape, Wishes, prepare};
use crate::state::Answer;

/// Reads what a program passed by pointer. INVALID_VALUE for null.
pub(super) fn read<T: Copy>(from: *const T) -> Answer<T> {
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
        Context::find(handle)
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
        return Context::find(named);
    }
    match crate::library::lookup_function(function)?.context() {
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

/// The parameters of a kernel node.
pub(super) fn describe_kernel(launch: &KernelLaunch) -> CudaKernelNodeParams {
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

/// The parameters in the form of the first ABI.
pub(super) fn narrow(params: &CudaKernelNodeParams) -> CudaKernelNodeParamsV1 {
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

/// A copy node's work.
pub(super) fn copy(params: &CudaMemcpy3d, context: CuContext) -> Answer<Work> {
    let context = context_of(context)?;
    let copy = volume(params)?;
    if copy.is_empty() {
        return Err(CuResult::INVALID_VALUE);
    }
    copy.check()?;
    Ok(Work::Copy(Box::new(copy), Some(context)))
}

/// A memory set's work.
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

/// The parameters of a memory set.
pub(super) fn describe_fill(fill: &Fill) -> CudaMemsetNodeParams {
    CudaMemsetNodeParams {
        dst: fill.address,
        pitch: fill.pitch as usize,
        value: fill.value,
        elementSize: fill.element as u32,
        width: fill.width as usize,
        height: fill.height as usize,
    }
}

/// A host node's work.
pub(super) fn host(params: &CudaHostNodeParams) -> Answer<Work> {
    let function = params.function.ok_or(CuResult::INVALID_VALUE)?;
    Ok(Work::Host(HostCall::Function {
        function,
        data: params.userData,
    }))
}

/// The parameters of a host node.
pub(super) fn describe_host(call: &HostCall) -> Answer<CudaHostNodeParams> {
    match *call {
        HostCall::Function { function, data } => Ok(CudaHostNodeParams {
            function: Some(function),
            userData: data,
        }),
        HostCall::Callback { .. } => Err(CuResult::INVALID_VALUE),
    }
}

/// A child node's work: a copy of the graph.
pub(super) fn child(graph: CuGraph) -> Answer<Work> {
    Ok(Work::Child(Graph::find(graph)?.copy(true)?))
}

/// The work of a node of memory operations.
pub(super) fn words(params: &CudaBatchMemOpNodeParams) -> Answer<Work> {
    context_of(params.ctx)?;
    Ok(Work::Words(steps(params.count, params.paramArray, params.flags)?))
}

thread_local! {
    /// The steps that the last question about a node of memory operations answered.
    static STEPS: RefCell<Vec<CuStreamBatchMemOpParams>> = const { RefCell::new(Vec::new()) };
}

/// The parameters of a node of memory operations.
pub(super) fn describe_words(steps: &[WordStep]) -> CudaBatchMemOpNodeParams {
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

/// The work of the general form. NOT_SUPPORTED for types that are not built: semaphores, conditions, graphs that move
/// into the node; and for memory nodes, which are added in their own way and never changed.
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
            kind::GRAPH => match given.params.graph.ownership {
                CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE => child(given.params.graph.graph),
                CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE => Err(CuResult::NOT_SUPPORTED),
                _ => Err(CuResult::INVALID_VALUE),
            },
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

/// The launch in a kernel node's work.
pub(super) fn launch_of(work: &Work) -> Option<&KernelLaunch> {
    match work {
        Work::Kernel(launch) => Some(launch),
        _ => None,
    }
}
