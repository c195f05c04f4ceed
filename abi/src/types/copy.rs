// SPDX-License-Identifier: Apache-2.0
//! Copies in one to three dimensions.

use super::*;

c_layouts! {
    struct CudaMemcpy2d = "CUDA_MEMCPY2D" {
        srcXInBytes: usize,
        srcY: usize,
        srcMemoryType: c_int,
        srcHost: *const c_void,
        srcDevice: CuDevicePtr,
        srcArray: CuArray,
        srcPitch: usize,
        dstXInBytes: usize,
        dstY: usize,
        dstMemoryType: c_int,
        dstHost: *mut c_void,
        dstDevice: CuDevicePtr,
        dstArray: CuArray,
        dstPitch: usize,
        WidthInBytes: usize,
        Height: usize,
    }
    struct CudaMemcpy3d = "CUDA_MEMCPY3D" {
        srcXInBytes: usize,
        srcY: usize,
        srcZ: usize,
        srcLOD: usize,
        srcMemoryType: c_int,
        srcHost: *const c_void,
        srcDevice: CuDevicePtr,
        srcArray: CuArray,
        reserved0: *mut c_void,
        srcPitch: usize,
        srcHeight: usize,
        dstXInBytes: usize,
        dstY: usize,
        dstZ: usize,
        dstLOD: usize,
        dstMemoryType: c_int,
        dstHost: *mut c_void,
        dstDevice: CuDevicePtr,
        dstArray: CuArray,
        reserved1: *mut c_void,
        dstPitch: usize,
        dstHeight: usize,
        WidthInBytes: usize,
        Height: usize,
        Depth: usize,
    }
    struct CudaMemcpy3dPeer = "CUDA_MEMCPY3D_PEER" {
        srcXInBytes: usize,
        srcY: usize,
        srcZ: usize,
        srcLOD: usize,
        srcMemoryType: c_int,
        srcHost: *const c_void,
        srcDevice: CuDevicePtr,
        srcArray: CuArray,
        srcContext: CuContext,
        srcPitch: usize,
        srcHeight: usize,
        dstXInBytes: usize,
        dstY: usize,
        dstZ: usize,
        dstLOD: usize,
        dstMemoryType: c_int,
        dstHost: *mut c_void,
        dstDevice: CuDevicePtr,
        dstArray: CuArray,
        dstContext: CuContext,
        dstPitch: usize,
        dstHeight: usize,
        WidthInBytes: usize,
        Height: usize,
        Depth: usize,
    }
    struct CuMemcpyAttributes = "CUmemcpyAttributes" {
        srcAccessOrder: c_int,
        srcLocHint: CuMemLocation,
        dstLocHint: CuMemLocation,
        flags: c_uint,
    }
    struct CuMemcpy3DOperandOpPtr = "CUmemcpy3DOperand.op.ptr" {
        ptr: CuDevicePtr,
        rowLength: usize,
        layerHeight: usize,
        locHint: CuMemLocation,
    }
    struct CuOffset3D = "CUoffset3D" {
        x: usize,
        y: usize,
        z: usize,
    }
    struct CuMemcpy3DOperandOpArray = "CUmemcpy3DOperand.op.array" {
        array: CuArray,
        offset: CuOffset3D,
    }
    union CuMemcpy3DOperandOp = "CUmemcpy3DOperand.op" {
        ptr: CuMemcpy3DOperandOpPtr,
        array: CuMemcpy3DOperandOpArray,
    }
    struct CuMemcpy3DOperand = "CUmemcpy3DOperand" {
        kind = "type": c_int,
        op: CuMemcpy3DOperandOp,
    }
    struct CuExtent3D = "CUextent3D" {
        width: usize,
        height: usize,
        depth: usize,
    }
    struct CudaMemcpy3dBatchOp = "CUDA_MEMCPY3D_BATCH_OP" {
        src: CuMemcpy3DOperand,
        dst: CuMemcpy3DOperand,
        extent: CuExtent3D,
        srcAccessOrder: c_int,
        flags: c_uint,
    }
    struct CuMemDecompressParams = "CUmemDecompressParams" {
        srcNumBytes: usize,
        dstNumBytes: usize,
        dstActBytes: *mut u32,
        src: *const c_void,
        dst: *mut c_void,
        algo: c_int,
        padding: [c_uchar; 20],
    }
    struct CudaMemcpy2dV1 = "CUDA_MEMCPY2D_v1" {
        srcXInBytes: c_uint,
        srcY: c_uint,
        srcMemoryType: c_int,
        srcHost: *const c_void,
        srcDevice: CuDevicePtrV1,
        srcArray: CuArray,
        srcPitch: c_uint,
        dstXInBytes: c_uint,
        dstY: c_uint,
        dstMemoryType: c_int,
        dstHost: *mut c_void,
        dstDevice: CuDevicePtrV1,
        dstArray: CuArray,
        dstPitch: c_uint,
        WidthInBytes: c_uint,
        Height: c_uint,
    }
    struct CudaMemcpy3dV1 = "CUDA_MEMCPY3D_v1" {
        srcXInBytes: c_uint,
        srcY: c_uint,
        srcZ: c_uint,
        srcLOD: c_uint,
        srcMemoryType: c_int,
        srcHost: *const c_void,
        srcDevice: CuDevicePtrV1,
        srcArray: CuArray,
        reserved0: *mut c_void,
        srcPitch: c_uint,
        srcHeight: c_uint,
        dstXInBytes: c_uint,
        dstY: c_uint,
        dstZ: c_uint,
        dstLOD: c_uint,
        dstMemoryType: c_int,
        dstHost: *mut c_void,
        dstDevice: CuDevicePtrV1,
        dstArray: CuArray,
        reserved1: *mut c_void,
        dstPitch: c_uint,
        dstHeight: c_uint,
        WidthInBytes: c_uint,
        Height: c_uint,
        Depth: c_uint,
    }
}
