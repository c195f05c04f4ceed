// SPDX-License-Identifier: Apache-2.0
//! The extents of an array, which of them are allowed, and how many bytes they take.
//!
//! The rules are those of the manual at `cuArray3DCreate` and `cuMipmappedArrayCreate`, the limits those of the
//! device's attributes. An array takes exactly its elements: rows follow each other without padding, then planes or
//! layers, then mipmap levels. *Layers* are what the depth counts in layered arrays and cubemaps; mipmaps halve
//! everything but them.

use partage_abi::types::{CuResult, c_int, c_uint};
use partage_abi::values::*;
use partage_machine::Device;

use super::formats::{Block, Form, form};
use crate::state::Answer;

/// Flags that say what an array will be used for and change nothing about its memory.
const MARKS: u32 = CUDA_ARRAY3D_SURFACE_LDST
    | CUDA_ARRAY3D_TEXTURE_GATHER
    | CUDA_ARRAY3D_DEPTH_TEXTURE
    | CUDA_ARRAY3D_COLOR_ATTACHMENT
    | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
/// Flags for arrays whose memory the program maps itself (`cuMemMapArrayAsync`), which is not built.
const UNBACKED: u32 = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
const FACES: u64 = 6;

/// What an array was made as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Elements of a row.
    pub width: u64,
    /// Rows; 0 for one dimension.
    pub height: u64,
    /// Slices, layers or faces; 0 where there is only one.
    pub depth: u64,
    /// `CU_AD_FORMAT_*`.
    pub format: c_int,
    /// Components of an element.
    pub channels: c_uint,
    /// `CUDA_ARRAY3D_*`.
    pub flags: u32,
}

/// Where the bytes of an array of one plane are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Bytes of the smallest piece.
    pub element: u64,
    /// Bytes of a row.
    pub pitch: u64,
    /// Rows, of blocks where a format has those.
    pub rows: u64,
    /// Slices or layers.
    pub slices: u64,
}

impl Shape {
    /// Checks what the manual asks of an array. INVALID_VALUE, or NOT_SUPPORTED for one that starts without memory.
    pub fn check(&self, device: &Device, is_mipmapped: bool) -> Answer {
        let known = MARKS | UNBACKED | CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP;
        let is_flagged_right = self.flags & !known == 0 && self.are_flags_possible();
        if !is_flagged_right || self.width == 0 || form(self.format, self.channels).is_none() {
            return Err(CuResult::INVALID_VALUE);
        }
        if !self.is_within_limits(device, is_mipmapped) {
            return Err(CuResult::INVALID_VALUE);
        }
        if self.has(UNBACKED) {
            Err(CuResult::NOT_SUPPORTED)
        } else {
            Ok(())
        }
    }

    /// Whether the depth counts layers.
    pub fn is_layered(&self) -> bool {
        self.has(CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)
    }

    /// How many mipmap levels it can have.
    pub fn most_levels(&self) -> u32 {
        let depth = if self.is_layered() { 1 } else { self.depth };
        let longest = self.width.max(self.height).max(depth).max(1);
        1 + longest.ilog2()
    }

