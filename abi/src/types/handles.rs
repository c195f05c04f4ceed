// SPDX-License-Identifier: Apache-2.0
//! Handles, addresses and callbacks: what the driver hands out and takes back, opaque to us.

use super::*;

/// A device: its ordinal in this process.
pub type CuDevice = c_int;
/// An address in device or unified memory.
pub type CuDevicePtr = u64;
/// An address in the 32-bit form of the first ABI (before CUDA 3.2).
pub type CuDevicePtrV1 = u32;
/// `CUmemGenericAllocationHandle`.
pub type CuMemGenericAllocationHandle = c_ulonglong;
/// `CUlogicalEndpointId`.
pub type CuLogicalEndpointId = u32;
/// `CUgraphConditionalHandle`.
pub type CuGraphConditionalHandle = u64;
/// `CUtexObject`.
pub type CuTexObject = c_ulonglong;
/// `CUsurfObject`.
pub type CuSurfObject = c_ulonglong;
/// `CUlogIterator`.
pub type CuLogIterator = c_uint;

/// `CUasyncCallback`.
pub type CuAsyncCallback =
    Option<unsafe extern "C" fn(*mut CuAsyncNotificationInfo, *mut c_void, CuAsyncCallbackHandle)>;
/// `CUcoredumpStatusCallback`.
pub type CuCoredumpStatusCallback = Option<unsafe extern "C" fn(*mut c_void, c_int, CuDevice)>;
/// `CUgraphRecaptureCallback`.
pub type CuGraphRecaptureCallback = Option<
    unsafe extern "C" fn(
        *mut c_void,
        CuGraphNode,
        *const CuGraphNodeParams,
        *const CuGraphNodeParams,
        c_int,
    ) -> CuResult,
>;
/// `CUhostFn`.
pub type CuHostFn = Option<unsafe extern "C" fn(*mut c_void)>;
/// `CUlogsCallback`.
pub type CuLogsCallback = Option<unsafe extern "C" fn(*mut c_void, c_int, *mut c_char, usize)>;
/// `CUoccupancyB2DSize`.
pub type CuOccupancyB2DSize = Option<unsafe extern "C" fn(c_int) -> usize>;
/// `CUstreamCallback`.
pub type CuStreamCallback = Option<unsafe extern "C" fn(CuStream, CuResult, *mut c_void)>;

handles! {
    CuArray = "CUarray",
    CuAsyncCallbackHandle = "CUasyncCallbackHandle",
    CuCheckpointOperationHandle = "CUcheckpointOperationHandle",
    CuContext = "CUcontext",
    CuCoredumpCallbackHandle = "CUcoredumpCallbackHandle",
    CuDevResourceDesc = "CUdevResourceDesc",
    CuEglStreamConnection = "CUeglStreamConnection",
    CuEvent = "CUevent",
    CuExternalMemory = "CUexternalMemory",
    CuExternalSemaphore = "CUexternalSemaphore",
    CuFunction = "CUfunction",
    CuGraph = "CUgraph",
    CuGraphDeviceNode = "CUgraphDeviceNode",
    CuGraphExec = "CUgraphExec",
    CuGraphNode = "CUgraphNode",
    CuGraphicsResource = "CUgraphicsResource",
    CuGreenCtx = "CUgreenCtx",
    CuKernel = "CUkernel",
    CuLibrary = "CUlibrary",
    CuLinkState = "CUlinkState",
    CuLogsCallbackHandle = "CUlogsCallbackHandle",
    CuMemoryPool = "CUmemoryPool",
    CuMipmappedArray = "CUmipmappedArray",
    CuModule = "CUmodule",
    CuStream = "CUstream",
    CuSurfref = "CUsurfref",
    CuTexref = "CUtexref",
    CuUserObject = "CUuserObject",
}

impl CuStream {
    /// The legacy default stream, by name (`CU_STREAM_LEGACY`).
    pub const LEGACY: Self = Self(core::ptr::without_provenance_mut(1));
    /// The thread's own default stream, by name (`CU_STREAM_PER_THREAD`).
    pub const PER_THREAD: Self = Self(core::ptr::without_provenance_mut(2));
}
