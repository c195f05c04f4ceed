// SPDX-License-Identifier: Apache-2.0
//! Arrays and mipmapped arrays: what each format and shape costs, which are refused, and when their memory comes back.

mod refused;

use partage_abi::types::*;
use partage_abi::values::*;

use crate::child::{Cuda, MIB, code, in_child, ok, refused};

/// Format, channels, and the bits that one element takes on average, from the vendor's descriptions of the formats.
/// The plain formats are listed with one channel.
#[allow(non_upper_case_globals)] // the vendor's names
const FIXED: &[(c_int, c_uint, usize)] = &[
    (CU_AD_FORMAT_UNORM_INT8X1, 1, 8),
    (CU_AD_FORMAT_UNORM_INT8X2, 2, 16),
    (CU_AD_FORMAT_UNORM_INT8X4, 4, 32),
    (CU_AD_FORMAT_UNORM_INT16X1, 1, 16),
    (CU_AD_FORMAT_UNORM_INT16X2, 2, 32),
    (CU_AD_FORMAT_UNORM_INT16X4, 4, 64),
    (CU_AD_FORMAT_SNORM_INT8X1, 1, 8),
    (CU_AD_FORMAT_SNORM_INT8X2, 2, 16),
    (CU_AD_FORMAT_SNORM_INT8X4, 4, 32),
    (CU_AD_FORMAT_SNORM_INT16X1, 1, 16),
    (CU_AD_FORMAT_SNORM_INT16X2, 2, 32),
    (CU_AD_FORMAT_SNORM_INT16X4, 4, 64),
    (CU_AD_FORMAT_UNORM_INT_101010_2, 4, 32),
    // 8 or 16 bytes for 16 elements.
    (CU_AD_FORMAT_BC1_UNORM, 4, 4),
    (CU_AD_FORMAT_BC1_UNORM_SRGB, 4, 4),
    (CU_AD_FORMAT_BC2_UNORM, 4, 8),
    (CU_AD_FORMAT_BC2_UNORM_SRGB, 4, 8),
    (CU_AD_FORMAT_BC3_UNORM, 4, 8),
    (CU_AD_FORMAT_BC3_UNORM_SRGB, 4, 8),
    (CU_AD_FORMAT_BC4_UNORM, 1, 4),
    (CU_AD_FORMAT_BC4_SNORM, 1, 4),
    (CU_AD_FORMAT_BC5_UNORM, 2, 8),
    (CU_AD_FORMAT_BC5_SNORM, 2, 8),
    (CU_AD_FORMAT_BC6H_UF16, 3, 8),
    (CU_AD_FORMAT_BC6H_SF16, 3, 8),
    (CU_AD_FORMAT_BC7_UNORM, 4, 8),
    (CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 8),
    // Video: 4:2:0 has half a sample of colour for each of brightness, 4:2:2 one, 4:4:4 two.
    (CU_AD_FORMAT_NV12, 3, 12),
    (CU_AD_FORMAT_P010, 3, 24),
    (CU_AD_FORMAT_P016, 3, 24),
    (CU_AD_FORMAT_NV16, 3, 16),
    (CU_AD_FORMAT_P210, 3, 32),
    (CU_AD_FORMAT_P216, 3, 32),
    (CU_AD_FORMAT_YUY2, 2, 16),
    (CU_AD_FORMAT_Y210, 2, 32),
    (CU_AD_FORMAT_Y216, 2, 32),
    (CU_AD_FORMAT_AYUV, 4, 32),
    (CU_AD_FORMAT_Y410, 4, 32),
    (CU_AD_FORMAT_Y416, 4, 64),
    (CU_AD_FORMAT_Y444_PLANAR8, 3, 24),
    (CU_AD_FORMAT_Y444_PLANAR10, 3, 48),
    (CU_AD_FORMAT_YUV444_8bit_SemiPlanar, 3, 24),
    (CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 3, 48),
    (CU_AD_FORMAT_UINT8_PACKED_422, 4, 16),
    (CU_AD_FORMAT_UINT8_PACKED_444, 4, 32),
    (CU_AD_FORMAT_UINT8_SEMIPLANAR_420, 3, 12),
    (CU_AD_FORMAT_UINT16_SEMIPLANAR_420, 3, 24),
    (CU_AD_FORMAT_UINT8_SEMIPLANAR_422, 3, 16),
    (CU_AD_FORMAT_UINT16_SEMIPLANAR_422, 3, 32),
    (CU_AD_FORMAT_UINT8_SEMIPLANAR_444, 3, 24),
    (CU_AD_FORMAT_UINT16_SEMIPLANAR_444, 3, 48),
    (CU_AD_FORMAT_UINT8_PLANAR_420, 3, 12),
    (CU_AD_FORMAT_UINT16_PLANAR_420, 3, 24),
    (CU_AD_FORMAT_UINT8_PLANAR_422, 3, 16),
    (CU_AD_FORMAT_UINT16_PLANAR_422, 3, 32),
    (CU_AD_FORMAT_UINT8_PLANAR_444, 3, 24),
    (CU_AD_FORMAT_UINT16_PLANAR_444, 3, 48),
];
/// The formats whose channels are chosen, and the bits of one channel.
const PLAIN: &[(c_int, usize)] = &[
    (CU_AD_FORMAT_UNSIGNED_INT8, 8),
    (CU_AD_FORMAT_UNSIGNED_INT16, 16),
    (CU_AD_FORMAT_UNSIGNED_INT32, 32),
    (CU_AD_FORMAT_SIGNED_INT8, 8),
    (CU_AD_FORMAT_SIGNED_INT16, 16),
    (CU_AD_FORMAT_SIGNED_INT32, 32),
    (CU_AD_FORMAT_HALF, 16),
    (CU_AD_FORMAT_FLOAT, 32),
];

