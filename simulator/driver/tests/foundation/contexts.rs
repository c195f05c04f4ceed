// SPDX-License-Identifier: Apache-2.0
//! The life of contexts, the thread's stack of them, and errors that stick.

use partage_abi::types::*;

use crate::child::{Cuda, MIB, in_child, ok, refused};

fn current(cuda: &Cuda) -> CuContext {
    let mut context = CuContext::NULL;
    ok!(cuda, cuCtxGetCurrent(&mut context));
    context
}

#[test]
fn contexts_stand_on_a_stack() {
    in_child("contexts::contexts_stand_on_a_stack", |cuda| {
        let first = cuda.context(0);
        let mut second = CuContext::NULL;
        ok!(cuda, cuCtxCreate_v2(&mut second, 0, 0));
        assert_eq!(current(cuda), second);
        let mut popped = CuContext::NULL;
        ok!(cuda, cuCtxPopCurrent_v2(&mut popped));
        assert_eq!((popped, current(cuda)), (second, first));
        ok!(cuda, cuCtxSetCurrent(second));
        assert_eq!(current(cuda), second);
        ok!(cuda, cuCtxSetCurrent(CuContext::NULL));
        assert_eq!(current(cuda), CuContext::NULL);
        refused!(INVALID_CONTEXT: cuda, cuCtxPopCurrent_v2(&mut popped));
        ok!(cuda, cuCtxPushCurrent_v2(first));
        let mut device = -1;
        ok!(cuda, cuCtxGetDevice(&mut device));
        assert_eq!(device, 0);
        let mut version = 0;
        ok!(cuda, cuCtxGetApiVersion(first, &mut version));
        assert_eq!(version, 3020);
        refused!(INVALID_VALUE: cuda, cuCtxCreate_v2(&mut second, 0x1000, 0));
        refused!(INVALID_DEVICE: cuda, cuCtxCreate_v2(&mut second, 0, 7));
    });
}

#[test]
fn a_destroyed_context_is_gone_with_its_memory() {
    in_child("contexts::a_destroyed_context_is_gone_with_its_memory", |cuda| {
        let first = cuda.context(0);
        let before = cuda.used();
        let mut second = CuContext::NULL;
        ok!(cuda, cuCtxCreate_v2(&mut second, 0, 0));
        let address = cuda.allocate(64 * MIB).expect("room");
        assert_eq!(cuda.used(), before + 16 * MIB + 64 * MIB, "a context and its memory");
        ok!(cuda, cuCtxDestroy_v2(second));
        assert_eq!((current(cuda), cuda.used()), (first, before));
        refused!(INVALID_VALUE: cuda, cuMemFree_v2(address));
        refused!(INVALID_CONTEXT: cuda, cuCtxDestroy_v2(second));
        refused!(INVALID_CONTEXT: cuda, cuCtxSetCurrent(second));
        refused!(INVALID_CONTEXT: cuda, cuCtxPushCurrent_v2(CuContext(0x1234 as *mut c_void)));
        // Destroyed while it is current in another thread: that thread is told.
        let mut third = CuContext::NULL;
        ok!(cuda, cuCtxCreate_v2(&mut third, 0, 0));
        let raw = third.0 as usize;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| ok!(cuda, cuCtxDestroy_v2(CuContext(raw as *mut c_void))));
            other.join().expect("the thread ends well");
        });
        refused!(CONTEXT_IS_DESTROYED: cuda, cuMemAlloc_v2(&mut 0, 1));
    });
}

