// SPDX-License-Identifier: Apache-2.0
//! Arguments of the checkpoint API.

use super::*;

c_layouts! {
    struct CuCheckpointLockArgs = "CUcheckpointLockArgs" {
        timeoutMs: c_uint,
        reserved0: c_uint,
        reserved1: [u64; 7],
    }
    struct CuCheckpointCustomStoragePerDeviceData = "CUcheckpointCustomStoragePerDeviceData" {
        devPtr: CuDevicePtr,
        size: usize,
        stream: CuStream,
    }
    struct CuCheckpointCustomStorageInfo = "CUcheckpointCustomStorageInfo" {
        handle: CuCheckpointOperationHandle,
        perDeviceData: *mut CuCheckpointCustomStoragePerDeviceData,
        deviceCount: c_uint,
    }
    struct CuCheckpointCheckpointArgs = "CUcheckpointCheckpointArgs" {
        customStorageInfo_out: *mut *mut CuCheckpointCustomStorageInfo,
        reserved: [c_char; 56],
    }
    struct CuCheckpointGpuPair = "CUcheckpointGpuPair" {
        oldUuid: CuUuid,
        newUuid: CuUuid,
    }
    struct CuCheckpointRestoreArgs = "CUcheckpointRestoreArgs" {
        gpuPairs: *mut CuCheckpointGpuPair,
        gpuPairsCount: c_uint,
        padding0: c_uint,
        customStorageInfo_out: *mut *mut CuCheckpointCustomStorageInfo,
        reserved: [c_char; 40],
    }
    struct CuCheckpointUnlockArgs = "CUcheckpointUnlockArgs" {
        reserved: [u64; 8],
    }
}
