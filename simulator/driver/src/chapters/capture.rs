// SPDX-License-Identifier: Apache-2.0
//! Stream capture: begin, end, what is captured, and changing what comes next.

use std::cell::RefCell;
use std::sync::Arc;

use partage_abi::types::*;

use super::flavours::{answer, both_flavours};
use super::graph::{edges_from, nodes_from};
use crate::capture::{self, rules};
use crate::graph::{Graph, nodes::NodeKey};
use crate::state::{Answer, driver, store};
use crate::stream::{Stream, StreamName};

/// `CU_STREAM_CAPTURE_STATUS_*`.
const STATUS_NONE: c_int = 0;
const STATUS_ACTIVE: c_int = 1;
const STATUS_INVALIDATED: c_int = 2;
/// `CU_STREAM_SET_CAPTURE_DEPENDENCIES`; 0 adds.
const SET_DEPENDENCIES: u32 = 1;

/// Nodes, and the data of the edges from them.
type Answered = (Vec<CuGraphNode>, Vec<CuGraphEdgeData>);

thread_local! {
    /// What the last question about a capture answered: the driver owns the arrays, until the thread asks again.
    static ANSWERED: RefCell<Answered> = const { RefCell::new((Vec::new(), Vec::new())) };
}

both_flavours! {
    cuStreamBeginCapture cuStreamBeginCapture_ptsz (stream: CuStream; stream) => {
        begin(stream, rules::Mode::Global.number())
    }
    cuStreamBeginCapture_v2 cuStreamBeginCapture_v2_ptsz (stream: CuStream, mode: c_int; stream) => {
        begin(stream, mode)
    }
    cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph_ptsz (
        stream: CuStream, graph: CuGraph, dependencies: *const CuGraphNode, data: *const CuGraphEdgeData,
        count: usize, mode: c_int; stream
    ) => {
        let mode = rules::Mode::from_number(mode).ok_or(CuResult::INVALID_VALUE)?;
        let (stream, graph) = (stream.find()?, Graph::find(graph)?);
        edges_from(data, count)?;
        let tips = nodes_from(&graph, dependencies, count)?;
        capture::begin(&stream, mode, graph, false, tips)
    }
    cuStreamEndCapture cuStreamEndCapture_ptsz (stream: CuStream, graph: *mut CuGraph; stream) => {
        let stream = stream.find()?;
        if graph.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        let ended = capture::end(&stream);
        store(graph, ended.as_ref().map_or(CuGraph::NULL, |graph| graph.handle))?;
        ended.map(drop)
    }
    cuStreamIsCapturing cuStreamIsCapturing_ptsz (stream: CuStream, status: *mut c_int; stream) => {
        let found = capture::status(&*stream.find()?)?;
        store(status, number(found))
    }
    cuStreamGetCaptureInfo cuStreamGetCaptureInfo_ptsz (
        stream: CuStream, status: *mut c_int, id: *mut u64; stream
    ) => {
        Wanted { status, id, ..Wanted::default() }.fill(stream)
    }
    cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v2_ptsz (
        stream: CuStream, status: *mut c_int, id: *mut u64, graph: *mut CuGraph,
        dependencies: *mut *const CuGraphNode, count: *mut usize; stream
    ) => {
        Wanted { status, id, graph, dependencies, count, ..Wanted::default() }.fill(stream)
    }
    cuStreamGetCaptureInfo_v3 cuStreamGetCaptureInfo_v3_ptsz (
        stream: CuStream, status: *mut c_int, id: *mut u64, graph: *mut CuGraph,
        dependencies: *mut *const CuGraphNode, data: *mut *const CuGraphEdgeData, count: *mut usize; stream
    ) => {
        Wanted { status, id, graph, dependencies, data, count }.fill(stream)
    }
    cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies_ptsz (
        stream: CuStream, dependencies: *mut CuGraphNode, count: usize, flags: c_uint; stream
    ) => {
        update(stream, dependencies, std::ptr::null(), count, flags)
    }
    cuStreamUpdateCaptureDependencies_v2 cuStreamUpdateCaptureDependencies_v2_ptsz (
        stream: CuStream, dependencies: *mut CuGraphNode, data: *const CuGraphEdgeData, count: usize, flags: c_uint;
        stream
    ) => {
        update(stream, dependencies, data, count, flags)
    }
}

