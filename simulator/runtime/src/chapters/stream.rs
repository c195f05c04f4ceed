// SPDX-License-Identifier: Apache-2.0
//! Streams and events where the runtime has fewer arguments than the driver.

use partage_abi::types::*;

use super::inside;
use crate::context::check;
use crate::driver;

/// A stream that waits for the default stream.
pub fn cudaStreamCreate(stream: *mut CuStream) -> CuResult {
    inside(|| check(driver::cuStreamCreate(stream, 0)))
}

/// An event that measures time.
pub fn cudaEventCreate(event: *mut CuEvent) -> CuResult {
    inside(|| check(driver::cuEventCreate(event, 0)))
}
