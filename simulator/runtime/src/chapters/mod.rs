// SPDX-License-Identifier: Apache-2.0
//! The runtime's functions that are more than one call of the driver, a file per chapter of the manual. A public
//! function here has the name and arguments of an `own` row of the table.
#![allow(non_snake_case)] // the vendor's names

mod copy;
mod device;
mod execution;
mod graph;
mod information;
mod memory;
mod per_thread;
mod pointer;
mod properties;
mod registration;
mod stream;

pub use copy::*;
pub use device::*;
pub use execution::*;
pub use graph::*;
pub use information::*;
pub use memory::*;
pub use per_thread::*;
pub use pointer::*;
pub use properties::*;
pub use registration::*;
pub use stream::*;

use partage_abi::types::CuResult;

use crate::context::{code, enter, initialise};

/// Runs a body in the thread's context.
fn inside(body: impl FnOnce() -> Result<(), CuResult>) -> CuResult {
    code(enter().and_then(|()| body()))
}

/// Runs a body that needs the driver and no context.
fn outside(body: impl FnOnce() -> Result<(), CuResult>) -> CuResult {
    code(initialise().and_then(|()| body()))
}

/// Writes an answer to where the program wants it.
fn put<T>(place: *mut T, value: T) -> Result<(), CuResult> {
    if place.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: not null, and the program's to write by the function's contract; it may be unaligned only by its error.
    unsafe { place.write(value) };
    Ok(())
}
