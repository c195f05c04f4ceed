// SPDX-License-Identifier: Apache-2.0
//! Arrays and mipmapped arrays: charged by format and extents before the driver is called, refunded by handle.
//!
//! Levels of a mipmapped array and planes of an array are handles into memory that is charged already: they are not
//! recorded, and the driver refuses to destroy them. Sparse arrays, and those whose mapping is deferred, have no memory
//! of their own; what is mapped into them was charged to its `cuMemCreate`.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::c_uint;

use partage_abi::types::{
    CuArray, CuMipmappedArray, CuResult, CudaArray3dDescriptor, CudaArray3dDescriptorV1, CudaArrayDescriptor,
    CudaArrayDescriptorV1,
};
use partage_records::array::Shape;

use crate::memory::allocations::Key;
use crate::memory::reservation::Begun;
use crate::memory::tracked::{self, Freeing, Pending, Wanted};
use crate::real::Library;
use crate::real::call;

/// The shape that a description means.
trait Description {
    fn shape(&self) -> Shape;
}

impl Description for CudaArrayDescriptorV1 {
    fn shape(&self) -> Shape {
        Shape {
            width: self.Width.into(),
            height: self.Height.into(),
            depth: 0,
            format: self.Format,
            channels: self.NumChannels,
            flags: 0,
        }
    }
}

impl Description for CudaArrayDescriptor {
    fn shape(&self) -> Shape {
        Shape {
            width: self.Width as u64,
            height: self.Height as u64,
            depth: 0,
            format: self.Format,
            channels: self.NumChannels,
            flags: 0,
        }
    }
}

impl Description for CudaArray3dDescriptorV1 {
    fn shape(&self) -> Shape {
        Shape {
            width: self.Width.into(),
            height: self.Height.into(),
            depth: self.Depth.into(),
            format: self.Format,
            channels: self.NumChannels,
            flags: self.Flags,
        }
    }
}

impl Description for CudaArray3dDescriptor {
    fn shape(&self) -> Shape {
        Shape {
            width: self.Width as u64,
            height: self.Height as u64,
            depth: self.Depth as u64,
            format: self.Format,
            channels: self.NumChannels,
            flags: self.Flags,
        }
    }
}

/// The shape behind a description. `None`: null, which the driver refuses.
fn shape_of<D: Description>(description: *const D) -> Option<Shape> {
    // SAFETY: not null, and by the contract of the entry point it leads to a description.
    (!description.is_null()).then(|| unsafe { description.read_unaligned() }.shape())
}

/// Charges an array to the current context's device. Without memory of its own nobody is charged.
fn begin(real: &Library, shape: Option<Shape>, bytes: impl FnOnce(&Shape) -> Option<u64>) -> Begun<Pending> {
    match shape.filter(Shape::has_memory).and_then(|shape| bytes(&shape)) {
        Some(bytes) => tracked::start(real, Wanted::device(bytes)),
        None => Begun::NotCharged,
    }
}

macro_rules! arrays {
    ($( $symbol:ident($description:ty); )*) => { $(
        pub fn $symbol(real: &Library, handle: *mut CuArray, allocate_array: *const $description) -> CuResult {
            let shape = shape_of(allocate_array).filter(|_| !handle.is_null());
            let start = begin(real, shape, Shape::bytes);
            if let Some(denied) = start.denial() {
                return denied;
            }
            let result = call!(real, $symbol(handle, allocate_array));
            // SAFETY: the driver succeeded with this pointer.
            let made = start.is_made(result).then(|| Key::array(unsafe { handle.read() }.0 as u64));
            start.end(made);
            result
        }
    )* };
}

arrays! {
    cuArrayCreate(CudaArrayDescriptorV1);
    cuArrayCreate_v2(CudaArrayDescriptor);
    cuArray3DCreate(CudaArray3dDescriptorV1);
    cuArray3DCreate_v2(CudaArray3dDescriptor);
}

pub fn cuMipmappedArrayCreate(
    real: &Library,
    handle: *mut CuMipmappedArray,
    mipmapped_array_desc: *const CudaArray3dDescriptor,
    num_mipmap_levels: c_uint,
) -> CuResult {
    let shape = shape_of(mipmapped_array_desc).filter(|_| !handle.is_null());
    let start = begin(real, shape, |shape| shape.mipmapped_bytes(num_mipmap_levels));
    if let Some(denied) = start.denial() {
        return denied;
    }
    let result = call!(
        real,
        cuMipmappedArrayCreate(handle, mipmapped_array_desc, num_mipmap_levels)
    );
    // SAFETY: the driver succeeded with this pointer.
    let key = || Key::mipmapped_array(unsafe { handle.read() }.0 as u64);
    let made = start.is_made(result).then(key);
    start.end(made);
    result
}

pub fn cuArrayDestroy(real: &Library, array: CuArray) -> CuResult {
    let freeing = Freeing::begin(Key::array(array.0 as u64));
    let result = call!(real, cuArrayDestroy(array));
    if let Some(freeing) = freeing {
        freeing.end(result.is_success());
    }
    result
}

pub fn cuMipmappedArrayDestroy(real: &Library, mipmapped_array: CuMipmappedArray) -> CuResult {
    let freeing = Freeing::begin(Key::mipmapped_array(mipmapped_array.0 as u64));
    let result = call!(real, cuMipmappedArrayDestroy(mipmapped_array));
    if let Some(freeing) = freeing {
        freeing.end(result.is_success());
    }
    result
}