const BYTES: (c_int, c_uint) = (CU_AD_FORMAT_UNSIGNED_INT8, 1);
const LAYERED: u32 = CUDA_ARRAY3D_LAYERED;
const CUBEMAP: u32 = CUDA_ARRAY3D_CUBEMAP;
const SURFACE: u32 = CUDA_ARRAY3D_SURFACE_LDST;
const GATHER: u32 = CUDA_ARRAY3D_TEXTURE_GATHER;

fn describe(
    (format, channels): (c_int, c_uint),
    [width, height, depth]: [usize; 3],
    flags: u32,
) -> CudaArray3dDescriptor {
    CudaArray3dDescriptor {
        Width: width,
        Height: height,
        Depth: depth,
        Format: format,
        NumChannels: channels,
        Flags: flags,
    }
}

fn create(cuda: &Cuda, descriptor: &CudaArray3dDescriptor) -> Result<CuArray, CuResult> {
    let mut array = CuArray::NULL;
    match code!(cuda, cuArray3DCreate_v2(&mut array, descriptor)) {
        CuResult::SUCCESS => Ok(array),
        code => Err(code),
    }
}

fn create_mipmapped(
    cuda: &Cuda,
    descriptor: &CudaArray3dDescriptor,
    levels: u32,
) -> Result<CuMipmappedArray, CuResult> {
    let mut array = CuMipmappedArray::NULL;
    match code!(cuda, cuMipmappedArrayCreate(&mut array, descriptor, levels)) {
        CuResult::SUCCESS => Ok(array),
        code => Err(code),
    }
}

fn described(cuda: &Cuda, array: CuArray) -> CudaArray3dDescriptor {
    let mut descriptor = CudaArray3dDescriptor::default();
    ok!(cuda, cuArray3DGetDescriptor_v2(&mut descriptor, array));
    descriptor
}

fn facts(descriptor: &CudaArray3dDescriptor) -> ((c_int, c_uint), [usize; 3], u32) {
    let extents = [descriptor.Width, descriptor.Height, descriptor.Depth];
    ((descriptor.Format, descriptor.NumChannels), extents, descriptor.Flags)
}

