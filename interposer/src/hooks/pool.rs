// SPDX-License-Identifier: Apache-2.0
//! The stream-ordered allocator: its calls, each around the account of the pool it concerns.
//!
//! `cuMemAllocAsync`: the hook finds the stream's device and the device's current pool. Where the pool may have to
//! grow, the bytes are reserved (U rises) before the driver is called; afterwards U says what the pool really reserves.
//! Beyond the limit the process's pools give back what nothing uses; if that is not enough, the driver is not called,
//! and the program gets OUT_OF_MEMORY. Memory that the pool has already is not charged again, and a free gives it to
//! the pool.
//!
//! A captured allocation takes no memory until its graph is launched: such a call goes straight to the driver, neither
//! denied nor measured. Whether a stream is captured is asked of the driver only after some stream has been.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_int, c_ulonglong, c_void};
use core::sync::atomic::Ordering;

use partage_abi::types::*;
use partage_abi::values::*;
use partage_protocol::hold::ties;

use crate::attachment;
use crate::attachment::ties::made;
use crate::gate;
use crate::guest::errno;
use crate::marks;
use crate::memory::pools::table;
use crate::memory::pools::{self, Call, End, Freeing, Kind, Reuse, Source};
use crate::memory::recovery;
use crate::memory::reservation::Begun;
use crate::memory::sharing;
use crate::real::call;
use crate::real::{self, Library};
use crate::state::{self, State};
use crate::stream;
use crate::stream::{StreamName, device_of, is_captured};

/// Makes the hooks of allocations in stream order.
macro_rules! allocations {
    ($(
        $symbol:ident($dptr:ident, $bytes:ident, $($argument:ident: $type:ty),*) from $pool:expr, in $stream:expr;
    )*) => { $(
        pub fn $symbol(real: &Library, $dptr: *mut CuDevicePtr, $bytes: usize, $($argument: $type),*) -> CuResult {
            let mut allocating = Allocating::new(real, $dptr, $bytes, $pool, $stream);
            loop {
                if let Some(denied) = allocating.begin(real) {
                    return denied;
                }
                let result = call!(real, $symbol($dptr, $bytes, $($argument),*));
                if allocating.end(real, result) {
                    return allocating.answer;
                }
            }
        }
    )* };
}

allocations! {
    cuMemAllocAsync(dptr, bytes, stream: CuStream) from None, in StreamName::plain(stream);
    cuMemAllocAsync_ptsz(dptr, bytes, stream: CuStream) from None, in StreamName::per_thread(stream);
    cuMemAllocFromPoolAsync(dptr, bytes, pool: CuMemoryPool, stream: CuStream)
        from Some(pool), in StreamName::plain(stream);
    cuMemAllocFromPoolAsync_ptsz(dptr, bytes, pool: CuMemoryPool, stream: CuStream)
        from Some(pool), in StreamName::per_thread(stream);
}

/// An allocation in stream order: begun before the driver's call, ended after it, and both once more where what the
/// pool kept did not serve.
struct Allocating {
    dptr: *mut CuDevicePtr,
    bytes: u64,
    stream: StreamName,
    /// `None`: the driver is just called.
    charged: Option<ChargedTo>,
    reuse: Reuse,
    /// What the call under way was begun with.
    begun: Begun<Call>,
    /// What the program gets.
    answer: CuResult,
}

/// Who an allocation is charged to.
#[derive(Clone, Copy)]
struct ChargedTo {
    state: &'static State,
    source: Source,
    pool: Option<CuMemoryPool>,
    ordinal: Option<CuDevice>,
}

impl Allocating {
    #[inline(never)] // one body for all the hooks that call it
    fn new(
        real: &Library,
        dptr: *mut CuDevicePtr,
        bytes: usize,
        pool: Option<CuMemoryPool>,
        stream: StreamName,
    ) -> Self {
        Self {
            dptr,
            bytes: bytes as u64,
            stream,
            charged: if dptr.is_null() || bytes == 0 {
                None
            } else {
                ChargedTo::find(real, pool, stream)
            },
            reuse: Reuse::IfIdle,
            begun: Begun::NotCharged,
            answer: CuResult::SUCCESS,
        }
    }

