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
//! - *awaited*: of the holder of the multiprocessors, a wake that tells how many of its streams run: of a request that is to
//!   be handed in now, and of a complete one that nothing follows, whose end is to be told. The clock stalls for these
//!   while other streams of the holder have work, too.
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
mod service;

use meter::Meter;

/// Engines of a device: the multiprocessors, and one copy engine for each direction.
pub const ENGINES: usize = 3;
/// Parts of an engine: the demand of a request that fills it, and work units served in one nanosecond.
pub const FULL: u64 = 1024;
/// Contexts that are remembered after their end.
pub const REMEMBERED: usize = 128;
/// `Request::need` while the length is not known.
const UNKNOWN: u64 = u64::MAX;
/// Longest request, in nanoseconds: about 200 days, so that work units fit 64 bits.
pub const LONGEST: u64 = u64::MAX / FULL / 2;

/// An engine of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Engine {
    /// The multiprocessors: kernels, memsets and copies inside a device.
    Compute = 0,
    /// The copy engine from host to device.
    Upload = 1,
    /// The copy engine from device to host.
    Download = 2,
}

/// How a device shares its engines; nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Settings {
    /// Longest uninterrupted turn of a context while others wait.
    pub slice_ns: u64,
    /// Time lost when an engine passes from one context to another.
    pub switch_tax_ns: u64,
    /// Longest stall for a request that was announced to follow (wall time).
    pub transit_limit_ns: u64,
    /// Longest stall for effects that take longer than the service (wall time).
    pub effects_limit_ns: u64,
    /// Longest stall for threads that are to run (wall time); 0: none.
    pub wake_limit_ns: u64,
}

impl Settings {
    const DEFAULT: Self = Self {
        slice_ns: 2_000_000,
        switch_tax_ns: 20_000,
        transit_limit_ns: 20_000_000,
        effects_limit_ns: 2_000_000_000,
        wake_limit_ns: 20_000_000,
    };
    /// The clock stalls for effects only: what a kernel does to memory takes longer to compute than the kernel may take.
    pub const KEEPS_PACE: Self = Self {
        transit_limit_ns: 0,
        wake_limit_ns: 0,
        ..Self::DEFAULT
    };
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A run of a program in a process, named so that neither a reused pid nor an `exec` is taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Owner {
    /// Process id.
    pub pid: u64,
    /// Start time of the process, in clock ticks since boot.
    pub start: u64,
    /// Where its stack starts.
    pub stack: u64,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Which engine serves it.
    pub engine: Engine,
    /// Service needed in nanoseconds; `None` if only known when the effects are done.
    pub need_ns: Option<u64>,
    /// The part of the engine it fills, of [`FULL`].
    pub demand: u32,
    /// Priority inside the context; the lower number goes first, as in CUDA.
    pub priority: i32,
}

/// When a request was served, in device time (nanoseconds).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    /// Handed in.
    pub queued: u64,
    /// First served.
    pub started: u64,
    /// Had all it needed, and its effects were done.
    pub ended: u64,
}

/// What one seat used and wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatTruth {
    /// The process.
    pub owner: Owner,
    /// The context's number within the process.
    pub context: u64,
    /// Nanoseconds of device time each engine worked for it since it joined.
    pub busy_ns: [u64; ENGINES],
    /// Requests on each engine that are not complete.
    pub queued: [u32; ENGINES],
    /// Device time at which it was last served by the multiprocessors.
    pub last_slice: u64,
    /// Part of the last window that the multiprocessors worked for it, of 1000.
    pub compute_permille: u32,
}

