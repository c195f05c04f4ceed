// SPDX-License-Identifier: Apache-2.0
//! The passage of time: who is served, how fast, until when, and when the clock stands still.

use super::state::{ACTIVE, Arbiter, CHAINED, DONE, OVERDUE, Request, UNKNOWN};
use super::terms::{ENGINES, Engine, FULL};

impl<const S: usize, const R: usize> Arbiter<S, R> {
    /// Replays what happened until `wall`. An earlier wall time than the last changes nothing.
    pub fn advance(&mut self, wall: u64) {
        while self.wall < wall {
            let left = wall - self.wall;
            if let Some(limit) = self.stall_ends() {
                let until = limit.min(wall);
                self.wall = self.wall.max(until);
                if limit <= wall {
                    self.end_stalls();
                }
                self.assign();
                continue;
            }
            self.step(left);
        }
    }

    /// Time passes, at most so much, until the service of an engine changes.
    fn step(&mut self, left: u64) {
        let step = (0..ENGINES)
            .filter_map(|engine| self.next_change(engine))
            .fold(left, u64::min);
        for engine in 0..ENGINES {
            self.serve(engine, step);
        }
        self.clock += step;
        self.wall += step;
        self.assign();
    }

    /// As [`Arbiter::advance`], to a wall time that has not come yet: not beyond the first stall, for which nobody can
    /// be late yet.
    pub fn run_ahead(&mut self, wall: u64) {
        while self.wall < wall && !self.is_stalled() {
            self.step(wall - self.wall);
        }
    }

    /// Whether the clock stands still because an owner is late.
    pub fn is_stalled(&self) -> bool {
        self.stall_ends().is_some()
    }

    /// A lower bound, in nanoseconds of device time, for the completion of a request whose effects are done; it is
    /// exact when the request can finish in its seat's present turn. `None` if the length is not known.
    pub fn earliest_completion(&self, seat: usize, request: usize) -> Option<u64> {
        let entry = &self.seats[seat].requests[request];
        if entry.state == CHAINED {
            let ahead = self.ahead_of(seat, request)?;
            return Some(self.earliest_completion(seat, ahead)? + entry.need / FULL);
        }
        if entry.state != ACTIVE || entry.need == UNKNOWN {
            return (entry.state == DONE).then_some(0);
        }
        let remaining = (entry.need - entry.served.min(entry.need)).div_ceil(FULL);
        let engine = entry.engine as usize;
        let state = &self.engines[engine];
        let slice = self.settings.slice_ns;
        let holder = (state.holder as usize).checked_sub(1)?;
        let mut wait = state.tax_left;
        if holder == seat {
            let turn = slice.saturating_sub(state.slice_used);
            if remaining > turn {
                wait += self
                    .others(engine, seat)
                    .map(|other| self.turn_of(other, engine))
                    .sum::<u64>();
            }
            return Some(wait + remaining);
        }
        let mut at = holder;
        while at != seat {
            wait += match at == holder {
                true => self.turn_of(at, engine).min(slice.saturating_sub(state.slice_used)),
                false => self.turn_of(at, engine),
            };
            at = (at + 1) % (self.high as usize).max(1);
        }
        Some(wait + remaining)
    }

    /// Gives every engine to the seat whose turn it is (invariants 2 and 3).
    pub(super) fn assign(&mut self) {
        for engine in 0..ENGINES {
            let state = self.engines[engine];
            let holder = (state.holder as usize)
                .checked_sub(1)
                .filter(|&seat| self.is_runnable(seat, engine));
            let is_turn_over = state.slice_used >= self.settings.slice_ns;
            if holder.is_some() && !is_turn_over {
                continue;
            }
            let high = self.high as usize;
            let first = holder.map_or(state.last as usize, |seat| seat + 1);
            let next = (0..high)
                .map(|step| (first + step) % high)
                .find(|&seat| self.is_runnable(seat, engine));
            let state = &mut self.engines[engine];
            state.slice_used = 0;
            let Some(next) = next else {
                state.holder = 0;
                continue;
            };
            state.holder = next as u32 + 1;
            if state.last != 0 && state.last != state.holder {
                state.tax_left = self.settings.switch_tax_ns;
                state.handovers += 1;
            }
            state.last = state.holder;
        }
    }

