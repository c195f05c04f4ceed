// SPDX-License-Identifier: Apache-2.0
//! Stream-ordered allocation: what is freed when, who may take it again, what a pool keeps, and what it says of itself.

mod reuse;

use std::sync::atomic::{AtomicU32, Ordering};

use partage_abi::types::*;
use partage_abi::values::*;

use crate::child::{Cuda, MIB, code, in_child, ok, refused};

/// What a pool of a device of 1 GiB takes at once.
const CHUNK: u64 = 16 * MIB;

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

/// How many of the waits below may end.
static PASSES: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn wait(number: *mut c_void) {
    while PASSES.load(Ordering::Acquire) < number as u32 {
        std::thread::yield_now();
    }
}

/// Holds a stream up until [`PASSES`] is `number`.
fn hold(cuda: &Cuda, stream: CuStream, number: usize) {
    ok!(cuda, cuLaunchHostFunc(stream, Some(wait), number as *mut c_void));
}

fn pass(number: u32) {
    PASSES.store(number, Ordering::Release);
}

fn used(cuda: &Cuda, pool: CuMemoryPool) -> u64 {
    figure(cuda, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
}

fn reserved(cuda: &Cuda, pool: CuMemoryPool) -> u64 {
    figure(cuda, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
}

fn free(cuda: &Cuda, address: u64, stream: CuStream) {
    ok!(cuda, cuMemFreeAsync(address, stream));
}

/// A pool of device 0 that may reserve `limit` bytes.
fn own_pool(cuda: &Cuda, limit: u64) -> CuMemoryPool {
    let wish = CuMemPoolProps {
        allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
        location: CuMemLocation {
            kind: CU_MEM_LOCATION_TYPE_DEVICE,
            id: 0,
        },
        maxSize: limit as usize,
        ..Default::default()
    };
    let mut pool = CuMemoryPool::NULL;
    ok!(cuda, cuMemPoolCreate(&mut pool, &wish));
    pool
}

fn allocate_from(cuda: &Cuda, bytes: u64, pool: CuMemoryPool, stream: CuStream) -> u64 {
    let mut address = 0;
    ok!(
        cuda,
        cuMemAllocFromPoolAsync(&mut address, bytes as usize, pool, stream)
    );
    address
}

#[test]
fn linear_memory_freed_in_a_stream_costs_until_the_stream_comes_to_it() {
    in_child(
        "pools::linear_memory_freed_in_a_stream_costs_until_the_stream_comes_to_it",
        |cuda| {
            cuda.context(0);
            let (before, stream) = (cuda.used(), stream(cuda));
            let mut address = 0;
            ok!(cuda, cuMemAlloc_v2(&mut address, MIB as usize));
            hold(cuda, stream, 1);
            free(cuda, address, stream);
            assert_eq!(cuda.used(), before + MIB);
            pass(1);
            ok!(cuda, cuStreamSynchronize(stream));
            assert_eq!(cuda.used(), before);
        },
    );
}

#[test]
fn pools_grow_in_whole_chunks_and_give_idle_ones_back() {
    in_child("pools::pools_grow_in_whole_chunks_and_give_idle_ones_back", |cuda| {
        cuda.context(0);
        let (before, stream, pool) = (cuda.used(), stream(cuda), default_pool(cuda));
        // Request, and what is reserved after it.
        let table = [
            (1, 1),
            (CHUNK - 512, 1),
            (CHUNK, 2),
            (40 * MIB, 5),
            (8 * MIB, 5),
            (CHUNK, 6),
        ];
        let mut held = Vec::new();
        for (bytes, chunks) in table {
            held.push(allocate(cuda, bytes, stream));
            assert_eq!((bytes, reserved(cuda, pool)), (bytes, chunks * CHUNK));
            assert_eq!(cuda.used(), before + chunks * CHUNK);
        }
        assert_eq!(figure(cuda, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 6 * CHUNK);
        // Everything but the first and the last: the chunks in between are idle, the two ends are not.
        for address in &held[1..5] {
            free(cuda, *address, stream);
        }
        ok!(cuda, cuStreamSynchronize(stream));
        assert_eq!(used(cuda, pool), CHUNK + 512);
        assert_eq!(reserved(cuda, pool), 2 * CHUNK);
        assert_eq!(cuda.used(), before + 2 * CHUNK);
        ok!(cuda, cuMemFree_v2(held[0]));
        assert_eq!(reserved(cuda, pool), 2 * CHUNK, "kept until the program synchronises");
        ok!(cuda, cuCtxSynchronize());
        assert_eq!(reserved(cuda, pool), CHUNK);
        set(cuda, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
        assert_eq!(figure(cuda, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), CHUNK);
        free(cuda, held[5], stream);
        ok!(cuda, cuCtxSynchronize());
        assert_eq!((reserved(cuda, pool), used(cuda, pool), cuda.used()), (0, 0, before));
    });
}

#[test]
fn more_than_the_threshold_goes_back_at_the_next_synchronisation() {
    in_child(
        "pools::more_than_the_threshold_goes_back_at_the_next_synchronisation",
        |cuda| {
            cuda.context(0);
            let (before, stream, pool) = (cuda.used(), stream(cuda), default_pool(cuda));
            let mut event = CuEvent::NULL;
            ok!(cuda, cuEventCreate(&mut event, 0));
            set(cuda, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 2 * CHUNK);
            type Synchronise = fn(&Cuda, CuStream, CuEvent);
            let ways: [Synchronise; 3] = [
                |cuda, stream, _| ok!(cuda, cuStreamSynchronize(stream)),
                |cuda, _, event| ok!(cuda, cuEventSynchronize(event)),
                |cuda, _, _| ok!(cuda, cuCtxSynchronize()),
            ];
            for way in ways {
                let held: Vec<u64> = (0..4).map(|_| allocate(cuda, CHUNK, stream)).collect();
                for address in held {
                    free(cuda, address, stream);
                }
                ok!(cuda, cuEventRecord(event, stream));
                while code!(cuda, cuStreamQuery(stream)) == CuResult::NOT_READY {}
                assert_eq!(
                    (used(cuda, pool), reserved(cuda, pool)),
                    (0, 4 * CHUNK),
                    "not when the free happens"
                );
                way(cuda, stream, event);
                assert_eq!((reserved(cuda, pool), cuda.used()), (2 * CHUNK, before + 2 * CHUNK));
            }
            // Trimming keeps at least what is wished, in whole chunks.
            ok!(cuda, cuMemPoolTrimTo(pool, CHUNK as usize + 1));
            assert_eq!(reserved(cuda, pool), 2 * CHUNK);
            ok!(cuda, cuMemPoolTrimTo(pool, CHUNK as usize));
            assert_eq!(reserved(cuda, pool), CHUNK);
            let address = allocate(cuda, 512, stream);
            ok!(cuda, cuMemPoolTrimTo(pool, 0));
            assert_eq!(reserved(cuda, pool), CHUNK, "what is used stays");
            free(cuda, address, stream);
            ok!(cuda, cuStreamSynchronize(stream));
            assert_eq!(reserved(cuda, pool), CHUNK, "below the threshold");
            ok!(cuda, cuMemPoolTrimTo(pool, 0));
            assert_eq!((reserved(cuda, pool), cuda.used()), (0, before));
        },
    );
}

#[test]
fn what_pools_keep_makes_room_when_the_device_is_full() {
    in_child("pools::what_pools_keep_makes_room_when_the_device_is_full", |cuda| {
        cuda.context(0);
        let (before, stream, pool) = (cuda.used(), stream(cuda), own_pool(cuda, 0));
        set(cuda, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX);
        let rest = 1024 * MIB - before;
        let kept = allocate_from(cuda, rest / CHUNK * CHUNK, pool, stream);
        free(cuda, kept, stream);
        ok!(cuda, cuStreamSynchronize(stream));
        assert_eq!(reserved(cuda, pool), rest / CHUNK * CHUNK);
        let mut address = 0;
        ok!(cuda, cuMemAlloc_v2(&mut address, rest as usize));
        assert_eq!((reserved(cuda, pool), cuda.used()), (0, 1024 * MIB));
        refused!(OUT_OF_MEMORY: cuda, cuMemAllocAsync(&mut 0, 512, stream));
        ok!(cuda, cuMemFree_v2(address));
        // One pool makes room for another.
        let kept = allocate_from(cuda, rest / CHUNK * CHUNK, pool, stream);
        free(cuda, kept, stream);
        ok!(cuda, cuStreamSynchronize(stream));
        let other = allocate(cuda, rest / CHUNK * CHUNK, stream);
        assert_eq!(
            (reserved(cuda, pool), used(cuda, default_pool(cuda))),
            (0, rest / CHUNK * CHUNK)
        );
        free(cuda, other, stream);
        ok!(cuda, cuStreamSynchronize(stream));
        assert_eq!(cuda.used(), before);
    });
}

#[test]
fn own_pools_have_limits_and_outlive_their_handles() {
    in_child("pools::own_pools_have_limits_and_outlive_their_handles", |cuda| {
        cuda.context(0);
        let (before, stream) = (cuda.used(), stream(cuda));
        let (pool, mut current) = (own_pool(cuda, 4 * MIB), CuMemoryPool::NULL);
        assert_eq!(figure(cuda, pool, CU_MEMPOOL_ATTR_MAX_POOL_SIZE), 4 * MIB);
        let mut address = 0;
        refused!(OUT_OF_MEMORY: cuda, cuMemAllocFromPoolAsync(&mut address, 5 * MIB as usize, pool, stream));
        ok!(cuda, cuDeviceSetMemPool(0, pool));
        let mine = allocate(cuda, 3 * MIB, stream);
        assert_eq!(
            (used(cuda, pool), reserved(cuda, pool)),
            (3 * MIB, 4 * MIB),
            "never beyond the limit"
        );
        refused!(OUT_OF_MEMORY: cuda, cuMemAllocAsync(&mut address, 2 * MIB as usize, stream));
        let small = allocate(cuda, MIB, stream);
        ok!(cuda, cuMemPoolDestroy(pool));
        refused!(INVALID_VALUE: cuda, cuMemPoolDestroy(pool));
        refused!(INVALID_VALUE: cuda, cuMemPoolGetAttribute(pool, 3, (&raw mut address).cast()));
        refused!(INVALID_VALUE: cuda, cuMemPoolDestroy(default_pool(cuda)));
        ok!(cuda, cuDeviceGetMemPool(&mut current, 0));
        assert_eq!(current, default_pool(cuda));
        assert_eq!(cuda.used(), before + 4 * MIB, "its allocations live on");
        ok!(cuda, cuMemsetD8Async(small, 7, MIB as usize, stream));
        free(cuda, small, stream);
        ok!(cuda, cuStreamSynchronize(stream));
        assert_eq!(cuda.used(), before + 4 * MIB, "the other one is in the same chunk");
        hold(cuda, stream, 1);
        free(cuda, mine, stream);
        assert_eq!(cuda.used(), before + 4 * MIB, "the free has not happened");
        pass(1);
        ok!(cuda, cuStreamSynchronize(stream));
        assert_eq!(cuda.used(), before);
    });
}

#[test]
fn with_its_last_context_a_device_gets_everything_back() {
    in_child("pools::with_its_last_context_a_device_gets_everything_back", |cuda| {
        let first = cuda.context(0);
        let one = cuda.used();
        let second = cuda.context(0);
        let two = cuda.used();
        let (stream, pool) = (stream(cuda), own_pool(cuda, 0));
        set(cuda, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX);
        allocate_from(cuda, MIB, pool, stream);
        hold(cuda, stream, 1);
        pass(1);
        ok!(cuda, cuCtxDestroy_v2(second));
        assert_eq!((cuda.used(), two), (one + CHUNK, 2 * one), "kept for the other context");
        ok!(cuda, cuCtxDestroy_v2(first));
        assert_eq!((reserved(cuda, pool), used(cuda, pool)), (0, 0));
        cuda.context(0);
        assert_eq!(cuda.used(), one);
    });
}

#[test]
fn what_is_not_built_is_refused() {
    in_child("pools::what_is_not_built_is_refused", |cuda| {
        cuda.context(0);
        let (mut pool, mut wish) = (CuMemoryPool::NULL, CuMemPoolProps::default());
        wish.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        for kind in [
            CU_MEM_LOCATION_TYPE_HOST,
            CU_MEM_LOCATION_TYPE_HOST_NUMA,
            CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT,
        ] {
            wish.location.kind = kind;
            refused!(NOT_SUPPORTED: cuda, cuMemPoolCreate(&mut pool, &wish));
        }
        wish.location.kind = CU_MEM_LOCATION_TYPE_DEVICE;
        wish.location.id = 9;
        refused!(INVALID_DEVICE: cuda, cuMemPoolCreate(&mut pool, &wish));
        wish.allocType = 7;
        refused!(INVALID_VALUE: cuda, cuMemPoolCreate(&mut pool, &wish));
    });
}

/// Threads that allocate, fill, check and free in their own streams from one pool never see each other's bytes, and
/// what the device counts is always what the pool has reserved.
#[test]
fn threads_share_a_pool_without_meeting_in_its_memory() {
    in_child("pools::threads_share_a_pool_without_meeting_in_its_memory", |cuda| {
        let context = cuda.context(0);
        let (before, pool) = (cuda.used(), default_pool(cuda));
        println!("seeds 1 to 4");
        std::thread::scope(|scope| {
            for seed in 1..=4_u64 {
                scope.spawn(move || {
                    ok!(cuda, cuCtxSetCurrent(context));
                    let (stream, mut state) = (stream(cuda), seed);
                    let mut random = |below: u64| {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
                        (state >> 33) % below
                    };
                    let mut held: Vec<(u64, u64)> = Vec::new();
                    for _ in 0..300 {
                        if held.len() < 6 && random(2) == 0 {
                            let bytes = 512 << random(13);
                            let address = allocate(cuda, bytes, stream);
                            ok!(cuda, cuMemsetD8Async(address, seed as u8, bytes as usize, stream));
                            held.push((address, bytes));
                        } else if !held.is_empty() {
                            let (address, bytes) = held.swap_remove(random(held.len() as u64) as usize);
                            let mut back = [0_u8; 2];
                            for (byte, at) in back.iter_mut().zip([address, address + bytes - 1]) {
                                let to: *mut c_void = std::ptr::from_mut(byte).cast();
                                ok!(cuda, cuMemcpyDtoHAsync_v2(to, at, 1, stream));
                            }
                            free(cuda, address, stream);
                            ok!(cuda, cuStreamSynchronize(stream));
                            assert_eq!(back, [seed as u8; 2], "seed {seed}");
                        }
                    }
                    held.into_iter().for_each(|(address, _)| free(cuda, address, stream));
                });
            }
        });
        assert_eq!((used(cuda, pool), cuda.used()), (0, before + reserved(cuda, pool)));
        ok!(cuda, cuCtxSynchronize());
        assert_eq!((reserved(cuda, pool), cuda.used()), (0, before));
    });
}
