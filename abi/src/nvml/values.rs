// SPDX-License-Identifier: Apache-2.0
//! Enumerators and sizes of NVML that Partage or its simulated library uses, under the vendor's names, as integers.

use super::types::{c_int, c_uint};
use crate::types::layout::values;

values! {
    /// `nvmlBrandType_t`
    c_int {
        NVML_BRAND_UNKNOWN = 0,
        NVML_BRAND_QUADRO = 1,
        NVML_BRAND_TESLA = 2,
        NVML_BRAND_NVS = 3,
        NVML_BRAND_GRID = 4,
        NVML_BRAND_GEFORCE = 5,
        NVML_BRAND_TITAN = 6,
        NVML_BRAND_NVIDIA_VAPPS = 7,
        NVML_BRAND_NVIDIA_VPC = 8,
        NVML_BRAND_NVIDIA_VCS = 9,
        NVML_BRAND_NVIDIA_VWS = 10,
        NVML_BRAND_NVIDIA_CLOUD_GAMING = 11,
        NVML_BRAND_NVIDIA_VGAMING = 11,
        NVML_BRAND_QUADRO_RTX = 12,
        NVML_BRAND_NVIDIA_RTX = 13,
        NVML_BRAND_NVIDIA = 14,
        NVML_BRAND_GEFORCE_RTX = 15,
        NVML_BRAND_TITAN_RTX = 16,
        NVML_BRAND_NVIDIA_DLA = 17,
        NVML_BRAND_NVIDIA_NPU = 19,
        NVML_BRAND_NVIDIA_VGAMEDEV = 18,
        NVML_BRAND_COUNT = 20,
    }
    /// `nvmlTemperatureSensors_t`
    c_int {
        NVML_TEMPERATURE_GPU = 0,
        NVML_TEMPERATURE_GPU_MAX = 1,
        NVML_TEMPERATURE_COUNT = 2,
    }
    /// `nvmlTemperatureThresholds_t`
    c_int {
        NVML_TEMPERATURE_THRESHOLD_SHUTDOWN = 0,
        NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1,
        NVML_TEMPERATURE_THRESHOLD_MEM_MAX = 2,
        NVML_TEMPERATURE_THRESHOLD_GPU_MAX = 3,
        NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MIN = 4,
        NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR = 5,
        NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MAX = 6,
        NVML_TEMPERATURE_THRESHOLD_GPS_CURR = 7,
        NVML_TEMPERATURE_THRESHOLD_COUNT = 8,
    }
    /// `nvmlClockType_t`
    c_int {
        NVML_CLOCK_GRAPHICS = 0,
        NVML_CLOCK_SM = 1,
        NVML_CLOCK_MEM = 2,
        NVML_CLOCK_VIDEO = 3,
        NVML_CLOCK_COUNT = 4,
    }
    /// `nvmlClockId_t`
    c_int {
        NVML_CLOCK_ID_CURRENT = 0,
        NVML_CLOCK_ID_APP_CLOCK_TARGET = 1,
        NVML_CLOCK_ID_APP_CLOCK_DEFAULT = 2,
        NVML_CLOCK_ID_CUSTOMER_BOOST_MAX = 3,
        NVML_CLOCK_ID_COUNT = 4,
    }
    /// `nvmlComputeMode_t`
    c_int {
        NVML_COMPUTEMODE_DEFAULT = 0,
        NVML_COMPUTEMODE_EXCLUSIVE_THREAD = 1,
        NVML_COMPUTEMODE_PROHIBITED = 2,
        NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3,
        NVML_COMPUTEMODE_COUNT = 4,
    }
    /// `nvmlPstates_t`
    c_int {
        NVML_PSTATE_0 = 0,
        NVML_PSTATE_1 = 1,
        NVML_PSTATE_2 = 2,
        NVML_PSTATE_3 = 3,
        NVML_PSTATE_4 = 4,
        NVML_PSTATE_5 = 5,
        NVML_PSTATE_6 = 6,
        NVML_PSTATE_7 = 7,
        NVML_PSTATE_8 = 8,
        NVML_PSTATE_9 = 9,
        NVML_PSTATE_10 = 10,
        NVML_PSTATE_11 = 11,
        NVML_PSTATE_12 = 12,
        NVML_PSTATE_13 = 13,
        NVML_PSTATE_14 = 14,
        NVML_PSTATE_15 = 15,
        NVML_PSTATE_UNKNOWN = 32,
    }
    /// `nvmlValueType_t`
    c_int {
        NVML_VALUE_TYPE_DOUBLE = 0,
        NVML_VALUE_TYPE_UNSIGNED_INT = 1,
        NVML_VALUE_TYPE_UNSIGNED_LONG = 2,
        NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3,
        NVML_VALUE_TYPE_SIGNED_LONG_LONG = 4,
        NVML_VALUE_TYPE_SIGNED_INT = 5,
        NVML_VALUE_TYPE_UNSIGNED_SHORT = 6,
        NVML_VALUE_TYPE_COUNT = 7,
    }
    /// `nvmlSamplingType_t`
    c_int {
        NVML_TOTAL_POWER_SAMPLES = 0,
        NVML_GPU_UTILIZATION_SAMPLES = 1,
        NVML_MEMORY_UTILIZATION_SAMPLES = 2,
        NVML_ENC_UTILIZATION_SAMPLES = 3,
        NVML_DEC_UTILIZATION_SAMPLES = 4,
        NVML_PROCESSOR_CLK_SAMPLES = 5,
        NVML_MEMORY_CLK_SAMPLES = 6,
        NVML_MODULE_POWER_SAMPLES = 7,
        NVML_JPG_UTILIZATION_SAMPLES = 8,
        NVML_OFA_UTILIZATION_SAMPLES = 9,
        NVML_SAMPLINGTYPE_COUNT = 10,
    }
    /// `nvmlEnableState_t`
    c_int {
        NVML_FEATURE_DISABLED = 0,
        NVML_FEATURE_ENABLED = 1,
    }
    /// `nvmlMemoryErrorType_t`
    c_int {
        NVML_MEMORY_ERROR_TYPE_CORRECTED = 0,
        NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1,
        NVML_MEMORY_ERROR_TYPE_COUNT = 2,
    }
    /// `nvmlEccCounterType_t`
    c_int {
        NVML_VOLATILE_ECC = 0,
        NVML_AGGREGATE_ECC = 1,
        NVML_ECC_COUNTER_TYPE_COUNT = 2,
    }
    /// `nvmlGpuOperationMode_t`
    c_int {
        NVML_GOM_ALL_ON = 0,
        NVML_GOM_COMPUTE = 1,
        NVML_GOM_LOW_DP = 2,
    }
    /// `nvmlPcieUtilCounter_t`
    c_int {
        NVML_PCIE_UTIL_TX_BYTES = 0,
        NVML_PCIE_UTIL_RX_BYTES = 1,
        NVML_PCIE_UTIL_COUNT = 2,
    }
    /// `nvmlGpuTopologyLevel_t`
    c_int {
        NVML_TOPOLOGY_INTERNAL = 0,
        NVML_TOPOLOGY_SINGLE = 10,
        NVML_TOPOLOGY_MULTIPLE = 20,
        NVML_TOPOLOGY_HOSTBRIDGE = 30,
        NVML_TOPOLOGY_NODE = 40,
        NVML_TOPOLOGY_SYSTEM = 50,
    }
    /// `nvmlGpuVirtualizationMode_t`
    c_int {
        NVML_GPU_VIRTUALIZATION_MODE_NONE = 0,
        NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH = 1,
        NVML_GPU_VIRTUALIZATION_MODE_VGPU = 2,
        NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU = 3,
        NVML_GPU_VIRTUALIZATION_MODE_HOST_VSGA = 4,
    }
    /// `nvmlDriverModel_t`
    c_int {
        NVML_DRIVER_WDDM = 0,
        NVML_DRIVER_WDM = 1,
        NVML_DRIVER_MCDM = 2,
    }
    /// `nvmlRestrictedAPI_t`
    c_int {
        NVML_RESTRICTED_API_SET_APPLICATION_CLOCKS = 0,
        NVML_RESTRICTED_API_SET_AUTO_BOOSTED_CLOCKS = 1,
        NVML_RESTRICTED_API_COUNT = 2,
    }
    /// `nvmlPerfPolicyType_t`
    c_int {
        NVML_PERF_POLICY_POWER = 0,
        NVML_PERF_POLICY_THERMAL = 1,
        NVML_PERF_POLICY_SYNC_BOOST = 2,
        NVML_PERF_POLICY_BOARD_LIMIT = 3,
        NVML_PERF_POLICY_LOW_UTILIZATION = 4,
        NVML_PERF_POLICY_RELIABILITY = 5,
        NVML_PERF_POLICY_TOTAL_APP_CLOCKS = 10,
        NVML_PERF_POLICY_TOTAL_BASE_CLOCKS = 11,
        NVML_PERF_POLICY_COUNT = 12,
    }
    /// `nvmlUUIDType_t`
    c_int {
        NVML_UUID_TYPE_NONE = 0,
        NVML_UUID_TYPE_ASCII = 1,
        NVML_UUID_TYPE_BINARY = 2,
    }
    /// A constant of the header without an enumeration
    c_uint {
        NVML_API_VERSION = 13,
        NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE = 32,
        NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE = 16,
        NVML_MAX_PHYSICAL_BRIDGE = 128,
        NVML_DEVICE_HOSTNAME_BUFFER_SIZE = 64,
        NVML_DEVICE_ARCH_KEPLER = 2,
        NVML_DEVICE_ARCH_MAXWELL = 3,
        NVML_DEVICE_ARCH_PASCAL = 4,
        NVML_DEVICE_ARCH_VOLTA = 5,
        NVML_DEVICE_ARCH_TURING = 6,
        NVML_DEVICE_ARCH_AMPERE = 7,
        NVML_DEVICE_ARCH_ADA = 8,
        NVML_DEVICE_ARCH_HOPPER = 9,
        NVML_DEVICE_ARCH_BLACKWELL = 10,
        NVML_DEVICE_ARCH_DLA = 11,
        NVML_DEVICE_ARCH_DLA2 = 12,
        NVML_DEVICE_ARCH_RUBIN = 13,
        NVML_DEVICE_ARCH_NPU3 = 15,
        NVML_DEVICE_ARCH_UNKNOWN = 4294967295,
        NVML_INIT_FLAG_NO_GPUS = 1,
        NVML_INIT_FLAG_NO_ATTACH = 2,
        NVML_INIT_FLAG_FORCE_INIT = 4,
        NVML_DEVICE_INFOROM_VERSION_BUFFER_SIZE = 16,
        NVML_DEVICE_UUID_BUFFER_SIZE = 80,
        NVML_DEVICE_UUID_V2_BUFFER_SIZE = 96,
        NVML_DEVICE_PART_NUMBER_BUFFER_SIZE = 80,
        NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE = 80,
        NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE = 80,
        NVML_DEVICE_NAME_BUFFER_SIZE = 64,
        NVML_DEVICE_NAME_V2_BUFFER_SIZE = 96,
        NVML_DEVICE_SERIAL_BUFFER_SIZE = 30,
        NVML_DEVICE_VBIOS_VERSION_BUFFER_SIZE = 32,
        NVML_DEVICE_MIG_DISABLE = 0,
        NVML_DEVICE_MIG_ENABLE = 1,
    }
}
