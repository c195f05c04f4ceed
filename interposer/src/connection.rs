// SPDX-License-Identifier: Apache-2.0
//! The connection to a broker, when the next attempt may be, and what to tell a broker that is met again.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use partage_protocol::message::Devices;
use zerocopy::IntoBytes;

use crate::attachment::link::Link;
use crate::guest::descriptor::Kept;
use crate::guest::lock::Guarded;
use crate::guest::sys;
use crate::socket;
use crate::state::State;
use crate::state::rooms::{Owner, Room};

/// First and longest pause between two attempts, in nanoseconds. A broker that died is back within some ten
/// milliseconds, and until a client is back the whole of its grant counts as used.
const ATTEMPT_PAUSE_NS: (u64, u64) = (10_000_000, 2_000_000_000);
/// A connection that stood this long was a good one, and its end says nothing against the next: the pauses begin anew.
/// A process that is refused after its welcome is so within milliseconds.
const STEADY_NS: u64 = 100_000_000;

/// The connection, and what is to be known without it. All-zero memory is "never connected".
pub struct Connection {
    /// The thread that talks to the broker holds it.
    pub session: Guarded<Session>,
    is_silent: AtomicBool,
    /// It was said that the broker refuses this process.
    pub has_told_refusal: AtomicBool,
    /// The slot of the last allocation that was refused because no broker answered.
    pub refused_slot: AtomicU32,
}

// SAFETY: all-zero memory is "never connected"; nothing else lies in this room.
unsafe impl Room for Connection {
    const OWNER: Owner = Owner::Connection;
}

/// The connection of this process.
#[inline(always)]
pub fn of(state: &State) -> &Connection {
    state.room()
}

impl Connection {
    /// A broker was waited for in vain and not heard since: nobody waits for it again.
    pub fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Says whether anybody is worth waiting for.
    pub fn set_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::Relaxed);
    }

    /// Says what the program sees after the driver initialised, now and at every reconnect.
    pub fn send_devices(&self, devices: Devices) {
        let mut session = self.session.hold();
        session.devices = Some(devices);
        if session.link.is_connected() {
            let _ = socket::send(session.link.socket(), devices.as_bytes());
        }
    }
}

/// What is said on the connection. All-zero memory is "nothing".
pub struct Session {
    /// Our end.
    pub link: Link,
    sequence: u32,
    /// What the program sees, as the broker is told at each connection.
    pub devices: Option<Devices>,
    /// When the next attempt may be.
    pub pause: Pause,
    /// The file whose lock is the right to start a private broker, while this process has it.
    pub start_turn: Kept,
    /// Refused for as long as this process lives: nobody is asked again.
    pub is_final: bool,
    /// The grants that this process keeps without a broker are on record.
    pub keeps_grants: bool,
    /// The broker of this connection wants the process to park, as this job's; 0: it does not.
    pub park_for: u64,
    /// Of the refusals while no broker answered, those that a broker was told of.
    pub reported_refusals: u64,
}

impl Session {
    /// The connection broke.
    pub fn lose(&mut self) {
        self.link.lost();
        self.pause.lost(sys::now_ns());
        self.park_for = 0;
    }

    /// The next number: even for an ask, odd for any other question.
    pub fn next_sequence(&mut self, is_ask: bool) -> u32 {
        self.sequence = self.sequence.wrapping_add(2);
        self.sequence & !1 | u32::from(!is_ask)
    }
}

/// When the next attempt may be. All-zero memory is "now".
#[derive(Clone, Copy)]
pub struct Pause {
    /// The pause after the last attempt of this absence.
    length_ns: u64,
    until_ns: u64,
    /// When the connection that stands was welcomed; 0 without one.
    welcomed_ns: u64,
    /// The pause after the last of several connections in a row that broke at once.
    broken_ns: u64,
}

impl Pause {
    /// How long until the next attempt.
    pub fn left_ns(&self, now_ns: u64) -> u64 {
        self.until_ns.saturating_sub(now_ns)
    }

    /// The connection broke: one that had stood for a while says nothing against the next.
    pub fn lost(&mut self, now_ns: u64) {
        if self.welcomed_ns == 0 {
            return;
        }
        let is_steady = now_ns.saturating_sub(self.welcomed_ns) >= STEADY_NS;
        self.broken_ns = if is_steady { 0 } else { longer(self.broken_ns) };
        self.length_ns = 0;
        self.until_ns = now_ns.saturating_add(self.broken_ns);
        self.welcomed_ns = 0;
    }

    /// The next attempt is due now.
    pub fn forget(&mut self) {
        (self.length_ns, self.until_ns) = (0, 0);
    }

    /// A broker welcomed this process.
    pub fn welcomed(&mut self, now_ns: u64) {
        self.welcomed_ns = now_ns;
    }

    /// A broker refuses this process: the next attempt is due after this pause.
    pub fn refused(&mut self, now_ns: u64, pause_ns: u64) {
        self.length_ns = pause_ns;
        self.until_ns = now_ns.saturating_add(pause_ns);
    }

    /// An attempt begins: the next is due after a longer pause.
    pub fn attempt(&mut self, now_ns: u64) {
        self.length_ns = longer(self.length_ns.max(self.broken_ns));
        self.until_ns = now_ns.saturating_add(self.length_ns);
    }
}

/// The pause after a pause.
fn longer(pause_ns: u64) -> u64 {
    pause_ns
        .saturating_add(pause_ns / 2)
        .clamp(ATTEMPT_PAUSE_NS.0, ATTEMPT_PAUSE_NS.1)
}
