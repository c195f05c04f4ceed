// SPDX-License-Identifier: Apache-2.0
//! The sizes of arrays, by hand: every format, every kind of array, and the edges of arithmetic.

use partage_abi::values::*;
use partage_records::array::Shape;

fn shape(width: u64, height: u64, depth: u64, format: i32, channels: u32, flags: u32) -> Shape {
    Shape {
        width,
        height,
        depth,
        format,
        channels,
        flags,
    }
}

/// Format, channels, bytes of 16 x 8 elements, bytes of 5 x 3 elements. Worked out from the descriptions in the
/// vendor's header: bits of an element times 128 and 15; whole squares of 16 and whole pairs where those are shared.
const FORMATS: &[(i32, u32, u64, u64)] = &[
    (CU_AD_FORMAT_UNSIGNED_INT8, 1, 128, 15),
    (CU_AD_FORMAT_UNSIGNED_INT8, 2, 256, 30),
    (CU_AD_FORMAT_UNSIGNED_INT8, 4, 512, 60),
    (CU_AD_FORMAT_SIGNED_INT8, 4, 512, 60),
    (CU_AD_FORMAT_UNSIGNED_INT16, 1, 256, 30),
    (CU_AD_FORMAT_SIGNED_INT16, 2, 512, 60),
    (CU_AD_FORMAT_HALF, 4, 1024, 120),
    (CU_AD_FORMAT_UNSIGNED_INT32, 1, 512, 60),
    (CU_AD_FORMAT_SIGNED_INT32, 2, 1024, 120),
    (CU_AD_FORMAT_FLOAT, 1, 512, 60),
    (CU_AD_FORMAT_FLOAT, 4, 2048, 240),
    (CU_AD_FORMAT_UNORM_INT8X1, 1, 128, 15),
    (CU_AD_FORMAT_UNORM_INT8X2, 2, 256, 30),
    (CU_AD_FORMAT_UNORM_INT8X4, 4, 512, 60),
    (CU_AD_FORMAT_UNORM_INT16X1, 1, 256, 30),
    (CU_AD_FORMAT_UNORM_INT16X2, 2, 512, 60),
    (CU_AD_FORMAT_UNORM_INT16X4, 4, 1024, 120),
    (CU_AD_FORMAT_SNORM_INT8X1, 1, 128, 15),
    (CU_AD_FORMAT_SNORM_INT8X2, 2, 256, 30),
    (CU_AD_FORMAT_SNORM_INT8X4, 4, 512, 60),
    (CU_AD_FORMAT_SNORM_INT16X1, 1, 256, 30),
    (CU_AD_FORMAT_SNORM_INT16X2, 2, 512, 60),
    (CU_AD_FORMAT_SNORM_INT16X4, 4, 1024, 120),
    (CU_AD_FORMAT_UNORM_INT_101010_2, 4, 512, 60),
    // 4 x 2 squares, and 2 x 1.
    (CU_AD_FORMAT_BC1_UNORM, 4, 64, 16),
    (CU_AD_FORMAT_BC1_UNORM_SRGB, 4, 64, 16),
    (CU_AD_FORMAT_BC2_UNORM, 4, 128, 32),
    (CU_AD_FORMAT_BC2_UNORM_SRGB, 4, 128, 32),
    (CU_AD_FORMAT_BC3_UNORM, 4, 128, 32),
    (CU_AD_FORMAT_BC3_UNORM_SRGB, 4, 128, 32),
    (CU_AD_FORMAT_BC4_UNORM, 1, 64, 16),
    (CU_AD_FORMAT_BC4_SNORM, 1, 64, 16),
    (CU_AD_FORMAT_BC5_UNORM, 2, 128, 32),
    (CU_AD_FORMAT_BC5_SNORM, 2, 128, 32),
    (CU_AD_FORMAT_BC6H_UF16, 3, 128, 32),
    (CU_AD_FORMAT_BC6H_SF16, 3, 128, 32),
    (CU_AD_FORMAT_BC7_UNORM, 4, 128, 32),
    (CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 128, 32),
    // Rows of 8 pairs, and of 3.
    (CU_AD_FORMAT_YUY2, 2, 256, 36),
    (CU_AD_FORMAT_UINT8_PACKED_422, 4, 256, 36),
    (CU_AD_FORMAT_Y210, 2, 512, 72),
    (CU_AD_FORMAT_Y216, 2, 512, 72),
    (CU_AD_FORMAT_AYUV, 4, 512, 60),
    (CU_AD_FORMAT_UINT8_PACKED_444, 4, 512, 60),
    (CU_AD_FORMAT_Y410, 4, 512, 60),
    (CU_AD_FORMAT_Y416, 4, 1024, 120),
    // 128 + 2 * 8 * 4, and 15 + 2 * 3 * 2; twice that in 16 bits.
    (CU_AD_FORMAT_NV12, 3, 192, 27),
    (CU_AD_FORMAT_UINT8_SEMIPLANAR_420, 3, 192, 27),
    (CU_AD_FORMAT_UINT8_PLANAR_420, 3, 192, 27),
    (CU_AD_FORMAT_P010, 3, 384, 54),
    (CU_AD_FORMAT_P016, 3, 384, 54),
    (CU_AD_FORMAT_UINT16_SEMIPLANAR_420, 3, 384, 54),
    (CU_AD_FORMAT_UINT16_PLANAR_420, 3, 384, 54),
    // 128 + 2 * 8 * 8, and 15 + 2 * 3 * 3.
    (CU_AD_FORMAT_NV16, 3, 256, 33),
    (CU_AD_FORMAT_UINT8_SEMIPLANAR_422, 3, 256, 33),
    (CU_AD_FORMAT_UINT8_PLANAR_422, 3, 256, 33),
    (CU_AD_FORMAT_P210, 3, 512, 66),
    (CU_AD_FORMAT_P216, 3, 512, 66),
    (CU_AD_FORMAT_UINT16_SEMIPLANAR_422, 3, 512, 66),
    (CU_AD_FORMAT_UINT16_PLANAR_422, 3, 512, 66),
    (CU_AD_FORMAT_Y444_PLANAR8, 3, 384, 45),
    (CU_AD_FORMAT_YUV444_8bit_SemiPlanar, 3, 384, 45),
    (CU_AD_FORMAT_UINT8_SEMIPLANAR_444, 3, 384, 45),
    (CU_AD_FORMAT_UINT8_PLANAR_444, 3, 384, 45),
    (CU_AD_FORMAT_Y444_PLANAR10, 3, 768, 90),
    (CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 3, 768, 90),
    (CU_AD_FORMAT_UINT16_SEMIPLANAR_444, 3, 768, 90),
    (CU_AD_FORMAT_UINT16_PLANAR_444, 3, 768, 90),
];

