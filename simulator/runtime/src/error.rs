// SPDX-License-Identifier: Apache-2.0
//! A thread's last error, and what errors are called.
//!
//! The runtime's errors have the numbers of the driver's results; what only the runtime answers is here.

use core::cell::Cell;
use core::ffi::CStr;

use partage_abi::types::CuResult;

use crate::error_names::NAMES;

/// `cudaErrorInvalidConfiguration`: a launch with dimensions that the device has not.
pub const INVALID_CONFIGURATION: CuResult = CuResult(9);
/// `cudaErrorInvalidPitchValue`.
pub const INVALID_PITCH: CuResult = CuResult(12);
/// `cudaErrorInvalidSymbol`: no variable was registered under this address.
pub const INVALID_SYMBOL: CuResult = CuResult(13);
/// `cudaErrorInvalidMemcpyDirection`.
pub const INVALID_DIRECTION: CuResult = CuResult(21);
/// `cudaErrorMissingConfiguration`: a launch without dimensions.
pub const MISSING_CONFIGURATION: CuResult = CuResult(52);
/// `cudaErrorInvalidDeviceFunction`: no kernel was registered under this address.
pub const INVALID_FUNCTION: CuResult = CuResult(98);

thread_local! {
    static LAST: Cell<CuResult> = const { Cell::new(CuResult::SUCCESS) };
}

/// Keeps a failure as the thread's last error.
pub fn record(code: CuResult) -> CuResult {
    if !code.is_success() {
        LAST.set(code);
    }
    code
}

/// The thread's last error. One that ended the context stays.
pub fn take() -> CuResult {
    let last = LAST.get();
    if !is_sticky(last) {
        LAST.set(CuResult::SUCCESS);
    }
    last
}

/// The thread's last error, which stays.
pub fn peek() -> CuResult {
    LAST.get()
}

/// Forgets the last error, as a reset of the device does.
pub fn forget() {
    LAST.set(CuResult::SUCCESS);
}

/// Errors after which a context answers nothing else.
fn is_sticky(code: CuResult) -> bool {
    matches!(code.0, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721)
}

/// What the runtime calls an error.
pub fn name(code: CuResult) -> &'static CStr {
    row(code).map_or(c"unrecognized error code", |row| row.1)
}

/// What an error means.
pub fn text(code: CuResult) -> &'static CStr {
    let own = row(code).and_then(|row| row.2);
    own.or_else(|| code.description()).unwrap_or(c"unrecognized error code")
}

fn row(code: CuResult) -> Option<&'static (i32, &'static CStr, Option<&'static CStr>)> {
    NAMES.iter().find(|row| row.0 == code.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_of_the_driver_has_a_name_and_a_text_here() {
        for &(code, _, _) in CuResult::ALL {
            // These the runtime's header does not have.
            if !matches!(code.0, 47 | 202 | 916) {
                assert!(name(code).to_bytes().starts_with(b"cuda"), "{code:?}");
            }
        }
        assert_eq!(name(CuResult(2)), c"cudaErrorMemoryAllocation");
        assert_eq!(text(CuResult(2)), c"out of memory");
        assert_eq!(name(CuResult(12345)), c"unrecognized error code");
    }

    #[test]
    fn names_ascend_and_each_has_a_text() {
        assert!(NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for row in NAMES {
            assert_ne!(text(CuResult(row.0)), c"unrecognized error code", "{:?}", row.1);
        }
    }

    #[test]
    fn a_read_error_is_gone_unless_the_context_is() {
        let _ = record(CuResult(2));
        assert_eq!((peek(), take(), take()), (CuResult(2), CuResult(2), CuResult(0)));
        let _ = record(CuResult(700));
        assert_eq!((take(), take()), (CuResult(700), CuResult(700)));
        forget();
        assert_eq!(peek(), CuResult(0));
    }
}
