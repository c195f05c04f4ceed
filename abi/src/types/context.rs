// SPDX-License-Identifier: Apache-2.0
//! Devices, contexts and their resources.

use super::*;

c_layouts! {
    struct CuUuid = "CUuuid" {
        bytes: [c_char; 16],
    }
    struct CuDevprop = "CUdevprop" {
        maxThreadsPerBlock: c_int,
        maxThreadsDim: [c_int; 3],
        maxGridSize: [c_int; 3],
        sharedMemPerBlock: c_int,
        totalConstantMemory: c_int,
        SIMDWidth: c_int,
        memPitch: c_int,
        regsPerBlock: c_int,
        clockRate: c_int,
        textureAlign: c_int,
    }
    struct CuExecAffinitySmCount = "CUexecAffinitySmCount" {
        val: c_uint,
    }
    union CuExecAffinityParamParam = "CUexecAffinityParam.param" {
        smCount: CuExecAffinitySmCount,
    }
    struct CuExecAffinityParam = "CUexecAffinityParam" {
        kind = "type": c_int,
        param: CuExecAffinityParamParam,
    }
    struct CuCtxCigParam = "CUctxCigParam" {
        sharedDataType: c_int,
        sharedData: *mut c_void,
    }
    struct CuCtxCreateParams = "CUctxCreateParams" {
        execAffinityParams: *mut CuExecAffinityParam,
        numExecAffinityParams: c_int,
        cigParams: *mut CuCtxCigParam,
    }
    struct CuAsyncNotificationInfoInfoOverBudget = "CUasyncNotificationInfo.info.overBudget" {
        bytesOverBudget: c_ulonglong,
    }
    union CuAsyncNotificationInfoInfo = "CUasyncNotificationInfo.info" {
        overBudget: CuAsyncNotificationInfoInfoOverBudget,
    }
    struct CuAsyncNotificationInfo = "CUasyncNotificationInfo" {
        kind = "type": c_int,
        info: CuAsyncNotificationInfoInfo,
    }
    struct CuDevSmResource = "CUdevSmResource" {
        smCount: c_uint,
        minSmPartitionSize: c_uint,
        smCoscheduledAlignment: c_uint,
        flags: c_uint,
        localityDomainId: c_uint,
    }
    struct CuDevWorkqueueConfigResource = "CUdevWorkqueueConfigResource" {
        device: CuDevice,
        wqConcurrencyLimit: c_uint,
        sharingScope: c_int,
    }
    struct CuDevWorkqueueResource = "CUdevWorkqueueResource" {
        reserved: [c_uchar; 40],
    }
    union CuDevResourceResource = "" {
        sm: CuDevSmResource,
        wqConfig: CuDevWorkqueueConfigResource,
        wq: CuDevWorkqueueResource,
        _oversize: [c_uchar; 40],
    }
    struct CuDevResource = "CUdevResource" {
        kind = "type": c_int,
        _internal_padding: [c_uchar; 92],
        resource = "sm": CuDevResourceResource,
        nextResource: *mut CuDevResource,
    }
    struct CuDevSmResourceGroupParams = "CU_DEV_SM_RESOURCE_GROUP_PARAMS" {
        smCount: c_uint,
        coscheduledSmCount: c_uint,
        preferredCoscheduledSmCount: c_uint,
        flags: c_uint,
        localityDomainId: c_uint,
        reserved: [c_uint; 11],
    }
}