#[test]
fn every_format_costs_its_bits_and_no_other_pair_of_format_and_channels_exists() {
    in_child(
        "arrays::every_format_costs_its_bits_and_no_other_pair_of_format_and_channels_exists",
        |cuda| {
            cuda.context(0);
            let before = cuda.used();
            let plain = PLAIN
                .iter()
                .flat_map(|&(format, bits)| [1, 2, 4].map(|channels| (format, channels, bits * channels as usize)));
            let known: Vec<_> = plain.chain(FIXED.iter().copied()).collect();
            assert_eq!(known.len(), 8 * 3 + 57);
            for format in -1..=256 {
                for channels in 0..=5 {
                    let made = create(cuda, &describe((format, channels), [64, 32, 0], 0));
                    match known.iter().find(|&&(f, c, _)| (f, c) == (format, channels)) {
                        Some(&(_, _, bits)) => {
                            let array = made.unwrap_or_else(|code| panic!("{format} x {channels}: {code:?}"));
                            // 2048 elements: a multiple of 512 bytes for each of the formats.
                            let cost = 2048 * bits as u64 / 8;
                            assert_eq!(cuda.used() - before, cost, "{format} x {channels}");
                            ok!(cuda, cuArrayDestroy(array));
                        }
                        None => assert_eq!(made, Err(CuResult::INVALID_VALUE), "{format} x {channels}"),
                    }
                    assert_eq!(cuda.used(), before);
                }
            }
        },
    );
}

#[test]
fn every_shape_costs_its_elements_rounded_up_once() {
    in_child("arrays::every_shape_costs_its_elements_rounded_up_once", |cuda| {
        cuda.context(0);
        let before = cuda.used();
        let quads = (CU_AD_FORMAT_FLOAT, 4);
        let halves = (CU_AD_FORMAT_HALF, 1);
        for (format, extents, flags, bytes) in [
            (BYTES, [1, 0, 0], 0, 1),
            (BYTES, [512, 0, 0], 0, 512),
            (BYTES, [513, 0, 0], 0, 513),
            (quads, [33, 0, 0], SURFACE, 528),
            (quads, [100, 3, 0], 0, 4800),
            (BYTES, [1000, 1, 0], GATHER, 1000),
            (BYTES, [10, 11, 12], 0, 1320),
            (quads, [1, 1, 33], SURFACE, 528),
            (halves, [100, 0, 7], LAYERED, 1400),
            (halves, [100, 3, 7], LAYERED, 4200),
            (BYTES, [10, 10, 6], CUBEMAP, 600),
            (BYTES, [10, 10, 18], CUBEMAP | LAYERED, 1800),
            // Blocks are whole, in each layer.
            ((CU_AD_FORMAT_BC1_UNORM, 4), [33, 33, 0], 0, 9 * 9 * 8),
            ((CU_AD_FORMAT_BC7_UNORM, 4), [1021, 1, 0], 0, 256 * 16),
            ((CU_AD_FORMAT_BC4_SNORM, 1), [5, 5, 33], LAYERED, 4 * 8 * 33),
            ((CU_AD_FORMAT_NV12, 3), [33, 17, 0], 0, 33 * 17 + 17 * 9 * 2),
            (
                (CU_AD_FORMAT_UINT16_PLANAR_422, 3),
                [33, 17, 0],
                0,
                33 * 17 * 2 + 2 * 17 * 17 * 2,
            ),
            ((CU_AD_FORMAT_YUY2, 2), [33, 17, 0], 0, 17 * 4 * 17),
        ] {
            let descriptor = describe(format, extents, flags);
            let array = create(cuda, &descriptor).unwrap_or_else(|code| panic!("{:?}: {code:?}", facts(&descriptor)));
            let cost = u64::next_multiple_of(bytes, 512);
            assert_eq!(cuda.used() - before, cost, "{:?}", facts(&descriptor));
            assert_eq!(facts(&described(cuda, array)), facts(&descriptor));
            ok!(cuda, cuArrayDestroy(array));
            assert_eq!(cuda.used(), before);
        }
    });
}

