// SPDX-License-Identifier: Apache-2.0
//! Graphs: making, copying and taking apart; edges; questions about the structure.

use std::ffi::CStr;
use std::fmt::Write as _;
use std::sync::Arc;

use partage_abi::types::*;

use super::flavours::answer;

use crate::graph::Work;
use crate::graph::nodes::{Edge, NodeKey};
use crate::graph::{Graph, find_node};
use crate::state::{Answer, code, store};

pub fn cuGraphCreate(graph: *mut CuGraph, flags: c_uint) -> CuResult {
    if graph.is_null() || flags != 0 {
        return CuResult::INVALID_VALUE;
    }
    code(Graph::create().and_then(|made| store(graph, made.handle)))
}

pub fn cuGraphDestroy(graph: CuGraph) -> CuResult {
    code(Graph::destroy(graph))
}

pub fn cuGraphDestroyNode(node: CuGraphNode) -> CuResult {
    code(find_node(node).and_then(|(graph, key)| graph.remove(key)))
}

pub fn cuGraphClone(clone: *mut CuGraph, original: CuGraph) -> CuResult {
    if clone.is_null() {
        return CuResult::INVALID_VALUE;
    }
    code(Graph::find(original).and_then(|graph| store(clone, graph.copy(false)?.handle)))
}

pub fn cuGraphNodeFindInClone(node: *mut CuGraphNode, original: CuGraphNode, clone: CuGraph) -> CuResult {
    answer(|| {
        let ((_, original), clone) = (find_node(original)?, Graph::find(clone)?);
        let found = clone.lock().copy_of(original).ok_or(CuResult::INVALID_VALUE)?;
        store(node, clone.handle_of(found))
    })
}

pub fn cuGraphGetId(graph: CuGraph, id: *mut c_uint) -> CuResult {
    code(Graph::find(graph).and_then(|graph| store(id, graph.id)))
}

pub fn cuGraphNodeGetContainingGraph(node: CuGraphNode, graph: *mut CuGraph) -> CuResult {
    code(find_node(node).and_then(|(own, _)| store(graph, own.handle)))
}

pub fn cuGraphNodeGetLocalId(node: CuGraphNode, id: *mut c_uint) -> CuResult {
    code(find_node(node).and_then(|(graph, key)| {
        let place = graph.lock().keys().iter().position(|&other| other == key);
        store(id, place.ok_or(CuResult::INVALID_VALUE)? as c_uint)
    }))
}

pub fn cuGraphNodeGetToolsId(node: CuGraphNode, id: *mut c_ulonglong) -> CuResult {
    code(find_node(node).and_then(|(_, key)| store(id, key)))
}

pub fn cuGraphNodeGetType(node: CuGraphNode, kind: *mut c_int) -> CuResult {
    code(find_node(node).and_then(|(graph, key)| {
        let found = graph.lock().get(key).map(|content| content.work.kind());
        store(kind, found.ok_or(CuResult::INVALID_VALUE)?)
    }))
}

// ---- reading arrays -------------------------------------------------------------------------------------------

fn array<'a, T>(from: *const T, count: usize) -> Answer<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if from.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: not null, and by the entry point's contract an array of `count` entries that lives during the call.
    Ok(unsafe { std::slice::from_raw_parts(from, count) })
}

/// The nodes of a graph in an array of handles. INVALID_VALUE if one is not the graph's.
pub(super) fn nodes_from(graph: &Graph, handles: *const CuGraphNode, count: usize) -> Answer<Vec<NodeKey>> {
    graph.keys_of(array(handles, count)?)
}

/// Edge data in an array; plain edges where there is none. INVALID_VALUE for what no driver knows.
pub(super) fn edges_from(data: *const CuGraphEdgeData, count: usize) -> Answer<Vec<Edge>> {
    if data.is_null() {
        return Ok(vec![Edge::default(); count]);
    }
    let edge = |data: &CuGraphEdgeData| {
        if data.kind > 1 || data.reserved != [0; 5] {
            return Err(CuResult::INVALID_VALUE);
        }
        Ok(Edge {
            from_port: data.from_port,
            to_port: data.to_port,
            kind: data.kind,
        })
    };
    array(data, count)?.iter().map(edge).collect()
}

fn data_of(edge: Edge) -> CuGraphEdgeData {
    CuGraphEdgeData {
        from_port: edge.from_port,
        to_port: edge.to_port,
        kind: edge.kind,
        reserved: [0; 5],
    }
}

// ---- answering with arrays ------------------------------------------------------------------------------------

