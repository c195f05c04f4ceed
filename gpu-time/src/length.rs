// SPDX-License-Identifier: Apache-2.0
//! How long units of work take, by what they are: a small table that many threads read and change without a lock.
//!
//! A *unit* is a kernel or a graph, named by a number that says which function with which shape. Lengths are
//! nanoseconds of device time as events tell them ([`Sample`]). A length is *known*
//!
//! ```text
//!   exclusive samples   their mean, of the last eight
//!   bounds              the shortest recent one, once nearly all agree: they lie between two slices of others, which
//!                       holds for units below half a slice
//! ```
//! A known length is undone by a bound that is a quarter shorter, or once many more do not agree with it than do.
//!
//! Each sample contains the *overhead*: the time between two events with nothing between them. It is measured and
//! subtracted.

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
    /// The overhead and one nanosecond; 0: unknown.
    overhead: AtomicU64,
}

struct Entry {
    name: AtomicU64,
    ns: AtomicU64,
    /// Below [`KNOWN`]: how far bounds agree. From there on: how many more do not than do, above [`KNOWN`].
    trust: AtomicU64,
    /// Exclusive samples, up to [`MEMORY`].
    exclusive: AtomicU64,
}

/// What the time between two events around a unit was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// The unit's own and the overhead.
    Exclusive,
    /// No less than that: slices of others may lie in it, or a time in which the unit had not been launched yet.
    Bound,
}

/// What is known of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Nanoseconds that it is expected to take.
    pub ns: u64,
    /// They are its own time; otherwise the shortest that was seen of late.
    pub is_known: bool,
}

/// A mean is of so many samples at most.
const MEMORY: u64 = 8;
/// Two samples agree if they differ by one part of so many.
const AGREES: u64 = 16;
/// So many more bounds agree than do not, weighted, and the length is known.
const KNOWN: u64 = 8;
/// A known length with which so many more bounds do not agree than do is none.
const DOUBTED: u64 = KNOWN + 16;
/// Another's slice is at least so long, in nanoseconds (the GPU's own are 2 ms).
pub const SLICE_NS: u64 = 1_000_000;

impl Entry {
    fn learn(&self, ns: u64, sample: Sample) {
        let (old, trust) = (self.ns.load(Ordering::Relaxed), self.trust.load(Ordering::Relaxed));
        // Nothing is known of one that is being forgotten.
        let is_known = trust >= KNOWN && old != 0;
        let (ns, trust) = match sample {
            Sample::Exclusive => {
                let before = if is_known {
                    self.exclusive.load(Ordering::Relaxed)
                } else {
                    0
                };
                let parts = (before + 1).min(MEMORY);
                self.exclusive.store(parts, Ordering::Relaxed);
                (mean(old, ns, parts), KNOWN)
            }
            Sample::Bound if is_known => doubt(old, trust, ns),
            Sample::Bound => narrow(old, trust, ns),
        };
        self.ns.store(ns.max(1), Ordering::Relaxed);
        self.trust.store(trust, Ordering::Relaxed);
    }
}

fn is_near(old: u64, ns: u64, part: u64) -> bool {
    ns.abs_diff(old) <= old / part
}

/// A bound on a known length. None makes a unit shorter than it is: a much shorter one says that the unit has become
/// another; of longer ones many have to say so, unless slices of others lengthen such units often.
fn doubt(old: u64, trust: u64, ns: u64) -> (u64, u64) {
    let is_cut = ns >= old && (old >= SLICE_NS || old >= SLICE_NS / 2 && ns - old >= SLICE_NS);
    match ns {
        _ if is_cut => (old, trust),
        _ if is_near(old, ns, AGREES) => (old, KNOWN.max(trust - 1)),
        _ if ns < old - old / 4 || trust >= DOUBTED => (ns, 0),
        _ => (old, trust + 1),
    }
}

/// A bound on a length that is not known: the shortest of late, and how far the others agree with it. One that is
/// longer by a slice disagrees less than others do. Where too many disagree the shortest was another unit's, and is
/// raised.
fn narrow(old: u64, trust: u64, ns: u64) -> (u64, u64) {
    let disagrees = if ns.saturating_sub(old) >= SLICE_NS { 2 } else { 4 };
    match ns {
        _ if old == 0 || ns < old - old / AGREES => (ns, 0),
        _ if is_near(old, ns, AGREES) && old < SLICE_NS => (mean(old, ns, MEMORY), trust + 1),
        _ if trust > 0 => (old, trust.saturating_sub(disagrees)),
        _ => (old + ns.saturating_sub(old).min((old / 64).max(1)), 0),
    }
}

