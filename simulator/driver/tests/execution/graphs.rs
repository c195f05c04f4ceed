// SPDX-License-Identifier: Apache-2.0
//! Explicit graphs: built, asked about, changed, copied, launched.

use std::sync::atomic::{AtomicU32, Ordering};

use partage_abi::types::*;

use crate::machine::{Driver, Value, call, code, on_machine, pointers, refused};

const LEGACY: CuStream = CuStream::NULL;

fn graph(driver: &Driver) -> CuGraph {
    let mut graph = CuGraph::NULL;
    call!(driver, cuGraphCreate(&mut graph, 0));
    graph
}

fn kernel(driver: &Driver, name: &str, list: &mut [*mut c_void]) -> CudaKernelNodeParamsV1 {
    CudaKernelNodeParamsV1 {
        func: driver.kernel(name),
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        kernelParams: list.as_mut_ptr(),
        ..CudaKernelNodeParamsV1::default()
    }
}

fn append(driver: &Driver, graph: CuGraph, after: &[CuGraphNode], log: CuDevicePtr, value: u32) -> CuGraphNode {
    let parameters = [Value::Long(log), Value::Word(value)];
    let mut list = pointers(&parameters);
    let params = kernel(driver, "append", &mut list);
    let mut node = CuGraphNode::NULL;
    call!(
        driver,
        cuGraphAddKernelNode(&mut node, graph, after.as_ptr(), after.len(), &params)
    );
    node
}

fn instantiate(driver: &Driver, graph: CuGraph) -> CuGraphExec {
    let mut exec = CuGraphExec::NULL;
    let none = std::ptr::null_mut();
    call!(
        driver,
        cuGraphInstantiate_v2(&mut exec, graph, std::ptr::null_mut(), none, 0)
    );
    exec
}

