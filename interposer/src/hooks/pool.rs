// SPDX-License-Identifier: Apache-2.0
//! The stream-ordered allocator: its calls, each around the account of the pool it concerns.
//!
//! `cuMemAllocAsync`: the hook finds the stream's device and the device's current pool. Where the pool may have to grow,
//! the bytes are reserved (U rises) before the driver is called; afterwards U says what the pool really reserves. Beyond
//! the limit the process's pools give back what nothing uses; if that is not enough, the driver is not called, and the
//! program gets OUT_OF_MEMORY. Memory that the pool has already is not charged again, and a free gives it to the pool.
//!
//! A captured allocation takes no memory until its graph is launched: such a call goes straight to the driver, neither
//! denied nor measured. Whether a stream is captured is asked of the driver only after some stream has been.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_int, c_ulonglong, c_void};
use core::sync::atomic::Ordering;

use partage_abi::types::*;
use partage_abi::values::*;

use crate::entry::call;
use crate::errno;
use crate::pools::{self, End, Kind, Reuse, Source, Start, StreamName};
use crate::real::{self, Library};
use crate::session;
use crate::state::{self, Phase, State};
use crate::time;

impl StreamName {
    pub fn plain(handle: CuStream) -> Self {
        Self {
            handle,
            is_per_thread: false,
        }
    }

    pub fn per_thread(handle: CuStream) -> Self {
        Self {
            handle,
            is_per_thread: true,
        }
    }

    /// One of the handles that name default streams.
    fn is_default(self) -> bool {
        self.handle.0 as usize <= 2
    }
}

pub fn cuMemAllocAsync(real: &Library, dptr: *mut CuDevicePtr, bytes: usize, stream: CuStream) -> CuResult {
    allocate(real, dptr, bytes, None, StreamName::plain(stream), || {
        call!(real, cuMemAllocAsync(dptr, bytes, stream))
    })
}

pub fn cuMemAllocAsync_ptsz(real: &Library, dptr: *mut CuDevicePtr, bytes: usize, stream: CuStream) -> CuResult {
    allocate(real, dptr, bytes, None, StreamName::per_thread(stream), || {
        call!(real, cuMemAllocAsync_ptsz(dptr, bytes, stream))
    })
}

pub fn cuMemAllocFromPoolAsync(
    real: &Library,
    dptr: *mut CuDevicePtr,
    bytes: usize,
    pool: CuMemoryPool,
    stream: CuStream,
) -> CuResult {
    allocate(real, dptr, bytes, Some(pool), StreamName::plain(stream), || {
        call!(real, cuMemAllocFromPoolAsync(dptr, bytes, pool, stream))
    })
}

pub fn cuMemAllocFromPoolAsync_ptsz(
    real: &Library,
    dptr: *mut CuDevicePtr,
    bytes: usize,
    pool: CuMemoryPool,
    stream: CuStream,
) -> CuResult {
    allocate(real, dptr, bytes, Some(pool), StreamName::per_thread(stream), || {
        call!(real, cuMemAllocFromPoolAsync_ptsz(dptr, bytes, pool, stream))
    })
}

fn allocate(
    real: &Library,
    dptr: *mut CuDevicePtr,
    bytes: usize,
    pool: Option<CuMemoryPool>,
    stream: StreamName,
    allocate: impl Fn() -> CuResult,
) -> CuResult {
    let Some(state) = state::get().filter(|_| !dptr.is_null() && bytes != 0) else {
        return allocate();
    };
    if state.phase() == Phase::Fresh {
        errno::preserving(|| session::ensure(state, false));
    }
    if is_captured(state, real, stream) {
        state.pools.graph_memory.store(1, Ordering::Relaxed);
        return allocate();
    }
    let (source, ordinal) = match pool {
        Some(pool) => (Source::pool(real, pool), None),
        None => {
            let Some(ordinal) = device_of(state, real, stream) else {
                return allocate();
            };
            match current_pool(state, real, ordinal) {
                Some(pool) => (Source::pool(real, pool), Some(ordinal)),
                None => return allocate(),
            }
        }
    };
    let mut reuse = Reuse::IfIdle;
    loop {
        let ordinal = || ordinal.or_else(|| device_of_pool(state, real, pool?));
        let call = || {
            let result = allocate();
            // SAFETY: the driver succeeded with this pointer, which is not null.
            (result, result.is_success().then(|| unsafe { dptr.read() }))
        };
        let (end, result, address) = match pools::begin(state, source, ordinal, bytes as u64, stream.number(), reuse) {
            Start::PassOn => return allocate(),
            Start::Denied(denied) => return denied.tell(),
            Start::Reusing(reusing) => {
                let (result, address) = call();
                (reusing.end(address), result, address)
            }
            Start::Pending(pending) => {
                let (result, address) = call();
                (pending.end(address), result, address)
            }
        };
        match (end, address) {
            (End::Beyond(denied, is_reusing), Some(address)) => {
                undo(real, address, stream);
                pools::shrink_after_undo(state, source);
                if !is_reusing {
                    return denied.tell();
                }
            }
            _ => {
                if !result.is_success() {
                    // The driver may have emptied pools before it refused.
                    pools::all_changed(state);
                }
                return result;
            }
        }
        // What the pool kept did not serve: once more, with a reservation.
        reuse = Reuse::Never;
    }
}

