// SPDX-License-Identifier: Apache-2.0
//! Streams and what they wait for; capture.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use partage_abi::types::{
    CuEvent, CuGraph, CuGraphEdgeData, CuGraphNode, CuHostFn, CuLaunchAttributeValue, CuStream, CuStreamCallback,
};

use crate::driver::call;
use crate::rows::rows;

rows! {
    both inside cuStreamCreate: cudaStreamCreate(stream: *mut CuStream) { call!(cuStreamCreate(stream, 0)) }
    both inside cuStreamCreate: cudaStreamCreateWithFlags(stream: *mut CuStream, flags: c_uint) {
        call!(cuStreamCreate(stream, flags))
    }
    both inside cuStreamCreateWithPriority: cudaStreamCreateWithPriority(
        stream: *mut CuStream, flags: c_uint, priority: c_int,
    ) {
        call!(cuStreamCreateWithPriority(stream, flags, priority))
    }
    both inside cuStreamDestroy_v2: cudaStreamDestroy(stream: CuStream) { call!(cuStreamDestroy_v2(stream)) }
    both inside cuStreamQuery: cudaStreamQuery(stream: CuStream) { call!(cuStreamQuery(stream)) }
    both inside cuStreamQuery_ptsz: cudaStreamQuery_ptsz(stream: CuStream) { call!(cuStreamQuery_ptsz(stream)) }
    both inside cuStreamSynchronize: cudaStreamSynchronize(stream: CuStream) { call!(cuStreamSynchronize(stream)) }
    both inside cuStreamSynchronize_ptsz: cudaStreamSynchronize_ptsz(stream: CuStream) {
        call!(cuStreamSynchronize_ptsz(stream))
    }
    both inside cuStreamWaitEvent: cudaStreamWaitEvent(stream: CuStream, event: CuEvent, flags: c_uint) {
        call!(cuStreamWaitEvent(stream, event, flags))
    }
    both inside cuStreamWaitEvent_ptsz: cudaStreamWaitEvent_ptsz(stream: CuStream, event: CuEvent, flags: c_uint) {
        call!(cuStreamWaitEvent_ptsz(stream, event, flags))
    }
    both inside cuStreamGetPriority: cudaStreamGetPriority(stream: CuStream, priority: *mut c_int) {
        call!(cuStreamGetPriority(stream, priority))
    }
    both inside cuStreamGetFlags: cudaStreamGetFlags(stream: CuStream, flags: *mut c_uint) {
        call!(cuStreamGetFlags(stream, flags))
    }
    both inside cuStreamGetId: cudaStreamGetId(stream: CuStream, id: *mut c_ulonglong) {
        call!(cuStreamGetId(stream, id))
    }
    both inside cuStreamGetAttribute: cudaStreamGetAttribute(
        stream: CuStream, attribute: c_int, value: *mut CuLaunchAttributeValue,
    ) {
        call!(cuStreamGetAttribute(stream, attribute, value))
    }
    both inside cuStreamSetAttribute: cudaStreamSetAttribute(
        stream: CuStream, attribute: c_int, value: *const CuLaunchAttributeValue,
    ) {
        call!(cuStreamSetAttribute(stream, attribute, value))
    }
    both inside cuStreamAddCallback: cudaStreamAddCallback(
        stream: CuStream, callback: CuStreamCallback, data: *mut c_void, flags: c_uint,
    ) {
        call!(cuStreamAddCallback(stream, callback, data, flags))
    }
    both inside cuLaunchHostFunc: cudaLaunchHostFunc(stream: CuStream, function: CuHostFn, data: *mut c_void) {
        call!(cuLaunchHostFunc(stream, function, data))
    }
    both inside cuLaunchHostFunc_ptsz: cudaLaunchHostFunc_ptsz(
        stream: CuStream, function: CuHostFn, data: *mut c_void,
    ) {
        call!(cuLaunchHostFunc_ptsz(stream, function, data))
    }
    both inside cuStreamBeginCapture_v2: cudaStreamBeginCapture(stream: CuStream, mode: c_int) {
        call!(cuStreamBeginCapture_v2(stream, mode))
    }
    both inside cuStreamBeginCaptureToGraph: cudaStreamBeginCaptureToGraph(
        stream: CuStream, graph: CuGraph, dependencies: *const CuGraphNode, edges: *const CuGraphEdgeData, count: usize,
        mode: c_int,
    ) {
        call!(cuStreamBeginCaptureToGraph(stream, graph, dependencies, edges, count, mode))
    }
    both inside cuStreamEndCapture: cudaStreamEndCapture(stream: CuStream, graph: *mut CuGraph) {
        call!(cuStreamEndCapture(stream, graph))
    }
    both inside cuStreamIsCapturing: cudaStreamIsCapturing(stream: CuStream, status: *mut c_int) {
        call!(cuStreamIsCapturing(stream, status))
    }
    both inside cuThreadExchangeStreamCaptureMode: cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) {
        call!(cuThreadExchangeStreamCaptureMode(mode))
    }
    twelve inside cuStreamGetCaptureInfo_v2: cudaStreamGetCaptureInfo_v2(
        stream: CuStream, status: *mut c_int, id: *mut u64, graph: *mut CuGraph,
        dependencies: *mut *const CuGraphNode, count: *mut usize,
    ) {
        call!(cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count))
    }
    twelve inside cuStreamGetCaptureInfo_v3: cudaStreamGetCaptureInfo_v3(
        stream: CuStream, status: *mut c_int, id: *mut u64, graph: *mut CuGraph,
        dependencies: *mut *const CuGraphNode, edges: *mut *const CuGraphEdgeData, count: *mut usize,
    ) {
        call!(cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count))
    }
    thirteen inside cuStreamGetCaptureInfo_v3: cudaStreamGetCaptureInfo(
        stream: CuStream, status: *mut c_int, id: *mut u64, graph: *mut CuGraph,
        dependencies: *mut *const CuGraphNode, edges: *mut *const CuGraphEdgeData, count: *mut usize,
    ) {
        call!(cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count))
    }
    twelve inside cuStreamUpdateCaptureDependencies: cudaStreamUpdateCaptureDependencies_v12(
        stream: CuStream, dependencies: *mut CuGraphNode, count: usize, flags: c_uint,
    ) {
        call!(cuStreamUpdateCaptureDependencies(stream, dependencies, count, flags))
    }
    thirteen inside cuStreamUpdateCaptureDependencies_v2: cudaStreamUpdateCaptureDependencies(
        stream: CuStream, dependencies: *mut CuGraphNode, edges: *const CuGraphEdgeData, count: usize, flags: c_uint,
    ) {
        call!(cuStreamUpdateCaptureDependencies_v2(stream, dependencies, edges, count, flags))
    }
}