/// A mean with one more sample, which is one of so many.
fn mean(old: u64, ns: u64, parts: u64) -> u64 {
    let parts = parts.max(1);
    old.saturating_mul(parts - 1).saturating_add(ns) / parts
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
    pub fn expected(&self, name: u64) -> Option<Length> {
        let entry = self.entry(name)?;
        let is_known = entry.trust.load(Ordering::Relaxed) >= KNOWN;
        let ns = entry.ns.load(Ordering::Relaxed);
        (ns != 0).then_some(Length { ns, is_known })
    }

    /// The mean of all units measured; 0 before the first.
    pub fn mean(&self) -> u64 {
        self.mean.load(Ordering::Relaxed)
    }

    /// Is the overhead known?
    pub fn has_overhead(&self) -> bool {
        self.overhead.load(Ordering::Relaxed) != 0
    }

    /// What two events with nothing between them take, in nanoseconds; 0 while that is not known.
    pub fn overhead(&self) -> u64 {
        self.overhead.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Two events with nothing between them were so far apart. Of several the least counts: the others have something
    /// else in them.
    pub fn learn_overhead(&self, ns: u64) {
        let new = ns.saturating_add(1);
        let old = self.overhead.load(Ordering::Relaxed);
        if old == 0 || new < old {
            self.overhead.store(new, Ordering::Relaxed);
        }
    }

    /// A unit took so long.
    pub fn learn(&self, name: u64, ns: u64, sample: Sample) {
        let ns = ns.saturating_sub(self.overhead()).max(1);
        let all = self.mean();
        self.mean
            .store(if all == 0 { ns } else { mean(all, ns, MEMORY) }, Ordering::Relaxed);
        if let Some(entry) = self.entry(name) {
            entry.learn(ns, sample);
            return;
        }
        let Some(set) = self.set(name) else { return };
        let free = set.iter().position(|entry| entry.name.load(Ordering::Relaxed) == 0);
        let way = free.unwrap_or_else(|| self.turn.fetch_add(1, Ordering::Relaxed) as usize % WAYS);
        if let Some(entry) = set.get(way) {
            // A reader between the two stores finds no length, or for an instant the length of what was here.
            entry.ns.store(0, Ordering::Relaxed);
            entry.trust.store(0, Ordering::Relaxed);
            entry.exclusive.store(0, Ordering::Relaxed);
            entry.name.store(name, Ordering::Release);
            entry.learn(ns, sample);
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

    fn unknown(ns: u64) -> Option<Length> {
        Some(Length { ns, is_known: false })
    }

    fn known(ns: u64) -> Option<Length> {
        Some(Length { ns, is_known: true })
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
    fn the_shortest_bound_of_late_stands_and_rises_slowly() {
        let lengths = empty();
        let unit = name(1, &[1]);
        assert_eq!((lengths.expected(unit), lengths.mean()), (None, 0));
        for (ns, expected) in [(8000, 8000), (4000, 4000), (14_000, 4062), (500, 500)] {
            lengths.learn(unit, ns, Sample::Bound);
            assert_eq!(lengths.expected(unit), unknown(expected));
        }
        for _ in 0..100 {
            lengths.learn(unit, 500, Sample::Bound);
        }
        assert_eq!(lengths.expected(unit), known(500));
        assert!((500..=507).contains(&lengths.mean()), "{}", lengths.mean());
        lengths.forget(unit);
        assert_eq!(lengths.expected(unit), None);
        lengths.learn(unit, 0, Sample::Bound);
        assert_eq!(lengths.expected(unit), unknown(1));
    }

    #[test]
    fn exclusive_samples_give_the_mean_and_bounds_do_not_spoil_it() {
        let lengths = empty();
        let unit = name(1, &[1]);
        lengths.learn_overhead(0);
        lengths.learn(unit, 5000, Sample::Exclusive);
        assert_eq!(lengths.expected(unit), known(5000));
        for _ in 0..200 {
            lengths.learn(unit, 4000, Sample::Exclusive);
            lengths.learn(unit, 6000, Sample::Exclusive);
            lengths.learn(unit, 20_000, Sample::Bound);
        }
        let length = lengths.expected(unit).expect("measured");
        assert!(length.is_known && (4800..=5200).contains(&length.ns), "{length:?}");
        let long = name(2, &[1]);
        lengths.learn(long, 5_000_000, Sample::Exclusive);
        (0..100).for_each(|_| lengths.learn(long, 9_000_000, Sample::Bound));
        assert_eq!(lengths.expected(long), known(5_000_000));
        // Once it is another unit, that is seen: shorter at once, longer after a while.
        lengths.learn(unit, 100, Sample::Bound);
        assert_eq!(lengths.expected(unit), unknown(100));
        lengths.learn(unit, 500, Sample::Exclusive);
        for _ in KNOWN..=DOUBTED {
            assert_eq!(lengths.expected(unit), known(500));
            lengths.learn(unit, 700, Sample::Bound);
        }
        assert_eq!(lengths.expected(unit), unknown(700));
        // Longer by more than a slice: cut each time, or another unit.
        lengths.learn(unit, 50_000, Sample::Exclusive);
        (KNOWN..=DOUBTED).for_each(|_| lengths.learn(unit, 3_000_000, Sample::Bound));
        assert!(lengths.expected(unit).is_some_and(|it| !it.is_known));
        // Others' slices do not lengthen a unit that always has some.
        (0..100).for_each(|_| lengths.learn(long, 5_100_000, Sample::Bound));
        assert_eq!(lengths.expected(long), known(5_000_000));
    }

    #[test]
    fn beside_others_a_length_is_known_once_nearly_all_agree_with_the_shortest() {
        let known_after = |samples: &mut dyn Iterator<Item = u64>| {
            let lengths = empty();
            lengths.learn_overhead(0);
            samples.for_each(|ns| lengths.learn(1, ns, Sample::Bound));
            lengths.expected(1).expect("known")
        };
        let sliced = |own_ns: u64| {
            move |index: u64| own_ns + index % 7 + u64::from(index * 791_900 % 2_000_000 < own_ns) * 2_000_000
        };
        for own_ns in [20_000, 200_000, 500_000] {
            let length = known_after(&mut (0..400).map(sliced(own_ns)));
            assert!(
                length.is_known && length.ns.abs_diff(own_ns) < 1000,
                "{length:?} of {own_ns}"
            );
        }
        // Longer than slices, or of two lengths: nobody knows.
        let cut = |index: u64| 5_000_000 + index * 7919 % 3 * 2_000_000;
        assert!(!known_after(&mut (0..300).map(cut)).is_known);
        assert!(!known_after(&mut (0..300).map(|index| 4_000_000 + index)).is_known);
        let two = |index: u64| if index % 10 < 7 { 100_000 } else { 200_000 };
        assert!(!known_after(&mut (0..300).map(two)).is_known);
        let far = |index: u64| if index.is_multiple_of(2) { 100_000 } else { 1_500_000 };
        assert!(!known_after(&mut (0..300).map(far)).is_known);
        let any = |index: u64| 100_000 + index * 7919 % 200_000;
        assert!(!known_after(&mut (0..300).map(any)).is_known);
    }

    #[test]
    fn the_overhead_is_taken_off() {
        let lengths = empty();
        assert!(!lengths.has_overhead());
        lengths.learn_overhead(2000);
        assert!(lengths.has_overhead());
        let (long, short) = (name(1, &[1]), name(2, &[1]));
        lengths.learn(long, 102_000, Sample::Exclusive);
        lengths.learn(short, 22_000, Sample::Exclusive);
        assert_eq!(
            (lengths.expected(long), lengths.expected(short)),
            (known(100_000), known(20_000))
        );
    }

    #[test]
    fn a_full_set_makes_room_and_keeps_the_rest() {
        let lengths = empty();
        let same_set = |index: u64| (7 << 32) | (index + 1);
        for index in 0..4 {
            lengths.learn(same_set(index), 100 + index, Sample::Bound);
        }
        for index in 0..4 {
            assert_eq!(lengths.expected(same_set(index)), unknown(100 + index));
        }
        lengths.learn(same_set(9), 900, Sample::Bound);
        assert_eq!(lengths.expected(same_set(9)), unknown(900));
        let left = (0..4)
            .filter(|index| lengths.expected(same_set(*index)).is_some())
            .count();
        assert_eq!(left, 3);
    }
}