#[test]
fn every_format_takes_what_the_hand_table_says() {
    for &(format, channels, whole, odd) in FORMATS {
        assert_eq!(
            shape(16, 8, 0, format, channels, 0).bytes(),
            Some(whole),
            "format {format}"
        );
        assert_eq!(
            shape(5, 3, 0, format, channels, 0).bytes(),
            Some(odd),
            "format {format}, odd"
        );
    }
}

#[test]
fn the_hand_table_names_every_format_of_the_header() {
    let named = |format: i32| FORMATS.iter().any(|row| row.0 == format);
    // The header's values, each range without gaps but for 0xa0.
    let ranges = [
        1..=3,
        8..=10,
        16..=16,
        32..=32,
        0x50..=0x5e,
        0x91..=0xa9,
        0xb0..=0xb5,
        0xc0..=0xcb,
    ];
    for format in ranges.into_iter().flatten().filter(|format| *format != 0xa0) {
        assert!(named(format), "format {format:#x}");
    }
}

#[test]
fn one_dimension_layers_and_faces_count_as_their_elements() {
    let float = |width, height, depth, flags| shape(width, height, depth, CU_AD_FORMAT_FLOAT, 1, flags).bytes();
    assert_eq!(float(100, 0, 0, 0), Some(400));
    assert_eq!(float(100, 7, 0, 0), Some(2_800));
    assert_eq!(float(100, 7, 3, 0), Some(8_400));
    assert_eq!(float(100, 0, 5, CUDA_ARRAY3D_LAYERED), Some(2_000));
    assert_eq!(float(100, 7, 5, CUDA_ARRAY3D_LAYERED), Some(14_000));
    assert_eq!(float(64, 64, 6, CUDA_ARRAY3D_CUBEMAP), Some(98_304));
    assert_eq!(
        float(64, 64, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED),
        Some(196_608)
    );
}

