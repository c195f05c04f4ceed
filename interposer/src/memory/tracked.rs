// SPDX-License-Identifier: Apache-2.0
//! One allocation from its charge to its record, and from its record to its refund.
//!
//! ```text
//!   start ──► Pending ── driver succeeded ──► recorded under its Key ── free: taken, driver called ──► refunded
//!     │          └────── driver refused ────► refunded                            └── driver refused: recorded again
//!     ├──► Denied: the program gets OUT_OF_MEMORY, the driver is not called
//!     └──► PassOn: nobody to charge
//! ```
//! From `start` to the record, and from the driver's free to the refund, an [`Operation`] says that U and the driver's
//! truth may differ.

use partage_abi::types::{CuContext, CuDevice, CuResult};

use crate::devices;
use crate::guest::errno;
use crate::memory::account::{self, Charge, Operation, Verdict};
use crate::memory::allocations::Allocation;
use crate::memory::contexts;
use crate::real::Library;
use crate::real::call;
use crate::session;
use crate::state::{self, Phase, State};

/// Under what an allocation is recorded: a device address or a handle, each kind in a number space of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

/// Addresses and handles are below this: user space ends at 2^57 on the widest machines.
const VALUE_BITS: u32 = 58;

impl Key {
    /// A device address.
    pub fn address(address: u64) -> Self {
        Self::of(address, 0)
    }

    /// A CUDA array.
    pub fn array(handle: u64) -> Self {
        Self::of(handle, 1)
    }

    /// A mipmapped array.
    pub fn mipmapped_array(handle: u64) -> Self {
        Self::of(handle, 2)
    }

    /// An address in a pool that the program made.
    pub fn pooled(address: u64) -> Self {
        Self::of(address, 9)
    }

    /// The address or handle in a key's number.
    pub fn value(number: u64) -> u64 {
        number & ((1 << VALUE_BITS) - 1)
    }

    fn of(value: u64, kind: u64) -> Self {
        if value == 0 {
            return Self(0);
        }
        Self(value & ((1 << VALUE_BITS) - 1) | kind << VALUE_BITS)
    }

    /// The number in the table; 0 for null, which is never recorded.
    pub fn number(self) -> u64 {
        self.0
    }
}

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

/// An allocation under way: charged, its record promised.
pub struct Pending {
    charged: Charged,
    context: u64,
}

/// What to do with an allocation before the driver is called.
pub enum Start {
    /// Charged: call the driver, then [`Start::end`].
    Pending(Pending),
    /// Nobody to charge: call the driver.
    PassOn,
    /// The program gets OUT_OF_MEMORY.
    Denied,
}

impl Start {
    /// The driver is not called.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Denied)
    }

    /// The driver was called: did it make something that is to be recorded?
    pub fn is_made(&self, result: CuResult) -> bool {
        matches!(self, Self::Pending(_)) && result.is_success()
    }

    /// The driver was called, and made what is recorded under the key: `bytes`, as its answer says. An error: the limit
    /// does not allow them, and the driver is to undo it.
    #[inline(never)] // as `start`
    pub fn corrected(mut self, key: Key, bytes: u64) -> Result<(), Self> {
        if let Self::Pending(pending) = &mut self
            && !pending.correct(bytes)
        {
            return Err(self);
        }
        self.end(Some(key));
        Ok(())
    }

    /// The driver was called, and made what is recorded under the key. `None`: it refused.
    #[inline(never)] // as `start`
    pub fn end(self, made: Option<Key>) {
        match (self, made) {
            (Self::Pending(pending), Some(key)) => pending.commit(key),
            (Self::Pending(pending), None) => pending.roll_back(),
            _ => {}
        }
    }
}

/// Charges the current context's device; the record dies with that context.
#[inline(never)] // one body for all the hooks that call it
pub fn start(real: &Library, wanted: Wanted) -> Start {
    let mut device: CuDevice = 0;
    let mut context = CuContext::NULL;
    if !call!(real, cuCtxGetDevice(&raw mut device)).is_success() {
        return Start::PassOn;
    }
    if !call!(real, cuCtxGetCurrent(&raw mut context)).is_success() {
        return Start::PassOn;
    }
    // A green context's memory is that of the primary one.
    let home = contexts::get().map_or(0, |contexts| contexts.home(context.0 as u64));
    start_on(real, device, home, wanted)
}

