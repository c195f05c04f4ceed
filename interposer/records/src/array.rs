// SPDX-License-Identifier: Apache-2.0
//! How many bytes an array takes, from its description.
//!
//! Terms. *Element*: what a width counts. *Block*: the smallest piece that memory is counted in; one element in most
//! formats, 4 × 4 of them where they are compressed together, two neighbours where they share their colour. *Plane*:
//! brightness, or colour at a resolution of its own, of a video format. Sizes are the elements' own: what a driver adds
//! for tiles and alignment is seen by the broker's measurement and counts as overhead.
//!
//! `None` everywhere means that the size is not known here, or is no 64-bit number: the driver decides alone.

use core::ffi::{c_int, c_uint};

use partage_abi::values::*;

/// What an array is made as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Elements of a row.
    pub width: u64,
    /// Rows; 0 for one dimension.
    pub height: u64,
    /// Slices, layers or cube faces; 0 where there is one.
    pub depth: u64,
    /// `CU_AD_FORMAT_*`.
    pub format: c_int,
    /// Components of an element, where the format leaves the choice.
    pub channels: c_uint,
    /// `CUDA_ARRAY3D_*`.
    pub flags: c_uint,
}

/// The smallest piece of a plane: elements across and down, and bytes.
type Block = (u64, u64, u64);

/// How a format is stored.
#[derive(Clone, Copy)]
enum Form {
    /// In one plane.
    Single(Block),
    /// Brightness in elements of so many bytes, then two colour components of as many bytes each, at the width and
    /// height divided by these. Whether those share a plane makes no difference to the size.
    Video { bytes: u64, across: u64, down: u64 },
}

impl Shape {
    /// Does it start with memory of its own? Sparse arrays and those whose mapping is deferred get theirs from
    /// `cuMemCreate`, and it is charged there.
    pub fn has_memory(&self) -> bool {
        self.flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING) == 0
    }

    /// Bytes of an array of this shape.
    pub fn bytes(&self) -> Option<u64> {
        if self.width == 0 {
            return None;
        }
        let slices = self.depth.max(1);
        match form(self.format, self.channels)? {
            Form::Single(block) => plane(self.width, self.height, block)?.checked_mul(slices),
            Form::Video { bytes, across, down } => {
                let bright = plane(self.width, self.height, (1, 1, bytes))?;
                let (width, height) = (self.width.div_ceil(across), self.height.div_ceil(down));
                let colour = plane(width, height, (1, 1, bytes.checked_mul(2)?))?;
                bright.checked_add(colour)?.checked_mul(slices)
            }
        }
    }

    /// Bytes of a mipmapped array of this shape with so many levels: at least one, at most as many as halving gives.
    pub fn mipmapped_bytes(&self, levels: c_uint) -> Option<u64> {
        let levels = levels.clamp(1, self.most_levels());
        (0..levels).try_fold(0_u64, |sum, level| sum.checked_add(self.level(level).bytes()?))
    }

    /// Levels until one element is left; layers and faces are not halved.
    fn most_levels(&self) -> u32 {
        let depth = if self.is_layered() { 1 } else { self.depth };
        let longest = self.width.max(self.height).max(depth).max(1);
        1_u32.saturating_add(longest.ilog2())
    }

    fn level(&self, level: u32) -> Self {
        let halve = |extent: u64| match extent {
            0 => 0,
            _ => extent.checked_shr(level).unwrap_or(0).max(1),
        };
        Self {
            width: halve(self.width),
            height: halve(self.height),
            depth: if self.is_layered() {
                self.depth
            } else {
                halve(self.depth)
            },
            ..*self
        }
    }

    fn is_layered(&self) -> bool {
        self.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0
    }
}

fn plane(width: u64, height: u64, (across, down, bytes): Block) -> Option<u64> {
    let blocks = width.div_ceil(across.max(1));
    let rows = height.max(1).div_ceil(down.max(1));
    blocks.checked_mul(rows)?.checked_mul(bytes)
}

