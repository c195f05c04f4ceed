// SPDX-License-Identifier: Apache-2.0
//! What an address is.

use partage_abi::types::*;

use super::{inside, put};
use crate::context::check;
use crate::driver;
use crate::types::{PointerAttributes, PointerAttributes13};

/// `cudaInvalidDeviceId`: of no device.
const NO_DEVICE: c_int = -2;
/// Close to no part of its device more than to the others.
const NO_LOCALITY: c_int = -1;

/// Attributes of an address, in CUDA 13's form.
pub fn cudaPointerGetAttributes(attributes: *mut PointerAttributes13, pointer: CuDevicePtr) -> CuResult {
    inside(|| {
        let old = attributes_of(pointer)?;
        let made = PointerAttributes13 {
            old,
            locality: NO_LOCALITY,
            unused: 0,
            reserved: [0; 7],
        };
        put(attributes, made)
    })
}

/// Attributes of an address, in CUDA 12's form.
pub fn cudaPointerGetAttributes_v12(attributes: *mut PointerAttributes, pointer: CuDevicePtr) -> CuResult {
    inside(|| put(attributes, attributes_of(pointer)?))
}

fn attributes_of(pointer: CuDevicePtr) -> Result<PointerAttributes, CuResult> {
    // Type of memory, device, whether it is managed, the address for kernels, the address for the program.
    let mut wanted = [2, 9, 8, 3, 4];
    let (mut kind, mut device, mut managed): (c_int, c_int, c_int) = (0, 0, 0);
    let (mut on_device, mut on_host) = (0u64, core::ptr::null_mut::<c_void>());
    let mut places: [*mut c_void; 5] = [
        (&raw mut kind).cast(),
        (&raw mut device).cast(),
        (&raw mut managed).cast(),
        (&raw mut on_device).cast(),
        (&raw mut on_host).cast(),
    ];
    check(driver::cuPointerGetAttributes(
        5,
        wanted.as_mut_ptr(),
        places.as_mut_ptr(),
        pointer,
    ))?;
    if kind == 0 {
        return Ok(PointerAttributes {
            kind: 0,
            device: NO_DEVICE,
            device_pointer: 0,
            host_pointer: core::ptr::with_exposed_provenance_mut(pointer as usize),
        });
    }
    Ok(PointerAttributes {
        kind: if managed & 0xff != 0 { 3 } else { kind },
        device,
        device_pointer: on_device,
        host_pointer: on_host,
    })
}
