// SPDX-License-Identifier: Apache-2.0
//! How long units of work take, by what they are: a small table that many threads read and change without a lock.
//!
//! A *unit* is a kernel or a graph, named by a number that says which function with which shape. Lengths are nanoseconds of
//! device time as events tell them. Where others share the device an event sees their slices too, so a shorter sample
//! counts at once by a half and a longer one by an eighth.

use core::sync::atomic::{AtomicU64, Ordering};

const SETS: usize = 256;
const WAYS: usize = 4;

/// The table. All-zero memory is an empty one.
pub struct Lengths {
    sets: [[Entry; WAYS]; SETS],
    /// Which way of a full set goes next.
    turn: AtomicU64,
    /// Running mean of all samples; 0 before the first.
    mean: AtomicU64,
}

struct Entry {
    name: AtomicU64,
    ns: AtomicU64,
}

/// A name for a function with so many numbers that shape its launch; never 0.
pub fn name(function: u64, shape: &[u32]) -> u64 {
    let mix = |sum: u64, value: u64| (sum ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    shape
        .iter()
        .fold(mix(0, function), |sum, value| mix(sum, u64::from(*value)))
        | 1
}

impl Lengths {
    /// The expected length of a unit. `None`: none was measured.
    pub fn expected(&self, name: u64) -> Option<u64> {
        self.entry(name)
            .map(|entry| entry.ns.load(Ordering::Relaxed))
            .filter(|ns| *ns != 0)
    }

    /// The mean of all units measured; 0 before the first.
    pub fn mean(&self) -> u64 {
        self.mean.load(Ordering::Relaxed)
    }

    /// A unit took so long.
    pub fn learn(&self, name: u64, ns: u64) {
        let ns = ns.max(1);
        let blend = |old: u64| match old {
            0 => ns,
            _ if ns < old => ns + (old - ns) / 2,
            _ => old.saturating_add((ns - old) / 8),
        };
        self.mean.store(blend(self.mean()), Ordering::Relaxed);
        if let Some(entry) = self.entry(name) {
            entry
                .ns
                .store(blend(entry.ns.load(Ordering::Relaxed)), Ordering::Relaxed);
            return;
        }
        let Some(set) = self.set(name) else { return };
        let free = set.iter().position(|entry| entry.name.load(Ordering::Relaxed) == 0);
        let way = free.unwrap_or_else(|| self.turn.fetch_add(1, Ordering::Relaxed) as usize % WAYS);
        if let Some(entry) = set.get(way) {
            // A reader between the two stores finds no length, or for an instant the length of what was here.
            entry.ns.store(0, Ordering::Relaxed);
            entry.name.store(name, Ordering::Release);
            entry.ns.store(ns, Ordering::Relaxed);
        }
    }

    /// The unit is another one now.
    pub fn forget(&self, name: u64) {
        if let Some(entry) = self.entry(name) {
            entry.ns.store(0, Ordering::Relaxed);
            entry.name.store(0, Ordering::Release);
        }
    }

    fn set(&self, name: u64) -> Option<&[Entry; WAYS]> {
        self.sets.get((name >> 32) as usize % SETS)
    }

    fn entry(&self, name: u64) -> Option<&Entry> {
        self.set(name)?
            .iter()
            .find(|entry| name != 0 && entry.name.load(Ordering::Acquire) == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern crate alloc;

    fn empty() -> alloc::boxed::Box<Lengths> {
        // SAFETY: all-zero memory is an empty table.
        unsafe { alloc::boxed::Box::new(core::mem::zeroed()) }
    }

    #[test]
    fn a_name_tells_functions_and_shapes_apart() {
        let shape = [1, 2, 3, 4, 5, 6, 7];
        assert_eq!(name(8, &shape), name(8, &shape));
        assert_ne!(name(8, &shape), name(16, &shape));
        assert_ne!(name(8, &shape), name(8, &[2, 1, 3, 4, 5, 6, 7]));
        assert_ne!(name(0, &[]), 0);
    }

    #[test]
    fn falls_at_once_and_rises_slowly() {
        let lengths = empty();
        let unit = name(1, &[1]);
        assert_eq!((lengths.expected(unit), lengths.mean()), (None, 0));
        lengths.learn(unit, 8000);
        assert_eq!(lengths.expected(unit), Some(8000));
        lengths.learn(unit, 4000);
        assert_eq!(lengths.expected(unit), Some(6000));
        lengths.learn(unit, 14_000);
        assert_eq!(lengths.expected(unit), Some(7000));
        for _ in 0..100 {
            lengths.learn(unit, 500);
        }
        assert!(lengths.expected(unit).is_some_and(|ns| (500..=502).contains(&ns)));
        assert!((500..=502).contains(&lengths.mean()));
        lengths.forget(unit);
        assert_eq!(lengths.expected(unit), None);
        lengths.learn(unit, 0);
        assert_eq!(lengths.expected(unit), Some(1));
    }

    #[test]
    fn a_full_set_makes_room_and_keeps_the_rest() {
        let lengths = empty();
        let same_set = |index: u64| (7 << 32) | (index + 1);
        for index in 0..4 {
            lengths.learn(same_set(index), 100 + index);
        }
        for index in 0..4 {
            assert_eq!(lengths.expected(same_set(index)), Some(100 + index));
        }
        lengths.learn(same_set(9), 900);
        assert_eq!(lengths.expected(same_set(9)), Some(900));
        let left = (0..4)
            .filter(|index| lengths.expected(same_set(*index)).is_some())
            .count();
        assert_eq!(left, 3);
    }
}
