// SPDX-License-Identifier: Apache-2.0
//! Stream memory operations.

use super::*;

c_layouts! {
    struct CuStreamCigParam = "CUstreamCigParam" {
        streamSharedDataType: c_int,
        streamSharedData: *mut c_void,
    }
    struct CuStreamCigCaptureParams = "CUstreamCigCaptureParams" {
        streamCigParams: *mut CuStreamCigParam,
    }
    union CuStreamBatchMemOpParamsWaitValueValue = "" {
        value: u32,
        value64: u64,
    }
    struct CuStreamBatchMemOpParamsWaitValue = "CUstreamBatchMemOpParams.waitValue" {
        operation: c_int,
        address: CuDevicePtr,
        value: CuStreamBatchMemOpParamsWaitValueValue,
        flags: c_uint,
        alias: CuDevicePtr,
    }
    union CuStreamBatchMemOpParamsWriteValueValue = "" {
        value: u32,
        value64: u64,
    }
    struct CuStreamBatchMemOpParamsWriteValue = "CUstreamBatchMemOpParams.writeValue" {
        operation: c_int,
        address: CuDevicePtr,
        value: CuStreamBatchMemOpParamsWriteValueValue,
        flags: c_uint,
        alias: CuDevicePtr,
    }
    struct CuStreamBatchMemOpParamsFlushRemoteWrites = "CUstreamBatchMemOpParams.flushRemoteWrites" {
        operation: c_int,
        flags: c_uint,
    }
    struct CuStreamBatchMemOpParamsMemoryBarrier = "CUstreamBatchMemOpParams.memoryBarrier" {
        operation: c_int,
        flags: c_uint,
    }
    struct CuStreamBatchMemOpParamsAtomicReduction = "CUstreamBatchMemOpParams.atomicReduction" {
        operation: c_int,
        flags: c_uint,
        reductionOp: c_int,
        dataType: c_int,
        address: CuDevicePtr,
        value: u64,
        alias: CuDevicePtr,
    }
    union CuStreamBatchMemOpParams = "CUstreamBatchMemOpParams" {
        operation: c_int,
        waitValue: CuStreamBatchMemOpParamsWaitValue,
        writeValue: CuStreamBatchMemOpParamsWriteValue,
        flushRemoteWrites: CuStreamBatchMemOpParamsFlushRemoteWrites,
        memoryBarrier: CuStreamBatchMemOpParamsMemoryBarrier,
        atomicReduction: CuStreamBatchMemOpParamsAtomicReduction,
        pad: [u64; 6],
    }
}
