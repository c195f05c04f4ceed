// SPDX-License-Identifier: Apache-2.0
//! Device memory that several processes hold: one *range* for each piece that was made ready for others.
//!
//! Terms. *Holder*: a seat that made the range or opened it, and has not let go. *Payer*: the one holder that the
//! bytes count for: who made the range as long as it holds it, then the living holder with the lowest seat, which
//! stays the payer until it lets go. A range without a living holder is free, whatever its other words say.
//!
//! As in the table of seats there is no sum, and nothing to repair: a range is live through its holders, its last
//! store is the bit that makes it so, and who pays is computed. All under the lock of the seats; which of them are
//! taken by the living, callers tell (`is_taken`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Processes that use the devices of one machine at the same time at most.
pub const MAX_SEATS: usize = 1024;
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
pub struct Range {
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
    /// Whether a seat is a holder, living or not.
    pub fn is_held_by(&self, seat: usize) -> bool {
        self.holders[seat / 64].load(Ordering::Relaxed) & 1 << (seat % 64) != 0
    }

    /// Makes a seat a holder.
    pub fn hold(&self, seat: usize) {
        self.holders[seat / 64].fetch_or(1 << (seat % 64), Ordering::Release);
    }

    /// Makes a seat no holder.
    pub fn let_go(&self, seat: usize) {
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
    pub fn payer(&self, is_taken: impl Fn(usize) -> bool) -> Option<usize> {
        let known = self.payer.load(Ordering::Relaxed) as usize;
        let is_living = |seat: usize| seat < MAX_SEATS && self.is_held_by(seat) && is_taken(seat);
        if is_living(known) {
            return Some(known);
        }
        self.holders().find(|&seat| is_taken(seat))
    }

    /// Writes down who pays now, so that it stays the payer when others come.
    pub fn settle(&self, is_taken: impl Fn(usize) -> bool) {
        if let Some(payer) = self.payer(is_taken) {
            self.payer.store(payer as u32, Ordering::Relaxed);
        }
    }
}

impl Ranges {
    fn used(&self) -> &[Range] {
        let limit = self.high_water.load(Ordering::Acquire) as usize;
        &self.ranges[..limit.min(MAX_RANGES)]
    }

    /// Bytes of a device in ranges, by payer.
    pub fn paid(&self, device: usize, is_taken: impl Fn(usize) -> bool + Copy) -> impl Iterator<Item = (usize, u64)> {
        let of_device = move |range: &&Range| range.device.load(Ordering::Relaxed) as usize == device;
        let payer = move |range: &Range| Some((range.payer(is_taken)?, range.bytes.load(Ordering::Relaxed)));
        self.used().iter().filter(of_device).filter_map(payer)
    }

    /// Lets a seat go of all its ranges.
    pub fn let_go_of_all(&self, seat: usize, is_taken: impl Fn(usize) -> bool + Copy) {
        for range in self.used() {
            if range.is_held_by(seat) {
                range.let_go(seat);
                range.settle(is_taken);
            }
        }
    }

    /// A range by its name; `None` when it is free.
    pub fn find(&self, id: RangeId, is_taken: impl Fn(usize) -> bool) -> Option<&Range> {
        let range = self.used().get(usize::try_from(id.place).ok()?)?;
        let is_it = range.serial.load(Ordering::Relaxed) == id.serial && range.payer(is_taken).is_some();
        is_it.then_some(range)
    }

    /// A new range that one seat holds and pays for. `None` when the table is full.
    pub fn enter(
        &self,
        seat: usize,
        device: usize,
        bytes: u64,
        is_taken: impl Fn(usize) -> bool + Copy,
    ) -> Option<RangeId> {
        let used = self.used();
        let free = used.iter().position(|range| range.payer(is_taken).is_none());
        let place = free.or_else(|| (used.len() < MAX_RANGES).then_some(used.len()))?;
        let range = &self.ranges[place];
        // Bits of seats that nobody takes are no holders, but somebody may come to take one.
        range.holders.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let serial = self.serials.fetch_add(1, Ordering::Relaxed) + 1;
        range.serial.store(serial, Ordering::Relaxed);
        range.device.store(device as u32, Ordering::Relaxed);
        range.bytes.store(bytes, Ordering::Relaxed);
        range.payer.store(seat as u32, Ordering::Relaxed);
        self.high_water.fetch_max(place as u64 + 1, Ordering::Release);
        range.hold(seat);
        Some(RangeId {
            place: place as u64,
            serial,
        })
    }
}
