// SPDX-License-Identifier: Apache-2.0
//! Who runs on a device's engines, and when: a pure state machine with the wall clock as an argument.
//!
//! Terms:
//! - *wall*: nanoseconds of the host's monotonic clock, always an argument. *clock*: the device's own time in
//!   nanoseconds. It advances with the wall, except while the device *stalls*.
//! - *seat*: one context of one process. *request*: one operation of a seat on one engine; it needs a number of
//!   nanoseconds of service, known at once or only when its effects are done.
//! - *effects*: what an operation does to memory, computed on the CPU by its owner, beside the service.
//! - *holder*: the seat an engine serves now. Seats with runnable requests hold an engine in turn, a slice each.
//! - *stall*: the CPU of the simulating machine is late: the holder has had all the service it needs and the
//!   effects are not done, or the owner has not yet handed in the request that follows directly (*transit*), or a
//!   thread is to run (*wake*). A real device would not have waited for any of it, so the clock stands still; a limit
//!   ends stalls of owners that are stopped.
//! - *chained*: handed in before its turn; it begins when another request of its seat is complete.
//! - *wake*: a thread of an owner that is to run for the simulator's sake, and may not have yet: to learn of a
//!   completion, to hand in what was submitted, to return from a wait. On a real device none of this takes a thread's
//!   turn on a busy CPU. So the multiprocessors do not become idle before all such threads have run: the clock stalls.
//! - *awaited*: of the holder of the multiprocessors, a wake that tells how many of its streams run: of a request that
//!   is to be handed in now, and of a complete one that nothing follows, whose end is to be told. The clock stalls for
//!   these while other streams of the holder have work, too.
//!
//! Everything is derived lazily: `advance` replays what happened since the last call, so completion times are
//! exact however late the processes wake. The structure lives in memory shared by processes that may die at any
//! instruction; `repair` turns whatever they left into a state that satisfies the invariants:
//! 1. a seat counts as many active requests per engine as it has; 2. an engine's holder is a live seat;
//! 3. an engine is idle only if no seat has anything runnable on it; 4. served work never exceeds what is needed;
//! 5. busy time of an engine is the sum of its seats' busy time plus that of seats that left;
//! 6. a chained request follows an older one of its seat that is not over.

mod chain;
mod meter;
mod repair;
mod service;
mod state;
mod terms;

use meter::Meter;
use state::{ACTIVE, DONE, EngineState, FREE, OVERDUE, Request, Seat, UNKNOWN};

pub use state::Arbiter;
pub use terms::{
    Ask, Departed, DeviceTruth, ENGINES, Engine, FULL, LONGEST, Owner, REMEMBERED, SeatTruth, Settings, Span,
};

