// SPDX-License-Identifier: Apache-2.0
//! Objects of the program that graphs keep: destroyed once, by the last holder, after the work that may use them.

use std::sync::atomic::{AtomicU32, Ordering};

use partage_abi::types::*;

use crate::machine::{Driver, Value, call, on_machine, pointers, refused};

const NO_DESTRUCTOR_SYNC: c_uint = 1;
const MOVE: c_uint = 1;

unsafe extern "C" fn count(counter: *mut c_void) {
    // SAFETY: every object of these tests is made with a counter that lives as long as the process.
    unsafe { &*counter.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

fn counter() -> &'static AtomicU32 {
    Box::leak(Box::default())
}

fn object(driver: &Driver, counter: &'static AtomicU32, references: c_uint) -> CuUserObject {
    let mut object = CuUserObject::NULL;
    let data = std::ptr::from_ref(counter).cast_mut().cast();
    call!(
        driver,
        cuUserObjectCreate(&mut object, data, Some(count), references, NO_DESTRUCTOR_SYNC)
    );
    object
}

on_machine! {
    an_object_ends_with_its_last_reference => |driver| {
        let ended = counter();
        let held = object(driver, ended, 2);
        call!(driver, cuUserObjectRetain(held, 1));
        refused!(INVALID_VALUE: driver, cuUserObjectRelease(held, 4));
        call!(driver, cuUserObjectRelease(held, 2));
        assert_eq!(ended.load(Ordering::SeqCst), 0);
        call!(driver, cuUserObjectRelease(held, 1));
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        refused!(INVALID_VALUE: driver, cuUserObjectRelease(held, 1));
        let (mut made, none) = (CuUserObject::NULL, std::ptr::null_mut());
        refused!(INVALID_VALUE: driver, cuUserObjectCreate(&mut made, none, Some(count), 1, 0));
        refused!(INVALID_VALUE: driver, cuUserObjectCreate(&mut made, none, Some(count), 0, NO_DESTRUCTOR_SYNC));
        refused!(INVALID_VALUE: driver, cuUserObjectCreate(&mut made, none, None, 1, NO_DESTRUCTOR_SYNC));
    }

    graphs_and_their_copies_hold_references => |driver| {
        let ended = counter();
        let held = object(driver, ended, 1);
        let (mut graph, mut copy) = (CuGraph::NULL, CuGraph::NULL);
        call!(driver, cuGraphCreate(&mut graph, 0));
        refused!(INVALID_VALUE: driver, cuGraphRetainUserObject(graph, held, 2, MOVE));
        refused!(INVALID_VALUE: driver, cuGraphRetainUserObject(graph, held, 1, 8));
        call!(driver, cuGraphRetainUserObject(graph, held, 1, MOVE));
        call!(driver, cuGraphClone(&mut copy, graph));
        call!(driver, cuGraphRetainUserObject(graph, held, 3, 0));
        refused!(INVALID_VALUE: driver, cuGraphReleaseUserObject(graph, held, 5));
        call!(driver, cuGraphReleaseUserObject(graph, held, 4));
        assert_eq!(ended.load(Ordering::SeqCst), 0, "the copy holds one");
        call!(driver, cuGraphDestroy(copy));
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        call!(driver, cuGraphDestroy(graph));
        assert_eq!(ended.load(Ordering::SeqCst), 1);
    }

    a_launch_under_way_keeps_what_it_may_use => |driver| {
        let ended = counter();
        let held = object(driver, ended, 1);
        let (mut graph, mut exec) = (CuGraph::NULL, CuGraphExec::NULL);
        call!(driver, cuGraphCreate(&mut graph, 0));
        call!(driver, cuGraphRetainUserObject(graph, held, 1, MOVE));
        // A kernel that ends when this process says so.
        let gate = driver.memory(8);
        let parameters = [Value::Long(gate), Value::Long(1)];
        let mut list = pointers(&parameters);
        let params = CudaKernelNodeParamsV1 {
            func: driver.kernel("spin_until"),
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            kernelParams: list.as_mut_ptr(),
            ..CudaKernelNodeParamsV1::default()
        };
        let (mut node, none) = (CuGraphNode::NULL, std::ptr::null_mut());
        call!(driver, cuGraphAddKernelNode(&mut node, graph, std::ptr::null(), 0, &params));
        call!(driver, cuGraphInstantiate_v2(&mut exec, graph, std::ptr::null_mut(), none, 0));
        let stream = driver.stream(1);
        call!(driver, cuGraphLaunch(exec, stream));
        call!(driver, cuGraphDestroy(graph));
        call!(driver, cuGraphExecDestroy(exec));
        assert_eq!(ended.load(Ordering::SeqCst), 0, "the launch is under way");
        let other = driver.stream(1);
        call!(driver, cuMemcpyHtoDAsync_v2(gate, [1u64].as_ptr().cast(), 8, other));
        call!(driver, cuStreamSynchronize(stream));
        assert_eq!(ended.load(Ordering::SeqCst), 1);
    }
}