    /// Before the driver's call. `Some`: there is none, and this is what the program gets.
    #[inline(never)] // as `new`
    fn begin(&mut self, real: &Library) -> Option<CuResult> {
        let charged = self.charged?;
        let ordinal = || {
            charged
                .ordinal
                .or_else(|| device_of_pool(charged.state, real, charged.pool?))
        };
        let stream = self.stream.number();
        match pools::begin(charged.state, charged.source, ordinal, self.bytes, stream, self.reuse) {
            Begun::Denied(denied) => Some(denied.tell()),
            begun => {
                self.begun = begun;
                None
            }
        }
    }

    /// After the driver's call. `false`: it is to be begun once more.
    #[inline(never)] // as `new`
    fn end(&mut self, real: &Library, result: CuResult) -> bool {
        self.answer = result;
        let Some(ChargedTo { state, source, .. }) = self.charged else {
            return true;
        };
        // SAFETY: the driver succeeded with this pointer, which is not null.
        let address = result.is_success().then(|| unsafe { self.dptr.read() });
        let Begun::Granted(call) = core::mem::replace(&mut self.begun, Begun::NotCharged) else {
            return true;
        };
        let charge = *call.charge();
        let (End::Beyond(denied, is_reusing), Some(address)) = (call.end(address), address) else {
            if !result.is_success() {
                // The driver may have emptied pools before it refused.
                pools::all_changed(state);
            } else {
                recovery::granted(state, &charge);
            }
            return true;
        };
        undo(real, address, self.stream);
        pools::shrink_after_undo(state, source);
        if !is_reusing {
            self.answer = denied.tell();
            return true;
        }
        // What the pool kept did not serve: once more, with a reservation.
        self.reuse = Reuse::Never;
        false
    }
}