#[test]
fn mipmaps_halve_everything_but_layers_and_are_rounded_up_together() {
    in_child(
        "arrays::mipmaps_halve_everything_but_layers_and_are_rounded_up_together",
        |cuda| {
            cuda.context(0);
            let before = cuda.used();
            for (format, extents, flags, levels, sizes) in [
                (BYTES, [64, 64, 0], 0, 7, &[4096, 1024, 256, 64, 16, 4, 1][..]),
                (BYTES, [64, 64, 0], SURFACE, 100, &[4096, 1024, 256, 64, 16, 4, 1]),
                (BYTES, [64, 64, 0], GATHER, 0, &[4096]),
                (BYTES, [1000, 0, 0], 0, 3, &[1000, 500, 250]),
                (BYTES, [10, 3, 0], 0, 9, &[30, 5, 2, 1]),
                (BYTES, [8, 8, 8], 0, 9, &[512, 64, 8, 1]),
                (BYTES, [16, 4, 20], LAYERED, 9, &[64 * 20, 16 * 20, 4 * 20, 2 * 20, 20]),
                (BYTES, [16, 0, 50], LAYERED, 9, &[800, 400, 200, 100, 50]),
                (BYTES, [8, 8, 6], CUBEMAP, 9, &[384, 96, 24, 6]),
                (BYTES, [8, 8, 12], CUBEMAP | LAYERED, 2, &[768, 192]),
                (
                    (CU_AD_FORMAT_BC1_UNORM, 4),
                    [64, 64, 0],
                    0,
                    9,
                    &[2048, 512, 128, 32, 8, 8, 8],
                ),
            ] {
                let descriptor = describe(format, extents, flags);
                let made = create_mipmapped(cuda, &descriptor, levels);
                let mipmapped = made.unwrap_or_else(|code| panic!("{:?}: {code:?}", facts(&descriptor)));
                let cost = sizes.iter().sum::<u64>().next_multiple_of(512);
                assert_eq!(cuda.used() - before, cost, "{:?}", facts(&descriptor));
                let mut level = CuArray::NULL;
                for number in 0..sizes.len() as u32 {
                    ok!(cuda, cuMipmappedArrayGetLevel(&mut level, mipmapped, number));
                    let halve = |extent: usize| if extent == 0 { 0 } else { (extent >> number).max(1) };
                    let is_layered = flags & (LAYERED | CUBEMAP) != 0;
                    let depth = if is_layered { extents[2] } else { halve(extents[2]) };
                    let expected = (format, [halve(extents[0]), halve(extents[1]), depth], flags);
                    assert_eq!(facts(&described(cuda, level)), expected);
                    let mut again = CuArray::NULL;
                    ok!(cuda, cuMipmappedArrayGetLevel(&mut again, mipmapped, number));
                    assert_eq!(again, level, "a level has one handle");
                }
                refused!(INVALID_VALUE: cuda, cuMipmappedArrayGetLevel(&mut level, mipmapped, sizes.len() as u32));
                refused!(INVALID_HANDLE: cuda, cuArrayDestroy(level));
                ok!(cuda, cuMipmappedArrayDestroy(mipmapped));
                assert_eq!(cuda.used(), before);
                let mut gone = CudaArray3dDescriptor::default();
                refused!(INVALID_HANDLE: cuda, cuArray3DGetDescriptor_v2(&mut gone, level));
                refused!(INVALID_HANDLE: cuda, cuMipmappedArrayDestroy(mipmapped));
            }
        },
    );
}

#[test]
fn planes_are_arrays_of_their_own_and_live_with_the_whole() {
    in_child(
        "arrays::planes_are_arrays_of_their_own_and_live_with_the_whole",
        |cuda| {
            cuda.context(0);
            let before = cuda.used();
            let words = CU_AD_FORMAT_UNSIGNED_INT16;
            for (format, planes) in [
                (
                    CU_AD_FORMAT_NV12,
                    &[(BYTES, [64, 48, 0]), ((BYTES.0, 2), [32, 24, 0])][..],
                ),
                (
                    CU_AD_FORMAT_P216,
                    &[((words, 1), [64, 48, 0]), ((words, 2), [32, 48, 0])],
                ),
                (
                    CU_AD_FORMAT_UINT8_PLANAR_420,
                    &[(BYTES, [64, 48, 0]), (BYTES, [32, 24, 0]), (BYTES, [32, 24, 0])],
                ),
            ] {
                let flags = SURFACE | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
                let array = create(cuda, &describe((format, 3), [64, 48, 0], flags)).expect("room");
                let mut plane = CuArray::NULL;
                for (number, &(format, extents)) in planes.iter().enumerate() {
                    ok!(cuda, cuArrayGetPlane(&mut plane, array, number as u32));
                    assert_eq!(facts(&described(cuda, plane)), (format, extents, flags));
                }
                let mut none = CuArray::NULL;
                refused!(INVALID_VALUE: cuda, cuArrayGetPlane(&mut none, array, planes.len() as u32));
                refused!(INVALID_VALUE: cuda, cuArrayGetPlane(&mut none, plane, 0));
                refused!(INVALID_HANDLE: cuda, cuArrayDestroy(plane));
                ok!(cuda, cuArrayDestroy(array));
                refused!(INVALID_HANDLE: cuda, cuArrayGetPlane(&mut none, plane, 0));
                assert_eq!(cuda.used(), before);
            }
        },
    );
}