// Two of the vendor's names are not in upper case.
#[allow(non_upper_case_globals)]
fn form(format: c_int, channels: c_uint) -> Option<Form> {
    // Channels are 1, 2 or 4 of these; any other number is the driver's to refuse.
    let plain = |bytes: u64| {
        let bytes = bytes.checked_mul(channels.into())?;
        (bytes > 0).then_some(Form::Single((1, 1, bytes)))
    };
    let element = |bytes| Some(Form::Single((1, 1, bytes)));
    let pair = |bytes| Some(Form::Single((2, 1, bytes)));
    let square = |bytes| Some(Form::Single((4, 4, bytes)));
    let video = |bytes, across, down| Some(Form::Video { bytes, across, down });
    match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => plain(1),
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => plain(2),
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => plain(4),
        CU_AD_FORMAT_UNORM_INT8X1 | CU_AD_FORMAT_SNORM_INT8X1 => element(1),
        CU_AD_FORMAT_UNORM_INT8X2 | CU_AD_FORMAT_SNORM_INT8X2 => element(2),
        CU_AD_FORMAT_UNORM_INT8X4 | CU_AD_FORMAT_SNORM_INT8X4 => element(4),
        CU_AD_FORMAT_UNORM_INT16X1 | CU_AD_FORMAT_SNORM_INT16X1 => element(2),
        CU_AD_FORMAT_UNORM_INT16X2 | CU_AD_FORMAT_SNORM_INT16X2 => element(4),
        CU_AD_FORMAT_UNORM_INT16X4 | CU_AD_FORMAT_SNORM_INT16X4 => element(8),
        CU_AD_FORMAT_UNORM_INT_101010_2 => element(4),
        CU_AD_FORMAT_BC1_UNORM | CU_AD_FORMAT_BC1_UNORM_SRGB => square(8),
        CU_AD_FORMAT_BC4_UNORM | CU_AD_FORMAT_BC4_SNORM => square(8),
        CU_AD_FORMAT_BC2_UNORM | CU_AD_FORMAT_BC2_UNORM_SRGB => square(16),
        CU_AD_FORMAT_BC3_UNORM | CU_AD_FORMAT_BC3_UNORM_SRGB => square(16),
        CU_AD_FORMAT_BC5_UNORM | CU_AD_FORMAT_BC5_SNORM => square(16),
        CU_AD_FORMAT_BC6H_UF16 | CU_AD_FORMAT_BC6H_SF16 => square(16),
        CU_AD_FORMAT_BC7_UNORM | CU_AD_FORMAT_BC7_UNORM_SRGB => square(16),
        // Packed video: two neighbours share their colour, or each element has all components and a fourth.
        CU_AD_FORMAT_YUY2 | CU_AD_FORMAT_UINT8_PACKED_422 => pair(4),
        CU_AD_FORMAT_Y210 | CU_AD_FORMAT_Y216 => pair(8),
        CU_AD_FORMAT_AYUV | CU_AD_FORMAT_UINT8_PACKED_444 => element(4),
        CU_AD_FORMAT_Y410 => element(4), // 10 + 10 + 10 + 2 bits
        CU_AD_FORMAT_Y416 => element(8), // 12 bits in 16
        // Video in planes; what is 10 bits wide takes 16.
        CU_AD_FORMAT_NV12 | CU_AD_FORMAT_UINT8_SEMIPLANAR_420 | CU_AD_FORMAT_UINT8_PLANAR_420 => video(1, 2, 2),
        CU_AD_FORMAT_P010 | CU_AD_FORMAT_P016 => video(2, 2, 2),
        CU_AD_FORMAT_UINT16_SEMIPLANAR_420 | CU_AD_FORMAT_UINT16_PLANAR_420 => video(2, 2, 2),
        CU_AD_FORMAT_NV16 | CU_AD_FORMAT_UINT8_SEMIPLANAR_422 | CU_AD_FORMAT_UINT8_PLANAR_422 => video(1, 2, 1),
        CU_AD_FORMAT_P210 | CU_AD_FORMAT_P216 => video(2, 2, 1),
        CU_AD_FORMAT_UINT16_SEMIPLANAR_422 | CU_AD_FORMAT_UINT16_PLANAR_422 => video(2, 2, 1),
        CU_AD_FORMAT_Y444_PLANAR8 | CU_AD_FORMAT_YUV444_8bit_SemiPlanar => video(1, 1, 1),
        CU_AD_FORMAT_UINT8_SEMIPLANAR_444 | CU_AD_FORMAT_UINT8_PLANAR_444 => video(1, 1, 1),
        CU_AD_FORMAT_Y444_PLANAR10 | CU_AD_FORMAT_YUV444_16bit_SemiPlanar => video(2, 1, 1),
        CU_AD_FORMAT_UINT16_SEMIPLANAR_444 | CU_AD_FORMAT_UINT16_PLANAR_444 => video(2, 1, 1),
        _ => None,
    }
}
