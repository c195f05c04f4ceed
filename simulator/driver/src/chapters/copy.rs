// SPDX-License-Identifier: Apache-2.0
//! Copies in one to three dimensions, of linear memory and of arrays.
//!
//! When a call returns (manual, "API synchronization behavior"): a copy between host and device returns when it is
//! done, one inside devices at once. An asynchronous copy from pageable memory returns when the content has been
//! taken, one to pageable memory when it is done. A box of an array is copied as it lies there; where a format has
//! blocks, x and y count them. An array of several planes is copied plane by plane (`cuArrayGetPlane`); a copy that
//! names the whole is answered NOT_SUPPORTED.

use std::sync::Arc;

use partage_abi::types::*;

mod volume;

use super::flavours::both_flavours;
use crate::capture;
use crate::context::Context;
use crate::executor::op::copy::Location;
use crate::executor::op::{Copy, End, Side};
use crate::executor::{Op, pool};
use crate::graph::Work;
use crate::state::{Answer, driver, store};
use crate::stream::{Stream, StreamName};

pub(super) use volume::{describe, plane, read, volume};
use volume::{operands, peer_volume};

/// Up to this much is taken from pageable memory at once; the driver's staging buffers hold about as much.
const STAGED_BYTES: u64 = 64 << 10;

// ---- one dimension --------------------------------------------------------------------------------------------

fn linear(to: (Side, u64), from: (Side, u64), bytes: usize) -> Copy {
    Copy::linear(End::linear(to.0, to.1), End::linear(from.0, from.1), bytes as u64)
}

fn upload(to: CuDevicePtr, from: *const c_void, bytes: usize) -> Copy {
    linear((Side::Device, to), (Side::Host, from as u64), bytes)
}

fn download(to: *mut c_void, from: CuDevicePtr, bytes: usize) -> Copy {
    linear((Side::Host, to as u64), (Side::Device, from), bytes)
}

fn inside(to: CuDevicePtr, from: CuDevicePtr, bytes: usize) -> Copy {
    linear((Side::Device, to), (Side::Device, from), bytes)
}

fn unified(to: CuDevicePtr, from: CuDevicePtr, bytes: usize) -> Copy {
    linear((Side::Unified, to), (Side::Unified, from), bytes)
}

fn peer(
    to: CuDevicePtr,
    to_context: CuContext,
    from: CuDevicePtr,
    from_context: CuContext,
    bytes: usize,
) -> Answer<Copy> {
    driver()?;
    Context::find(to_context)?;
    Context::find(from_context)?;
    Ok(inside(to, from, bytes))
}

