// SPDX-License-Identifier: Apache-2.0
//! Memory nodes of graphs, and what a device says of the memory of graphs.

use std::sync::Arc;

use partage_abi::types::*;
use partage_abi::values::*;

use super::graph_spot::Spot;
use super::graph_work::read;
use super::memory_pool::device_of;
use crate::graph::Work;
use crate::graph::{Graph, find_node};
use crate::memory::{Allocation, Wish, memory};
use crate::state::{Answer, code, driver, store};

/// What a node is asked for with. NOT_SUPPORTED for memory of the host and for what other processes may open.
fn wish(properties: &CuMemPoolProps, access: *const CuMemAccessDesc, count: usize, bytes: usize) -> Answer<Wish> {
    let driver = driver()?;
    if properties.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || count > 0 && access.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    if properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE {
        return Err(CuResult::NOT_SUPPORTED);
    }
    let ordinal = device_of(&properties.location)?;
    let device = driver.device(ordinal)?.index;
    let mut reach = 1 << device;
    let mut wishes = Vec::new();
    for place in 0..count {
        // SAFETY: not null, and by the contract of the entry point `count` entries long.
        let wish = unsafe { access.add(place).read_unaligned() };
        let other = driver.device(device_of(&wish.location)?)?.index;
        match wish.flags {
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE => reach |= 1 << other,
            // The device that has the memory always reaches it.
            CU_MEM_ACCESS_FLAGS_PROT_NONE if other != device => reach &= !(1 << other),
            _ => return Err(CuResult::INVALID_VALUE),
        }
        wishes.push(wish);
    }
    Ok(Wish {
        device,
        ordinal,
        bytes: bytes as u64,
        reach,
        properties: *properties,
        access: wishes,
    })
}

/// Adds an allocation node and gives its address.
fn add_allocation(spot: Spot, wish: Answer<Wish>, address: *mut CuDevicePtr) -> CuResult {
    spot.add_with(|graph, after| {
        let (key, made) = graph.add_allocation(wish?, after)?;
        store(address, made.address)?;
        Ok(key)
    })
}

fn add_free(spot: Spot, address: CuDevicePtr) -> CuResult {
    spot.add_with(|graph, after| graph.add_free(address, after))
}

pub fn cuGraphAddMemAllocNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    params: *mut CudaMemAllocNodeParams,
) -> CuResult {
    match read(params.cast_const()) {
        Err(code) => code,
        Ok(given) => add_allocation(
            Spot::new(node, graph, dependencies, count),
            wish(
                &given.poolProps,
                given.accessDescs,
                given.accessDescCount,
                given.bytesize,
            ),
            // SAFETY: not null; only the place is computed.
            unsafe { &raw mut (*params).dptr },
        ),
    }
}

pub fn cuGraphAddMemFreeNode(
    node: *mut CuGraphNode,
    graph: CuGraph,
    dependencies: *const CuGraphNode,
    count: usize,
    address: CuDevicePtr,
) -> CuResult {
    add_free(Spot::new(node, graph, dependencies, count), address)
}

/// The general form of [`cuGraphAddMemAllocNode`]. Precondition: `params` leads to parameters of that type.
pub(super) fn add_general_allocation(spot: Spot, params: *mut CuGraphNodeParams) -> CuResult {
    // SAFETY: by the precondition; plain data.
    let given = unsafe { (*params).params.alloc };
    let wish = wish(
        &given.poolProps,
        given.accessDescs,
        given.accessDescCount,
        given.bytesize,
    );
    // SAFETY: by the precondition; only the place is computed.
    add_allocation(spot, wish, unsafe { &raw mut (*params).params.alloc.dptr })
}

/// The general form of [`cuGraphAddMemFreeNode`]. Precondition: `params` leads to parameters of that type.
pub(super) fn add_general_free(spot: Spot, params: *mut CuGraphNodeParams) -> CuResult {
    // SAFETY: by the precondition; plain data.
    add_free(spot, unsafe { (*params).params.free.dptr })
}

/// What a memory node allocates, or frees. INVALID_VALUE for another type.
fn allocation(node: CuGraphNode, choose: impl FnOnce(&Work) -> Option<&Arc<Allocation>>) -> Answer<Arc<Allocation>> {
    let (graph, key) = find_node(node)?;
    let nodes: &Graph = &graph;
    let nodes = nodes.lock();
    let found = nodes.get(key).and_then(|content| choose(&content.work)).cloned();
    found.ok_or(CuResult::INVALID_VALUE)
}

pub fn cuGraphMemAllocNodeGetParams(node: CuGraphNode, params: *mut CudaMemAllocNodeParams) -> CuResult {
    let found = allocation(node, |work| match work {
        Work::Allocate(allocation) => Some(allocation),
        _ => None,
    });
    code(found.and_then(|found| {
        let part = found.graph_part().ok_or(CuResult::INVALID_VALUE)?;
        let told = CudaMemAllocNodeParams {
            poolProps: part.properties,
            // Lives as long as the node.
            accessDescs: match part.access.len() {
                0 => std::ptr::null(),
                _ => part.access.as_ptr(),
            },
            accessDescCount: part.access.len(),
            bytesize: found.bytes as usize,
            dptr: found.address,
        };
        store(params, told)
    }))
}

pub fn cuGraphMemFreeNodeGetParams(node: CuGraphNode, address: *mut CuDevicePtr) -> CuResult {
    let found = allocation(node, |work| match work {
        Work::Free(allocation) => Some(allocation),
        _ => None,
    });
    code(found.and_then(|found| store(address, found.address)))
}

// ---- a device's graphs ----------------------------------------------------------------------------------------

pub fn cuDeviceGraphMemTrim(device: CuDevice) -> CuResult {
    code(driver().and_then(|driver| {
        let device = driver.device(device)?.index;
        memory()?.trim_graphs(driver, device);
        Ok(())
    }))
}

pub fn cuDeviceGetGraphMemAttribute(device: CuDevice, attribute: c_int, value: *mut c_void) -> CuResult {
    code(driver().and_then(|driver| {
        let figures = memory()?.graph_pool().figures(driver.device(device)?.index);
        let found = match attribute {
            CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => figures.used,
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => figures.used_high,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => figures.reserved,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => figures.reserved_high,
            _ => return Err(CuResult::INVALID_VALUE),
        };
        store(value.cast::<u64>(), found)
    }))
}

pub fn cuDeviceSetGraphMemAttribute(device: CuDevice, attribute: c_int, value: *mut c_void) -> CuResult {
    code(driver().and_then(|driver| {
        let device = driver.device(device)?.index;
        // High marks can only be set back, and then are what is now.
        if read(value.cast::<u64>().cast_const())? != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let is_used = match attribute {
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => true,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => false,
            _ => return Err(CuResult::INVALID_VALUE),
        };
        memory()?.graph_pool().reset_high(device, is_used);
        Ok(())
    }))
}
