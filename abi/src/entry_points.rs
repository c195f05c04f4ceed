// SPDX-License-Identifier: Apache-2.0
//! What `cuGetProcAddress` knows: name, first CUDA version and stream flavour, and the exported symbol they mean.
//!
//! Read from the `*Typedefs.h` headers of CUDA 13.5 (a test compares). A request names a function and the version a
//! program was built for; the answer is the newest entry that is not newer than that. Where a per-thread flavour is
//! asked and the function has none, the plain one is meant.

use crate::driver::Symbol;

/// One entry: from `version` on, `name` means `symbol`.
#[derive(Clone, Copy, Debug)]
pub struct EntryPoint {
    /// The name that a program asks for: no version, no flavour.
    pub name: &'static str,
    /// First CUDA version with this ABI, as `1000 * major + 10 * minor`.
    pub version: u32,
    /// True when the default stream of the function is the thread's own.
    pub per_thread: bool,
    /// The exported function.
    pub symbol: Symbol,
}

macro_rules! proc_address {
    ($( $name:literal: $( $version:literal $symbol:ident $($per_thread:ident)? ),+; )*) => {
        /// Entries of one name stand together, plain before per-thread, versions ascending.
        pub const PROC_ADDRESS: &[EntryPoint] = &[ $( $( EntryPoint {
            name: $name,
            version: $version,
            per_thread: proc_address!(@flavour $($per_thread)?),
            symbol: Symbol::$symbol,
        }, )+ )* ];
    };
    (@flavour) => { false };
    (@flavour per_thread) => { true };
}

