// SPDX-License-Identifier: Apache-2.0
//! Arrays, textures and tensor maps.

use super::*;

c_layouts! {
    struct CudaArrayDescriptor = "CUDA_ARRAY_DESCRIPTOR" {
        Width: usize,
        Height: usize,
        Format: c_int,
        NumChannels: c_uint,
    }
    struct CudaArraySparsePropertiesTileExtent = "CUDA_ARRAY_SPARSE_PROPERTIES.tileExtent" {
        width: c_uint,
        height: c_uint,
        depth: c_uint,
    }
    struct CudaArraySparseProperties = "CUDA_ARRAY_SPARSE_PROPERTIES" {
        tileExtent: CudaArraySparsePropertiesTileExtent,
        miptailFirstLevel: c_uint,
        miptailSize: c_ulonglong,
        flags: c_uint,
        reserved: [c_uint; 4],
    }
    struct CudaArrayMemoryRequirements = "CUDA_ARRAY_MEMORY_REQUIREMENTS" {
        size: usize,
        alignment: usize,
        reserved: [c_uint; 4],
    }
    struct CudaArray3dDescriptor = "CUDA_ARRAY3D_DESCRIPTOR" {
        Width: usize,
        Height: usize,
        Depth: usize,
        Format: c_int,
        NumChannels: c_uint,
        Flags: c_uint,
    }
    union CuArrayMapInfoResource = "CUarrayMapInfo.resource" {
        mipmap: CuMipmappedArray,
        array: CuArray,
    }
    struct CuArrayMapInfoSubresourceSparseLevel = "CUarrayMapInfo.subresource.sparseLevel" {
        level: c_uint,
        layer: c_uint,
        offsetX: c_uint,
        offsetY: c_uint,
        offsetZ: c_uint,
        extentWidth: c_uint,
        extentHeight: c_uint,
        extentDepth: c_uint,
    }
    struct CuArrayMapInfoSubresourceMiptail = "CUarrayMapInfo.subresource.miptail" {
        layer: c_uint,
        offset: c_ulonglong,
        size: c_ulonglong,
    }
    union CuArrayMapInfoSubresource = "CUarrayMapInfo.subresource" {
        sparseLevel: CuArrayMapInfoSubresourceSparseLevel,
        miptail: CuArrayMapInfoSubresourceMiptail,
    }
    union CuArrayMapInfoMemHandle = "CUarrayMapInfo.memHandle" {
        memHandle: CuMemGenericAllocationHandle,
    }
    struct CuArrayMapInfo = "CUarrayMapInfo" {
        resourceType: c_int,
        resource: CuArrayMapInfoResource,
        subresourceType: c_int,
        subresource: CuArrayMapInfoSubresource,
        memOperationType: c_int,
        memHandleType: c_int,
        memHandle: CuArrayMapInfoMemHandle,
        offset: c_ulonglong,
        deviceBitMask: c_uint,
        flags: c_uint,
        reserved: [c_uint; 2],
    }
    struct CudaResourceDescResArray = "CUDA_RESOURCE_DESC.res.array" {
        hArray: CuArray,
    }
    struct CudaResourceDescResMipmap = "CUDA_RESOURCE_DESC.res.mipmap" {
        hMipmappedArray: CuMipmappedArray,
    }
    struct CudaResourceDescResLinear = "CUDA_RESOURCE_DESC.res.linear" {
        devPtr: CuDevicePtr,
        format: c_int,
        numChannels: c_uint,
        sizeInBytes: usize,
    }
    struct CudaResourceDescResPitch2D = "CUDA_RESOURCE_DESC.res.pitch2D" {
        devPtr: CuDevicePtr,
        format: c_int,
        numChannels: c_uint,
        width: usize,
        height: usize,
        pitchInBytes: usize,
    }
    struct CudaResourceDescResReserved = "CUDA_RESOURCE_DESC.res.reserved" {
        reserved: [c_int; 32],
    }
    union CudaResourceDescRes = "CUDA_RESOURCE_DESC.res" {
        array: CudaResourceDescResArray,
        mipmap: CudaResourceDescResMipmap,
        linear: CudaResourceDescResLinear,
        pitch2D: CudaResourceDescResPitch2D,
        reserved: CudaResourceDescResReserved,
    }
    struct CudaResourceDesc = "CUDA_RESOURCE_DESC" {
        resType: c_int,
        res: CudaResourceDescRes,
        flags: c_uint,
    }
    struct CudaTextureDesc = "CUDA_TEXTURE_DESC" {
        addressMode: [c_int; 3],
        filterMode: c_int,
        flags: c_uint,
        maxAnisotropy: c_uint,
        mipmapFilterMode: c_int,
        mipmapLevelBias: f32,
        minMipmapLevelClamp: f32,
        maxMipmapLevelClamp: f32,
        borderColor: [f32; 4],
        reserved: [c_int; 12],
    }
    struct CudaResourceViewDesc = "CUDA_RESOURCE_VIEW_DESC" {
        format: c_int,
        width: usize,
        height: usize,
        depth: usize,
        firstMipmapLevel: c_uint,
        lastMipmapLevel: c_uint,
        firstLayer: c_uint,
        lastLayer: c_uint,
        reserved: [c_uint; 16],
    }
    struct CuTensorMap = "CUtensorMap" align 128 {
        opaque: [u64; 16],
    }
    struct CudaArrayDescriptorV1 = "CUDA_ARRAY_DESCRIPTOR_v1" {
        Width: c_uint,
        Height: c_uint,
        Format: c_int,
        NumChannels: c_uint,
    }
    struct CudaArray3dDescriptorV1 = "CUDA_ARRAY3D_DESCRIPTOR_v1" {
        Width: c_uint,
        Height: c_uint,
        Depth: c_uint,
        Format: c_int,
        NumChannels: c_uint,
        Flags: c_uint,
    }
}
