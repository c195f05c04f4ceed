// SPDX-License-Identifier: Apache-2.0
//! The exported functions, one per row of the driver table: the only place with exported names.
//!
//! How a call finds its body without a second list: an export is called `entry` inside a scope of its own, in a
//! module that imports all of `unbuilt`. Its body imports all of `chapters`, which is the nearer scope, so a function
//! there wins over the one of the same name in `unbuilt`.

use partage_abi::types::*;

use crate::unbuilt::*;

macro_rules! export {
    ($( [$($treatment:tt)*] $symbol:ident ($($arg:ident: $type:ty),* $(,)?); )*) => { $(
        const _: () = {
            #[unsafe(export_name = stringify!($symbol))]
            extern "C" fn entry($($arg: $type),*) -> CuResult {
                #[allow(unused_imports)]
                use crate::chapters::*;
                match crate::state::fault_at(stringify!($symbol)) {
                    Some(code) => crate::trace::answer(stringify!($symbol), code),
                    None => crate::trace::answer(stringify!($symbol), $symbol($($arg),*)),
                }
            }
        };
    )* };
}

partage_abi::driver_table! { export }
