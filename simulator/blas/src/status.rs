// SPDX-License-Identifier: Apache-2.0
//! What the functions answer, and how a refusal is told.

use core::ffi::{CStr, c_char, c_int};
use std::collections::BTreeSet;
use std::sync::{Mutex, TryLockError};

/// A `cublasStatus_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub c_int);

macro_rules! statuses {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        impl Status {
            $(#[doc = $text] pub const $name: Self = Self($code);)*

            /// Name in the public header.
            pub fn name(self) -> &'static CStr {
                match self {
                    $(Self::$name => {
                        const NAME: &CStr = match CStr::from_bytes_with_nul(
                            concat!("CUBLAS_STATUS_", stringify!($name), "\0").as_bytes(),
                        ) {
                            Ok(name) => name,
                            Err(_) => c"",
                        };
                        NAME
                    })*
                    _ => c"unknown status",
                }
            }

            /// Meaning in words.
            pub fn text(self) -> &'static CStr {
                match self {
                    $(Self::$name => {
                        const TEXT: &CStr = match CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                            Ok(text) => text,
                            Err(_) => c"",
                        };
                        TEXT
                    })*
                    _ => c"unknown status",
                }
            }
        }
    };
}
statuses! {
    SUCCESS = 0, "success";
    NOT_INITIALIZED = 1, "the library was not initialized";
    ALLOC_FAILED = 3, "the resource allocation failed";
    INVALID_VALUE = 7, "an unsupported value or parameter was passed to the function";
    ARCH_MISMATCH = 8, "the requested feature is absent from the device";
    EXECUTION_FAILED = 13, "the function failed to launch on the GPU";
    INTERNAL_ERROR = 14, "an internal operation failed";
    NOT_SUPPORTED = 15, "the functionality requested is not supported";
}

/// How a function goes on after a step that may fail.
pub type Outcome<T> = Result<T, Status>;

/// Codes of the driver.
mod driver_code {
    pub const OUT_OF_MEMORY: i32 = 2;
    pub const INVALID_PTX: i32 = 218;
    pub const NO_BINARY: i32 = 209;
    pub const NOT_SUPPORTED: i32 = 801;
}

/// What the driver's answer means here.
pub fn of_driver(code: i32) -> Outcome<()> {
    Err(match code {
        0 => return Ok(()),
        driver_code::OUT_OF_MEMORY => Status::ALLOC_FAILED,
        driver_code::INVALID_PTX | driver_code::NO_BINARY => Status::ARCH_MISMATCH,
        driver_code::NOT_SUPPORTED => Status::NOT_SUPPORTED,
        _ => Status::EXECUTION_FAILED,
    })
}

/// The status of an outcome.
pub fn status_of(outcome: Outcome<()>) -> Status {
    outcome.err().unwrap_or(Status::SUCCESS)
}

/// Refuses something by name, and says so on stderr the first time.
#[cold]
pub fn refuse(function: &str, what: &str) -> Status {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let line = format!("{function}: {what} is not built");
    let mut told = match TOLD.try_lock() {
        Ok(told) => told,
        Err(TryLockError::Poisoned(told)) => told.into_inner(),
        // Another thread is saying something, or did when this process was forked: the answer matters more.
        Err(TryLockError::WouldBlock) => return Status::NOT_SUPPORTED,
    };
    if !told.contains(&line) {
        let said = format!("partage sim: {line}\n");
        // SAFETY: the line's own bytes. Not `eprintln!`, which waits for a lock that a forked child may lack.
        unsafe { libc::write(libc::STDERR_FILENO, said.as_ptr().cast(), said.len()) };
        told.insert(line);
    }
    Status::NOT_SUPPORTED
}

macro_rules! texts {
    ($($export:ident, $method:ident;)*) => {$(
        #[doc = concat!("`", stringify!($export), "`")]
        #[allow(non_snake_case, reason = "the library's name")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $export(status: c_int) -> *const c_char {
            Status(status).$method().as_ptr()
        }
    )*};
}
texts! {
    partage_cublasGetStatusName, name;
    partage_cublasGetStatusString, text;
    partage_cublasLtGetStatusName, name;
    partage_cublasLtGetStatusString, text;
}
