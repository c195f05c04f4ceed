// SPDX-License-Identifier: Apache-2.0
//! `cuGetProcAddress`: the driver answers first, so that versions, flags and status are its own; then the address it
//! gave is exchanged for our function where it is one of a row we stand in front of. That covers the name
//! `cuGetProcAddress` itself. An address that is no export of the driver stays what it is, and is counted when the name
//! should have led to one of our rows.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering;

use partage_abi::types::CuResult;

use crate::entry::call;
use crate::names::{self, ENTRY_NAMES};
use crate::real::Library;
use crate::state;
use crate::text::bytes_of;

pub fn cuGetProcAddress(
    real: &Library,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cuda_version: c_int,
    flags: u64,
) -> CuResult {
    let result = call!(real, cuGetProcAddress(symbol, pfn, cuda_version, flags));
    exchange(real, symbol, pfn, result)
}

pub fn cuGetProcAddress_v2(
    real: &Library,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cuda_version: c_int,
    flags: u64,
    symbol_status: *mut c_int,
) -> CuResult {
    let result = call!(
        real,
        cuGetProcAddress_v2(symbol, pfn, cuda_version, flags, symbol_status)
    );
    exchange(real, symbol, pfn, result)
}

fn exchange(real: &Library, symbol: *const c_char, pfn: *mut *mut c_void, result: CuResult) -> CuResult {
    if !result.is_success() || pfn.is_null() || symbol.is_null() {
        return result;
    }
    // SAFETY: the driver succeeded with this pointer.
    let address = unsafe { pfn.read() };
    if address.is_null() {
        return result;
    }
    match real.hooked_at(address.cast()) {
        Some(position) => {
            if let Some(hook) = crate::entry::hook(real, position) {
                // SAFETY: as above.
                unsafe { pfn.write(hook.cast_mut().cast()) };
            }
        }
        // SAFETY: the driver just read the name as a C string.
        None => count_unknown(unsafe { bytes_of(symbol) }),
    }
    result
}

/// Counts an answer that should have been one of our rows' functions and is none of them.
fn count_unknown(name: &[u8]) {
    let is_ours = ENTRY_NAMES
        .iter()
        .any(|entry| names::as_c_str(entry).to_bytes() == name);
    if is_ours && let Some(state) = state::get() {
        state.counters().unknown_entry_points.fetch_add(1, Ordering::Relaxed);
    }
}
