// SPDX-License-Identifier: Apache-2.0
//! Options of just-in-time compilation: two arrays of numbers and values, some of which we write to.

use std::ffi::c_char;
use std::time::Instant;

use partage_abi::types::*;

use crate::state::Answer;

/// `CU_JIT_*`.
const WALL_TIME: c_int = 2;
const INFO_LOG: c_int = 3;
const INFO_LOG_BYTES: c_int = 4;
const ERROR_LOG: c_int = 5;
const ERROR_LOG_BYTES: c_int = 6;
/// Greater than any option of any release so far; what is beyond is a mistake.
const LAST: c_int = 40;

/// The options of one call.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    count: usize,
    numbers: *const c_int,
    values: *mut *mut c_void,
}

// SAFETY: the arrays are the program's, which by contract keeps them as long as the options are in use.
unsafe impl Send for Options {}
// SAFETY: as above.
unsafe impl Sync for Options {}

impl Options {
    /// INVALID_VALUE for missing arrays or an unknown option.
    pub fn new(count: c_uint, numbers: *const c_int, values: *mut *mut c_void) -> Answer<Self> {
        let options = Self {
            count: count as usize,
            numbers,
            values,
        };
        if count > 0 && (numbers.is_null() || values.is_null()) {
            return Err(CuResult::INVALID_VALUE);
        }
        let is_known = |index| (0..=LAST).contains(&options.number(index));
        if (0..options.count).all(is_known) {
            Ok(options)
        } else {
            Err(CuResult::INVALID_VALUE)
        }
    }

    fn number(&self, index: usize) -> c_int {
        // SAFETY: checked not to be null; by contract as long as the program says.
        unsafe { self.numbers.add(index).read_unaligned() }
    }

    fn find(&self, number: c_int) -> Option<*mut *mut c_void> {
        let index = (0..self.count).find(|&index| self.number(index) == number)?;
        Some(self.values.wrapping_add(index))
    }

    /// Writes the logs and the time that compilation took since `begun`.
    pub fn report(&self, begun: Instant, error: Option<&str>) {
        self.log(INFO_LOG, INFO_LOG_BYTES, "");
        self.log(ERROR_LOG, ERROR_LOG_BYTES, error.unwrap_or(""));
        if let Some(slot) = self.find(WALL_TIME) {
            let milliseconds = begun.elapsed().as_secs_f32() * 1e3;
            // SAFETY: a value of the array; the option's type is a float in the pointer's place.
            unsafe { slot.cast::<f32>().write_unaligned(milliseconds) };
        }
    }

    /// Copies a text, with its zero, as far as the program's buffer goes, and says how much was written.
    fn log(&self, buffer: c_int, bytes: c_int, text: &str) {
        let Some(size) = self.find(bytes) else { return };
        // SAFETY: a value of the array; for this option it is a number in the pointer's place.
        let room = unsafe { size.read_unaligned() } as usize & u32::MAX as usize;
        let mut written = 0;
        if let Some(to) = self.find(buffer) {
            // SAFETY: a value of the array, for this option a pointer to `room` bytes.
            unsafe {
                let to = to.read_unaligned().cast::<c_char>();
                if !to.is_null() && room > 0 {
                    let kept = text.len().min(room - 1);
                    std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, kept);
                    *to.add(kept) = 0;
                    written = if kept == 0 { 0 } else { kept + 1 };
                }
            }
        }
        // SAFETY: as above.
        unsafe { size.write_unaligned(written as *mut c_void) };
    }
}