fn begin(stream: StreamName, mode: c_int) -> Answer {
    let mode = rules::Mode::from_number(mode).ok_or(CuResult::INVALID_VALUE)?;
    let stream = stream.find()?;
    // Refused before a graph is made for it.
    if stream.facts().is_legacy {
        return Err(CuResult::STREAM_CAPTURE_UNSUPPORTED);
    }
    let graph = Graph::create()?;
    capture::begin(&stream, mode, Arc::clone(&graph), true, Vec::new()).inspect_err(|_| graph.discard_capture())
}

fn number(status: rules::Status) -> c_int {
    match status {
        rules::Status::Idle => STATUS_NONE,
        rules::Status::Active(_) => STATUS_ACTIVE,
        rules::Status::Invalidated(_) => STATUS_INVALIDATED,
    }
}

/// Where the parts of the answer go; null for those not wanted.
struct Wanted {
    status: *mut c_int,
    id: *mut u64,
    graph: *mut CuGraph,
    dependencies: *mut *const CuGraphNode,
    data: *mut *const CuGraphEdgeData,
    count: *mut usize,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            status: std::ptr::null_mut(),
            id: std::ptr::null_mut(),
            graph: std::ptr::null_mut(),
            dependencies: std::ptr::null_mut(),
            data: std::ptr::null_mut(),
            count: std::ptr::null_mut(),
        }
    }
}

impl Wanted {
    fn fill(self, stream: StreamName) -> Answer {
        let stream = stream.find()?;
        store(self.status, number(capture::status(&stream)?))?;
        let Some(info) = capture::info(&stream)? else {
            return Ok(());
        };
        store_if(self.id, info.session)?;
        store_if(self.graph, info.graph.handle)?;
        store_if(self.count, info.tips.len())?;
        let handles: Vec<CuGraphNode> = info.tips.iter().map(|&tip| info.graph.handle_of(tip)).collect();
        ANSWERED.with_borrow_mut(|(nodes, edges)| {
            *edges = vec![CuGraphEdgeData::default(); handles.len()];
            *nodes = handles;
            store_if(self.dependencies, nodes.as_ptr())?;
            store_if(self.data, edges.as_ptr())
        })
    }
}

fn store_if<T>(to: *mut T, value: T) -> Answer {
    if to.is_null() { Ok(()) } else { store(to, value) }
}

fn update(
    stream: StreamName,
    dependencies: *const CuGraphNode,
    data: *const CuGraphEdgeData,
    count: usize,
    flags: c_uint,
) -> Answer {
    let stream = stream.find()?;
    if flags > SET_DEPENDENCIES {
        return Err(CuResult::INVALID_VALUE);
    }
    edges_from(data, count)?;
    let tips = tips_from(&stream, dependencies, count)?;
    capture::update_tips(&stream, &tips, flags == SET_DEPENDENCIES)
}

fn tips_from(stream: &Stream, dependencies: *const CuGraphNode, count: usize) -> Answer<Vec<NodeKey>> {
    match capture::info(stream)? {
        Some(info) => nodes_from(&info.graph, dependencies, count),
        None if capture::status(stream)? == rules::Status::Idle => Err(CuResult::ILLEGAL_STATE),
        None => Err(CuResult::STREAM_CAPTURE_INVALIDATED),
    }
}

pub fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> CuResult {
    answer(|| {
        driver()?;
        if mode.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null, and by the entry point's contract a mode.
        let wanted = unsafe { mode.read_unaligned() };
        let wanted = rules::Mode::from_number(wanted).ok_or(CuResult::INVALID_VALUE)?;
        store(mode, capture::exchange_mode(wanted).number())
    })
}
