// SPDX-License-Identifier: Apache-2.0
//! Copies of the first ABI, whose addresses and sizes have 32 bits.

use partage_abi::types::*;

use super::copy::*;
use crate::state::code;
use crate::stream::StreamName;

pub fn cuMemcpyHtoD(dst: CuDevicePtrV1, src: *const c_void, bytes: c_uint) -> CuResult {
    cuMemcpyHtoD_v2(u64::from(dst), src, bytes as usize)
}

pub fn cuMemcpyDtoH(dst: *mut c_void, src: CuDevicePtrV1, bytes: c_uint) -> CuResult {
    cuMemcpyDtoH_v2(dst, u64::from(src), bytes as usize)
}

pub fn cuMemcpyDtoD(dst: CuDevicePtrV1, src: CuDevicePtrV1, bytes: c_uint) -> CuResult {
    cuMemcpyDtoD_v2(u64::from(dst), u64::from(src), bytes as usize)
}

pub fn cuMemcpyHtoDAsync(dst: CuDevicePtrV1, src: *const c_void, bytes: c_uint, stream: CuStream) -> CuResult {
    cuMemcpyHtoDAsync_v2(u64::from(dst), src, bytes as usize, stream)
}

pub fn cuMemcpyDtoHAsync(dst: *mut c_void, src: CuDevicePtrV1, bytes: c_uint, stream: CuStream) -> CuResult {
    cuMemcpyDtoHAsync_v2(dst, u64::from(src), bytes as usize, stream)
}

pub fn cuMemcpyDtoDAsync(dst: CuDevicePtrV1, src: CuDevicePtrV1, bytes: c_uint, stream: CuStream) -> CuResult {
    cuMemcpyDtoDAsync_v2(u64::from(dst), u64::from(src), bytes as usize, stream)
}

pub fn cuMemcpy2D(copy: *const CudaMemcpy2dV1) -> CuResult {
    code(read(copy).and_then(|copy| copy_now(StreamName::plain(CuStream::NULL), plane(&widen_plane(&copy))?)))
}

pub fn cuMemcpy2DUnaligned(copy: *const CudaMemcpy2dV1) -> CuResult {
    cuMemcpy2D(copy)
}

pub fn cuMemcpy2DAsync(copy: *const CudaMemcpy2dV1, stream: CuStream) -> CuResult {
    code(read(copy).and_then(|copy| copy_later(StreamName::plain(stream), plane(&widen_plane(&copy))?)))
}

pub fn cuMemcpy3D(copy: *const CudaMemcpy3dV1) -> CuResult {
    code(read(copy).and_then(|copy| copy_now(StreamName::plain(CuStream::NULL), volume(&widen_volume(&copy))?)))
}

pub fn cuMemcpy3DAsync(copy: *const CudaMemcpy3dV1, stream: CuStream) -> CuResult {
    code(read(copy).and_then(|copy| copy_later(StreamName::plain(stream), volume(&widen_volume(&copy))?)))
}

fn widen_plane(copy: &CudaMemcpy2dV1) -> CudaMemcpy2d {
    CudaMemcpy2d {
        srcXInBytes: copy.srcXInBytes as usize,
        srcY: copy.srcY as usize,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: u64::from(copy.srcDevice),
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch as usize,
        dstXInBytes: copy.dstXInBytes as usize,
        dstY: copy.dstY as usize,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: u64::from(copy.dstDevice),
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch as usize,
        WidthInBytes: copy.WidthInBytes as usize,
        Height: copy.Height as usize,
    }
}

fn widen_volume(copy: &CudaMemcpy3dV1) -> CudaMemcpy3d {
    CudaMemcpy3d {
        srcXInBytes: copy.srcXInBytes as usize,
        srcY: copy.srcY as usize,
        srcZ: copy.srcZ as usize,
        srcLOD: copy.srcLOD as usize,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: u64::from(copy.srcDevice),
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch as usize,
        srcHeight: copy.srcHeight as usize,
        dstXInBytes: copy.dstXInBytes as usize,
        dstY: copy.dstY as usize,
        dstZ: copy.dstZ as usize,
        dstLOD: copy.dstLOD as usize,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: u64::from(copy.dstDevice),
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch as usize,
        dstHeight: copy.dstHeight as usize,
        WidthInBytes: copy.WidthInBytes as usize,
        Height: copy.Height as usize,
        Depth: copy.Depth as usize,
        ..CudaMemcpy3d::default()
    }
}
