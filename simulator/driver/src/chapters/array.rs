// SPDX-License-Identifier: Apache-2.0
//! Arrays and mipmapped arrays: making, describing and destroying them.
//!
//! Not built: textures and surfaces, and arrays without memory of their own (`CUDA_ARRAY3D_SPARSE`,
//! `CUDA_ARRAY3D_DEFERRED_MAPPING`). The latter need `cuMemMapArrayAsync`; asking for one is answered NOT_SUPPORTED,
//! and the device attributes say so. As there is none, the questions about their layout have only INVALID_VALUE to
//! answer.

use partage_abi::types::*;

use crate::capture;
use crate::context::current;
use crate::memory::{Shape, memory};
use crate::state::{Answer, code, driver, store};
use crate::submission::before_free_of;

// ---- making and destroying ------------------------------------------------------------------------------------

pub fn cuArrayCreate(handle: *mut CuArray, allocate_array: *const CudaArrayDescriptorV1) -> CuResult {
    code(described(allocate_array).and_then(|given| create(handle, shape_of_v1(&given))))
}

pub fn cuArrayCreate_v2(handle: *mut CuArray, allocate_array: *const CudaArrayDescriptor) -> CuResult {
    code(described(allocate_array).and_then(|given| {
        let shape = Shape {
            width: given.Width as u64,
            height: given.Height as u64,
            depth: 0,
            format: given.Format,
            channels: given.NumChannels,
            flags: 0,
        };
        create(handle, shape)
    }))
}

pub fn cuArray3DCreate(handle: *mut CuArray, allocate_array: *const CudaArray3dDescriptorV1) -> CuResult {
    code(described(allocate_array).and_then(|given| {
        let shape = Shape {
            width: u64::from(given.Width),
            height: u64::from(given.Height),
            depth: u64::from(given.Depth),
            format: given.Format,
            channels: given.NumChannels,
            flags: given.Flags,
        };
        create(handle, shape)
    }))
}

pub fn cuArray3DCreate_v2(handle: *mut CuArray, allocate_array: *const CudaArray3dDescriptor) -> CuResult {
    code(described(allocate_array).and_then(|given| create(handle, shape_of(&given))))
}

pub fn cuMipmappedArrayCreate(
    handle: *mut CuMipmappedArray,
    mipmapped_array_desc: *const CudaArray3dDescriptor,
    num_mipmap_levels: c_uint,
) -> CuResult {
    code(described(mipmapped_array_desc).and_then(|given| {
        let (context, driver, shape) = (current()?, driver()?, shape_of(&given));
        if handle.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        shape.check(&*driver.device(context.ordinal)?, true)?;
        capture::unsafe_call()?;
        let made = memory()?.create_mipmapped_array(driver, &context, shape, num_mipmap_levels)?;
        store(handle, made)
    }))
}

pub fn cuArrayDestroy(array: CuArray) -> CuResult {
    code(current().and_then(|_| {
        let memory = memory()?;
        let owner = memory.array(array)?.memory().owner;
        before_free_of(Some(owner))?;
        memory.destroy_array(array)
    }))
}

pub fn cuMipmappedArrayDestroy(mipmapped_array: CuMipmappedArray) -> CuResult {
    code(current().and_then(|_| {
        let memory = memory()?;
        let owner = memory.mipmapped_array(mipmapped_array)?.memory().owner;
        before_free_of(Some(owner))?;
        memory.destroy_mipmapped_array(mipmapped_array)
    }))
}

fn create(handle: *mut CuArray, shape: Shape) -> Answer {
    let (context, driver) = (current()?, driver()?);
    if handle.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    shape.check(&*driver.device(context.ordinal)?, false)?;
    capture::unsafe_call()?;
    store(handle, memory()?.create_array(driver, &context, shape)?)
}

/// A descriptor of the program; the context comes first, as everywhere.
fn described<T: Copy>(from: *const T) -> Answer<T> {
    current()?;
    super::copy::read(from)
}

fn shape_of(given: &CudaArray3dDescriptor) -> Shape {
    Shape {
        width: given.Width as u64,
        height: given.Height as u64,
        depth: given.Depth as u64,
        format: given.Format,
        channels: given.NumChannels,
        flags: given.Flags,
    }
}

fn shape_of_v1(given: &CudaArrayDescriptorV1) -> Shape {
    Shape {
        width: u64::from(given.Width),
        height: u64::from(given.Height),
        depth: 0,
        format: given.Format,
        channels: given.NumChannels,
        flags: 0,
    }
}

