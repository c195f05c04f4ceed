// SPDX-License-Identifier: Apache-2.0
//! What an entry point does that is not built: it answers NOT_SUPPORTED and is counted in the machine's report.

use partage_abi::nvml::*;
use partage_machine::entry_counts::Table;

macro_rules! refuse {
    ($( [$($treatment:tt)*] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => { $(
        refuse! { @function $symbol ($($arg: $type),*) $(-> $answer)? }
    )* };
    (@function $symbol:ident ($($arg:ident: $type:ty),*)) => {
        #[allow(non_snake_case, dead_code)] // dead when the entry point is built
        pub fn $symbol($(_: $type),*) -> NvmlReturn {
            answer(Symbol::$symbol)
        }
    };
    // A function that returns no code cannot refuse: it must be built.
    (@function $symbol:ident ($($arg:ident: $type:ty),*) -> $answer:ty) => {};
}

partage_abi::nvml_table! { refuse }

#[cold]
fn answer(symbol: Symbol) -> NvmlReturn {
    match crate::state::nvml() {
        Ok(nvml) => {
            // A report that cannot be written must not change what the program sees.
            let _ = nvml
                .books
                .count_unbuilt(Table::Nvml, symbol as usize, symbol.row().name());
            NvmlReturn::NOT_SUPPORTED
        }
        Err(code) => code,
    }
}
