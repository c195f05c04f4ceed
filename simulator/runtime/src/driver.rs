// SPDX-License-Identifier: Apache-2.0
//! The driver, found as a program finds it: `dlopen("libcuda.so.1")`, then `dlsym` of public names.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use partage_abi::types::CuResult;

use crate::error::{Answer, Code};

/// Where a function of the driver is, once somebody asked.
pub struct Place {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Place {
    /// Of a function that was not looked up yet.
    pub const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Its address.
    ///
    /// # Errors
    /// There is no driver, or it lacks the function.
    pub fn address(&self) -> Result<*mut c_void, Code> {
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() {
            return Ok(known);
        }
        let handle = library()?;
        // SAFETY: a handle of dlopen's that is never closed, and a name that ends with a zero.
        let found = unsafe { libc::dlsym(handle, self.name.as_ptr()) };
        if found.is_null() {
            return Err(Code::CALL_REQUIRES_NEWER_DRIVER);
        }
        self.address.store(found, Ordering::Release);
        Ok(found)
    }
}

fn library() -> Result<*mut c_void, Code> {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let handle = *LIBRARY.get_or_init(|| {
        // SAFETY: the name ends with a zero; the driver's constructors are as safe as for any program.
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) }.addr()
    });
    match handle {
        0 => Err(Code::INSUFFICIENT_DRIVER),
        handle => Ok(std::ptr::with_exposed_provenance_mut(handle)),
    }
}

/// What a driver call answered.
pub fn answered(code: CuResult) -> Answer {
    match code.0 {
        0 => Ok(()),
        // The numbers of both lists are the same wherever the driver answers them.
        code => Err(Code(code)),
    }
}

/// Calls a function of the driver by its exported name, and gives its [`Answer`].
macro_rules! call {
    ($symbol:ident($($argument:expr),* $(,)?)) => {{
        static PLACE: crate::driver::Place = crate::driver::Place::new(
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name"),
            },
        );
        match PLACE.address() {
            // SAFETY: the driver's function of that name, whose type the table of the driver declares; the arguments are
            // the program's, or this runtime's own of the same types.
            Ok(address) => crate::driver::answered(unsafe {
                std::mem::transmute::<*mut std::ffi::c_void, partage_abi::signatures::$symbol>(address)($($argument),*)
            }),
            Err(code) => Err(code),
        }
    }};
}
pub(crate) use call;
