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

/// Offset in CUDA 12's struct and in 13's (0: not in that one), the driver's attribute, and whether the field has
/// 8 bytes.
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
    (348, 0, 13, false),   // clockRate
    (352, 352, 9, true),   // totalConstMem
    (360, 360, 75, false), // major
    (364, 364, 76, false), // minor
    (368, 368, 14, true),  // textureAlignment
    (376, 376, 51, true),  // texturePitchAlignment
    (384, 0, 15, false),   // deviceOverlap
    (388, 384, 16, false), // multiProcessorCount
    (392, 0, 17, false),   // kernelExecTimeoutEnabled
    (396, 388, 18, false), // integrated
    (400, 392, 19, false), // canMapHostMemory
    (404, 0, 20, false),   // computeMode
    (408, 396, 21, false), // maxTexture1D
    (412, 400, 77, false), // maxTexture1DMipmap
    (416, 0, 69, false),   // maxTexture1DLinear
    (420, 404, 22, false), // maxTexture2D
    (424, 408, 23, false),
    (428, 412, 73, false), // maxTexture2DMipmap
    (432, 416, 74, false),
    (436, 420, 70, false), // maxTexture2DLinear
    (440, 424, 71, false),
    (444, 428, 72, false),
    (448, 432, 45, false), // maxTexture2DGather
    (452, 436, 46, false),
    (456, 440, 24, false), // maxTexture3D
    (460, 444, 25, false),
    (464, 448, 26, false),
    (468, 452, 47, false), // maxTexture3DAlt
    (472, 456, 48, false),
    (476, 460, 49, false),
    (480, 464, 52, false), // maxTextureCubemap
    (484, 468, 42, false), // maxTexture1DLayered
    (488, 472, 43, false),
    (492, 476, 27, false), // maxTexture2DLayered
    (496, 480, 28, false),
    (500, 484, 29, false),
    (504, 488, 53, false), // maxTextureCubemapLayered
    (508, 492, 54, false),
    (512, 496, 55, false), // maxSurface1D
    (516, 500, 56, false), // maxSurface2D
    (520, 504, 57, false),
    (524, 508, 58, false), // maxSurface3D
    (528, 512, 59, false),
    (532, 516, 60, false),
    (536, 520, 61, false), // maxSurface1DLayered
    (540, 524, 62, false),
    (544, 528, 63, false), // maxSurface2DLayered
    (548, 532, 64, false),
    (552, 536, 65, false),
    (556, 540, 66, false), // maxSurfaceCubemap
    (560, 544, 67, false), // maxSurfaceCubemapLayered
    (564, 548, 68, false),
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
    (0, 756, 130, false),   // deviceNumaConfig
    (0, 760, 131, false),   // deviceNumaId
    (0, 764, 133, false),   // mpsEnabled
    (0, 768, 134, false),   // hostNumaId
    (0, 772, 139, false),   // gpuPciDeviceID
    (0, 776, 140, false),   // gpuPciSubsystemID
    (0, 780, 143, false),   // hostNumaMultinodeIpcSupported
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

    /// The fields of a list that a C compiler made from the public header: name, offset, bytes.
    fn listed(list: &str) -> (usize, Vec<(&str, usize, usize)>) {
        let mut lines = list.lines().skip_while(|line| !line.starts_with("cudaDeviceProp "));
        let number = |word: Option<&str>| word.and_then(|word| word.parse().ok()).expect("a number");
        let bytes = number(lines.next().and_then(|line| line.split_whitespace().nth(1)));
        let fields = lines.take_while(|line| line.starts_with(' ')).map(|line| {
            let mut words = line.split_whitespace();
            (
                words.next().unwrap_or_default(),
                number(words.next()),
                number(words.next()),
            )
        });
        (bytes, fields.collect())
    }

    #[test]
    fn every_field_of_the_headers_is_filled_and_nothing_beside_them() {
        let twelve = include_str!("../../tests/layouts/12.9.79.txt");
        let thirteen = include_str!("../../tests/layouts/13.5.37.txt");
        type Offset = fn(&Field) -> usize;
        let both: [(&str, usize, Offset); 2] = [(twelve, BYTES_12, |row| row.0), (thirteen, BYTES_13, |row| row.1)];
        // Filled by hand, or nothing that a driver on Linux knows.
        let others = [
            "name",
            "uuid",
            "luid",
            "luidDeviceNodeMask",
            "totalGlobalMem",
            "reserved",
        ];
        for (list, bytes, offset) in both {
            let (listed_bytes, fields) = listed(list);
            assert_eq!(bytes, listed_bytes);
            let rows = FIELDS.iter().filter(|row| offset(row) != 0);
            let mut filled: Vec<_> = rows.map(|row| (offset(row), if row.3 { 8 } else { 4 })).collect();
            filled.sort_unstable();
            let wanted = fields.iter().filter(|(name, ..)| !others.contains(name));
            let parts = wanted.flat_map(|&(name, at, size)| {
                // Only arrays of three numbers and of two have more bytes than a number; these have eight.
                let is_wide = size == 8 && FIELDS.iter().any(|row| offset(row) == at && row.3);
                let step = if is_wide { 8 } else { 4 };
                assert_eq!(size % step, 0, "{name}");
                (0..size / step).map(move |place| (at + place * step, step))
            });
            assert_eq!(filled, parts.collect::<Vec<_>>());
            let find = |name: &str| fields.iter().find(|field| field.0 == name).expect("listed").1;
            assert_eq!((find("name"), find("uuid"), find("totalGlobalMem")), (0, 256, 288));
        }
    }
}
