// SPDX-License-Identifier: Apache-2.0
//! One call that may make a pool grow: reserved before, settled after.

use core::sync::atomic::Ordering;

use partage_protocol::pool::{PoolAccount, Ticket};
use partage_protocol::reservation::Denial;

use super::entries::{enter, leave, with};
use super::known::Freed;
use super::look::{Trim, look_again};
use super::settle::{Raise, settle};
use super::table::Source;
use crate::attachment;
use crate::guest::errno;
use crate::memory::account;
use crate::memory::allocations::{Allocation, Allocations};
use crate::memory::charge::{Charge, cost};
use crate::memory::pools::table;
use crate::memory::reservation::{Begun, Denied, Reservation};
use crate::memory::tables;
use crate::memory::tables::Tables;
use crate::memory::words::numbering;
use crate::state::State;

/// A call under way.
pub struct Call {
    of: Subject,
    cover: Cover,
}

/// What a call is about.
#[derive(Clone, Copy)]
struct Subject {
    state: &'static State,
    /// Of the pool's entry.
    id: u64,
    source: Source,
    /// Where the pool is charged.
    charge: Charge,
    /// Bytes.
    asked: u64,
    /// The allocation gets a record, which is promised.
    is_recorded: bool,
}

/// Why the memory that the call gets is charged.
enum Cover {
    /// The call's own reservation, which the pool's account has taken over; none of it where the pool looked as if it
    /// had the bytes.
    Reserved(Reservation, Ticket),
    /// Its stream freed the block a moment ago. Nothing is reserved for it, and nothing has to be settled.
    Freed(Freed),
}

/// How a call ended.
pub enum End {
    /// All is charged.
    Settled,
    /// The pool grew beyond the limit: the memory has to go back to the driver. True when the call had no reservation,
    /// because the pool looked as if it needed none.
    Beyond(Denied, bool),
}

/// When a call may go on without a reservation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// Never.
    Never,
    /// When the pool has the bytes, or seems to.
    IfIdle,
    /// When the grant does not cover one: the call has not made the pool grow before.
    IfNotGranted,
    /// In any case: what it makes the pool grow by can be undone.
    Always,
}

/// Reserves what a call may make `source` grow by for `bytes`, on the device of `ordinal` (asked only for a source that
/// is new here). What `stream` has freed it gets again without a reservation, if any call may go on without.
#[inline(always)]
pub fn begin(
    state: &'static State,
    source: Source,
    ordinal: impl FnOnce() -> Option<i32>,
    bytes: u64,
    stream: Option<u64>,
    reuse: Reuse,
) -> Begun<Call> {
    if numbering(state).is_none() {
        return Begun::NotCharged;
    }
    match begin_known(state, source, bytes, stream, reuse) {
        Some(begun) => begun,
        None => match ordinal() {
            Some(ordinal) => begin_new(state, source, ordinal, bytes, stream, reuse),
            None => Begun::NotCharged,
        },
    }
}

/// [`begin`] for a source that is new here.
#[cold]
#[inline(never)] // as it is rare, one body for all
fn begin_new(
    state: &'static State,
    source: Source,
    ordinal: i32,
    bytes: u64,
    stream: Option<u64>,
    reuse: Reuse,
) -> Begun<Call> {
    enter(state, source, ordinal, false)
        .and_then(|()| begin_known(state, source, bytes, stream, reuse))
        .unwrap_or(Begun::NotCharged)
}

/// [`begin`] for a source with an entry. `None`: it has none.
#[inline(always)]
fn begin_known(
    state: &'static State,
    source: Source,
    bytes: u64,
    stream: Option<u64>,
    reuse: Reuse,
) -> Option<Begun<Call>> {
    let mut held = tables::hold(state);
    let Tables { pools, allocations, .. } = &mut *held;
    let entry = pools.find(source)?;
    if !entry.is_readable() {
        return Some(Begun::NotCharged);
    }
    let of = Subject {
        state,
        id: entry.id,
        source,
        charge: entry.charge,
        asked: cost(bytes),
        is_recorded: entry.is_custom,
    };
    if of.is_recorded && !allocations.promise() {
        return Some(Begun::Denied(Denied::new(state, &of.charge, bytes, Denial::CardFull)));
    }
    let freed = stream.and_then(|stream| entry.blocks.take_freed(stream, of.asked));
    if let Some(freed) = freed.filter(|_| reuse != Reuse::Never) {
        let cover = Cover::Freed(freed);
        return Some(Begun::Granted(Call { of, cover }));
    }
    entry.users += 1;
    if !of.charge.is_standalone {
        let growth = match reuse {
            Reuse::Always => 0,
            Reuse::Never | Reuse::IfIdle | Reuse::IfNotGranted => entry.account.to_reserve(of.asked),
        };
        let mut reservation = Reservation::open(state, of.charge);
        if reservation.add_granted(growth) {
            let cover = Cover::Reserved(reservation, entry.account.begin(growth));
            return Some(Begun::Granted(Call { of, cover }));
        }
        // Nothing is reserved.
        reservation.keep();
    }
    let account = entry.account;
    let reuses = entry.reuses;
    drop(held);
    Some(errno::preserving(|| of.reserve(&account, reuse, reuses)))
}

