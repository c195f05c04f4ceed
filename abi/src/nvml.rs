// SPDX-License-Identifier: Apache-2.0
//! The NVML table as data: rows, symbols, function types; and the types themselves.

mod result;
mod types;
pub mod values;

pub use result::NvmlReturn;
pub use types::*;

use crate::nvml_chapters;
use crate::row::{declare_rows, position};

type Answer = NvmlReturn;

nvml_chapters! { (declare_rows) }

/// Index of the row of an NVML function in [`ROWS`]; usable in constants. Takes time in proportion to the table.
pub const fn symbol_index(name: &[u8]) -> Option<usize> {
    position(ROWS, name)
}

/// Hands every NVML row to a macro, as [`driver_table!`](crate::driver_table) does for the driver.
///
/// Rows return [`NvmlReturn`], or what is written after `->`. The caller has `partage_abi::nvml::*` in scope.
#[macro_export]
macro_rules! nvml_table {
    ($($then:tt)*) => { $crate::nvml_chapters! { ($crate::bare_rows) ($($then)*) } };
}

/// Functions that the vendor's library exports without a public prototype, seen in release 550: all `pass`.
#[macro_export]
macro_rules! nvml_undeclared {
    ($($then:tt)*) => { $($then)*! {
        [pass] nvmlGetBlacklistDeviceCount();
        [pass] nvmlGetBlacklistDeviceInfoByIndex();
        [pass] nvmlInternalGetExportTable();
    } };
}