proc_address! {
    "cuGetErrorString": 6000 cuGetErrorString;
    "cuGetErrorName": 6000 cuGetErrorName;
    "cuInit": 2000 cuInit;
    "cuDriverGetVersion": 2020 cuDriverGetVersion;
    "cuDeviceGet": 2000 cuDeviceGet;
    "cuDeviceGetCount": 2000 cuDeviceGetCount;
    "cuDeviceGetName": 2000 cuDeviceGetName;
    "cuDeviceGetUuid": 9020 cuDeviceGetUuid, 11040 cuDeviceGetUuid_v2;
    "cuDeviceGetLuid": 10000 cuDeviceGetLuid;
    "cuDeviceTotalMem": 2000 cuDeviceTotalMem, 3020 cuDeviceTotalMem_v2;
    "cuDeviceGetTexture1DLinearMaxWidth": 11010 cuDeviceGetTexture1DLinearMaxWidth;
    "cuDeviceGetAttribute": 2000 cuDeviceGetAttribute;
    "cuDeviceGetHostAtomicCapabilities": 13000 cuDeviceGetHostAtomicCapabilities;
    "cuDeviceGetNvSciSyncAttributes": 10020 cuDeviceGetNvSciSyncAttributes;
    "cuDeviceSetMemPool": 11020 cuDeviceSetMemPool;
    "cuDeviceGetMemPool": 11020 cuDeviceGetMemPool;
    "cuDeviceGetDefaultMemPool": 11020 cuDeviceGetDefaultMemPool;
    "cuDeviceGetProperties": 2000 cuDeviceGetProperties;
    "cuDeviceComputeCapability": 2000 cuDeviceComputeCapability;
    "cuDevicePrimaryCtxRetain": 7000 cuDevicePrimaryCtxRetain;
    "cuDevicePrimaryCtxRelease": 7000 cuDevicePrimaryCtxRelease, 11000 cuDevicePrimaryCtxRelease_v2;
    "cuDevicePrimaryCtxSetFlags": 7000 cuDevicePrimaryCtxSetFlags, 11000 cuDevicePrimaryCtxSetFlags_v2;
    "cuDevicePrimaryCtxGetState": 7000 cuDevicePrimaryCtxGetState;
    "cuDevicePrimaryCtxReset": 7000 cuDevicePrimaryCtxReset, 11000 cuDevicePrimaryCtxReset_v2;
    "cuDeviceGetExecAffinitySupport": 11040 cuDeviceGetExecAffinitySupport;
    "cuCtxCreate": 2000 cuCtxCreate, 3020 cuCtxCreate_v2, 11040 cuCtxCreate_v3, 12050 cuCtxCreate_v4;
    "cuCtxGetId": 12000 cuCtxGetId;
    "cuCtxDestroy": 2000 cuCtxDestroy, 4000 cuCtxDestroy_v2;
    "cuCtxPushCurrent": 2000 cuCtxPushCurrent, 4000 cuCtxPushCurrent_v2;
    "cuCtxPopCurrent": 2000 cuCtxPopCurrent, 4000 cuCtxPopCurrent_v2;
    "cuCtxSetCurrent": 4000 cuCtxSetCurrent;
    "cuCtxGetCurrent": 4000 cuCtxGetCurrent;
    "cuCtxGetDevice": 2000 cuCtxGetDevice, 13000 cuCtxGetDevice_v2;
    "cuCtxGetFlags": 7000 cuCtxGetFlags;
    "cuCtxSetFlags": 12010 cuCtxSetFlags;
    "cuCtxSynchronize": 2000 cuCtxSynchronize, 13000 cuCtxSynchronize_v2;
    "cuCtxSetLimit": 3010 cuCtxSetLimit;
    "cuCtxGetLimit": 3010 cuCtxGetLimit;
    "cuCtxGetCacheConfig": 3020 cuCtxGetCacheConfig;
    "cuCtxSetCacheConfig": 3020 cuCtxSetCacheConfig;
    "cuCtxGetSharedMemConfig": 4020 cuCtxGetSharedMemConfig;
    "cuCtxSetSharedMemConfig": 4020 cuCtxSetSharedMemConfig;
    "cuCtxGetApiVersion": 3020 cuCtxGetApiVersion;
    "cuCtxGetStreamPriorityRange": 5050 cuCtxGetStreamPriorityRange;
    "cuCtxResetPersistingL2Cache": 11000 cuCtxResetPersistingL2Cache;
    "cuCtxAttach": 2000 cuCtxAttach;
    "cuCtxDetach": 2000 cuCtxDetach;
    "cuCtxGetExecAffinity": 11040 cuCtxGetExecAffinity;
    "cuModuleLoad": 2000 cuModuleLoad;
    "cuModuleLoadData": 2000 cuModuleLoadData;
    "cuModuleLoadDataEx": 2010 cuModuleLoadDataEx;
    "cuModuleLoadFatBinary": 2000 cuModuleLoadFatBinary;
    "cuModuleUnload": 2000 cuModuleUnload;
    "cuModuleGetFunction": 2000 cuModuleGetFunction;
    "cuModuleGetGlobal": 2000 cuModuleGetGlobal, 3020 cuModuleGetGlobal_v2;
    "cuModuleGetTexRef": 2000 cuModuleGetTexRef;
    "cuModuleGetSurfRef": 3000 cuModuleGetSurfRef;
    "cuModuleGetFunctionCount": 12040 cuModuleGetFunctionCount;
    "cuModuleEnumerateFunctions": 12040 cuModuleEnumerateFunctions;
    "cuLinkCreate": 5050 cuLinkCreate, 6050 cuLinkCreate_v2;
    "cuLinkAddData": 5050 cuLinkAddData, 6050 cuLinkAddData_v2;
    "cuLinkAddFile": 5050 cuLinkAddFile, 6050 cuLinkAddFile_v2;
    "cuLinkComplete": 5050 cuLinkComplete;
    "cuLinkDestroy": 5050 cuLinkDestroy;
    "cuMemGetInfo": 2000 cuMemGetInfo, 3020 cuMemGetInfo_v2;
    "cuMemAlloc": 2000 cuMemAlloc, 3020 cuMemAlloc_v2;
    "cuMemAllocPitch": 2000 cuMemAllocPitch, 3020 cuMemAllocPitch_v2;
    "cuMemFree": 2000 cuMemFree, 3020 cuMemFree_v2;
    "cuMemGetAddressRange": 2000 cuMemGetAddressRange, 3020 cuMemGetAddressRange_v2;
    "cuMemAllocHost": 2000 cuMemAllocHost, 3020 cuMemAllocHost_v2;
    "cuMemFreeHost": 2000 cuMemFreeHost;
    "cuMemHostAlloc": 2020 cuMemHostAlloc;
    "cuMemHostGetDevicePointer": 2020 cuMemHostGetDevicePointer, 3020 cuMemHostGetDevicePointer_v2;
    "cuMemHostGetFlags": 2030 cuMemHostGetFlags;
    "cuMemAllocManaged": 6000 cuMemAllocManaged;
    "cuDeviceGetByPCIBusId": 4010 cuDeviceGetByPCIBusId;
    "cuDeviceGetPCIBusId": 4010 cuDeviceGetPCIBusId;
    "cuIpcGetEventHandle": 4010 cuIpcGetEventHandle;
    "cuIpcOpenEventHandle": 4010 cuIpcOpenEventHandle;
    "cuIpcGetMemHandle": 4010 cuIpcGetMemHandle;
    "cuIpcOpenMemHandle": 4010 cuIpcOpenMemHandle, 11000 cuIpcOpenMemHandle_v2;
    "cuIpcCloseMemHandle": 4010 cuIpcCloseMemHandle;
    "cuMemHostRegister": 4000 cuMemHostRegister, 6050 cuMemHostRegister_v2;
    "cuMemHostUnregister": 4000 cuMemHostUnregister;
    "cuMemcpy": 4000 cuMemcpy, 7000 cuMemcpy_ptds per_thread;
    "cuMemcpyPeer": 4000 cuMemcpyPeer, 7000 cuMemcpyPeer_ptds per_thread;
    "cuMemcpyHtoD": 2000 cuMemcpyHtoD, 3020 cuMemcpyHtoD_v2, 7000 cuMemcpyHtoD_v2_ptds per_thread;
    "cuMemcpyDtoH": 2000 cuMemcpyDtoH, 3020 cuMemcpyDtoH_v2, 7000 cuMemcpyDtoH_v2_ptds per_thread;
    "cuMemcpyDtoD": 2000 cuMemcpyDtoD, 3020 cuMemcpyDtoD_v2, 7000 cuMemcpyDtoD_v2_ptds per_thread;
    "cuMemcpyDtoA": 2000 cuMemcpyDtoA, 3020 cuMemcpyDtoA_v2, 7000 cuMemcpyDtoA_v2_ptds per_thread;
    "cuMemcpyAtoD": 2000 cuMemcpyAtoD, 3020 cuMemcpyAtoD_v2, 7000 cuMemcpyAtoD_v2_ptds per_thread;
    "cuMemcpyHtoA": 2000 cuMemcpyHtoA, 3020 cuMemcpyHtoA_v2, 7000 cuMemcpyHtoA_v2_ptds per_thread;
    "cuMemcpyAtoH": 2000 cuMemcpyAtoH, 3020 cuMemcpyAtoH_v2, 7000 cuMemcpyAtoH_v2_ptds per_thread;
    "cuMemcpyAtoA": 2000 cuMemcpyAtoA, 3020 cuMemcpyAtoA_v2, 7000 cuMemcpyAtoA_v2_ptds per_thread;
    "cuMemcpy2D": 2000 cuMemcpy2D, 3020 cuMemcpy2D_v2, 7000 cuMemcpy2D_v2_ptds per_thread;
    "cuMemcpy2DUnaligned":
        2000 cuMemcpy2DUnaligned, 3020 cuMemcpy2DUnaligned_v2, 7000 cuMemcpy2DUnaligned_v2_ptds per_thread;
    "cuMemcpy3D": 2000 cuMemcpy3D, 3020 cuMemcpy3D_v2, 7000 cuMemcpy3D_v2_ptds per_thread;
    "cuMemcpy3DPeer": 4000 cuMemcpy3DPeer, 7000 cuMemcpy3DPeer_ptds per_thread;
    "cuMemcpyAsync": 4000 cuMemcpyAsync, 7000 cuMemcpyAsync_ptsz per_thread;
    "cuMemcpyPeerAsync": 4000 cuMemcpyPeerAsync, 7000 cuMemcpyPeerAsync_ptsz per_thread;
    "cuMemcpyHtoDAsync": 2000 cuMemcpyHtoDAsync, 3020 cuMemcpyHtoDAsync_v2, 7000 cuMemcpyHtoDAsync_v2_ptsz per_thread;
    "cuMemcpyDtoHAsync": 2000 cuMemcpyDtoHAsync, 3020 cuMemcpyDtoHAsync_v2, 7000 cuMemcpyDtoHAsync_v2_ptsz per_thread;
    "cuMemcpyDtoDAsync": 3000 cuMemcpyDtoDAsync, 3020 cuMemcpyDtoDAsync_v2, 7000 cuMemcpyDtoDAsync_v2_ptsz per_thread;
    "cuMemcpyHtoAAsync": 2000 cuMemcpyHtoAAsync, 3020 cuMemcpyHtoAAsync_v2, 7000 cuMemcpyHtoAAsync_v2_ptsz per_thread;
    "cuMemcpyAtoHAsync": 2000 cuMemcpyAtoHAsync, 3020 cuMemcpyAtoHAsync_v2, 7000 cuMemcpyAtoHAsync_v2_ptsz per_thread;
    "cuMemcpy2DAsync": 2000 cuMemcpy2DAsync, 3020 cuMemcpy2DAsync_v2, 7000 cuMemcpy2DAsync_v2_ptsz per_thread;
    "cuMemcpy3DAsync": 2000 cuMemcpy3DAsync, 3020 cuMemcpy3DAsync_v2, 7000 cuMemcpy3DAsync_v2_ptsz per_thread;
    "cuMemcpy3DPeerAsync": 4000 cuMemcpy3DPeerAsync, 7000 cuMemcpy3DPeerAsync_ptsz per_thread;
    "cuMemcpyBatchAsync":
        12080 cuMemcpyBatchAsync, 13000 cuMemcpyBatchAsync_v2, 12080 cuMemcpyBatchAsync_ptsz per_thread,
        13000 cuMemcpyBatchAsync_v2_ptsz per_thread;
    "cuMemcpy3DBatchAsync":
        12080 cuMemcpy3DBatchAsync, 13000 cuMemcpy3DBatchAsync_v2, 12080 cuMemcpy3DBatchAsync_ptsz per_thread,
        13000 cuMemcpy3DBatchAsync_v2_ptsz per_thread;
    "cuFabricCpyBatchAsync": 13050 cuFabricCpyBatchAsync, 13050 cuFabricCpyBatchAsync_ptsz per_thread;
    "cuMemcpyWithAttributesAsync": 13020 cuMemcpyWithAttributesAsync, 13020 cuMemcpyWithAttributesAsync_ptsz per_thread;
    "cuMemcpy3DWithAttributesAsync":
        13020 cuMemcpy3DWithAttributesAsync, 13020 cuMemcpy3DWithAttributesAsync_ptsz per_thread;
    "cuMemsetD8": 2000 cuMemsetD8, 3020 cuMemsetD8_v2, 7000 cuMemsetD8_v2_ptds per_thread;
    "cuMemsetD16": 2000 cuMemsetD16, 3020 cuMemsetD16_v2, 7000 cuMemsetD16_v2_ptds per_thread;
    "cuMemsetD32": 2000 cuMemsetD32, 3020 cuMemsetD32_v2, 7000 cuMemsetD32_v2_ptds per_thread;
    "cuMemsetD2D8": 2000 cuMemsetD2D8, 3020 cuMemsetD2D8_v2, 7000 cuMemsetD2D8_v2_ptds per_thread;
    "cuMemsetD2D16": 2000 cuMemsetD2D16, 3020 cuMemsetD2D16_v2, 7000 cuMemsetD2D16_v2_ptds per_thread;
    "cuMemsetD2D32": 2000 cuMemsetD2D32, 3020 cuMemsetD2D32_v2, 7000 cuMemsetD2D32_v2_ptds per_thread;
    "cuMemsetD8Async": 3020 cuMemsetD8Async, 7000 cuMemsetD8Async_ptsz per_thread;
    "cuMemsetD16Async": 3020 cuMemsetD16Async, 7000 cuMemsetD16Async_ptsz per_thread;
    "cuMemsetD32Async": 3020 cuMemsetD32Async, 7000 cuMemsetD32Async_ptsz per_thread;
    "cuMemsetD2D8Async": 3020 cuMemsetD2D8Async, 7000 cuMemsetD2D8Async_ptsz per_thread;
    "cuMemsetD2D16Async": 3020 cuMemsetD2D16Async, 7000 cuMemsetD2D16Async_ptsz per_thread;
    "cuMemsetD2D32Async": 3020 cuMemsetD2D32Async, 7000 cuMemsetD2D32Async_ptsz per_thread;
    "cuArrayCreate": 2000 cuArrayCreate, 3020 cuArrayCreate_v2;
    "cuArrayGetDescriptor": 2000 cuArrayGetDescriptor, 3020 cuArrayGetDescriptor_v2;
    "cuArrayGetSparseProperties": 11010 cuArrayGetSparseProperties;
    "cuMipmappedArrayGetSparseProperties": 11010 cuMipmappedArrayGetSparseProperties;
    "cuArrayGetMemoryRequirements": 11060 cuArrayGetMemoryRequirements;
    "cuMipmappedArrayGetMemoryRequirements": 11060 cuMipmappedArrayGetMemoryRequirements;
    "cuArrayGetPlane": 11020 cuArrayGetPlane;
    "cuArrayDestroy": 2000 cuArrayDestroy;
    "cuArray3DCreate": 2000 cuArray3DCreate, 3020 cuArray3DCreate_v2;
    "cuArray3DGetDescriptor": 2000 cuArray3DGetDescriptor, 3020 cuArray3DGetDescriptor_v2;
    "cuMipmappedArrayCreate": 5000 cuMipmappedArrayCreate;
    "cuMipmappedArrayGetLevel": 5000 cuMipmappedArrayGetLevel;
    "cuMipmappedArrayDestroy": 5000 cuMipmappedArrayDestroy;
    "cuMemAddressReserve": 10020 cuMemAddressReserve;
    "cuMemAddressFree": 10020 cuMemAddressFree;
    "cuMemCreate": 10020 cuMemCreate;
    "cuMemRelease": 10020 cuMemRelease;
    "cuMemMap": 10020 cuMemMap;
    "cuMemMapArrayAsync": 11010 cuMemMapArrayAsync, 11010 cuMemMapArrayAsync_ptsz per_thread;
    "cuMemUnmap": 10020 cuMemUnmap;
    "cuMemSetAccess": 10020 cuMemSetAccess;
    "cuMemGetAccess": 10020 cuMemGetAccess;
    "cuMemExportToShareableHandle": 10020 cuMemExportToShareableHandle;
    "cuMemImportFromShareableHandle": 10020 cuMemImportFromShareableHandle;
    "cuMemGetAllocationGranularity": 10020 cuMemGetAllocationGranularity;
    "cuMemGetAllocationPropertiesFromHandle": 10020 cuMemGetAllocationPropertiesFromHandle;
    "cuMemRetainAllocationHandle": 11000 cuMemRetainAllocationHandle;
    "cuMemFreeAsync": 11020 cuMemFreeAsync, 11020 cuMemFreeAsync_ptsz per_thread;
    "cuMemAllocAsync": 11020 cuMemAllocAsync, 11020 cuMemAllocAsync_ptsz per_thread;
    "cuMemPoolTrimTo": 11020 cuMemPoolTrimTo;
    "cuMemPoolSetAttribute": 11020 cuMemPoolSetAttribute;
    "cuMemPoolGetAttribute": 11020 cuMemPoolGetAttribute;
    "cuMemPoolSetAccess": 11020 cuMemPoolSetAccess;
    "cuMemPoolGetAccess": 11020 cuMemPoolGetAccess;
    "cuMemPoolCreate": 11020 cuMemPoolCreate;
    "cuMemPoolDestroy": 11020 cuMemPoolDestroy;
    "cuMemGetDefaultMemPool": 13000 cuMemGetDefaultMemPool;
    "cuMemGetMemPool": 13000 cuMemGetMemPool;
    "cuMemSetMemPool": 13000 cuMemSetMemPool;
    "cuMemAllocFromPoolAsync": 11020 cuMemAllocFromPoolAsync, 11020 cuMemAllocFromPoolAsync_ptsz per_thread;
    "cuMemPoolExportToShareableHandle": 11020 cuMemPoolExportToShareableHandle;
    "cuMemPoolImportFromShareableHandle": 11020 cuMemPoolImportFromShareableHandle;
    "cuMemPoolExportPointer": 11020 cuMemPoolExportPointer;
    "cuMemPoolImportPointer": 11020 cuMemPoolImportPointer;
    "cuPointerGetAttribute": 4000 cuPointerGetAttribute;
    "cuMemPrefetchAsync":
        8000 cuMemPrefetchAsync, 12020 cuMemPrefetchAsync_v2, 8000 cuMemPrefetchAsync_ptsz per_thread,
        12020 cuMemPrefetchAsync_v2_ptsz per_thread;
    "cuMemAdvise": 8000 cuMemAdvise, 12020 cuMemAdvise_v2;
    "cuMemPrefetchBatchAsync": 13000 cuMemPrefetchBatchAsync, 13000 cuMemPrefetchBatchAsync_ptsz per_thread;
    "cuMemDiscardBatchAsync": 13000 cuMemDiscardBatchAsync, 13000 cuMemDiscardBatchAsync_ptsz per_thread;
    "cuMemDiscardAndPrefetchBatchAsync":
        13000 cuMemDiscardAndPrefetchBatchAsync, 13000 cuMemDiscardAndPrefetchBatchAsync_ptsz per_thread;
    "cuMemRangeGetAttribute": 8000 cuMemRangeGetAttribute;
    "cuMemRangeGetAttributes": 8000 cuMemRangeGetAttributes;
    "cuMulticastCreate": 12010 cuMulticastCreate;
    "cuMulticastAddDevice": 12010 cuMulticastAddDevice;
    "cuMulticastBindMem": 12010 cuMulticastBindMem, 13010 cuMulticastBindMem_v2;
    "cuMulticastBindAddr": 12010 cuMulticastBindAddr, 13010 cuMulticastBindAddr_v2;
    "cuMulticastUnbind": 12010 cuMulticastUnbind;
    "cuMulticastGetGranularity": 12010 cuMulticastGetGranularity;
    "cuLogicalEndpointIdReserve": 13030 cuLogicalEndpointIdReserve;
    "cuLogicalEndpointIdRelease": 13030 cuLogicalEndpointIdRelease;
    "cuLogicalEndpointCreate": 13030 cuLogicalEndpointCreate;
    "cuLogicalEndpointAddDevice": 13030 cuLogicalEndpointAddDevice;
    "cuLogicalEndpointDestroy": 13030 cuLogicalEndpointDestroy;
    "cuLogicalEndpointBindAddr": 13030 cuLogicalEndpointBindAddr;
    "cuLogicalEndpointBindMem": 13030 cuLogicalEndpointBindMem;
    "cuLogicalEndpointUnbind": 13030 cuLogicalEndpointUnbind;
    "cuLogicalEndpointExport": 13030 cuLogicalEndpointExport;
    "cuLogicalEndpointImport": 13030 cuLogicalEndpointImport;
    "cuLogicalEndpointGetLimits": 13030 cuLogicalEndpointGetLimits;
    "cuLogicalEndpointQuery": 13030 cuLogicalEndpointQuery;
    "cuDeviceGetFabricClusterUuid": 13040 cuDeviceGetFabricClusterUuid;
    "cuDeviceGetCliqueCount": 13040 cuDeviceGetCliqueCount;
    "cuDeviceGetCliqueInfo": 13040 cuDeviceGetCliqueInfo;
    "cuPointerSetAttribute": 6000 cuPointerSetAttribute;
    "cuPointerGetAttributes": 7000 cuPointerGetAttributes;
    "cuStreamCreate": 2000 cuStreamCreate;
    "cuStreamCreateWithPriority": 5050 cuStreamCreateWithPriority;
    "cuStreamGetId": 12000 cuStreamGetId, 12000 cuStreamGetId_ptsz per_thread;
    "cuStreamGetPriority": 5050 cuStreamGetPriority, 7000 cuStreamGetPriority_ptsz per_thread;
    "cuStreamGetFlags": 5050 cuStreamGetFlags, 7000 cuStreamGetFlags_ptsz per_thread;
    "cuStreamGetCtx":
        9020 cuStreamGetCtx, 12050 cuStreamGetCtx_v2, 9020 cuStreamGetCtx_ptsz per_thread,
        12050 cuStreamGetCtx_v2_ptsz per_thread;
    "cuStreamWaitEvent": 3020 cuStreamWaitEvent, 7000 cuStreamWaitEvent_ptsz per_thread;
    "cuStreamAddCallback": 5000 cuStreamAddCallback, 7000 cuStreamAddCallback_ptsz per_thread;
    "cuStreamBeginCapture":
        10000 cuStreamBeginCapture, 10010 cuStreamBeginCapture_v2, 10000 cuStreamBeginCapture_ptsz per_thread,
        10010 cuStreamBeginCapture_v2_ptsz per_thread;
    "cuStreamBeginCaptureToGraph": 12030 cuStreamBeginCaptureToGraph, 12030 cuStreamBeginCaptureToGraph_ptsz per_thread;
    "cuStreamBeginRecaptureToGraph":
        13030 cuStreamBeginRecaptureToGraph, 13030 cuStreamBeginRecaptureToGraph_ptsz per_thread;
    "cuThreadExchangeStreamCaptureMode": 10010 cuThreadExchangeStreamCaptureMode;
    "cuStreamEndCapture": 10000 cuStreamEndCapture, 10000 cuStreamEndCapture_ptsz per_thread;
    "cuStreamIsCapturing": 10000 cuStreamIsCapturing, 10000 cuStreamIsCapturing_ptsz per_thread;
    "cuStreamGetCaptureInfo":
        10010 cuStreamGetCaptureInfo, 11030 cuStreamGetCaptureInfo_v2, 12030 cuStreamGetCaptureInfo_v3,
        10010 cuStreamGetCaptureInfo_ptsz per_thread, 11030 cuStreamGetCaptureInfo_v2_ptsz per_thread,
        12030 cuStreamGetCaptureInfo_v3_ptsz per_thread;
    "cuStreamUpdateCaptureDependencies":
        11030 cuStreamUpdateCaptureDependencies, 12030 cuStreamUpdateCaptureDependencies_v2,
        11030 cuStreamUpdateCaptureDependencies_ptsz per_thread,
        12030 cuStreamUpdateCaptureDependencies_v2_ptsz per_thread;
    "cuStreamBeginCaptureToCig": 13010 cuStreamBeginCaptureToCig, 13010 cuStreamBeginCaptureToCig_ptsz per_thread;
    "cuStreamEndCaptureToCig": 13010 cuStreamEndCaptureToCig, 13010 cuStreamEndCaptureToCig_ptsz per_thread;
    "cuStreamAttachMemAsync": 6000 cuStreamAttachMemAsync, 7000 cuStreamAttachMemAsync_ptsz per_thread;
    "cuStreamQuery": 2000 cuStreamQuery, 7000 cuStreamQuery_ptsz per_thread;
    "cuStreamSynchronize": 2000 cuStreamSynchronize, 7000 cuStreamSynchronize_ptsz per_thread;
    "cuStreamDestroy": 2000 cuStreamDestroy, 4000 cuStreamDestroy_v2;
    "cuStreamCopyAttributes": 11000 cuStreamCopyAttributes, 11000 cuStreamCopyAttributes_ptsz per_thread;
    "cuStreamGetAttribute": 11000 cuStreamGetAttribute, 11000 cuStreamGetAttribute_ptsz per_thread;
    "cuStreamSetAttribute": 11000 cuStreamSetAttribute, 11000 cuStreamSetAttribute_ptsz per_thread;
    "cuEventCreate": 2000 cuEventCreate;
    "cuEventRecord": 2000 cuEventRecord, 7000 cuEventRecord_ptsz per_thread;
    "cuEventRecordWithFlags": 11010 cuEventRecordWithFlags, 11010 cuEventRecordWithFlags_ptsz per_thread;
    "cuEventQuery": 2000 cuEventQuery;
    "cuEventSynchronize": 2000 cuEventSynchronize;
    "cuEventDestroy": 2000 cuEventDestroy, 4000 cuEventDestroy_v2;
    "cuEventElapsedTime": 2000 cuEventElapsedTime, 12080 cuEventElapsedTime_v2;
    "cuImportExternalMemory": 10000 cuImportExternalMemory;
    "cuExternalMemoryGetMappedBuffer": 10000 cuExternalMemoryGetMappedBuffer;
    "cuExternalMemoryGetMappedMipmappedArray": 10000 cuExternalMemoryGetMappedMipmappedArray;
    "cuDestroyExternalMemory": 10000 cuDestroyExternalMemory;
    "cuImportExternalSemaphore": 10000 cuImportExternalSemaphore;
    "cuSignalExternalSemaphoresAsync":
        10000 cuSignalExternalSemaphoresAsync, 10000 cuSignalExternalSemaphoresAsync_ptsz per_thread;
    "cuWaitExternalSemaphoresAsync":
        10000 cuWaitExternalSemaphoresAsync, 10000 cuWaitExternalSemaphoresAsync_ptsz per_thread;
    "cuDestroyExternalSemaphore": 10000 cuDestroyExternalSemaphore;
    "cuStreamWaitValue32":
        8000 cuStreamWaitValue32, 11070 cuStreamWaitValue32_v2, 8000 cuStreamWaitValue32_ptsz per_thread,
        11070 cuStreamWaitValue32_v2_ptsz per_thread;
    "cuStreamWaitValue64":
        9000 cuStreamWaitValue64, 11070 cuStreamWaitValue64_v2, 9000 cuStreamWaitValue64_ptsz per_thread,
        11070 cuStreamWaitValue64_v2_ptsz per_thread;
    "cuStreamWriteValue32":
        8000 cuStreamWriteValue32, 11070 cuStreamWriteValue32_v2, 8000 cuStreamWriteValue32_ptsz per_thread,
        11070 cuStreamWriteValue32_v2_ptsz per_thread;
    "cuStreamWriteValue64":
        9000 cuStreamWriteValue64, 11070 cuStreamWriteValue64_v2, 9000 cuStreamWriteValue64_ptsz per_thread,
        11070 cuStreamWriteValue64_v2_ptsz per_thread;
    "cuStreamBatchMemOp":
        8000 cuStreamBatchMemOp, 11070 cuStreamBatchMemOp_v2, 8000 cuStreamBatchMemOp_ptsz per_thread,
        11070 cuStreamBatchMemOp_v2_ptsz per_thread;
    "cuFuncGetAttribute": 2020 cuFuncGetAttribute;
    "cuFuncSetAttribute": 9000 cuFuncSetAttribute;
    "cuFuncSetCacheConfig": 3000 cuFuncSetCacheConfig;
    "cuFuncSetSharedMemConfig": 4020 cuFuncSetSharedMemConfig;
    "cuFuncGetName": 12030 cuFuncGetName;
    "cuFuncGetParamInfo": 12040 cuFuncGetParamInfo;
    "cuFuncGetParamCount": 13020 cuFuncGetParamCount;
    "cuFuncIsLoaded": 12040 cuFuncIsLoaded;
    "cuFuncLoad": 12040 cuFuncLoad;
    "cuLaunchKernel": 4000 cuLaunchKernel, 7000 cuLaunchKernel_ptsz per_thread;
    "cuLaunchKernelEx": 11060 cuLaunchKernelEx, 11060 cuLaunchKernelEx_ptsz per_thread;
    "cuLaunchCooperativeKernel": 9000 cuLaunchCooperativeKernel, 9000 cuLaunchCooperativeKernel_ptsz per_thread;
    "cuLaunchCooperativeKernelMultiDevice": 9000 cuLaunchCooperativeKernelMultiDevice;
    "cuLaunchHostFunc":
        10000 cuLaunchHostFunc, 13010 cuLaunchHostFunc_v2, 10000 cuLaunchHostFunc_ptsz per_thread,
        13010 cuLaunchHostFunc_v2_ptsz per_thread;
    "cuFuncSetBlockShape": 2000 cuFuncSetBlockShape;
    "cuFuncSetSharedSize": 2000 cuFuncSetSharedSize;
    "cuParamSetSize": 2000 cuParamSetSize;
    "cuParamSeti": 2000 cuParamSeti;
    "cuParamSetf": 2000 cuParamSetf;
    "cuParamSetv": 2000 cuParamSetv;
    "cuLaunch": 2000 cuLaunch;
    "cuLaunchGrid": 2000 cuLaunchGrid;
    "cuLaunchGridAsync": 2000 cuLaunchGridAsync;
    "cuParamSetTexRef": 2000 cuParamSetTexRef;
    "cuGraphCreate": 10000 cuGraphCreate;
    "cuGraphAddKernelNode": 10000 cuGraphAddKernelNode, 12000 cuGraphAddKernelNode_v2;
    "cuGraphKernelNodeGetParams": 10000 cuGraphKernelNodeGetParams, 12000 cuGraphKernelNodeGetParams_v2;
    "cuGraphKernelNodeSetParams": 10000 cuGraphKernelNodeSetParams, 12000 cuGraphKernelNodeSetParams_v2;
    "cuGraphAddMemcpyNode": 10000 cuGraphAddMemcpyNode;
    "cuGraphMemcpyNodeGetParams": 10000 cuGraphMemcpyNodeGetParams;
    "cuGraphMemcpyNodeSetParams": 10000 cuGraphMemcpyNodeSetParams;
    "cuGraphAddMemsetNode": 10000 cuGraphAddMemsetNode;
    "cuGraphMemsetNodeGetParams": 10000 cuGraphMemsetNodeGetParams;
    "cuGraphMemsetNodeSetParams": 10000 cuGraphMemsetNodeSetParams;
    "cuGraphAddHostNode": 10000 cuGraphAddHostNode;
    "cuGraphHostNodeGetParams": 10000 cuGraphHostNodeGetParams;
    "cuGraphHostNodeSetParams": 10000 cuGraphHostNodeSetParams;
    "cuGraphAddChildGraphNode": 10000 cuGraphAddChildGraphNode;
    "cuGraphChildGraphNodeGetGraph": 10000 cuGraphChildGraphNodeGetGraph;
    "cuGraphAddEmptyNode": 10000 cuGraphAddEmptyNode;
    "cuGraphAddEventRecordNode": 11010 cuGraphAddEventRecordNode;
    "cuGraphEventRecordNodeGetEvent": 11010 cuGraphEventRecordNodeGetEvent;
    "cuGraphEventRecordNodeSetEvent": 11010 cuGraphEventRecordNodeSetEvent;
    "cuGraphAddEventWaitNode": 11010 cuGraphAddEventWaitNode;
    "cuGraphEventWaitNodeGetEvent": 11010 cuGraphEventWaitNodeGetEvent;
    "cuGraphEventWaitNodeSetEvent": 11010 cuGraphEventWaitNodeSetEvent;
    "cuGraphAddExternalSemaphoresSignalNode": 11020 cuGraphAddExternalSemaphoresSignalNode;
    "cuGraphExternalSemaphoresSignalNodeGetParams": 11020 cuGraphExternalSemaphoresSignalNodeGetParams;
    "cuGraphExternalSemaphoresSignalNodeSetParams": 11020 cuGraphExternalSemaphoresSignalNodeSetParams;
    "cuGraphAddExternalSemaphoresWaitNode": 11020 cuGraphAddExternalSemaphoresWaitNode;
    "cuGraphExternalSemaphoresWaitNodeGetParams": 11020 cuGraphExternalSemaphoresWaitNodeGetParams;
    "cuGraphExternalSemaphoresWaitNodeSetParams": 11020 cuGraphExternalSemaphoresWaitNodeSetParams;
    "cuGraphAddBatchMemOpNode": 11070 cuGraphAddBatchMemOpNode;
    "cuGraphBatchMemOpNodeGetParams": 11070 cuGraphBatchMemOpNodeGetParams;
    "cuGraphBatchMemOpNodeSetParams": 11070 cuGraphBatchMemOpNodeSetParams;
    "cuGraphExecBatchMemOpNodeSetParams": 11070 cuGraphExecBatchMemOpNodeSetParams;
    "cuGraphClone": 10000 cuGraphClone;
    "cuGraphNodeFindInClone": 10000 cuGraphNodeFindInClone;
    "cuGraphNodeGetType": 10000 cuGraphNodeGetType;
    "cuGraphNodeGetContainingGraph": 13010 cuGraphNodeGetContainingGraph;
    "cuGraphNodeGetLocalId": 13010 cuGraphNodeGetLocalId;
    "cuGraphNodeGetToolsId": 13010 cuGraphNodeGetToolsId;
    "cuGraphGetId": 13010 cuGraphGetId;
    "cuGraphExecGetId": 13010 cuGraphExecGetId;
    "cuGraphGetNodes": 10000 cuGraphGetNodes;
    "cuGraphGetRootNodes": 10000 cuGraphGetRootNodes;
    "cuGraphGetEdges": 10000 cuGraphGetEdges, 12030 cuGraphGetEdges_v2;
    "cuGraphNodeGetDependencies": 10000 cuGraphNodeGetDependencies, 12030 cuGraphNodeGetDependencies_v2;
    "cuGraphNodeGetDependentNodes": 10000 cuGraphNodeGetDependentNodes, 12030 cuGraphNodeGetDependentNodes_v2;
    "cuGraphAddDependencies": 10000 cuGraphAddDependencies, 12030 cuGraphAddDependencies_v2;
    "cuGraphRemoveDependencies": 10000 cuGraphRemoveDependencies, 12030 cuGraphRemoveDependencies_v2;
    "cuGraphDestroyNode": 10000 cuGraphDestroyNode;
    "cuGraphInstantiateWithFlags": 11040 cuGraphInstantiateWithFlags;
    "cuGraphInstantiateWithParams":
        12000 cuGraphInstantiateWithParams, 12000 cuGraphInstantiateWithParams_ptsz per_thread;
    "cuGraphExecGetFlags": 12000 cuGraphExecGetFlags;
    "cuGraphExecKernelNodeSetParams": 10010 cuGraphExecKernelNodeSetParams, 12000 cuGraphExecKernelNodeSetParams_v2;
    "cuGraphExecMemcpyNodeSetParams": 10020 cuGraphExecMemcpyNodeSetParams;
    "cuGraphExecMemsetNodeSetParams": 10020 cuGraphExecMemsetNodeSetParams;
    "cuGraphExecHostNodeSetParams": 10020 cuGraphExecHostNodeSetParams;
    "cuGraphExecChildGraphNodeSetParams": 11010 cuGraphExecChildGraphNodeSetParams;
    "cuGraphExecEventRecordNodeSetEvent": 11010 cuGraphExecEventRecordNodeSetEvent;
    "cuGraphExecEventWaitNodeSetEvent": 11010 cuGraphExecEventWaitNodeSetEvent;
    "cuGraphExecExternalSemaphoresSignalNodeSetParams": 11020 cuGraphExecExternalSemaphoresSignalNodeSetParams;
    "cuGraphExecExternalSemaphoresWaitNodeSetParams": 11020 cuGraphExecExternalSemaphoresWaitNodeSetParams;
    "cuGraphUpload": 11010 cuGraphUpload, 11010 cuGraphUpload_ptsz per_thread;
    "cuGraphLaunch": 10000 cuGraphLaunch, 10000 cuGraphLaunch_ptsz per_thread;
    "cuGraphExecDestroy": 10000 cuGraphExecDestroy;
    "cuGraphDestroy": 10000 cuGraphDestroy;
    "cuGraphExecUpdate": 10020 cuGraphExecUpdate, 12000 cuGraphExecUpdate_v2;
    "cuGraphKernelNodeCopyAttributes": 11000 cuGraphKernelNodeCopyAttributes;
    "cuGraphKernelNodeGetAttribute": 11000 cuGraphKernelNodeGetAttribute;
    "cuGraphKernelNodeSetAttribute": 11000 cuGraphKernelNodeSetAttribute;
    "cuGraphDebugDotPrint": 11030 cuGraphDebugDotPrint;
    "cuGraphAddMemAllocNode": 11040 cuGraphAddMemAllocNode;
    "cuGraphMemAllocNodeGetParams": 11040 cuGraphMemAllocNodeGetParams;
    "cuGraphAddMemFreeNode": 11040 cuGraphAddMemFreeNode;
    "cuGraphMemFreeNodeGetParams": 11040 cuGraphMemFreeNodeGetParams;
    "cuGraphNodeSetEnabled": 11060 cuGraphNodeSetEnabled;
    "cuGraphNodeGetEnabled": 11060 cuGraphNodeGetEnabled;
    "cuGraphAddNode": 12020 cuGraphAddNode, 12030 cuGraphAddNode_v2, 13040 cuGraphAddNode_v3;
    "cuGraphNodeSetParams": 12020 cuGraphNodeSetParams, 13040 cuGraphNodeSetParams_v2;
    "cuGraphNodeGetParams": 13020 cuGraphNodeGetParams;
    "cuGraphExecNodeSetParams": 12020 cuGraphExecNodeSetParams;
    "cuGraphConditionalHandleCreate": 12030 cuGraphConditionalHandleCreate;
    "cuDeviceGraphMemTrim": 11040 cuDeviceGraphMemTrim;
    "cuDeviceGetGraphMemAttribute": 11040 cuDeviceGetGraphMemAttribute;
    "cuDeviceSetGraphMemAttribute": 11040 cuDeviceSetGraphMemAttribute;
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": 6050 cuOccupancyMaxActiveBlocksPerMultiprocessor;
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": 7000 cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
    "cuOccupancyMaxPotentialBlockSize": 6050 cuOccupancyMaxPotentialBlockSize;
    "cuOccupancyMaxPotentialBlockSizeWithFlags": 7000 cuOccupancyMaxPotentialBlockSizeWithFlags;
    "cuOccupancyAvailableDynamicSMemPerBlock": 10020 cuOccupancyAvailableDynamicSMemPerBlock;
    "cuOccupancyMaxPotentialClusterSize": 11070 cuOccupancyMaxPotentialClusterSize;
    "cuOccupancyMaxActiveClusters": 11070 cuOccupancyMaxActiveClusters;
    "cuTexRefSetArray": 2000 cuTexRefSetArray;
    "cuTexRefSetMipmappedArray": 5000 cuTexRefSetMipmappedArray;
    "cuTexRefSetAddress": 2000 cuTexRefSetAddress, 3020 cuTexRefSetAddress_v2;
    "cuTexRefSetAddress2D": 2020 cuTexRefSetAddress2D, 3020 cuTexRefSetAddress2D_v2, 4010 cuTexRefSetAddress2D_v3;
    "cuTexRefSetFormat": 2000 cuTexRefSetFormat;
    "cuTexRefSetAddressMode": 2000 cuTexRefSetAddressMode;
    "cuTexRefSetFilterMode": 2000 cuTexRefSetFilterMode;
    "cuTexRefSetMipmapFilterMode": 5000 cuTexRefSetMipmapFilterMode;
    "cuTexRefSetMipmapLevelBias": 5000 cuTexRefSetMipmapLevelBias;
    "cuTexRefSetMipmapLevelClamp": 5000 cuTexRefSetMipmapLevelClamp;
    "cuTexRefSetMaxAnisotropy": 5000 cuTexRefSetMaxAnisotropy;
    "cuTexRefSetBorderColor": 8000 cuTexRefSetBorderColor;
    "cuTexRefSetFlags": 2000 cuTexRefSetFlags;
    "cuTexRefGetAddress": 2000 cuTexRefGetAddress, 3020 cuTexRefGetAddress_v2;
    "cuTexRefGetArray": 2000 cuTexRefGetArray;
    "cuTexRefGetMipmappedArray": 5000 cuTexRefGetMipmappedArray;
    "cuTexRefGetAddressMode": 2000 cuTexRefGetAddressMode;
    "cuTexRefGetFilterMode": 2000 cuTexRefGetFilterMode;
    "cuTexRefGetFormat": 2000 cuTexRefGetFormat;
    "cuTexRefGetMipmapFilterMode": 5000 cuTexRefGetMipmapFilterMode;
    "cuTexRefGetMipmapLevelBias": 5000 cuTexRefGetMipmapLevelBias;
    "cuTexRefGetMipmapLevelClamp": 5000 cuTexRefGetMipmapLevelClamp;
    "cuTexRefGetMaxAnisotropy": 5000 cuTexRefGetMaxAnisotropy;
    "cuTexRefGetBorderColor": 8000 cuTexRefGetBorderColor;
    "cuTexRefGetFlags": 2000 cuTexRefGetFlags;
    "cuTexRefCreate": 2000 cuTexRefCreate;
    "cuTexRefDestroy": 2000 cuTexRefDestroy;
    "cuSurfRefSetArray": 3000 cuSurfRefSetArray;
    "cuSurfRefGetArray": 3000 cuSurfRefGetArray;
    "cuTexObjectCreate": 5000 cuTexObjectCreate;
    "cuTexObjectDestroy": 5000 cuTexObjectDestroy;
    "cuTexObjectGetResourceDesc": 5000 cuTexObjectGetResourceDesc;
    "cuTexObjectGetTextureDesc": 5000 cuTexObjectGetTextureDesc;
    "cuTexObjectGetResourceViewDesc": 5000 cuTexObjectGetResourceViewDesc;
    "cuSurfObjectCreate": 5000 cuSurfObjectCreate;
    "cuSurfObjectDestroy": 5000 cuSurfObjectDestroy;
    "cuSurfObjectGetResourceDesc": 5000 cuSurfObjectGetResourceDesc;
    "cuTensorMapEncodeTiled": 12000 cuTensorMapEncodeTiled;
    "cuTensorMapEncodeIm2col": 12000 cuTensorMapEncodeIm2col;
    "cuTensorMapReplaceAddress": 12000 cuTensorMapReplaceAddress;
    "cuTensorMapSetAllocationClass": 13050 cuTensorMapSetAllocationClass;
    "cuTensorMapEncodeIm2colWide": 12080 cuTensorMapEncodeIm2colWide;
    "cuDeviceCanAccessPeer": 4000 cuDeviceCanAccessPeer;
    "cuCtxEnablePeerAccess": 4000 cuCtxEnablePeerAccess;
    "cuCtxDisablePeerAccess": 4000 cuCtxDisablePeerAccess;
    "cuDeviceGetP2PAttribute": 8000 cuDeviceGetP2PAttribute;
    "cuDeviceGetP2PAtomicCapabilities": 13000 cuDeviceGetP2PAtomicCapabilities;
    "cuGraphicsUnregisterResource": 3000 cuGraphicsUnregisterResource;
    "cuGraphicsSubResourceGetMappedArray": 3000 cuGraphicsSubResourceGetMappedArray;
    "cuGraphicsResourceGetMappedMipmappedArray": 5000 cuGraphicsResourceGetMappedMipmappedArray;
    "cuGraphicsResourceGetMappedPointer":
        3000 cuGraphicsResourceGetMappedPointer, 3020 cuGraphicsResourceGetMappedPointer_v2;
    "cuGraphicsResourceSetMapFlags": 3000 cuGraphicsResourceSetMapFlags, 6050 cuGraphicsResourceSetMapFlags_v2;
    "cuGraphicsMapResources": 3000 cuGraphicsMapResources, 7000 cuGraphicsMapResources_ptsz per_thread;
    "cuGraphicsUnmapResources": 3000 cuGraphicsUnmapResources, 7000 cuGraphicsUnmapResources_ptsz per_thread;
    "cuGetExportTable": 3000 cuGetExportTable;
    "cuFuncGetModule": 11000 cuFuncGetModule;
    "cuGetProcAddress": 11030 cuGetProcAddress, 12000 cuGetProcAddress_v2;
    "cuStreamGetDevice": 12080 cuStreamGetDevice, 12080 cuStreamGetDevice_ptsz per_thread;
    "cuMemGetLocationInfo": 13040 cuMemGetLocationInfo;
    "cuFlushGPUDirectRDMAWrites": 11030 cuFlushGPUDirectRDMAWrites;
    "cuUserObjectCreate": 11030 cuUserObjectCreate;
    "cuUserObjectRetain": 11030 cuUserObjectRetain;
    "cuUserObjectRelease": 11030 cuUserObjectRelease;
    "cuGraphRetainUserObject": 11030 cuGraphRetainUserObject;
    "cuGraphReleaseUserObject": 11030 cuGraphReleaseUserObject;
    "cuModuleGetLoadingMode": 11070 cuModuleGetLoadingMode;
    "cuMemGetHandleForAddressRange": 11070 cuMemGetHandleForAddressRange;
    "cuLibraryLoadData": 12000 cuLibraryLoadData;
    "cuLibraryLoadFromFile": 12000 cuLibraryLoadFromFile;
    "cuLibraryUnload": 12000 cuLibraryUnload;
    "cuLibraryGetKernel": 12000 cuLibraryGetKernel;
    "cuLibraryGetModule": 12000 cuLibraryGetModule;
    "cuLibraryGetKernelCount": 12040 cuLibraryGetKernelCount;
    "cuLibraryEnumerateKernels": 12040 cuLibraryEnumerateKernels;
    "cuKernelGetFunction": 12000 cuKernelGetFunction;
    "cuKernelGetLibrary": 12050 cuKernelGetLibrary;
    "cuLibraryGetGlobal": 12000 cuLibraryGetGlobal;
    "cuLibraryGetManaged": 12000 cuLibraryGetManaged;
    "cuKernelGetAttribute": 12000 cuKernelGetAttribute;
    "cuKernelSetAttribute": 12000 cuKernelSetAttribute;
    "cuKernelSetCacheConfig": 12000 cuKernelSetCacheConfig;
    "cuKernelGetName": 12030 cuKernelGetName;
    "cuKernelGetParamInfo": 12040 cuKernelGetParamInfo;
    "cuKernelGetParamCount": 13020 cuKernelGetParamCount;
    "cuLibraryGetUnifiedFunction": 12000 cuLibraryGetUnifiedFunction;
    "cuCoredumpGetAttribute": 12010 cuCoredumpGetAttribute;
    "cuCoredumpGetAttributeGlobal": 12010 cuCoredumpGetAttributeGlobal;
    "cuCoredumpSetAttribute": 12010 cuCoredumpSetAttribute;
    "cuCoredumpSetAttributeGlobal": 12010 cuCoredumpSetAttributeGlobal;
    "cuDeviceRegisterAsyncNotification": 12040 cuDeviceRegisterAsyncNotification;
    "cuDeviceUnregisterAsyncNotification": 12040 cuDeviceUnregisterAsyncNotification;
    "cuGreenCtxCreate": 12040 cuGreenCtxCreate;
    "cuGreenCtxDestroy": 12040 cuGreenCtxDestroy;
    "cuDeviceGetDevResource": 12040 cuDeviceGetDevResource;
    "cuCtxGetDevResource": 12040 cuCtxGetDevResource;
    "cuGreenCtxGetDevResource": 12040 cuGreenCtxGetDevResource;
    "cuStreamGetDevResource": 13010 cuStreamGetDevResource, 13010 cuStreamGetDevResource_ptsz per_thread;
    "cuGreenCtxRecordEvent": 12040 cuGreenCtxRecordEvent;
    "cuGreenCtxWaitEvent": 12040 cuGreenCtxWaitEvent;
    "cuDevResourceGenerateDesc": 12040 cuDevResourceGenerateDesc;
    "cuDevSmResourceSplitByCount": 12040 cuDevSmResourceSplitByCount;
    "cuDevSmResourceSplit": 13010 cuDevSmResourceSplit;
    "cuStreamGetGreenCtx": 12040 cuStreamGetGreenCtx;
    "cuCtxFromGreenCtx": 12040 cuCtxFromGreenCtx;
    "cuGreenCtxGetId": 12090 cuGreenCtxGetId;
    "cuCtxRecordEvent": 12050 cuCtxRecordEvent;
    "cuCtxWaitEvent": 12050 cuCtxWaitEvent;
    "cuGreenCtxStreamCreate": 12050 cuGreenCtxStreamCreate;
    "cuMemBatchDecompressAsync": 12060 cuMemBatchDecompressAsync, 12060 cuMemBatchDecompressAsync_ptsz per_thread;
    "cuLogsRegisterCallback": 12090 cuLogsRegisterCallback;
    "cuLogsUnregisterCallback": 12090 cuLogsUnregisterCallback;
    "cuLogsCurrent": 12090 cuLogsCurrent;
    "cuLogsDumpToFile": 12090 cuLogsDumpToFile;
    "cuLogsDumpToMemory": 12090 cuLogsDumpToMemory;
    "cuCoredumpRegisterStartCallback": 13020 cuCoredumpRegisterStartCallback;
    "cuCoredumpRegisterCompleteCallback": 13020 cuCoredumpRegisterCompleteCallback;
    "cuCoredumpDeregisterStartCallback": 13020 cuCoredumpDeregisterStartCallback;
    "cuCoredumpDeregisterCompleteCallback": 13020 cuCoredumpDeregisterCompleteCallback;
    "cuGraphInstantiate": 10000 cuGraphInstantiate, 11000 cuGraphInstantiate_v2;
    "cuCheckpointProcessGetRestoreThreadId": 12080 cuCheckpointProcessGetRestoreThreadId;
    "cuCheckpointProcessGetState": 12080 cuCheckpointProcessGetState;
    "cuCheckpointProcessLock": 12080 cuCheckpointProcessLock;
    "cuCheckpointProcessCheckpoint": 12080 cuCheckpointProcessCheckpoint;
    "cuCheckpointProcessRestore": 12080 cuCheckpointProcessRestore;
    "cuCheckpointProcessUnlock": 12080 cuCheckpointProcessUnlock;
    "cuCheckpointOperationComplete": 13040 cuCheckpointOperationComplete;
    "cuProfilerInitialize": 4000 cuProfilerInitialize;
    "cuProfilerStart": 4000 cuProfilerStart;
    "cuProfilerStop": 4000 cuProfilerStop;
    "cuGraphicsGLRegisterBuffer": 3000 cuGraphicsGLRegisterBuffer;
    "cuGraphicsGLRegisterImage": 3000 cuGraphicsGLRegisterImage;
    "cuGLGetDevices": 4010 cuGLGetDevices, 6050 cuGLGetDevices_v2;
    "cuGLCtxCreate": 2000 cuGLCtxCreate, 3020 cuGLCtxCreate_v2;
    "cuGLInit": 2000 cuGLInit;
    "cuGLRegisterBufferObject": 2000 cuGLRegisterBufferObject;
    "cuGLMapBufferObject":
        2000 cuGLMapBufferObject, 3020 cuGLMapBufferObject_v2, 7000 cuGLMapBufferObject_v2_ptds per_thread;
    "cuGLUnmapBufferObject": 2000 cuGLUnmapBufferObject;
    "cuGLUnregisterBufferObject": 2000 cuGLUnregisterBufferObject;
    "cuGLSetBufferObjectMapFlags": 2030 cuGLSetBufferObjectMapFlags;
    "cuGLMapBufferObjectAsync":
        2030 cuGLMapBufferObjectAsync, 3020 cuGLMapBufferObjectAsync_v2,
        7000 cuGLMapBufferObjectAsync_v2_ptsz per_thread;
    "cuGLUnmapBufferObjectAsync": 2030 cuGLUnmapBufferObjectAsync;
    "cuGraphicsEGLRegisterImage": 7000 cuGraphicsEGLRegisterImage;
    "cuEGLStreamConsumerConnect": 7000 cuEGLStreamConsumerConnect;
    "cuEGLStreamConsumerConnectWithFlags": 8000 cuEGLStreamConsumerConnectWithFlags;
    "cuEGLStreamConsumerDisconnect": 7000 cuEGLStreamConsumerDisconnect;
    "cuEGLStreamConsumerAcquireFrame": 7000 cuEGLStreamConsumerAcquireFrame;
    "cuEGLStreamConsumerReleaseFrame": 7000 cuEGLStreamConsumerReleaseFrame;
    "cuEGLStreamProducerConnect": 7000 cuEGLStreamProducerConnect;
    "cuEGLStreamProducerDisconnect": 7000 cuEGLStreamProducerDisconnect;
    "cuEGLStreamProducerPresentFrame": 7000 cuEGLStreamProducerPresentFrame;
    "cuEGLStreamProducerReturnFrame": 7000 cuEGLStreamProducerReturnFrame;
    "cuGraphicsResourceGetMappedEglFrame": 7000 cuGraphicsResourceGetMappedEglFrame;
    "cuEventCreateFromEGLSync": 9000 cuEventCreateFromEGLSync;
    "cuVDPAUGetDevice": 3010 cuVDPAUGetDevice;
    "cuVDPAUCtxCreate": 3010 cuVDPAUCtxCreate, 3020 cuVDPAUCtxCreate_v2;
    "cuGraphicsVDPAURegisterVideoSurface": 3010 cuGraphicsVDPAURegisterVideoSurface;
    "cuGraphicsVDPAURegisterOutputSurface": 3010 cuGraphicsVDPAURegisterOutputSurface;
}

