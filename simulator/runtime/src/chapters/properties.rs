// SPDX-License-Identifier: Apache-2.0
//! `cudaDeviceProp` of CUDA 12 and 13: bytes at offsets, each from an attribute of the device.
//!
//! The offsets were read from the headers of CUDA 12.9 and 13.5. The fields up to `texturePitchAlignment` are the
//! same in both, but for those that CUDA 13 dropped.

use partage_abi::types::*;

use super::outside;
use crate::context::{check, exists};
use crate::driver;

/// Bytes of CUDA 12's struct.
pub const BYTES_12: usize = 1032;
/// Bytes of CUDA 13's struct.
pub const BYTES_13: usize = 1008;

/// Offset in CUDA 12's struct and in 13's (0: dropped), the driver's attribute, and whether the field has 8 bytes.
type Field = (usize, usize, c_int, bool);

const FIELDS: &[Field] = &[
    (296, 296, 8, true),   // sharedMemPerBlock
    (304, 304, 12, false), // regsPerBlock
    (308, 308, 10, false), // warpSize
    (312, 312, 11, true),  // memPitch
    (320, 320, 1, false),  // maxThreadsPerBlock
    (324, 324, 2, false),  // maxThreadsDim
    (328, 328, 3, false),
    (332, 332, 4, false),
    (336, 336, 5, false), // maxGridSize
    (340, 340, 6, false),
    (344, 344, 7, false),
    (348, 0, 13, false),    // clockRate
    (352, 352, 9, true),    // totalConstMem
    (360, 360, 75, false),  // major
    (364, 364, 76, false),  // minor
    (368, 368, 14, true),   // textureAlignment
    (376, 376, 51, true),   // texturePitchAlignment
    (384, 0, 15, false),    // deviceOverlap
    (388, 384, 16, false),  // multiProcessorCount
    (392, 0, 17, false),    // kernelExecTimeoutEnabled
    (396, 388, 18, false),  // integrated
    (400, 392, 19, false),  // canMapHostMemory
    (404, 0, 20, false),    // computeMode
    (568, 552, 30, true),   // surfaceAlignment
    (576, 560, 31, false),  // concurrentKernels
    (580, 564, 32, false),  // ECCEnabled
    (584, 568, 33, false),  // pciBusID
    (588, 572, 34, false),  // pciDeviceID
    (592, 576, 50, false),  // pciDomainID
    (596, 580, 35, false),  // tccDriver
    (600, 584, 40, false),  // asyncEngineCount
    (604, 588, 41, false),  // unifiedAddressing
    (608, 0, 36, false),    // memoryClockRate
    (612, 592, 37, false),  // memoryBusWidth
    (616, 596, 38, false),  // l2CacheSize
    (620, 600, 108, false), // persistingL2CacheMaxSize
    (624, 604, 39, false),  // maxThreadsPerMultiProcessor
    (628, 608, 78, false),  // streamPrioritiesSupported
    (632, 612, 79, false),  // globalL1CacheSupported
    (636, 616, 80, false),  // localL1CacheSupported
    (640, 624, 81, true),   // sharedMemPerMultiprocessor
    (648, 632, 82, false),  // regsPerMultiprocessor
    (652, 636, 83, false),  // managedMemory
    (656, 640, 84, false),  // isMultiGpuBoard
    (660, 644, 85, false),  // multiGpuBoardGroupID
    (664, 648, 86, false),  // hostNativeAtomicSupported
    (668, 0, 87, false),    // singleToDoublePrecisionPerfRatio
    (672, 652, 88, false),  // pageableMemoryAccess
    (676, 656, 89, false),  // concurrentManagedAccess
    (680, 660, 90, false),  // computePreemptionSupported
    (684, 664, 91, false),  // canUseHostPointerForRegisteredMem
    (688, 668, 95, false),  // cooperativeLaunch
    (692, 0, 96, false),    // cooperativeMultiDeviceLaunch
    (696, 672, 97, true),   // sharedMemPerBlockOptin
    (704, 680, 100, false), // pageableMemoryAccessUsesHostPageTables
    (708, 684, 101, false), // directManagedMemAccessFromHost
    (712, 688, 106, false), // maxBlocksPerMultiProcessor
    (716, 692, 109, false), // accessPolicyMaxWindowSize
    (720, 696, 111, true),  // reservedSharedMemPerBlock
    (728, 704, 99, false),  // hostRegisterSupported
    (732, 708, 112, false), // sparseCudaArraySupported
    (736, 712, 113, false), // hostRegisterReadOnlySupported
    (740, 716, 114, false), // timelineSemaphoreInteropSupported
    (744, 720, 115, false), // memoryPoolsSupported
    (748, 724, 116, false), // gpuDirectRDMASupported
    (752, 728, 117, false), // gpuDirectRDMAFlushWritesOptions
    (756, 732, 118, false), // gpuDirectRDMAWritesOrdering
    (760, 736, 119, false), // memoryPoolSupportedHandleTypes
    (764, 740, 121, false), // deferredMappingCudaArraySupported
    (768, 744, 125, false), // ipcEventSupported
    (772, 748, 120, false), // clusterLaunch
    (776, 752, 129, false), // unifiedFunctionPointers
];

/// CUDA 13's properties.
pub fn cudaGetDeviceProperties(properties: *mut c_void, device: c_int) -> CuResult {
    fill(properties.cast(), device, BYTES_13, |field| field.1)
}

/// CUDA 12's properties.
pub fn cudaGetDeviceProperties_v2(properties: *mut c_void, device: c_int) -> CuResult {
    fill(properties.cast(), device, BYTES_12, |field| field.0)
}

fn fill(place: *mut u8, device: CuDevice, bytes: usize, offset: impl Fn(&Field) -> usize) -> CuResult {
    if place.is_null() {
        return CuResult::INVALID_VALUE;
    }
    outside(|| {
        exists(device)?;
        let mut all = vec![0u8; bytes];
        check(driver::cuDeviceGetName(all.as_mut_ptr().cast(), 256, device))?;
        let mut uuid = CuUuid::default();
        check(driver::cuDeviceGetUuid_v2(&mut uuid, device))?;
        for (to, from) in all[256..272].iter_mut().zip(uuid.bytes) {
            *to = from.cast_unsigned();
        }
        let mut memory = 0usize;
        check(driver::cuDeviceTotalMem_v2(&mut memory, device))?;
        all[288..296].copy_from_slice(&memory.to_ne_bytes());
        for field in FIELDS {
            let at = offset(field);
            let mut value = 0;
            // An attribute that this driver does not know is 0.
            if at == 0 || !driver::cuDeviceGetAttribute(&mut value, field.2, device).is_success() {
                continue;
            }
            if field.3 {
                all[at..at + 8].copy_from_slice(&i64::from(value).to_ne_bytes());
            } else {
                all[at..at + 4].copy_from_slice(&value.to_ne_bytes());
            }
        }
        // SAFETY: the program gave room for the struct of its version.
        unsafe { place.copy_from_nonoverlapping(all.as_ptr(), bytes) };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_ascend_and_lie_inside_the_structs() {
        let end = |at: usize, is_wide: bool| at + if is_wide { 8 } else { 4 };
        let mut last = (0, 0);
        for &(old, new, attribute, is_wide) in FIELDS {
            assert!(old >= last.0, "CUDA 12's offset of attribute {attribute}");
            assert!(new == 0 || new >= last.1, "CUDA 13's offset of attribute {attribute}");
            last = (end(old, is_wide), if new == 0 { last.1 } else { end(new, is_wide) });
        }
        assert!(last.0 <= BYTES_12 && last.1 <= BYTES_13);
    }
}
