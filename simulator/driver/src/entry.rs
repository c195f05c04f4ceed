// SPDX-License-Identifier: Apache-2.0
//! The exported functions, one per row of the driver table: the only place with exported names.
//!
//! How a call finds its body without a second list: each export is called `entry` inside a module of its own that
//! imports all of `unbuilt`. Its body imports all of `chapters`, which is the nearer scope, so a function there wins
//! over the one of the same name in `unbuilt`. One export more is no row: what the machine says of the host.

use partage_abi::Symbol;
use partage_abi::types::c_void;

/// The address of an export. The library is linked so that these are its own, whatever is preloaded.
#[derive(Clone, Copy)]
struct Address(*const c_void);

// SAFETY: the address of a function is the same in every thread.
unsafe impl Sync for Address {}

/// The address of an exported function.
pub fn address(symbol: Symbol) -> *mut c_void {
    ADDRESSES[symbol as usize].0.cast_mut()
}

/// The address of a function that does the same and is no export.
pub fn inner_address(symbol: Symbol) -> *mut c_void {
    INNER_ADDRESSES[symbol as usize].0.cast_mut()
}

macro_rules! export {
    ($( [$($treatment:tt)*] $symbol:ident ($($arg:ident: $type:ty),* $(,)?); )*) => {
        /// By place in the table.
        static ADDRESSES: [Address; partage_abi::ROWS.len()] =
            [ $( Address(rows::$symbol::entry as *const c_void), )* ];

        /// By place in the table.
        static INNER_ADDRESSES: [Address; partage_abi::ROWS.len()] =
            [ $( Address(rows::$symbol::inner as *const c_void), )* ];

        mod rows { $(
            // The driver's own names; the inner import is unused exactly where an entry point is not built.
            #[allow(non_snake_case, unused_imports)]
            pub mod $symbol {
                use partage_abi::types::*;

                use crate::unbuilt::*;

                #[unsafe(export_name = stringify!($symbol))]
                pub extern "C" fn entry($($arg: $type),*) -> CuResult {
                    use crate::chapters::*;
                    const TAKES_LOCKS: bool = crate::nested::takes_locks(stringify!($symbol));
                    let Some(_call) = crate::nested::begin(TAKES_LOCKS) else {
                        return CuResult::NOT_PERMITTED;
                    };
                    const CLASS: crate::checkpoint::Class = crate::checkpoint::class_of(stringify!($symbol));
                    let _inside = crate::checkpoint::gate::enter(CLASS);
                    match crate::state::fault_at(stringify!($symbol)) {
                        Some(code) => crate::trace::answer(stringify!($symbol), code),
                        None => crate::trace::answer(stringify!($symbol), $symbol($($arg),*)),
                    }
                }

                pub extern "C" fn inner($($arg: $type),*) -> CuResult {
                    // Not inlined: two equal functions would become one, with one address.
                    let entry: extern "C" fn($($type),*) -> CuResult = entry;
                    std::hint::black_box(entry)($($arg),*)
                }
            }
        )* }
    };
}

partage_abi::driver_table! { export }

/// The bytes of the host's memory that are available on the simulated machine, of which the host's own `/proc/meminfo`
/// knows nothing; 0 where no device shares it.
#[unsafe(export_name = "partage_sim_host_available")]
extern "C" fn host_available() -> u64 {
    let available = crate::state::driver().map(|driver| driver.machine().host_available());
    available.ok().flatten().unwrap_or(0)
}