impl Subject {
    /// Reserves where the grant does not cover it.
    #[cold]
    fn reserve(self, account: &PoolAccount, reuse: Reuse, reuses: bool) -> Begun<Call> {
        let mut reservation = Reservation::open(self.state, self.charge);
        if let Err(denial) = self.find_room(&mut reservation, account, reuse, reuses) {
            self.forget();
            return Begun::Denied(reservation.denied(self.asked, denial));
        }
        let reserved = reservation.charge().bytes;
        let ticket = with(self.state, |table| {
            table.get(self.id).map(|entry| entry.account.begin(reserved))
        });
        match ticket {
            Some(ticket) => Begun::Granted(Call {
                of: self,
                cover: Cover::Reserved(reservation, ticket),
            }),
            // The pool went while this thread waited: the driver says what it thinks of its handle.
            None => {
                reservation.give_back();
                self.forget();
                Begun::NotCharged
            }
        }
    }

    /// Adds what the pool may grow by to the reservation; nothing where it needs nothing.
    fn find_room(
        &self,
        reservation: &mut Reservation,
        account: &PoolAccount,
        reuse: Reuse,
        reuses: bool,
    ) -> Result<(), Denial> {
        let whole = account.to_reserve(self.asked);
        if self.charge.is_standalone && reservation.add_granted(whole) {
            return Ok(());
        }
        // At the limit a program lives on what its pools keep: no question to the broker for each allocation.
        let is_idle = || reuse == Reuse::IfIdle && self.is_kept();
        if reuse == Reuse::Always || reuse == Reuse::IfNotGranted || reuses && is_idle() {
            return Ok(());
        }
        let Err(mut denial) = reservation.add(whole) else {
            return Ok(());
        };
        for trim in [Trim::No, Trim::Yes] {
            if look_again(self.state, &self.charge, trim) > 0 {
                match reservation.add(whole) {
                    Ok(()) => return Ok(()),
                    Err(why) => denial = why,
                }
            }
            // Before anything is trimmed: what the pool keeps is what the program lives on.
            if trim == Trim::No && is_idle() {
                return Ok(());
            }
        }
        // Less than a step of the pool may be left. Nothing is gained where the pool is known to take whole steps.
        if self.asked < whole && !account.grows_in_larger_steps(self.asked) && reservation.add(self.asked).is_ok() {
            return Ok(());
        }
        Err(denial)
    }

    /// The pool seems to keep what is asked, all of it charged. A pool that holds more than is charged still has to get
    /// rid of what was undone, which waits for its stream: nothing is tried in it, or denials would add up.
    fn is_kept(&self) -> bool {
        let charged = with(self.state, |table| {
            table.get(self.id).map_or(0, |entry| entry.account.charged())
        });
        self.source.idle_of(charged) >= self.asked
    }

    fn forget(&self) {
        leave(self.state, self.id);
        if self.is_recorded {
            tables::hold(self.state).allocations.break_promise();
        }
    }

    /// Keeps the promise of a record, or takes it back.
    fn record(&self, allocations: &mut Allocations, address: Option<u64>) {
        if !self.is_recorded {
            return;
        }
        match address {
            Some(address) => {
                let charge = Charge {
                    bytes: self.asked,
                    ..self.charge
                };
                let _ = allocations.insert(Allocation::pooled(address, self.id, charge));
                table::pools(self.state).records.fetch_add(1, Ordering::Relaxed);
            }
            None => allocations.break_promise(),
        }
    }
}

/// What the driver answered.
#[derive(Clone, Copy)]
struct Answered {
    is_success: bool,
    /// Of what it allocated, where that is one address.
    address: Option<u64>,
}

