// SPDX-License-Identifier: Apache-2.0
//! Copies of linear and pitched memory, between devices, and of variables. Addresses are unified, so the driver finds
//! out the direction; the one that the program names is only looked at for being one.

use partage_abi::types::*;

use super::{inside, memory::check_pitch};
use crate::context::{check, exists, primary};
use crate::registry::find_variable;
use crate::types::Memcpy3d;
use crate::{driver, error, refuse};

/// `CU_MEMORYTYPE_UNIFIED`.
const UNIFIED: c_int = 4;
/// `cudaMemcpyDefault`, the last direction.
const LAST_KIND: c_int = 4;

fn check_kind(kind: c_int) -> Result<(), CuResult> {
    if (0..=LAST_KIND).contains(&kind) {
        Ok(())
    } else {
        Err(error::INVALID_DIRECTION)
    }
}

/// A copy.
pub fn cudaMemcpy(target: CuDevicePtr, source: CuDevicePtr, bytes: usize, kind: c_int) -> CuResult {
    inside(|| {
        check_kind(kind)?;
        if bytes == 0 {
            return Ok(());
        }
        check(driver::cuMemcpy(target, source, bytes))
    })
}

/// A copy in the order of the thread's own default stream.
pub fn cudaMemcpy_ptds(target: CuDevicePtr, source: CuDevicePtr, bytes: usize, kind: c_int) -> CuResult {
    inside(|| {
        check_kind(kind)?;
        if bytes == 0 {
            return Ok(());
        }
        check(driver::cuMemcpy_ptds(target, source, bytes))
    })
}

/// A copy in a stream.
pub fn cudaMemcpyAsync(
    target: CuDevicePtr,
    source: CuDevicePtr,
    bytes: usize,
    kind: c_int,
    stream: CuStream,
) -> CuResult {
    inside(|| {
        check_kind(kind)?;
        if bytes == 0 {
            return Ok(());
        }
        check(driver::cuMemcpyAsync(target, source, bytes, stream))
    })
}

/// A copy between devices.
pub fn cudaMemcpyPeer(
    target: CuDevicePtr,
    target_device: c_int,
    source: CuDevicePtr,
    source_device: c_int,
    bytes: usize,
) -> CuResult {
    inside(|| {
        let (to, from) = contexts(target_device, source_device)?;
        check(driver::cuMemcpyPeer(target, to, source, from, bytes))
    })
}

/// A copy between devices, in a stream.
pub fn cudaMemcpyPeerAsync(
    target: CuDevicePtr,
    target_device: c_int,
    source: CuDevicePtr,
    source_device: c_int,
    bytes: usize,
    stream: CuStream,
) -> CuResult {
    inside(|| {
        let (to, from) = contexts(target_device, source_device)?;
        check(driver::cuMemcpyPeerAsync(target, to, source, from, bytes, stream))
    })
}

fn contexts(target: c_int, source: c_int) -> Result<(CuContext, CuContext), CuResult> {
    exists(target)?;
    exists(source)?;
    Ok((primary(target)?, primary(source)?))
}

/// A copy of rows as the driver wants it.
#[derive(Clone, Copy)]
struct Rows {
    target: CuDevicePtr,
    target_pitch: usize,
    source: CuDevicePtr,
    source_pitch: usize,
    width: usize,
    height: usize,
}

impl Rows {
    fn checked(self, kind: c_int) -> Result<Option<CudaMemcpy2d>, CuResult> {
        check_kind(kind)?;
        check_pitch(self.target_pitch, self.width)?;
        check_pitch(self.source_pitch, self.width)?;
        let copy = CudaMemcpy2d {
            srcMemoryType: UNIFIED,
            srcDevice: self.source,
            srcPitch: self.source_pitch,
            dstMemoryType: UNIFIED,
            dstDevice: self.target,
            dstPitch: self.target_pitch,
            WidthInBytes: self.width,
            Height: self.height,
            ..CudaMemcpy2d::default()
        };
        Ok((self.width != 0 && self.height != 0).then_some(copy))
    }
}