/// Gives back what must not have been allocated. It is free when the stream gets there; to wait is the program's.
#[cold]
fn undo(real: &Library, address: CuDevicePtr, stream: StreamName) {
    let _ = if stream.is_per_thread {
        call!(real, cuMemFreeAsync_ptsz(address, stream.handle))
    } else {
        call!(real, cuMemFreeAsync(address, stream.handle))
    };
}

/// Is what is called on this stream going into a graph? Also where the driver will refuse the call because another
/// stream is captured.
pub fn is_captured(state: &State, real: &Library, stream: StreamName) -> bool {
    state.pools.captures.load(Ordering::Relaxed) != 0 && ask_whether_captured(real, stream)
}

#[cold]
fn ask_whether_captured(real: &Library, stream: StreamName) -> bool {
    let mut status: c_int = CU_STREAM_CAPTURE_STATUS_NONE;
    let result = if stream.is_per_thread {
        call!(real, cuStreamIsCapturing_ptsz(stream.handle, &raw mut status))
    } else {
        call!(real, cuStreamIsCapturing(stream.handle, &raw mut status))
    };
    !result.is_success() || status != CU_STREAM_CAPTURE_STATUS_NONE
}

/// The ordinal of a stream's device.
pub fn device_of(state: &State, real: &Library, stream: StreamName) -> Option<CuDevice> {
    // One more than the devices that the program sees.
    if state.ordinals_known.load(Ordering::Acquire) == 2 {
        return Some(0);
    }
    ask_device_of(real, stream)
}

#[cold]
fn ask_device_of(real: &Library, stream: StreamName) -> Option<CuDevice> {
    let mut device: CuDevice = 0;
    if stream.is_default() {
        return call!(real, cuCtxGetDevice(&raw mut device))
            .is_success()
            .then_some(device);
    }
    // Of CUDA 12.8; the calls below are older than pools.
    if call!(real, cuStreamGetDevice(stream.handle, &raw mut device)).is_success() {
        return Some(device);
    }
    let mut context = CuContext::NULL;
    if !call!(real, cuStreamGetCtx(stream.handle, &raw mut context)).is_success()
        || !call!(real, cuCtxPushCurrent_v2(context)).is_success()
    {
        return None;
    }
    let is_known = call!(real, cuCtxGetDevice(&raw mut device)).is_success();
    let _ = call!(real, cuCtxPopCurrent_v2(&raw mut context));
    is_known.then_some(device)
}

/// The pool that streams of a device allocate from.
fn current_pool(state: &State, real: &Library, ordinal: CuDevice) -> Option<CuMemoryPool> {
    let place = usize::try_from(ordinal)
        .ok()
        .and_then(|ordinal| state.pools.current.get(ordinal))
        .filter(|_| core::ptr::eq(real, &raw const real::DRIVER));
    match place.map(|place| place.load(Ordering::Relaxed)) {
        Some(known) if known != 0 => Some(CuMemoryPool(known as *mut c_void)),
        _ => {
            let turn = state.pools.current_turn.load(Ordering::SeqCst);
            let mut pool = CuMemoryPool::NULL;
            if !call!(real, cuDeviceGetMemPool(&raw mut pool, ordinal)).is_success() {
                return None;
            }
            if let Some(place) = place {
                place.store(pool.0 as u64, Ordering::SeqCst);
                if state.pools.current_turn.load(Ordering::SeqCst) != turn {
                    place.store(0, Ordering::SeqCst);
                }
            }
            Some(pool)
        }
    }
}

