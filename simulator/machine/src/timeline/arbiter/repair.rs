// SPDX-License-Identifier: Apache-2.0
//! What a process that died at any instruction left, made a state that satisfies the invariants.

use super::chain::is_under_way;
use super::state::{ACTIVE, Arbiter, CHAINED, DONE, Request, Seat};
use super::terms::{ENGINES, FULL};

impl<const S: usize, const R: usize> Arbiter<S, R> {
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
                let is_known = request.state == DONE || is_under_way(request);
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

    /// What has all it needs is complete, and what follows nothing that is under way begins; then counts the active
    /// ones.
    fn repair_requests(seat: &mut Seat<R>, clock: u64) {
        loop {
            let mut is_changed = false;
            for index in 0..R {
                let entry = seat.requests[index];
                let is_ahead = |other: &Request| is_under_way(other) && other.serial == entry.follows;
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
