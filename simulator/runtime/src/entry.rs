// SPDX-License-Identifier: Apache-2.0
//! The exported functions, one per row of the table: the only place with exported names.
//!
//! A `straight` row makes sure that the thread has a context and hands its arguments to the driver, an `early` one
//! does so without a context, an `own` one calls the function of its name in [`chapters`](crate::chapters). What they
//! answer becomes the thread's last error, but for rows that write their answer down (`-> type`). A row that is not
//! built names itself once and answers `cudaErrorNotSupported`.

use partage_abi::types::CuResult;

macro_rules! export {
    ($(
        [$since:ident $kind:ident $call:ident]
        $name:ident $(($($arg:ident: $type:ty),* $(,)?))? $(-> $answer:ty)?;
    )*) => {
        mod rows { $(
            #[allow(non_snake_case, unused_imports)] // the vendor's names; a row without arguments needs no types
            pub mod $name {
                use partage_abi::types::*;

                use crate::types::*;

                export! { @row $kind $call $name $(($($arg: $type),*))? $(-> $answer)? }
            }
        )* }
    };
    (@row straight $call:ident $name:ident ($($arg:ident: $type:ty),*)) => {
        #[unsafe(export_name = concat!("partage_", stringify!($name)))]
        pub extern "C" fn entry($($arg: $type),*) -> CuResult {
            crate::error::record(match crate::context::enter() {
                Ok(()) => crate::driver::$call($($arg),*),
                Err(code) => code,
            })
        }
    };
    (@row early $call:ident $name:ident ($($arg:ident: $type:ty),*)) => {
        #[unsafe(export_name = concat!("partage_", stringify!($name)))]
        pub extern "C" fn entry($($arg: $type),*) -> CuResult {
            crate::error::record(match crate::context::initialise() {
                Ok(()) => crate::driver::$call($($arg),*),
                Err(code) => code,
            })
        }
    };
    (@row own $call:ident $name:ident ($($arg:ident: $type:ty),*)) => {
        #[unsafe(export_name = concat!("partage_", stringify!($name)))]
        pub extern "C" fn entry($($arg: $type),*) -> CuResult {
            crate::error::record(crate::chapters::$name($($arg),*))
        }
    };
    (@row own $call:ident $name:ident ($($arg:ident: $type:ty),*) -> $answer:ty) => {
        #[unsafe(export_name = concat!("partage_", stringify!($name)))]
        pub extern "C" fn entry($($arg: $type),*) -> $answer {
            crate::chapters::$name($($arg),*)
        }
    };
    (@row unbuilt $call:ident $name:ident) => {
        #[unsafe(export_name = concat!("partage_", stringify!($name)))]
        pub extern "C" fn entry() -> CuResult {
            crate::entry::refuse(stringify!($name))
        }
    };
}

crate::table::runtime_table! { export }

/// Answers for a function that is not built, and says so at its first call.
#[cold]
fn refuse(name: &str) -> CuResult {
    let name = name.strip_suffix("_v12").unwrap_or(name);
    crate::error::record(crate::refuse::of_runtime(name))
}
