// SPDX-License-Identifier: Apache-2.0
//! Struct layouts against cudarc's bindings: a second opinion that needs no headers.

use core::mem::offset_of;

use cudarc::driver::sys;
use partage_abi::types::*;

/// Size and alignment, and the offsets of the members named.
macro_rules! same {
    ($( $ours:ident = $theirs:ident { $($field:ident $(= $their_field:ident)?),* } )*) => { $(
        assert_eq!(size_of::<$ours>(), size_of::<sys::$theirs>(), "size of {}", stringify!($ours));
        assert_eq!(align_of::<$ours>(), align_of::<sys::$theirs>(), "alignment of {}", stringify!($ours));
        $( assert_eq!(
            offset_of!($ours, $field),
            same!(@offset $theirs $field $($their_field)?),
            "{}.{}", stringify!($ours), stringify!($field)
        ); )*
    )* };
    (@offset $theirs:ident $field:ident) => { offset_of!(sys::$theirs, $field) };
    (@offset $theirs:ident $field:ident $their_field:ident) => { offset_of!(sys::$theirs, $their_field) };
}

#[test]
fn copies_and_arrays() {
    same! {
        CudaMemcpy2d = CUDA_MEMCPY2D_v2 { srcXInBytes, srcMemoryType, srcHost, srcDevice, srcArray, dstPitch, Height }
        CudaMemcpy3d = CUDA_MEMCPY3D_v2 { srcZ, srcLOD, srcMemoryType, srcHost, reserved0, dstHost, dstDevice, Depth }
        CudaMemcpy3dPeer = CUDA_MEMCPY3D_PEER_v1 { srcContext, srcPitch, dstContext, dstHeight, Depth }
        CudaArrayDescriptor = CUDA_ARRAY_DESCRIPTOR_v2 { Width, Height, Format, NumChannels }
        CudaArray3dDescriptor = CUDA_ARRAY3D_DESCRIPTOR_v2 { Width, Depth, Format, NumChannels, Flags }
        CudaResourceDesc = CUDA_RESOURCE_DESC_v1 { flags }
        CudaTextureDesc = CUDA_TEXTURE_DESC_v1 { flags, maxAnisotropy, borderColor }
        CudaResourceViewDesc = CUDA_RESOURCE_VIEW_DESC_v1 { format, depth, lastLayer }
        CuTensorMap = CUtensorMap { opaque }
    }
}

#[test]
fn memory() {
    same! {
        CuMemAllocationProp = CUmemAllocationProp_v1 { kind = type_, requestedHandleTypes, location, allocFlags }
        CuMemLocation = CUmemLocation_v1 { kind = type_ }
        CuMemAccessDesc = CUmemAccessDesc_v1 { location, flags }
        CuMemPoolProps = CUmemPoolProps_v1 { allocType, handleTypes, location, maxSize, usage }
        CuMemPoolPtrExportData = CUmemPoolPtrExportData_v1 { reserved }
        CuIpcMemHandle = CUipcMemHandle_v1 { reserved }
        CuIpcEventHandle = CUipcEventHandle_v1 { reserved }
        CuArrayMapInfo = CUarrayMapInfo_v1 { resourceType, subresourceType, memHandleType, offset, flags }
        CuMulticastObjectProp = CUmulticastObjectProp_v1 { numDevices, size, handleTypes, flags }
    }
}

#[test]
fn contexts_and_devices() {
    same! {
        CuUuid = CUuuid { bytes }
        CuDevprop = CUdevprop_v1 { maxThreadsPerBlock, sharedMemPerBlock, clockRate, textureAlign }
        CuExecAffinityParam = CUexecAffinityParam_v1 { kind = type_, param }
        CuCtxCreateParams = CUctxCreateParams { execAffinityParams, numExecAffinityParams, cigParams }
        CuDevResource = CUdevResource_v1 { kind = type_ }
        CuCheckpointLockArgs = CUcheckpointLockArgs { timeoutMs }
        CuCheckpointCheckpointArgs = CUcheckpointCheckpointArgs {}
        CuCheckpointRestoreArgs = CUcheckpointRestoreArgs { gpuPairs, gpuPairsCount }
        CuCheckpointUnlockArgs = CUcheckpointUnlockArgs {}
        CuCheckpointGpuPair = CUcheckpointGpuPair { oldUuid, newUuid }
    }
}

#[test]
fn launches_and_graphs() {
    same! {
        CuLaunchConfig = CUlaunchConfig { gridDimX, blockDimX, sharedMemBytes, hStream, attrs, numAttrs }
        CuLaunchAttribute = CUlaunchAttribute { id, value }
        CudaKernelNodeParamsV1 = CUDA_KERNEL_NODE_PARAMS_v1 { func, gridDimX, sharedMemBytes, kernelParams, extra }
        CudaKernelNodeParams = CUDA_KERNEL_NODE_PARAMS_v2 { func, kernelParams, extra, kern, ctx }
        CudaKernelNodeParamsV3 = CUDA_KERNEL_NODE_PARAMS_v3 { func, kernelParams, extra, kern, ctx }
        CudaMemsetNodeParams = CUDA_MEMSET_NODE_PARAMS_v1 { dst, pitch, value, elementSize, width, height }
        CudaMemsetNodeParamsV2 = CUDA_MEMSET_NODE_PARAMS_v2 { dst, height, ctx }
        CudaHostNodeParams = CUDA_HOST_NODE_PARAMS_v1 { function = fn_, userData }
        CudaMemcpyNodeParams = CUDA_MEMCPY_NODE_PARAMS { flags, copyCtx, copyParams }
        CudaMemAllocNodeParams = CUDA_MEM_ALLOC_NODE_PARAMS_v1 { poolProps, accessDescs, bytesize, dptr }
        CudaGraphInstantiateParams = CUDA_GRAPH_INSTANTIATE_PARAMS { flags, hUploadStream, hErrNode_out, result_out }
        CuGraphExecUpdateResultInfo = CUgraphExecUpdateResultInfo_v1 { result, errorNode, errorFromNode }
        CuGraphEdgeData = CUgraphEdgeData { from_port, to_port, kind = type_ }
        CuGraphNodeParams = CUgraphNodeParams { kind = type_, reserved2 }
        CuStreamBatchMemOpParams = CUstreamBatchMemOpParams_v1 {}
    }
}

/// Both lists of codes agree where both have one.
#[test]
fn result_codes() {
    assert_eq!(
        CuResult::OUT_OF_MEMORY.0,
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as i32
    );
    assert_eq!(CuResult::STUB_LIBRARY.0, sys::CUresult::CUDA_ERROR_STUB_LIBRARY as i32);
    assert_eq!(
        CuResult::NOT_SUPPORTED.0,
        sys::CUresult::CUDA_ERROR_NOT_SUPPORTED as i32
    );
    assert_eq!(CuResult::UNKNOWN.0, sys::CUresult::CUDA_ERROR_UNKNOWN as i32);
}