    pub(super) fn complete(&mut self, seat: usize, request: usize, clock: u64, wall: u64) {
        let place = &mut self.seats[seat];
        let entry = &mut place.requests[request];
        if entry.state == ACTIVE {
            place.active[entry.engine as usize] -= 1;
        }
        entry.state = DONE;
        entry.ended = clock;
        let (serial, transit) = (entry.serial, (entry.has_successor != 0).then_some(entry.engine + 1));
        if self.settings.wake_limit_ns > 0 {
            place.wakes += 1;
            place.wake_wall = wall;
        }
        let is_followed = self.release(seat, serial);
        if !is_followed && self.settings.wake_limit_ns > 0 {
            self.seats[seat].requests[request].awaited_wall = wall;
        }
        if let Some(transit) = transit.filter(|_| !is_followed) {
            let place = &mut self.seats[seat];
            place.transit = transit;
            place.transit_wall = wall;
        }
    }

    pub(super) fn is_runnable(&self, seat: usize, engine: usize) -> bool {
        let place = &self.seats[seat];
        place.taken != 0 && (place.active[engine] > 0 || place.transit == engine as u32 + 1)
    }

    fn others(&self, engine: usize, seat: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.high as usize).filter(move |&other| other != seat && self.is_runnable(other, engine))
    }

    /// The shortest time that a seat's next turn can last.
    fn turn_of(&self, seat: usize, engine: usize) -> u64 {
        let requests = self.seats[seat].requests.iter();
        let active = requests.filter(|request| request.state == ACTIVE && request.engine as usize == engine);
        let longest = active
            .map(|request| (request.need - request.served.min(request.need)) / FULL)
            .max();
        longest.unwrap_or(0).min(self.settings.slice_ns)
    }

    /// The requests that the holder of an engine may be served, with the work units each gets in a nanosecond:
    /// the engine's parts go to the requests of the highest priority first, and are split among equals when they
    /// ask for more than there is.
    fn rates(&self, engine: usize) -> [u64; R] {
        let mut rates = [0; R];
        let Some(seat) = (self.engines[engine].holder as usize).checked_sub(1) else {
            return rates;
        };
        let requests = &self.seats[seat].requests;
        let is_served =
            |request: &Request| request.state == ACTIVE && request.engine as usize == engine && !request.is_satisfied();
        let mut left = FULL;
        let mut above = None;
        while left > 0 {
            let below = requests.iter().filter(|request| is_served(request));
            let below = below.filter(|request| above.is_none_or(|priority| request.priority > priority));
            let Some(priority) = below.map(|request| request.priority).min() else {
                break;
            };
            let class = |request: &Request| is_served(request) && request.priority == priority;
            let demand: u64 = requests.iter().filter(|r| class(r)).map(|r| u64::from(r.demand)).sum();
            for (rate, request) in rates.iter_mut().zip(requests) {
                if class(request) {
                    *rate = if demand <= left {
                        FULL
                    } else {
                        (FULL * left / demand).max(1)
                    };
                }
            }
            left = left.saturating_sub(demand);
            above = Some(priority);
        }
        rates
    }

    /// Nanoseconds until the service of an engine changes by itself; `None` if it never does.
    fn next_change(&self, engine: usize) -> Option<u64> {
        let state = &self.engines[engine];
        let seat = (state.holder as usize).checked_sub(1)?;
        if state.tax_left > 0 {
            return Some(state.tax_left);
        }
        let rates = self.rates(engine);
        let ends = rates
            .iter()
            .zip(&self.seats[seat].requests)
            .filter(|&(&rate, request)| rate > 0 && request.need != UNKNOWN);
        let first_end = ends
            .map(|(&rate, request)| (request.need - request.served).div_ceil(rate))
            .min();
        let turn_ends = self
            .others(engine, seat)
            .next()
            .map(|_| self.settings.slice_ns - state.slice_used);
        [first_end, turn_ends].into_iter().flatten().min()
    }

    fn serve(&mut self, engine: usize, step: u64) {
        let Some(seat) = (self.engines[engine].holder as usize).checked_sub(1) else {
            return;
        };
        let (clock, wall) = (self.clock, self.wall);
        let state = &mut self.engines[engine];
        if state.tax_left > 0 {
            state.tax_left -= step;
            state.switching += step;
            return;
        }
        let rates = self.rates(engine);
        let is_alone = self.others(engine, seat).next().is_none();
        let state = &mut self.engines[engine];
        // Alone, a context's turns follow each other without a boundary that anyone could see.
        state.slice_used = match is_alone {
            true => (state.slice_used + step) % self.settings.slice_ns,
            false => state.slice_used + step,
        };
        state.busy += step;
        state.meter.add(wall, step);
        let place = &mut self.seats[seat];
        place.busy[engine] += step;
        place.last_slice = if engine == Engine::Compute as usize {
            clock + step
        } else {
            place.last_slice
        };
        if engine == Engine::Compute as usize {
            place.meter.add(wall, step);
        }
        for (index, &rate) in rates.iter().enumerate().filter(|&(_, &rate)| rate > 0) {
            let entry = &mut self.seats[seat].requests[index];
            entry.started = entry.started.min(clock);
            entry.served = entry.served.saturating_add(rate * step).min(entry.need);
            if !entry.is_satisfied() {
                continue;
            }
            entry.satisfied_wall = wall + step;
            if entry.effects_done != 0 {
                self.complete(seat, index, clock + step, wall + step);
            }
        }
    }

    /// The wall time at which the present stall ends at the latest; `None` if the clock runs.
    fn stall_ends(&self) -> Option<u64> {
        let engines = (0..ENGINES).filter_map(|engine| self.stall_of(engine));
        engines.chain(self.wakes_end()).min()
    }

    /// As [`Arbiter::stall_ends`], for threads that are to run: those that are *awaited* of the seat that holds the
    /// multiprocessors, and before these are idle anybody's.
    fn wakes_end(&self) -> Option<u64> {
        let limit = self.settings.wake_limit_ns;
        let Some(holder) = (self.engines[Engine::Compute as usize].holder as usize).checked_sub(1) else {
            let seats = self.seats[..self.high as usize].iter().filter(|seat| seat.wakes > 0);
            return seats.map(|seat| seat.wake_wall + limit).min();
        };
        let seat = &self.seats[holder];
        let starts = (seat.starts > 0).then_some(seat.start_wall + limit);
        let ends = seat.requests.iter().filter(|request| is_awaited(request));
        starts
            .into_iter()
            .chain(ends.map(|request| request.awaited_wall + limit))
            .min()
    }

    fn stall_of(&self, engine: usize) -> Option<u64> {
        let seat = &self.seats[(self.engines[engine].holder as usize).checked_sub(1)?];
        let transit = (seat.transit == engine as u32 + 1).then_some(seat.transit_wall + self.settings.transit_limit_ns);
        let requests = seat
            .requests
            .iter()
            .filter(|request| request.state == ACTIVE && request.engine as usize == engine && request.is_satisfied());
        let effects = requests
            .map(|request| request.satisfied_wall + self.settings.effects_limit_ns)
            .min();
        [transit, effects].into_iter().flatten().min()
    }

    /// Gives up waiting for owners that are late beyond their limit.
    fn end_stalls(&mut self) {
        let limit = self.settings.wake_limit_ns;
        for seat in &mut self.seats[..self.high as usize] {
            if seat.wakes > 0 && seat.wake_wall + limit <= self.wall {
                seat.wakes = 0;
            }
            if seat.starts > 0 && seat.start_wall + limit <= self.wall {
                seat.starts = 0;
            }
            let late = seat.requests.iter_mut().filter(|request| is_awaited(request));
            for request in late.filter(|request| request.awaited_wall + limit <= self.wall) {
                request.awaited_wall = 0;
            }
        }
        for engine in 0..ENGINES {
            let Some(seat) = (self.engines[engine].holder as usize).checked_sub(1) else {
                continue;
            };
            let seat = &mut self.seats[seat];
            if seat.transit == engine as u32 + 1 && seat.transit_wall + self.settings.transit_limit_ns <= self.wall {
                seat.transit = 0;
            }
            for request in &mut seat.requests {
                let is_late = request.state == ACTIVE
                    && request.engine as usize == engine
                    && request.is_satisfied()
                    && request.satisfied_wall + self.settings.effects_limit_ns <= self.wall;
                if is_late {
                    request.state = OVERDUE;
                    seat.active[engine] -= 1;
                }
            }
        }
    }
}

/// Whether it is complete, nothing follows it, and its thread is to tell.
fn is_awaited(request: &Request) -> bool {
    request.state == DONE && request.engine == Engine::Compute as u32 && request.awaited_wall != 0
}
