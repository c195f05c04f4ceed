// SPDX-License-Identifier: Apache-2.0
//! The table of NVML: one row per exported function, in the grammar of the driver table.
//!
//! Names and argument order are those of `nvml.h` 13.5 with the older versions of its functions. Only structs that we
//! or the simulated library read have a type; others are `c_void` behind their pointer. A test compares the names with
//! the header.

#[doc(hidden)]
#[macro_export]
macro_rules! nvml_chapters {
    (($($then:tt)*) $($with:tt)*) => { $($then)*! { $($with)*
    "Initialization and clean-up" {
        [track] nvmlInit();
        [track] nvmlInit_v2();
        [track] nvmlInitWithFlags(flags: c_uint);
        [pass] nvmlShutdown();
    }
    "Error reporting" {
        [pass] nvmlErrorString(result: NvmlReturn) -> *const c_char;
    }
    "System queries" {
        [pass] nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint);
        [pass] nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint);
        [pass] nvmlSystemGetCudaDriverVersion(cuda_driver_version: *mut c_int);
        [pass] nvmlSystemGetCudaDriverVersion_v2(cuda_driver_version: *mut c_int);
        [pass] nvmlSystemGetProcessName(pid: c_uint, name: *mut c_char, length: c_uint);
        [pass] nvmlSystemGetHicVersion(hwbc_count: *mut c_uint, hwbc_entries: *mut c_void);
        /// only the job's devices
        [answer] nvmlSystemGetTopologyGpuSet(cpu_number: c_uint, count: *mut c_uint, device_array: *mut NvmlDevice);
        [pass] nvmlSystemGetDriverBranch(branch_info: *mut c_void, length: c_uint);
        [pass] nvmlSystemGetCPER_v1(cper: *mut c_void);
    }
    "Unit queries" {
        [pass] nvmlUnitGetCount(unit_count: *mut c_uint);
        [pass] nvmlUnitGetHandleByIndex(index: c_uint, unit: *mut NvmlUnit);
        [pass] nvmlUnitGetUnitInfo(unit: NvmlUnit, info: *mut c_void);
        [pass] nvmlUnitGetLedState(unit: NvmlUnit, state: *mut c_void);
        [pass] nvmlUnitGetPsuInfo(unit: NvmlUnit, psu: *mut c_void);
        [pass] nvmlUnitGetTemperature(unit: NvmlUnit, kind: c_uint, temp: *mut c_uint);
        [pass] nvmlUnitGetFanSpeedInfo(unit: NvmlUnit, fan_speeds: *mut c_void);
        [pass] nvmlUnitGetDevices(unit: NvmlUnit, device_count: *mut c_uint, devices: *mut NvmlDevice);
    }
    "Device queries" {
        /// the job's devices, in PCI order
        [answer] nvmlDeviceGetCount(device_count: *mut c_uint);
        /// the job's devices, in PCI order
        [answer] nvmlDeviceGetCount_v2(device_count: *mut c_uint);
        [pass] nvmlDeviceGetAttributes(device: NvmlDevice, attributes: *mut NvmlDeviceAttributes);
        [pass] nvmlDeviceGetAttributes_v2(device: NvmlDevice, attributes: *mut NvmlDeviceAttributes);
        /// the job's devices, in PCI order
        [answer] nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut NvmlDevice);
        /// the job's devices, in PCI order
        [answer] nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut NvmlDevice);
        /// the job's devices, in PCI order
        [answer] nvmlDeviceGetHandleBySerial(serial: *const c_char, device: *mut NvmlDevice);
        /// the job's devices, in PCI order
        [answer] nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut NvmlDevice);
        /// the job's devices, in PCI order
        [answer] nvmlDeviceGetHandleByUUIDV(uuid: *const NvmlUUID, device: *mut NvmlDevice);
        /// the job's devices, in PCI order
        [answer] nvmlDeviceGetHandleByPciBusId(pci_bus_id: *const c_char, device: *mut NvmlDevice);
        /// the job's devices, in PCI order
        [answer] nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id: *const c_char, device: *mut NvmlDevice);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetName(device: NvmlDevice, name: *mut c_char, length: c_uint);
        [pass] nvmlDeviceGetBrand(device: NvmlDevice, kind: *mut c_int);
        /// the job's devices, in PCI order
        [answer] nvmlDeviceGetIndex(device: NvmlDevice, index: *mut c_uint);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetSerial(device: NvmlDevice, serial: *mut c_char, length: c_uint);
        [pass] nvmlDeviceGetModuleId(device: NvmlDevice, module_id: *mut c_uint);
        [pass] nvmlDeviceGetC2cModeInfoV(device: NvmlDevice, c2c_mode_info: *mut c_void);
        [pass] nvmlDeviceGetMemoryAffinity(
            device: NvmlDevice, node_set_size: c_uint, node_set: *mut c_ulong, scope: NvmlAffinityScope,
        );
        [pass] nvmlDeviceGetCpuAffinityWithinScope(
            device: NvmlDevice, cpu_set_size: c_uint, cpu_set: *mut c_ulong, scope: NvmlAffinityScope,
        );
        [pass] nvmlDeviceGetCpuAffinity(device: NvmlDevice, cpu_set_size: c_uint, cpu_set: *mut c_ulong);
        [pass] nvmlDeviceSetCpuAffinity(device: NvmlDevice);
        [pass] nvmlDeviceClearCpuAffinity(device: NvmlDevice);
        [pass] nvmlDeviceGetNumaNodeId(device: NvmlDevice, node: *mut c_uint);
        [pass] nvmlDeviceGetAddressingMode(device: NvmlDevice, mode: *mut c_void);
        [pass] nvmlDeviceGetRepairStatus(device: NvmlDevice, repair_status: *mut c_void);
        [pass] nvmlDeviceGetUnrepairableMemoryFlag_v1(device: NvmlDevice, unrepairable_memory_status: *mut c_void);
        [pass] nvmlDeviceGetTopologyCommonAncestor(device1: NvmlDevice, device2: NvmlDevice, path_info: *mut c_int);
        /// only the job's devices
        [answer] nvmlDeviceGetTopologyNearestGpus(
            device: NvmlDevice, level: c_int, count: *mut c_uint, device_array: *mut NvmlDevice,
        );
        [pass] nvmlDeviceGetP2PStatus(
            device1: NvmlDevice, device2: NvmlDevice, p2p_index: c_int, p2p_status: *mut c_int,
        );
        /// of the device that the slot has now
        [answer] nvmlDeviceGetUUID(device: NvmlDevice, uuid: *mut c_char, length: c_uint);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetMinorNumber(device: NvmlDevice, minor_number: *mut c_uint);
        [pass] nvmlDeviceGetBoardPartNumber(device: NvmlDevice, part_number: *mut c_char, length: c_uint);
        [pass] nvmlDeviceGetInforomVersion(device: NvmlDevice, object: c_int, version: *mut c_char, length: c_uint);
        [pass] nvmlDeviceGetInforomImageVersion(device: NvmlDevice, version: *mut c_char, length: c_uint);
        [pass] nvmlDeviceGetInforomConfigurationChecksum(device: NvmlDevice, checksum: *mut c_uint);
        [pass] nvmlDeviceValidateInforom(device: NvmlDevice);
        [pass] nvmlDeviceGetLastBBXFlushTime(
            device: NvmlDevice, timestamp: *mut c_ulonglong, duration_us: *mut c_ulong,
        );
        [pass] nvmlDeviceGetBBXTimeData_v1(device: NvmlDevice, time_data: *mut c_void);
        [pass] nvmlDeviceGetGpuUptime_v1(device: NvmlDevice, uptime: *mut c_void);
        [pass] nvmlDeviceGetDisplayMode(device: NvmlDevice, display: *mut c_int);
        [pass] nvmlDeviceGetDisplayActive(device: NvmlDevice, is_active: *mut c_int);
        [pass] nvmlDeviceGetPersistenceMode(device: NvmlDevice, mode: *mut c_int);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetPciInfoExt(device: NvmlDevice, pci: *mut NvmlPciInfoExt);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetPciInfo(device: NvmlDevice, pci: *mut NvmlPciInfoV1);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetPciInfo_v2(device: NvmlDevice, pci: *mut NvmlPciInfoV2);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetPciInfo_v3(device: NvmlDevice, pci: *mut NvmlPciInfo);
        [pass] nvmlDeviceGetMaxPcieLinkGeneration(device: NvmlDevice, max_link_gen: *mut c_uint);
        [pass] nvmlDeviceGetGpuMaxPcieLinkGeneration(device: NvmlDevice, max_link_gen_device: *mut c_uint);
        [pass] nvmlDeviceGetMaxPcieLinkWidth(device: NvmlDevice, max_link_width: *mut c_uint);
        [pass] nvmlDeviceGetCurrPcieLinkGeneration(device: NvmlDevice, curr_link_gen: *mut c_uint);
        [pass] nvmlDeviceGetCurrPcieLinkWidth(device: NvmlDevice, curr_link_width: *mut c_uint);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetPcieThroughput(device: NvmlDevice, counter: c_int, value: *mut c_uint);
        [pass] nvmlDeviceGetPcieReplayCounter(device: NvmlDevice, value: *mut c_uint);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetClockInfo(device: NvmlDevice, kind: c_int, clock: *mut c_uint);
        [pass] nvmlDeviceGetMaxClockInfo(device: NvmlDevice, kind: c_int, clock: *mut c_uint);
        [pass] nvmlDeviceGetGpcClkVfOffset(device: NvmlDevice, offset: *mut c_int);
        [pass] nvmlDeviceGetApplicationsClock(device: NvmlDevice, clock_type: c_int, clock_m_hz: *mut c_uint);
        [pass] nvmlDeviceGetDefaultApplicationsClock(device: NvmlDevice, clock_type: c_int, clock_m_hz: *mut c_uint);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetClock(device: NvmlDevice, clock_type: c_int, clock_id: c_int, clock_m_hz: *mut c_uint);
        [pass] nvmlDeviceGetMaxCustomerBoostClock(device: NvmlDevice, clock_type: c_int, clock_m_hz: *mut c_uint);
        [pass] nvmlDeviceGetSupportedMemoryClocks(device: NvmlDevice, count: *mut c_uint, clocks_m_hz: *mut c_uint);
        [pass] nvmlDeviceGetSupportedGraphicsClocks(
            device: NvmlDevice, memory_clock_m_hz: c_uint, count: *mut c_uint, clocks_m_hz: *mut c_uint,
        );
        [pass] nvmlDeviceGetAutoBoostedClocksEnabled(
            device: NvmlDevice, is_enabled: *mut c_int, default_is_enabled: *mut c_int,
        );
        /// of the device that the slot has now
        [answer] nvmlDeviceGetFanSpeed(device: NvmlDevice, speed: *mut c_uint);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetFanSpeed_v2(device: NvmlDevice, fan: c_uint, speed: *mut c_uint);
        [pass] nvmlDeviceGetFanSpeedRPM(device: NvmlDevice, fan_speed: *mut c_void);
        [pass] nvmlDeviceGetTargetFanSpeed(device: NvmlDevice, fan: c_uint, target_speed: *mut c_uint);
        [pass] nvmlDeviceGetMinMaxFanSpeed(device: NvmlDevice, min_speed: *mut c_uint, max_speed: *mut c_uint);
        [pass] nvmlDeviceGetFanControlPolicy_v2(device: NvmlDevice, fan: c_uint, policy: *mut NvmlFanControlPolicy);
        [pass] nvmlDeviceGetNumFans(device: NvmlDevice, num_fans: *mut c_uint);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetTemperature(device: NvmlDevice, sensor_type: c_int, temp: *mut c_uint);
        [pass] nvmlDeviceGetCoolerInfo(device: NvmlDevice, cooler_info: *mut c_void);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetTemperatureV(device: NvmlDevice, temperature: *mut c_void);
        [pass] nvmlDeviceGetTemperatureThreshold(device: NvmlDevice, threshold_type: c_int, temp: *mut c_uint);
        [pass] nvmlDeviceGetMarginTemperature(device: NvmlDevice, margin_temp_info: *mut c_void);
        [pass] nvmlDeviceGetThermalSettings(device: NvmlDevice, sensor_index: c_uint, thermal_settings: *mut c_void);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetPerformanceState(device: NvmlDevice, state: *mut c_int);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetCurrentClocksEventReasons(device: NvmlDevice, clocks_event_reasons: *mut c_ulonglong);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetCurrentClocksThrottleReasons(
            device: NvmlDevice, clocks_throttle_reasons: *mut c_ulonglong,
        );
        [pass] nvmlDeviceGetSupportedClocksEventReasons(
            device: NvmlDevice, supported_clocks_event_reasons: *mut c_ulonglong,
        );
        [pass] nvmlDeviceGetSupportedClocksThrottleReasons(
            device: NvmlDevice, supported_clocks_throttle_reasons: *mut c_ulonglong,
        );
        [pass] nvmlDeviceGetPowerState(device: NvmlDevice, state: *mut c_int);
        [pass] nvmlDeviceGetDynamicPstatesInfo(device: NvmlDevice, dynamic_pstates_info: *mut c_void);
        [pass] nvmlDeviceGetMemClkVfOffset(device: NvmlDevice, offset: *mut c_int);
        [pass] nvmlDeviceGetMinMaxClockOfPState(
            device: NvmlDevice, kind: c_int, pstate: c_int, min_clock_m_hz: *mut c_uint, max_clock_m_hz: *mut c_uint,
        );
        [pass] nvmlDeviceGetSupportedPerformanceStates(device: NvmlDevice, pstates: *mut c_int, size: c_uint);
        [pass] nvmlDeviceGetGpcClkMinMaxVfOffset(device: NvmlDevice, min_offset: *mut c_int, max_offset: *mut c_int);
        [pass] nvmlDeviceGetMemClkMinMaxVfOffset(device: NvmlDevice, min_offset: *mut c_int, max_offset: *mut c_int);
        [pass] nvmlDeviceGetClockOffsets(device: NvmlDevice, info: *mut c_void);
        [pass] nvmlDeviceSetClockOffsets(device: NvmlDevice, info: *mut c_void);
        [pass] nvmlDeviceGetPerformanceModes(device: NvmlDevice, perf_modes: *mut c_void);
        [pass] nvmlDeviceGetCurrentClockFreqs(device: NvmlDevice, current_clock_freqs: *mut c_void);
        [pass] nvmlDeviceGetPowerManagementMode(device: NvmlDevice, mode: *mut c_int);
        [pass] nvmlDeviceGetPowerManagementLimit(device: NvmlDevice, limit: *mut c_uint);
        [pass] nvmlDeviceGetPowerManagementLimitConstraints(
            device: NvmlDevice, min_limit: *mut c_uint, max_limit: *mut c_uint,
        );
        [pass] nvmlDeviceGetPowerManagementDefaultLimit(device: NvmlDevice, default_limit: *mut c_uint);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetPowerUsage(device: NvmlDevice, power: *mut c_uint);
        [pass] nvmlDeviceGetPowerMizerMode_v1(device: NvmlDevice, power_mizer_mode: *mut c_void);
        [pass] nvmlDeviceSetPowerMizerMode_v1(device: NvmlDevice, power_mizer_mode: *mut c_void);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetTotalEnergyConsumption(device: NvmlDevice, energy: *mut c_ulonglong);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetEnforcedPowerLimit(device: NvmlDevice, limit: *mut c_uint);
        [pass] nvmlDeviceSetAdaptiveTgpMode_v1(device: NvmlDevice, mode: c_int);
        [pass] nvmlDeviceGetAdaptiveTgpModeInfo_v1(device: NvmlDevice, info: *mut c_void);
        [pass] nvmlDeviceGetGpuOperationMode(device: NvmlDevice, current: *mut c_int, pending: *mut c_int);
        /// the job's limit as the whole card
        [answer] nvmlDeviceGetMemoryInfo(device: NvmlDevice, memory: *mut NvmlMemory);
        /// the job's limit as the whole card
        [answer] nvmlDeviceGetMemoryInfo_v2(device: NvmlDevice, memory: *mut NvmlMemoryV2);
        [pass] nvmlDeviceSetMemoryLimits_v1(device: NvmlDevice, limits: *mut NvmlSetMemoryLimitsV1);
        [pass] nvmlDeviceGetMemoryLimits_v1(device: NvmlDevice, limits: *mut NvmlGetMemoryLimitsV1);
        [pass] nvmlDeviceGetComputeMode(device: NvmlDevice, mode: *mut c_int);
        [pass] nvmlDeviceGetCudaComputeCapability(device: NvmlDevice, major: *mut c_int, minor: *mut c_int);
        [pass] nvmlDeviceGetDramEncryptionMode(device: NvmlDevice, current: *mut c_void, pending: *mut c_void);
        [pass] nvmlDeviceSetDramEncryptionMode(device: NvmlDevice, dram_encryption: *const c_void);
        [pass] nvmlDeviceGetEccMode(device: NvmlDevice, current: *mut c_int, pending: *mut c_int);
        [pass] nvmlDeviceGetDefaultEccMode(device: NvmlDevice, default_mode: *mut c_int);
        /// of the device that the slot has now
        [answer] nvmlDeviceGetBoardId(device: NvmlDevice, board_id: *mut c_uint);
        [pass] nvmlDeviceGetMultiGpuBoard(device: NvmlDevice, multi_gpu_bool: *mut c_uint);
        [pass] nvmlDeviceGetTotalEccErrors(
            device: NvmlDevice, error_type: c_int, counter_type: c_int, ecc_counts: *mut c_ulonglong,
        );
        [pass] nvmlDeviceGetDetailedEccErrors(
            device: NvmlDevice, error_type: c_int, counter_type: c_int, ecc_counts: *mut c_void,
        );
        [pass] nvmlDeviceGetMemoryErrorCounter(
            device: NvmlDevice, error_type: c_int, counter_type: c_int, location_type: c_int, count: *mut c_ulonglong,
        );
        /// what the job's processes use, as far as NVML tells it by process
        [answer] nvmlDeviceGetUtilizationRates(device: NvmlDevice, utilization: *mut NvmlUtilization);
        [pass] nvmlDeviceGetEncoderUtilization(
            device: NvmlDevice, utilization: *mut c_uint, sampling_period_us: *mut c_uint,
        );
        [pass] nvmlDeviceGetEncoderCapacity(
            device: NvmlDevice, encoder_query_type: c_int, encoder_capacity: *mut c_uint,
        );
        [pass] nvmlDeviceGetEncoderStats(
            device: NvmlDevice, session_count: *mut c_uint, average_fps: *mut c_uint, average_latency: *mut c_uint,
        );
        [pass] nvmlDeviceGetEncoderSessions(device: NvmlDevice, session_count: *mut c_uint, session_infos: *mut c_void);
        [pass] nvmlDeviceGetDecoderUtilization(
            device: NvmlDevice, utilization: *mut c_uint, sampling_period_us: *mut c_uint,
        );
        [pass] nvmlDeviceGetJpgUtilization(
            device: NvmlDevice, utilization: *mut c_uint, sampling_period_us: *mut c_uint,
        );
        [pass] nvmlDeviceGetOfaUtilization(
            device: NvmlDevice, utilization: *mut c_uint, sampling_period_us: *mut c_uint,
        );
        [pass] nvmlDeviceGetFBCStats(device: NvmlDevice, fbc_stats: *mut c_void);
        [pass] nvmlDeviceGetFBCSessions(device: NvmlDevice, session_count: *mut c_uint, session_info: *mut c_void);
        [pass] nvmlDeviceGetDriverModel(device: NvmlDevice, current: *mut c_int, pending: *mut c_int);
        [pass] nvmlDeviceGetDriverModel_v2(device: NvmlDevice, current: *mut c_int, pending: *mut c_int);
        [pass] nvmlDeviceGetVbiosVersion(device: NvmlDevice, version: *mut c_char, length: c_uint);
        [pass] nvmlDeviceGetBridgeChipInfo(device: NvmlDevice, bridge_hierarchy: *mut c_void);
        /// only the job's processes
        [answer] nvmlDeviceGetComputeRunningProcesses(
            device: NvmlDevice, info_count: *mut c_uint, infos: *mut NvmlProcessInfoV1,
        );
        /// only the job's processes
        [answer] nvmlDeviceGetComputeRunningProcesses_v2(
            device: NvmlDevice, info_count: *mut c_uint, infos: *mut NvmlProcessInfoV2,
        );
        /// only the job's processes
        [answer] nvmlDeviceGetComputeRunningProcesses_v3(
            device: NvmlDevice, info_count: *mut c_uint, infos: *mut NvmlProcessInfo,
        );
        /// only the job's processes
        [answer] nvmlDeviceGetGraphicsRunningProcesses(
            device: NvmlDevice, info_count: *mut c_uint, infos: *mut NvmlProcessInfoV1,
        );
        /// only the job's processes
        [answer] nvmlDeviceGetGraphicsRunningProcesses_v2(
            device: NvmlDevice, info_count: *mut c_uint, infos: *mut NvmlProcessInfoV2,
        );
        /// only the job's processes
        [answer] nvmlDeviceGetGraphicsRunningProcesses_v3(
            device: NvmlDevice, info_count: *mut c_uint, infos: *mut NvmlProcessInfo,
        );
        /// only the job's processes
        [answer] nvmlDeviceGetMPSComputeRunningProcesses(
            device: NvmlDevice, info_count: *mut c_uint, infos: *mut NvmlProcessInfoV1,
        );
        /// only the job's processes
        [answer] nvmlDeviceGetMPSComputeRunningProcesses_v2(
            device: NvmlDevice, info_count: *mut c_uint, infos: *mut NvmlProcessInfoV2,
        );
        /// only the job's processes
        [answer] nvmlDeviceGetMPSComputeRunningProcesses_v3(
            device: NvmlDevice, info_count: *mut c_uint, infos: *mut NvmlProcessInfo,
        );
        /// only the job's processes
        [answer] nvmlDeviceGetRunningProcessDetailList(device: NvmlDevice, plist: *mut NvmlProcessDetailList);
        [pass] nvmlDeviceOnSameBoard(device1: NvmlDevice, device2: NvmlDevice, on_same_board: *mut c_int);
        [pass] nvmlDeviceGetAPIRestriction(device: NvmlDevice, api_type: c_int, is_restricted: *mut c_int);
        [pass] nvmlDeviceGetSamples(
            device: NvmlDevice, kind: c_int, last_seen_time_stamp: c_ulonglong, sample_val_type: *mut c_int,
            sample_count: *mut c_uint, samples: *mut NvmlSample,
        );
        [pass] nvmlDeviceGetBAR1MemoryInfo(device: NvmlDevice, bar1_memory: *mut NvmlBAR1Memory);
        [pass] nvmlDeviceGetViolationStatus(
            device: NvmlDevice, perf_policy_type: c_int, viol_time: *mut NvmlViolationTime,
        );
        [pass] nvmlDeviceGetIrqNum(device: NvmlDevice, irq_num: *mut c_uint);
        [pass] nvmlDeviceGetNumGpuCores(device: NvmlDevice, num_cores: *mut c_uint);
        [pass] nvmlDeviceGetPowerSource(device: NvmlDevice, power_source: *mut NvmlPowerSource);
        [pass] nvmlDeviceGetMemoryBusWidth(device: NvmlDevice, bus_width: *mut c_uint);
        [pass] nvmlDeviceGetPcieLinkMaxSpeed(device: NvmlDevice, max_speed: *mut c_uint);
        [pass] nvmlDeviceGetPcieSpeed(device: NvmlDevice, pcie_speed: *mut c_uint);
        [pass] nvmlDeviceGetAdaptiveClockInfoStatus(device: NvmlDevice, adaptive_clock_status: *mut c_uint);
        [pass] nvmlDeviceGetBusType(device: NvmlDevice, kind: *mut NvmlBusType);
        [pass] nvmlDeviceGetGpuFabricInfo(device: NvmlDevice, gpu_fabric_info: *mut c_void);
        [pass] nvmlDeviceGetGpuFabricInfo_v4(device: NvmlDevice, gpu_fabric_info: *mut c_void);
        [pass] nvmlDeviceGetGpuFabricInfoV(device: NvmlDevice, gpu_fabric_info: *mut c_void);
        [pass] nvmlSystemGetConfComputeCapabilities(capabilities: *mut c_void);
        [pass] nvmlSystemGetConfComputeState(state: *mut c_void);
        [pass] nvmlDeviceGetConfComputeMemSizeInfo(device: NvmlDevice, mem_info: *mut c_void);
        [pass] nvmlSystemGetConfComputeGpusReadyState(is_accepting_work: *mut c_uint);
        [pass] nvmlDeviceGetConfComputeProtectedMemoryUsage(device: NvmlDevice, memory: *mut NvmlMemory);
        [pass] nvmlDeviceGetConfComputeGpuCertificate(device: NvmlDevice, gpu_cert: *mut c_void);
        [pass] nvmlDeviceGetConfComputeGpuAttestationReport(device: NvmlDevice, gpu_atst_report: *mut c_void);
        [pass] nvmlSystemGetConfComputeKeyRotationThresholdInfo(key_rotation_thr_info: *mut c_void);
        [pass] nvmlDeviceSetConfComputeUnprotectedMemSize(device: NvmlDevice, size_ki_b: c_ulonglong);
        [pass] nvmlSystemSetConfComputeGpusReadyState(is_accepting_work: c_uint);
        [pass] nvmlSystemSetConfComputeKeyRotationThresholdInfo(key_rotation_thr_info: *mut c_void);
        [pass] nvmlSystemGetConfComputeSettings(settings: *mut c_void);
        [pass] nvmlSystemGetConfComputeSettings_v2(settings: *mut c_void);
        [pass] nvmlDeviceGetGspFirmwareVersion(device: NvmlDevice, version: *mut c_char);
        [pass] nvmlDeviceGetGspFirmwareMode(device: NvmlDevice, is_enabled: *mut c_uint, default_mode: *mut c_uint);
        [pass] nvmlDeviceGetSramEccErrorStatus(device: NvmlDevice, status: *mut c_void);
        [pass] nvmlDeviceSetPowerManagementLimit(device: NvmlDevice, limit: c_uint);
        [pass] nvmlDeviceSetPowerManagementLimit_v2(device: NvmlDevice, power_value: *mut c_void);
        [pass] nvmlDeviceGetAccountingMode(device: NvmlDevice, mode: *mut c_int);
        /// only the job's processes
        [answer] nvmlDeviceGetAccountingStats(device: NvmlDevice, pid: c_uint, stats: *mut NvmlAccountingStats);
        /// only the job's processes
        [answer] nvmlDeviceGetAccountingStats_v2(device: NvmlDevice, stats: *mut c_void);
        /// only the job's processes
        [answer] nvmlDeviceGetAccountingPids(device: NvmlDevice, count: *mut c_uint, pids: *mut c_uint);
        [pass] nvmlDeviceGetAccountingBufferSize(device: NvmlDevice, buffer_size: *mut c_uint);
        [pass] nvmlDeviceGetRetiredPages(
            device: NvmlDevice, cause: c_int, page_count: *mut c_uint, addresses: *mut c_ulonglong,
        );
        [pass] nvmlDeviceGetRetiredPages_v2(
            device: NvmlDevice, cause: c_int, page_count: *mut c_uint, addresses: *mut c_ulonglong,
            timestamps: *mut c_ulonglong,
        );
        [pass] nvmlDeviceGetRetiredPagesPendingStatus(device: NvmlDevice, is_pending: *mut c_int);
        [pass] nvmlDeviceGetRemappedRows(
            device: NvmlDevice, corr_rows: *mut c_uint, unc_rows: *mut c_uint, is_pending: *mut c_uint,
            failure_occurred: *mut c_uint,
        );
        [pass] nvmlDeviceGetRemappedRows_v2(device: NvmlDevice, info: *mut c_void);
        [pass] nvmlDeviceGetRowRemapperHistogram(device: NvmlDevice, values: *mut c_void);
        [pass] nvmlDeviceGetArchitecture(device: NvmlDevice, arch: *mut NvmlDeviceArchitecture);
        [pass] nvmlDeviceGetClkMonStatus(device: NvmlDevice, status: *mut c_void);
        /// only the job's processes
        [answer] nvmlDeviceGetProcessUtilization(
            device: NvmlDevice, utilization: *mut NvmlProcessUtilizationSample, process_samples_count: *mut c_uint,
            last_seen_time_stamp: c_ulonglong,
        );
        /// only the job's processes
        [answer] nvmlDeviceGetProcessesUtilizationInfo(
            device: NvmlDevice, proceses_util_info: *mut NvmlProcessesUtilizationInfo,
        );
        [pass] nvmlDeviceGetPlatformInfo(device: NvmlDevice, platform_info: *mut c_void);
        [pass] nvmlDeviceGetPdi(device: NvmlDevice, pdi: *mut c_void);
        [pass] nvmlDeviceSetHostname_v1(device: NvmlDevice, hostname: *mut c_void);
        [pass] nvmlDeviceGetHostname_v1(device: NvmlDevice, hostname: *mut c_void);
        [pass] nvmlDevicePerfMetricsGetSamples_v1(device: NvmlDevice, samples: *mut c_void);
    }
    "Unit commands" {
        [pass] nvmlUnitSetLedState(unit: NvmlUnit, color: c_int);
    }
    "Device commands" {
        [pass] nvmlDeviceSetPersistenceMode(device: NvmlDevice, mode: c_int);
        [pass] nvmlDeviceSetComputeMode(device: NvmlDevice, mode: c_int);
        [pass] nvmlDeviceSetEccMode(device: NvmlDevice, ecc: c_int);
        [pass] nvmlDeviceClearEccErrorCounts(device: NvmlDevice, counter_type: c_int);
        [pass] nvmlDeviceSetDriverModel(device: NvmlDevice, driver_model: c_int, flags: c_uint);
        [pass] nvmlDeviceSetGpuLockedClocks(device: NvmlDevice, min_gpu_clock_m_hz: c_uint, max_gpu_clock_m_hz: c_uint);
        [pass] nvmlDeviceResetGpuLockedClocks(device: NvmlDevice);
        [pass] nvmlDeviceSetMemoryLockedClocks(
            device: NvmlDevice, min_mem_clock_m_hz: c_uint, max_mem_clock_m_hz: c_uint,
        );
        [pass] nvmlDeviceResetMemoryLockedClocks(device: NvmlDevice);
        [pass] nvmlDeviceSetApplicationsClocks(device: NvmlDevice, mem_clock_m_hz: c_uint, graphics_clock_m_hz: c_uint);
        [pass] nvmlDeviceResetApplicationsClocks(device: NvmlDevice);
        [pass] nvmlDeviceSetAutoBoostedClocksEnabled(device: NvmlDevice, enabled: c_int);
        [pass] nvmlDeviceSetDefaultAutoBoostedClocksEnabled(device: NvmlDevice, enabled: c_int, flags: c_uint);
        [pass] nvmlDeviceSetDefaultFanSpeed_v2(device: NvmlDevice, fan: c_uint);
        [pass] nvmlDeviceSetFanControlPolicy(device: NvmlDevice, fan: c_uint, policy: NvmlFanControlPolicy);
        [pass] nvmlDeviceSetTemperatureThreshold(device: NvmlDevice, threshold_type: c_int, temp: *mut c_int);
        [pass] nvmlDeviceSetGpuOperationMode(device: NvmlDevice, mode: c_int);
        [pass] nvmlDeviceSetAPIRestriction(device: NvmlDevice, api_type: c_int, is_restricted: c_int);
        [pass] nvmlDeviceSetFanSpeed_v2(device: NvmlDevice, fan: c_uint, speed: c_uint);
        [pass] nvmlDeviceSetGpcClkVfOffset(device: NvmlDevice, offset: c_int);
        [pass] nvmlDeviceSetMemClkVfOffset(device: NvmlDevice, offset: c_int);
        [pass] nvmlDeviceSetAccountingMode(device: NvmlDevice, mode: c_int);
        [pass] nvmlDeviceClearAccountingPids(device: NvmlDevice);
    }
    "NvLink" {
        [pass] nvmlDeviceGetNvLinkState(device: NvmlDevice, link: c_uint, is_active: *mut c_int);
        [pass] nvmlDeviceGetNvLinkVersion(device: NvmlDevice, link: c_uint, version: *mut c_uint);
        [pass] nvmlDeviceGetNvLinkCapability(
            device: NvmlDevice, link: c_uint, capability: c_int, cap_result: *mut c_uint,
        );
        [pass] nvmlDeviceGetNvLinkRemotePciInfo(device: NvmlDevice, link: c_uint, pci: *mut NvmlPciInfoV2);
        [pass] nvmlDeviceGetNvLinkRemotePciInfo_v2(device: NvmlDevice, link: c_uint, pci: *mut NvmlPciInfo);
        [pass] nvmlDeviceGetNvLinkErrorCounter(
            device: NvmlDevice, link: c_uint, counter: c_int, counter_value: *mut c_ulonglong,
        );
        [pass] nvmlDeviceResetNvLinkErrorCounters(device: NvmlDevice, link: c_uint);
        [pass] nvmlDeviceSetNvLinkUtilizationControl(
            device: NvmlDevice, link: c_uint, counter: c_uint, control: *mut c_void, reset: c_uint,
        );
        [pass] nvmlDeviceGetNvLinkUtilizationControl(
            device: NvmlDevice, link: c_uint, counter: c_uint, control: *mut c_void,
        );
        [pass] nvmlDeviceGetNvLinkUtilizationCounter(
            device: NvmlDevice, link: c_uint, counter: c_uint, rxcounter: *mut c_ulonglong, txcounter: *mut c_ulonglong,
        );
        [pass] nvmlDeviceFreezeNvLinkUtilizationCounter(
            device: NvmlDevice, link: c_uint, counter: c_uint, freeze: c_int,
        );
        [pass] nvmlDeviceResetNvLinkUtilizationCounter(device: NvmlDevice, link: c_uint, counter: c_uint);
        [pass] nvmlDeviceGetNvLinkRemoteDeviceType(device: NvmlDevice, link: c_uint, nv_link_device_type: *mut c_int);
        [pass] nvmlDeviceSetNvLinkDeviceLowPowerThreshold(device: NvmlDevice, info: *mut c_void);
        [pass] nvmlSystemSetNvlinkBwMode(nvlink_bw_mode: c_uint);
        [pass] nvmlSystemGetNvlinkBwMode(nvlink_bw_mode: *mut c_uint);
        [pass] nvmlDeviceGetNvlinkSupportedBwModes(device: NvmlDevice, supported_bw_mode: *mut c_void);
        [pass] nvmlDeviceGetNvlinkBwMode(device: NvmlDevice, get_bw_mode: *mut c_void);
        [pass] nvmlDeviceSetNvlinkBwMode(device: NvmlDevice, set_bw_mode: *mut c_void);
        [pass] nvmlDeviceSetNvlinkBwModeAsync_v1(device: NvmlDevice, set_bw_mode_async: *mut c_void);
        [pass] nvmlDeviceGetNvLinkInfo(device: NvmlDevice, info: *mut c_void);
        [pass] nvmlDeviceGetNvLinkInfo_v3(device: NvmlDevice, info: *mut c_void);
        [pass] nvmlDeviceGetNvLinkTelemetrySamples_v1(device: NvmlDevice, samples: *mut c_void);
        [pass] nvmlDeviceGetNvlinkRemapTableInfo_v1(device: NvmlDevice, remap_table_info: *mut c_void);
        [pass] nvmlDeviceSetNvlinkNvleReady_v1(device: NvmlDevice, set_nvle_ready: *mut c_void);
        [pass] nvmlDeviceLockNvlinkRemapTable_v1(device: NvmlDevice, remap_table_lock_info: *mut c_void);
        [pass] nvmlDeviceSetupNvlinkNvleEncryptionKey_v1(device: NvmlDevice, encryption_key: *mut c_void);
        [pass] nvmlDeviceGetNvlinkNvlePrivateInfo_v1(device: NvmlDevice, private_info: *mut c_void);
    }
    "Events" {
        [pass] nvmlEventSetCreate(set: *mut NvmlEventSet);
        [pass] nvmlDeviceRegisterEvents(device: NvmlDevice, event_types: c_ulonglong, set: NvmlEventSet);
        [pass] nvmlDeviceGetSupportedEventTypes(device: NvmlDevice, event_types: *mut c_ulonglong);
        [pass] nvmlEventSetWait(set: NvmlEventSet, data: *mut NvmlEventDataV1, timeoutms: c_uint);
        [pass] nvmlEventSetWait_v2(set: NvmlEventSet, data: *mut NvmlEventData, timeoutms: c_uint);
        [pass] nvmlEventSetWait_v3(set: NvmlEventSet, params: *mut c_void);
        [pass] nvmlEventSetRegisterGpuOperationalEvents_v1(event_set: NvmlEventSet, config: *const c_void);
        [pass] nvmlEventSetGetContextCount_v1(set: NvmlEventSet, params: *mut c_void);
        [pass] nvmlEventSetGetContextInfo_v1(set: NvmlEventSet, params: *mut c_void);
        [pass] nvmlEventSetGetContextData_v1(set: NvmlEventSet, params: *mut c_void);
        [pass] nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1(set: NvmlEventSet, params: *mut c_void);
        [pass] nvmlEventSetFree(set: NvmlEventSet);
        [pass] nvmlSystemEventSetCreate(request: *mut c_void);
        [pass] nvmlSystemEventSetFree(request: *mut c_void);
        [pass] nvmlSystemRegisterEvents(request: *mut c_void);
        [pass] nvmlSystemEventSetWait(request: *mut c_void);
    }
    "Drain states" {
        [pass] nvmlDeviceModifyDrainState(pci_info: *mut NvmlPciInfo, new_state: c_int);
        [pass] nvmlDeviceQueryDrainState(pci_info: *mut NvmlPciInfo, current_state: *mut c_int);
        [pass] nvmlDeviceRemoveGpu(pci_info: *mut NvmlPciInfo);
        [pass] nvmlDeviceRemoveGpu_v2(pci_info: *mut NvmlPciInfo, gpu_state: c_int, link_state: c_int);
        [pass] nvmlDeviceDiscoverGpus(pci_info: *mut NvmlPciInfo);
    }
    "Field values" {
        [pass] nvmlDeviceGetFieldValues(device: NvmlDevice, values_count: c_int, values: *mut NvmlFieldValue);
        [pass] nvmlDeviceClearFieldValues(device: NvmlDevice, values_count: c_int, values: *mut NvmlFieldValue);
    }
    "vGPU queries" {
        [pass] nvmlDeviceGetVirtualizationMode(device: NvmlDevice, virtual_mode: *mut c_int);
        [pass] nvmlDeviceGetHostVgpuMode(device: NvmlDevice, host_vgpu_mode: *mut c_int);
        [pass] nvmlDeviceSetVirtualizationMode(device: NvmlDevice, virtual_mode: c_int);
        [pass] nvmlDeviceGetVgpuHeterogeneousMode(device: NvmlDevice, heterogeneous_mode: *mut c_void);
        [pass] nvmlDeviceSetVgpuHeterogeneousMode(device: NvmlDevice, heterogeneous_mode: *const c_void);
        [pass] nvmlVgpuInstanceGetPlacementId(vgpu_instance: NvmlVgpuInstance, placement: *mut c_void);
        [pass] nvmlDeviceGetVgpuTypeSupportedPlacements(
            device: NvmlDevice, vgpu_type_id: NvmlVgpuTypeId, placement_list: *mut c_void,
        );
        [pass] nvmlDeviceGetVgpuTypeCreatablePlacements(
            device: NvmlDevice, vgpu_type_id: NvmlVgpuTypeId, placement_list: *mut c_void,
        );
        [pass] nvmlVgpuTypeGetGspHeapSize(vgpu_type_id: NvmlVgpuTypeId, gsp_heap_size: *mut c_ulonglong);
        [pass] nvmlVgpuTypeGetFbReservation(vgpu_type_id: NvmlVgpuTypeId, fb_reservation: *mut c_ulonglong);
        [pass] nvmlVgpuInstanceGetRuntimeStateSize(vgpu_instance: NvmlVgpuInstance, state: *mut c_void);
        [pass] nvmlDeviceSetVgpuCapabilities(device: NvmlDevice, capability: c_int, state: c_int);
        [pass] nvmlDeviceVgpuForceGspUnload(device: NvmlDevice);
        [pass] nvmlDeviceGetGridLicensableFeatures(device: NvmlDevice, grid_licensable_features: *mut c_void);
        [pass] nvmlDeviceGetGridLicensableFeatures_v2(device: NvmlDevice, grid_licensable_features: *mut c_void);
        [pass] nvmlDeviceGetGridLicensableFeatures_v3(device: NvmlDevice, grid_licensable_features: *mut c_void);
        [pass] nvmlDeviceGetGridLicensableFeatures_v4(device: NvmlDevice, grid_licensable_features: *mut c_void);
    }
    "vGPU management" {
        [pass] nvmlGetVgpuDriverCapabilities(capability: c_int, cap_result: *mut c_uint);
        [pass] nvmlDeviceGetVgpuCapabilities(device: NvmlDevice, capability: c_int, cap_result: *mut c_uint);
        [pass] nvmlDeviceGetSupportedVgpus(
            device: NvmlDevice, vgpu_count: *mut c_uint, vgpu_type_ids: *mut NvmlVgpuTypeId,
        );
        [pass] nvmlDeviceGetCreatableVgpus(
            device: NvmlDevice, vgpu_count: *mut c_uint, vgpu_type_ids: *mut NvmlVgpuTypeId,
        );
        [pass] nvmlVgpuTypeGetClass(vgpu_type_id: NvmlVgpuTypeId, vgpu_type_class: *mut c_char, size: *mut c_uint);
        [pass] nvmlVgpuTypeGetName(vgpu_type_id: NvmlVgpuTypeId, vgpu_type_name: *mut c_char, size: *mut c_uint);
        [pass] nvmlVgpuTypeGetGpuInstanceProfileId(vgpu_type_id: NvmlVgpuTypeId, gpu_instance_profile_id: *mut c_uint);
        [pass] nvmlVgpuTypeGetDeviceID(
            vgpu_type_id: NvmlVgpuTypeId, device_id: *mut c_ulonglong, subsystem_id: *mut c_ulonglong,
        );
        [pass] nvmlVgpuTypeGetFramebufferSize(vgpu_type_id: NvmlVgpuTypeId, fb_size: *mut c_ulonglong);
        [pass] nvmlVgpuTypeGetNumDisplayHeads(vgpu_type_id: NvmlVgpuTypeId, num_display_heads: *mut c_uint);
        [pass] nvmlVgpuTypeGetResolution(
            vgpu_type_id: NvmlVgpuTypeId, display_index: c_uint, xdim: *mut c_uint, ydim: *mut c_uint,
        );
        [pass] nvmlVgpuTypeGetLicense(
            vgpu_type_id: NvmlVgpuTypeId, vgpu_type_license_string: *mut c_char, size: c_uint,
        );
        [pass] nvmlVgpuTypeGetFrameRateLimit(vgpu_type_id: NvmlVgpuTypeId, frame_rate_limit: *mut c_uint);
        [pass] nvmlVgpuTypeGetMaxInstances(
            device: NvmlDevice, vgpu_type_id: NvmlVgpuTypeId, vgpu_instance_count: *mut c_uint,
        );
        [pass] nvmlVgpuTypeGetMaxInstancesPerVm(vgpu_type_id: NvmlVgpuTypeId, vgpu_instance_count_per_vm: *mut c_uint);
        [pass] nvmlVgpuTypeGetBAR1Info(vgpu_type_id: NvmlVgpuTypeId, bar1_info: *mut c_void);
        [pass] nvmlDeviceGetActiveVgpus(
            device: NvmlDevice, vgpu_count: *mut c_uint, vgpu_instances: *mut NvmlVgpuInstance,
        );
        [pass] nvmlVgpuInstanceGetVmID(
            vgpu_instance: NvmlVgpuInstance, vm_id: *mut c_char, size: c_uint, vm_id_type: *mut c_int,
        );
        [pass] nvmlVgpuInstanceGetUUID(vgpu_instance: NvmlVgpuInstance, uuid: *mut c_char, size: c_uint);
        [pass] nvmlVgpuInstanceGetVmDriverVersion(
            vgpu_instance: NvmlVgpuInstance, version: *mut c_char, length: c_uint,
        );
        [pass] nvmlVgpuInstanceGetFbUsage(vgpu_instance: NvmlVgpuInstance, fb_usage: *mut c_ulonglong);
        [pass] nvmlVgpuInstanceGetLicenseStatus(vgpu_instance: NvmlVgpuInstance, licensed: *mut c_uint);
        [pass] nvmlVgpuInstanceGetType(vgpu_instance: NvmlVgpuInstance, vgpu_type_id: *mut NvmlVgpuTypeId);
        [pass] nvmlVgpuInstanceGetFrameRateLimit(vgpu_instance: NvmlVgpuInstance, frame_rate_limit: *mut c_uint);
        [pass] nvmlVgpuInstanceGetEccMode(vgpu_instance: NvmlVgpuInstance, ecc_mode: *mut c_int);
        [pass] nvmlVgpuInstanceGetEncoderCapacity(vgpu_instance: NvmlVgpuInstance, encoder_capacity: *mut c_uint);
        [pass] nvmlVgpuInstanceSetEncoderCapacity(vgpu_instance: NvmlVgpuInstance, encoder_capacity: c_uint);
        [pass] nvmlVgpuInstanceGetEncoderStats(
            vgpu_instance: NvmlVgpuInstance, session_count: *mut c_uint, average_fps: *mut c_uint,
            average_latency: *mut c_uint,
        );
        [pass] nvmlVgpuInstanceGetEncoderSessions(
            vgpu_instance: NvmlVgpuInstance, session_count: *mut c_uint, session_info: *mut c_void,
        );
        [pass] nvmlVgpuInstanceGetFBCStats(vgpu_instance: NvmlVgpuInstance, fbc_stats: *mut c_void);
        [pass] nvmlVgpuInstanceGetFBCSessions(
            vgpu_instance: NvmlVgpuInstance, session_count: *mut c_uint, session_info: *mut c_void,
        );
        [pass] nvmlVgpuInstanceGetGpuInstanceId(vgpu_instance: NvmlVgpuInstance, gpu_instance_id: *mut c_uint);
        [pass] nvmlVgpuInstanceGetGpuPciId(
            vgpu_instance: NvmlVgpuInstance, vgpu_pci_id: *mut c_char, length: *mut c_uint,
        );
        [pass] nvmlVgpuTypeGetCapabilities(vgpu_type_id: NvmlVgpuTypeId, capability: c_int, cap_result: *mut c_uint);
        [pass] nvmlVgpuInstanceGetMdevUUID(vgpu_instance: NvmlVgpuInstance, mdev_uuid: *mut c_char, size: c_uint);
        [pass] nvmlGpuInstanceGetCreatableVgpus(gpu_instance: NvmlGpuInstance, vgpus: *mut c_void);
        [pass] nvmlVgpuTypeGetMaxInstancesPerGpuInstance(max_instance: *mut c_void);
        [pass] nvmlGpuInstanceGetActiveVgpus(gpu_instance: NvmlGpuInstance, vgpu_instance_info: *mut c_void);
        [pass] nvmlGpuInstanceSetVgpuSchedulerState(gpu_instance: NvmlGpuInstance, scheduler: *mut c_void);
        [pass] nvmlGpuInstanceSetVgpuSchedulerState_v2(gpu_instance: NvmlGpuInstance, scheduler_state: *mut c_void);
        [pass] nvmlGpuInstanceGetVgpuSchedulerState(gpu_instance: NvmlGpuInstance, scheduler_state_info: *mut c_void);
        [pass] nvmlGpuInstanceGetVgpuSchedulerState_v2(
            gpu_instance: NvmlGpuInstance, scheduler_state_info: *mut c_void,
        );
        [pass] nvmlGpuInstanceGetVgpuSchedulerLog(gpu_instance: NvmlGpuInstance, scheduler_log_info: *mut c_void);
        [pass] nvmlGpuInstanceGetVgpuSchedulerLog_v2(gpu_instance: NvmlGpuInstance, scheduler_log_info: *mut c_void);
        [pass] nvmlGpuInstanceGetVgpuTypeCreatablePlacements(
            gpu_instance: NvmlGpuInstance, creatable_placement_info: *mut c_void,
        );
        [pass] nvmlGpuInstanceGetVgpuHeterogeneousMode(gpu_instance: NvmlGpuInstance, heterogeneous_mode: *mut c_void);
        [pass] nvmlGpuInstanceSetVgpuHeterogeneousMode(
            gpu_instance: NvmlGpuInstance, heterogeneous_mode: *const c_void,
        );
        [pass] nvmlDeviceGetVgpuSchedulerState(device: NvmlDevice, scheduler_state: *mut c_void);
        [pass] nvmlDeviceGetVgpuSchedulerState_v2(device: NvmlDevice, scheduler_state_info: *mut c_void);
        [pass] nvmlDeviceGetVgpuSchedulerLog(device: NvmlDevice, scheduler_log: *mut c_void);
        [pass] nvmlDeviceGetVgpuSchedulerLog_v2(device: NvmlDevice, scheduler_log_info: *mut c_void);
        [pass] nvmlDeviceSetVgpuSchedulerState(device: NvmlDevice, scheduler_state: *mut c_void);
        [pass] nvmlDeviceSetVgpuSchedulerState_v2(device: NvmlDevice, scheduler_state: *mut c_void);
    }
    "vGPU migration" {
        [pass] nvmlVgpuInstanceGetMetadata(
            vgpu_instance: NvmlVgpuInstance, vgpu_metadata: *mut c_void, buffer_size: *mut c_uint,
        );
        [pass] nvmlDeviceGetVgpuMetadata(device: NvmlDevice, pgpu_metadata: *mut c_void, buffer_size: *mut c_uint);
        [pass] nvmlGetVgpuCompatibility(
            vgpu_metadata: *mut c_void, pgpu_metadata: *mut c_void, compatibility_info: *mut c_void,
        );
        [pass] nvmlDeviceGetPgpuMetadataString(
            device: NvmlDevice, pgpu_metadata: *mut c_char, buffer_size: *mut c_uint,
        );
        [pass] nvmlDeviceGetVgpuSchedulerCapabilities(device: NvmlDevice, capabilities: *mut c_void);
        [pass] nvmlGetVgpuVersion(supported: *mut c_void, current: *mut c_void);
        [pass] nvmlSetVgpuVersion(vgpu_version: *mut c_void);
    }
    "vGPU utilization and accounting" {
        [pass] nvmlDeviceGetVgpuUtilization(
            device: NvmlDevice, last_seen_time_stamp: c_ulonglong, sample_val_type: *mut c_int,
            vgpu_instance_samples_count: *mut c_uint, utilization_samples: *mut c_void,
        );
        [pass] nvmlDeviceGetVgpuInstancesUtilizationInfo(device: NvmlDevice, vgpu_util_info: *mut c_void);
        [pass] nvmlDeviceGetVgpuProcessUtilization(
            device: NvmlDevice, last_seen_time_stamp: c_ulonglong, vgpu_process_samples_count: *mut c_uint,
            utilization_samples: *mut c_void,
        );
        [pass] nvmlDeviceGetVgpuProcessesUtilizationInfo(device: NvmlDevice, vgpu_proc_util_info: *mut c_void);
        [pass] nvmlVgpuInstanceGetAccountingMode(vgpu_instance: NvmlVgpuInstance, mode: *mut c_int);
        [pass] nvmlVgpuInstanceGetAccountingPids(
            vgpu_instance: NvmlVgpuInstance, count: *mut c_uint, pids: *mut c_uint,
        );
        [pass] nvmlVgpuInstanceGetAccountingStats(
            vgpu_instance: NvmlVgpuInstance, pid: c_uint, stats: *mut NvmlAccountingStats,
        );
        [pass] nvmlVgpuInstanceClearAccountingPids(vgpu_instance: NvmlVgpuInstance);
        [pass] nvmlVgpuInstanceGetLicenseInfo(vgpu_instance: NvmlVgpuInstance, license_info: *mut c_void);
        [pass] nvmlVgpuInstanceGetLicenseInfo_v2(vgpu_instance: NvmlVgpuInstance, license_info: *mut c_void);
    }
    "Excluded GPUs" {
        [pass] nvmlGetExcludedDeviceCount(device_count: *mut c_uint);
        [pass] nvmlGetExcludedDeviceInfoByIndex(index: c_uint, info: *mut c_void);
    }
    "PRM access" {
        [pass] nvmlDeviceReadWritePRM_v1(device: NvmlDevice, buffer: *mut c_void);
        [pass] nvmlDeviceReadPRMCounters_v1(device: NvmlDevice, counter_list: *mut c_void);
    }
    "Multi-instance GPUs" {
        [pass] nvmlDeviceSetMigMode(device: NvmlDevice, mode: c_uint, activation_status: *mut NvmlReturn);
        [pass] nvmlDeviceGetMigMode(device: NvmlDevice, current_mode: *mut c_uint, pending_mode: *mut c_uint);
        [pass] nvmlDeviceGetGpuInstanceProfileInfo(device: NvmlDevice, profile: c_uint, info: *mut c_void);
        [pass] nvmlDeviceGetGpuInstanceProfileInfoV(device: NvmlDevice, profile: c_uint, info: *mut c_void);
        [pass] nvmlDeviceGetGpuInstanceProfileInfoByIdV(device: NvmlDevice, profile_id: c_uint, info: *mut c_void);
        [pass] nvmlDeviceGetGpuInstancePossiblePlacements(
            device: NvmlDevice, profile_id: c_uint, placements: *mut NvmlGpuInstancePlacement, count: *mut c_uint,
        );
        [pass] nvmlDeviceGetGpuInstancePossiblePlacements_v2(
            device: NvmlDevice, profile_id: c_uint, placements: *mut NvmlGpuInstancePlacement, count: *mut c_uint,
        );
        [pass] nvmlDeviceGetGpuInstanceRemainingCapacity(device: NvmlDevice, profile_id: c_uint, count: *mut c_uint);
        [pass] nvmlDeviceCreateGpuInstance(device: NvmlDevice, profile_id: c_uint, gpu_instance: *mut NvmlGpuInstance);
        [pass] nvmlDeviceCreateGpuInstanceWithPlacement(
            device: NvmlDevice, profile_id: c_uint, placement: *const NvmlGpuInstancePlacement,
            gpu_instance: *mut NvmlGpuInstance,
        );
        [pass] nvmlGpuInstanceDestroy(gpu_instance: NvmlGpuInstance);
        [pass] nvmlDeviceGetGpuInstances(
            device: NvmlDevice, profile_id: c_uint, gpu_instances: *mut NvmlGpuInstance, count: *mut c_uint,
        );
        [pass] nvmlDeviceGetGpuInstanceById(device: NvmlDevice, id: c_uint, gpu_instance: *mut NvmlGpuInstance);
        [pass] nvmlGpuInstanceGetInfo(gpu_instance: NvmlGpuInstance, info: *mut NvmlGpuInstanceInfo);
        [pass] nvmlGpuInstanceGetComputeInstanceProfileInfo(
            gpu_instance: NvmlGpuInstance, profile: c_uint, eng_profile: c_uint, info: *mut c_void,
        );
        [pass] nvmlGpuInstanceGetComputeInstanceProfileInfoV(
            gpu_instance: NvmlGpuInstance, profile: c_uint, eng_profile: c_uint, info: *mut c_void,
        );
        [pass] nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
            gpu_instance: NvmlGpuInstance, profile_id: c_uint, count: *mut c_uint,
        );
        [pass] nvmlGpuInstanceGetComputeInstancePossiblePlacements(
            gpu_instance: NvmlGpuInstance, profile_id: c_uint, placements: *mut NvmlComputeInstancePlacement,
            count: *mut c_uint,
        );
        [pass] nvmlGpuInstanceCreateComputeInstance(
            gpu_instance: NvmlGpuInstance, profile_id: c_uint, compute_instance: *mut NvmlComputeInstance,
        );
        [pass] nvmlGpuInstanceCreateComputeInstanceWithPlacement(
            gpu_instance: NvmlGpuInstance, profile_id: c_uint, placement: *const NvmlComputeInstancePlacement,
            compute_instance: *mut NvmlComputeInstance,
        );
        [pass] nvmlComputeInstanceDestroy(compute_instance: NvmlComputeInstance);
        [pass] nvmlGpuInstanceGetComputeInstances(
            gpu_instance: NvmlGpuInstance, profile_id: c_uint, compute_instances: *mut NvmlComputeInstance,
            count: *mut c_uint,
        );
        [pass] nvmlGpuInstanceGetComputeInstanceById(
            gpu_instance: NvmlGpuInstance, id: c_uint, compute_instance: *mut NvmlComputeInstance,
        );
        [pass] nvmlComputeInstanceGetInfo(
            compute_instance: NvmlComputeInstance, info: *mut NvmlComputeInstanceInfoV1,
        );
        [pass] nvmlComputeInstanceGetInfo_v2(compute_instance: NvmlComputeInstance, info: *mut NvmlComputeInstanceInfo);
        [pass] nvmlDeviceIsMigDeviceHandle(device: NvmlDevice, is_mig_device: *mut c_uint);
        [pass] nvmlDeviceGetGpuInstanceId(device: NvmlDevice, id: *mut c_uint);
        [pass] nvmlDeviceGetComputeInstanceId(device: NvmlDevice, id: *mut c_uint);
        [pass] nvmlDeviceGetMaxMigDeviceCount(device: NvmlDevice, count: *mut c_uint);
        [pass] nvmlDeviceGetMigDeviceHandleByIndex(device: NvmlDevice, index: c_uint, mig_device: *mut NvmlDevice);
        [pass] nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig_device: NvmlDevice, device: *mut NvmlDevice);
    }
    "GPU performance monitoring" {
        [pass] nvmlGpmMetricsGet(metrics_get: *mut c_void);
        [pass] nvmlGpmSampleFree(gpm_sample: NvmlGpmSample);
        [pass] nvmlGpmSampleAlloc(gpm_sample: *mut NvmlGpmSample);
        [pass] nvmlGpmSampleGet(device: NvmlDevice, gpm_sample: NvmlGpmSample);
        [pass] nvmlGpmMigSampleGet(device: NvmlDevice, gpu_instance_id: c_uint, gpm_sample: NvmlGpmSample);
        [pass] nvmlGpmQueryDeviceSupport(device: NvmlDevice, gpm_support: *mut c_void);
        [pass] nvmlGpmQueryIfStreamingEnabled(device: NvmlDevice, state: *mut c_uint);
        [pass] nvmlGpmSetStreamingEnabled(device: NvmlDevice, state: c_uint);
        [pass] nvmlDeviceGetCapabilities(device: NvmlDevice, caps: *mut c_void);
    }
    "Power profiles" {
        [pass] nvmlDeviceWorkloadPowerProfileGetProfilesInfo(device: NvmlDevice, profiles_info: *mut c_void);
        [pass] nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(device: NvmlDevice, current_profiles: *mut c_void);
        [pass] nvmlDeviceWorkloadPowerProfileSetRequestedProfiles(device: NvmlDevice, requested_profiles: *mut c_void);
        [pass] nvmlDeviceWorkloadPowerProfileClearRequestedProfiles(
            device: NvmlDevice, requested_profiles: *mut c_void,
        );
        [pass] nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1(device: NvmlDevice, update_profiles: *mut c_void);
    }
    "Power smoothing" {
        [pass] nvmlDevicePowerSmoothingActivatePresetProfile(device: NvmlDevice, profile: *mut c_void);
        [pass] nvmlDevicePowerSmoothingUpdatePresetProfileParam(device: NvmlDevice, profile: *mut c_void);
        [pass] nvmlDevicePowerSmoothingSetState(device: NvmlDevice, state: *mut c_void);
        [pass] nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts(device: NvmlDevice, error_counts: *mut c_void);
        [pass] nvmlDeviceSetRusdSettings_v1(device: NvmlDevice, settings: *mut c_void);
        [pass] nvmlDeviceGetBankRemapperStatus_v1(device: NvmlDevice, bank_remapper_status: *mut c_void);
    }
    } };
}
