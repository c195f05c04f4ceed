// SPDX-License-Identifier: Apache-2.0
//! The exported functions, one per row of the NVML table: the only place with exported names.
//!
//! Each export is called `entry` inside a module of its own that imports all of `unbuilt`. Its body imports all of
//! `chapters`, which is the nearer scope, so a function there wins over the one of the same name in `unbuilt`.

macro_rules! export {
    ($( [$($treatment:tt)*] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => { $(
        // The driver's own names; the inner import is unused exactly where an entry point is not built.
        #[allow(non_snake_case, unused_imports)]
        mod $symbol {
            use partage_abi::nvml::*;

            use crate::unbuilt::*;

            export! { @function $symbol ($($arg: $type),*) $(-> $answer)? }
        }
    )* };
    (@function $symbol:ident ($($arg:ident: $type:ty),*)) => {
        #[unsafe(export_name = stringify!($symbol))]
        extern "C" fn entry($($arg: $type),*) -> NvmlReturn {
            use crate::chapters::*;
            match crate::state::fault_at(stringify!($symbol)) {
                Some(code) => code,
                None => $symbol($($arg),*),
            }
        }
    };
    (@function $symbol:ident ($($arg:ident: $type:ty),*) -> $answer:ty) => {
        #[unsafe(export_name = stringify!($symbol))]
        extern "C" fn entry($($arg: $type),*) -> $answer {
            crate::chapters::$symbol($($arg),*)
        }
    };
}

partage_abi::nvml_table! { export }
