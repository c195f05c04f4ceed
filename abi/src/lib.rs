// SPDX-License-Identifier: Apache-2.0
//! The CUDA driver API and NVML as Partage sees them: types and two tables. No behaviour.
//!
//! `driver_table` and `nvml_table` are the two lists; everything else here gives them meaning. Enumerations of the
//! vendor are plain integers (a newer driver's value must not be undefined behaviour), structs are `repr(C)` and
//! compared with `cuda.h` and with cudarc by this crate's tests.
#![no_std]

pub mod driver;
mod driver_table;
pub mod entry_points;
pub mod nvml;
mod nvml_table;
mod row;
pub mod types;
pub mod values;

pub use driver::{HOOKED, NEVER_TOUCHED, ROWS, Symbol, signatures, symbol_index};
pub use row::{Row, Treatment};

/// Ordinals that a driver can show: CUDA addresses no more devices.
pub const MAX_ORDINALS: usize = 64;
