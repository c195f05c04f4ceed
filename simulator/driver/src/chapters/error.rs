// SPDX-License-Identifier: Apache-2.0
//! Error handling: names and texts of codes. They work before `cuInit` too.

use std::ffi::CStr;

use partage_abi::types::*;

use crate::state::{Answer, code, store};

pub fn cuGetErrorString(error: CuResult, str: *mut *const c_char) -> CuResult {
    code(text(error.description(), str))
}

pub fn cuGetErrorName(error: CuResult, str: *mut *const c_char) -> CuResult {
    code(text(error.name(), str))
}

fn text(known: Option<&'static CStr>, to: *mut *const c_char) -> Answer {
    // For an unknown code the driver stores null beside INVALID_VALUE.
    store(to, known.map_or(std::ptr::null(), CStr::as_ptr))?;
    known.map(drop).ok_or(CuResult::INVALID_VALUE)
}