/// Forgets which pools streams allocate from.
fn current_pools_change(state: &State) {
    state.pools.current_turn.fetch_add(1, Ordering::SeqCst);
    for place in &state.pools.current {
        place.store(0, Ordering::SeqCst);
    }
}

/// The ordinal of the device whose memory is in a pool that we did not see made: a device's own, or one that was made
/// before we were there. `None`: host memory, or nobody knows.
#[cold]
fn device_of_pool(state: &State, real: &Library, pool: CuMemoryPool) -> Option<CuDevice> {
    let mut kind: c_int = CU_MEM_LOCATION_TYPE_INVALID;
    let mut ordinal: c_int = 0;
    let ask =
        |attribute, into: *mut c_int| call!(real, cuMemPoolGetAttribute(pool, attribute, into.cast())).is_success();
    // Attributes of CUDA 13.
    if ask(CU_MEMPOOL_ATTR_LOCATION_TYPE, &raw mut kind) && ask(CU_MEMPOOL_ATTR_LOCATION_ID, &raw mut ordinal) {
        return (kind == CU_MEM_LOCATION_TYPE_DEVICE).then_some(ordinal);
    }
    let _ = crate::devices::slot_of_device(state, real, 0);
    let count = state.ordinals_known.load(Ordering::Acquire).saturating_sub(1);
    (0..count as c_int).find(|&ordinal| {
        let (mut default, mut current) = (CuMemoryPool::NULL, CuMemoryPool::NULL);
        let _ = call!(real, cuDeviceGetDefaultMemPool(&raw mut default, ordinal));
        let _ = call!(real, cuDeviceGetMemPool(&raw mut current, ordinal));
        default == pool || current == pool
    })
}

pub fn cuMemFreeAsync(real: &Library, dptr: CuDevicePtr, stream: CuStream) -> CuResult {
    free(real, dptr, StreamName::plain(stream), || {
        call!(real, cuMemFreeAsync(dptr, stream))
    })
}

pub fn cuMemFreeAsync_ptsz(real: &Library, dptr: CuDevicePtr, stream: CuStream) -> CuResult {
    free(real, dptr, StreamName::per_thread(stream), || {
        call!(real, cuMemFreeAsync_ptsz(dptr, stream))
    })
}

fn free(real: &Library, address: CuDevicePtr, stream: StreamName, mut free: impl FnMut() -> CuResult) -> CuResult {
    match state::get() {
        Some(state) if !is_captured(state, real, stream) => pools::free_in_order(address, stream, free),
        // A captured free happens in launches of the graph.
        _ => free(),
    }
}

pub fn cuMemPoolCreate(real: &Library, pool: *mut CuMemoryPool, pool_props: *const CuMemPoolProps) -> CuResult {
    let result = call!(real, cuMemPoolCreate(pool, pool_props));
    if result.is_success() && !pool.is_null() && !pool_props.is_null() {
        // SAFETY: the driver succeeded with both pointers.
        let (pool, properties) = unsafe { (pool.read(), pool_props.read()) };
        let kind = match (properties.location.kind, properties.allocType) {
            (CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_MANAGED) => Kind::Managed(properties.location.id),
            (CU_MEM_LOCATION_TYPE_DEVICE, _) => Kind::Device(properties.location.id),
            _ => Kind::Exempt,
        };
        errno::preserving(|| pools::created(real, pool, kind));
    }
    result
}

pub fn cuMemPoolImportFromShareableHandle(
    real: &Library,
    pool_out: *mut CuMemoryPool,
    handle: *mut c_void,
    handle_type: c_int,
    flags: c_ulonglong,
) -> CuResult {
    let result = call!(
        real,
        cuMemPoolImportFromShareableHandle(pool_out, handle, handle_type, flags)
    );
    if result.is_success() && !pool_out.is_null() {
        // SAFETY: the driver succeeded with this pointer.
        let pool = unsafe { pool_out.read() };
        errno::preserving(|| pools::created(real, pool, Kind::Exempt));
    }
    result
}

