// SPDX-License-Identifier: Apache-2.0
//! Memory sets, and the hints for managed memory that go through streams.

use partage_abi::types::*;

use super::flavours::both_flavours;
use crate::capture;
use crate::context::current;
use crate::executor::op::copy::Location;
use crate::executor::op::{End, Fill, Side};
use crate::executor::{Op, pool};
use crate::graph::Work;
use crate::memory::memory;
use crate::state::{Answer, code, driver};
use crate::stream::StreamName;
use crate::submission::perform;

/// One row of `count` elements of `bytes` bytes.
fn row(address: CuDevicePtr, bytes: u64, value: u32, count: usize) -> Fill {
    Fill {
        address,
        pitch: 0,
        value,
        element: bytes,
        width: count as u64,
        height: 1,
    }
}

fn rows(address: CuDevicePtr, pitch: usize, bytes: u64, value: u32, width: usize, height: usize) -> Fill {
    Fill {
        address,
        pitch: pitch as u64,
        value,
        element: bytes,
        width: width as u64,
        height: height as u64,
    }
}

/// The manual: asynchronous, unless the memory is the host's or managed.
fn fill_now(stream: StreamName, fill: Fill) -> Answer {
    let stream = stream.find()?;
    fill.check()?;
    capture::query_stream(&stream)?;
    capture::unsafe_call()?;
    if fill.width == 0 || fill.height == 0 {
        return Ok(());
    }
    let waits = !matches!(End::linear(Side::Device, fill.address).location()?, Location::Device(_));
    let op = stream.submit(Op::Fill(fill), &[])?;
    if waits {
        pool::wait_for(&[op]);
    }
    stream.context()?.check()
}

fn fill_later(stream: StreamName, fill: Fill) -> Answer {
    let stream = stream.find()?;
    fill.check()?;
    if fill.width == 0 || fill.height == 0 {
        return Ok(());
    }
    perform(&stream, Work::Fill(fill, None))
}

both_flavours! {
    cuMemsetD8_v2 cuMemsetD8_v2_ptds (dst: CuDevicePtr, value: c_uchar, n: usize; default stream) => {
        fill_now(stream, row(dst, 1, u32::from(value), n))
    }
    cuMemsetD16_v2 cuMemsetD16_v2_ptds (dst: CuDevicePtr, value: c_ushort, n: usize; default stream) => {
        fill_now(stream, row(dst, 2, u32::from(value), n))
    }
    cuMemsetD32_v2 cuMemsetD32_v2_ptds (dst: CuDevicePtr, value: c_uint, n: usize; default stream) => {
        fill_now(stream, row(dst, 4, value, n))
    }
    cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds (
        dst: CuDevicePtr, pitch: usize, value: c_uchar, width: usize, height: usize; default stream
    ) => {
        fill_now(stream, rows(dst, pitch, 1, u32::from(value), width, height))
    }
    cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds (
        dst: CuDevicePtr, pitch: usize, value: c_ushort, width: usize, height: usize; default stream
    ) => {
        fill_now(stream, rows(dst, pitch, 2, u32::from(value), width, height))
    }
    cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds (
        dst: CuDevicePtr, pitch: usize, value: c_uint, width: usize, height: usize; default stream
    ) => {
        fill_now(stream, rows(dst, pitch, 4, value, width, height))
    }
    cuMemsetD8Async cuMemsetD8Async_ptsz (dst: CuDevicePtr, value: c_uchar, n: usize, stream: CuStream; stream) => {
        fill_later(stream, row(dst, 1, u32::from(value), n))
    }
    cuMemsetD16Async cuMemsetD16Async_ptsz (
        dst: CuDevicePtr, value: c_ushort, n: usize, stream: CuStream; stream
    ) => {
        fill_later(stream, row(dst, 2, u32::from(value), n))
    }
    cuMemsetD32Async cuMemsetD32Async_ptsz (dst: CuDevicePtr, value: c_uint, n: usize, stream: CuStream; stream) => {
        fill_later(stream, row(dst, 4, value, n))
    }
    cuMemsetD2D8Async cuMemsetD2D8Async_ptsz (
        dst: CuDevicePtr, pitch: usize, value: c_uchar, width: usize, height: usize, stream: CuStream; stream
    ) => {
        fill_later(stream, rows(dst, pitch, 1, u32::from(value), width, height))
    }
    cuMemsetD2D16Async cuMemsetD2D16Async_ptsz (
        dst: CuDevicePtr, pitch: usize, value: c_ushort, width: usize, height: usize, stream: CuStream; stream
    ) => {
        fill_later(stream, rows(dst, pitch, 2, u32::from(value), width, height))
    }
    cuMemsetD2D32Async cuMemsetD2D32Async_ptsz (
        dst: CuDevicePtr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CuStream; stream
    ) => {
        fill_later(stream, rows(dst, pitch, 4, value, width, height))
    }
}

