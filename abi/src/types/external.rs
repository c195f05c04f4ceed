// SPDX-License-Identifier: Apache-2.0
//! External memory and semaphores.

use super::*;

c_layouts! {
    struct CudaExternalSemaphoreSignalParamsParamsFence = "CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS.params.fence" {
        value: c_ulonglong,
    }
    union CudaExternalSemaphoreSignalParamsParamsNvSciSync = "CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS.params.nvSciSync" {
        fence: *mut c_void,
        reserved: c_ulonglong,
    }
    struct CudaExternalSemaphoreSignalParamsParamsKeyedMutex =
        "CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS.params.keyedMutex" {
        key: c_ulonglong,
    }
    struct CudaExternalSemaphoreSignalParamsParams = "CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS.params" {
        fence: CudaExternalSemaphoreSignalParamsParamsFence,
        nvSciSync: CudaExternalSemaphoreSignalParamsParamsNvSciSync,
        keyedMutex: CudaExternalSemaphoreSignalParamsParamsKeyedMutex,
        reserved: [c_uint; 12],
    }
    struct CudaExternalSemaphoreSignalParams = "CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS" {
        params: CudaExternalSemaphoreSignalParamsParams,
        flags: c_uint,
        reserved: [c_uint; 16],
    }
    struct CudaExtSemSignalNodeParamsV2 = "CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2" {
        extSemArray: *mut CuExternalSemaphore,
        paramsArray: *const CudaExternalSemaphoreSignalParams,
        numExtSems: c_uint,
        ctx: CuContext,
    }
    struct CudaExternalSemaphoreWaitParamsParamsFence = "CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS.params.fence" {
        value: c_ulonglong,
    }
    union CudaExternalSemaphoreWaitParamsParamsNvSciSync = "CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS.params.nvSciSync" {
        fence: *mut c_void,
        reserved: c_ulonglong,
    }
    struct CudaExternalSemaphoreWaitParamsParamsKeyedMutex = "CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS.params.keyedMutex" {
        key: c_ulonglong,
        timeoutMs: c_uint,
    }
    struct CudaExternalSemaphoreWaitParamsParams = "CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS.params" {
        fence: CudaExternalSemaphoreWaitParamsParamsFence,
        nvSciSync: CudaExternalSemaphoreWaitParamsParamsNvSciSync,
        keyedMutex: CudaExternalSemaphoreWaitParamsParamsKeyedMutex,
        reserved: [c_uint; 10],
    }
    struct CudaExternalSemaphoreWaitParams = "CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS" {
        params: CudaExternalSemaphoreWaitParamsParams,
        flags: c_uint,
        reserved: [c_uint; 16],
    }
    struct CudaExtSemWaitNodeParamsV2 = "CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2" {
        extSemArray: *mut CuExternalSemaphore,
        paramsArray: *const CudaExternalSemaphoreWaitParams,
        numExtSems: c_uint,
        ctx: CuContext,
    }
    struct CudaExternalMemoryHandleDescHandleWin32 = "CUDA_EXTERNAL_MEMORY_HANDLE_DESC.handle.win32" {
        handle: *mut c_void,
        name: *const c_void,
    }
    union CudaExternalMemoryHandleDescHandle = "CUDA_EXTERNAL_MEMORY_HANDLE_DESC.handle" {
        fd: c_int,
        win32: CudaExternalMemoryHandleDescHandleWin32,
        nvSciBufObject: *const c_void,
    }
    struct CudaExternalMemoryHandleDesc = "CUDA_EXTERNAL_MEMORY_HANDLE_DESC" {
        kind = "type": c_int,
        handle: CudaExternalMemoryHandleDescHandle,
        size: c_ulonglong,
        flags: c_uint,
        reserved: [c_uint; 16],
    }
    struct CudaExternalMemoryBufferDesc = "CUDA_EXTERNAL_MEMORY_BUFFER_DESC" {
        offset: c_ulonglong,
        size: c_ulonglong,
        flags: c_uint,
        reserved: [c_uint; 16],
    }
    struct CudaExternalMemoryMipmappedArrayDesc = "CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC" {
        offset: c_ulonglong,
        arrayDesc: CudaArray3dDescriptor,
        numLevels: c_uint,
        reserved: [c_uint; 16],
    }
    struct CudaExternalSemaphoreHandleDescHandleWin32 = "CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC.handle.win32" {
        handle: *mut c_void,
        name: *const c_void,
    }
    union CudaExternalSemaphoreHandleDescHandle = "CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC.handle" {
        fd: c_int,
        win32: CudaExternalSemaphoreHandleDescHandleWin32,
        nvSciSyncObj: *const c_void,
    }
    struct CudaExternalSemaphoreHandleDesc = "CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC" {
        kind = "type": c_int,
        handle: CudaExternalSemaphoreHandleDescHandle,
        flags: c_uint,
        reserved: [c_uint; 16],
    }
    struct CudaExtSemSignalNodeParams = "CUDA_EXT_SEM_SIGNAL_NODE_PARAMS" {
        extSemArray: *mut CuExternalSemaphore,
        paramsArray: *const CudaExternalSemaphoreSignalParams,
        numExtSems: c_uint,
    }
    struct CudaExtSemWaitNodeParams = "CUDA_EXT_SEM_WAIT_NODE_PARAMS" {
        extSemArray: *mut CuExternalSemaphore,
        paramsArray: *const CudaExternalSemaphoreWaitParams,
        numExtSems: c_uint,
    }
}