pub fn cuMemPoolDestroy(real: &Library, pool: CuMemoryPool) -> CuResult {
    let Some(state) = state::get() else {
        return call!(real, cuMemPoolDestroy(pool));
    };
    // A device whose current pool ends allocates from its default pool again.
    current_pools_change(state);
    let result = pools::destroy(state, Source::pool(real, pool), || call!(real, cuMemPoolDestroy(pool)));
    current_pools_change(state);
    result
}

pub fn cuMemPoolTrimTo(real: &Library, pool: CuMemoryPool, min_bytes_to_keep: usize) -> CuResult {
    let result = call!(real, cuMemPoolTrimTo(pool, min_bytes_to_keep));
    if let Some(state) = state::get() {
        pools::changed(state, Source::pool(real, pool));
    }
    result
}

pub fn cuMemPoolSetAttribute(real: &Library, pool: CuMemoryPool, attr: c_int, value: *mut c_void) -> CuResult {
    let result = call!(real, cuMemPoolSetAttribute(pool, attr, value));
    if result.is_success()
        && attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        && let Some(state) = state::get()
    {
        // SAFETY: the driver succeeded with this pointer, and reads as much there for this attribute.
        let threshold = unsafe { value.cast::<u64>().read_unaligned() };
        pools::set_threshold(state, Source::pool(real, pool), threshold);
    }
    result
}

pub fn cuDeviceSetMemPool(real: &Library, dev: CuDevice, pool: CuMemoryPool) -> CuResult {
    set_current(|| call!(real, cuDeviceSetMemPool(dev, pool)))
}

pub fn cuMemSetMemPool(real: &Library, location: *mut CuMemLocation, kind: c_int, pool: CuMemoryPool) -> CuResult {
    set_current(|| call!(real, cuMemSetMemPool(location, kind, pool)))
}

fn set_current(set: impl FnOnce() -> CuResult) -> CuResult {
    let Some(state) = state::get() else { return set() };
    current_pools_change(state);
    let result = set();
    current_pools_change(state);
    // Another thread may have allocated from the new pool on the account of the former.
    pools::all_changed(state);
    result
}

// ---- captures --------------------------------------------------------------------------------------------------

/// From now on streams are asked whether they are captured.
fn capture_begins(real: &Library, handle: CuStream, is_per_thread: bool) {
    time::orphan(real, StreamName { handle, is_per_thread });
    if let Some(state) = state::get() {
        state.pools.captures.store(1, Ordering::Relaxed);
    }
}

macro_rules! capture_beginnings {
    (first $stream:ident $($rest:ident)*) => { $stream };
    ($( $symbol:ident($($argument:ident: $type:ty),*); )*) => { $(
        pub fn $symbol(real: &Library, $($argument: $type),*) -> CuResult {
            let is_per_thread = const { time::is_per_thread(stringify!($symbol)) };
            capture_begins(real, capture_beginnings!(first $($argument)*), is_per_thread);
            call!(real, $symbol($($argument),*))
        }
    )* };
}

capture_beginnings! {
    cuStreamBeginCapture(stream: CuStream);
    cuStreamBeginCapture_ptsz(stream: CuStream);
    cuStreamBeginCapture_v2(stream: CuStream, mode: c_int);
    cuStreamBeginCapture_v2_ptsz(stream: CuStream, mode: c_int);
    cuStreamBeginRecaptureToGraph(
        stream: CuStream, mode: c_int, graph: CuGraph, callback_func: CuGraphRecaptureCallback, user_data: *mut c_void
    );
    cuStreamBeginRecaptureToGraph_ptsz(
        stream: CuStream, mode: c_int, graph: CuGraph, callback_func: CuGraphRecaptureCallback, user_data: *mut c_void
    );
    cuStreamBeginCaptureToGraph(
        stream: CuStream, graph: CuGraph, dependencies: *const CuGraphNode, dependency_data: *const CuGraphEdgeData,
        num_dependencies: usize, mode: c_int
    );
    cuStreamBeginCaptureToGraph_ptsz(
        stream: CuStream, graph: CuGraph, dependencies: *const CuGraphNode, dependency_data: *const CuGraphEdgeData,
        num_dependencies: usize, mode: c_int
    );
    cuStreamBeginCaptureToCig(stream: CuStream, stream_cig_capture_params: *mut CuStreamCigCaptureParams);
    cuStreamBeginCaptureToCig_ptsz(stream: CuStream, stream_cig_capture_params: *mut CuStreamCigCaptureParams);
}
