// SPDX-License-Identifier: Apache-2.0
//! Copies of one row of an array, as a number of bytes from an offset on.
//!
//! The manual has them for arrays of one dimension. Of others they reach the first row of the first plane.

use partage_abi::types::*;

use super::copy::{copy_later, copy_now};
use super::flavours::both_flavours;
use crate::context::current;
use crate::executor::op::{Copy, End, Side};
use crate::state::Answer;

/// A part of an array.
#[derive(Clone, Copy)]
struct Part {
    array: CuArray,
    offset: usize,
}

fn part(array: CuArray, offset: usize) -> Part {
    Part { array, offset }
}

impl Part {
    fn end(self, bytes: usize) -> Answer<End> {
        current()?;
        End::in_array(self.array, [self.offset as u64, 0, 0], [bytes as u64, 1, 1])
    }
}

fn upload(to: Part, from: *const c_void, bytes: usize) -> Answer<Copy> {
    Ok(Copy::linear(
        to.end(bytes)?,
        End::linear(Side::Host, from as u64),
        bytes as u64,
    ))
}

fn download(to: *mut c_void, from: Part, bytes: usize) -> Answer<Copy> {
    Ok(Copy::linear(
        End::linear(Side::Host, to as u64),
        from.end(bytes)?,
        bytes as u64,
    ))
}

fn into_array(to: Part, from: CuDevicePtr, bytes: usize) -> Answer<Copy> {
    Ok(Copy::linear(
        to.end(bytes)?,
        End::linear(Side::Device, from),
        bytes as u64,
    ))
}

fn out_of_array(to: CuDevicePtr, from: Part, bytes: usize) -> Answer<Copy> {
    Ok(Copy::linear(
        End::linear(Side::Device, to),
        from.end(bytes)?,
        bytes as u64,
    ))
}

fn inside(to: Part, from: Part, bytes: usize) -> Answer<Copy> {
    Ok(Copy::linear(to.end(bytes)?, from.end(bytes)?, bytes as u64))
}

both_flavours! {
    cuMemcpyHtoA_v2 cuMemcpyHtoA_v2_ptds (
        dst: CuArray, offset: usize, src: *const c_void, bytes: usize; default stream
    ) => {
        copy_now(stream, upload(part(dst, offset), src, bytes)?)
    }
    cuMemcpyAtoH_v2 cuMemcpyAtoH_v2_ptds (
        dst: *mut c_void, src: CuArray, offset: usize, bytes: usize; default stream
    ) => {
        copy_now(stream, download(dst, part(src, offset), bytes)?)
    }
    cuMemcpyDtoA_v2 cuMemcpyDtoA_v2_ptds (
        dst: CuArray, offset: usize, src: CuDevicePtr, bytes: usize; default stream
    ) => {
        copy_now(stream, into_array(part(dst, offset), src, bytes)?)
    }
    cuMemcpyAtoD_v2 cuMemcpyAtoD_v2_ptds (
        dst: CuDevicePtr, src: CuArray, offset: usize, bytes: usize; default stream
    ) => {
        copy_now(stream, out_of_array(dst, part(src, offset), bytes)?)
    }
    cuMemcpyAtoA_v2 cuMemcpyAtoA_v2_ptds (
        dst: CuArray, dst_offset: usize, src: CuArray, src_offset: usize, bytes: usize; default stream
    ) => {
        copy_now(stream, inside(part(dst, dst_offset), part(src, src_offset), bytes)?)
    }
    cuMemcpyHtoAAsync_v2 cuMemcpyHtoAAsync_v2_ptsz (
        dst: CuArray, offset: usize, src: *const c_void, bytes: usize, stream: CuStream; stream
    ) => {
        copy_later(stream, upload(part(dst, offset), src, bytes)?)
    }
    cuMemcpyAtoHAsync_v2 cuMemcpyAtoHAsync_v2_ptsz (
        dst: *mut c_void, src: CuArray, offset: usize, bytes: usize, stream: CuStream; stream
    ) => {
        copy_later(stream, download(dst, part(src, offset), bytes)?)
    }
}

// ---- the first ABI, with 32 bits ------------------------------------------------------------------------------

pub fn cuMemcpyHtoA(dst: CuArray, offset: c_uint, src: *const c_void, bytes: c_uint) -> CuResult {
    cuMemcpyHtoA_v2(dst, offset as usize, src, bytes as usize)
}

pub fn cuMemcpyAtoH(dst: *mut c_void, src: CuArray, offset: c_uint, bytes: c_uint) -> CuResult {
    cuMemcpyAtoH_v2(dst, src, offset as usize, bytes as usize)
}

pub fn cuMemcpyDtoA(dst: CuArray, offset: c_uint, src: CuDevicePtrV1, bytes: c_uint) -> CuResult {
    cuMemcpyDtoA_v2(dst, offset as usize, u64::from(src), bytes as usize)
}

pub fn cuMemcpyAtoD(dst: CuDevicePtrV1, src: CuArray, offset: c_uint, bytes: c_uint) -> CuResult {
    cuMemcpyAtoD_v2(u64::from(dst), src, offset as usize, bytes as usize)
}

pub fn cuMemcpyAtoA(dst: CuArray, dst_offset: c_uint, src: CuArray, src_offset: c_uint, bytes: c_uint) -> CuResult {
    cuMemcpyAtoA_v2(dst, dst_offset as usize, src, src_offset as usize, bytes as usize)
}

pub fn cuMemcpyHtoAAsync(
    dst: CuArray,
    offset: c_uint,
    src: *const c_void,
    bytes: c_uint,
    stream: CuStream,
) -> CuResult {
    cuMemcpyHtoAAsync_v2(dst, offset as usize, src, bytes as usize, stream)
}

pub fn cuMemcpyAtoHAsync(dst: *mut c_void, src: CuArray, offset: c_uint, bytes: c_uint, stream: CuStream) -> CuResult {
    cuMemcpyAtoHAsync_v2(dst, src, offset as usize, bytes as usize, stream)
}
