// SPDX-License-Identifier: Apache-2.0
//! Capture through the entry points: what becomes of the calls, and the codes of those that a capture forbids. The
//! rules themselves are tested case by case beside their implementation.

use partage_abi::types::*;

use crate::machine::{Driver, Value, call, code, on_machine, refused};

const LEGACY: CuStream = CuStream::NULL;
const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

fn status(driver: &Driver, stream: CuStream) -> i32 {
    let mut status = -1;
    call!(driver, cuStreamIsCapturing(stream, &mut status));
    status
}

fn end(driver: &Driver, stream: CuStream) -> Result<CuGraph, CuResult> {
    let mut graph = CuGraph(std::ptr::without_provenance_mut(1));
    match code!(driver, cuStreamEndCapture(stream, &mut graph)) {
        CuResult::SUCCESS => Ok(graph),
        code => {
            assert!(graph.is_null(), "a capture that failed gives no graph");
            Err(code)
        }
    }
}

fn instantiate(driver: &Driver, graph: CuGraph) -> CuGraphExec {
    let mut exec = CuGraphExec::NULL;
    call!(driver, cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    exec
}

/// Makes a call while a capture is on, and returns its code and how the capture ended.
fn during(driver: &Driver, mode: i32, attempt: impl FnOnce(CuStream) -> CuResult) -> (CuResult, Result<(), CuResult>) {
    let stream = driver.stream(0);
    call!(driver, cuStreamBeginCapture_v2(stream, mode));
    let answer = attempt(stream);
    let ended = end(driver, stream).map(|graph| call!(driver, cuGraphDestroy(graph)));
    call!(driver, cuStreamDestroy_v2(stream));
    (answer, ended)
}

on_machine! {
    captured_work_runs_only_when_it_is_launched => |driver| {
        let (stream, log) = (driver.stream(0), driver.memory(256));
        call!(driver, cuCtxSynchronize());
        call!(driver, cuStreamBeginCapture_v2(stream, RELAXED));
        assert_eq!(status(driver, stream), 1);
        driver.append(stream, log, 1);
        driver.append(stream, log, 2);
        let graph = end(driver, stream).expect("a graph");
        assert_eq!(status(driver, stream), 0);
        assert_eq!(driver.log(log), []);
        let exec = instantiate(driver, graph);
        call!(driver, cuGraphDestroy(graph));
        for _ in 0..3 {
            call!(driver, cuGraphLaunch(exec, stream));
        }
        assert_eq!(driver.log(log), [1, 2, 1, 2, 1, 2]);
    }

    events_fork_and_join_a_capture => |driver| {
        let streams = [driver.stream(1), driver.stream(1)];
        let (events, log) = ([driver.event(), driver.event()], driver.memory(256));
        call!(driver, cuCtxSynchronize());
        call!(driver, cuStreamBeginCapture_v2(streams[0], GLOBAL));
        driver.append(streams[0], log, 1);
        call!(driver, cuEventRecord(events[0], streams[0]));
        call!(driver, cuStreamWaitEvent(streams[1], events[0], 0));
        assert_eq!(status(driver, streams[1]), 1);
        driver.append(streams[1], log, 2);
        driver.append(streams[1], log, 3);
        call!(driver, cuEventRecord(events[1], streams[1]));
        call!(driver, cuStreamWaitEvent(streams[0], events[1], 0));
        driver.append(streams[0], log, 4);
        let graph = end(driver, streams[0]).expect("a graph");
        let (mut nodes, mut edges, mut roots) = (0, 0, 0);
        let none = std::ptr::null_mut();
        call!(driver, cuGraphGetNodes(graph, none, &mut nodes));
        call!(driver, cuGraphGetEdges(graph, none, none, &mut edges));
        call!(driver, cuGraphGetRootNodes(graph, none, &mut roots));
        // The last node waits for the first directly and through the other stream.
        assert_eq!((nodes, edges, roots), (4, 4, 1));
        call!(driver, cuGraphLaunch(instantiate(driver, graph), streams[1]));
        assert_eq!(driver.log(log), [1, 2, 3, 4]);
    }

    work_that_is_not_joined_spoils_the_capture => |driver| {
        let streams = [driver.stream(0), driver.stream(0)];
        let (event, log) = (driver.event(), driver.memory(256));
        call!(driver, cuCtxSynchronize());
        call!(driver, cuStreamBeginCapture_v2(streams[0], GLOBAL));
        call!(driver, cuEventRecord(event, streams[0]));
        call!(driver, cuStreamWaitEvent(streams[1], event, 0));
        driver.append(streams[1], log, 1);
        assert_eq!(end(driver, streams[0]), Err(CuResult::STREAM_CAPTURE_UNJOINED));
        assert_eq!(status(driver, streams[1]), 0);
        assert_eq!(driver.log(log), []);
    }

    forbidden_calls_answer_and_spoil_as_the_manual_says => |driver| {
        let invalidated = Err(CuResult::STREAM_CAPTURE_INVALIDATED);
        let unsupported = (CuResult::STREAM_CAPTURE_UNSUPPORTED, invalidated);
        let implicit = (CuResult::STREAM_CAPTURE_IMPLICIT, invalidated);
        let memory = driver.memory(256);
        let outside = driver.event();
        call!(driver, cuEventRecord(outside, LEGACY));
        call!(driver, cuCtxSynchronize());
        let mut address = 0;
        assert_eq!(during(driver, RELAXED, |s| code!(driver, cuStreamSynchronize(s))), unsupported);
        assert_eq!(during(driver, RELAXED, |s| code!(driver, cuStreamQuery(s))), unsupported);
        assert_eq!(during(driver, RELAXED, |_| code!(driver, cuCtxSynchronize())), unsupported);
        assert_eq!(during(driver, GLOBAL, |_| code!(driver, cuMemAlloc_v2(&mut address, 4))), unsupported);
        assert_eq!(during(driver, THREAD_LOCAL, |_| code!(driver, cuMemAlloc_v2(&mut address, 4))), unsupported);
        assert_eq!(
            during(driver, RELAXED, |_| code!(driver, cuMemAlloc_v2(&mut address, 4))),
            (CuResult::SUCCESS, Ok(()))
        );
        assert_eq!(during(driver, RELAXED, |_| code!(driver, cuMemsetD8Async(memory, 1, 4, LEGACY))), implicit);
        assert_eq!(during(driver, RELAXED, |_| code!(driver, cuMemsetD8_v2(memory, 1, 4))), implicit);
        assert_eq!(during(driver, RELAXED, |_| code!(driver, cuStreamQuery(LEGACY))), implicit);
        assert_eq!(
            during(driver, RELAXED, |s| code!(driver, cuStreamWaitEvent(s, outside, 0))),
            (CuResult::STREAM_CAPTURE_ISOLATION, invalidated)
        );
        let captured = driver.event();
        assert_eq!(
            during(driver, RELAXED, |s| {
                call!(driver, cuEventRecord(captured, s));
                code!(driver, cuEventQuery(captured))
            }),
            (CuResult::CAPTURED_EVENT, invalidated)
        );
        assert_eq!(
            during(driver, RELAXED, |s| code!(driver, cuStreamBeginCapture_v2(s, RELAXED))),
            (CuResult::ILLEGAL_STATE, Ok(()))
        );
        refused!(STREAM_CAPTURE_UNSUPPORTED: driver, cuStreamBeginCapture_v2(LEGACY, RELAXED));
        refused!(INVALID_VALUE: driver, cuStreamBeginCapture_v2(driver.stream(0), 3));
        assert_eq!(end(driver, driver.stream(0)), Err(CuResult::ILLEGAL_STATE));
        assert_eq!(driver.words(memory, 1), [0], "nothing that was refused was carried out");
    }

    mode_of_a_thread_decides_what_another_threads_capture_forbids => |driver| {
        let stream = driver.stream(0);
        call!(driver, cuStreamBeginCapture_v2(stream, GLOBAL));
        let other = |mode: i32| std::thread::scope(|scope| {
            let attempt = || {
                call!(driver, cuCtxSetCurrent(driver.context));
                let mut mode = mode;
                call!(driver, cuThreadExchangeStreamCaptureMode(&mut mode));
                assert_eq!(mode, GLOBAL, "the mode of a new thread");
                let mut address = 0;
                code!(driver, cuMemAlloc_v2(&mut address, 4))
            };
            scope.spawn(attempt).join().expect("the thread ends")
        });
        assert_eq!(other(THREAD_LOCAL), CuResult::SUCCESS);
        assert_eq!(other(RELAXED), CuResult::SUCCESS);
        assert_eq!(status(driver, stream), 1);
        assert_eq!(other(GLOBAL), CuResult::STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(status(driver, stream), 2);
        let mut wrong = 7;
        refused!(INVALID_VALUE: driver, cuThreadExchangeStreamCaptureMode(&mut wrong));
        assert_eq!(end(driver, stream), Err(CuResult::STREAM_CAPTURE_INVALIDATED));
    }

    only_the_thread_that_began_ends_a_capture_unless_relaxed => |driver| {
        for (mode, expected) in [(GLOBAL, CuResult::STREAM_CAPTURE_WRONG_THREAD), (RELAXED, CuResult::SUCCESS)] {
            let stream = driver.stream(0);
            call!(driver, cuStreamBeginCapture_v2(stream, mode));
            let answer = std::thread::scope(|scope| {
                let attempt = || end(driver, stream).err().unwrap_or(CuResult::SUCCESS);
                scope.spawn(attempt).join().expect("the thread ends")
            });
            assert_eq!(answer, expected);
        }
    }

    capture_tells_its_graph_and_takes_nodes_from_outside => |driver| {
        let (stream, log) = (driver.stream(0), driver.memory(256));
        call!(driver, cuCtxSynchronize());
        call!(driver, cuStreamBeginCapture_v2(stream, RELAXED));
        driver.append(stream, log, 1);
        let (mut state, mut id, mut graph) = (0, 0, CuGraph::NULL);
        let (mut tips, mut count) = (std::ptr::null(), 0);
        call!(driver, cuStreamGetCaptureInfo_v2(stream, &mut state, &mut id, &mut graph, &mut tips, &mut count));
        assert_eq!((state, count), (1, 1));
        // SAFETY: the driver says that there is one.
        let tip = unsafe { *tips };
        let parameters = [Value::Long(log), Value::Word(2)];
        let mut list = crate::machine::pointers(&parameters);
        let mut params = kernel_params(driver, &mut list);
        let mut node = CuGraphNode::NULL;
        call!(driver, cuGraphAddKernelNode_v2(&mut node, graph, &tip, 1, &mut params));
        call!(driver, cuStreamUpdateCaptureDependencies(stream, &mut node, 1, 1));
        driver.append(stream, log, 3);
        let ended = end(driver, stream).expect("a graph");
        assert_eq!(ended, graph);
        call!(driver, cuGraphLaunch(instantiate(driver, ended), stream));
        assert_eq!(driver.log(log), [1, 2, 3]);
        call!(driver, cuStreamGetCaptureInfo_v2(stream, &mut state, &mut id, &mut graph, &mut tips, &mut count));
        assert_eq!(state, 0);
    }

    launching_a_graph_while_capturing_puts_it_into_the_new_graph => |driver| {
        let (stream, log) = (driver.stream(0), driver.memory(256));
        call!(driver, cuCtxSynchronize());
        call!(driver, cuStreamBeginCapture_v2(stream, RELAXED));
        driver.append(stream, log, 1);
        let inner = instantiate(driver, end(driver, stream).expect("a graph"));
        call!(driver, cuStreamBeginCapture_v2(stream, RELAXED));
        call!(driver, cuGraphLaunch(inner, stream));
        driver.append(stream, log, 2);
        let outer = end(driver, stream).expect("a graph");
        call!(driver, cuGraphExecDestroy(inner));
        call!(driver, cuGraphLaunch(instantiate(driver, outer), stream));
        assert_eq!(driver.log(log), [1, 2]);
    }
}

fn kernel_params(driver: &Driver, list: &mut [*mut c_void]) -> CudaKernelNodeParams {
    CudaKernelNodeParams {
        func: driver.kernel("append"),
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        kernelParams: list.as_mut_ptr(),
        ..CudaKernelNodeParams::default()
    }
}
