// SPDX-License-Identifier: Apache-2.0
//! Memory nodes of graphs: what they say, how they come about, who may free, and what graphs with them may not do.

use partage_abi::types::*;
use partage_abi::values::*;

use crate::graph_memory::*;
use crate::machine::{call, on_machine, refused};

const RELAXED: i32 = 2;

on_machine! {
    memory_nodes_tell_what_they_do => |driver| {
        let (graph, mut node) = (graph(driver), CuGraphNode::NULL);
        let mut params = CuGraphNodeParams { kind: 10, ..CuGraphNodeParams::default() };
        let descriptor = CuMemAccessDesc { location: wish(1).poolProps.location, flags: 3 };
        params.params.alloc = CudaMemAllocNodeParamsV2 {
            poolProps: wish(1).poolProps, accessDescs: &descriptor, accessDescCount: 1, bytesize: 1000, dptr: 0,
        };
        call!(driver, cuGraphAddNode(&mut node, graph, std::ptr::null(), 0, &mut params));
        // SAFETY: the driver wrote it.
        let address = unsafe { params.params.alloc.dptr };
        let mut told = CudaMemAllocNodeParams::default();
        call!(driver, cuGraphMemAllocNodeGetParams(node, &mut told));
        assert_eq!((told.dptr, told.bytesize, told.accessDescCount), (address, 1000, 1));
        assert_eq!(told.poolProps.location.id, 0);
        // SAFETY: as many as told.
        assert_eq!(unsafe { (*told.accessDescs).flags }, 3);
        let mut params = CuGraphNodeParams { kind: 11, ..CuGraphNodeParams::default() };
        params.params.free.dptr = address;
        let mut freed = CuGraphNode::NULL;
        call!(driver, cuGraphAddNode_v2(&mut freed, graph, &node, std::ptr::null(), 1, &mut params));
        let mut of = 0;
        call!(driver, cuGraphMemFreeNodeGetParams(freed, &mut of));
        assert_eq!(of, address);
        let mut kinds = [0; 2];
        call!(driver, cuGraphNodeGetType(node, &mut kinds[0]));
        call!(driver, cuGraphNodeGetType(freed, &mut kinds[1]));
        assert_eq!(kinds, [10, 11]);
        refused!(INVALID_VALUE: driver, cuGraphMemFreeNodeGetParams(node, &mut of));
        refused!(INVALID_VALUE: driver, cuGraphMemAllocNodeGetParams(freed, &mut told));
        let (mut base, mut bytes) = (0, 0);
        call!(driver, cuMemGetAddressRange_v2(&mut base, &mut bytes, address + 999));
        assert_eq!((base, bytes), (address, 1000));
        let mut kind = 0_u32;
        call!(driver, cuPointerGetAttribute((&raw mut kind).cast(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
        assert_eq!(kind, CU_MEMORYTYPE_DEVICE as u32);
        for wrong in [
            CudaMemAllocNodeParams { bytesize: 0, ..wish(1) },
            CudaMemAllocNodeParams { poolProps: CuMemPoolProps::default(), ..wish(1) },
            CudaMemAllocNodeParams { accessDescCount: 1, ..wish(1) },
        ] {
            refused!(INVALID_VALUE: driver, cuGraphAddMemAllocNode(
                &mut node, graph, std::ptr::null(), 0, &mut wrong.clone()
            ));
        }
        let mut host = wish(1);
        host.poolProps.location.kind = CU_MEM_LOCATION_TYPE_HOST;
        refused!(NOT_SUPPORTED: driver, cuGraphAddMemAllocNode(&mut node, graph, std::ptr::null(), 0, &mut host));
        refused!(INVALID_VALUE: driver, cuGraphAddMemAllocNode(
            &mut node, graph, std::ptr::null(), 0, std::ptr::null_mut()
        ));
    }

    another_graph_may_free_what_one_leaves => |driver| {
        let (stream, (first, address)) = (driver.stream(NON_BLOCKING), lasting(driver, MIB, 3));
        let second = graph(driver);
        let node = free(driver, second, &[], address);
        refused!(INVALID_VALUE: driver, cuGraphAddMemFreeNode(&mut { node }, second, std::ptr::null(), 0, address));
        refused!(INVALID_VALUE: driver, cuGraphAddMemFreeNode(&mut { node }, first, std::ptr::null(), 0, address));
        let (maker, taker) = (instantiate(driver, first, 0), instantiate(driver, second, 0));
        refused!(INVALID_VALUE: driver, cuGraphLaunch(taker, stream));
        for _ in 0..3 {
            call!(driver, cuGraphLaunch(maker, stream));
            refused!(INVALID_VALUE: driver, cuGraphLaunch(maker, stream));
            call!(driver, cuGraphLaunch(taker, stream));
            refused!(INVALID_VALUE: driver, cuGraphLaunch(taker, stream));
        }
        call!(driver, cuStreamSynchronize(stream));
        trim(driver);
        assert_eq!(reserved(driver), 0);
        // What a graph frees itself, no other one may.
        let (third, owned) = scratch(driver, 512, 1, memory(driver, 4));
        refused!(INVALID_VALUE: driver, cuGraphAddMemFreeNode(&mut { node }, second, std::ptr::null(), 0, owned));
        refused!(INVALID_VALUE: driver, cuGraphAddMemFreeNode(&mut { node }, third, std::ptr::null(), 0, owned));
        for wrong in [0, 4096, address + 512, memory(driver, 4)] {
            refused!(INVALID_VALUE: driver, cuGraphAddMemFreeNode(&mut { node }, third, std::ptr::null(), 0, wrong));
        }
    }

    graphs_with_memory_are_neither_copied_nor_taken_apart => |driver| {
        let (with, _) = scratch(driver, 512, 1, memory(driver, 4));
        let (mut nodes, mut count) = ([CuGraphNode::NULL; 4], 4);
        call!(driver, cuGraphGetNodes(with, nodes.as_mut_ptr(), &mut count));
        let (outer, mut node, mut copied) = (graph(driver), CuGraphNode::NULL, CuGraph::NULL);
        refused!(NOT_SUPPORTED: driver, cuGraphClone(&mut copied, with));
        refused!(NOT_SUPPORTED: driver, cuGraphAddChildGraphNode(&mut node, outer, std::ptr::null(), 0, with));
        for node in nodes {
            refused!(INVALID_VALUE: driver, cuGraphDestroyNode(node));
        }
        refused!(INVALID_VALUE: driver, cuGraphRemoveDependencies(with, &nodes[0], &nodes[1], 1));
        let exec = instantiate(driver, with, 0);
        let mut other = CuGraphExec::NULL;
        refused!(INVALID_VALUE: driver, cuGraphInstantiateWithFlags(&mut other, with, 0));
        let mut enabled = 0;
        refused!(INVALID_VALUE: driver, cuGraphNodeSetEnabled(exec, nodes[0], 0));
        refused!(INVALID_VALUE: driver, cuGraphNodeGetEnabled(exec, nodes[3], &mut enabled));
        // Its own graph may be used for an update, one with other memory may not.
        let (twin, _) = scratch(driver, 512, 1, memory(driver, 4));
        let mut info = CuGraphExecUpdateResultInfo::default();
        call!(driver, cuGraphExecUpdate_v2(exec, with, &mut info));
        refused!(GRAPH_EXEC_UPDATE_FAILURE: driver, cuGraphExecUpdate_v2(exec, twin, &mut info));
        assert_eq!(info.result, 6);
        let stream = driver.stream(0);
        call!(driver, cuStreamBeginCapture_v2(stream, RELAXED));
        refused!(NOT_SUPPORTED: driver, cuGraphLaunch(exec, stream));
        call!(driver, cuStreamEndCapture(stream, &mut copied));
        call!(driver, cuGraphExecDestroy(exec));
        call!(driver, cuGraphExecDestroy(instantiate(driver, with, 0)));
        refused!(INVALID_VALUE: driver, cuGraphInstantiateWithFlags(std::ptr::null_mut(), with, 0));
        call!(driver, cuGraphExecDestroy(instantiate(driver, with, 0)));
        // A free that does not come after its allocation.
        let wrong = graph(driver);
        let (_, address) = allocate(driver, wrong, &[], 512);
        let blamed = free(driver, wrong, &[], address);
        let mut params = CudaGraphInstantiateParams::default();
        refused!(INVALID_VALUE: driver, cuGraphInstantiateWithParams(&mut other, wrong, &mut params));
        assert_eq!(params.hErrNode_out, blamed);
    }

    captured_allocations_become_nodes => |driver| {
        let (stream, result, before) = (driver.stream(NON_BLOCKING), memory(driver, 64), in_use(driver));
        let (mut pool, mut a, mut b, mut left) = (CuMemoryPool::NULL, 0, 0, 0);
        call!(driver, cuDeviceGetDefaultMemPool(&mut pool, 0));
        call!(driver, cuStreamBeginCapture_v2(stream, RELAXED));
        call!(driver, cuMemAllocAsync(&mut a, 8 * MIB as usize, stream));
        call!(driver, cuMemsetD32Async(a, 0x55, 2 * MIB as usize, stream));
        call!(driver, cuMemcpyDtoDAsync_v2(result, a + 8 * MIB - 4, 4, stream));
        call!(driver, cuMemFreeAsync(a, stream));
        refused!(INVALID_VALUE: driver, cuMemFreeAsync(a, stream));
        call!(driver, cuMemAllocFromPoolAsync(&mut b, 4 * MIB as usize, pool, stream));
        call!(driver, cuMemsetD32Async(b, 0x66, MIB as usize, stream));
        call!(driver, cuMemcpyDtoDAsync_v2(result + 4, b, 4, stream));
        call!(driver, cuMemFreeAsync(b, stream));
        call!(driver, cuMemAllocAsync(&mut left, 16, stream));
        call!(driver, cuMemsetD32Async(left, 0x77, 4, stream));
        refused!(INVALID_VALUE: driver, cuMemAllocAsync(&mut left.clone(), 0, stream));
        refused!(INVALID_VALUE: driver, cuMemFreeAsync(result, stream));
        let mut graph = CuGraph::NULL;
        call!(driver, cuStreamEndCapture(stream, &mut graph));
        assert_eq!((a, left), (b, a), "one after the other in the same place");
        assert_eq!(in_use(driver), before);
        let (mut kinds, mut nodes, mut count) = (Vec::new(), [CuGraphNode::NULL; 16], 16);
        call!(driver, cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
        for &node in &nodes[..count] {
            let mut kind = 0;
            call!(driver, cuGraphNodeGetType(node, &mut kind));
            kinds.push(kind);
        }
        assert_eq!(kinds, [10, 2, 1, 11, 10, 2, 1, 11, 10, 2]);
        let exec = instantiate(driver, graph, 0);
        for _ in 0..2 {
            call!(driver, cuMemsetD8_v2(result, 0, 64));
            call!(driver, cuCtxSynchronize());
            call!(driver, cuGraphLaunch(exec, stream));
            assert_eq!(driver.words(result, 2), [0x55, 0x66]);
            assert_eq!((driver.words(left, 4), reserved(driver)), (vec![0x77; 4], 8 * MIB));
            call!(driver, cuMemFreeAsync(left, stream));
        }
        call!(driver, cuStreamSynchronize(stream));
        trim(driver);
        assert_eq!(in_use(driver), before);
    }

    a_capture_that_fails_leaves_no_memory => |driver| {
        let (stream, other, before) = (driver.stream(0), driver.stream(0), in_use(driver));
        let (event, mut graph, mut address) = (driver.event(), CuGraph::NULL, 0);
        // Work in another stream that is not joined; a call that spoils; the end of the stream.
        for way in 0..3 {
            let stream = if way < 2 { stream } else { driver.stream(0) };
            call!(driver, cuStreamBeginCapture_v2(stream, RELAXED));
            call!(driver, cuMemAllocAsync(&mut address, 8 * MIB as usize, stream));
            match way {
                0 => {
                    call!(driver, cuEventRecord(event, stream));
                    call!(driver, cuStreamWaitEvent(other, event, 0));
                    call!(driver, cuMemsetD8Async(address, 0, 16, other));
                    refused!(STREAM_CAPTURE_UNJOINED: driver, cuStreamEndCapture(stream, &mut graph));
                }
                1 => {
                    refused!(STREAM_CAPTURE_UNSUPPORTED: driver, cuStreamSynchronize(stream));
                    refused!(STREAM_CAPTURE_INVALIDATED: driver, cuMemAllocAsync(&mut { address }, 16, stream));
                    refused!(STREAM_CAPTURE_INVALIDATED: driver, cuStreamEndCapture(stream, &mut graph));
                }
                _ => call!(driver, cuStreamDestroy_v2(stream)),
            }
            refused!(INVALID_VALUE: driver, cuPointerGetAttribute(
                (&raw mut graph).cast(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address
            ));
            refused!(INVALID_VALUE: driver, cuMemFree_v2(address));
        }
        assert_eq!((in_use(driver), reserved(driver), used(driver)), (before, 0, 0));
        // The addresses are nobody's: the next graph gets the same.
        let (_, again) = allocate(driver, self::graph(driver), &[], 8 * MIB);
        assert_eq!(again, address);
    }

    marks_and_attributes_are_checked => |driver| {
        let (graph, address) = lasting(driver, 2 * MIB, 1);
        call!(driver, cuGraphLaunch(instantiate(driver, graph, 0), CuStream::NULL));
        call!(driver, cuMemFree_v2(address));
        trim(driver);
        let highs = [CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH];
        for high in highs {
            let mut value = 1_u64;
            let value: *mut c_void = (&raw mut value).cast();
            assert_eq!(figure(driver, high), 2 * MIB);
            refused!(INVALID_VALUE: driver, cuDeviceSetGraphMemAttribute(0, high, value));
            // SAFETY: the number above.
            unsafe { value.cast::<u64>().write(0) };
            refused!(INVALID_DEVICE: driver, cuDeviceSetGraphMemAttribute(7, high, value));
            refused!(INVALID_VALUE: driver, cuDeviceSetGraphMemAttribute(0, high - 1, value));
            call!(driver, cuDeviceSetGraphMemAttribute(0, high, value));
            assert_eq!(figure(driver, high), 0);
        }
        let mut value = 0_u64;
        refused!(INVALID_VALUE: driver, cuDeviceGetGraphMemAttribute(0, 4, (&raw mut value).cast()));
        refused!(INVALID_DEVICE: driver, cuDeviceGetGraphMemAttribute(-1, 0, (&raw mut value).cast()));
        refused!(INVALID_DEVICE: driver, cuDeviceGraphMemTrim(1));
    }
}
