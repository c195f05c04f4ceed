// SPDX-License-Identifier: Apache-2.0
//! Graphs with memory nodes, made and measured.

use std::sync::atomic::{AtomicU32, Ordering};

use partage_abi::types::*;
use partage_abi::values::*;

use crate::machine::{Driver, call};

pub const MIB: u64 = 1 << 20;

pub const NON_BLOCKING: u32 = 1;

pub fn graph(driver: &Driver) -> CuGraph {
    let mut graph = CuGraph::NULL;
    call!(driver, cuGraphCreate(&mut graph, 0));
    graph
}

pub fn wish(bytes: u64) -> CudaMemAllocNodeParams {
    CudaMemAllocNodeParams {
        poolProps: CuMemPoolProps {
            allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
            location: CuMemLocation {
                kind: CU_MEM_LOCATION_TYPE_DEVICE,
                id: 0,
            },
            ..Default::default()
        },
        bytesize: bytes as usize,
        ..Default::default()
    }
}

/// Adds an allocation node; answers it and its address.
pub fn allocate(driver: &Driver, graph: CuGraph, after: &[CuGraphNode], bytes: u64) -> (CuGraphNode, u64) {
    let (mut node, mut params) = (CuGraphNode::NULL, wish(bytes));
    call!(
        driver,
        cuGraphAddMemAllocNode(&mut node, graph, after.as_ptr(), after.len(), &mut params)
    );
    assert_ne!(params.dptr, 0);
    (node, params.dptr)
}

pub fn free(driver: &Driver, graph: CuGraph, after: &[CuGraphNode], address: u64) -> CuGraphNode {
    let mut node = CuGraphNode::NULL;
    call!(
        driver,
        cuGraphAddMemFreeNode(&mut node, graph, after.as_ptr(), after.len(), address)
    );
    node
}

/// Adds a node that sets words.
pub fn fill(
    driver: &Driver,
    graph: CuGraph,
    after: &[CuGraphNode],
    address: u64,
    value: u32,
    words: usize,
) -> CuGraphNode {
    let params = CudaMemsetNodeParams {
        dst: address,
        pitch: 0,
        value,
        elementSize: 4,
        width: words,
        height: 1,
    };
    let mut node = CuGraphNode::NULL;
    call!(
        driver,
        cuGraphAddMemsetNode(&mut node, graph, after.as_ptr(), after.len(), &params, driver.context)
    );
    node
}

/// Adds a node that copies bytes on the device.
pub fn copy(driver: &Driver, graph: CuGraph, after: &[CuGraphNode], to: u64, from: u64, bytes: usize) -> CuGraphNode {
    let params = CudaMemcpy3d {
        srcMemoryType: 2,
        srcDevice: from,
        srcPitch: bytes,
        srcHeight: 1,
        dstMemoryType: 2,
        dstDevice: to,
        dstPitch: bytes,
        dstHeight: 1,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        ..CudaMemcpy3d::default()
    };
    let mut node = CuGraphNode::NULL;
    call!(
        driver,
        cuGraphAddMemcpyNode(&mut node, graph, after.as_ptr(), after.len(), &params, driver.context)
    );
    node
}

/// A graph that allocates, sets, copies the first word out, and frees. Answers the address too.
pub fn scratch(driver: &Driver, bytes: u64, value: u32, to: u64) -> (CuGraph, u64) {
    let graph = graph(driver);
    let (node, address) = allocate(driver, graph, &[], bytes);
    let node = fill(driver, graph, &[node], address, value, bytes as usize / 4);
    let node = copy(driver, graph, &[node], to, address, 4);
    free(driver, graph, &[node], address);
    (graph, address)
}

/// A graph that allocates and sets, and leaves the memory to whoever comes after.
pub fn lasting(driver: &Driver, bytes: u64, value: u32) -> (CuGraph, u64) {
    let graph = graph(driver);
    let (node, address) = allocate(driver, graph, &[], bytes);
    fill(driver, graph, &[node], address, value, 4);
    (graph, address)
}

pub fn instantiate(driver: &Driver, graph: CuGraph, flags: u64) -> CuGraphExec {
    let mut exec = CuGraphExec::NULL;
    call!(driver, cuGraphInstantiateWithFlags(&mut exec, graph, flags));
    exec
}

pub fn figure(driver: &Driver, attribute: i32) -> u64 {
    let mut value = u64::MAX;
    call!(
        driver,
        cuDeviceGetGraphMemAttribute(0, attribute, (&raw mut value).cast())
    );
    value
}

pub fn reserved(driver: &Driver) -> u64 {
    figure(driver, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
}

pub fn used(driver: &Driver) -> u64 {
    figure(driver, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)
}

pub fn trim(driver: &Driver) {
    call!(driver, cuDeviceGraphMemTrim(0));
}

/// Zeroed device memory; no stream needs to wait for the zeroes.
pub fn memory(driver: &Driver, bytes: usize) -> u64 {
    let address = driver.memory(bytes);
    call!(driver, cuCtxSynchronize());
    address
}

/// Bytes of the device in use by anybody.
pub fn in_use(driver: &Driver) -> u64 {
    let (mut free, mut total) = (0, 0);
    call!(driver, cuMemGetInfo_v2(&mut free, &mut total));
    (total - free) as u64
}

/// How many of the waits below may end.
static PASSES: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn wait(number: *mut c_void) {
    while PASSES.load(Ordering::Acquire) < number as u32 {
        std::thread::yield_now();
    }
}

pub fn hold(driver: &Driver, stream: CuStream, number: usize) {
    call!(driver, cuLaunchHostFunc(stream, Some(wait), number as *mut c_void));
}

pub fn pass(number: u32) {
    PASSES.store(number, Ordering::Release);
}
