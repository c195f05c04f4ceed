// SPDX-License-Identifier: Apache-2.0
//! What this process knows about its sharing, in memory that a fork wipes.
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
//! Lock order: `setup`, then `session`, then `own_record`, then `tables`, then `reading`. `tables` is held for memory
//! operations only; none of them is held over a call of the driver, except that the first `cuInit` runs under `setup`.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

pub use partage_abi::MAX_ORDINALS;
use partage_protocol::message::MAX_DEVICES;
use partage_protocol::page::{BrokerPage, ClientFile, ClientPage};

use crate::attachment::job::Job;
use crate::attachment::pages::Attachment;
use crate::guest::lock::{Guarded, Lock};
use crate::guest::sys;
use crate::guest::wiped::Wiped;
use crate::job_word::own_record::OwnRecord;
use crate::lazy::answer::Foreseen;
use crate::memory::pools::table::Pools;
use crate::memory::tables::Tables;
use crate::session::connection::Session;
use crate::settings::Settings;
use crate::socket::Refusal;

/// In [`State::ordinal_slots`]: a device whose name the driver does not tell. Not shared, and not kept from the
/// program.
pub const NAMELESS: i32 = -2;

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

/// Everything that must not survive into a forked child. All-zero memory is a valid fresh state.
pub struct State {
    phase: AtomicU32,
    settings_read: AtomicU32,
    /// Written under [`State::reading`], before `settings_read` says so.
    settings: UnsafeCell<core::mem::MaybeUninit<Settings>>,
    /// By how much our clock is ahead of the machine's, in nanoseconds, and whether that is known: see
    /// [`State::machine_time`].
    clock: (AtomicI64, AtomicBool),
    /// Guards reading the environment.
    reading: Lock,
    /// Guards attaching and the first `cuInit`.
    pub setup: Lock,
    /// The connection. The thread that talks to the broker holds it.
    pub session: Guarded<Session>,
    /// What is on record. Its lock guards the move from the own pages to the shared ones, too.
    pub tables: Guarded<Tables>,
    /// What every hook looks at before it looks at the pools on record.
    pub pools: Pools,
    /// What ties this process to a broker.
    pub attachment: Attachment,
    /// What NVML shows before a lazy admission.
    pub foreseen: Foreseen,
    /// Stands for the broker's page while standalone.
    pub own_broker_page: BrokerPage,
    /// Stands for the client's page while standalone.
    pub own_client_page: ClientPage,
    /// Ordinals filled in below, plus one; 0 while unknown.
    pub ordinals_known: AtomicU32,
    /// The broker's `placement` under which they were learnt.
    pub placement_known: AtomicU32,
    /// Slot of each ordinal as the program sees them, or [`FOREIGN`](crate::attachment::pages::FOREIGN).
    pub ordinal_slots: [AtomicI32; MAX_ORDINALS],
    /// UUID of each ordinal, as two words in memory order.
    pub ordinal_uuids: [[AtomicU64; 2]; MAX_ORDINALS],
    /// The driver initialised under our masking.
    pub is_masked: AtomicBool,
    /// The session's thread was started.
    pub has_thread: AtomicBool,
    /// What the job last used, per slot, for when the broker is away.
    pub last_job_used: [AtomicU64; MAX_DEVICES],
    found: AtomicU32,
    is_silent: AtomicBool,
    /// A late attach: the broker has not heard yet what was charged before it.
    pub is_uncovered: AtomicBool,
    /// This process's record in the file of processes whose broker is away.
    pub own_record: Guarded<OwnRecord>,
    /// It was said that the broker refuses this process.
    pub has_told_refusal: AtomicBool,
    /// It was said that the driver shows devices of others.
    pub has_told_foreign: AtomicBool,
    /// The slot of the last allocation that was refused because no broker answered.
    pub refused_slot: AtomicU32,
    /// When a denial was last told to the terminal.
    pub told_ns: AtomicU64,
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

    /// A broker was waited for in vain and not heard since: nobody waits for it again.
    pub fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Says whether anybody is worth waiting for.
    pub fn set_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::Relaxed);
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

    /// The job, once attached.
    pub fn job(&self) -> Option<&Job> {
        self.attachment.job()
    }

    /// The broker's page, once attached.
    pub fn broker_page(&self) -> Option<&BrokerPage> {
        self.attachment.broker_page()
    }

    /// The client's file, once attached.
    pub fn client_file(&self) -> Option<&ClientFile> {
        self.attachment.client_file()
    }

    /// The client's page, once attached.
    pub fn client_page(&self) -> Option<&ClientPage> {
        self.client_file().map(|file| &file.page)
    }

    /// Process-wide counters: on the shared page once attached, before on the own one.
    pub fn counters(&self) -> &partage_protocol::page::ClientHead {
        &self.client_page().unwrap_or(&self.own_client_page).head
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

    /// The UUID of an ordinal as the program sees it; zeros while unknown.
    pub fn ordinal_uuid(&self, ordinal: usize) -> [u8; 16] {
        let mut uuid = [0; 16];
        if let Some([low, high]) = self.ordinal_uuids.get(ordinal) {
            let (first, second) = uuid.split_at_mut(8);
            first.copy_from_slice(&low.load(Ordering::Relaxed).to_ne_bytes());
            second.copy_from_slice(&high.load(Ordering::Relaxed).to_ne_bytes());
        }
        uuid
    }
}

const DONE: u32 = 2;