on_machine! {
    replay_equals_eager_execution => |driver| {
        let count = 1000usize;
        let (bytes, n) = (count * 4, Value::Word(1000));
        let [x, y, z] = [0; 3].map(|_: u32| driver.memory(bytes));
        let eager = |x: u64, y: u64, z: u64| {
            for (name, list) in [
                ("fill_u32", vec![Value::Long(x), Value::Word(3.5f32.to_bits()), n]),
                ("saxpy", vec![Value::Long(y), Value::Long(x), Value::Word(0.25f32.to_bits()), n]),
                ("vector_add", vec![Value::Long(z), Value::Long(x), Value::Long(y), n]),
            ] {
                call!(driver, cuLaunchKernel(
                    driver.kernel(name), 8, 1, 1, 128, 1, 1, 0, LEGACY, pointers(&list).as_mut_ptr(),
                    std::ptr::null_mut()
                ));
            }
        };
        (0..5).for_each(|_| eager(x, y, z));
        let expected = (driver.words(y, count), driver.words(z, count));
        assert_eq!(f32::from_bits(expected.1[999]), 3.5 + 5.0 * 0.25 * 3.5);
        call!(driver, cuMemsetD8_v2(y, 0, bytes));
        let stream = driver.stream(0);
        call!(driver, cuCtxSynchronize());
        call!(driver, cuStreamBeginCapture_v2(stream, 2));
        for (name, list) in [
            ("fill_u32", vec![Value::Long(x), Value::Word(3.5f32.to_bits()), n]),
            ("saxpy", vec![Value::Long(y), Value::Long(x), Value::Word(0.25f32.to_bits()), n]),
            ("vector_add", vec![Value::Long(z), Value::Long(x), Value::Long(y), n]),
        ] {
            call!(driver, cuLaunchKernel(
                driver.kernel(name), 8, 1, 1, 128, 1, 1, 0, stream, pointers(&list).as_mut_ptr(), std::ptr::null_mut()
            ));
        }
        let mut captured = CuGraph::NULL;
        call!(driver, cuStreamEndCapture(stream, &mut captured));
        let exec = instantiate(driver, captured);
        (0..5).for_each(|_| call!(driver, cuGraphLaunch(exec, stream)));
        assert_eq!((driver.words(y, count), driver.words(z, count)), expected);
    }

    nodes_run_after_what_they_depend_on => |driver| {
        let (graph, log) = (graph(driver), driver.memory(256));
        let first = append(driver, graph, &[], log, 1);
        let second = append(driver, graph, &[first], log, 2);
        let third = append(driver, graph, &[second], log, 3);
        let mut join = CuGraphNode::NULL;
        call!(driver, cuGraphAddEmptyNode(&mut join, graph, [first, third].as_ptr(), 2));
        append(driver, graph, &[join], log, 4);
        let exec = instantiate(driver, graph);
        for _ in 0..2 {
            call!(driver, cuGraphLaunch(exec, LEGACY));
        }
        assert_eq!(driver.log(log), [1, 2, 3, 4, 1, 2, 3, 4]);
    }

    launch_is_one_operation_of_its_stream => |driver| {
        let (graph, log, stream) = (graph(driver), driver.memory(256), driver.stream(0));
        append(driver, graph, &[], log, 2);
        let exec = instantiate(driver, graph);
        driver.append(stream, log, 1);
        call!(driver, cuGraphLaunch(exec, stream));
        driver.append(stream, log, 3);
        assert_eq!(driver.log(log), [1, 2, 3]);
    }

    parameters_change_in_the_instantiated_graph_alone => |driver| {
        let (graph, log) = (graph(driver), driver.memory(256));
        let node = append(driver, graph, &[], log, 1);
        let exec = instantiate(driver, graph);
        let parameters = [Value::Long(log), Value::Word(9)];
        let mut list = pointers(&parameters);
        let params = kernel(driver, "append", &mut list);
        call!(driver, cuGraphExecKernelNodeSetParams(exec, node, &params));
        call!(driver, cuGraphLaunch(exec, LEGACY));
        call!(driver, cuGraphLaunch(instantiate(driver, graph), LEGACY));
        assert_eq!(driver.log(log), [9, 1]);
        call!(driver, cuGraphKernelNodeSetParams(node, &params));
        let (mut node_out, mut result) = (CuGraphNode::NULL, -1);
        let other = instantiate(driver, graph);
        call!(driver, cuGraphExecUpdate(exec, graph, &mut node_out, &mut result));
        call!(driver, cuGraphLaunch(other, LEGACY));
        assert_eq!((driver.log(log), result), (vec![9, 1, 9], 0));
        let mut read = CudaKernelNodeParamsV1::default();
        call!(driver, cuGraphKernelNodeGetParams(node, &mut read));
        assert_eq!((read.func, read.blockDimX), (driver.kernel("append"), 1));
        // SAFETY: the second parameter is a 4-byte word.
        assert_eq!(unsafe { *(*read.kernelParams.add(1)).cast::<u32>() }, 9);
        refused!(INVALID_VALUE: driver, cuGraphExecKernelNodeSetParams(exec, CuGraphNode::NULL, &params));
    }

    update_refuses_another_shape_and_says_where => |driver| {
        let (first, second, log) = (graph(driver), graph(driver), driver.memory(256));
        append(driver, first, &[], log, 1);
        let exec = instantiate(driver, first);
        let node = append(driver, second, &[], log, 1);
        let next = append(driver, second, &[node], log, 2);
        let mut info = CuGraphExecUpdateResultInfo::default();
        refused!(GRAPH_EXEC_UPDATE_FAILURE: driver, cuGraphExecUpdate_v2(exec, second, &mut info));
        assert_eq!(info.result, 2);
        call!(driver, cuGraphDestroyNode(next));
        call!(driver, cuGraphExecUpdate_v2(exec, second, &mut info));
        assert_eq!(info.result, 0);
        let third = graph(driver);
        let mut empty = CuGraphNode::NULL;
        call!(driver, cuGraphAddEmptyNode(&mut empty, third, std::ptr::null(), 0));
        refused!(GRAPH_EXEC_UPDATE_FAILURE: driver, cuGraphExecUpdate_v2(exec, third, &mut info));
        assert_eq!((info.result, info.errorNode), (3, empty));
    }

    copies_sets_and_host_functions_are_nodes_too => |driver| {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        unsafe extern "C" fn count(_: *mut c_void) {
            CALLS.fetch_add(1, Ordering::SeqCst);
        }
        let (graph, from, to) = (graph(driver), driver.memory(64), driver.memory(64));
        let [mut set, mut copied, mut called] = [CuGraphNode::NULL; 3];
        let fill = CudaMemsetNodeParams { dst: from, pitch: 0, value: 0xabcd, elementSize: 2, width: 32, height: 1 };
        call!(driver, cuGraphAddMemsetNode(&mut set, graph, std::ptr::null(), 0, &fill, driver.context));
        let copy = |to| CudaMemcpy3d {
            srcMemoryType: 2, srcDevice: from, srcPitch: 64, srcHeight: 1,
            dstMemoryType: 2, dstDevice: to, dstPitch: 64, dstHeight: 1,
            WidthInBytes: 64, Height: 1, Depth: 1, ..CudaMemcpy3d::default()
        };
        call!(driver, cuGraphAddMemcpyNode(&mut copied, graph, &set, 1, &copy(to), driver.context));
        let host = CudaHostNodeParams { function: Some(count), userData: std::ptr::null_mut() };
        call!(driver, cuGraphAddHostNode(&mut called, graph, &copied, 1, &host));
        let exec = instantiate(driver, graph);
        call!(driver, cuGraphLaunch(exec, LEGACY));
        assert_eq!(driver.words(to, 16), [0xabcd_abcd; 16]);
        assert_eq!(CALLS.load(Ordering::SeqCst), 1);
        let other = driver.memory(64);
        call!(driver, cuGraphExecMemcpyNodeSetParams(exec, copied, &copy(other), driver.context));
        let mut enabled = 7;
        call!(driver, cuGraphNodeSetEnabled(exec, set, 0));
        call!(driver, cuGraphNodeGetEnabled(exec, set, &mut enabled));
        call!(driver, cuMemsetD8_v2(from, 0x11, 64));
        call!(driver, cuGraphLaunch(exec, LEGACY));
        assert_eq!((driver.words(other, 1)[0], enabled), (0x1111_1111, 0));
        let mut kinds = [-1; 3];
        for (kind, node) in kinds.iter_mut().zip([set, copied, called]) {
            call!(driver, cuGraphNodeGetType(node, kind));
        }
        assert_eq!(kinds, [2, 1, 3]);
    }

    events_recorded_and_awaited_by_nodes => |driver| {
        let (graph, event, log) = (graph(driver), driver.event(), driver.memory(256));
        let node = append(driver, graph, &[], log, 1);
        let mut record = CuGraphNode::NULL;
        call!(driver, cuGraphAddEventRecordNode(&mut record, graph, &node, 1, event));
        let streams = [driver.stream(1), driver.stream(1)];
        call!(driver, cuCtxSynchronize());
        call!(driver, cuGraphLaunch(instantiate(driver, graph), streams[0]));
        call!(driver, cuStreamWaitEvent(streams[1], event, 0));
        driver.append(streams[1], log, 2);
        call!(driver, cuEventSynchronize(event));
        assert_eq!(driver.log(log), [1, 2]);
    }

    graph_inside_a_graph_is_a_copy => |driver| {
        let (inner, outer, log) = (graph(driver), graph(driver), driver.memory(256));
        let node = append(driver, inner, &[], log, 1);
        append(driver, inner, &[node], log, 2);
        let mut child = CuGraphNode::NULL;
        call!(driver, cuGraphAddChildGraphNode(&mut child, outer, std::ptr::null(), 0, inner));
        append(driver, outer, &[child], log, 3);
        call!(driver, cuGraphDestroy(inner));
        call!(driver, cuGraphLaunch(instantiate(driver, outer), LEGACY));
        assert_eq!(driver.log(log), [1, 2, 3]);
        let mut embedded = CuGraph::NULL;
        call!(driver, cuGraphChildGraphNodeGetGraph(child, &mut embedded));
        refused!(INVALID_VALUE: driver, cuGraphDestroy(embedded));
        refused!(INVALID_VALUE: driver, cuGraphNodeGetType(node, &mut 0));
    }

    structure_can_be_asked_changed_and_copied => |driver| {
        let (graph, log) = (graph(driver), driver.memory(256));
        let nodes: Vec<CuGraphNode> = (0..3).map(|value| append(driver, graph, &[], log, value)).collect();
        call!(driver, cuGraphAddDependencies(graph, nodes[2..].as_ptr(), nodes.as_ptr(), 1));
        refused!(INVALID_VALUE: driver, cuGraphAddDependencies(graph, nodes[2..].as_ptr(), nodes.as_ptr(), 1));
        call!(driver, cuGraphAddDependencies(graph, nodes.as_ptr(), nodes[1..].as_ptr(), 1));
        let (mut found, mut count) = ([CuGraphNode::NULL; 4], 4);
        call!(driver, cuGraphGetNodes(graph, found.as_mut_ptr(), &mut count));
        assert_eq!((&found[..3], found[3], count), (&nodes[..], CuGraphNode::NULL, 3));
        call!(driver, cuGraphNodeGetDependencies(nodes[1], found.as_mut_ptr(), &mut count));
        assert_eq!((found[0], count), (nodes[0], 1));
        count = 4;
        call!(driver, cuGraphNodeGetDependentNodes(nodes[2], found.as_mut_ptr(), &mut count));
        assert_eq!((found[0], count), (nodes[0], 1));
        let mut clone = CuGraph::NULL;
        call!(driver, cuGraphClone(&mut clone, graph));
        let mut twin = CuGraphNode::NULL;
        call!(driver, cuGraphNodeFindInClone(&mut twin, nodes[1], clone));
        call!(driver, cuGraphDestroyNode(twin));
        call!(driver, cuGraphLaunch(instantiate(driver, clone), LEGACY));
        assert_eq!(driver.log(log), [2, 0]);
        call!(driver, cuGraphLaunch(instantiate(driver, graph), LEGACY));
        assert_eq!(driver.log(log), [2, 0, 2, 0, 1]);
    }

    cycle_is_refused_when_the_graph_is_instantiated => |driver| {
        let (graph, log) = (graph(driver), driver.memory(256));
        let first = append(driver, graph, &[], log, 1);
        let second = append(driver, graph, &[first], log, 2);
        call!(driver, cuGraphAddDependencies(graph, &second, &first, 1));
        let (mut exec, mut params) = (CuGraphExec::NULL, CudaGraphInstantiateParams::default());
        refused!(INVALID_VALUE: driver, cuGraphInstantiateWithParams(&mut exec, graph, &mut params));
        assert_eq!(params.result_out, 2);
        assert!(!params.hErrNode_out.is_null());
        call!(driver, cuGraphRemoveDependencies(graph, &second, &first, 1));
        call!(driver, cuGraphInstantiateWithParams(&mut exec, graph, &mut params));
        assert_eq!(params.result_out, 0);
    }

    general_form_adds_every_type => |driver| {
        let (graph, log) = (graph(driver), driver.memory(256));
        let parameters = [Value::Long(log), Value::Word(6)];
        let mut list = pointers(&parameters);
        let mut params = CuGraphNodeParams { kind: 0, ..CuGraphNodeParams::default() };
        params.params.kernel = CudaKernelNodeParamsV3 {
            func: driver.kernel("append"), gridDimX: 1, gridDimY: 1, gridDimZ: 1, blockDimX: 1, blockDimY: 1,
            blockDimZ: 1, kernelParams: list.as_mut_ptr(), ..CudaKernelNodeParamsV3::default()
        };
        let mut node = CuGraphNode::NULL;
        call!(driver, cuGraphAddNode_v2(&mut node, graph, std::ptr::null(), std::ptr::null(), 0, &mut params));
        let mut empty = CuGraphNodeParams { kind: 5, ..CuGraphNodeParams::default() };
        call!(driver, cuGraphAddNode(&mut node, graph, &node.clone(), 1, &mut empty));
        empty.kind = 99;
        refused!(INVALID_VALUE: driver, cuGraphAddNode(&mut node, graph, &node.clone(), 1, &mut empty));
        call!(driver, cuGraphLaunch(instantiate(driver, graph), LEGACY));
        assert_eq!(driver.log(log), [6]);
    }

    destroyed_graphs_and_nodes_are_not_known => |driver| {
        let (first, log) = (graph(driver), driver.memory(256));
        let node = append(driver, first, &[], log, 1);
        let exec = instantiate(driver, first);
        call!(driver, cuGraphDestroy(first));
        refused!(INVALID_VALUE: driver, cuGraphDestroy(first));
        refused!(INVALID_VALUE: driver, cuGraphNodeGetType(node, &mut 0));
        call!(driver, cuGraphLaunch(exec, LEGACY));
        call!(driver, cuGraphExecDestroy(exec));
        refused!(INVALID_VALUE: driver, cuGraphLaunch(exec, LEGACY));
        assert_eq!(code!(driver, cuGraphCreate(std::ptr::null_mut(), 0)), CuResult::INVALID_VALUE);
        assert_eq!(driver.log(log), [1]);
    }
}