#[test]
fn the_primary_context_lives_while_it_is_retained() {
    in_child("contexts::the_primary_context_lives_while_it_is_retained", |cuda| {
        ok!(cuda, cuInit(0));
        let active = || {
            let (mut flags, mut active) = (0, 0);
            ok!(cuda, cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
            (flags, active)
        };
        assert_eq!(active(), (0, 0));
        ok!(cuda, cuDevicePrimaryCtxSetFlags_v2(0, 4));
        let (mut first, mut second) = (CuContext::NULL, CuContext::NULL);
        ok!(cuda, cuDevicePrimaryCtxRetain(&mut first, 0));
        ok!(cuda, cuDevicePrimaryCtxRetain(&mut second, 0));
        assert_eq!((first, active()), (second, (4, 1)));
        refused!(INVALID_CONTEXT: cuda, cuCtxDestroy_v2(first));
        ok!(cuda, cuCtxSetCurrent(first));
        ok!(cuda, cuDevicePrimaryCtxRelease_v2(0));
        cuda.allocate(MIB).expect("still retained once");
        ok!(cuda, cuDevicePrimaryCtxRelease_v2(0));
        assert_eq!(active(), (4, 0));
        refused!(INVALID_CONTEXT: cuda, cuDevicePrimaryCtxRelease_v2(0));
        refused!(CONTEXT_IS_DESTROYED: cuda, cuMemAlloc_v2(&mut 0, 1));
    });
}

#[test]
fn limits_and_settings_are_read_back() {
    in_child("contexts::limits_and_settings_are_read_back", |cuda| {
        cuda.context(0);
        let mut value = 0;
        ok!(cuda, cuCtxGetLimit(&mut value, 0));
        assert_eq!(value, 1024);
        ok!(cuda, cuCtxSetLimit(0, 4096));
        ok!(cuda, cuCtxGetLimit(&mut value, 0));
        assert_eq!(value, 4096);
        refused!(UNSUPPORTED_LIMIT: cuda, cuCtxGetLimit(&mut value, 7));
        refused!(INVALID_VALUE: cuda, cuCtxGetLimit(&mut value, 99));
        let (mut least, mut greatest) = (1, 1);
        ok!(cuda, cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
        assert_eq!((least, greatest), (0, -5));
    });
}

#[test]
fn memory_of_a_green_context_is_the_primary_ones() {
    in_child("contexts::memory_of_a_green_context_is_the_primary_ones", |cuda| {
        let plain = cuda.context(0);
        let (mut all, mut rest) = (CuDevResource::default(), CuDevResource::default());
        let mut groups = [CuDevResource::default(); 2];
        let (mut count, mut multiprocessors) = (2, 0);
        ok!(cuda, cuDeviceGetAttribute(&mut multiprocessors, 16, 0));
        ok!(cuda, cuDeviceGetDevResource(0, &mut all, 1));
        let split = |count: &mut c_uint, rest: &mut CuDevResource, groups: *mut CuDevResource| {
            ok!(cuda, cuDevSmResourceSplitByCount(groups, count, &all, rest, 0, 9));
        };
        split(&mut count, &mut rest, groups.as_mut_ptr());
        // SAFETY: both are of that kind.
        let (part, left) = unsafe { (groups[1].resource.sm.smCount, rest.resource.sm.smCount) };
        assert_eq!((count, part, left), (2, 16, multiprocessors as u32 - 32));
        let mut desc = CuDevResourceDesc::NULL;
        ok!(cuda, cuDevResourceGenerateDesc(&mut desc, groups.as_mut_ptr(), 2));
        let mut green = CuGreenCtx::NULL;
        refused!(INVALID_VALUE: cuda, cuGreenCtxCreate(&mut green, desc, 0, 0));
        ok!(cuda, cuGreenCtxCreate(&mut green, desc, 0, 1));
        let before = cuda.used();
        let (mut context, mut again) = (CuContext::NULL, CuContext::NULL);
        ok!(cuda, cuCtxFromGreenCtx(&mut context, green));
        ok!(cuda, cuCtxFromGreenCtx(&mut again, green));
        assert_eq!((context, cuda.used()), (again, before), "a conversion makes nothing");
        refused!(INVALID_CONTEXT: cuda, cuCtxDestroy_v2(context));
        ok!(cuda, cuCtxSetCurrent(context));
        let address = cuda.allocate(64 * MIB).expect("room");
        let mut stream = CuStream::NULL;
        refused!(INVALID_VALUE: cuda, cuGreenCtxStreamCreate(&mut stream, green, 0, 0));
        ok!(cuda, cuGreenCtxStreamCreate(&mut stream, green, 1, 0));
        let (mut of_stream, mut its_part) = (CuGreenCtx::NULL, CuDevResource::default());
        ok!(cuda, cuStreamGetGreenCtx(stream, &mut of_stream));
        ok!(cuda, cuStreamGetDevResource(stream, &mut its_part, 1));
        // SAFETY: of that kind.
        assert_eq!((of_stream, unsafe { its_part.resource.sm.smCount }), (green, 32));
        ok!(cuda, cuMemsetD8Async(address, 1, 4096, stream));
        ok!(cuda, cuStreamSynchronize(stream));
        let mut primary = CuContext::NULL;
        ok!(cuda, cuDevicePrimaryCtxRetain(&mut primary, 0));
        assert_ne!(primary, context);
        ok!(cuda, cuGreenCtxDestroy(green));
        refused!(CONTEXT_IS_DESTROYED: cuda, cuStreamSynchronize(stream));
        refused!(INVALID_CONTEXT: cuda, cuCtxFromGreenCtx(&mut context, green));
        ok!(cuda, cuCtxSetCurrent(plain));
        assert_eq!(cuda.used(), before + 64 * MIB, "it stays as the primary context does");
        ok!(cuda, cuDevicePrimaryCtxRelease_v2(0));
        assert_eq!(cuda.used(), before - 16 * MIB, "both are gone");
        refused!(INVALID_VALUE: cuda, cuMemFree_v2(address));
    });
}

#[test]
fn a_context_ends_with_the_last_to_detach() {
    in_child("contexts::a_context_ends_with_the_last_to_detach", |cuda| {
        let first = cuda.context(0);
        let before = cuda.used();
        let mut second = CuContext::NULL;
        ok!(cuda, cuCtxCreate_v2(&mut second, 0, 0));
        let mut attached = CuContext::NULL;
        refused!(INVALID_VALUE: cuda, cuCtxAttach(&mut attached, 1));
        ok!(cuda, cuCtxAttach(&mut attached, 0));
        assert_eq!(attached, second);
        cuda.allocate(64 * MIB).expect("room");
        ok!(cuda, cuCtxDetach(second));
        assert_eq!(
            (current(cuda), cuda.used()),
            (second, before + 80 * MIB),
            "it is attached to once more"
        );
        refused!(INVALID_CONTEXT: cuda, cuCtxDetach(first));
        ok!(cuda, cuCtxDetach(second));
        assert_eq!((current(cuda), cuda.used()), (first, before));
        refused!(INVALID_CONTEXT: cuda, cuCtxDetach(second));
        let mut primary = CuContext::NULL;
        ok!(cuda, cuDevicePrimaryCtxRetain(&mut primary, 0));
        ok!(cuda, cuCtxSetCurrent(primary));
        refused!(INVALID_CONTEXT: cuda, cuCtxAttach(&mut attached, 0));
        refused!(INVALID_CONTEXT: cuda, cuCtxDetach(primary));
    });
}

#[test]
fn a_profiler_can_be_started_and_stopped_where_there_is_none() {
    in_child(
        "contexts::a_profiler_can_be_started_and_stopped_where_there_is_none",
        |cuda| {
            refused!(NOT_INITIALIZED: cuda, cuProfilerStart());
            cuda.context(0);
            ok!(cuda, cuProfilerStart());
            ok!(cuda, cuProfilerStop());
            refused!(PROFILER_DISABLED: cuda, cuProfilerInitialize(c"in".as_ptr(), c"out".as_ptr(), 1));
            refused!(INVALID_VALUE: cuda, cuProfilerInitialize(c"in".as_ptr(), c"out".as_ptr(), 2));
        },
    );
}
