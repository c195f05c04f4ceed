// SPDX-License-Identifier: Apache-2.0
//! The form of a row: which CUDA has the function, where it runs, the driver's function that it rests on, its name and
//! arguments, and how the call is handed on.
//!
//! `both inside cuMemAlloc_v2: cudaMalloc(at: ..., bytes: usize) { ... }` is exported as `partage_cudaMalloc`. *Inside*
//! means in the context of the thread's device, which the first such call makes; *outside*, that the driver is
//! initialised and no more. A body gives an [`Answer`](crate::error::Answer).

/// Which CUDA has a function in this form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// 12 and 13.
    Both,
    /// 12 alone, or in another form than 13.
    Twelve,
    /// 13 alone.
    Thirteen,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name, with `_v12` where 13 has another form.
    pub name: &'static str,
    /// Which CUDA has it.
    pub since: Since,
    /// The driver's function, or `none`.
    pub driver: &'static str,
}

macro_rules! since {
    (both) => {
        crate::rows::Since::Both
    };
    (twelve) => {
        crate::rows::Since::Twelve
    };
    (thirteen) => {
        crate::rows::Since::Thirteen
    };
}
pub(crate) use since;

macro_rules! rows {
    ($(
        $(#[$attribute:meta])*
        $since:ident $place:ident $driver:ident: $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block
    )*) => {
        /// The rows of this chapter.
        pub const ROWS: &[crate::rows::Row] = &[$(crate::rows::Row {
            name: stringify!($name),
            since: crate::rows::since!($since),
            driver: stringify!($driver),
        }),*];

        $(
            $(#[$attribute])*
            #[doc = concat!("`", stringify!($name), "`, by the driver's `", stringify!($driver), "`.")]
            ///
            /// # Safety
            /// As the function of the public header: pointers are the program's.
            #[allow(non_snake_case, reason = "the vendor's names")]
            #[unsafe(export_name = concat!("partage_", stringify!($name)))]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> std::ffi::c_int {
                let call = || -> crate::error::Answer {
                    crate::device::$place()?;
                    $body
                };
                crate::error::told(call())
            }
        )*
    };
}
pub(crate) use rows;