impl Call {
    /// Where its memory is charged.
    #[inline(always)]
    pub fn charge(&self) -> &Charge {
        &self.of.charge
    }

    /// The driver answered: with an address when it allocated.
    #[inline(always)]
    pub fn end(self, address: Option<u64>) -> End {
        match self.cover {
            Cover::Reserved(reservation, ticket) => self.of.end_reserved(reservation, ticket, address),
            Cover::Freed(freed) if address == Some(freed.address) && !self.of.is_recorded => End::Settled,
            Cover::Freed(freed) => self.of.end_elsewhere(&freed, address),
        }
    }

    /// The driver answered to a call that allocates no one address.
    pub fn end_without_address(self, is_success: bool) -> End {
        let answered = Answered {
            is_success,
            address: None,
        };
        match self.cover {
            Cover::Reserved(reservation, ticket) => self.of.end_by_reading(reservation, ticket, answered),
            // No stream was named, so none gets anything again.
            Cover::Freed(_) => End::Settled,
        }
    }
}

impl Subject {
    #[inline(always)]
    fn end_reserved(self, reservation: Reservation, ticket: Ticket, address: Option<u64>) -> End {
        // Memory that the pool is known to hold: it has not grown, and need not be asked.
        if let Some(address) = address {
            let mut held = tables::hold(self.state);
            let Tables { pools, allocations, .. } = &mut *held;
            if let Some(entry) = pools.get(self.id)
                && entry.blocks.knows(address, self.asked)
            {
                let unused = entry.account.end_unused(reservation.charge().bytes);
                entry.users = entry.users.saturating_sub(1);
                if self.is_recorded {
                    entry.live = entry.live.saturating_add(self.asked);
                }
                self.record(allocations, Some(address));
                drop(held);
                account::release(self.state, &self.charge, unused);
                reservation.keep();
                return End::Settled;
            }
        }
        let is_success = address.is_some();
        self.end_by_reading(reservation, ticket, Answered { is_success, address })
    }

    /// The pool is read: U says what it reserves.
    #[inline(never)]
    fn end_by_reading(self, reservation: Reservation, mut ticket: Ticket, answered: Answered) -> End {
        let Self {
            state,
            id,
            charge,
            asked,
            ..
        } = self;
        let reserved = reservation.charge().bytes;
        let settled = settle(
            state,
            id,
            self.source,
            &charge,
            &mut ticket,
            reserved,
            asked,
            Raise::Asking,
        );
        let kept = answered.address.filter(|_| settled.denial.is_none());
        let mut held = tables::hold(state);
        self.record(&mut held.allocations, kept);
        if let Some(entry) = held.pools.get(id) {
            entry.users = entry.users.saturating_sub(1);
            if let Some(address) = kept {
                if self.is_recorded {
                    entry.live = entry.live.saturating_add(asked);
                }
                if settled.is_known {
                    entry.blocks.know(address, asked);
                }
            }
            if reserved == 0 && answered.is_success {
                entry.reuses = !settled.has_grown;
            }
        }
        drop(held);
        account::mark_peak(attachment::of(state), &charge);
        reservation.keep();
        match settled.denial {
            Some((denial, bytes)) if answered.is_success => {
                End::Beyond(Denied::new(state, &charge, bytes.max(asked), denial), reserved == 0)
            }
            _ => End::Settled,
        }
    }

    /// The driver took other memory than what its stream freed, or there is a record to keep.
    #[inline(never)]
    fn end_elsewhere(self, freed: &Freed, address: Option<u64>) -> End {
        let state = self.state;
        let mut held = tables::hold(state);
        let Tables { pools, allocations, .. } = &mut *held;
        let Some(entry) = pools.get(self.id) else {
            self.record(allocations, None);
            return End::Settled;
        };
        if let Some(address) = address
            && entry.blocks.knows(address, self.asked)
        {
            if address != freed.address {
                entry.blocks.forget_freed();
            }
            if self.is_recorded {
                entry.live = entry.live.saturating_add(self.asked);
            }
            self.record(allocations, Some(address));
            return End::Settled;
        }
        entry.blocks.forget_freed();
        entry.users += 1;
        let ticket = entry.account.begin(0);
        drop(held);
        // Late: a measurement at this very moment takes for overhead what the pool grew by, until the next one.
        let reservation = Reservation::open(state, self.charge);
        let is_success = address.is_some();
        self.end_by_reading(reservation, ticket, Answered { is_success, address })
    }
}
