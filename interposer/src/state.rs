// SPDX-License-Identifier: Apache-2.0
//! Where this process stands, its settings and its clock, in memory that a fork wipes. What else is remembered there
//! lies in [`rooms`] of its owners.
//!
//! ```text
//!             broker answered                      fork
//!   Fresh ───────────────────► Attached   any ───────────► Fresh (in the child)
//!     │ nobody answered ▲          │ broken invariant
//!     └──► Standalone ──┘          └──────► Off ◄── Standalone
//! ```
//! *Standalone*: no broker has answered yet. Where nobody is there the environment's limit holds, for the job; where
//! somebody is there and does not serve, no memory is given out.
//!
//! Lock order: `setup`, then the connection's, then the record's, then the ledger's, then `reading`. The ledger's is
//! held for memory operations only; none of them is held over a call of the driver, except that the first `cuInit` runs
//! under `setup`.

pub mod rooms;

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

pub use partage_abi::MAX_ORDINALS;

use crate::guest::lock::Lock;
use crate::guest::sys;
use crate::guest::wiped::Wiped;
use crate::settings::Settings;
use crate::socket::Refusal;
use crate::state::rooms::{Room, Rooms};

/// Where this process stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No hook has run yet.
    Fresh,
    /// A client of a broker (which may be away).
    Attached,
    /// No broker has answered.
    Standalone,
    /// An invariant broke: calls go straight to the driver.
    Off,
}

/// What the last look for a broker found, while none is connected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// No socket, or one that nobody listens at.
    Nobody,
    /// A broker that is full, slow, stopped or deaf.
    Unserving,
    /// This process has no descriptor or no memory left to look, or to attach.
    Unable,
    /// A broker that does not want this process.
    Refusal,
    /// A folder that this process may not enter.
    Barred,
}

impl Found {
    /// What a refusal says.
    pub fn by(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Absent => Self::Nobody,
            Refusal::Busy | Refusal::Lost => Self::Unserving,
            Refusal::Unable => Self::Unable,
            Refusal::Final => Self::Refusal,
            Refusal::Barred => Self::Barred,
        }
    }

    /// Is there nobody to ask? Then the environment's limit is shared out without a broker.
    pub fn is_alone(self) -> bool {
        matches!(self, Self::Nobody | Self::Barred)
    }

    /// The refusal that says it again.
    pub fn refusal(self) -> Refusal {
        match self {
            Self::Nobody => Refusal::Absent,
            Self::Unserving => Refusal::Busy,
            Self::Unable => Refusal::Unable,
            Self::Refusal => Refusal::Final,
            Self::Barred => Refusal::Barred,
        }
    }
}

/// The beginning of what must not survive into a forked child. All-zero memory is a valid fresh state.
#[repr(C)]
pub struct State {
    /// What others remember.
    rooms: Rooms,
    phase: AtomicU32,
    settings_read: AtomicU32,
    found: AtomicU32,
    /// By how much our clock is ahead of the machine's, in nanoseconds, and whether that is known: see
    /// [`State::machine_time`].
    clock: (AtomicI64, AtomicBool),
    /// Guards reading the environment.
    reading: Lock,
    /// Guards attaching and the first `cuInit`.
    pub setup: Lock,
    /// Written under [`State::reading`], before `settings_read` says so.
    settings: UnsafeCell<core::mem::MaybeUninit<Settings>>,
}

// SAFETY: all-zero memory is a valid fresh state.
static STATE: Wiped<State> = unsafe { Wiped::new() };

// SAFETY: `settings` is written once, under `reading`, before the word that publishes it.
unsafe impl Sync for State {}

/// This process's state; `None` when the machine has no page left for it.
#[inline]
pub fn get() -> Option<&'static State> {
    STATE.get()
}

impl State {
    /// What lies in the room of `T`'s owner: for the owner's own function.
    #[inline(always)]
    pub fn room<T: Room>(&self) -> &T {
        self.rooms.of()
    }

    /// Where this process stands.
    #[inline]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Fresh,
            1 => Phase::Attached,
            2 => Phase::Standalone,
            _ => Phase::Off,
        }
    }

    /// Moves on. Whatever the new phase promises must be in place.
    pub fn set_phase(&self, phase: Phase) {
        let number = match phase {
            Phase::Fresh => 0,
            Phase::Attached => 1,
            Phase::Standalone => 2,
            Phase::Off => 3,
        };
        self.phase.store(number, Ordering::Release);
    }

    /// What the last look for a broker found.
    pub fn found(&self) -> Found {
        match self.found.load(Ordering::Relaxed) {
            0 => Found::Nobody,
            1 => Found::Unserving,
            2 => Found::Refusal,
            3 => Found::Barred,
            _ => Found::Unable,
        }
    }

    /// Remembers what a look for a broker found.
    pub fn set_found(&self, found: Found) {
        let number = match found {
            Found::Nobody => 0,
            Found::Unserving => 1,
            Found::Refusal => 2,
            Found::Barred => 3,
            Found::Unable => 4,
        };
        self.found.store(number, Ordering::Relaxed);
    }

    /// Is this process's memory counted? It was put under a limit or into a job, or a broker is there that may do so.
    pub fn is_counted(&self) -> bool {
        self.settings().expects_broker() || matches!(self.found(), Found::Unserving | Found::Unable)
    }

    /// The environment, read at the first call.
    pub fn settings(&self) -> &Settings {
        if self.settings_read.load(Ordering::Acquire) != DONE {
            self.read_settings();
        }
        // SAFETY: written before DONE was stored, never after.
        unsafe { (*self.settings.get()).assume_init_ref() }
    }

    #[cold]
    fn read_settings(&self) {
        let _held = self.reading.hold();
        if self.settings_read.load(Ordering::Acquire) != DONE {
            // SAFETY: the lock is held, and nobody reads before DONE.
            unsafe { (*self.settings.get()).write(Settings::read()) };
            self.settings_read.store(DONE, Ordering::Release);
        }
    }

    /// A time of our clock by the machine's, which all times in shared pages are of: in a time namespace ours is
    /// another.
    pub fn machine_time(&self, own_ns: u64) -> u64 {
        let (offset, is_known) = &self.clock;
        if !is_known.load(Ordering::Acquire) {
            offset.store(sys::clock_offset_ns(), Ordering::Relaxed);
            is_known.store(true, Ordering::Release);
        }
        own_ns.wrapping_sub(offset.load(Ordering::Relaxed) as u64)
    }

    /// The process may have come into another time namespace.
    pub fn forget_clock(&self) {
        self.clock.1.store(false, Ordering::Release);
    }
}

const DONE: u32 = 2;
