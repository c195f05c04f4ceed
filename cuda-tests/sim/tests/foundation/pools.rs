// SPDX-License-Identifier: Apache-2.0
//! Stream-ordered allocation: what is freed when, what a pool keeps, and what it says of itself.

use std::sync::atomic::{AtomicBool, Ordering};

use partage_abi::types::*;
use partage_abi::values::*;

use crate::child::{Cuda, MIB, code, in_child, ok, refused};

fn default_pool(cuda: &Cuda) -> CuMemoryPool {
    let mut pool = CuMemoryPool::NULL;
    ok!(cuda, cuDeviceGetDefaultMemPool(&mut pool, 0));
    pool
}

fn figure(cuda: &Cuda, pool: CuMemoryPool, attribute: c_int) -> u64 {
    let mut value = u64::MAX;
    ok!(cuda, cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()));
    value
}

fn set(cuda: &Cuda, pool: CuMemoryPool, attribute: c_int, mut value: u64) {
    ok!(cuda, cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast()));
}

fn allocate(cuda: &Cuda, bytes: u64, stream: CuStream) -> u64 {
    let mut address = 0;
    ok!(cuda, cuMemAllocAsync(&mut address, bytes as usize, stream));
    address
}

fn stream(cuda: &Cuda) -> CuStream {
    let mut stream = CuStream::NULL;
    ok!(cuda, cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
    stream
}

static MAY_GO_ON: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn wait(_: *mut c_void) {
    while !MAY_GO_ON.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

#[test]
fn a_free_happens_when_its_stream_comes_to_it() {
    in_child("pools::a_free_happens_when_its_stream_comes_to_it", |cuda| {
        cuda.context(0);
        let (before, stream) = (cuda.used(), stream(cuda));
        let address = allocate(cuda, 10 * MIB, stream);
        assert_eq!(cuda.used(), before + 10 * MIB);
        // Page-locked: a copy from or to other memory would wait for the stream itself.
        let mut host = std::ptr::null_mut();
        ok!(cuda, cuMemHostAlloc(&mut host, 512, 0));
        // SAFETY: 512 bytes of ordinary memory that start as zero.
        let (there, back) = unsafe { (host.cast::<[u8; 256]>(), host.cast::<[u8; 256]>().add(1)) };
        // SAFETY: as above, and nothing else touches them yet.
        unsafe { there.write([5; 256]) };
        ok!(cuda, cuLaunchHostFunc(stream, Some(wait), std::ptr::null_mut()));
        ok!(cuda, cuMemcpyHtoDAsync_v2(address, there.cast(), 256, stream));
        ok!(cuda, cuMemcpyDtoHAsync_v2(back.cast(), address, 256, stream));
        ok!(cuda, cuMemFreeAsync(address, stream));
        refused!(INVALID_VALUE: cuda, cuMemFreeAsync(address, stream));
        assert_eq!(cuda.used(), before + 10 * MIB, "work before the free still waits");
        MAY_GO_ON.store(true, Ordering::Release);
        ok!(cuda, cuStreamSynchronize(stream));
        // SAFETY: the stream has done its copies.
        assert_eq!((unsafe { back.read() }, cuda.used()), ([5; 256], before));
        refused!(INVALID_VALUE: cuda, cuMemFree_v2(address));
        ok!(cuda, cuMemFreeAsync(0, stream));
        refused!(INVALID_VALUE: cuda, cuMemAllocAsync(&mut 0, 0, stream));
        refused!(OUT_OF_MEMORY: cuda, cuMemAllocAsync(&mut 0, 1 << 40, stream));
        assert_eq!(cuda.used(), before);
    });
}

#[test]
fn a_pool_keeps_what_its_threshold_allows() {
    in_child("pools::a_pool_keeps_what_its_threshold_allows", |cuda| {
        cuda.context(0);
        let (before, stream, pool) = (cuda.used(), stream(cuda), default_pool(cuda));
        set(cuda, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 8 * MIB);
        let first = allocate(cuda, 6 * MIB, stream);
        let second = allocate(cuda, 6 * MIB, stream);
        ok!(cuda, cuMemFreeAsync(first, stream));
        ok!(cuda, cuMemFreeAsync(second, stream));
        ok!(cuda, cuStreamSynchronize(stream));
        assert_eq!(figure(cuda, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
        assert_eq!(figure(cuda, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 6 * MIB);
        assert_eq!(figure(cuda, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 12 * MIB);
        assert_eq!(cuda.used(), before + 6 * MIB);
        // Reuse costs nothing; a kept block is cut to what is needed.
        let small = allocate(cuda, MIB, stream);
        let other = allocate(cuda, 5 * MIB, stream);
        assert_eq!(cuda.used(), before + 6 * MIB);
        assert!(small.abs_diff(other) >= MIB);
        set(cuda, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
        assert_eq!(figure(cuda, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 6 * MIB);
        ok!(cuda, cuMemFreeAsync(small, stream));
        ok!(cuda, cuStreamSynchronize(stream));
        ok!(cuda, cuMemPoolTrimTo(pool, 0));
        assert_eq!(cuda.used(), before + 5 * MIB, "what is used stays");
        ok!(cuda, cuMemFree_v2(other));
        ok!(cuda, cuMemPoolTrimTo(pool, 0));
        assert_eq!(cuda.used(), before);
    });
}

#[test]
fn own_pools_have_limits_and_outlive_their_handles() {
    in_child("pools::own_pools_have_limits_and_outlive_their_handles", |cuda| {
        cuda.context(0);
        let (before, stream) = (cuda.used(), stream(cuda));
        let location = CuMemLocation {
            kind: CU_MEM_LOCATION_TYPE_DEVICE,
            id: 0,
        };
        let wish = CuMemPoolProps {
            allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
            location,
            maxSize: 4 * MIB as usize,
            ..Default::default()
        };
        let (mut pool, mut current) = (CuMemoryPool::NULL, CuMemoryPool::NULL);
        ok!(cuda, cuMemPoolCreate(&mut pool, &wish));
        let mut address = 0;
        refused!(OUT_OF_MEMORY: cuda, cuMemAllocFromPoolAsync(&mut address, 5 * MIB as usize, pool, stream));
        ok!(cuda, cuDeviceSetMemPool(0, pool));
        let mine = allocate(cuda, 3 * MIB, stream);
        refused!(OUT_OF_MEMORY: cuda, cuMemAllocAsync(&mut address, 2 * MIB as usize, stream));
        assert_eq!(figure(cuda, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 3 * MIB);
        ok!(cuda, cuMemPoolDestroy(pool));
        refused!(INVALID_VALUE: cuda, cuMemPoolDestroy(pool));
        refused!(INVALID_VALUE: cuda, cuMemPoolDestroy(default_pool(cuda)));
        ok!(cuda, cuDeviceGetMemPool(&mut current, 0));
        assert_eq!(current, default_pool(cuda));
        assert_eq!(cuda.used(), before + 3 * MIB, "its allocation lives on");
        ok!(cuda, cuMemFreeAsync(mine, stream));
        ok!(cuda, cuStreamSynchronize(stream));
        assert_eq!(cuda.used(), before);
    });
}

#[test]
fn a_captured_stream_does_not_allocate() {
    in_child("pools::a_captured_stream_does_not_allocate", |cuda| {
        cuda.context(0);
        let (before, stream) = (cuda.used(), stream(cuda));
        ok!(cuda, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        refused!(NOT_SUPPORTED: cuda, cuMemAllocAsync(&mut 0, 512, stream));
        let mut graph = CuGraph::NULL;
        ok!(cuda, cuStreamEndCapture(stream, &mut graph));
        assert_eq!(code!(cuda, cuGraphDestroy(graph)), CuResult::SUCCESS);
        assert_eq!(cuda.used(), before);
    });
}
