// SPDX-License-Identifier: Apache-2.0
//! One call that may make a pool grow: charged before, settled after.

use core::sync::atomic::Ordering;

use partage_abi::types::CuResult;
use partage_protocol::pool::{PoolAccount, Ticket};
use partage_protocol::reservation::Denial;

use super::look::{Trim, look_again};
use super::settle::{Raise, enter, settle};
use super::table::{FREED, Freed, Source, with};
use crate::guest::errno;
use crate::memory::account::{self, Charge, Operation};
use crate::memory::allocations::Allocation;
use crate::memory::tracked::Key;
use crate::state::State;

/// What to do with a call before the driver gets it.
pub enum Start {
    /// Charged: call the driver, then [`Pending::end`].
    Pending(Pending),
    /// The pool has the memory: call the driver, then [`Reusing::end`].
    Reusing(Reusing),
    /// Nobody to charge.
    PassOn,
    /// The program gets OUT_OF_MEMORY.
    Denied(Denied),
}

/// Names the entry of a recorded allocation where others name their context; no context's handle is so high.
pub const RECORD: u64 = 0xffff << 48;

/// Is this the record of an allocation from a pool that the program made?
pub fn is_pooled(allocation: &Allocation) -> bool {
    allocation.context & RECORD == RECORD
}

/// A denial that nobody has been told of.
pub struct Denied {
    state: &'static State,
    charge: Charge,
    bytes: u64,
    denial: Denial,
}

impl Denied {
    /// Tells of it.
    pub fn tell(self) -> CuResult {
        errno::preserving(|| account::deny(self.state, &self.charge, self.bytes, self.denial));
        CuResult::OUT_OF_MEMORY
    }
}

