// SPDX-License-Identifier: Apache-2.0
//! How processes share device memory: what a [range](crate::ranges) and the [seats](crate::seats) say together.

use crate::ranges::{MAX_SEATS, Range, RangeId};
use crate::seats::{self, Dead, Full, Seats, sweep};
use crate::shared::SharedGuard;

impl Seats {
    /// A range that is not free.
    fn range(&self, id: RangeId) -> Option<&Range> {
        self.ranges.find(id, |seat| self.is_taken(seat))
    }

    /// A new range that one seat holds and pays for. `None` when the table is full.
    fn enter(&self, seat: usize, device: usize, bytes: u64) -> Option<RangeId> {
        self.ranges.enter(seat, device, bytes, |seat| self.is_taken(seat))
    }
}

/// Makes a range of `bytes` that a seat has reserved. They count for the range from now on. `None` when the table is
/// full.
pub fn share(seats: &SharedGuard<'_, Seats>, seat: usize, device: usize, bytes: u64, dead: Dead) -> Option<RangeId> {
    let made = seats.enter(seat, device, bytes).or_else(|| {
        sweep(seats, dead);
        seats.enter(seat, device, bytes)
    })?;
    // Killed between the two, the seat is swept with both.
    seats.release(seat, device, bytes);
    Some(made)
}

/// Makes a range of `bytes` that nobody holds any more, or not yet: as [`share`], but they must be free.
pub fn adopt(
    seats: &SharedGuard<'_, Seats>,
    seat: usize,
    device: usize,
    bytes: u64,
    capacity: u64,
    dead: Dead,
) -> Result<RangeId, Full> {
    let free = seats::free(seats, device, bytes, capacity, dead);
    if bytes > free {
        return Err(Full { free });
    }
    seats.enter(seat, device, bytes).ok_or(Full { free })
}

/// Makes a seat a holder of a range. False when the range is not live, or `of` is named and holds it no more.
pub fn join(seats: &SharedGuard<'_, Seats>, seat: usize, id: RangeId, of: Option<usize>, dead: Dead) -> bool {
    sweep(seats, dead);
    let Some(range) = seats.range(id) else { return false };
    if of.is_some_and(|holder| holder >= MAX_SEATS || !range.is_held_by(holder)) {
        return false;
    }
    range.hold(seat);
    true
}

/// Lets a seat go of a range. True when nobody living holds it any more.
pub fn let_go(seats: &SharedGuard<'_, Seats>, seat: usize, id: RangeId, dead: Dead) -> bool {
    sweep(seats, dead);
    let Some(range) = seats.range(id) else { return true };
    range.let_go(seat);
    let is_taken = |seat| seats.is_taken(seat);
    range.settle(is_taken);
    range.payer(is_taken).is_none()
}

/// Whether anybody living holds a range.
pub fn is_held(seats: &SharedGuard<'_, Seats>, id: RangeId, dead: Dead) -> bool {
    sweep(seats, dead);
    seats.range(id).is_some()
}

#[cfg(test)]
mod tests;
