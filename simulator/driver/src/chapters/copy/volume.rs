// SPDX-License-Identifier: Apache-2.0
//! What a program describes as a copy, in any of the vendor's forms, and the copy that it means.

use partage_abi::types::*;

use crate::context::Context;
use crate::executor::op::{Copy, End, Side};
use crate::memory::memory;
use crate::state::{Answer, driver};

/// `CU_MEMORYTYPE_*`.
const HOST: i32 = 1;
const DEVICE: i32 = 2;
const ARRAY: i32 = 3;
const UNIFIED: i32 = 4;

/// `CU_MEMCPY_OPERAND_TYPE_*`.
const OPERAND_POINTER: i32 = 1;
const OPERAND_ARRAY: i32 = 2;

pub(in crate::chapters) fn read<T: std::marker::Copy>(from: *const T) -> Answer<T> {
    if from.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: not null, and by the entry point's contract a value of the vendor's type; it need not be aligned.
    Ok(unsafe { from.read_unaligned() })
}

/// One end of a copy as the program describes it.
struct Given {
    /// `CU_MEMORYTYPE_*`.
    kind: i32,
    host: u64,
    device: CuDevicePtr,
    array: CuArray,
    /// Its first byte, as x in bytes, y in rows and z in planes.
    place: [usize; 3],
    /// 0 for rows that touch.
    pitch: usize,
    /// 0 for planes that touch.
    rows: usize,
}

impl Given {
    /// The end, for a copy of `extent`: width in bytes, height and depth.
    fn end(&self, extent: [usize; 3]) -> Answer<End> {
        let (side, address) = match self.kind {
            HOST => (Side::Host, self.host),
            DEVICE => (Side::Device, self.device),
            UNIFIED => (Side::Unified, self.device),
            ARRAY => {
                let wide = |parts: [usize; 3]| parts.map(|part| part as u64);
                return End::in_array(self.array, wide(self.place), wide(extent));
            }
            _ => return Err(CuResult::INVALID_VALUE),
        };
        let or = |given: usize, otherwise: usize| if given == 0 { otherwise } else { given };
        end(
            (side, address),
            self.place,
            or(self.pitch, extent[0]),
            or(self.rows, extent[1]),
        )
    }
}

/// One end at an address: `place` is its first byte as x in bytes, y in rows and z in planes.
fn end((side, address): (Side, u64), place: [usize; 3], pitch: usize, rows: usize) -> Answer<End> {
    let (pitch, rows) = (pitch as u64, rows as u64);
    let plane = pitch.checked_mul(rows).ok_or(CuResult::INVALID_VALUE)?;
    let [x, y, z] = place.map(|part| part as u64);
    let rows_before = y.checked_mul(pitch).ok_or(CuResult::INVALID_VALUE)?;
    let planes_before = z.checked_mul(plane).ok_or(CuResult::INVALID_VALUE)?;
    let offset = rows_before
        .checked_add(planes_before)
        .and_then(|before| before.checked_add(x));
    let address = offset
        .and_then(|offset| address.checked_add(offset))
        .ok_or(CuResult::INVALID_VALUE)?;
    Ok(End {
        side,
        address,
        pitch,
        plane,
    })
}

fn between(to: End, from: End, [width, height, depth]: [usize; 3]) -> Copy {
    Copy {
        to,
        from,
        width: width as u64,
        height: height as u64,
        depth: depth as u64,
        staged: None,
    }
}

pub(in crate::chapters) fn plane(copy: *const CudaMemcpy2d) -> Answer<Copy> {
    let copy = read(copy)?;
    volume(&CudaMemcpy3d {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: 1,
        ..CudaMemcpy3d::default()
    })
}

/// A copy as the three-dimensional description gives it. INVALID_VALUE if it contradicts itself.
pub(in crate::chapters) fn volume(copy: &CudaMemcpy3d) -> Answer<Copy> {
    // The manual: the levels must be 0; a level of a mipmapped array is an array of its own.
    if copy.srcLOD != 0 || copy.dstLOD != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    let from = Given {
        kind: copy.srcMemoryType,
        host: copy.srcHost as u64,
        device: copy.srcDevice,
        array: copy.srcArray,
        place: [copy.srcXInBytes, copy.srcY, copy.srcZ],
        pitch: copy.srcPitch,
        rows: copy.srcHeight,
    };
    let to = Given {
        kind: copy.dstMemoryType,
        host: copy.dstHost as u64,
        device: copy.dstDevice,
        array: copy.dstArray,
        place: [copy.dstXInBytes, copy.dstY, copy.dstZ],
        pitch: copy.dstPitch,
        rows: copy.dstHeight,
    };
    let extent = [copy.WidthInBytes, copy.Height, copy.Depth];
    Ok(between(to.end(extent)?, from.end(extent)?, extent))
}

