// SPDX-License-Identifier: Apache-2.0
//! Control of a profiler: none is attached, so starting and stopping one changes nothing, as on a device that nobody
//! profiles.

use partage_abi::types::*;

use crate::context::current;
use crate::state::{code, driver};

/// The formats of the output: values by name, or separated by commas.
const OUTPUT_MODES: std::ops::RangeInclusive<c_int> = 0..=1;

pub fn cuProfilerStart() -> CuResult {
    code(current().map(drop))
}

pub fn cuProfilerStop() -> CuResult {
    code(current().map(drop))
}

/// There is no profiler whose output could be configured.
pub fn cuProfilerInitialize(config_file: *const c_char, output_file: *const c_char, output_mode: c_int) -> CuResult {
    code(driver().and_then(|_| {
        if config_file.is_null() || output_file.is_null() || !OUTPUT_MODES.contains(&output_mode) {
            return Err(CuResult::INVALID_VALUE);
        }
        Err(CuResult::PROFILER_DISABLED)
    }))
}
