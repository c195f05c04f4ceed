// SPDX-License-Identifier: Apache-2.0
//! The driver table as data: rows, symbols, function types.

use crate::driver_chapters;
use crate::row::{declare_rows, position};
use crate::types::*;

type Answer = CuResult;

driver_chapters! { (declare_rows) }

/// Index of the row of a driver function in [`ROWS`]; usable in constants. Takes time in proportion to the table.
pub const fn symbol_index(name: &[u8]) -> Option<usize> {
    position(ROWS, name)
}

/// Hands every row to a macro: `driver_table! { then }` calls `then! { [treatment] symbol(arguments); … }`.
///
/// Rows return [`CuResult`], or what is written after `->`. The caller has [`types`](crate::types) in scope.
#[macro_export]
macro_rules! driver_table {
    ($($then:tt)*) => { $crate::driver_chapters! { ($crate::bare_rows) ($($then)*) } };
}

/// Functions that the vendor's library exports without a public prototype: all `pass`, never called by us.
///
/// Seen in the exports of a release 550 library. A simulated driver has no reason to offer them.
#[macro_export]
macro_rules! driver_undeclared {
    ($($then:tt)*) => { $($then)*! {
        [pass] cuEGLApiInit();
        [pass] cuMemGetAttribute();
        [pass] cuMemGetAttribute_v2();
    } };
}

/// Prefix of the debugger's exports. They have no row: some are variables, read and written by a debugger, so no
/// pointer to one is ever exchanged.
pub const NEVER_TOUCHED: &str = "cudbg";
