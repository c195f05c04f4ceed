// SPDX-License-Identifier: Apache-2.0
//! Copies and memory sets. The driver finds out from the addresses which way a copy goes; so does the runtime, but for a
//! direction that does not exist.

use std::ffi::{c_int, c_void};
use std::ptr;

use partage_abi::types::{CuArray, CuDevicePtr, CuStream, CudaMemcpy2d};

use crate::driver::call;
use crate::error::{Answer, Code};
use crate::rows::rows;
use crate::{code, device};

/// `cudaMemcpyDefault`, the last of the directions.
const LAST_DIRECTION: c_int = 4;
/// `CU_MEMORYTYPE_UNIFIED`: the driver finds out where the memory is.
const ANYWHERE: c_int = 4;

fn directed(direction: c_int) -> Answer {
    match (0..=LAST_DIRECTION).contains(&direction) {
        true => Ok(()),
        // cudaErrorInvalidMemcpyDirection
        false => Err(Code(21)),
    }
}

/// A byte of the number that the program gives.
fn byte(value: c_int) -> u8 {
    value.cast_unsigned().to_le_bytes()[0]
}

/// Rows of `width` bytes each.
fn plane(to: (CuDevicePtr, usize), from: (CuDevicePtr, usize), width: usize, height: usize) -> CudaMemcpy2d {
    CudaMemcpy2d {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: ANYWHERE,
        srcHost: ptr::null(),
        srcDevice: from.0,
        srcArray: CuArray(ptr::null_mut()),
        srcPitch: from.1,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: ANYWHERE,
        dstHost: ptr::null_mut(),
        dstDevice: to.0,
        dstArray: CuArray(ptr::null_mut()),
        dstPitch: to.1,
        WidthInBytes: width,
        Height: height,
    }
}

/// The part of a variable that a copy of `bytes` at an offset goes to or comes from.
fn part(symbol: *const c_void, bytes: usize, offset: usize) -> Result<CuDevicePtr, Code> {
    let (at, size) = code::variable(symbol)?;
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(at + offset as u64),
        _ => Err(Code::INVALID_VALUE),
    }
}

rows! {
    both inside cuMemcpy: cudaMemcpy(to: CuDevicePtr, from: CuDevicePtr, bytes: usize, direction: c_int) {
        directed(direction)?;
        if bytes == 0 { Ok(()) } else { call!(cuMemcpy(to, from, bytes)) }
    }
    both inside cuMemcpyAsync: cudaMemcpyAsync(
        to: CuDevicePtr, from: CuDevicePtr, bytes: usize, direction: c_int, stream: CuStream,
    ) {
        directed(direction)?;
        if bytes == 0 { Ok(()) } else { call!(cuMemcpyAsync(to, from, bytes, stream)) }
    }
    both inside cuMemcpyAsync_ptsz: cudaMemcpyAsync_ptsz(
        to: CuDevicePtr, from: CuDevicePtr, bytes: usize, direction: c_int, stream: CuStream,
    ) {
        directed(direction)?;
        if bytes == 0 { Ok(()) } else { call!(cuMemcpyAsync_ptsz(to, from, bytes, stream)) }
    }
    both inside cuMemcpy2D_v2: cudaMemcpy2D(
        to: CuDevicePtr, to_pitch: usize, from: CuDevicePtr, from_pitch: usize, width: usize, height: usize,
        direction: c_int,
    ) {
        directed(direction)?;
        call!(cuMemcpy2D_v2(&raw const *&plane((to, to_pitch), (from, from_pitch), width, height)))
    }
    both inside cuMemcpy2DAsync_v2: cudaMemcpy2DAsync(
        to: CuDevicePtr, to_pitch: usize, from: CuDevicePtr, from_pitch: usize, width: usize, height: usize,
        direction: c_int, stream: CuStream,
    ) {
        directed(direction)?;
        call!(cuMemcpy2DAsync_v2(&raw const *&plane((to, to_pitch), (from, from_pitch), width, height), stream))
    }
    both inside cuMemcpyPeer: cudaMemcpyPeer(
        to: CuDevicePtr, to_device: c_int, from: CuDevicePtr, from_device: c_int, bytes: usize,
    ) {
        call!(cuMemcpyPeer(to, device::primary(to_device)?, from, device::primary(from_device)?, bytes))
    }
    both inside cuMemcpyPeerAsync: cudaMemcpyPeerAsync(
        to: CuDevicePtr, to_device: c_int, from: CuDevicePtr, from_device: c_int, bytes: usize, stream: CuStream,
    ) {
        call!(cuMemcpyPeerAsync(to, device::primary(to_device)?, from, device::primary(from_device)?, bytes, stream))
    }
    both inside cuMemcpy: cudaMemcpyToSymbol(
        symbol: *const c_void, from: CuDevicePtr, bytes: usize, offset: usize, direction: c_int,
    ) {
        directed(direction)?;
        call!(cuMemcpy(part(symbol, bytes, offset)?, from, bytes))
    }
    both inside cuMemcpy: cudaMemcpyFromSymbol(
        to: CuDevicePtr, symbol: *const c_void, bytes: usize, offset: usize, direction: c_int,
    ) {
        directed(direction)?;
        call!(cuMemcpy(to, part(symbol, bytes, offset)?, bytes))
    }
    both inside cuMemcpyAsync: cudaMemcpyToSymbolAsync(
        symbol: *const c_void, from: CuDevicePtr, bytes: usize, offset: usize, direction: c_int, stream: CuStream,
    ) {
        directed(direction)?;
        call!(cuMemcpyAsync(part(symbol, bytes, offset)?, from, bytes, stream))
    }
    both inside cuMemsetD8_v2: cudaMemset(at: CuDevicePtr, value: c_int, bytes: usize) {
        call!(cuMemsetD8_v2(at, byte(value), bytes))
    }
    both inside cuMemsetD8Async: cudaMemsetAsync(at: CuDevicePtr, value: c_int, bytes: usize, stream: CuStream) {
        call!(cuMemsetD8Async(at, byte(value), bytes, stream))
    }
    both inside cuMemsetD8Async_ptsz: cudaMemsetAsync_ptsz(
        at: CuDevicePtr, value: c_int, bytes: usize, stream: CuStream,
    ) {
        call!(cuMemsetD8Async_ptsz(at, byte(value), bytes, stream))
    }
    both inside cuMemsetD2D8_v2: cudaMemset2D(
        at: CuDevicePtr, pitch: usize, value: c_int, width: usize, height: usize,
    ) {
        call!(cuMemsetD2D8_v2(at, pitch, byte(value), width, height))
    }
}