/// Fills arrays that the program gave room for: with null it only learns how many there are; with more room than
/// needed the rest becomes null and the number is told. `to` are arrays of the same length, null if not wanted.
fn answer_rows<const N: usize>(found: &[[CuGraphNode; N]], to: [*mut CuGraphNode; N], count: *mut usize) -> Answer {
    if count.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    if to.iter().all(|array| array.is_null()) {
        return store(count, found.len());
    }
    // SAFETY: not null, and by the entry point's contract the number of entries that the arrays have room for.
    let room = unsafe { count.read_unaligned() };
    for place in 0..room {
        for (column, array) in to.iter().enumerate().filter(|(_, array)| !array.is_null()) {
            let handle = found.get(place).map_or(CuGraphNode::NULL, |row| row[column]);
            // SAFETY: inside the room that the program says there is.
            unsafe { array.add(place).write_unaligned(handle) };
        }
    }
    store(count, found.len().min(room))
}

/// As [`answer_rows`] for edge data. CUDA_ERROR_LOSSY_QUERY for data that an old entry point cannot tell.
fn answer_data(edges: &[Edge], to: *mut CuGraphEdgeData, room: usize, can_tell: bool) -> Answer {
    if !can_tell && edges.iter().any(|&edge| edge != Edge::default()) {
        return Err(CuResult::LOSSY_QUERY);
    }
    if !to.is_null() {
        for (place, &edge) in edges.iter().take(room).enumerate() {
            // SAFETY: inside the room that the program says there is.
            unsafe { to.add(place).write_unaligned(data_of(edge)) };
        }
    }
    Ok(())
}

fn room_in(count: *const usize) -> usize {
    if count.is_null() {
        return 0;
    }
    // SAFETY: not null, and by the entry point's contract a number.
    unsafe { count.read_unaligned() }
}

fn answer_keys(graph: &Graph, keys: &[NodeKey], nodes: *mut CuGraphNode, count: *mut usize) -> Answer {
    let found: Vec<[CuGraphNode; 1]> = keys.iter().map(|&key| [graph.handle_of(key)]).collect();
    answer_rows(&found, [nodes], count)
}

pub fn cuGraphGetNodes(graph: CuGraph, nodes: *mut CuGraphNode, count: *mut usize) -> CuResult {
    code(Graph::find(graph).and_then(|graph| {
        let keys = graph.lock().keys();
        answer_keys(&graph, &keys, nodes, count)
    }))
}

pub fn cuGraphGetRootNodes(graph: CuGraph, nodes: *mut CuGraphNode, count: *mut usize) -> CuResult {
    code(Graph::find(graph).and_then(|graph| {
        let keys = graph.lock().roots();
        answer_keys(&graph, &keys, nodes, count)
    }))
}

fn get_edges(
    graph: CuGraph,
    from: *mut CuGraphNode,
    to: *mut CuGraphNode,
    data: *mut CuGraphEdgeData,
    count: *mut usize,
    can_tell: bool,
) -> Answer {
    let graph = Graph::find(graph)?;
    if from.is_null() != to.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    let edges = graph.lock().edges();
    let found: Vec<[CuGraphNode; 2]> = edges
        .iter()
        .map(|&(from, to, _)| [graph.handle_of(from), graph.handle_of(to)])
        .collect();
    let all: Vec<Edge> = edges.iter().map(|&(_, _, edge)| edge).collect();
    answer_data(&all, data, room_in(count), can_tell)?;
    answer_rows(&found, [from, to], count)
}

pub fn cuGraphGetEdges(graph: CuGraph, from: *mut CuGraphNode, to: *mut CuGraphNode, count: *mut usize) -> CuResult {
    code(get_edges(graph, from, to, std::ptr::null_mut(), count, false))
}

pub fn cuGraphGetEdges_v2(
    graph: CuGraph,
    from: *mut CuGraphNode,
    to: *mut CuGraphNode,
    data: *mut CuGraphEdgeData,
    count: *mut usize,
) -> CuResult {
    code(get_edges(graph, from, to, data, count, !data.is_null()))
}

#[derive(Clone, Copy)]
enum Way {
    Ahead,
    Behind,
}

fn neighbours(
    node: CuGraphNode,
    way: Way,
    nodes: *mut CuGraphNode,
    data: *mut CuGraphEdgeData,
    count: *mut usize,
    can_tell: bool,
) -> Answer {
    let (graph, key) = find_node(node)?;
    let found = match way {
        Way::Ahead => graph.lock().ahead_of(key),
        Way::Behind => graph.lock().behind(key),
    };
    let (keys, edges): (Vec<NodeKey>, Vec<Edge>) = found.into_iter().unzip();
    answer_data(&edges, data, room_in(count), can_tell)?;
    answer_keys(&graph, &keys, nodes, count)
}

pub fn cuGraphNodeGetDependencies(node: CuGraphNode, nodes: *mut CuGraphNode, count: *mut usize) -> CuResult {
    code(neighbours(node, Way::Ahead, nodes, std::ptr::null_mut(), count, false))
}

