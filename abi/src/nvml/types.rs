// SPDX-License-Identifier: Apache-2.0
//! Types of NVML that Partage or its simulated library reads; the conventions are those of the driver's types.
//!
//! Structs with a `version` member carry `size | version << 24` there, which the caller sets.

use super::NvmlReturn;
use crate::types::layout::{c_layouts, handles};
pub use crate::types::{
    c_char, c_int, c_longlong, c_schar, c_short, c_uchar, c_uint, c_ulong, c_ulonglong, c_ushort, c_void,
};

handles! {
    NvmlComputeInstance = "nvmlComputeInstance_t",
    NvmlDevice = "nvmlDevice_t",
    NvmlEventSet = "nvmlEventSet_t",
    NvmlGpmSample = "nvmlGpmSample_t",
    NvmlGpuInstance = "nvmlGpuInstance_t",
    NvmlSystemEventSet = "nvmlSystemEventSet_t",
    NvmlUnit = "nvmlUnit_t",
}

/// `nvmlAffinityScope_t`.
pub type NvmlAffinityScope = c_uint;
/// `nvmlFanControlPolicy_t`.
pub type NvmlFanControlPolicy = c_uint;
/// `nvmlVgpuInstance_t`.
pub type NvmlVgpuInstance = c_uint;
/// `nvmlPowerSource_t`.
pub type NvmlPowerSource = c_uint;
/// `nvmlBusType_t`.
pub type NvmlBusType = c_uint;
/// `nvmlDeviceArchitecture_t`.
pub type NvmlDeviceArchitecture = c_uint;
/// `nvmlVgpuTypeId_t`.
pub type NvmlVgpuTypeId = c_uint;