/// The three-dimensional description of a copy.
pub(in crate::chapters) fn describe(copy: &Copy) -> CudaMemcpy3d {
    let kind = |end: &End| match end.side {
        Side::Host => HOST,
        Side::Device => DEVICE,
        Side::Unified => UNIFIED,
        Side::Array(_) => ARRAY,
    };
    let rows = |end: &End| end.plane.checked_div(end.pitch).unwrap_or(0) as usize;
    // An address stands for itself; in an array the place is told instead.
    let split = |end: &End| match end.array() {
        None => (end.address, CuArray::NULL, [0; 3]),
        Some(array) => {
            let (row, inside) = (end.address / end.pitch, end.address % end.pitch);
            let rows = end.plane / end.pitch;
            (0, array, [inside, row % rows, row / rows].map(|part| part as usize))
        }
    };
    let ((source, source_array, from), (target, target_array, to)) = (split(&copy.from), split(&copy.to));
    CudaMemcpy3d {
        srcXInBytes: from[0],
        srcY: from[1],
        srcZ: from[2],
        srcMemoryType: kind(&copy.from),
        srcHost: source as *const c_void,
        srcDevice: source,
        srcArray: source_array,
        srcPitch: copy.from.pitch as usize,
        srcHeight: rows(&copy.from),
        dstXInBytes: to[0],
        dstY: to[1],
        dstZ: to[2],
        dstMemoryType: kind(&copy.to),
        dstHost: target as *mut c_void,
        dstDevice: target,
        dstArray: target_array,
        dstPitch: copy.to.pitch as usize,
        dstHeight: rows(&copy.to),
        WidthInBytes: copy.width as usize,
        Height: copy.height as usize,
        Depth: copy.depth as usize,
        ..CudaMemcpy3d::default()
    }
}

pub(super) fn peer_volume(copy: *const CudaMemcpy3dPeer) -> Answer<Copy> {
    let copy = read(copy)?;
    driver()?;
    Context::find(copy.srcContext)?;
    Context::find(copy.dstContext)?;
    volume(&CudaMemcpy3d {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: copy.srcZ,
        srcLOD: copy.srcLOD,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch,
        srcHeight: copy.srcHeight,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: copy.dstZ,
        dstLOD: copy.dstLOD,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstHeight,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: copy.Depth,
        ..CudaMemcpy3d::default()
    })
}

/// A copy between two operands, whose extents count elements: those of an array if there is one, else bytes.
pub(super) fn operands(op: &CudaMemcpy3dBatchOp) -> Answer<Copy> {
    let array_of = |operand: &CuMemcpy3DOperand| match operand.kind {
        OPERAND_POINTER => Ok(None),
        // SAFETY: the kind says that the array is meant; it is plain data.
        OPERAND_ARRAY => Ok(Some(unsafe { operand.op.array })),
        _ => Err(CuResult::INVALID_VALUE),
    };
    let element_of = |operand: &CuMemcpy3DOperand| match array_of(operand)? {
        Some(given) => Ok(Some(memory()?.array(given.array)?.shape.grid()?.element as usize)),
        None => Answer::Ok(None),
    };
    // Two arrays of different elements are found out by the check of the copy.
    let element = element_of(&op.src)?.or(element_of(&op.dst)?).unwrap_or(1);
    let bytes = |elements: usize| elements.checked_mul(element).ok_or(CuResult::INVALID_VALUE);
    let extent = [bytes(op.extent.width)?, op.extent.height, op.extent.depth];
    let side = |operand: &CuMemcpy3DOperand| {
        let given = match array_of(operand)? {
            Some(given) => Given {
                kind: ARRAY,
                host: 0,
                device: 0,
                array: given.array,
                place: [bytes(given.offset.x)?, given.offset.y, given.offset.z],
                pitch: 0,
                rows: 0,
            },
            None => {
                // SAFETY: the kind says that the pointer is meant; it is plain data.
                let pointer = unsafe { operand.op.ptr };
                Given {
                    kind: UNIFIED,
                    host: 0,
                    device: pointer.ptr,
                    array: CuArray::NULL,
                    place: [0; 3],
                    pitch: bytes(pointer.rowLength)?,
                    rows: pointer.layerHeight,
                }
            }
        };
        given.end(extent)
    };
    Ok(between(side(&op.dst)?, side(&op.src)?, extent))
}
