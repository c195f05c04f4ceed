// SPDX-License-Identifier: Apache-2.0
//! Allocation, release and filling of memory.

use partage_abi::types::*;

use super::{inside, put};
use crate::context::check;
use crate::types::{Extent, PitchedPtr};
use crate::{driver, error};

/// Bytes that a row of pitched memory is accessed with at most, as the driver wants to know.
const ELEMENT: c_uint = 16;

/// Linear memory of the thread's device. None is asked for: none is given, and that is no error.
pub fn cudaMalloc(pointer: *mut CuDevicePtr, bytes: usize) -> CuResult {
    inside(|| {
        put(pointer, 0)?;
        if bytes == 0 {
            return Ok(());
        }
        check(driver::cuMemAlloc_v2(pointer, bytes))
    })
}

/// Releases memory of the device.
pub fn cudaFree(pointer: CuDevicePtr) -> CuResult {
    inside(|| {
        if pointer == 0 {
            return Ok(());
        }
        check(driver::cuMemFree_v2(pointer))
    })
}

/// Page-locked memory of the host.
pub fn cudaMallocHost(pointer: *mut *mut c_void, bytes: usize) -> CuResult {
    cudaHostAlloc(pointer, bytes, 0)
}

/// Page-locked memory of the host.
pub fn cudaHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> CuResult {
    inside(|| {
        put(pointer, core::ptr::null_mut())?;
        if bytes == 0 {
            return Ok(());
        }
        check(driver::cuMemHostAlloc(pointer, bytes, flags))
    })
}

/// Releases page-locked memory.
pub fn cudaFreeHost(pointer: *mut c_void) -> CuResult {
    inside(|| {
        if pointer.is_null() {
            return Ok(());
        }
        check(driver::cuMemFreeHost(pointer))
    })
}

/// Rows that begin where accesses are fast.
pub fn cudaMallocPitch(pointer: *mut CuDevicePtr, pitch: *mut usize, width: usize, height: usize) -> CuResult {
    inside(|| {
        put(pointer, 0)?;
        put(pitch, 0)?;
        if width == 0 || height == 0 {
            return Ok(());
        }
        check(driver::cuMemAllocPitch_v2(pointer, pitch, width, height, ELEMENT))
    })
}

/// Layers of such rows.
pub fn cudaMalloc3D(pointer: *mut PitchedPtr, extent: Extent) -> CuResult {
    inside(|| {
        let rows = extent.height.checked_mul(extent.depth).ok_or(CuResult::INVALID_VALUE)?;
        let (mut start, mut pitch) = (0, 0);
        if extent.width != 0 && rows != 0 {
            check(driver::cuMemAllocPitch_v2(
                &mut start,
                &mut pitch,
                extent.width,
                rows,
                ELEMENT,
            ))?;
        }
        put(
            pointer,
            PitchedPtr {
                pointer: start,
                pitch,
                width: extent.width,
                height: extent.height,
            },
        )
    })
}

/// Fills memory with a byte.
pub fn cudaMemset(pointer: CuDevicePtr, value: c_int, bytes: usize) -> CuResult {
    inside(|| check(driver::cuMemsetD8_v2(pointer, low(value), bytes)))
}

/// Fills memory with a byte, in a stream.
pub fn cudaMemsetAsync(pointer: CuDevicePtr, value: c_int, bytes: usize, stream: CuStream) -> CuResult {
    inside(|| check(driver::cuMemsetD8Async(pointer, low(value), bytes, stream)))
}

/// Fills rows with a byte.
pub fn cudaMemset2D(pointer: CuDevicePtr, pitch: usize, value: c_int, width: usize, height: usize) -> CuResult {
    inside(|| {
        check_pitch(pitch, width)?;
        check(driver::cuMemsetD2D8_v2(pointer, pitch, low(value), width, height))
    })
}

/// Fills rows with a byte, in a stream.
pub fn cudaMemset2DAsync(
    pointer: CuDevicePtr,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    stream: CuStream,
) -> CuResult {
    inside(|| {
        check_pitch(pitch, width)?;
        check(driver::cuMemsetD2D8Async(
            pointer,
            pitch,
            low(value),
            width,
            height,
            stream,
        ))
    })
}

/// Fills layers of rows with a byte.
pub fn cudaMemset3D(target: PitchedPtr, value: c_int, extent: Extent) -> CuResult {
    inside(|| {
        check_pitch(target.pitch, extent.width)?;
        for start in layers(target, extent) {
            check(driver::cuMemsetD2D8_v2(
                start,
                target.pitch,
                low(value),
                extent.width,
                extent.height,
            ))?;
        }
        Ok(())
    })
}

/// Fills layers of rows with a byte, in a stream.
pub fn cudaMemset3DAsync(target: PitchedPtr, value: c_int, extent: Extent, stream: CuStream) -> CuResult {
    inside(|| {
        check_pitch(target.pitch, extent.width)?;
        for start in layers(target, extent) {
            let (pitch, width) = (target.pitch, extent.width);
            check(driver::cuMemsetD2D8Async(
                start,
                pitch,
                low(value),
                width,
                extent.height,
                stream,
            ))?;
        }
        Ok(())
    })
}

/// Where each layer begins.
fn layers(target: PitchedPtr, extent: Extent) -> impl Iterator<Item = CuDevicePtr> {
    let step = (target.pitch * target.height) as u64;
    (0..extent.depth as u64).map(move |layer| target.pointer + layer * step)
}

/// The byte that a fill writes.
fn low(value: c_int) -> c_uchar {
    value.to_le_bytes()[0]
}

/// Refuses rows that overlap.
pub(super) fn check_pitch(pitch: usize, width: usize) -> Result<(), CuResult> {
    if width > pitch {
        Err(error::INVALID_PITCH)
    } else {
        Ok(())
    }
}