    /// One of its mipmap levels, as an array.
    pub fn level(&self, level: u32) -> Self {
        let halve = |extent: u64| match extent {
            0 => 0,
            _ => (extent >> level).max(1),
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

    /// Its planes, as arrays; none unless the format has several.
    pub fn planes(&self) -> Vec<Self> {
        let Some(Form::Planes(planes)) = form(self.format, self.channels) else {
            return Vec::new();
        };
        let planes = planes.iter().map(|plane| Self {
            width: self.width.div_ceil(plane.across),
            height: self.height.div_ceil(plane.down),
            format: plane.format,
            channels: plane.channels,
            ..*self
        });
        planes.collect()
    }

    /// Where its bytes are. NOT_SUPPORTED for one of several planes: each is asked for by itself.
    pub fn grid(&self) -> Answer<Grid> {
        match form(self.format, self.channels) {
            Some(Form::Single(block)) => self.grid_of(block),
            Some(Form::Planes(_)) => Err(CuResult::NOT_SUPPORTED),
            None => Err(CuResult::INVALID_VALUE),
        }
    }

    /// What it takes. OUT_OF_MEMORY when no device could hold it.
    pub fn bytes(&self) -> Answer<u64> {
        let planes = self.planes();
        if planes.is_empty() {
            self.grid()?.bytes().ok_or(CuResult::OUT_OF_MEMORY)
        } else {
            planes.iter().try_fold(0_u64, |sum, plane| {
                sum.checked_add(plane.bytes()?).ok_or(CuResult::OUT_OF_MEMORY)
            })
        }
    }

    fn grid_of(&self, block: Block) -> Answer<Grid> {
        let blocks = self.width.div_ceil(block.width);
        Ok(Grid {
            element: block.bytes,
            pitch: blocks.checked_mul(block.bytes).ok_or(CuResult::OUT_OF_MEMORY)?,
            rows: self.height.max(1).div_ceil(block.height),
            slices: self.depth.max(1),
        })
    }

    fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    fn are_flags_possible(&self) -> bool {
        let is_cube = !self.has(CUDA_ARRAY3D_CUBEMAP)
            || self.width == self.height
                && match self.has(CUDA_ARRAY3D_LAYERED) {
                    true => self.depth > 0 && self.depth.is_multiple_of(FACES),
                    false => self.depth == FACES,
                };
        let has_layers = !self.has(CUDA_ARRAY3D_LAYERED) || self.depth > 0;
        // Slices need rows, unless they are layers.
        let has_rows = self.height > 0 || self.depth == 0 || self.is_layered();
        let is_flat = self.height > 0 && self.depth == 0 && !self.is_layered();
        is_cube && has_layers && has_rows && (is_flat || !self.has(CUDA_ARRAY3D_TEXTURE_GATHER))
    }

    /// Whether it keeps to the limits of its kind of array, and to those of what it will be used for.
    fn is_within_limits(&self, device: &Device, is_mipmapped: bool) -> bool {
        let is_layered = self.has(CUDA_ARRAY3D_LAYERED);
        let (texture, surface): (&[Limit], Limit) = match (self.height > 0, self.depth > 0) {
            _ if self.has(CUDA_ARRAY3D_CUBEMAP) && is_layered => (&[TEXTURE_CUBE_LAYERED], SURFACE_CUBE_LAYERED),
            _ if self.has(CUDA_ARRAY3D_CUBEMAP) => (&[TEXTURE_CUBE], SURFACE_CUBE),
            (true, _) if is_layered => (&[TEXTURE_2D_LAYERED], SURFACE_2D_LAYERED),
            (false, _) if is_layered => (&[TEXTURE_1D_LAYERED], SURFACE_1D_LAYERED),
            (true, true) => (&[TEXTURE_3D, TEXTURE_3D_ALTERNATE], SURFACE_3D),
            (true, false) if is_mipmapped => (&[TEXTURE_2D_MIPMAPPED], SURFACE_2D),
            (true, false) => (&[TEXTURE_2D], SURFACE_2D),
            (false, _) if is_mipmapped => (&[TEXTURE_1D_MIPMAPPED], SURFACE_1D),
            (false, _) => (&[TEXTURE_1D], SURFACE_1D),
        };
        let keeps = |limit: &Limit| self.keeps(limit, device);
        texture.iter().any(keeps)
            && (!self.has(CUDA_ARRAY3D_SURFACE_LDST) || keeps(&surface))
            && (!self.has(CUDA_ARRAY3D_TEXTURE_GATHER) || keeps(&TEXTURE_2D_GATHER))
    }

    fn keeps(&self, limit: &Limit, device: &Device) -> bool {
        let extents = [self.width, self.height, self.depth];
        limit.iter().zip(extents).all(|(&attribute, extent)| {
            let most = device.attribute(attribute).map_or(0, |most| most.max(0) as u64);
            attribute == 0 || extent <= most
        })
    }
}

impl Grid {
    /// All its bytes; `None` when no device could hold them.
    pub fn bytes(&self) -> Option<u64> {
        self.pitch.checked_mul(self.rows)?.checked_mul(self.slices)
    }

    /// The bytes before those at x (in bytes), y and z. INVALID_VALUE unless a box of this width (in bytes), height and
    /// depth from there lies inside and consists of whole elements.
    pub fn offset(&self, place: [u64; 3], extent: [u64; 3]) -> Answer<u64> {
        let ends = [self.pitch, self.rows, self.slices];
        let is_inside = |axis: usize| {
            place[axis]
                .checked_add(extent[axis])
                .is_some_and(|end| end <= ends[axis])
        };
        let is_whole = place[0].is_multiple_of(self.element) && extent[0].is_multiple_of(self.element);
        if !is_whole || !(0..3).all(is_inside) {
            return Err(CuResult::INVALID_VALUE);
        }
        Ok((place[2] * self.rows + place[1]) * self.pitch + place[0])
    }
}

/// The device attributes that bound width, height and depth; 0 where the kind of array itself does.
type Limit = [i32; 3];

const TEXTURE_1D: Limit = [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 0, 0];
const TEXTURE_1D_MIPMAPPED: Limit = [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 0, 0];
const TEXTURE_1D_LAYERED: Limit = [
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH,
    0,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS,
];
const TEXTURE_2D: Limit = [
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT,
    0,
];
const TEXTURE_2D_GATHER: Limit = [
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT,
    0,
];
const TEXTURE_2D_MIPMAPPED: Limit = [
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT,
    0,
];
const TEXTURE_2D_LAYERED: Limit = [
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS,
];
const TEXTURE_3D: Limit = [
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH,
];
const TEXTURE_3D_ALTERNATE: Limit = [
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE,
];
const TEXTURE_CUBE: Limit = [CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH, 0, 0];
const TEXTURE_CUBE_LAYERED: Limit = [
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH,
    0,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS,
];
const SURFACE_1D: Limit = [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH, 0, 0];
const SURFACE_1D_LAYERED: Limit = [
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH,
    0,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS,
];
const SURFACE_2D: Limit = [
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT,
    0,
];
const SURFACE_2D_LAYERED: Limit = [
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS,
];
const SURFACE_3D: Limit = [
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH,
];
const SURFACE_CUBE: Limit = [CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH, 0, 0];
const SURFACE_CUBE_LAYERED: Limit = [
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH,
    0,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS,
];