#[test]
fn arrays_fill_the_device_to_the_last_byte() {
    in_child("arrays::arrays_fill_the_device_to_the_last_byte", |cuda| {
        cuda.context(0);
        let before = cuda.used();
        let rest = 1024 * MIB - before;
        // Rows of 64 KiB.
        let row = (CU_AD_FORMAT_UNSIGNED_INT32, 1);
        let rows = (rest / 65536) as usize;
        assert_eq!(rows as u64 * 65536, rest);
        let all = create(cuda, &describe(row, [16384, rows, 0], 0)).expect("exactly what is left");
        assert_eq!(cuda.used(), 1024 * MIB);
        let one = describe(BYTES, [1, 0, 0], 0);
        assert_eq!(create(cuda, &one), Err(CuResult::OUT_OF_MEMORY));
        assert_eq!(create_mipmapped(cuda, &one, 1), Err(CuResult::OUT_OF_MEMORY));
        assert_eq!(cuda.allocate(1), Err(CuResult::OUT_OF_MEMORY));
        ok!(cuda, cuArrayDestroy(all));
        assert_eq!(cuda.used(), before);
        let beyond = describe(row, [16384, rows + 1, 0], 0);
        assert_eq!(create(cuda, &beyond), Err(CuResult::OUT_OF_MEMORY));
        // The largest that the device's limits allow: far more than it has.
        let largest = describe((CU_AD_FORMAT_FLOAT, 4), [16384, 16384, 16384], 0);
        assert_eq!(create(cuda, &largest), Err(CuResult::OUT_OF_MEMORY));
        assert_eq!(create_mipmapped(cuda, &largest, 99), Err(CuResult::OUT_OF_MEMORY));
        assert_eq!(cuda.used(), before);
        // All but 1024 bytes: two arrays of up to 512, or one of up to 1024, and not a byte more.
        let most = cuda.allocate(rest - 1024).expect("room");
        assert_eq!(
            create(cuda, &describe(BYTES, [1025, 0, 0], 0)),
            Err(CuResult::OUT_OF_MEMORY)
        );
        // With its levels: 513 + 256 + 128 + ... + 1 are 1024, 514 + 257 + 128 + ... + 1 are 1026.
        let levels = create_mipmapped(cuda, &describe(BYTES, [513, 0, 0], 0), 99).expect("room");
        assert_eq!(cuda.used(), 1024 * MIB);
        ok!(cuda, cuMipmappedArrayDestroy(levels));
        let beyond = describe(BYTES, [514, 0, 0], 0);
        assert_eq!(create_mipmapped(cuda, &beyond, 99), Err(CuResult::OUT_OF_MEMORY));
        let first = create(cuda, &describe(BYTES, [1, 0, 0], 0)).expect("room");
        assert_eq!(
            create(cuda, &describe(BYTES, [513, 0, 0], 0)),
            Err(CuResult::OUT_OF_MEMORY)
        );
        let second = create(cuda, &describe(BYTES, [512, 0, 0], 0)).expect("room");
        assert_eq!(create(cuda, &one), Err(CuResult::OUT_OF_MEMORY));
        ok!(cuda, cuArrayDestroy(first));
        ok!(cuda, cuArrayDestroy(second));
        ok!(cuda, cuMemFree_v2(most));
        assert_eq!(cuda.used(), before);
    });
}