/// What a device did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTruth {
    /// Device time now.
    pub clock: u64,
    /// Nanoseconds of device time each engine worked since the machine was made.
    pub busy_ns: [u64; ENGINES],
    /// Nanoseconds of device time lost to switching.
    pub switching_ns: [u64; ENGINES],
    /// How often each engine passed from one context to another.
    pub handovers: [u64; ENGINES],
    /// Part of the last window that each engine worked, of 1000.
    pub busy_permille: [u32; ENGINES],
    /// The contexts of all processes.
    pub seats: Vec<SeatTruth>,
    /// The last [`REMEMBERED`] contexts that ended after work, the latest first.
    pub departed: Vec<Departed>,
}

/// What a context had used when it ended, by its own word or with its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Departed {
    /// The process.
    pub owner: Owner,
    /// The context's number within the process.
    pub context: u64,
    /// Nanoseconds of device time each engine worked for it.
    pub busy_ns: [u64; ENGINES],
    /// Device time at which it ended.
    pub clock: u64,
}

impl DeviceTruth {
    /// Nanoseconds of device time that each engine neither worked nor switched since the machine was made.
    pub fn idle_ns(&self) -> [u64; ENGINES] {
        std::array::from_fn(|engine| {
            let worked = self.busy_ns[engine] + self.switching_ns[engine];
            self.clock.saturating_sub(worked)
        })
    }

    /// Nanoseconds of device time each engine worked for a process, over its contexts, also those that ended as far as
    /// they are remembered.
    pub fn busy_of(&self, pid: u32) -> [u64; ENGINES] {
        let living = self.seats.iter().map(|seat| (seat.owner, seat.busy_ns));
        let ended = self.departed.iter().map(|seat| (seat.owner, seat.busy_ns));
        let own = living.chain(ended).filter(|(owner, _)| owner.pid == u64::from(pid));
        own.fold([0; ENGINES], |sum, (_, busy)| {
            std::array::from_fn(|engine| sum[engine] + busy[engine])
        })
    }
}

const FREE: u32 = 0;
const ACTIVE: u32 = 1;
const OVERDUE: u32 = 2;
const DONE: u32 = 3;
const CHAINED: u32 = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Request {
    state: u32,
    engine: u32,
    priority: i32,
    demand: u32,
    /// The owner has another request that follows directly.
    has_successor: u32,
    effects_done: u32,
    /// Never given twice: tells a request from the next one in its place.
    serial: u64,
    /// While it is chained: the number of the request that it follows.
    follows: u64,
    /// Work units.
    need: u64,
    served: u64,
    /// Wall time at which it had all it needed; 0 before.
    satisfied_wall: u64,
    /// Wall time at which it was complete, if nothing follows it; 0 otherwise, and when its thread is awaited no more.
    awaited_wall: u64,
    queued: u64,
    started: u64,
    ended: u64,
}