// ---- the first ABI, with 32 bits ------------------------------------------------------------------------------

pub fn cuMemsetD8(dst: CuDevicePtrV1, value: c_uchar, n: c_uint) -> CuResult {
    cuMemsetD8_v2(u64::from(dst), value, n as usize)
}

pub fn cuMemsetD16(dst: CuDevicePtrV1, value: c_ushort, n: c_uint) -> CuResult {
    cuMemsetD16_v2(u64::from(dst), value, n as usize)
}

pub fn cuMemsetD32(dst: CuDevicePtrV1, value: c_uint, n: c_uint) -> CuResult {
    cuMemsetD32_v2(u64::from(dst), value, n as usize)
}

pub fn cuMemsetD2D8(dst: CuDevicePtrV1, pitch: c_uint, value: c_uchar, width: c_uint, height: c_uint) -> CuResult {
    cuMemsetD2D8_v2(u64::from(dst), pitch as usize, value, width as usize, height as usize)
}

pub fn cuMemsetD2D16(dst: CuDevicePtrV1, pitch: c_uint, value: c_ushort, width: c_uint, height: c_uint) -> CuResult {
    cuMemsetD2D16_v2(u64::from(dst), pitch as usize, value, width as usize, height as usize)
}

pub fn cuMemsetD2D32(dst: CuDevicePtrV1, pitch: c_uint, value: c_uint, width: c_uint, height: c_uint) -> CuResult {
    cuMemsetD2D32_v2(u64::from(dst), pitch as usize, value, width as usize, height as usize)
}

// ---- hints for managed memory ---------------------------------------------------------------------------------

both_flavours! {
    cuMemPrefetchAsync cuMemPrefetchAsync_ptsz (
        address: CuDevicePtr, count: usize, device: CuDevice, stream: CuStream; stream
    ) => {
        check_place(DEVICE, device)?;
        prefetch(stream, address, count)
    }
    cuMemPrefetchAsync_v2 cuMemPrefetchAsync_v2_ptsz (
        address: CuDevicePtr, count: usize, location: CuMemLocation, flags: c_uint, stream: CuStream; stream
    ) => {
        check_place(location.kind, location.id)?;
        if flags != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        prefetch(stream, address, count)
    }
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`; 2 to 4 are places of the host.
const DEVICE: i32 = 1;
/// `CU_DEVICE_CPU`.
const CPU: CuDevice = -1;

fn check_place(kind: i32, id: CuDevice) -> Answer {
    match kind {
        DEVICE if id == CPU => Ok(()),
        DEVICE => driver()?.device(id).map(drop),
        2..=4 => Ok(()),
        _ => Err(CuResult::INVALID_VALUE),
    }
}

fn check_managed(address: CuDevicePtr, count: usize) -> Answer {
    let memory = memory()?;
    let is_managed = memory.find(address).is_some_and(|found| found.is_managed());
    if count == 0 || !is_managed {
        return Err(CuResult::INVALID_VALUE);
    }
    memory.resolve(address, count as u64).map(drop)
}

/// Managed memory is where everybody reaches it; the hint only has its place in the stream's order.
fn prefetch(stream: StreamName, address: CuDevicePtr, count: usize) -> Answer {
    let stream = stream.find()?;
    check_managed(address, count)?;
    perform(&stream, Work::Empty)
}

pub fn cuMemAdvise(address: CuDevicePtr, count: usize, advice: c_int, device: CuDevice) -> CuResult {
    code(advise(address, count, advice, DEVICE, device))
}

pub fn cuMemAdvise_v2(address: CuDevicePtr, count: usize, advice: c_int, location: CuMemLocation) -> CuResult {
    code(advise(address, count, advice, location.kind, location.id))
}

fn advise(address: CuDevicePtr, count: usize, advice: c_int, kind: i32, id: CuDevice) -> Answer {
    current()?;
    // Advice 1 and 2 (read mostly) name no place.
    if !matches!(advice, 1..=6) {
        return Err(CuResult::INVALID_VALUE);
    }
    if advice > 2 {
        check_place(kind, id)?;
    }
    check_managed(address, count)
}
