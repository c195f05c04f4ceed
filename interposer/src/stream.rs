// SPDX-License-Identifier: Apache-2.0
//! Streams: how calls name one, whether it is captured, which device it is on, and the [`work`] that it is given.

pub mod work;

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use partage_abi::types::{CuContext, CuDevice, CuStream};
use partage_abi::values::{CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE};

use crate::attachment;
use crate::real::Library;
use crate::real::call;
use crate::state::State;
use crate::state::rooms::{Owner, Room};

/// What is known of streams without asking. All-zero memory is "nothing".
struct Streams {
    /// Not 0: a stream was captured in this process, so every stream is asked whether it is.
    captures: AtomicU32,
}

// SAFETY: all-zero memory is a number; nothing else lies in this room.
unsafe impl Room for Streams {
    const OWNER: Owner = Owner::Streams;
}

/// Was a stream captured in this process?
#[inline(always)]
pub fn was_captured(state: &State) -> bool {
    state.room::<Streams>().captures.load(Ordering::Relaxed) != 0
}

/// From now on streams are asked whether they are captured.
pub fn note_capture(state: &State) {
    state.room::<Streams>().captures.store(1, Ordering::Relaxed);
}

/// A stream as a call names it.
#[derive(Clone, Copy)]
pub struct StreamName {
    /// The handle.
    pub handle: CuStream,
    /// Given to a `_ptsz` entry point, where the default stream is the thread's own.
    pub is_per_thread: bool,
}

impl StreamName {
    /// As a plain entry point names it.
    pub fn plain(handle: CuStream) -> Self {
        Self {
            handle,
            is_per_thread: false,
        }
    }

    /// As a `_ptsz` entry point names it.
    pub fn per_thread(handle: CuStream) -> Self {
        Self {
            handle,
            is_per_thread: true,
        }
    }

    /// The stream as a number, unless it is a thread's own: another thread's has the same name.
    pub fn number(self) -> Option<u64> {
        let handle = self.handle.0 as u64;
        (handle != 2 && (handle != 0 || !self.is_per_thread)).then_some(handle)
    }

    /// One of the handles that name default streams.
    fn is_default(self) -> bool {
        self.handle.0 as usize <= 2
    }
}

/// Is what is called on this stream going into a graph? Also where the driver will refuse the call because another
/// stream is captured.
pub fn is_captured(state: &State, real: &Library, stream: StreamName) -> bool {
    was_captured(state) && ask_whether_captured(real, stream)
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
    if attachment::of(state).ordinals.known.load(Ordering::Acquire) == 2 {
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

/// Calls the driver without spoiling a capture: a thread may be in a mode in which calls that a capture cannot hold end
/// it.
pub fn relaxed<R>(state: &State, real: &Library, act: impl FnOnce() -> R) -> R {
    if !was_captured(state) {
        return act();
    }
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    let is_exchanged = call!(real, cuThreadExchangeStreamCaptureMode(&raw mut mode)).is_success();
    let result = act();
    if is_exchanged {
        let _ = call!(real, cuThreadExchangeStreamCaptureMode(&raw mut mode));
    }
    result
}
