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

use crate::entry::call;
use crate::real::Library;
use crate::tracked::{self, Key, Start, Wanted};

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

/// Charges `bytes` to the current context's device around `create`, which writes a handle where `handle` reads it.
fn charged(
    real: &Library,
    shape: Option<Shape>,
    bytes: impl FnOnce(&Shape) -> Option<u64>,
    create: impl FnOnce() -> CuResult,
    key: impl FnOnce() -> Key,
) -> CuResult {
    let Some(bytes) = shape.filter(Shape::has_memory).and_then(|shape| bytes(&shape)) else {
        return create();
    };
    match tracked::start(real, Wanted::device(bytes)) {
        Start::PassOn => create(),
        Start::Denied => CuResult::OUT_OF_MEMORY,
        Start::Pending(pending) => {
            let result = create();
            if result.is_success() {
                pending.commit(key());
            } else {
                pending.roll_back();
            }
            result
        }
    }
}

fn created<D: Description>(
    real: &Library,
    handle: *mut CuArray,
    description: *const D,
    create: impl FnOnce() -> CuResult,
) -> CuResult {
    let shape = shape_of(description).filter(|_| !handle.is_null());
    // SAFETY: read only after the driver succeeded with this pointer, which is not null.
    let key = || Key::array(unsafe { handle.read() }.0 as u64);
    charged(real, shape, Shape::bytes, create, key)
}

pub fn cuArrayCreate(real: &Library, handle: *mut CuArray, allocate_array: *const CudaArrayDescriptorV1) -> CuResult {
    created(real, handle, allocate_array, || {
        call!(real, cuArrayCreate(handle, allocate_array))
    })
}

pub fn cuArrayCreate_v2(real: &Library, handle: *mut CuArray, allocate_array: *const CudaArrayDescriptor) -> CuResult {
    created(real, handle, allocate_array, || {
        call!(real, cuArrayCreate_v2(handle, allocate_array))
    })
}

pub fn cuArray3DCreate(
    real: &Library,
    handle: *mut CuArray,
    allocate_array: *const CudaArray3dDescriptorV1,
) -> CuResult {
    created(real, handle, allocate_array, || {
        call!(real, cuArray3DCreate(handle, allocate_array))
    })
}

pub fn cuArray3DCreate_v2(
    real: &Library,
    handle: *mut CuArray,
    allocate_array: *const CudaArray3dDescriptor,
) -> CuResult {
    created(real, handle, allocate_array, || {
        call!(real, cuArray3DCreate_v2(handle, allocate_array))
    })
}

pub fn cuMipmappedArrayCreate(
    real: &Library,
    handle: *mut CuMipmappedArray,
    mipmapped_array_desc: *const CudaArray3dDescriptor,
    num_mipmap_levels: c_uint,
) -> CuResult {
    let shape = shape_of(mipmapped_array_desc).filter(|_| !handle.is_null());
    charged(
        real,
        shape,
        |shape| shape.mipmapped_bytes(num_mipmap_levels),
        || {
            call!(
                real,
                cuMipmappedArrayCreate(handle, mipmapped_array_desc, num_mipmap_levels)
            )
        },
        // SAFETY: read only after the driver succeeded with this pointer, which is not null.
        || Key::mipmapped_array(unsafe { handle.read() }.0 as u64),
    )
}

pub fn cuArrayDestroy(real: &Library, array: CuArray) -> CuResult {
    tracked::free(Key::array(array.0 as u64), || call!(real, cuArrayDestroy(array)))
}

pub fn cuMipmappedArrayDestroy(real: &Library, mipmapped_array: CuMipmappedArray) -> CuResult {
    tracked::free(Key::mipmapped_array(mipmapped_array.0 as u64), || {
        call!(real, cuMipmappedArrayDestroy(mipmapped_array))
    })
}
