// SPDX-License-Identifier: Apache-2.0
//! What the elements of an array look like: bytes for each `CUarray_format`, and the planes of video formats.
//!
//! Terms. *Block*: the smallest piece of a plane that memory is counted in; one element in most formats, 4 x 4 of
//! them in the block-compressed ones, two neighbours where they share their colour. *Plane*: one component, or two,
//! of a video format, stored as an array of its own. Formats with planes have one 8-bit or 16-bit plane of brightness
//! and, after it, the colours in one plane of pairs (*semi-planar*) or in two (*planar*).

use partage_abi::types::{c_int, c_uint};
use partage_abi::values::*;

/// The smallest piece of a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Elements across.
    pub width: u64,
    /// Elements down.
    pub height: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// One plane of a video format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane {
    /// The format of its elements.
    pub format: c_int,
    /// Components of an element.
    pub channels: c_uint,
    /// The picture's width is divided by this.
    pub across: u64,
    /// And its height by this.
    pub down: u64,
}

/// How a format is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// In one plane.
    Single(Block),
    /// In several.
    Planes(Vec<Plane>),
}

/// How the elements of a format with so many channels are stored; `None` when there is no such format, or not with
/// so many channels. The plain formats have 1, 2 or 4; all others have the number that their description in the
/// vendor's header gives.
pub fn form(format: c_int, channels: c_uint) -> Option<Form> {
    if let Some(planes) = planes(format) {
        return (channels == 3).then_some(Form::Planes(planes));
    }
    if let Some(bits) = plain_bits(format) {
        let bytes = u64::from(bits / 8 * channels);
        return matches!(channels, 1 | 2 | 4).then_some(Form::Single(elements(bytes)));
    }
    let (expected, block) = fixed(format)?;
    (channels == expected).then_some(Form::Single(block))
}

/// Bits of a channel of the formats whose channels are chosen.
fn plain_bits(format: c_int) -> Option<u32> {
    Some(match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 8,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 16,
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 32,
        _ => return None,
    })
}

/// Channels and block of the formats that fix both.
fn fixed(format: c_int) -> Option<(c_uint, Block)> {
    Some(match format {
        CU_AD_FORMAT_UNORM_INT8X1 | CU_AD_FORMAT_SNORM_INT8X1 => (1, elements(1)),
        CU_AD_FORMAT_UNORM_INT8X2 | CU_AD_FORMAT_SNORM_INT8X2 => (2, elements(2)),
        CU_AD_FORMAT_UNORM_INT8X4 | CU_AD_FORMAT_SNORM_INT8X4 => (4, elements(4)),
        CU_AD_FORMAT_UNORM_INT16X1 | CU_AD_FORMAT_SNORM_INT16X1 => (1, elements(2)),
        CU_AD_FORMAT_UNORM_INT16X2 | CU_AD_FORMAT_SNORM_INT16X2 => (2, elements(4)),
        CU_AD_FORMAT_UNORM_INT16X4 | CU_AD_FORMAT_SNORM_INT16X4 => (4, elements(8)),
        CU_AD_FORMAT_UNORM_INT_101010_2 => (4, elements(4)),
        CU_AD_FORMAT_BC1_UNORM | CU_AD_FORMAT_BC1_UNORM_SRGB => (4, compressed(8)),
        CU_AD_FORMAT_BC2_UNORM | CU_AD_FORMAT_BC2_UNORM_SRGB => (4, compressed(16)),
        CU_AD_FORMAT_BC3_UNORM | CU_AD_FORMAT_BC3_UNORM_SRGB => (4, compressed(16)),
        CU_AD_FORMAT_BC4_UNORM | CU_AD_FORMAT_BC4_SNORM => (1, compressed(8)),
        CU_AD_FORMAT_BC5_UNORM | CU_AD_FORMAT_BC5_SNORM => (2, compressed(16)),
        CU_AD_FORMAT_BC6H_UF16 | CU_AD_FORMAT_BC6H_SF16 => (3, compressed(16)),
        CU_AD_FORMAT_BC7_UNORM | CU_AD_FORMAT_BC7_UNORM_SRGB => (4, compressed(16)),
        // Packed video. Brightness alternates with one of the two colours of a pair of neighbours, or each element has
        // all components and a fourth.
        CU_AD_FORMAT_YUY2 => (2, pairs(4)),
        CU_AD_FORMAT_Y210 | CU_AD_FORMAT_Y216 => (2, pairs(8)),
        CU_AD_FORMAT_UINT8_PACKED_422 => (4, pairs(4)),
        CU_AD_FORMAT_AYUV | CU_AD_FORMAT_UINT8_PACKED_444 => (4, elements(4)),
        CU_AD_FORMAT_Y410 => (4, elements(4)), // 10 + 10 + 10 + 2 bits
        CU_AD_FORMAT_Y416 => (4, elements(8)), // 12 bits in 16
        _ => return None,
    })
}

