// SPDX-License-Identifier: Apache-2.0
//! The entries of a process, with their lock: looked up, made, removed.

use core::sync::atomic::Ordering;

use partage_protocol::pool::PoolAccount;

use super::known::Blocks;
use super::table::{Entry, Source, Standing, Table};
use crate::memory::charge::Charge;
use crate::memory::pools::table;
use crate::memory::sharing;
use crate::memory::tables;
use crate::memory::words::numbering;
use crate::state::State;

/// Runs `act` on the entries.
pub fn with<R>(state: &State, act: impl FnOnce(&mut Table) -> R) -> R {
    act(&mut tables::hold(state).pools)
}

/// This thread uses the handle of an entry's pool no more.
pub fn leave(state: &State, id: u64) {
    with(state, |table| {
        if let Some(entry) = table.get(id) {
            entry.users = entry.users.saturating_sub(1);
        }
    });
}

/// Makes an entry for a source of a device. `None`: its device is not shared, or the host has no memory.
#[cold]
pub fn enter(state: &State, source: Source, ordinal: i32, is_custom: bool) -> Option<()> {
    let (_, slot) = sharing::slot_of(source.library(), ordinal)?;
    let charge = Charge::nothing(slot, numbering(state)?);
    add(state, source, Standing::Charged, charge, is_custom)
}

/// Makes an entry for a source that has none, if the host has memory for it.
pub fn add(state: &State, source: Source, standing: Standing, charge: Charge, is_custom: bool) -> Option<()> {
    let entry = Entry {
        id: 0,
        source,
        standing,
        charge,
        account: PoolAccount::default(),
        threshold: 0,
        is_custom,
        live: 0,
        users: 0,
        reuses: false,
        blocks: Blocks::NONE,
    };
    with(state, |table| {
        // Two threads may meet a source at the same time.
        if table.find(source).is_none() && table.add(entry).is_some() {
            table::pools(state).count.fetch_add(1, Ordering::Relaxed);
        }
    });
    Some(())
}

/// Removes an entry.
pub fn remove(state: &State, table: &mut Table, id: u64) {
    table.remove(id);
    table::pools(state).count.fetch_sub(1, Ordering::Relaxed);
}
