// SPDX-License-Identifier: Apache-2.0
//! Kernel launches and their attributes.

use super::*;

c_layouts! {
    struct CuAccessPolicyWindow = "CUaccessPolicyWindow" {
        base_ptr: *mut c_void,
        num_bytes: usize,
        hitRatio: f32,
        hitProp: c_int,
        missProp: c_int,
    }
    struct CuLaunchAttributeValueClusterDim = "CUlaunchAttributeValue.clusterDim" {
        x: c_uint,
        y: c_uint,
        z: c_uint,
    }
    struct CuLaunchAttributeValueProgrammaticEvent = "CUlaunchAttributeValue.programmaticEvent" {
        event: CuEvent,
        flags: c_int,
        triggerAtBlockStart: c_int,
    }
    struct CuLaunchAttributeValueLaunchCompletionEvent = "CUlaunchAttributeValue.launchCompletionEvent" {
        event: CuEvent,
        flags: c_int,
    }
    struct CuLaunchMemSyncDomainMap = "CUlaunchMemSyncDomainMap" {
        default_: c_uchar,
        remote: c_uchar,
    }
    struct CuLaunchAttributeValuePreferredClusterDim = "CUlaunchAttributeValue.preferredClusterDim" {
        x: c_uint,
        y: c_uint,
        z: c_uint,
    }
    struct CuLaunchAttributeValueDeviceUpdatableKernelNode = "CUlaunchAttributeValue.deviceUpdatableKernelNode" {
        deviceUpdatable: c_int,
        devNode: CuGraphDeviceNode,
    }
    union CuLaunchAttributeValue = "CUlaunchAttributeValue" {
        pad: [c_char; 64],
        accessPolicyWindow: CuAccessPolicyWindow,
        cooperative: c_int,
        syncPolicy: c_int,
        clusterDim: CuLaunchAttributeValueClusterDim,
        clusterSchedulingPolicyPreference: c_int,
        programmaticStreamSerializationAllowed: c_int,
        programmaticEvent: CuLaunchAttributeValueProgrammaticEvent,
        launchCompletionEvent: CuLaunchAttributeValueLaunchCompletionEvent,
        priority: c_int,
        memSyncDomainMap: CuLaunchMemSyncDomainMap,
        memSyncDomain: c_int,
        preferredClusterDim: CuLaunchAttributeValuePreferredClusterDim,
        deviceUpdatableKernelNode: CuLaunchAttributeValueDeviceUpdatableKernelNode,
        sharedMemCarveout: c_uint,
        nvlinkUtilCentricScheduling: c_uint,
        portableClusterSizeMode: c_int,
        sharedMemoryMode: c_int,
    }
    struct CuLaunchAttribute = "CUlaunchAttribute" {
        id: c_int,
        pad: [c_char; 4],
        value: CuLaunchAttributeValue,
    }
    struct CuLaunchConfig = "CUlaunchConfig" {
        gridDimX: c_uint,
        gridDimY: c_uint,
        gridDimZ: c_uint,
        blockDimX: c_uint,
        blockDimY: c_uint,
        blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        hStream: CuStream,
        attrs: *mut CuLaunchAttribute,
        numAttrs: c_uint,
    }
    struct CudaLaunchParams = "CUDA_LAUNCH_PARAMS" {
        function: CuFunction,
        gridDimX: c_uint,
        gridDimY: c_uint,
        gridDimZ: c_uint,
        blockDimX: c_uint,
        blockDimY: c_uint,
        blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        hStream: CuStream,
        kernelParams: *mut *mut c_void,
    }
}