/// A copy of rows.
pub fn cudaMemcpy2D(
    target: CuDevicePtr,
    target_pitch: usize,
    source: CuDevicePtr,
    source_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> CuResult {
    let rows = Rows {
        target,
        target_pitch,
        source,
        source_pitch,
        width,
        height,
    };
    inside(|| match rows.checked(kind)? {
        Some(copy) => check(driver::cuMemcpy2DUnaligned_v2(&copy)),
        None => Ok(()),
    })
}

/// A copy of rows in a stream.
pub fn cudaMemcpy2DAsync(
    target: CuDevicePtr,
    target_pitch: usize,
    source: CuDevicePtr,
    source_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
    stream: CuStream,
) -> CuResult {
    let rows = Rows {
        target,
        target_pitch,
        source,
        source_pitch,
        width,
        height,
    };
    inside(|| match rows.checked(kind)? {
        Some(copy) => check(driver::cuMemcpy2DAsync_v2(&copy, stream)),
        None => Ok(()),
    })
}

/// A copy of layers as the driver wants it; of arrays none, which are not built here.
pub(super) fn layers(parameters: *const Memcpy3d) -> Result<CudaMemcpy3d, CuResult> {
    // SAFETY: the program's struct, or null.
    let given = unsafe { parameters.as_ref() }.ok_or(CuResult::INVALID_VALUE)?;
    if !given.source_array.is_null() || !given.target_array.is_null() {
        return Err(refuse::of_runtime("cudaMemcpy3D of an array"));
    }
    check_kind(given.kind)?;
    Ok(CudaMemcpy3d {
        srcXInBytes: given.source_position.width,
        srcY: given.source_position.height,
        srcZ: given.source_position.depth,
        srcMemoryType: UNIFIED,
        srcDevice: given.source.pointer,
        srcPitch: given.source.pitch,
        srcHeight: given.source.height,
        dstXInBytes: given.target_position.width,
        dstY: given.target_position.height,
        dstZ: given.target_position.depth,
        dstMemoryType: UNIFIED,
        dstDevice: given.target.pointer,
        dstPitch: given.target.pitch,
        dstHeight: given.target.height,
        WidthInBytes: given.extent.width,
        Height: given.extent.height,
        Depth: given.extent.depth,
        ..CudaMemcpy3d::default()
    })
}

/// A copy of layers.
pub fn cudaMemcpy3D(parameters: *const Memcpy3d) -> CuResult {
    inside(|| check(driver::cuMemcpy3D_v2(&layers(parameters)?)))
}

/// A copy of layers in a stream.
pub fn cudaMemcpy3DAsync(parameters: *const Memcpy3d, stream: CuStream) -> CuResult {
    inside(|| check(driver::cuMemcpy3DAsync_v2(&layers(parameters)?, stream)))
}

/// Where in a variable a copy begins; what leaves it is refused.
fn part(symbol: *const c_void, offset: usize, bytes: usize) -> Result<CuDevicePtr, CuResult> {
    let (address, size) = find_variable(symbol)?;
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(address + offset as u64),
        _ => Err(CuResult::INVALID_VALUE),
    }
}

/// A copy to a variable.
pub fn cudaMemcpyToSymbol(
    symbol: *const c_void,
    source: CuDevicePtr,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> CuResult {
    inside(|| {
        check_kind(kind)?;
        check(driver::cuMemcpy(part(symbol, offset, bytes)?, source, bytes))
    })
}

/// A copy to a variable, in a stream.
pub fn cudaMemcpyToSymbolAsync(
    symbol: *const c_void,
    source: CuDevicePtr,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: CuStream,
) -> CuResult {
    inside(|| {
        check_kind(kind)?;
        check(driver::cuMemcpyAsync(
            part(symbol, offset, bytes)?,
            source,
            bytes,
            stream,
        ))
    })
}

/// A copy of a variable.
pub fn cudaMemcpyFromSymbol(
    target: CuDevicePtr,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> CuResult {
    inside(|| {
        check_kind(kind)?;
        check(driver::cuMemcpy(target, part(symbol, offset, bytes)?, bytes))
    })
}

/// A copy of a variable, in a stream.
pub fn cudaMemcpyFromSymbolAsync(
    target: CuDevicePtr,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: CuStream,
) -> CuResult {
    inside(|| {
        check_kind(kind)?;
        check(driver::cuMemcpyAsync(
            target,
            part(symbol, offset, bytes)?,
            bytes,
            stream,
        ))
    })
}
