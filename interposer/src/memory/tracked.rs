// SPDX-License-Identifier: Apache-2.0
//! One allocation from its reservation to its record, and from its record to its refund.
//!
//! ```text
//!   start ──► Pending ── driver succeeded ──► recorded under its Key
//!                └────── driver refused ────► given back
//!   free  ──► taken from the table ── driver called ──► refunded
//!                                        └── driver refused ──► recorded again
//! ```
//! The reservation is [`Reservation`]'s; here is the record. From the driver's free to the refund, too, an
//! [`Operation`] says that U and the driver's truth may differ.

use partage_abi::types::{CuContext, CuDevice};

use crate::attachment;
use crate::memory::account;
use crate::memory::allocations::{Allocation, Key};
use crate::memory::contexts;
use crate::memory::pools;
use crate::memory::recovery;
use crate::memory::reservation::{Begun, Denied, Reservation};
use crate::memory::sharing;
use crate::memory::tables;
use crate::memory::words::Operation;
use crate::real::Library;
use crate::real::call;
use crate::state::{self, Phase, State};

/// What is to be charged.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// Bytes as the program asked.
    pub bytes: u64,
    /// Managed memory: charged in full, resident only where it is touched.
    pub is_managed: bool,
}

impl Wanted {
    /// Ordinary device memory.
    pub fn device(bytes: u64) -> Self {
        Self {
            bytes,
            is_managed: false,
        }
    }
}

/// An allocation under way: reserved, its record promised.
pub struct Pending {
    reservation: Reservation,
    context: u64,
}

impl Begun<Pending> {
    /// The driver was called, and made what is recorded under the key: `bytes`, as its answer says. An error: the limit
    /// does not allow them, and the driver is to undo it.
    #[inline(never)] // as `start`
    pub fn corrected(mut self, key: Key, bytes: u64) -> Result<(), Self> {
        if let Self::Granted(pending) = &mut self
            && let Err(denied) = pending.reservation.settle(bytes)
        {
            let _ = denied.tell();
            return Err(self);
        }
        self.end(Some(key));
        Ok(())
    }

    /// The driver was called, and made what is recorded under the key. `None`: it refused.
    #[inline(never)] // as `start`
    pub fn end(self, made: Option<Key>) {
        match (self, made) {
            (Self::Granted(pending), Some(key)) => pending.commit(key),
            (Self::Granted(pending), None) => pending.roll_back(),
            _ => {}
        }
    }
}

/// Reserves an allocation of the current context's device; the record dies with that context.
#[inline(never)] // one body for all the hooks that call it
pub fn start(real: &Library, wanted: Wanted) -> Begun<Pending> {
    let mut device: CuDevice = 0;
    let mut context = CuContext::NULL;
    if !call!(real, cuCtxGetDevice(&raw mut device)).is_success() {
        return Begun::NotCharged;
    }
    if !call!(real, cuCtxGetCurrent(&raw mut context)).is_success() {
        return Begun::NotCharged;
    }
    let Some((state, slot)) = sharing::slot_of(real, device) else {
        return if sharing::is_foreign(real, device) {
            Begun::Denied(Denied::SILENT)
        } else {
            Begun::NotCharged
        };
    };
    let reservation = match reserve(state, slot, wanted) {
        Begun::Granted(reservation) => reservation,
        Begun::NotCharged => return Begun::NotCharged,
        Begun::Denied(denied) => return Begun::Denied(denied),
    };
    if !tables::hold(state).allocations.promise() {
        // The host has not one page left: the driver could not have gone on either.
        reservation.give_back();
        return Begun::Denied(Denied::SILENT);
    }
    Begun::Granted(Pending {
        reservation,
        // A green context's memory is that of the primary one.
        context: contexts::get().map_or(0, |contexts| contexts.home(context.0 as u64)),
    })
}

/// Reserves what an allocation takes of a slot. What pools keep and nobody uses makes room before anybody is denied.
pub fn reserve(state: &'static State, slot: usize, wanted: Wanted) -> Begun<Reservation> {
    Reservation::begin(state, slot, wanted.bytes, wanted.is_managed, pools::make_room)
}

impl Pending {
    /// The driver succeeded.
    #[inline(never)] // as `start`
    fn commit(self, key: Key) {
        let state = self.reservation.state();
        let allocation = Allocation {
            key: key.number(),
            context: self.context,
            charge: *self.reservation.charge(),
        };
        let former = tables::hold(state).allocations.insert(allocation);
        if let Some(former) = former {
            account::refund(state, former.charge);
        }
        self.reservation.keep();
        recovery::granted(state, &allocation.charge);
    }

    /// The driver refused.
    #[inline(never)] // as `start`
    fn roll_back(self) {
        let state = self.reservation.state();
        tables::hold(state).allocations.break_promise();
        self.reservation.give_back();
    }
}

/// An allocation that the driver is about to free. The record leaves the table before the driver frees: the address may
/// be somebody else's the moment it is free.
pub struct Freeing {
    state: &'static State,
    allocation: Allocation,
    operation: Operation,
}

impl Freeing {
    /// `None`: nothing is recorded under the key.
    #[inline(never)] // as `start`
    pub fn begin(key: Key) -> Option<Self> {
        let state = state::get().filter(|state| key.number() != 0 && state.phase() != Phase::Fresh)?;
        let allocation = tables::hold(state).allocations.take(key.number());
        let allocation = allocation?;
        Some(Self {
            state,
            allocation,
            operation: Operation::begin_again(attachment::of(state), &allocation.charge),
        })
    }

    /// The driver freed it, or refused.
    #[inline(never)] // as `start`
    pub fn end(self, is_freed: bool) {
        if is_freed {
            account::refund(self.state, self.allocation.charge);
        } else {
            // Taking left a free place; if another thread used it, there may be none until the table grows.
            let _ = tables::hold(self.state).allocations.add(self.allocation);
        }
        drop(self.operation);
    }
}
