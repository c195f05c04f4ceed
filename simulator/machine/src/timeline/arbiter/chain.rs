// SPDX-License-Identifier: Apache-2.0
//! Requests handed in before their turn: each begins when another one of its seat is complete.
//!
//! Between two kernels of a stream a real device waits for no thread of the program. A request that is handed in behind
//! another one begins at the same instant as that one ends, however late the owner's threads are, so that the clock
//! need not stall for them (see *transit* in [`arbiter`](super)).

use super::state::{ACTIVE, Arbiter, CHAINED, FREE, OVERDUE, Request};
use super::terms::Ask;

impl<const S: usize, const R: usize> Arbiter<S, R> {
    /// Hands in a request without effects that begins when the one in the place `after` with the number `serial` is
    /// complete; at once if it is. `None` if it cannot be: its length is not known or zero, the other one was taken or
    /// is overdue, or half of the seat's places are taken, the rest of which is for requests whose turn it is.
    /// Precondition: `advance` was called with the present wall time.
    pub fn chain(&mut self, seat: usize, ask: Ask, after: usize, serial: u64) -> Option<usize> {
        ask.need_ns.filter(|&need| need > 0)?;
        let requests = &self.seats[seat].requests;
        let ahead = requests[after];
        if ahead.serial != serial || ahead.state == FREE || ahead.state == OVERDUE {
            return None;
        }
        let free = requests.iter().filter(|request| request.state == FREE).count();
        let index = requests.iter().position(|request| request.state == FREE)?;
        if free <= R / 2 {
            return None;
        }
        let own = self.numbered(ask);
        self.seats[seat].requests[index] = Request {
            state: CHAINED,
            effects_done: 1,
            follows: serial,
            ..own
        };
        if !is_under_way(&ahead) {
            // What was announced to follow is this one, and nobody has to learn of the end before it begins.
            self.seats[seat].transit = 0;
            self.seats[seat].requests[after].awaited_wall = 0;
            self.release(seat, serial);
        }
        self.assign();
        Some(index)
    }

    /// What follows a request that is over begins. Returns whether anything did.
    pub(super) fn release(&mut self, seat: usize, serial: u64) -> bool {
        let mut has_any = false;
        for index in 0..R {
            let place = &mut self.seats[seat];
            let entry = &mut place.requests[index];
            if entry.state != CHAINED || entry.follows != serial {
                continue;
            }
            entry.state = ACTIVE;
            entry.follows = 0;
            place.active[entry.engine as usize] += 1;
            has_any = true;
        }
        has_any
    }

    /// The place of the request that a chained one follows.
    pub(super) fn ahead_of(&self, seat: usize, request: usize) -> Option<usize> {
        let requests = &self.seats[seat].requests;
        requests
            .iter()
            .position(|ahead| is_under_way(ahead) && ahead.serial == requests[request].follows)
    }
}

/// Whether it is to be served, or was and its effects are late: what follows it waits.
pub(super) fn is_under_way(request: &Request) -> bool {
    matches!(request.state, ACTIVE | OVERDUE | CHAINED)
}
