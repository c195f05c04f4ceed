// SPDX-License-Identifier: Apache-2.0
//! Frees, in stream order and at once, and the synchronisations after which they have happened.

use core::sync::atomic::Ordering;

use super::entries::with;
use super::leaving::{outlived_its_pool, refund_arrived, refund_left};
use super::look::{Trim, all_changed, look};
use super::table::Leaving;
use crate::attachment;
use crate::guest::errno;
use crate::memory::allocations::{Allocation, Allocations, Key};
use crate::memory::charge::Charge;
use crate::memory::pools::table;
use crate::memory::tables;
use crate::memory::words::Operation;
use crate::state::{self, Phase, State};
use crate::stream::StreamName;

/// What a synchronisation waited for.
pub enum Waited {
    /// One stream.
    Stream(StreamName),
    /// More than one, or nobody knows which.
    Any,
}

/// After a synchronisation: refunds what streams have freed, and reads pools that may have given memory back.
#[inline]
pub fn synchronised(waited: Waited) {
    if let Some(state) = state::get().filter(|state| table::pools(state).watched.load(Ordering::Relaxed) != 0) {
        errno::preserving(|| look_after_waiting(state, &waited));
    }
}

#[cold]
fn look_after_waiting(state: &'static State, waited: &Waited) {
    // Before the look: a free that comes meanwhile says so again.
    table::pools(state).watched.store(0, Ordering::Relaxed);
    refund_left(state, &|leaving| match waited {
        Waited::Stream(stream) => leaving.is_on(stream),
        Waited::Any => true,
    });
    look(state, Trim::No, &|_| true);
    if with(state, |table| table.has_leaving()) {
        table::pools(state).watched.store(1, Ordering::Relaxed);
    }
}

/// Remembers a free under way; nothing to remember is nothing to do.
fn leave_to_stream(state: &'static State, leaving: Leaving) {
    if with(state, |table| table.is_crowded()) {
        refund_arrived(state, &|_| true);
    }
    let crowded_out = with(state, |table| table.leave(leaving));
    table::pools(state).watched.store(1, Ordering::Relaxed);
    if let Some(oldest) = crowded_out.filter(|oldest| oldest.charge.bytes != 0) {
        oldest.refund(state);
    }
}

/// A free under way, in stream order or in a process that has pools. The record has left the table: the address may be
/// somebody else's the moment it is free.
pub struct Freeing {
    state: &'static State,
    address: u64,
    /// What was recorded under the address.
    recorded: Option<(Allocation, Operation)>,
    /// It was recorded as an allocation of its own, from no pool.
    is_plain: bool,
    /// `None`: the free waits for the work of the memory.
    stream: Option<StreamName>,
    has_pools: bool,
}

impl Freeing {
    /// A free in stream order begins. `None`: the driver is just called.
    #[inline(never)] // one body for all the hooks that call it
    pub fn in_order(address: u64, stream: StreamName) -> Option<Self> {
        let freeing = Self::begin(address, Some(stream))?;
        let watched = &table::pools(freeing.state).watched;
        if freeing.has_pools && watched.load(Ordering::Relaxed) == 0 {
            watched.store(1, Ordering::Relaxed);
        }
        Some(freeing)
    }

    /// A free that waits begins. `None`: the driver is just called.
    pub fn at_once(address: u64) -> Option<Self> {
        Self::begin(address, None)
    }

    fn begin(address: u64, stream: Option<StreamName>) -> Option<Self> {
        let state = state::get().filter(|state| address != 0 && state.phase() != Phase::Fresh)?;
        let mut tables = tables::hold(state);
        let plain = tables.allocations.take(Key::address(address).number());
        let taken = plain.or_else(|| take_pooled(state, &mut tables.allocations, address));
        let has_pools = table::pools(state).count.load(Ordering::Relaxed) != 0;
        if has_pools
            && plain.is_none()
            && let Some(stream) = stream.and_then(StreamName::number)
        {
            tables.pools.free(stream, address);
        }
        drop(tables);
        Some(Self {
            state,
            address,
            recorded: taken.map(|allocation| {
                (
                    allocation,
                    Operation::begin_again(attachment::of(state), &allocation.charge),
                )
            }),
            is_plain: plain.is_some(),
            stream,
            has_pools,
        })
    }

    /// The driver freed it, or refused.
    #[inline(never)] // as `in_order`
    pub fn end(self, is_freed: bool) {
        let Self { state, address, .. } = self;
        let (is_plain, is_at_once) = (self.is_plain, self.stream.is_none());
        match self.recorded {
            Some((allocation, operation)) => {
                end_recorded(state, allocation, is_plain, self.stream, is_freed);
                drop(operation);
            }
            None if !is_freed && !is_at_once && self.has_pools => never_freed(state, address),
            None => {}
        }
        if is_at_once && !is_plain {
            // The driver has waited for the memory's work: pools may have shrunk.
            all_changed(state);
        }
    }
}

/// The driver refused to free a block.
#[cold]
fn never_freed(state: &State, address: u64) {
    with(state, |table| table.never_freed(address));
}

/// Takes the record of an allocation from a pool that the program made.
fn take_pooled(state: &State, allocations: &mut Allocations, address: u64) -> Option<Allocation> {
    if table::pools(state).records.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let taken = allocations.take(Key::pooled(address).number())?;
    table::pools(state).records.fetch_sub(1, Ordering::Relaxed);
    Some(taken)
}

/// The driver freed what was recorded, or refused.
fn end_recorded(
    state: &'static State,
    allocation: Allocation,
    is_allocation: bool,
    stream: Option<StreamName>,
    is_freed: bool,
) {
    let charge = allocation.charge;
    if !is_freed {
        let mut tables = tables::hold(state);
        // Counted before anybody else can take it.
        if tables.allocations.add(allocation) && !is_allocation {
            table::pools(state).records.fetch_add(1, Ordering::Relaxed);
        }
        drop(tables);
        return never_freed(state, Key::value(allocation.key));
    }
    let to_refund = if is_allocation {
        allocation.charge.bytes
    } else {
        outlived_its_pool(state, &allocation)
    };
    let leaving = Leaving {
        address: Key::value(allocation.key),
        charge: Charge {
            bytes: to_refund,
            ..charge
        },
        is_allocation,
        stream: stream.map_or(0, |stream| stream.handle.0 as u64),
        is_per_thread: stream.is_some_and(|stream| stream.is_per_thread),
    };
    if to_refund > 0 {
        match stream {
            Some(_) => leave_to_stream(state, leaving),
            None => leaving.refund(state),
        }
    }
}
