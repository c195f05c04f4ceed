// SPDX-License-Identifier: Apache-2.0
//! The state of one device as it lies in shared memory: requests, seats, engines.

use super::meter::Meter;
use super::terms::{Departed, ENGINES, Owner, REMEMBERED, Settings};

/// `Request::need` while the length is not known.
pub(super) const UNKNOWN: u64 = u64::MAX;
pub(super) const FREE: u32 = 0;
pub(super) const ACTIVE: u32 = 1;
pub(super) const OVERDUE: u32 = 2;
pub(super) const DONE: u32 = 3;
pub(super) const CHAINED: u32 = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Request {
    pub(super) state: u32,
    pub(super) engine: u32,
    pub(super) priority: i32,
    pub(super) demand: u32,
    /// The owner has another request that follows directly.
    pub(super) has_successor: u32,
    pub(super) effects_done: u32,
    /// Never given twice: tells a request from the next one in its place.
    pub(super) serial: u64,
    /// While it is chained: the number of the request that it follows.
    pub(super) follows: u64,
    /// Work units.
    pub(super) need: u64,
    pub(super) served: u64,
    /// Wall time at which it had all it needed; 0 before.
    pub(super) satisfied_wall: u64,
    /// Wall time at which it was complete, if nothing follows it; 0 otherwise, and when its thread is awaited no more.
    pub(super) awaited_wall: u64,
    pub(super) queued: u64,
    pub(super) started: u64,
    pub(super) ended: u64,
}

impl Request {
    pub(super) fn is_satisfied(&self) -> bool {
        self.served >= self.need
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Seat<const R: usize> {
    pub(super) owner: Owner,
    pub(super) context: u64,
    /// 0 if the seat is free.
    pub(super) taken: u32,
    /// 1 + the engine on which the owner announced another request that it has not handed in yet.
    pub(super) transit: u32,
    pub(super) transit_wall: u64,
    pub(super) active: [u32; ENGINES],
    /// Wakes under way, and the wall time of the last one's beginning.
    pub(super) wakes: u32,
    /// Of them, those to hand in a request whose turn has come, and the wall time of the last one's beginning.
    pub(super) starts: u32,
    pub(super) wake_wall: u64,
    pub(super) start_wall: u64,
    pub(super) busy: [u64; ENGINES],
    pub(super) last_slice: u64,
    pub(super) meter: Meter,
    pub(super) requests: [Request; R],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct EngineState {
    /// 1 + index of the seat; 0 if idle.
    pub(super) holder: u32,
    /// 1 + index of the seat served last.
    pub(super) last: u32,
    pub(super) slice_used: u64,
    pub(super) tax_left: u64,
    pub(super) busy: u64,
    pub(super) switching: u64,
    pub(super) handovers: u64,
    pub(super) meter: Meter,
}

/// The arbitration of one device with `S` seats of `R` simultaneous requests. All zeroes is not a valid state:
/// use [`Arbiter::reset`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Arbiter<const S: usize, const R: usize> {
    pub(super) settings: Settings,
    pub(super) wall: u64,
    pub(super) clock: u64,
    /// Seats at and above this index are free.
    pub(super) high: u32,
    pub(super) padding: u32,
    pub(super) last_serial: u64,
    pub(super) engines: [EngineState; ENGINES],
    pub(super) seats: [Seat<R>; S],
    /// Contexts that ended after work, ever; the last of them are at this number modulo the ring's length and before.
    pub(super) departures: u64,
    pub(super) departed: [Departed; REMEMBERED],
}