/// Why a look-up found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No function has this name (`CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`).
    Name,
    /// The function is newer than the version asked for (`CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT`).
    Version,
}

/// The symbol that `name` means for a program built for `version`, a number as in [`EntryPoint::version`].
pub fn resolve(name: &[u8], version: u32, per_thread: bool) -> Result<Symbol, Missing> {
    let mut is_known = false;
    let mut plain = None;
    let mut threaded = None;
    for entry in PROC_ADDRESS.iter().filter(|entry| entry.name.as_bytes() == name) {
        is_known = true;
        if entry.version <= version {
            *if entry.per_thread { &mut threaded } else { &mut plain } = Some(entry.symbol);
        }
    }
    let found = if per_thread { threaded.or(plain) } else { plain };
    found.ok_or(if is_known { Missing::Version } else { Missing::Name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_the_newest_that_is_not_newer_than_asked() {
        assert_eq!(resolve(b"cuMemAlloc", 2000, false), Ok(Symbol::cuMemAlloc));
        assert_eq!(resolve(b"cuMemAlloc", 3019, false), Ok(Symbol::cuMemAlloc));
        assert_eq!(resolve(b"cuMemAlloc", 3020, false), Ok(Symbol::cuMemAlloc_v2));
        assert_eq!(resolve(b"cuCtxCreate", 13050, false), Ok(Symbol::cuCtxCreate_v4));
        assert_eq!(resolve(b"cuGetProcAddress", 11030, false), Ok(Symbol::cuGetProcAddress));
        assert_eq!(
            resolve(b"cuGetProcAddress", 12000, false),
            Ok(Symbol::cuGetProcAddress_v2)
        );
    }

    #[test]
    fn per_thread_flavour_falls_back_to_the_plain_one() {
        assert_eq!(resolve(b"cuLaunchKernel", 12000, true), Ok(Symbol::cuLaunchKernel_ptsz));
        assert_eq!(resolve(b"cuMemcpyHtoD", 12000, true), Ok(Symbol::cuMemcpyHtoD_v2_ptds));
        assert_eq!(resolve(b"cuMemAlloc", 12000, true), Ok(Symbol::cuMemAlloc_v2));
        // The per-thread flavour came with CUDA 7.
        assert_eq!(resolve(b"cuLaunchKernel", 6050, true), Ok(Symbol::cuLaunchKernel));
    }

    #[test]
    fn what_is_missing_says_why() {
        assert_eq!(resolve(b"", 12000, false), Err(Missing::Name));
        assert_eq!(resolve(b"cuMemAlloc_v2", 12000, false), Err(Missing::Name));
        assert_eq!(resolve(b"cuMemCreate", 9000, false), Err(Missing::Version));
    }

    #[test]
    fn entries_of_a_name_stand_together_with_versions_ascending() {
        for (i, entry) in PROC_ADDRESS.iter().enumerate() {
            let Some(next) = PROC_ADDRESS.get(i + 1) else { break };
            if next.name == entry.name {
                assert!(
                    (entry.per_thread, entry.version) < (next.per_thread, next.version),
                    "{}",
                    entry.name
                );
            } else {
                assert!(
                    PROC_ADDRESS[i + 1..].iter().all(|later| later.name != entry.name),
                    "{} twice",
                    entry.name
                );
            }
        }
    }
}