both_flavours! {
    cuMemcpy cuMemcpy_ptds (dst: CuDevicePtr, src: CuDevicePtr, bytes: usize; default stream) => {
        copy_now(stream, unified(dst, src, bytes))
    }
    cuMemcpyHtoD_v2 cuMemcpyHtoD_v2_ptds (dst: CuDevicePtr, src: *const c_void, bytes: usize; default stream) => {
        copy_now(stream, upload(dst, src, bytes))
    }
    cuMemcpyDtoH_v2 cuMemcpyDtoH_v2_ptds (dst: *mut c_void, src: CuDevicePtr, bytes: usize; default stream) => {
        copy_now(stream, download(dst, src, bytes))
    }
    cuMemcpyDtoD_v2 cuMemcpyDtoD_v2_ptds (dst: CuDevicePtr, src: CuDevicePtr, bytes: usize; default stream) => {
        copy_now(stream, inside(dst, src, bytes))
    }
    cuMemcpyPeer cuMemcpyPeer_ptds (
        dst: CuDevicePtr, dst_context: CuContext, src: CuDevicePtr, src_context: CuContext, bytes: usize;
        default stream
    ) => {
        copy_now(stream, peer(dst, dst_context, src, src_context, bytes)?)
    }
    cuMemcpyAsync cuMemcpyAsync_ptsz (dst: CuDevicePtr, src: CuDevicePtr, bytes: usize, stream: CuStream; stream) => {
        copy_later(stream, unified(dst, src, bytes))
    }
    cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2_ptsz (
        dst: CuDevicePtr, src: *const c_void, bytes: usize, stream: CuStream; stream
    ) => {
        copy_later(stream, upload(dst, src, bytes))
    }
    cuMemcpyDtoHAsync_v2 cuMemcpyDtoHAsync_v2_ptsz (
        dst: *mut c_void, src: CuDevicePtr, bytes: usize, stream: CuStream; stream
    ) => {
        copy_later(stream, download(dst, src, bytes))
    }
    cuMemcpyDtoDAsync_v2 cuMemcpyDtoDAsync_v2_ptsz (
        dst: CuDevicePtr, src: CuDevicePtr, bytes: usize, stream: CuStream; stream
    ) => {
        copy_later(stream, inside(dst, src, bytes))
    }
    cuMemcpyPeerAsync cuMemcpyPeerAsync_ptsz (
        dst: CuDevicePtr, dst_context: CuContext, src: CuDevicePtr, src_context: CuContext, bytes: usize,
        stream: CuStream; stream
    ) => {
        copy_later(stream, peer(dst, dst_context, src, src_context, bytes)?)
    }
    cuMemcpyWithAttributesAsync cuMemcpyWithAttributesAsync_ptsz (
        dst: CuDevicePtr, src: CuDevicePtr, bytes: usize, attributes: *mut CuMemcpyAttributes, stream: CuStream; stream
    ) => {
        if attributes.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        copy_later(stream, unified(dst, src, bytes))
    }
    cuMemcpyBatchAsync cuMemcpyBatchAsync_ptsz (
        dsts: *mut CuDevicePtr, srcs: *mut CuDevicePtr, sizes: *mut usize, count: usize,
        _attributes: *mut CuMemcpyAttributes, _places: *mut usize, attribute_count: usize, fail_index: *mut usize,
        stream: CuStream; stream
    ) => {
        batch(stream, dsts, srcs, sizes, count, attribute_count, fail_index)
    }
    cuMemcpyBatchAsync_v2 cuMemcpyBatchAsync_v2_ptsz (
        dsts: *mut CuDevicePtr, srcs: *mut CuDevicePtr, sizes: *mut usize, count: usize,
        _attributes: *mut CuMemcpyAttributes, _places: *mut usize, attribute_count: usize, stream: CuStream; stream
    ) => {
        batch(stream, dsts, srcs, sizes, count, attribute_count, std::ptr::null_mut())
    }
}

fn batch(
    stream: StreamName,
    dsts: *const CuDevicePtr,
    srcs: *const CuDevicePtr,
    sizes: *const usize,
    count: usize,
    attribute_count: usize,
    fail_index: *mut usize,
) -> Answer {
    let is_missing = dsts.is_null() || srcs.is_null() || sizes.is_null();
    if is_missing || count == 0 || attribute_count == 0 || attribute_count > count {
        return Err(CuResult::INVALID_VALUE);
    }
    if !fail_index.is_null() {
        store(fail_index, usize::MAX)?;
    }
    for index in 0..count {
        // SAFETY: not null, and by the entry point's contract arrays of `count` entries.
        let (to, from, bytes) = unsafe { (*dsts.add(index), *srcs.add(index), *sizes.add(index)) };
        if let Err(code) = copy_later(stream, unified(to, from, bytes)) {
            if !fail_index.is_null() {
                store(fail_index, index)?;
            }
            return Err(code);
        }
    }
    Ok(())
}

// ---- two and three dimensions ---------------------------------------------------------------------------------

