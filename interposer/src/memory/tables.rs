// SPDX-License-Identifier: Apache-2.0
//! The tables of what this process holds of device memory, behind one lock. No call of the driver is made under it.

use partage_records::Table;
use partage_records::physical::Physicals;

use crate::memory::allocations::{Allocations, SystemPages};
use crate::memory::charge::Charge;
use crate::memory::pools::exec::Exec;
use crate::memory::pools::table;

/// The tables. All-zero memory is empty ones.
pub struct Tables {
    /// Live allocations.
    pub allocations: Allocations,
    /// Live memory of `cuMemCreate`.
    pub physicals: Physicals<Charge, SystemPages>,
    /// Pools that are charged.
    pub pools: table::Table,
    /// Executable graphs that take memory when they are launched.
    pub execs: Table<Exec, SystemPages>,
}