/// The planes of the formats that have some. What is 10 bits wide takes 16.
#[allow(non_upper_case_globals)] // the vendor's names
fn planes(format: c_int) -> Option<Vec<Plane>> {
    const BYTES: c_int = CU_AD_FORMAT_UNSIGNED_INT8;
    const WORDS: c_int = CU_AD_FORMAT_UNSIGNED_INT16;
    Some(match format {
        CU_AD_FORMAT_NV12 | CU_AD_FORMAT_UINT8_SEMIPLANAR_420 => semi_planar(BYTES, 2, 2),
        CU_AD_FORMAT_P010 | CU_AD_FORMAT_P016 | CU_AD_FORMAT_UINT16_SEMIPLANAR_420 => semi_planar(WORDS, 2, 2),
        CU_AD_FORMAT_NV16 | CU_AD_FORMAT_UINT8_SEMIPLANAR_422 => semi_planar(BYTES, 2, 1),
        CU_AD_FORMAT_P210 | CU_AD_FORMAT_P216 | CU_AD_FORMAT_UINT16_SEMIPLANAR_422 => semi_planar(WORDS, 2, 1),
        CU_AD_FORMAT_YUV444_8bit_SemiPlanar | CU_AD_FORMAT_UINT8_SEMIPLANAR_444 => semi_planar(BYTES, 1, 1),
        CU_AD_FORMAT_YUV444_16bit_SemiPlanar | CU_AD_FORMAT_UINT16_SEMIPLANAR_444 => semi_planar(WORDS, 1, 1),
        CU_AD_FORMAT_UINT8_PLANAR_420 => planar(BYTES, 2, 2),
        CU_AD_FORMAT_UINT16_PLANAR_420 => planar(WORDS, 2, 2),
        CU_AD_FORMAT_UINT8_PLANAR_422 => planar(BYTES, 2, 1),
        CU_AD_FORMAT_UINT16_PLANAR_422 => planar(WORDS, 2, 1),
        CU_AD_FORMAT_Y444_PLANAR8 | CU_AD_FORMAT_UINT8_PLANAR_444 => planar(BYTES, 1, 1),
        CU_AD_FORMAT_Y444_PLANAR10 | CU_AD_FORMAT_UINT16_PLANAR_444 => planar(WORDS, 1, 1),
        _ => return None,
    })
}

fn semi_planar(format: c_int, across: u64, down: u64) -> Vec<Plane> {
    vec![plane(format, 1, 1, 1), plane(format, 2, across, down)]
}

fn planar(format: c_int, across: u64, down: u64) -> Vec<Plane> {
    let colour = plane(format, 1, across, down);
    vec![plane(format, 1, 1, 1), colour, colour]
}

fn plane(format: c_int, channels: c_uint, across: u64, down: u64) -> Plane {
    Plane {
        format,
        channels,
        across,
        down,
    }
}

/// Elements that are stored one by one.
fn elements(bytes: u64) -> Block {
    Block {
        width: 1,
        height: 1,
        bytes,
    }
}

/// Two neighbours in a row that share something.
fn pairs(bytes: u64) -> Block {
    Block {
        width: 2,
        height: 1,
        bytes,
    }
}

/// The squares that are compressed together.
fn compressed(bytes: u64) -> Block {
    Block {
        width: 4,
        height: 4,
        bytes,
    }
}
