// SPDX-License-Identifier: Apache-2.0
//! Instantiated graphs: instantiation in all its forms, changes, launches.

use std::sync::Arc;

use partage_abi::types::*;

use super::flavours::{answer, both_flavours};
use super::graph_work::{copy, fill, general, host, kernel, launch_of, read, widen, words};
use crate::event::Event;
use crate::graph::Work;
use crate::graph::exec::{AUTO_FREE_ON_LAUNCH, Exec, ExecWork};
use crate::graph::{Graph, find_node};
use crate::state::{Answer, code, store};
use crate::stream::{Stream, StreamName};
use crate::submission::perform;
use crate::{capture, graph};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_*`: upload, device launch, and all there are, with free on launch and use of the
/// nodes' priorities.
const UPLOAD: u64 = 2;
const DEVICE_LAUNCH: u64 = 4;
const FLAGS: u64 = 15;
/// `CUDA_GRAPH_INSTANTIATE_*`, the results of the form with parameters.
const INSTANTIATED: c_int = 0;
const ERROR: c_int = 1;
const INVALID_STRUCTURE: c_int = 2;

/// An instantiation that failed, and the node to blame if it is one node's fault.
type Blamed = (CuResult, CuGraphNode);

fn instantiate(graph: CuGraph, flags: u64) -> Result<Arc<Exec>, Blamed> {
    let found = Graph::find(graph).map_err(|code| (code, CuGraphNode::NULL))?;
    let is_both = flags & DEVICE_LAUNCH != 0 && flags & AUTO_FREE_ON_LAUNCH != 0;
    if flags & !FLAGS != 0 || is_both {
        return Err((CuResult::INVALID_VALUE, CuGraphNode::NULL));
    }
    // Kernels here cannot launch graphs.
    if flags & DEVICE_LAUNCH != 0 {
        return Err((CuResult::NOT_SUPPORTED, CuGraphNode::NULL));
    }
    Exec::create(&found, flags)
        .map_err(|(code, node)| (code, node.map_or(CuGraphNode::NULL, |node| found.handle_of(node))))
}

fn store_exec(exec: *mut CuGraphExec, made: Result<Arc<Exec>, Blamed>) -> CuResult {
    if exec.is_null() {
        // Nobody could ever destroy it.
        if let Ok(made) = made {
            let _ = Exec::destroy(made.handle);
        }
        return CuResult::INVALID_VALUE;
    }
    code(made.map_err(|(code, _)| code).and_then(|made| store(exec, made.handle)))
}

pub fn cuGraphInstantiate(
    exec: *mut CuGraphExec,
    graph: CuGraph,
    error_node: *mut CuGraphNode,
    log: *mut c_char,
    log_bytes: usize,
) -> CuResult {
    let made = instantiate(graph, 0);
    let blamed = made.as_ref().err().map_or(CuGraphNode::NULL, |(_, node)| *node);
    if !error_node.is_null() {
        // SAFETY: not null, and by the entry point's contract room for a handle.
        unsafe { error_node.write_unaligned(blamed) };
    }
    if !log.is_null() && log_bytes > 0 {
        // SAFETY: not null, and by the entry point's contract room for `log_bytes` bytes; there is nothing to say.
        unsafe { log.write(0) };
    }
    store_exec(exec, made)
}

pub fn cuGraphInstantiate_v2(
    exec: *mut CuGraphExec,
    graph: CuGraph,
    error_node: *mut CuGraphNode,
    log: *mut c_char,
    log_bytes: usize,
) -> CuResult {
    cuGraphInstantiate(exec, graph, error_node, log, log_bytes)
}

pub fn cuGraphInstantiateWithFlags(exec: *mut CuGraphExec, graph: CuGraph, flags: c_ulonglong) -> CuResult {
    store_exec(exec, instantiate(graph, flags))
}

pub fn cuGraphInstantiateWithParams(
    exec: *mut CuGraphExec,
    graph: CuGraph,
    params: *mut CudaGraphInstantiateParams,
) -> CuResult {
    instantiate_with(exec, graph, params, StreamName::plain)
}

pub fn cuGraphInstantiateWithParams_ptsz(
    exec: *mut CuGraphExec,
    graph: CuGraph,
    params: *mut CudaGraphInstantiateParams,
) -> CuResult {
    instantiate_with(exec, graph, params, StreamName::per_thread)
}

fn instantiate_with(
    exec: *mut CuGraphExec,
    graph: CuGraph,
    params: *mut CudaGraphInstantiateParams,
    name: impl Fn(CuStream) -> StreamName,
) -> CuResult {
    if params.is_null() {
        return CuResult::INVALID_VALUE;
    }
    // SAFETY: not null, and by the entry point's contract parameters that we may write.
    let params = unsafe { &mut *params };
    let made = instantiate(graph, params.flags);
    let blamed = made.as_ref().err().map_or(CuGraphNode::NULL, |(_, node)| *node);
    params.hErrNode_out = blamed;
    params.result_out = match &made {
        Ok(_) => INSTANTIATED,
        Err(_) if !blamed.is_null() => INVALID_STRUCTURE,
        Err(_) => ERROR,
    };
    if let Ok(exec) = &made
        && params.flags & UPLOAD != 0
    {
        let uploaded = name(params.hUploadStream)
            .find()
            .and_then(|stream| upload(exec, &stream));
        if let Err(code) = uploaded {
            params.result_out = ERROR;
            let _ = Exec::destroy(exec.handle);
            return code;
        }
    }
    store_exec(exec, made)
}

pub fn cuGraphExecDestroy(exec: CuGraphExec) -> CuResult {
    code(Exec::destroy(exec))
}

pub fn cuGraphExecGetFlags(exec: CuGraphExec, flags: *mut u64) -> CuResult {
    code(Exec::find(exec).and_then(|exec| store(flags, exec.flags)))
}

pub fn cuGraphExecGetId(exec: CuGraphExec, id: *mut c_uint) -> CuResult {
    code(Exec::find(exec).and_then(|exec| store(id, exec.id)))
}

both_flavours! {
    cuGraphLaunch cuGraphLaunch_ptsz (exec: CuGraphExec, stream: CuStream; stream) => {
        launch(&*Exec::find(exec)?, &stream.find()?)
    }
    cuGraphUpload cuGraphUpload_ptsz (exec: CuGraphExec, stream: CuStream; stream) => {
        let exec = Exec::find(exec)?;
        upload(&exec, &stream.find()?)
    }
}

/// Takes no time; has its place in the stream.
fn upload(exec: &Exec, stream: &Arc<Stream>) -> Answer {
    capture::query_stream(stream)?;
    capture::admit(stream)?;
    exec.upload(stream)
}

fn launch(exec: &Exec, stream: &Arc<Stream>) -> Answer {
    match capture::info(stream)? {
        // Captured, a launch becomes a node with the graph as it is now.
        Some(_) => perform(stream, Work::Child(exec.to_graph()?)),
        None => {
            capture::admit(stream)?;
            exec.launch(stream)
        }
    }
}

// ---- changing what nodes do -----------------------------------------------------------------------------------

/// Replaces the work of the node that was made from `node` by work of the same type.
fn change(exec: CuGraphExec, node: CuGraphNode, work: impl FnOnce(&Work) -> Answer<Work>) -> CuResult {
    answer(|| {
        let exec = Exec::find(exec)?;
        let (_, key) = find_node(node)?;
        exec.with_node(key, |node| {
            let ExecWork::Plain(old) = &node.work else {
                return Err(CuResult::INVALID_VALUE);
            };
            let new = work(old)?;
            let same_context = |old: &Work, new: &Work| match (old.context(), new.context()) {
                (Some(old), Some(new)) => old.device == new.device,
                _ => true,
            };
            if old.kind() != new.kind() || !same_context(old, &new) {
                return Err(CuResult::INVALID_VALUE);
            }
            node.work = ExecWork::Plain(new);
            Ok(())
        })
    })
}

pub fn cuGraphExecKernelNodeSetParams(
    exec: CuGraphExec,
    node: CuGraphNode,
    params: *const CudaKernelNodeParamsV1,
) -> CuResult {
    change(exec, node, |old| kernel(&widen(&read(params)?), launch_of(old)))
}

pub fn cuGraphExecKernelNodeSetParams_v2(
    exec: CuGraphExec,
    node: CuGraphNode,
    params: *const CudaKernelNodeParams,
) -> CuResult {
    change(exec, node, |old| kernel(&read(params)?, launch_of(old)))
}

pub fn cuGraphExecMemcpyNodeSetParams(
    exec: CuGraphExec,
    node: CuGraphNode,
    params: *const CudaMemcpy3d,
    context: CuContext,
) -> CuResult {
    change(exec, node, |_| copy(&read(params)?, context))
}

pub fn cuGraphExecMemsetNodeSetParams(
    exec: CuGraphExec,
    node: CuGraphNode,
    params: *const CudaMemsetNodeParams,
    context: CuContext,
) -> CuResult {
    change(exec, node, |_| fill(&read(params)?, context))
}

pub fn cuGraphExecHostNodeSetParams(
    exec: CuGraphExec,
    node: CuGraphNode,
    params: *const CudaHostNodeParams,
) -> CuResult {
    change(exec, node, |_| host(&read(params)?))
}

pub fn cuGraphExecEventRecordNodeSetEvent(exec: CuGraphExec, node: CuGraphNode, event: CuEvent) -> CuResult {
    change(exec, node, |_| Ok(Work::Record(Event::find(event)?)))
}

pub fn cuGraphExecEventWaitNodeSetEvent(exec: CuGraphExec, node: CuGraphNode, event: CuEvent) -> CuResult {
    change(exec, node, |_| Ok(Work::Wait(Event::find(event)?)))
}

pub fn cuGraphExecBatchMemOpNodeSetParams(
    exec: CuGraphExec,
    node: CuGraphNode,
    params: *const CudaBatchMemOpNodeParams,
) -> CuResult {
    change(exec, node, |_| words(&read(params)?))
}

pub fn cuGraphExecChildGraphNodeSetParams(exec: CuGraphExec, node: CuGraphNode, graph: CuGraph) -> CuResult {
    answer(|| {
        let (exec, graph) = (Exec::find(exec)?, Graph::find(graph)?);
        exec.set_child(find_node(node)?.1, &graph)
    })
}

pub fn cuGraphExecNodeSetParams(exec: CuGraphExec, node: CuGraphNode, params: *mut CuGraphNodeParams) -> CuResult {
    match read(params.cast_const()) {
        Err(code) => code,
        // SAFETY: the kind says that the graph is meant; it is plain data.
        Ok(given) if given.kind == graph::kind::GRAPH => unsafe {
            cuGraphExecChildGraphNodeSetParams(exec, node, given.params.graph.graph)
        },
        Ok(_) => change(exec, node, |old| general(params, launch_of(old))),
    }
}

pub fn cuGraphNodeSetEnabled(exec: CuGraphExec, node: CuGraphNode, is_enabled: c_uint) -> CuResult {
    answer(|| {
        let (exec, (_, key)) = (Exec::find(exec)?, find_node(node)?);
        exec.with_node(key, |node| {
            if !can_be_disabled(&node.work) {
                return Err(CuResult::INVALID_VALUE);
            }
            node.is_enabled = is_enabled != 0;
            Ok(())
        })
    })
}

pub fn cuGraphNodeGetEnabled(exec: CuGraphExec, node: CuGraphNode, is_enabled: *mut c_uint) -> CuResult {
    answer(|| {
        let (exec, (_, key)) = (Exec::find(exec)?, find_node(node)?);
        exec.with_node(key, |node| {
            if !can_be_disabled(&node.work) {
                return Err(CuResult::INVALID_VALUE);
            }
            store(is_enabled, c_uint::from(node.is_enabled))
        })
    })
}

/// The manual: kernels, memory sets and copies.
fn can_be_disabled(work: &ExecWork) -> bool {
    matches!(work, ExecWork::Plain(Work::Kernel(_) | Work::Copy(..) | Work::Fill(..)))
}

fn update(exec: CuGraphExec, graph: CuGraph) -> Answer<Option<(c_int, CuGraphNode)>> {
    let (exec, graph) = (Exec::find(exec)?, Graph::find(graph)?);
    Ok(exec.update(&graph).err().map(|refusal| {
        (
            refusal.reason,
            refusal.node.map_or(CuGraphNode::NULL, |node| graph.handle_of(node)),
        )
    }))
}

pub fn cuGraphExecUpdate(
    exec: CuGraphExec,
    graph: CuGraph,
    error_node: *mut CuGraphNode,
    result: *mut c_int,
) -> CuResult {
    let mut info = CuGraphExecUpdateResultInfo::default();
    let answer = cuGraphExecUpdate_v2(exec, graph, &mut info);
    for done in [
        (!error_node.is_null()).then(|| store(error_node, info.errorNode)),
        (!result.is_null()).then(|| store(result, info.result)),
    ]
    .into_iter()
    .flatten()
    {
        if let Err(code) = done {
            return code;
        }
    }
    answer
}

pub fn cuGraphExecUpdate_v2(exec: CuGraphExec, graph: CuGraph, info: *mut CuGraphExecUpdateResultInfo) -> CuResult {
    if info.is_null() {
        return CuResult::INVALID_VALUE;
    }
    code(update(exec, graph).and_then(|refused| {
        let (result, error_node) = refused.unwrap_or((0, CuGraphNode::NULL));
        let told = CuGraphExecUpdateResultInfo {
            result,
            errorNode: error_node,
            errorFromNode: CuGraphNode::NULL,
        };
        store(info, told)?;
        if refused.is_some() {
            Err(CuResult::GRAPH_EXEC_UPDATE_FAILURE)
        } else {
            Ok(())
        }
    }))
}
