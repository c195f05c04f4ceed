// SPDX-License-Identifier: Apache-2.0
//! The driver's functions by name, each found at its first call.
//!
//! Precondition of all: the arguments are what the driver's manual asks for. They are the caller's own, as the runtime
//! passes them on.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use partage_abi::types::CuResult;

/// `cudaErrorInsufficientDriver`: there is no driver.
pub const NO_DRIVER: CuResult = CuResult(35);

/// One function of the driver.
struct Slot {
    name: &'static [u8],
    address: AtomicPtr<c_void>,
}

impl Slot {
    const fn new(name: &'static [u8]) -> Self {
        Self {
            name,
            address: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    fn find(&self) -> Result<*mut c_void, CuResult> {
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() {
            return Ok(known);
        }
        let library = library();
        if library.is_null() {
            return Err(NO_DRIVER);
        }
        // SAFETY: the handle is open for ever, and the name ends with a zero, which the macro below writes.
        let found = unsafe { libc::dlsym(library, self.name.as_ptr().cast::<c_char>()) };
        if found.is_null() {
            return Err(CuResult::CALL_REQUIRES_NEWER_DRIVER);
        }
        // Two threads may both look: they find the same.
        self.address.store(found, Ordering::Release);
        Ok(found)
    }
}

/// The driver, opened once and never closed; null where there is none.
fn library() -> *mut c_void {
    static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    const NAME: &CStr = c"libcuda.so.1";
    let open = LIBRARY.load(Ordering::Acquire);
    if !open.is_null() {
        return open;
    }
    // SAFETY: the name is a C string; the driver's constructors are as safe here as in the vendor's runtime.
    let opened = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW) };
    LIBRARY.store(opened, Ordering::Release);
    opened
}

/// True where there is a driver.
pub fn is_here() -> bool {
    !library().is_null()
}

macro_rules! calls {
    ($( [$($treatment:tt)*] $symbol:ident ($($arg:ident: $type:ty),* $(,)?); )*) => {
        /// The driver's functions under their names.
        #[allow(non_snake_case, dead_code)] // the vendor's names; the table has more than the runtime calls
        mod functions {
            use partage_abi::signatures;
            use partage_abi::types::*;

            use super::Slot;

            $(
                pub fn $symbol($($arg: $type),*) -> CuResult {
                    static SLOT: Slot = Slot::new(concat!(stringify!($symbol), "\0").as_bytes());
                    match SLOT.find() {
                        Ok(address) => {
                            // SAFETY: the driver's symbol of this name has this type, as the table says.
                            let function: signatures::$symbol = unsafe { core::mem::transmute(address) };
                            // SAFETY: the arguments are the program's, by the driver's own contract.
                            unsafe { function($($arg),*) }
                        }
                        Err(code) => code,
                    }
                }
            )*
        }
        pub use functions::*;
    };
}

partage_abi::driver_table! { calls }
