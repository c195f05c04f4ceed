// SPDX-License-Identifier: Apache-2.0
//! How runtimes find the other functions: by name, CUDA version and stream flavour.
//!
//! The answer is the newest entry of a name that is not newer than the version asked for, from a table in this
//! library: the dynamic linker is never asked, because a preloaded library would answer for it.

use std::ffi::CStr;
use std::sync::OnceLock;

use partage_abi::Symbol;
use partage_abi::entry_points::{EntryPoint, PROC_ADDRESS};
use partage_abi::types::*;
use partage_abi::values::*;

use super::init::cuDriverGetVersion;
use crate::entry::{address, inner_address};
use crate::state::{Answer, code, faults, store};

pub fn cuGetProcAddress(symbol: *const c_char, address: *mut *mut c_void, cuda_version: c_int, flags: u64) -> CuResult {
    cuGetProcAddress_v2(symbol, address, cuda_version, flags, std::ptr::null_mut())
}

pub fn cuGetProcAddress_v2(
    symbol: *const c_char,
    address: *mut *mut c_void,
    cuda_version: c_int,
    flags: u64,
    symbol_status: *mut c_int,
) -> CuResult {
    code(look_up(symbol, address, cuda_version, flags, symbol_status))
}

pub fn cuGetExportTable(pp_export_table: *mut *const c_void, export_table_id: *const CuUuid) -> CuResult {
    // The tables are undocumented and say who made the driver. This one has none and does not pretend.
    if pp_export_table.is_null() || export_table_id.is_null() {
        return CuResult::INVALID_VALUE;
    }
    // Only the CUDA runtime asks for them, first of all, and its own error would name a driver that is too old.
    static TOLD: std::sync::Once = std::sync::Once::new();
    TOLD.call_once(|| {
        eprintln!(
            "partage sim: this program uses the CUDA runtime (libcudart), which needs NVIDIA's driver; the simulated \
             one runs programs of the CUDA driver API"
        );
    });
    CuResult::NOT_FOUND
}

fn look_up(
    symbol: *const c_char,
    to: *mut *mut c_void,
    cuda_version: c_int,
    flags: u64,
    symbol_status: *mut c_int,
) -> Answer {
    static DRIVER_VERSION: OnceLock<u32> = OnceLock::new();
    let driver_version = *DRIVER_VERSION.get_or_init(|| {
        let mut version = 0;
        let _ = cuDriverGetVersion(&mut version);
        version as u32
    });
    let version = u32::try_from(cuda_version).map_err(|_| CuResult::INVALID_VALUE)?;
    let is_flag = flags <= u64::from(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    if symbol.is_null() || to.is_null() || !is_flag || version > driver_version {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: not null, and a C string by the contract of the entry point.
    let name = unsafe { CStr::from_ptr(symbol) };
    let (found, status) = choose(
        name.to_bytes(),
        version,
        driver_version,
        flags == u64::from(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM),
    );
    store(to, found.map_or(std::ptr::null_mut(), |entry| place(entry.symbol)))?;
    if !symbol_status.is_null() {
        store(symbol_status, status)?;
    }
    found.map(drop).ok_or(CuResult::NOT_FOUND)
}

/// The address that stands for a function: its export, unless a fault hides that.
fn place(symbol: Symbol) -> *mut c_void {
    match faults() {
        Some(faults) if faults.is_inner(symbol.row().name()) => inner_address(symbol),
        _ => address(symbol),
    }
}

/// The entry for a request, and the status that is reported beside it.
fn choose(name: &[u8], version: u32, driver: u32, per_thread: bool) -> (Option<&'static EntryPoint>, c_int) {
    // A function newer than the driver does not exist in it.
    let named = PROC_ADDRESS
        .iter()
        .filter(|entry| entry.name.as_bytes() == name && entry.version <= driver);
    let suited = named.clone().filter(|entry| entry.version <= version);
    let newest = |flavour: bool| {
        suited
            .clone()
            .filter(|entry| entry.per_thread == flavour)
            .max_by_key(|e| e.version)
    };
    let plain = newest(false);
    // Where the newest version has no flavour of its own, its plain form is meant, not an older per-thread one.
    let found = match (per_thread.then(|| newest(true)).flatten(), plain) {
        (Some(own), Some(plain)) if own.version < plain.version => Some(plain),
        (Some(own), _) => Some(own),
        (None, plain) => plain,
    };
    let status = match found {
        Some(_) => CU_GET_PROC_ADDRESS_SUCCESS,
        None if named.clone().next().is_some() => CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
        None => CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
    };
    (found, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a driver of CUDA 13.0 answers.
    fn answers(name: &str, version: u32, per_thread: bool) -> Result<Symbol, c_int> {
        let (found, status) = choose(name.as_bytes(), version, 13_000, per_thread);
        assert_eq!(found.is_some(), status == CU_GET_PROC_ADDRESS_SUCCESS, "{name}");
        found.map(|entry| entry.symbol).ok_or(status)
    }

    #[test]
    fn the_version_chooses_the_entry() {
        assert_eq!(answers("cuMemAlloc", 3020, false), Ok(Symbol::cuMemAlloc_v2));
        assert_eq!(answers("cuMemAlloc", 3010, false), Ok(Symbol::cuMemAlloc));
        let too_old = Err(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
        assert_eq!(answers("cuMemAlloc", 1000, false), too_old);
        assert_eq!(answers("cuGetProcAddress", 11_030, false), Ok(Symbol::cuGetProcAddress));
        assert_eq!(
            answers("cuGetProcAddress", 12_000, false),
            Ok(Symbol::cuGetProcAddress_v2)
        );
    }

    #[test]
    fn the_flavour_chooses_the_entry_where_there_is_one() {
        assert_eq!(answers("cuMemAlloc", 12_000, true), Ok(Symbol::cuMemAlloc_v2));
        assert_eq!(answers("cuLaunchKernel", 12_000, false), Ok(Symbol::cuLaunchKernel));
        assert_eq!(answers("cuLaunchKernel", 12_000, true), Ok(Symbol::cuLaunchKernel_ptsz));
    }

    #[test]
    fn what_is_no_name_is_not_found() {
        let unknown = Err(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
        assert_eq!(answers("cuMemAlloc_v2", 12_000, false), unknown);
        assert_eq!(answers("", 12_000, false), unknown);
        assert_eq!(answers("nothing", 12_000, true), unknown);
    }

    #[test]
    fn a_driver_does_not_know_what_came_after_it() {
        let newest = PROC_ADDRESS
            .iter()
            .find(|entry| entry.version == 13_000)
            .expect("CUDA 13.0 brought something");
        let is_old = PROC_ADDRESS
            .iter()
            .all(|other| other.name != newest.name || other.version == 13_000);
        let (found, status) = choose(newest.name.as_bytes(), 12_040, 12_040, false);
        assert!(found.is_none_or(|entry| entry.version < 13_000));
        assert!(!is_old || status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    }
}