both_flavours! {
    cuMemcpy2D_v2 cuMemcpy2D_v2_ptds (copy: *const CudaMemcpy2d; default stream) => {
        copy_now(stream, plane(copy)?)
    }
    cuMemcpy2DUnaligned_v2 cuMemcpy2DUnaligned_v2_ptds (copy: *const CudaMemcpy2d; default stream) => {
        copy_now(stream, plane(copy)?)
    }
    cuMemcpy3D_v2 cuMemcpy3D_v2_ptds (copy: *const CudaMemcpy3d; default stream) => {
        copy_now(stream, volume(&read(copy)?)?)
    }
    cuMemcpy3DPeer cuMemcpy3DPeer_ptds (copy: *const CudaMemcpy3dPeer; default stream) => {
        copy_now(stream, peer_volume(copy)?)
    }
    cuMemcpy2DAsync_v2 cuMemcpy2DAsync_v2_ptsz (copy: *const CudaMemcpy2d, stream: CuStream; stream) => {
        copy_later(stream, plane(copy)?)
    }
    cuMemcpy3DAsync_v2 cuMemcpy3DAsync_v2_ptsz (copy: *const CudaMemcpy3d, stream: CuStream; stream) => {
        copy_later(stream, volume(&read(copy)?)?)
    }
    cuMemcpy3DPeerAsync cuMemcpy3DPeerAsync_ptsz (copy: *const CudaMemcpy3dPeer, stream: CuStream; stream) => {
        copy_later(stream, peer_volume(copy)?)
    }
    cuMemcpy3DWithAttributesAsync cuMemcpy3DWithAttributesAsync_ptsz (
        op: *mut CudaMemcpy3dBatchOp, flags: c_ulonglong, stream: CuStream; stream
    ) => {
        if flags != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        copy_later(stream, operands(&read(op)?)?)
    }
    cuMemcpy3DBatchAsync cuMemcpy3DBatchAsync_ptsz (
        count: usize, list: *mut CudaMemcpy3dBatchOp, fail_index: *mut usize, flags: c_ulonglong, stream: CuStream;
        stream
    ) => {
        volume_batch(stream, count, list, fail_index, flags)
    }
    cuMemcpy3DBatchAsync_v2 cuMemcpy3DBatchAsync_v2_ptsz (
        count: usize, list: *mut CudaMemcpy3dBatchOp, flags: c_ulonglong, stream: CuStream; stream
    ) => {
        volume_batch(stream, count, list, std::ptr::null_mut(), flags)
    }
}

fn volume_batch(
    stream: StreamName,
    count: usize,
    list: *const CudaMemcpy3dBatchOp,
    fail_index: *mut usize,
    flags: u64,
) -> Answer {
    if list.is_null() || count == 0 || flags != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    if !fail_index.is_null() {
        store(fail_index, usize::MAX)?;
    }
    for index in 0..count {
        // SAFETY: not null, and by the entry point's contract an array of `count` entries.
        let op = unsafe { &*list.add(index) };
        if let Err(code) = operands(op).and_then(|copy| copy_later(stream, copy)) {
            if !fail_index.is_null() {
                store(fail_index, index)?;
            }
            return Err(code);
        }
    }
    Ok(())
}

// ---- the way to the stream ------------------------------------------------------------------------------------

/// Whether the program must find the copy done when the call returns.
fn involves_host(copy: &Copy) -> Answer<bool> {
    let is_host = |end: &End| Ok(!matches!(end.location()?, Location::Device(_)));
    let is_asked = copy.from.wants_synchronous()? || copy.to.wants_synchronous()?;
    Ok(is_asked || is_host(&copy.from)? || is_host(&copy.to)?)
}

pub(super) fn copy_now(stream: StreamName, copy: Copy) -> Answer {
    let stream = stream.find()?;
    copy.check()?;
    // A call that waits cannot be part of a capture, nor run beside one that its stream would wait for.
    capture::query_stream(&stream)?;
    capture::unsafe_call()?;
    if copy.is_empty() {
        return Ok(());
    }
    let waits = involves_host(&copy)?;
    let op = stream.submit(Op::Copy(Box::new(copy)), &[])?;
    if waits {
        pool::wait_for(&[op]);
    }
    stream.context()?.check()
}

pub(super) fn copy_later(stream: StreamName, copy: Copy) -> Answer {
    let stream = stream.find()?;
    copy.check()?;
    if copy.is_empty() {
        return Ok(());
    }
    match capture::take(&stream, Work::Copy(Box::new(copy), None))? {
        Some(Work::Copy(copy, _)) => submit_copy(&stream, copy),
        _ => Ok(()),
    }
}

fn submit_copy(stream: &Arc<Stream>, mut copy: Box<Copy>) -> Answer {
    let is_pageable = |end: &End| Ok(end.location()? == Location::Pageable);
    let (from, to) = (is_pageable(&copy.from)?, is_pageable(&copy.to)?);
    let is_staged = from && !to && copy.bytes() <= STAGED_BYTES;
    if is_staged {
        copy.stage()?;
    }
    let is_asked = copy.from.wants_synchronous()? || copy.to.wants_synchronous()?;
    let op = stream.submit(Op::Copy(copy), &[])?;
    if to || is_asked || from && !is_staged {
        pool::wait_for(&[op]);
    }
    stream.context()?.check()
}