/// A call under way.
pub struct Pending {
    state: &'static State,
    id: u64,
    source: Source,
    charge: Charge,
    ticket: Ticket,
    reserved: u64,
    asked: u64,
    is_recorded: bool,
    operation: Operation,
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

/// Charges a call that may make `source` grow by `bytes`, on the device of `ordinal` (asked only for a source that is
/// new here). What `stream` has freed it gets again without a reservation, if any call may go on without.
#[inline(always)]
pub fn begin(
    state: &'static State,
    source: Source,
    ordinal: impl FnOnce() -> Option<i32>,
    bytes: u64,
    stream: Option<u64>,
    reuse: Reuse,
) -> Start {
    if account::numbering(state).is_none() {
        return Start::PassOn;
    }
    match begin_known(state, source, bytes, stream, reuse) {
        Some(start) => start,
        None => match ordinal() {
            Some(ordinal) => begin_new(state, source, ordinal, bytes, stream, reuse),
            None => Start::PassOn,
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
) -> Start {
    enter(state, source, ordinal, false)
        .and_then(|()| begin_known(state, source, bytes, stream, reuse))
        .unwrap_or(Start::PassOn)
}

/// [`begin`] for a source with an entry. `None`: it has none.
#[inline(always)]
fn begin_known(state: &'static State, source: Source, bytes: u64, stream: Option<u64>, reuse: Reuse) -> Option<Start> {
    let asked = account::cost(bytes);
    let held = state.books.hold();
    let entry = state.pools.table(&held).find(source)?;
    if !entry.is_readable() {
        return Some(Start::PassOn);
    }
    let (id, charge, is_recorded) = (entry.id, entry.charge, entry.is_custom);
    // SAFETY: `books` is held.
    if is_recorded && !unsafe { &mut *state.allocations.get() }.promise() {
        return Some(Start::Denied(Denied {
            state,
            charge,
            bytes,
            denial: Denial::CardFull,
        }));
    }
    let freed = stream.and_then(|stream| entry.take_freed(stream, asked));
    if let Some(freed) = freed.filter(|_| reuse != Reuse::Never) {
        return Some(Start::Reusing(Reusing {
            state,
            id,
            source,
            charge,
            freed,
            asked,
            is_recorded,
        }));
    }
    entry.users += 1;
    let reserved = if reuse == Reuse::Always {
        0
    } else {
        entry.account.to_reserve(asked)
    };
    if !charge.is_standalone {
        let operation = Operation::begin_again(state, &charge);
        if account::reserve_granted(state, &charge, reserved) {
            let ticket = entry.account.begin(reserved);
            return Some(Start::Pending(Pending {
                state,
                id,
                source,
                charge,
                ticket,
                reserved,
                asked,
                is_recorded,
                operation,
            }));
        }
        drop(operation);
    }
    let account = entry.account;
    let reuses = entry.reuses;
    drop(held);
    let pending = Waiting {
        state,
        id,
        source,
        charge,
        asked,
        is_recorded,
    };
    Some(errno::preserving(|| pending.reserve(&account, reuse, reuses)))
}

/// A call whose reservation is not granted yet.
struct Waiting {
    state: &'static State,
    id: u64,
    source: Source,
    charge: Charge,
    asked: u64,
    is_recorded: bool,
}

impl Waiting {
    #[cold]
    fn reserve(self, account: &PoolAccount, reuse: Reuse, reuses: bool) -> Start {
        let operation = Operation::begin_again(self.state, &self.charge);
        match self.find_room(account, reuse, reuses) {
            Ok(reserved) => {
                let ticket = with(self.state, |table| {
                    table.get(self.id).map(|entry| entry.account.begin(reserved))
                });
                match ticket {
                    Some(ticket) => Start::Pending(Pending {
                        state: self.state,
                        id: self.id,
                        source: self.source,
                        charge: self.charge,
                        ticket,
                        reserved,
                        asked: self.asked,
                        is_recorded: self.is_recorded,
                        operation,
                    }),
                    // The pool went while this thread waited: the driver says what it thinks of its handle.
                    None => {
                        account::release(self.state, &self.charge, reserved);
                        self.forget();
                        Start::PassOn
                    }
                }
            }
            Err(denial) => {
                self.forget();
                Start::Denied(Denied {
                    state: self.state,
                    charge: self.charge,
                    bytes: self.asked,
                    denial,
                })
            }
        }
    }

    /// Bytes that were added to U for the call.
    fn find_room(&self, account: &PoolAccount, reuse: Reuse, reuses: bool) -> Result<u64, Denial> {
        let (state, charge) = (self.state, &self.charge);
        let whole = account.to_reserve(self.asked);
        if charge.is_standalone && account::reserve_granted(state, charge, whole) {
            return Ok(whole);
        }
        // At the limit a program lives on what its pools keep: no question to the broker for each allocation.
        let is_idle = || reuse == Reuse::IfIdle && self.is_kept();
        if reuse == Reuse::Always || reuse == Reuse::IfNotGranted || reuses && is_idle() {
            return Ok(0);
        }
        let mut denial = match account::reserve(state, charge, whole) {
            Ok(()) => return Ok(whole),
            Err(denial) => denial,
        };
        if look_again(state, charge, Trim::No) > 0 {
            match account::reserve(state, charge, whole) {
                Ok(()) => return Ok(whole),
                Err(why) => denial = why,
            }
        }
        if is_idle() {
            return Ok(0);
        }
        if look_again(state, charge, Trim::Yes) > 0 {
            match account::reserve(state, charge, whole) {
                Ok(()) => return Ok(whole),
                Err(why) => denial = why,
            }
        }
        // Less than a step of the pool may be left. Nothing is gained where the pool is known to take whole steps.
        if self.asked < whole
            && !account.grows_in_larger_steps(self.asked)
            && account::reserve(state, charge, self.asked).is_ok()
        {
            return Ok(self.asked);
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
        let held = self.state.books.hold();
        if let Some(entry) = self.state.pools.table(&held).get(self.id) {
            entry.users = entry.users.saturating_sub(1);
        }
        if self.is_recorded {
            // SAFETY: `books` is held.
            unsafe { &mut *self.state.allocations.get() }.break_promise();
        }
    }
}

impl Pending {
    /// The driver answered: with an address when it allocated.
    #[inline(always)]
    pub fn end(self, address: Option<u64>) -> End {
        // Memory that the pool is known to hold: it has not grown, and need not be asked.
        if let Some(address) = address {
            let held = self.state.books.hold();
            if let Some(entry) = self.state.pools.table(&held).get(self.id)
                && entry.knows(address, self.asked)
            {
                let unused = entry.account.end_unused(self.reserved);
                entry.users = entry.users.saturating_sub(1);
                if self.is_recorded {
                    entry.live = entry.live.saturating_add(self.asked);
                    record(self.state, self.id, &self.charge, self.asked, Some(address));
                }
                drop(held);
                account::release(self.state, &self.charge, unused);
                return End::Settled;
            }
        }
        self.end_by_reading(address.is_some(), address)
    }

    /// The driver answered to a call that allocates no one address.
    pub fn end_without_address(self, is_success: bool) -> End {
        self.end_by_reading(is_success, None)
    }

    #[inline(never)]
    fn end_by_reading(self, is_success: bool, address: Option<u64>) -> End {
        let Self {
            state,
            id,
            source,
            charge,
            mut ticket,
            reserved,
            asked,
            is_recorded,
            operation,
        } = self;
        let settled = settle(state, id, source, &charge, &mut ticket, reserved, asked, Raise::Asking);
        let kept = address.filter(|_| settled.denial.is_none());
        let held = state.books.hold();
        if is_recorded {
            record(state, id, &charge, asked, kept);
        }
        if let Some(entry) = state.pools.table(&held).get(id) {
            entry.users = entry.users.saturating_sub(1);
            if let Some(address) = kept {
                if is_recorded {
                    entry.live = entry.live.saturating_add(asked);
                }
                if settled.is_known {
                    entry.know(address, asked);
                }
            }
            if reserved == 0 && is_success {
                entry.reuses = !settled.has_grown;
            }
        }
        drop(held);
        account::mark_peak(state, &charge);
        drop(operation);
        match settled.denial {
            Some((denial, bytes)) if is_success => End::Beyond(
                Denied {
                    state,
                    charge,
                    bytes: bytes.max(asked),
                    denial,
                },
                reserved == 0,
            ),
            _ => End::Settled,
        }
    }
}

/// A call that gets what its stream freed a moment ago. Nothing is reserved for it, and nothing has to be settled.
pub struct Reusing {
    state: &'static State,
    id: u64,
    source: Source,
    charge: Charge,
    freed: Freed,
    asked: u64,
    is_recorded: bool,
}

impl Reusing {
    /// The driver answered: with an address when it allocated.
    #[inline(always)]
    pub fn end(self, address: Option<u64>) -> End {
        if address == Some(self.freed.address) && !self.is_recorded {
            return End::Settled;
        }
        self.end_elsewhere(address)
    }

    /// The driver took other memory, or there is a record to keep.
    #[inline(never)]
    fn end_elsewhere(self, address: Option<u64>) -> End {
        let state = self.state;
        let held = state.books.hold();
        let Some(entry) = state.pools.table(&held).get(self.id) else {
            if self.is_recorded {
                record(state, self.id, &self.charge, self.asked, None);
            }
            return End::Settled;
        };
        if let Some(address) = address
            && entry.knows(address, self.asked)
        {
            if address != self.freed.address {
                entry.freed = [Freed::NONE; FREED];
            }
            if self.is_recorded {
                entry.live = entry.live.saturating_add(self.asked);
                record(state, self.id, &self.charge, self.asked, Some(address));
            }
            return End::Settled;
        }
        entry.freed = [Freed::NONE; FREED];
        entry.users += 1;
        let ticket = entry.account.begin(0);
        drop(held);
        let pending = Pending {
            state,
            id: self.id,
            source: self.source,
            charge: self.charge,
            ticket,
            reserved: 0,
            asked: self.asked,
            is_recorded: self.is_recorded,
            // Late: a measurement at this very moment takes for overhead what the pool grew by, until the next one.
            operation: Operation::begin_again(state, &self.charge),
        };
        pending.end_by_reading(address.is_some(), address)
    }
}

/// Keeps the promise of a record, or takes it back. Precondition: `State::books` is held.
fn record(state: &State, id: u64, charge: &Charge, bytes: u64, address: Option<u64>) {
    // SAFETY: the caller holds `books`.
    let allocations = unsafe { &mut *state.allocations.get() };
    match address {
        Some(address) => {
            let _ = allocations.insert(Allocation {
                key: Key::pooled(address).number(),
                context: RECORD | id,
                charge: Charge { bytes, ..*charge },
            });
            state.pools.records.fetch_add(1, Ordering::Relaxed);
        }
        None => allocations.break_promise(),
    }
}
