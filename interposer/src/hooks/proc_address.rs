// SPDX-License-Identifier: Apache-2.0
//! `cuGetProcAddress`: the driver answers first, so that versions, flags and status are its own; then the address it
//! gave is exchanged for our function where it is one of a row we stand in front of. That covers the name
//! `cuGetProcAddress` itself.
//!
//! A driver may answer with addresses that are no exports of it. Then name, version and flags say which row is meant,
//! as they say it to the driver, and our function of that row calls the export: of that one the table knows what it
//! takes. Where they leave it open (a driver newer than the table), the program keeps what the driver gave and this is
//! said; a strict job gets nothing.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering;

use partage_abi::types::CuResult;
use partage_abi::values::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
use partage_protocol::message::NOTICE_UNKNOWN_ENTRY_POINT;

use crate::attachment;
use crate::guest::errno;
use crate::guest::text::bytes_of;
use crate::names::{self, Meant};
use crate::note::{self, Line};
use crate::real::Library;
use crate::real::call;
use crate::session;
use crate::state;

pub fn cuGetProcAddress(
    real: &Library,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cuda_version: c_int,
    flags: u64,
) -> CuResult {
    let result = call!(real, cuGetProcAddress(symbol, pfn, cuda_version, flags));
    let request = Request {
        symbol,
        cuda_version,
        flags,
    };
    request.exchange(real, pfn, core::ptr::null_mut(), result)
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
    let request = Request {
        symbol,
        cuda_version,
        flags,
    };
    request.exchange(real, pfn, symbol_status, result)
}

/// What the program asked for.
struct Request {
    symbol: *const c_char,
    cuda_version: c_int,
    flags: u64,
}

impl Request {
    fn exchange(&self, real: &Library, pfn: *mut *mut c_void, symbol_status: *mut c_int, result: CuResult) -> CuResult {
        if !result.is_success() || pfn.is_null() || self.symbol.is_null() {
            return result;
        }
        // SAFETY: the driver succeeded with this pointer.
        let address = unsafe { pfn.read() };
        if address.is_null() {
            return result;
        }
        let place = match real.hooked_at(address.cast()) {
            Some(place) => Some(place),
            None => match self.meant(real) {
                Meant::NotOurs => return result,
                // A row whose export this driver lacks cannot be what it means.
                Meant::Row(place) => Some(place).filter(|place| real.has(*place)),
                Meant::Unclear => None,
            },
        };
        if let Some(place) = place {
            if let Some(hook) = real.hook(place) {
                // SAFETY: as above.
                unsafe { pfn.write(hook.cast_mut().cast()) };
            }
            return result;
        }
        if !errno::preserving(|| self.is_refused()) {
            return result;
        }
        // SAFETY: as above.
        unsafe { pfn.write(core::ptr::null_mut()) };
        if !symbol_status.is_null() {
            // SAFETY: not null, and the caller's place for a status.
            unsafe { symbol_status.write(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND as c_int) };
        }
        CuResult::NOT_FOUND
    }

    fn name(&self) -> &[u8] {
        // SAFETY: the driver just read the name as a C string.
        unsafe { bytes_of(self.symbol) }
    }

    #[cold]
    fn meant(&self, real: &Library) -> Meant {
        let mut driver: c_int = 0;
        let is_known = call!(real, cuDriverGetVersion(&raw mut driver)).is_success();
        let driver = if is_known {
            u32::try_from(driver).unwrap_or(0)
        } else {
            0
        };
        let asked = u32::try_from(self.cuda_version).unwrap_or(0);
        names::meant(self.name(), asked, driver, self.flags)
    }

    /// The driver's answer is one of our rows' functions and nobody can tell which: says so once. Is the program to do
    /// without it?
    #[cold]
    fn is_refused(&self) -> bool {
        let Some(state) = state::get() else { return false };
        session::ensure(state, false);
        let is_strict = attachment::of(state).job().is_some_and(|job| job.is_strict);
        let is_first = attachment::of(state)
            .counters()
            .unknown_entry_points
            .fetch_add(1, Ordering::Relaxed)
            == 0;
        if is_first {
            let mut sentence = Line::new();
            sentence
                .push("the driver's ")
                .push(self.name())
                .push(" of CUDA ")
                .push_number(self.cuda_version.unsigned_abs().into())
                .push(" is newer than Partage: no limit reaches its calls")
                .push(if is_strict { "; --strict refuses it" } else { "" })
                .push(", and others may follow that are not named");
            note::explain(state, &sentence, note::Loudness::Everywhere);
            session::notice(
                state,
                NOTICE_UNKNOWN_ENTRY_POINT,
                0,
                u64::from(self.cuda_version.unsigned_abs()),
            );
        }
        is_strict
    }
}