impl Request {
    fn is_satisfied(&self) -> bool {
        self.served >= self.need
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Seat<const R: usize> {
    owner: Owner,
    context: u64,
    /// 0 if the seat is free.
    taken: u32,
    /// 1 + the engine on which the owner announced another request that it has not handed in yet.
    transit: u32,
    transit_wall: u64,
    active: [u32; ENGINES],
    /// Wakes under way, and the wall time of the last one's beginning.
    wakes: u32,
    /// Of them, those to hand in a request whose turn has come, and the wall time of the last one's beginning.
    starts: u32,
    wake_wall: u64,
    start_wall: u64,
    busy: [u64; ENGINES],
    last_slice: u64,
    meter: Meter,
    requests: [Request; R],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct EngineState {
    /// 1 + index of the seat; 0 if idle.
    holder: u32,
    /// 1 + index of the seat served last.
    last: u32,
    slice_used: u64,
    tax_left: u64,
    busy: u64,
    switching: u64,
    handovers: u64,
    meter: Meter,
}

/// The arbitration of one device with `S` seats of `R` simultaneous requests. All zeroes is not a valid state:
/// use [`Arbiter::reset`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Arbiter<const S: usize, const R: usize> {
    settings: Settings,
    wall: u64,
    clock: u64,
    /// Seats at and above this index are free.
    high: u32,
    padding: u32,
    last_serial: u64,
    engines: [EngineState; ENGINES],
    seats: [Seat<R>; S],
    /// Contexts that ended after work, ever; the last of them are at this number modulo the ring's length and before.
    departures: u64,
    departed: [Departed; REMEMBERED],
}

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

    /// The span of a complete request, whose place is then free; `None` while it is not complete. The caller is the thread
    /// that the completion woke: [`Arbiter::woken`] is for it to say.
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
            busy_permille: self.engines.map(|engine| engine.meter.permille(self.clock)),
            seats: seats
                .map(|seat| SeatTruth {
                    owner: seat.owner,
                    context: seat.context,
                    busy_ns: seat.busy,
                    queued: seat.active,
                    last_slice: seat.last_slice,
                    compute_permille: seat.meter.permille(self.clock),
                })
                .collect(),
            departed: (0..self.departures)
                .rev()
                .take(REMEMBERED)
                .map(|number| self.departed[number as usize % REMEMBERED])
                .collect(),
        }
    }

    /// Restores the invariants after a process died while it changed the state: sums are counted afresh, and
    /// what has no meaning is dropped. Times may be off by what that process had not finished writing.
    pub fn repair(&mut self) {
        self.high = S as u32;
        for seat in &mut self.seats {
            seat.active = [0; ENGINES];
            if seat.taken == 0 || seat.transit > ENGINES as u32 {
                seat.transit = 0;
            }
            seat.transit_wall = seat.transit_wall.min(self.wall);
            if seat.taken == 0 || self.settings.wake_limit_ns == 0 {
                (seat.wakes, seat.starts) = (0, 0);
            }
            seat.wake_wall = seat.wake_wall.min(self.wall);
            seat.start_wall = seat.start_wall.min(self.wall);
            for request in &mut seat.requests {
                let is_known = request.state == DONE || chain::is_under_way(request);
                if seat.taken == 0 || !is_known || request.engine as usize >= ENGINES {
                    *request = Request::default();
                    continue;
                }
                request.demand = request.demand.clamp(1, FULL as u32);
                request.served = request.served.min(request.need);
                request.satisfied_wall = request.satisfied_wall.min(self.wall);
                request.awaited_wall = request.awaited_wall.min(self.wall);
                if request.state == CHAINED {
                    request.served = 0;
                }
            }
            Self::repair_requests(seat, self.clock);
        }
        while self.high > 0 && self.seats[self.high as usize - 1].taken == 0 {
            self.high -= 1;
        }
        for engine in &mut self.engines {
            engine.tax_left = engine.tax_left.min(self.settings.switch_tax_ns);
            engine.slice_used = engine.slice_used.min(self.settings.slice_ns);
            engine.last = engine.last.min(S as u32);
            if engine.holder > self.high {
                engine.holder = 0;
            }
        }
        self.assign();
    }

    /// What has all it needs is complete, and what follows nothing that is under way begins; then counts the active ones.
    fn repair_requests(seat: &mut Seat<R>, clock: u64) {
        loop {
            let mut is_changed = false;
            for index in 0..R {
                let entry = seat.requests[index];
                let is_ahead = |other: &Request| chain::is_under_way(other) && other.serial == entry.follows;
                let follows = entry.follows < entry.serial && seat.requests.iter().any(is_ahead);
                let entry = &mut seat.requests[index];
                if entry.state == CHAINED && !follows {
                    (entry.state, entry.follows) = (ACTIVE, 0);
                    is_changed = true;
                }
                if entry.state == ACTIVE && entry.is_satisfied() && entry.effects_done != 0 {
                    entry.state = DONE;
                    entry.ended = clock;
                    is_changed = true;
                }
            }
            if !is_changed {
                break;
            }
        }
        for request in seat.requests.iter().filter(|request| request.state == ACTIVE) {
            seat.active[request.engine as usize] += 1;
        }
    }
}

#[cfg(test)]
mod tests;
