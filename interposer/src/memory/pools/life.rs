// SPDX-License-Identifier: Apache-2.0
//! The life of pools that programs make.

use core::sync::atomic::Ordering;

use partage_abi::types::CuMemoryPool;
use partage_protocol::message::NOTICE_OVERHEAD;

use super::entries::{add, enter, remove, with};
use super::leaving::{is_known, outlived_its_pool};
use super::look::all_changed;
use super::table::{Source, Standing};
use crate::attachment;
use crate::guest::errno;
use crate::guest::sys;
use crate::memory::account;
use crate::memory::allocations::{Allocation, Key};
use crate::memory::charge::Charge;
use crate::memory::pools::table;
use crate::memory::tables;
use crate::memory::words::Operation;
use crate::real::Library;
use crate::session;
use crate::state::{self, State};

/// Longest wait of a destruction for those that read the pool: readings take microseconds.
const READERS_WAIT_NS: u64 = 1_000_000_000;

/// What a pool that the program made is of.
pub enum Kind {
    /// Memory of a device, by ordinal.
    Device(i32),
    /// Managed memory that prefers a device.
    Managed(i32),
    /// No device memory, or another process's.
    Exempt,
}

/// The program made or imported a pool.
pub fn created(real: &Library, pool: CuMemoryPool, kind: Kind) {
    let source = Source::pool(real, pool);
    let Some(state) = state::get() else { return };
    // A pool that went without our having seen it: the driver could not have given its handle out again.
    forget_former(state, source);
    match kind {
        Kind::Device(ordinal) => {
            enter(state, source, ordinal, true);
        }
        Kind::Managed(ordinal) => {
            if enter(state, source, ordinal, true).is_some() {
                with(state, |table| {
                    if let Some(entry) = table.find(source) {
                        entry.charge.is_managed = true;
                    }
                });
            }
        }
        Kind::Exempt => {
            add(state, source, Standing::Exempt, Charge::nothing(0, false), false);
        }
    }
}

fn forget_former(state: &'static State, source: Source) {
    let former = with(state, |table| {
        let entry = table.find(source)?;
        let (id, charge, bytes) = (entry.id, entry.charge, entry.account.close(0));
        remove(state, table, id);
        Some((charge, bytes))
    });
    if let Some((charge, bytes)) = former {
        account::release(state, &charge, bytes);
    }
}

/// Remembers what a pool keeps at a synchronisation.
pub fn set_threshold(state: &State, source: Source, bytes: u64) {
    with(state, |table| {
        if let Some(entry) = table.find(source) {
            entry.threshold = bytes;
        }
    });
    table::pools(state).watched.store(1, Ordering::Relaxed);
}

/// A pool that is about to be destroyed. What was allocated from it stays charged, allocation by allocation; what the
/// driver keeps beside that can be read no more and is left to the broker's measurement.
pub struct Destroying {
    state: &'static State,
    id: u64,
    former: Standing,
    charge: Charge,
    /// `None`: nothing is charged for the pool.
    operation: Option<Operation>,
}

/// Begins to destroy a pool. `None`: nothing is known of it.
pub fn begin_destroy(state: &'static State, source: Source) -> Option<Destroying> {
    let (id, former, charge) = end_use(state, source)?;
    Some(Destroying {
        state,
        id,
        former,
        charge,
        operation: (former != Standing::Exempt).then(|| Operation::begin_again(attachment::of(state), &charge)),
    })
}

impl Destroying {
    /// The driver destroyed it, or refused.
    pub fn end(self, is_destroyed: bool) {
        let Self { state, id, charge, .. } = self;
        let given_back = with(state, |table| {
            let Some(entry) = table.get(id) else {
                if self.operation.is_none() {
                    remove(state, table, id);
                }
                return None;
            };
            if !is_destroyed {
                entry.standing = self.former;
                return None;
            }
            if self.operation.is_none() {
                remove(state, table, id);
                return None;
            }
            let live = entry.live;
            let bytes = entry.account.close(live);
            entry.standing = Standing::Destroyed;
            if live == 0 {
                remove(state, table, id);
            }
            Some((bytes, live))
        });
        if let Some((bytes, live)) = given_back {
            account::release(state, &charge, bytes);
            if live > 0 {
                errno::preserving(|| session::notice(state, NOTICE_OVERHEAD, charge.slot as usize, 0));
            }
        }
        drop(self.operation);
    }
}

/// Keeps everybody from using a pool's handle, and waits for those that do.
fn end_use(state: &State, source: Source) -> Option<(u64, Standing, Charge)> {
    let mut ending = with(state, |table| {
        let entry = table.find(source).filter(|entry| entry.standing != Standing::Ending)?;
        let former = core::mem::replace(&mut entry.standing, Standing::Ending);
        Some((entry.id, former, entry.charge, entry.users))
    })?;
    let deadline = sys::now_ns().saturating_add(READERS_WAIT_NS);
    while ending.3 > 0 && sys::now_ns() < deadline {
        sys::sleep_ns(20_000);
        ending.3 = with(state, |table| table.get(ending.0).map_or(0, |entry| entry.users));
    }
    Some((ending.0, ending.1, ending.2))
}

/// A context is gone, and with it what its streams allocated, of whatever pool.
#[cold]
pub fn context_ended(state: &'static State) {
    if table::pools(state).records.load(Ordering::Relaxed) > 0 {
        errno::preserving(|| forget_what_is_gone(state));
    }
    all_changed(state);
}

/// Forgets records whose memory is not there any more.
fn forget_what_is_gone(state: &'static State) {
    let places = table::pools(state).records.load(Ordering::Relaxed) as usize;
    let length = places * size_of::<Allocation>();
    let Some(memory) = sys::map_private(length) else { return };
    let copies: *mut Allocation = memory.cast();
    let count = core::cell::Cell::new(0);
    tables::hold(state).allocations.change_all(|allocation| {
        if allocation.pool().is_some() && count.get() < places {
            // SAFETY: within the mapping.
            unsafe { copies.add(count.get()).write(*allocation) };
            count.set(count.get() + 1);
        }
    });
    for index in 0..count.get() {
        // SAFETY: written above.
        let allocation = unsafe { copies.add(index).read() };
        if !is_there(state, &allocation) {
            forget(state, &allocation);
        }
    }
    // SAFETY: our mapping.
    unsafe { sys::unmap(memory, length) };
}

/// Is the memory of a record still there?
fn is_there(state: &State, allocation: &Allocation) -> bool {
    let library = with(state, |table| {
        let entry = table.get(allocation.pool()?)?;
        Some(entry.source.library())
    });
    library.is_some_and(|real| is_known(real, Key::value(allocation.key)))
}

fn forget(state: &State, allocation: &Allocation) {
    let mut tables = tables::hold(state);
    if tables.allocations.take(allocation.key).is_none() {
        return;
    }
    table::pools(state).records.fetch_sub(1, Ordering::Relaxed);
    drop(tables);
    let bytes = outlived_its_pool(state, allocation);
    if bytes > 0 {
        account::release(state, &allocation.charge, bytes);
    }
}