impl ChargedTo {
    /// `None`: nobody is charged before the call.
    fn find(real: &Library, pool: Option<CuMemoryPool>, stream: StreamName) -> Option<Self> {
        let state = sharing::ensured()?;
        if is_captured(state, real, stream) {
            table::pools(state).graph_memory.store(1, Ordering::Relaxed);
            return None;
        }
        let (from, ordinal) = match pool {
            Some(pool) => (pool, None),
            None => {
                let ordinal = device_of(state, real, stream)?;
                (current_pool(state, real, ordinal)?, Some(ordinal))
            }
        };
        Some(Self {
            state,
            source: Source::pool(real, from),
            pool,
            ordinal,
        })
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

/// The pool that streams of a device allocate from.
fn current_pool(state: &State, real: &Library, ordinal: CuDevice) -> Option<CuMemoryPool> {
    let place = usize::try_from(ordinal)
        .ok()
        .and_then(|ordinal| table::pools(state).current.get(ordinal))
        .filter(|_| core::ptr::eq(real, &raw const real::DRIVER));
    match place.map(|place| place.load(Ordering::Relaxed)) {
        Some(known) if known != 0 => Some(CuMemoryPool(known as *mut c_void)),
        _ => {
            let turn = table::pools(state).current_turn.load(Ordering::SeqCst);
            let mut pool = CuMemoryPool::NULL;
            if !call!(real, cuDeviceGetMemPool(&raw mut pool, ordinal)).is_success() {
                return None;
            }
            if let Some(place) = place {
                place.store(pool.0 as u64, Ordering::SeqCst);
                if table::pools(state).current_turn.load(Ordering::SeqCst) != turn {
                    place.store(0, Ordering::SeqCst);
                }
            }
            Some(pool)
        }
    }
}

/// Forgets which pools streams allocate from.
fn current_pools_change(state: &State) {
    table::pools(state).current_turn.fetch_add(1, Ordering::SeqCst);
    for place in &table::pools(state).current {
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
    let count = attachment::of(state)
        .ordinals
        .known
        .load(Ordering::Acquire)
        .saturating_sub(1);
    (0..count as c_int).find(|&ordinal| {
        let (mut default, mut current) = (CuMemoryPool::NULL, CuMemoryPool::NULL);
        let _ = call!(real, cuDeviceGetDefaultMemPool(&raw mut default, ordinal));
        let _ = call!(real, cuDeviceGetMemPool(&raw mut current, ordinal));
        default == pool || current == pool
    })
}

pub fn cuMemFreeAsync(real: &Library, dptr: CuDevicePtr, stream: CuStream) -> CuResult {
    let freeing = begin_free(real, dptr, StreamName::plain(stream));
    let result = call!(real, cuMemFreeAsync(dptr, stream));
    if let Some(freeing) = freeing {
        freeing.end(result.is_success());
    }
    result
}

pub fn cuMemFreeAsync_ptsz(real: &Library, dptr: CuDevicePtr, stream: CuStream) -> CuResult {
    let freeing = begin_free(real, dptr, StreamName::per_thread(stream));
    let result = call!(real, cuMemFreeAsync_ptsz(dptr, stream));
    if let Some(freeing) = freeing {
        freeing.end(result.is_success());
    }
    result
}

/// A free in stream order begins. `None`: the driver is just called, as for a captured free, which happens in launches
/// of the graph.
fn begin_free(real: &Library, address: CuDevicePtr, stream: StreamName) -> Option<Freeing> {
    let state = state::get()?;
    if is_captured(state, real, stream) {
        return None;
    }
    Freeing::in_order(address, stream)
}

pub fn cuMemPoolCreate(real: &Library, pool: *mut CuMemoryPool, pool_props: *const CuMemPoolProps) -> CuResult {
    let result = call!(real, cuMemPoolCreate(pool, pool_props));
    if result.is_success() && !pool.is_null() && !pool_props.is_null() {
        // SAFETY: the driver succeeded with both pointers.
        let (pool, properties) = unsafe { (pool.read(), pool_props.read()) };
        if properties.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED {
            let _ = made(result, ties::MANAGED_MEMORY);
        }
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
    let imported = call!(
        real,
        cuMemPoolImportFromShareableHandle(pool_out, handle, handle_type, flags)
    );
    let result = made(imported, ties::SHARED_POOL);
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
    let destroying = pools::begin_destroy(state, Source::pool(real, pool));
    let result = call!(real, cuMemPoolDestroy(pool));
    if let Some(destroying) = destroying {
        destroying.end(result.is_success());
    }
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
    let setting = begin_set_current();
    let result = call!(real, cuDeviceSetMemPool(dev, pool));
    end_set_current(setting, result)
}

pub fn cuMemSetMemPool(real: &Library, location: *mut CuMemLocation, kind: c_int, pool: CuMemoryPool) -> CuResult {
    let setting = begin_set_current();
    let result = call!(real, cuMemSetMemPool(location, kind, pool));
    end_set_current(setting, result)
}

fn begin_set_current() -> Option<&'static State> {
    let state = state::get()?;
    current_pools_change(state);
    Some(state)
}

fn end_set_current(setting: Option<&'static State>, result: CuResult) -> CuResult {
    if let Some(state) = setting {
        current_pools_change(state);
        // Another thread may have allocated from the new pool on the account of the former.
        pools::all_changed(state);
    }
    result
}

// ---- captures --------------------------------------------------------------------------------------------------

/// From now on streams are asked whether they are captured.
fn capture_begins(real: &Library, handle: CuStream, is_per_thread: bool) {
    marks::orphan(real, StreamName { handle, is_per_thread });
    if let Some(state) = state::get() {
        stream::note_capture(state);
    }
}

macro_rules! capture_beginnings {
    (first $stream:ident $($rest:ident)*) => { $stream };
    ($( $symbol:ident($($argument:ident: $type:ty),*) $(ties $tie:ident)?; )*) => { $(
        pub fn $symbol(real: &Library, $($argument: $type),*) -> CuResult {
            let is_per_thread = const { gate::is_per_thread(stringify!($symbol)) };
            capture_begins(real, capture_beginnings!(first $($argument)*), is_per_thread);
            let result = call!(real, $symbol($($argument),*));
            $( let result = made(result, ties::$tie); )?
            result
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
    cuStreamBeginCaptureToCig(stream: CuStream, stream_cig_capture_params: *mut CuStreamCigCaptureParams) ties GRAPHICS;
    cuStreamBeginCaptureToCig_ptsz(
        stream: CuStream, stream_cig_capture_params: *mut CuStreamCigCaptureParams
    ) ties GRAPHICS;
}