#[test]
fn arrays_go_with_their_context() {
    in_child("arrays::arrays_go_with_their_context", |cuda| {
        cuda.context(0);
        let before = cuda.used();
        let kept = create(cuda, &describe(BYTES, [4096, 0, 0], 0)).expect("room");
        let context = cuda.context(0);
        let own = create(cuda, &describe((CU_AD_FORMAT_NV12, 3), [1024, 1024, 0], 0)).expect("room");
        let mipmapped = create_mipmapped(cuda, &describe(BYTES, [1024, 1024, 0], 0), 4).expect("room");
        let (mut level, mut plane) = (CuArray::NULL, CuArray::NULL);
        ok!(cuda, cuMipmappedArrayGetLevel(&mut level, mipmapped, 2));
        ok!(cuda, cuArrayGetPlane(&mut plane, own, 1));
        ok!(cuda, cuCtxDestroy_v2(context));
        assert_eq!(cuda.used(), before + 4096);
        for gone in [own, level, plane] {
            refused!(INVALID_HANDLE: cuda, cuArrayDestroy(gone));
        }
        refused!(INVALID_HANDLE: cuda, cuMipmappedArrayDestroy(mipmapped));
        ok!(cuda, cuArrayDestroy(kept));
        assert_eq!(cuda.used(), before);
    });
}

#[test]
fn all_versions_of_a_descriptor_say_the_same() {
    in_child("arrays::all_versions_of_a_descriptor_say_the_same", |cuda| {
        cuda.context(0);
        let before = cuda.used();
        let (format, channels) = (CU_AD_FORMAT_HALF, 2);
        let (mut first, mut second, mut third, mut fourth) =
            (CuArray::NULL, CuArray::NULL, CuArray::NULL, CuArray::NULL);
        let narrow = CudaArrayDescriptorV1 {
            Width: 40,
            Height: 30,
            Format: format,
            NumChannels: channels,
        };
        ok!(cuda, cuArrayCreate(&mut first, &narrow));
        let flat = CudaArrayDescriptor {
            Width: 40,
            Height: 30,
            Format: format,
            NumChannels: channels,
        };
        ok!(cuda, cuArrayCreate_v2(&mut second, &flat));
        let narrow = CudaArray3dDescriptorV1 {
            Width: 40,
            Height: 30,
            Depth: 0,
            Format: format,
            NumChannels: channels,
            Flags: 0,
        };
        ok!(cuda, cuArray3DCreate(&mut third, &narrow));
        ok!(
            cuda,
            cuArray3DCreate_v2(&mut fourth, &describe((format, channels), [40, 30, 0], 0))
        );
        assert_eq!(cuda.used(), before + 4 * u64::next_multiple_of(40 * 30 * 4, 512));
        for array in [first, second, third, fourth] {
            let (mut a, mut b) = (CudaArrayDescriptorV1::default(), CudaArrayDescriptor::default());
            let mut c = CudaArray3dDescriptorV1::default();
            ok!(cuda, cuArrayGetDescriptor(&mut a, array));
            ok!(cuda, cuArrayGetDescriptor_v2(&mut b, array));
            ok!(cuda, cuArray3DGetDescriptor(&mut c, array));
            assert_eq!((a.Width, a.Height, a.Format, a.NumChannels), (40, 30, format, channels));
            assert_eq!((b.Width, b.Height, b.Format, b.NumChannels), (40, 30, format, channels));
            assert_eq!((c.Width, c.Height, c.Depth, c.Flags), (40, 30, 0, 0));
            assert_eq!(facts(&described(cuda, array)), ((format, channels), [40, 30, 0], 0));
            refused!(INVALID_VALUE: cuda, cuArrayGetDescriptor_v2(std::ptr::null_mut(), array));
            // None is sparse or waits for its memory.
            let (mut sparse, mut needed) = (Default::default(), Default::default());
            refused!(INVALID_VALUE: cuda, cuArrayGetSparseProperties(&mut sparse, array));
            refused!(INVALID_VALUE: cuda, cuArrayGetMemoryRequirements(&mut needed, array, 0));
            refused!(INVALID_DEVICE: cuda, cuArrayGetMemoryRequirements(&mut needed, array, 9));
            ok!(cuda, cuArrayDestroy(array));
            refused!(INVALID_HANDLE: cuda, cuArrayDestroy(array));
            refused!(INVALID_HANDLE: cuda, cuArrayGetMemoryRequirements(&mut needed, array, 0));
        }
        refused!(INVALID_HANDLE: cuda, cuArrayDestroy(CuArray::NULL));
        refused!(INVALID_HANDLE: cuda, cuMipmappedArrayDestroy(CuMipmappedArray(first.0)));
        assert_eq!(cuda.used(), before);
    });
}