#[test]
fn levels_halve_everything_but_layers() {
    let levels = |width, height, depth, flags, levels| {
        shape(width, height, depth, CU_AD_FORMAT_UNSIGNED_INT8, 1, flags).mipmapped_bytes(levels)
    };
    // 8x4, 4x2, 2x1, 1x1
    assert_eq!(levels(8, 4, 0, 0, 4), Some(32 + 8 + 2 + 1));
    assert_eq!(levels(8, 4, 0, 0, 2), Some(40));
    assert_eq!(levels(8, 4, 0, 0, 1), Some(32));
    assert_eq!(levels(8, 0, 0, 0, 4), Some(8 + 4 + 2 + 1));
    assert_eq!(levels(5, 5, 0, 0, 3), Some(25 + 4 + 1), "odd extents round down");
    assert_eq!(levels(8, 4, 4, 0, 4), Some(128 + 16 + 2 + 1), "slices are halved");
    assert_eq!(levels(8, 4, 3, CUDA_ARRAY3D_LAYERED, 4), Some(3 * 43), "layers are not");
    assert_eq!(levels(4, 4, 6, CUDA_ARRAY3D_CUBEMAP, 3), Some(6 * 21), "nor are faces");
    // The driver makes at least one level and no more than halving gives.
    assert_eq!(levels(8, 4, 0, 0, 0), Some(32));
    assert_eq!(levels(8, 4, 0, 0, u32::MAX), Some(43));
    // A level of compressed elements is whole squares: 8x8, 4x4, 2x2, 1x1.
    let squares = shape(8, 8, 0, CU_AD_FORMAT_BC1_UNORM, 4, 0);
    assert_eq!(squares.mipmapped_bytes(4), Some(32 + 8 + 8 + 8));
}

#[test]
fn an_array_without_memory_of_its_own_says_so() {
    let has_memory = |flags| shape(8, 8, 0, CU_AD_FORMAT_FLOAT, 1, flags).has_memory();
    assert!(has_memory(
        CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_TEXTURE_GATHER
    ));
    assert!(!has_memory(CUDA_ARRAY3D_SPARSE));
    assert!(!has_memory(CUDA_ARRAY3D_DEFERRED_MAPPING));
}

#[test]
fn what_is_no_size_is_left_to_the_driver() {
    let bytes = |width, height, depth, format, channels| shape(width, height, depth, format, channels, 0).bytes();
    assert_eq!(bytes(0, 8, 0, CU_AD_FORMAT_FLOAT, 1), None);
    assert_eq!(bytes(8, 8, 0, CU_AD_FORMAT_FLOAT, 0), None);
    assert_eq!(bytes(8, 8, 0, 7, 1), None, "no such format");
    assert_eq!(bytes(8, 8, 0, -1, 1), None);
    let formats = FORMATS.iter().map(|row| (row.0, row.1));
    for (format, channels) in formats {
        for (width, height, depth) in [
            (u64::MAX, u64::MAX, u64::MAX),
            (u64::MAX, u64::MAX, 1),
            (1 << 40, 1 << 40, 1 << 40),
        ] {
            assert_eq!(
                bytes(width, height, depth, format, channels),
                None,
                "format {format}: no 64-bit number"
            );
            assert_eq!(
                shape(width, height, depth, format, channels, 0).mipmapped_bytes(64),
                None
            );
        }
    }
    assert_eq!(
        bytes(1, 1, 1, CU_AD_FORMAT_FLOAT, u32::MAX),
        Some(4 * u64::from(u32::MAX))
    );
    // The longest row that still is a number.
    assert_eq!(bytes(u64::MAX / 4, 0, 0, CU_AD_FORMAT_FLOAT, 1), Some(u64::MAX / 4 * 4));
}