c_layouts! {
    struct NvmlDeviceAttributes = "nvmlDeviceAttributes_t" {
        multiprocessorCount: c_uint,
        sharedCopyEngineCount: c_uint,
        sharedDecoderCount: c_uint,
        sharedEncoderCount: c_uint,
        sharedJpegCount: c_uint,
        sharedOfaCount: c_uint,
        gpuInstanceSliceCount: c_uint,
        computeInstanceSliceCount: c_uint,
        memorySizeMB: c_ulonglong,
    }
    union NvmlUUIDValue = "nvmlUUIDValue_t" {
        str: [c_char; 41],
        bytes: [c_uchar; 16],
    }
    struct NvmlUUID = "nvmlUUID_t" {
        version: c_uint,
        kind = "type": c_uint,
        value: NvmlUUIDValue,
    }
    struct NvmlPciInfoExt = "nvmlPciInfoExt_t" {
        version: c_uint,
        domain: c_uint,
        bus: c_uint,
        device: c_uint,
        pciDeviceId: c_uint,
        pciSubSystemId: c_uint,
        baseClass: c_uint,
        subClass: c_uint,
        busId: [c_char; 32],
    }
    struct NvmlPciInfo = "nvmlPciInfo_t" {
        busIdLegacy: [c_char; 16],
        domain: c_uint,
        bus: c_uint,
        device: c_uint,
        pciDeviceId: c_uint,
        pciSubSystemId: c_uint,
        busId: [c_char; 32],
    }
    // The older versions of a structure have no name in the header, where all prototypes take the newest.
    struct NvmlPciInfoV1 = "" {
        busId: [c_char; 16],
        domain: c_uint,
        bus: c_uint,
        device: c_uint,
        pciDeviceId: c_uint,
    }
    struct NvmlPciInfoV2 = "" {
        busId: [c_char; 16],
        domain: c_uint,
        bus: c_uint,
        device: c_uint,
        pciDeviceId: c_uint,
        pciSubSystemId: c_uint,
        reserved: [c_uint; 4],
    }
    struct NvmlMemory = "nvmlMemory_t" {
        total: c_ulonglong,
        free: c_ulonglong,
        used: c_ulonglong,
    }
    struct NvmlMemoryV2 = "nvmlMemory_v2_t" {
        version: c_uint,
        total: c_ulonglong,
        reserved: c_ulonglong,
        free: c_ulonglong,
        used: c_ulonglong,
    }
    struct NvmlSetMemoryLimitsV1 = "nvmlSetMemoryLimits_v1_t" {
        nameSpace: *const c_char,
        softLimit: c_ulonglong,
        hardLimit: c_ulonglong,
    }
    struct NvmlGetMemoryLimitsV1 = "nvmlGetMemoryLimits_v1_t" {
        nameSpace: *const c_char,
        softLimit: c_ulonglong,
        hardLimit: c_ulonglong,
        currentUsed: c_ulonglong,
    }
    struct NvmlUtilization = "nvmlUtilization_t" {
        gpu: c_uint,
        memory: c_uint,
    }
    struct NvmlProcessInfo = "nvmlProcessInfo_t" {
        pid: c_uint,
        usedGpuMemory: c_ulonglong,
        gpuInstanceId: c_uint,
        computeInstanceId: c_uint,
    }
    struct NvmlProcessDetailV1 = "nvmlProcessDetail_v1_t" {
        pid: c_uint,
        usedGpuMemory: c_ulonglong,
        gpuInstanceId: c_uint,
        computeInstanceId: c_uint,
        usedGpuCcProtectedMemory: c_ulonglong,
    }
    struct NvmlProcessDetailList = "nvmlProcessDetailList_t" {
        version: c_uint,
        mode: c_uint,
        numProcArrayEntries: c_uint,
        procArray: *mut NvmlProcessDetailV1,
    }
    union NvmlValue = "nvmlValue_t" {
        dVal: f64,
        siVal: c_int,
        uiVal: c_uint,
        ulVal: c_ulong,
        ullVal: c_ulonglong,
        sllVal: c_longlong,
        usVal: c_ushort,
    }
    struct NvmlSample = "nvmlSample_t" {
        timeStamp: c_ulonglong,
        sampleValue: NvmlValue,
    }
    struct NvmlBAR1Memory = "nvmlBAR1Memory_t" {
        bar1Total: c_ulonglong,
        bar1Free: c_ulonglong,
        bar1Used: c_ulonglong,
    }
    struct NvmlViolationTime = "nvmlViolationTime_t" {
        referenceTime: c_ulonglong,
        violationTime: c_ulonglong,
    }
    struct NvmlAccountingStats = "nvmlAccountingStats_t" {
        gpuUtilization: c_uint,
        memoryUtilization: c_uint,
        maxMemoryUsage: c_ulonglong,
        time: c_ulonglong,
        startTime: c_ulonglong,
        isRunning: c_uint,
        reserved: [c_uint; 5],
    }
    struct NvmlProcessUtilizationSample = "nvmlProcessUtilizationSample_t" {
        pid: c_uint,
        timeStamp: c_ulonglong,
        smUtil: c_uint,
        memUtil: c_uint,
        encUtil: c_uint,
        decUtil: c_uint,
    }
    struct NvmlProcessUtilizationInfoV1 = "nvmlProcessUtilizationInfo_v1_t" {
        timeStamp: c_ulonglong,
        pid: c_uint,
        smUtil: c_uint,
        memUtil: c_uint,
        encUtil: c_uint,
        decUtil: c_uint,
        jpgUtil: c_uint,
        ofaUtil: c_uint,
    }
    struct NvmlProcessesUtilizationInfo = "nvmlProcessesUtilizationInfo_t" {
        version: c_uint,
        processSamplesCount: c_uint,
        lastSeenTimeStamp: c_ulonglong,
        procUtilArray: *mut NvmlProcessUtilizationInfoV1,
    }
    struct NvmlEventData = "nvmlEventData_t" {
        device: NvmlDevice,
        eventType: c_ulonglong,
        eventData: c_ulonglong,
        gpuInstanceId: c_uint,
        computeInstanceId: c_uint,
    }
    struct NvmlEventDataV1 = "" {
        device: NvmlDevice,
        eventType: c_ulonglong,
        eventData: c_ulonglong,
    }
    struct NvmlFieldValue = "nvmlFieldValue_t" {
        fieldId: c_uint,
        scopeId: c_uint,
        timestamp: c_longlong,
        latencyUsec: c_longlong,
        valueType: c_int,
        nvmlReturn: NvmlReturn,
        value: NvmlValue,
    }
    struct NvmlGpuInstancePlacement = "nvmlGpuInstancePlacement_t" {
        start: c_uint,
        size: c_uint,
    }
    struct NvmlGpuInstanceInfo = "nvmlGpuInstanceInfo_t" {
        device: NvmlDevice,
        id: c_uint,
        profileId: c_uint,
        placement: NvmlGpuInstancePlacement,
    }
    struct NvmlComputeInstancePlacement = "nvmlComputeInstancePlacement_t" {
        start: c_uint,
        size: c_uint,
    }
    struct NvmlComputeInstanceInfo = "nvmlComputeInstanceInfo_t" {
        device: NvmlDevice,
        gpuInstance: NvmlGpuInstance,
        id: c_uint,
        profileId: c_uint,
        placement: NvmlComputeInstancePlacement,
    }
    struct NvmlComputeInstanceInfoV1 = "" {
        device: NvmlDevice,
        gpuInstance: NvmlGpuInstance,
        id: c_uint,
        profileId: c_uint,
    }
    struct NvmlProcessInfoV1 = "nvmlProcessInfo_v1_t" {
        pid: c_uint,
        usedGpuMemory: c_ulonglong,
    }
    struct NvmlProcessInfoV2 = "nvmlProcessInfo_v2_t" {
        pid: c_uint,
        usedGpuMemory: c_ulonglong,
        gpuInstanceId: c_uint,
        computeInstanceId: c_uint,
    }
}