// ---- parts ----------------------------------------------------------------------------------------------------

pub fn cuMipmappedArrayGetLevel(
    level_array: *mut CuArray,
    mipmapped_array: CuMipmappedArray,
    level: c_uint,
) -> CuResult {
    code(current().and_then(|_| {
        let array = memory()?.mipmapped_array(mipmapped_array)?;
        let level = array.levels.get(level as usize).ok_or(CuResult::INVALID_VALUE)?;
        store(level_array, *level)
    }))
}

pub fn cuArrayGetPlane(plane_array: *mut CuArray, array: CuArray, plane_idx: c_uint) -> CuResult {
    code(current().and_then(|_| {
        let array = memory()?.array(array)?;
        let plane = array.planes.get(plane_idx as usize).ok_or(CuResult::INVALID_VALUE)?;
        store(plane_array, *plane)
    }))
}

// ---- what is known of an array --------------------------------------------------------------------------------

pub fn cuArrayGetDescriptor(array_descriptor: *mut CudaArrayDescriptorV1, array: CuArray) -> CuResult {
    code(shape(array).and_then(|shape| {
        let descriptor = CudaArrayDescriptorV1 {
            Width: narrow(shape.width)?,
            Height: narrow(shape.height)?,
            Format: shape.format,
            NumChannels: shape.channels,
        };
        store(array_descriptor, descriptor)
    }))
}

pub fn cuArrayGetDescriptor_v2(array_descriptor: *mut CudaArrayDescriptor, array: CuArray) -> CuResult {
    code(shape(array).and_then(|shape| {
        let descriptor = CudaArrayDescriptor {
            Width: shape.width as usize,
            Height: shape.height as usize,
            Format: shape.format,
            NumChannels: shape.channels,
        };
        store(array_descriptor, descriptor)
    }))
}

pub fn cuArray3DGetDescriptor(array_descriptor: *mut CudaArray3dDescriptorV1, array: CuArray) -> CuResult {
    code(shape(array).and_then(|shape| {
        let descriptor = CudaArray3dDescriptorV1 {
            Width: narrow(shape.width)?,
            Height: narrow(shape.height)?,
            Depth: narrow(shape.depth)?,
            Format: shape.format,
            NumChannels: shape.channels,
            Flags: shape.flags,
        };
        store(array_descriptor, descriptor)
    }))
}

pub fn cuArray3DGetDescriptor_v2(array_descriptor: *mut CudaArray3dDescriptor, array: CuArray) -> CuResult {
    code(shape(array).and_then(|shape| {
        let descriptor = CudaArray3dDescriptor {
            Width: shape.width as usize,
            Height: shape.height as usize,
            Depth: shape.depth as usize,
            Format: shape.format,
            NumChannels: shape.channels,
            Flags: shape.flags,
        };
        store(array_descriptor, descriptor)
    }))
}

fn shape(array: CuArray) -> Answer<Shape> {
    current()?;
    Ok(memory()?.array(array)?.shape)
}

fn narrow(extent: u64) -> Answer<c_uint> {
    c_uint::try_from(extent).map_err(|_| CuResult::INVALID_VALUE)
}

pub fn cuArrayGetSparseProperties(_: *mut CudaArraySparseProperties, array: CuArray) -> CuResult {
    code(driver().and_then(|_| memory()?.array(array).and(Err(CuResult::INVALID_VALUE))))
}

pub fn cuMipmappedArrayGetSparseProperties(_: *mut CudaArraySparseProperties, mipmap: CuMipmappedArray) -> CuResult {
    code(driver().and_then(|_| memory()?.mipmapped_array(mipmap).and(Err(CuResult::INVALID_VALUE))))
}

pub fn cuArrayGetMemoryRequirements(_: *mut CudaArrayMemoryRequirements, array: CuArray, device: CuDevice) -> CuResult {
    code(driver().and_then(|driver| {
        driver.device(device)?;
        memory()?.array(array).and(Err(CuResult::INVALID_VALUE))
    }))
}

pub fn cuMipmappedArrayGetMemoryRequirements(
    _: *mut CudaArrayMemoryRequirements,
    mipmap: CuMipmappedArray,
    device: CuDevice,
) -> CuResult {
    code(driver().and_then(|driver| {
        driver.device(device)?;
        memory()?.mipmapped_array(mipmap).and(Err(CuResult::INVALID_VALUE))
    }))
}
