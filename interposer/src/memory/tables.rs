// SPDX-License-Identifier: Apache-2.0
//! The tables of what this process holds of device memory, behind the ledger's lock. No call of the driver is made
//! under it.

use partage_records::Table;
use partage_records::physical::Physicals;

use crate::attachment;
use crate::guest::lock::{Behind, Guard};
use crate::memory::allocations::{Allocations, SystemPages};
use crate::memory::charge::Charge;
use crate::memory::pools::exec::Exec;
use crate::memory::pools::table;
use crate::state::State;
use crate::state::rooms::{Owner, Room};

/// The room of the tables.
struct Kept(Behind<Tables>);

// SAFETY: all-zero memory is empty tables; nothing else lies in this room.
unsafe impl Room for Kept {
    const OWNER: Owner = Owner::Tables;
}

/// Waits until the tables are ours. They belong to the calling function's frame.
#[inline(always)]
pub fn hold(state: &State) -> Guard<'_, Tables> {
    // SAFETY: this process has one attachment, and nothing else leads to the tables.
    unsafe { state.room::<Kept>().0.hold(&attachment::of(state).ledger) }
}

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
