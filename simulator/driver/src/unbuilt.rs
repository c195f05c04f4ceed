// SPDX-License-Identifier: Apache-2.0
//! What an entry point does that is not built yet: it answers NOT_SUPPORTED and is counted in the machine's report.
//! None pretends to have done something.

use partage_abi::Symbol;
use partage_abi::types::*;
use partage_machine::entry_counts::Table;

macro_rules! refuse {
    ($( [$($treatment:tt)*] $symbol:ident ($($arg:ident: $type:ty),* $(,)?); )*) => { $(
        #[allow(non_snake_case, dead_code)] // dead when the entry point is built
        pub fn $symbol($(_: $type),*) -> CuResult {
            answer(Symbol::$symbol)
        }
    )* };
}

partage_abi::driver_table! { refuse }

#[cold]
fn answer(symbol: Symbol) -> CuResult {
    if let Ok(driver) = crate::state::driver() {
        driver
            .machine()
            .count_unbuilt(Table::Driver, symbol as usize, symbol.row().name());
    }
    CuResult::NOT_SUPPORTED
}
