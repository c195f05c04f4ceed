// SPDX-License-Identifier: Apache-2.0
//! Graphs: made by capture or by hand, and launched.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;

use partage_abi::types::{
    CuContext, CuGraph, CuGraphConditionalHandle, CuGraphEdgeData, CuGraphExec, CuGraphNode, CuGraphNodeParams,
    CuHostFn, CuStream, CuUserObject,
};

use crate::driver::call;
use crate::rows::rows;

rows! {
    both inside cuGraphCreate: cudaGraphCreate(graph: *mut CuGraph, flags: c_uint) { call!(cuGraphCreate(graph, flags)) }
    both inside cuGraphDestroy: cudaGraphDestroy(graph: CuGraph) { call!(cuGraphDestroy(graph)) }
    both inside cuGraphClone: cudaGraphClone(to: *mut CuGraph, graph: CuGraph) { call!(cuGraphClone(to, graph)) }
    both inside cuGraphExecDestroy: cudaGraphExecDestroy(executable: CuGraphExec) {
        call!(cuGraphExecDestroy(executable))
    }
    both inside cuGraphInstantiateWithFlags: cudaGraphInstantiate(
        executable: *mut CuGraphExec, graph: CuGraph, flags: c_ulonglong,
    ) {
        call!(cuGraphInstantiateWithFlags(executable, graph, flags))
    }
    both inside cuGraphInstantiateWithFlags: cudaGraphInstantiateWithFlags(
        executable: *mut CuGraphExec, graph: CuGraph, flags: c_ulonglong,
    ) {
        call!(cuGraphInstantiateWithFlags(executable, graph, flags))
    }
    both inside cuGraphLaunch: cudaGraphLaunch(executable: CuGraphExec, stream: CuStream) {
        call!(cuGraphLaunch(executable, stream))
    }
    both inside cuGraphLaunch_ptsz: cudaGraphLaunch_ptsz(executable: CuGraphExec, stream: CuStream) {
        call!(cuGraphLaunch_ptsz(executable, stream))
    }
    both inside cuGraphUpload: cudaGraphUpload(executable: CuGraphExec, stream: CuStream) {
        call!(cuGraphUpload(executable, stream))
    }
    both inside cuGraphGetNodes: cudaGraphGetNodes(graph: CuGraph, nodes: *mut CuGraphNode, count: *mut usize) {
        call!(cuGraphGetNodes(graph, nodes, count))
    }
    both inside cuGraphGetRootNodes: cudaGraphGetRootNodes(graph: CuGraph, nodes: *mut CuGraphNode, count: *mut usize) {
        call!(cuGraphGetRootNodes(graph, nodes, count))
    }
    both inside cuGraphNodeGetType: cudaGraphNodeGetType(node: CuGraphNode, kind: *mut c_int) {
        call!(cuGraphNodeGetType(node, kind))
    }
    twelve inside cuGraphNodeGetDependencies: cudaGraphNodeGetDependencies_v12(
        node: CuGraphNode, dependencies: *mut CuGraphNode, count: *mut usize,
    ) {
        call!(cuGraphNodeGetDependencies(node, dependencies, count))
    }
    thirteen inside cuGraphNodeGetDependencies_v2: cudaGraphNodeGetDependencies(
        node: CuGraphNode, dependencies: *mut CuGraphNode, edges: *mut CuGraphEdgeData, count: *mut usize,
    ) {
        call!(cuGraphNodeGetDependencies_v2(node, dependencies, edges, count))
    }
    twelve inside cuGraphAddNode: cudaGraphAddNode_v12(
        node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, count: usize,
        parameters: *mut CuGraphNodeParams,
    ) {
        call!(cuGraphAddNode(node, graph, dependencies, count, parameters))
    }
    thirteen inside cuGraphAddNode_v2: cudaGraphAddNode(
        node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, edges: *const CuGraphEdgeData,
        count: usize, parameters: *mut CuGraphNodeParams,
    ) {
        call!(cuGraphAddNode_v2(node, graph, dependencies, edges, count, parameters))
    }
    both inside cuGraphConditionalHandleCreate: cudaGraphConditionalHandleCreate(
        handle: *mut CuGraphConditionalHandle, graph: CuGraph, value: c_uint, flags: c_uint,
    ) {
        let mut context = CuContext(ptr::null_mut());
        call!(cuCtxGetCurrent(&raw mut context))?;
        call!(cuGraphConditionalHandleCreate(handle, graph, context, value, flags))
    }
    both inside cuGraphDebugDotPrint: cudaGraphDebugDotPrint(graph: CuGraph, path: *const c_char, flags: c_uint) {
        call!(cuGraphDebugDotPrint(graph, path, flags))
    }
    both inside cuUserObjectCreate: cudaUserObjectCreate(
        object: *mut CuUserObject, data: *mut c_void, destroy: CuHostFn, count: c_uint, flags: c_uint,
    ) {
        call!(cuUserObjectCreate(object, data, destroy, count, flags))
    }
    both inside cuUserObjectRetain: cudaUserObjectRetain(object: CuUserObject, count: c_uint) {
        call!(cuUserObjectRetain(object, count))
    }
    both inside cuUserObjectRelease: cudaUserObjectRelease(object: CuUserObject, count: c_uint) {
        call!(cuUserObjectRelease(object, count))
    }
    both inside cuGraphRetainUserObject: cudaGraphRetainUserObject(
        graph: CuGraph, object: CuUserObject, count: c_uint, flags: c_uint,
    ) {
        call!(cuGraphRetainUserObject(graph, object, count, flags))
    }
}