pub fn cuGraphNodeGetDependencies_v2(
    node: CuGraphNode,
    nodes: *mut CuGraphNode,
    data: *mut CuGraphEdgeData,
    count: *mut usize,
) -> CuResult {
    code(neighbours(node, Way::Ahead, nodes, data, count, !data.is_null()))
}

pub fn cuGraphNodeGetDependentNodes(node: CuGraphNode, nodes: *mut CuGraphNode, count: *mut usize) -> CuResult {
    code(neighbours(node, Way::Behind, nodes, std::ptr::null_mut(), count, false))
}

pub fn cuGraphNodeGetDependentNodes_v2(
    node: CuGraphNode,
    nodes: *mut CuGraphNode,
    data: *mut CuGraphEdgeData,
    count: *mut usize,
) -> CuResult {
    code(neighbours(node, Way::Behind, nodes, data, count, !data.is_null()))
}

// ---- edges ----------------------------------------------------------------------------------------------------

fn change_edges(
    graph: CuGraph,
    from: *const CuGraphNode,
    to: *const CuGraphNode,
    data: *const CuGraphEdgeData,
    count: usize,
    is_added: bool,
) -> Answer {
    let graph = Graph::find(graph)?;
    let (from, to) = (nodes_from(&graph, from, count)?, nodes_from(&graph, to, count)?);
    let edges = edges_from(data, count)?;
    if !is_added {
        graph.check_removal()?;
    }
    let mut nodes = graph.lock();
    for ((&from, &to), &edge) in from.iter().zip(&to).zip(&edges) {
        let changed = if is_added {
            nodes.connect(from, to, edge)
        } else {
            nodes.disconnect(from, to, edge)
        };
        changed.map_err(|_| CuResult::INVALID_VALUE)?;
    }
    Ok(())
}

pub fn cuGraphAddDependencies(
    graph: CuGraph,
    from: *const CuGraphNode,
    to: *const CuGraphNode,
    count: usize,
) -> CuResult {
    code(change_edges(graph, from, to, std::ptr::null(), count, true))
}

pub fn cuGraphAddDependencies_v2(
    graph: CuGraph,
    from: *const CuGraphNode,
    to: *const CuGraphNode,
    data: *const CuGraphEdgeData,
    count: usize,
) -> CuResult {
    code(change_edges(graph, from, to, data, count, true))
}

pub fn cuGraphRemoveDependencies(
    graph: CuGraph,
    from: *const CuGraphNode,
    to: *const CuGraphNode,
    count: usize,
) -> CuResult {
    code(change_edges(graph, from, to, std::ptr::null(), count, false))
}

pub fn cuGraphRemoveDependencies_v2(
    graph: CuGraph,
    from: *const CuGraphNode,
    to: *const CuGraphNode,
    data: *const CuGraphEdgeData,
    count: usize,
) -> CuResult {
    code(change_edges(graph, from, to, data, count, false))
}

// ---- a picture ------------------------------------------------------------------------------------------------

pub fn cuGraphDebugDotPrint(graph: CuGraph, path: *const c_char, _flags: c_uint) -> CuResult {
    answer(|| {
        let graph = Graph::find(graph)?;
        if path.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null, and by the entry point's contract a C string.
        let path = unsafe { CStr::from_ptr(path) }
            .to_str()
            .map_err(|_| CuResult::INVALID_VALUE)?;
        let mut text = String::from("digraph dot {\n");
        draw(&graph, &mut text);
        text.push_str("}\n");
        std::fs::write(path, text).map_err(|_| CuResult::OPERATING_SYSTEM)
    })
}

fn draw(graph: &Arc<Graph>, text: &mut String) {
    let nodes = graph.lock();
    let _ = writeln!(text, "subgraph cluster_{} {{\nlabel=\"graph_{}\";", graph.id, graph.id);
    for key in nodes.keys() {
        let Some(content) = nodes.get(key) else { continue };
        let label = match &content.work {
            Work::Kernel(launch) => format!("KERNEL {}", launch.function.name()),
            Work::Copy(..) => "MEMCPY".into(),
            Work::Fill(..) => "MEMSET".into(),
            Work::Host(_) => "HOST".into(),
            Work::Child(_) => "GRAPH".into(),
            Work::Empty => "EMPTY".into(),
            Work::Wait(_) => "EVENT_WAIT".into(),
            Work::Record(_) => "EVENT_RECORD".into(),
            Work::Words(_) => "BATCH_MEM_OP".into(),
            Work::Allocate(allocation) => format!("MEM_ALLOC {:#x}", allocation.address),
            Work::Free(allocation) => format!("MEM_FREE {:#x}", allocation.address),
        };
        let _ = writeln!(text, "\"node_{key}\" [label=\"{label}\"];");
        if let Work::Child(inner) = &content.work {
            draw(inner, text);
        }
    }
    for (from, to, _) in nodes.edges() {
        let _ = writeln!(text, "\"node_{from}\" -> \"node_{to}\";");
    }
    text.push_str("}\n");
}