/// No seat, or no request of a seat, is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl<const S: usize, const R: usize> Arbiter<S, R> {
    /// A device without seats whose clock reads 0 at `wall`.
    pub fn new(settings: Settings, wall: u64) -> Self {
        let seat = Seat {
            owner: Owner::default(),
            context: 0,
            taken: 0,
            transit: 0,
            transit_wall: 0,
            active: [0; ENGINES],
            wakes: 0,
            starts: 0,
            wake_wall: 0,
            start_wall: 0,
            busy: [0; ENGINES],
            last_slice: 0,
            meter: Meter::default(),
            requests: [Request::default(); R],
        };
        Self {
            settings: Settings {
                slice_ns: settings.slice_ns.max(1),
                ..settings
            },
            wall,
            clock: 0,
            high: 0,
            padding: 0,
            last_serial: 0,
            engines: [EngineState::default(); ENGINES],
            seats: [seat; S],
            departures: 0,
            departed: [Departed::default(); REMEMBERED],
        }
    }

    /// Makes zeroed memory a device without seats whose clock reads 0 at `wall`.
    pub fn reset(&mut self, settings: Settings, wall: u64) {
        self.settings = Settings {
            slice_ns: settings.slice_ns.max(1),
            ..settings
        };
        self.wall = wall;
    }

    /// Device time at the last `advance`.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// The wall time of the last `advance`.
    pub fn wall(&self) -> u64 {
        self.wall
    }

    /// Gives a context of a process a seat.
    pub fn join(&mut self, owner: Owner, context: u64) -> Result<usize, Full> {
        let index = self.seats.iter().position(|seat| seat.taken == 0).ok_or(Full)?;
        let requests = [Request::default(); R];
        self.seats[index] = Seat {
            owner,
            context,
            taken: 1,
            transit: 0,
            transit_wall: 0,
            active: [0; ENGINES],
            wakes: 0,
            starts: 0,
            wake_wall: 0,
            start_wall: 0,
            busy: [0; ENGINES],
            last_slice: 0,
            meter: Meter::default(),
            requests,
        };
        self.high = self.high.max(index as u32 + 1);
        Ok(index)
    }

    /// Frees a seat and drops its requests.
    pub fn leave(&mut self, seat: usize) {
        let gone = &mut self.seats[seat];
        if gone.taken != 0 && gone.busy != [0; ENGINES] {
            self.departed[self.departures as usize % REMEMBERED] = Departed {
                owner: gone.owner,
                context: gone.context,
                busy_ns: gone.busy,
                clock: self.clock,
            };
            self.departures += 1;
        }
        gone.taken = 0;
        gone.transit = 0;
        gone.wakes = 0;
        gone.starts = 0;
        gone.active = [0; ENGINES];
        gone.requests = [Request::default(); R];
        while self.high > 0 && self.seats[self.high as usize - 1].taken == 0 {
            self.high -= 1;
        }
        self.assign();
    }

    /// Frees the seats of processes that are gone. Returns how many there were.
    pub fn reap(&mut self, mut is_gone: impl FnMut(Owner) -> bool) -> usize {
        let mut count = 0;
        for seat in 0..self.high as usize {
            if self.seats[seat].taken != 0 && is_gone(self.seats[seat].owner) {
                self.leave(seat);
                count += 1;
            }
        }
        count
    }

    /// Hands in a request; ends the seat's transit. Precondition: `advance` was called with the present wall time.
    pub fn begin(&mut self, seat: usize, ask: Ask) -> Result<usize, Full> {
        let place = &mut self.seats[seat];
        let index = place
            .requests
            .iter()
            .position(|request| request.state == FREE)
            .ok_or(Full)?;
        place.transit = 0;
        place.active[ask.engine as usize] += 1;
        self.seats[seat].requests[index] = self.numbered(ask);
        self.assign();
        Ok(index)
    }

    /// A new request whose turn it is.
    fn numbered(&mut self, ask: Ask) -> Request {
        self.last_serial += 1;
        Request {
            state: ACTIVE,
            engine: ask.engine as u32,
            priority: ask.priority,
            demand: ask.demand.clamp(1, FULL as u32),
            has_successor: 0,
            effects_done: 0,
            serial: self.last_serial,
            follows: 0,
            need: ask.need_ns.map_or(UNKNOWN, |need| need.min(LONGEST) * FULL),
            served: 0,
            satisfied_wall: 0,
            awaited_wall: 0,
            queued: self.clock,
            started: UNKNOWN,
            ended: 0,
        }
    }

    /// The number of the request in a place.
    pub fn serial(&self, seat: usize, request: usize) -> u64 {
        self.seats[seat].requests[request].serial
    }

    /// Whether the request is complete, and perhaps taken.
    pub fn is_over(&self, seat: usize, request: usize, serial: u64) -> bool {
        let entry = &self.seats[seat].requests[request];
        entry.serial != serial || entry.state == DONE
    }

    /// Announces that another request of the seat follows this one directly. Nothing happens if it is over.
    pub fn announce(&mut self, seat: usize, request: usize, serial: u64) {
        let entry = &mut self.seats[seat].requests[request];
        if entry.serial == serial {
            entry.has_successor = 1;
        }
    }

    /// The effects are done; `need_ns` gives the length if it was not known before.
    pub fn finish(&mut self, seat: usize, request: usize, need_ns: Option<u64>) {
        let entry = &mut self.seats[seat].requests[request];
        if entry.state != ACTIVE && entry.state != OVERDUE {
            return;
        }
        entry.effects_done = 1;
        if let Some(need) = need_ns.filter(|_| entry.need == UNKNOWN) {
            entry.need = need.min(LONGEST) * FULL;
            entry.served = entry.served.min(entry.need);
        }
        if entry.state == OVERDUE || entry.is_satisfied() {
            self.complete(seat, request, self.clock, self.wall);
        }
        self.assign();
    }

    /// A thread of the seat's owner is to hand in a request whose turn has come; [`Arbiter::started`] says that it has.
    pub fn wake(&mut self, seat: usize) {
        let place = &mut self.seats[seat];
        if self.settings.wake_limit_ns > 0 && place.taken != 0 {
            place.wakes += 1;
            place.starts += 1;
            (place.wake_wall, place.start_wall) = (self.wall, self.wall);
        }
    }

    /// A thread that was to run has done what it was to do.
    pub fn woken(&mut self, seat: usize) {
        let place = &mut self.seats[seat];
        place.wakes = place.wakes.saturating_sub(1);
    }

    /// The thread that [`Arbiter::wake`] was for has handed in its request, or has none to hand in now.
    pub fn started(&mut self, seat: usize) {
        let place = &mut self.seats[seat];
        place.starts = place.starts.saturating_sub(1);
        self.woken(seat);
    }

    /// The span of a complete request, whose place is then free; `None` while it is not complete. The caller is the
    /// thread that the completion woke: [`Arbiter::woken`] is for it to say.
    pub fn take(&mut self, seat: usize, request: usize) -> Option<Span> {
        let entry = &mut self.seats[seat].requests[request];
        if entry.state != DONE {
            return None;
        }
        let span = Span {
            queued: entry.queued,
            started: entry.started.min(entry.ended),
            ended: entry.ended,
        };
        *entry = Request::default();
        Some(span)
    }

    /// Drops a request whatever its state; what is chained to it begins.
    pub fn cancel(&mut self, seat: usize, request: usize) {
        let place = &mut self.seats[seat];
        let entry = std::mem::take(&mut place.requests[request]);
        match entry.state {
            ACTIVE => place.active[entry.engine as usize] -= 1,
            DONE => place.wakes = place.wakes.saturating_sub(1),
            _ => {}
        }
        self.release(seat, entry.serial);
        self.assign();
    }

    /// The announced request does not come: the owner waits for something else.
    pub fn settle(&mut self, seat: usize) {
        self.seats[seat].transit = 0;
        self.assign();
    }

    /// What each seat and engine used so far.
    pub fn truth(&self) -> DeviceTruth {
        let seats = self.seats[..self.high as usize].iter().filter(|seat| seat.taken != 0);
        DeviceTruth {
            clock: self.clock,
            busy_ns: self.engines.map(|engine| engine.busy),
            switching_ns: self.engines.map(|engine| engine.switching),
            handovers: self.engines.map(|engine| engine.handovers),
            busy_permille: self.engines.map(|engine| engine.meter.permille(self.wall)),
            seats: seats
                .map(|seat| SeatTruth {
                    owner: seat.owner,
                    context: seat.context,
                    busy_ns: seat.busy,
                    queued: seat.active,
                    last_slice: seat.last_slice,
                    compute_permille: seat.meter.permille(self.wall),
                })
                .collect(),
            departed: (0..self.departures)
                .rev()
                .take(REMEMBERED)
                .map(|number| self.departed[number as usize % REMEMBERED])
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
