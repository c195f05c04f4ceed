// SPDX-License-Identifier: Apache-2.0
//! Device memory that several processes hold: one *range* for each piece that was made ready for others.
//!
//! Terms. *Holder*: a seat that made the range or opened it, and has not let go. *Payer*: the one holder that the
//! bytes count for: who made the range as long as it holds it, then the living holder with the lowest seat, which
//! stays the payer until it lets go. A range without a living holder is free, whatever its other words say.
//!
//! As in the table of seats there is no sum, and nothing to repair: a range is live through its holders, its last
//! store is the bit that makes it so, and who pays is computed. All under the lock of the seats.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::seats::{Dead, Full, MAX_SEATS, Seats, sweep};
use crate::shared::SharedGuard;

/// Ranges of one machine that are live at the same time at most.
pub const MAX_RANGES: usize = 16_384;
const WORDS: usize = MAX_SEATS / 64;

/// Identifies a range: never the same for two of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeId {
    /// Its place in the table.
    pub place: u64,
    /// Its number; a place is used again, a number is not.
    pub serial: u64,
}

/// One range.
#[repr(C)]
#[derive(Debug)]
struct Range {
    serial: AtomicU64,
    bytes: AtomicU64,
    device: AtomicU32,
    /// Seat of the payer, as far as it still holds the range.
    payer: AtomicU32,
    /// A bit per seat.
    holders: [AtomicU64; WORDS],
}

/// All ranges, behind the seats in their file.
#[repr(C)]
#[derive(Debug)]
pub struct Ranges {
    /// No place at or above this was ever used.
    high_water: AtomicU64,
    serials: AtomicU64,
    ranges: [Range; MAX_RANGES],
}

impl Range {
    fn is_held_by(&self, seat: usize) -> bool {
        self.holders[seat / 64].load(Ordering::Relaxed) & 1 << (seat % 64) != 0
    }

    fn hold(&self, seat: usize) {
        self.holders[seat / 64].fetch_or(1 << (seat % 64), Ordering::Release);
    }

    fn let_go(&self, seat: usize) {
        self.holders[seat / 64].fetch_and(!(1 << (seat % 64)), Ordering::Release);
    }

    /// Seats whose bits are set, lowest first.
    fn holders(&self) -> impl Iterator<Item = usize> {
        self.holders.iter().enumerate().flat_map(|(place, word)| {
            let word = word.load(Ordering::Relaxed);
            (0..64)
                .filter(move |bit| word & 1 << bit != 0)
                .map(move |bit| place * 64 + bit)
        })
    }

    /// The seat that pays; `None` when the range is free.
    fn payer(&self, seats: &Seats) -> Option<usize> {
        let known = self.payer.load(Ordering::Relaxed) as usize;
        let is_living = |seat: usize| seat < MAX_SEATS && self.is_held_by(seat) && seats.is_taken(seat);
        if is_living(known) {
            return Some(known);
        }
        self.holders().find(|&seat| seats.is_taken(seat))
    }
}

impl Seats {
    fn used_ranges(&self) -> &[Range] {
        let limit = self.ranges.high_water.load(Ordering::Acquire) as usize;
        &self.ranges.ranges[..limit.min(MAX_RANGES)]
    }

    /// Bytes of a device in ranges, by payer.
    pub fn paid(&self, device: usize) -> impl Iterator<Item = (usize, u64)> {
        let of_device = move |range: &&Range| range.device.load(Ordering::Relaxed) as usize == device;
        let payer = |range: &Range| Some((range.payer(self)?, range.bytes.load(Ordering::Relaxed)));
        self.used_ranges().iter().filter(of_device).filter_map(payer)
    }

    /// Lets a seat go of all its ranges.
    pub fn let_go_of_all(&self, seat: usize) {
        for range in self.used_ranges() {
            if range.is_held_by(seat) {
                range.let_go(seat);
                self.settle(range);
            }
        }
    }

    /// Writes down who pays now, so that it stays the payer when others come.
    fn settle(&self, range: &Range) {
        if let Some(payer) = range.payer(self) {
            range.payer.store(payer as u32, Ordering::Relaxed);
        }
    }

    fn range(&self, id: RangeId) -> Option<&Range> {
        let range = self.used_ranges().get(usize::try_from(id.place).ok()?)?;
        let is_it = range.serial.load(Ordering::Relaxed) == id.serial && range.payer(self).is_some();
        is_it.then_some(range)
    }

    /// A new range that one seat holds and pays for. `None` when the table is full.
    fn enter(&self, seat: usize, device: usize, bytes: u64) -> Option<RangeId> {
        let used = self.used_ranges();
        let free = used.iter().position(|range| range.payer(self).is_none());
        let place = free.or_else(|| (used.len() < MAX_RANGES).then_some(used.len()))?;
        let range = &self.ranges.ranges[place];
        // Bits of seats that nobody takes are no holders, but somebody may come to take one.
        range.holders.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let serial = self.ranges.serials.fetch_add(1, Ordering::Relaxed) + 1;
        range.serial.store(serial, Ordering::Relaxed);
        range.device.store(device as u32, Ordering::Relaxed);
        range.bytes.store(bytes, Ordering::Relaxed);
        range.payer.store(seat as u32, Ordering::Relaxed);
        self.ranges.high_water.fetch_max(place as u64 + 1, Ordering::Release);
        range.hold(seat);
        Some(RangeId {
            place: place as u64,
            serial,
        })
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
    let free = seats.free(device, bytes, capacity, dead);
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
    seats.settle(range);
    range.payer(seats).is_none()
}

/// Whether anybody living holds a range.
pub fn is_held(seats: &SharedGuard<'_, Seats>, id: RangeId, dead: Dead) -> bool {
    sweep(seats, dead);
    seats.range(id).is_some()
}

#[cfg(test)]
mod tests;
