// SPDX-License-Identifier: Apache-2.0
//! The bytes that U holds for one call of the driver, from before the call until it is known what the call took. Every
//! family of memory reserves so: linear memory, arrays, physical memory, pools, graphs.
//!
//! ```text
//!   begin ──► Granted: U holds the bytes ── driver refused ──► give_back: U as before
//!     │                                  └─ driver succeeded ─► settle(taken) ──► keep: a record or a pool's account
//!     │                                                             └─ beyond the limit: undone, then give_back
//!     ├──► NotCharged: nobody to charge, the driver is just called
//!     └──► Denied: the driver is not called; Denied::tell counts and explains it
//! ```
//! Nothing is allocated before it is reserved, and nothing that is freed asks anybody. As long as the value lives an
//! [`Operation`] says that U and the driver's truth may differ.
//!
//! A pool begins with nothing reserved ([`Reservation::open`]) and adds what its account says that the pool may grow
//! by. Contexts and code reserve no bytes of U: nobody knows what they take before they are there
//! ([`overhead`](crate::memory::overhead)).

use partage_abi::types::CuResult;
use partage_protocol::reservation::Denial;

use crate::attachment;
use crate::guest::errno;
use crate::memory::account;
use crate::memory::charge::{Charge, cost};
use crate::memory::words::{Operation, numbering};
use crate::state::State;

/// What to do with a call before the driver gets it.
pub enum Begun<T> {
    /// Call the driver, then end what was begun.
    Granted(T),
    /// Nobody to charge: call the driver.
    NotCharged,
    /// The driver is not called.
    Denied(Denied),
}

impl<T> Begun<T> {
    /// The program's code when the driver is not to be called.
    pub fn denial(&self) -> Option<CuResult> {
        match self {
            Self::Denied(denied) => Some(denied.tell()),
            Self::Granted(_) | Self::NotCharged => None,
        }
    }

    /// The driver was called: did it make something that is to be recorded?
    pub fn is_made(&self, result: CuResult) -> bool {
        matches!(self, Self::Granted(_)) && result.is_success()
    }
}

/// A denial that the program is going to see, and nobody has been told of.
pub struct Denied {
    /// `None`: there is nothing to tell.
    told: Option<(&'static State, Denial)>,
    /// Where, and how many bytes.
    charge: Charge,
}

impl Denied {
    /// The program gets OUT_OF_MEMORY for a reason that is not the job's.
    pub const SILENT: Self = Self {
        told: None,
        charge: Charge::nothing(0, false),
    };

    /// `bytes` were denied where `charge` stands.
    pub fn new(state: &'static State, charge: &Charge, bytes: u64, denial: Denial) -> Self {
        Self {
            told: Some((state, denial)),
            charge: Charge { bytes, ..*charge },
        }
    }

    /// Counts and explains it. Answers what the program gets.
    #[cold]
    #[inline(never)] // one body for all the hooks that call it
    pub fn tell(&self) -> CuResult {
        if let Some((state, denial)) = self.told {
            errno::preserving(|| account::deny(state, &self.charge, self.charge.bytes, denial));
        }
        CuResult::OUT_OF_MEMORY
    }
}

/// Has what this process keeps in a slot and does not use given back. Answers the bytes that U fell by.
pub type MakeRoom = fn(&'static State, usize) -> u64;

/// Bytes that U holds for a call.
pub struct Reservation {
    state: &'static State,
    /// Where, and how many.
    charge: Charge,
    /// Counted as an allocation of its own.
    is_allocation: bool,
    operation: Operation,
}

impl Reservation {
    /// Reserves what an allocation of `bytes` takes of a slot; once more after `make_room` where that is denied, as on
    /// a full card.
    pub fn begin(state: &'static State, slot: usize, bytes: u64, is_managed: bool, make_room: MakeRoom) -> Begun<Self> {
        let Some(is_standalone) = numbering(state) else {
            return Begun::NotCharged;
        };
        let bytes = cost(bytes);
        let at = Charge {
            is_managed,
            ..Charge::nothing(slot, is_standalone)
        };
        let mut reservation = Self::open(state, at);
        let result = errno::preserving(|| match reservation.add(bytes) {
            Err(_) if make_room(state, slot) > 0 => reservation.add(bytes),
            result => result,
        });
        match result {
            Ok(()) => {
                reservation.is_allocation = true;
                account::count_allocation(attachment::of(state), &reservation.charge);
                Begun::Granted(reservation)
            }
            Err(denial) => Begun::Denied(reservation.denied(bytes, denial)),
        }
    }

    /// Nothing is reserved yet where `at` stands; an operation there begins.
    pub fn open(state: &'static State, at: Charge) -> Self {
        Self {
            state,
            charge: Charge { bytes: 0, ..at },
            is_allocation: false,
            operation: Operation::begin_again(attachment::of(state), &at),
        }
    }

    /// Adds bytes within the grant. Asks nobody.
    ///
    /// Precondition: The ledger is not held, unless the charge is one of an attached process.
    pub fn add_granted(&mut self, bytes: u64) -> bool {
        let is_added = account::reserve_granted(attachment::of(self.state), &self.charge, bytes);
        if is_added {
            self.charge.bytes = self.charge.bytes.saturating_add(bytes);
        }
        is_added
    }

    /// Adds bytes, asking the broker beyond the grant.
    ///
    /// # Errors
    /// The denial, which nobody has been told of; what is reserved is what it was.
    pub fn add(&mut self, bytes: u64) -> Result<(), Denial> {
        account::reserve(self.state, &self.charge, bytes)?;
        self.charge.bytes = self.charge.bytes.saturating_add(bytes);
        Ok(())
    }

    /// The driver's own answer says that it took `taken` bytes.
    ///
    /// # Errors
    /// The limit does not allow them, and what is reserved is what it was: the driver is to undo the call.
    pub fn settle(&mut self, taken: u64) -> Result<(), Denied> {
        let (taken, reserved) = (cost(taken), self.charge.bytes);
        if taken > reserved {
            let more = taken - reserved;
            return errno::preserving(|| self.add(more)).map_err(|denial| self.denied(more, denial));
        }
        account::release(self.state, &self.charge, reserved - taken);
        self.charge.bytes = taken;
        Ok(())
    }

    /// `bytes` more were denied.
    pub fn denied(&self, bytes: u64, denial: Denial) -> Denied {
        Denied::new(self.state, &self.charge, bytes, denial)
    }

    /// The driver refused.
    pub fn give_back(self) {
        if self.is_allocation {
            account::refund(self.state, self.charge);
        } else {
            account::release(self.state, &self.charge, self.charge.bytes);
        }
        drop(self.operation);
    }

    /// The driver succeeded: what is reserved stands in a record, or in the account of a pool.
    pub fn keep(self) {
        drop(self.operation);
    }

    /// The process's state.
    pub fn state(&self) -> &'static State {
        self.state
    }

    /// Where it is reserved, and how many bytes: what a refund would give back.
    pub fn charge(&self) -> &Charge {
        &self.charge
    }
}