/// Charges a device; the record dies with `context`, or never by itself when that is 0.
pub fn start_on(real: &Library, device: CuDevice, context: u64, wanted: Wanted) -> Start {
    let Some((state, slot)) = sharing(real, device) else {
        return if is_foreign(real, device) {
            Start::Denied
        } else {
            Start::PassOn
        };
    };
    match Charged::charge(state, slot, wanted) {
        Ok(None) => Start::PassOn,
        Err(Denied) => Start::Denied,
        Ok(Some(charged)) => {
            let held = state.books.hold();
            // SAFETY: `books` is held.
            let is_promised = unsafe { &mut *state.allocations.get() }.promise();
            drop(held);
            if !is_promised {
                // The host has not one page left: the driver could not have gone on either.
                charged.give_back();
                return Start::Denied;
            }
            Start::Pending(Pending { charged, context })
        }
    }
}

/// The program gets OUT_OF_MEMORY.
pub struct Denied;

/// Bytes that are charged while an operation is under way, and recorded nowhere yet.
pub struct Charged {
    /// The process's state.
    pub state: &'static State,
    /// What a refund would give back.
    pub charge: Charge,
    operation: Operation,
}

impl Charged {
    /// Charges a slot. `None`: nobody to charge.
    ///
    /// # Errors
    /// [`Denied`], which has been explained and counted.
    pub fn charge(state: &'static State, slot: usize, wanted: Wanted) -> Result<Option<Self>, Denied> {
        let operation = Operation::begin(state, slot);
        let bytes = account::cost(wanted.bytes);
        match errno::preserving(|| account::charge(state, slot, bytes, wanted.is_managed)) {
            Verdict::Unmanaged => Ok(None),
            Verdict::Denied => Err(Denied),
            Verdict::Charged(charge) => Ok(Some(Self {
                state,
                charge,
                operation,
            })),
        }
    }

    /// The driver refused.
    pub fn give_back(self) {
        account::refund(self.state, self.charge);
        drop(self.operation);
    }

    /// The driver succeeded, and the charge is recorded.
    pub fn keep(self) {
        drop(self.operation);
    }
}

/// This process's state and the slot of a device as the program numbers it. `None`: not shared.
pub fn sharing(real: &Library, device: CuDevice) -> Option<(&'static State, usize)> {
    let state = ensured()?;
    Some((state, devices::slot_of_device(state, real, device)?))
}

/// Is this a device that the driver shows and that is not the job's?
#[inline(never)] // as `start`
pub fn is_foreign(real: &Library, device: CuDevice) -> bool {
    ensured().is_some_and(|state| devices::is_foreign(state, real, device))
}

fn ensured() -> Option<&'static State> {
    let state = state::get()?;
    if state.phase() == Phase::Fresh {
        // A forked child, or a program whose cuInit we did not see.
        errno::preserving(|| session::ensure(state, false));
    }
    Some(state)
}

impl Pending {
    /// Makes the charge `bytes`, as the driver's own answer says. `false`: the limit does not allow it, and the charge
    /// is what it was.
    fn correct(&mut self, bytes: u64) -> bool {
        let Charged { state, charge, .. } = &mut self.charged;
        let bytes = account::cost(bytes);
        let charged = charge.bytes;
        if bytes <= charged {
            account::shrink(state, charge, charged - bytes);
            return true;
        }
        errno::preserving(|| account::extend(state, charge, bytes - charged))
    }

    /// The driver succeeded.
    #[inline(never)] // as `start`
    fn commit(self, key: Key) {
        let Charged { state, charge, .. } = self.charged;
        let allocation = Allocation {
            key: key.number(),
            context: self.context,
            charge,
        };
        let held = state.books.hold();
        // SAFETY: `books` is held.
        let former = unsafe { &mut *state.allocations.get() }.insert(allocation);
        drop(held);
        if let Some(former) = former {
            account::refund(state, former.charge);
        }
        self.charged.keep();
    }

    /// The driver refused.
    #[inline(never)] // as `start`
    fn roll_back(self) {
        let state = self.charged.state;
        let held = state.books.hold();
        // SAFETY: `books` is held.
        unsafe { &mut *state.allocations.get() }.break_promise();
        drop(held);
        self.charged.give_back();
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
        let held = state.books.hold();
        // SAFETY: `books` is held.
        let taken = unsafe { &mut *state.allocations.get() }.take(key.number());
        drop(held);
        let allocation = taken?;
        Some(Self {
            state,
            allocation,
            operation: Operation::begin_again(state, &allocation.charge),
        })
    }

    /// The driver freed it, or refused.
    #[inline(never)] // as `start`
    pub fn end(self, is_freed: bool) {
        if is_freed {
            account::refund(self.state, self.allocation.charge);
        } else {
            let _held = self.state.books.hold();
            // Taking left a free place; if another thread used it, there may be none until the table grows.
            // SAFETY: `books` is held.
            let _ = unsafe { &mut *self.state.allocations.get() }.add(self.allocation);
        }
        drop(self.operation);
    }
}
