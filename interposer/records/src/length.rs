// SPDX-License-Identifier: Apache-2.0
//! How long units of work take, by what they are: a small table that many threads read and change without a lock.
//!
//! A *unit* is a kernel or a graph, named by a number that says which function with which shape. Lengths are nanoseconds of
//! device time as events tell them. What they tell may be too long, never too short ([`Sample`]): events see the slices of
//! others too, and the time for which a launch was late. A length is *sure*
//!
//! - once there was a sample of the unit alone: it is the mean of such samples, later ones an eighth each; or
//! - once nearly all of the samples beside others agree with the shortest: then most lie between two slices.
//!
//! Otherwise a shorter sample counts at once. A sure length is undone by a much shorter sample, or once many more do not
//! agree with it than do.
//!
//! What two events tell when nothing lies between them, the *overhead*, is in each sample. It is measured, too, and taken
//! off; no sample of a unit that is not much longer than it makes a length sure.

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
    /// Below [`SURE`]: how far samples agree. From there on: how many more do not than do, above [`SURE`].
    trust: AtomicU64,
    /// Samples of it alone, up to [`MEMORY`].
    alone: AtomicU64,
}

/// What the time between two events around a unit was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// The unit's own and the overhead.
    Alone,
    /// Also that of others' slices, if any came.
    Shared,
    /// Perhaps also a time in which the unit had not been launched yet.
    Late,
}

/// What is known of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Nanoseconds that it is expected to take.
    pub ns: u64,
    /// They are its own time.
    pub is_sure: bool,
}

/// A sample of a unit alone is so many times the overhead: what is left of it after the subtraction is a hundredth at most.
const LEAST_OVERHEADS: u64 = 16;
/// A mean is of so many samples at most.
const MEMORY: u64 = 8;
/// So far do samples agree that the length is sure. One that does counts 1, one that does not takes [`DISAGREES`].
const SURE: u64 = 8;
const DISAGREES: u64 = 4;
/// So much takes one that is longer by a slice.
const CUT: u64 = 2;
/// Another's slice is at least so long (the GPU's own are 2 ms).
pub const SLICE_NS: u64 = 1_000_000;
/// A sure length with which so many more samples do not agree than do is none.
const DOUBTED: u64 = SURE + 16;

impl Entry {
    fn learn(&self, ns: u64, sample: Sample) {
        let (old, trust) = (self.ns.load(Ordering::Relaxed), self.trust.load(Ordering::Relaxed));
        // Nothing is known of one that is being forgotten.
        let is_sure = trust >= SURE && old != 0;
        if sample == Sample::Alone {
            let before = if is_sure { self.alone.load(Ordering::Relaxed) } else { 0 };
            self.alone.store((before + 1).min(MEMORY), Ordering::Relaxed);
        }
        let (ns, trust) = match (sample, is_sure) {
            (Sample::Alone, true) => (mean(old, ns, self.alone.load(Ordering::Relaxed)), SURE),
            (Sample::Alone, false) => (ns, SURE),
            (Sample::Shared, true) => sure_beside_others(old, trust, ns),
            (Sample::Late, true) => sure_and_late(old, trust, ns),
            (Sample::Shared, false) => unsure_beside_others(old, trust, ns),
            // What nearly agrees is not spoiled by what may be too long.
            (Sample::Late, false) if trust > 0 && ns >= old => (old, trust),
            (Sample::Late, false) => (blend(old, ns), 0),
        };
        self.ns.store(ns.max(1), Ordering::Relaxed);
        self.trust.store(trust, Ordering::Relaxed);
    }
}

fn is_near(old: u64, ns: u64, part: u64) -> bool {
    ns.abs_diff(old) <= old / part
}

/// A sample that does not agree with a sure length: none makes a unit shorter than it is, so a much shorter one says that it
/// has become another; of the others many have to say so.
fn doubt(old: u64, trust: u64, ns: u64) -> (u64, u64) {
    if ns < old - old / 4 || trust >= DOUBTED {
        (ns, 0)
    } else {
        (old, trust + 1)
    }
}

fn sure_beside_others(old: u64, trust: u64, ns: u64) -> (u64, u64) {
    // It has slices of others in it, as it has each time if it is as long as one, and often if it is half as long. Of
    // shorter ones that is rare, and many say that the unit has become longer.
    let is_cut = ns >= old && (old >= SLICE_NS || old >= SLICE_NS / 2 && ns - old >= SLICE_NS);
    match ns {
        _ if is_cut => (old, trust),
        _ if is_near(old, ns, 16) => (mean(old, ns, MEMORY), SURE.max(trust - 1)),
        _ => doubt(old, trust, ns),
    }
}

fn sure_and_late(old: u64, trust: u64, ns: u64) -> (u64, u64) {
    match ns {
        _ if is_near(old, ns, 16) => (old, SURE.max(trust - 1)),
        _ if ns > old && is_near(old, ns, 4) => (old, trust),
        _ => doubt(old, trust, ns),
    }
}

/// The shortest of late, and how far the others agree with it.
fn unsure_beside_others(old: u64, trust: u64, ns: u64) -> (u64, u64) {
    if old == 0 || ns.min(old) >= SLICE_NS {
        return (blend(old, ns), 0);
    }
    match ns {
        _ if is_near(old, ns, 16) => (mean(old, ns, MEMORY), trust + 1),
        _ if ns < old => (ns, 0),
        _ if trust > 0 && ns - old >= SLICE_NS => (old, trust.saturating_sub(CUT)),
        _ if trust >= DISAGREES => (old, trust - DISAGREES),
        _ => (old + (old / 64).max(1), 0),
    }
}

/// A mean with one more sample, which is one of so many.
fn mean(old: u64, ns: u64, parts: u64) -> u64 {
    let parts = parts.max(1);
    old.saturating_mul(parts - 1).saturating_add(ns) / parts
}

/// With samples that may be too long.
fn blend(old: u64, ns: u64) -> u64 {
    match old {
        0 => ns,
        _ if ns < old => ns + (old - ns) / 2,
        _ => old.saturating_add((ns - old) / 8),
    }
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
        let is_sure = entry.trust.load(Ordering::Relaxed) >= SURE;
        let ns = entry.ns.load(Ordering::Relaxed);
        (ns != 0).then_some(Length { ns, is_sure })
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

    /// Two events with nothing between them were so far apart. Of several the least counts: the others have something else
    /// in them.
    pub fn learn_overhead(&self, ns: u64) {
        let new = ns.saturating_add(1);
        let old = self.overhead.load(Ordering::Relaxed);
        if old == 0 || new < old {
            self.overhead.store(new, Ordering::Relaxed);
        }
    }

    /// A unit took so long.
    pub fn learn(&self, name: u64, ns: u64, sample: Sample) {
        let overhead = self.overhead.load(Ordering::Relaxed);
        let is_long = overhead != 0 && ns >= LEAST_OVERHEADS.saturating_mul(overhead - 1);
        let sample = if is_long { sample } else { Sample::Late };
        let ns = ns.saturating_sub(overhead.saturating_sub(1)).max(1);
        self.mean.store(blend(self.mean(), ns), Ordering::Relaxed);
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
            entry.alone.store(0, Ordering::Relaxed);
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

    fn unsure(ns: u64) -> Option<Length> {
        Some(Length { ns, is_sure: false })
    }

    fn sure(ns: u64) -> Option<Length> {
        Some(Length { ns, is_sure: true })
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
        lengths.learn(unit, 8000, Sample::Late);
        assert_eq!(lengths.expected(unit), unsure(8000));
        lengths.learn(unit, 4000, Sample::Late);
        assert_eq!(lengths.expected(unit), unsure(6000));
        lengths.learn(unit, 14_000, Sample::Late);
        assert_eq!(lengths.expected(unit), unsure(7000));
        for _ in 0..100 {
            lengths.learn(unit, 500, Sample::Late);
        }
        assert!(lengths.expected(unit).is_some_and(|it| (500..=502).contains(&it.ns)));
        assert!((500..=502).contains(&lengths.mean()));
        lengths.forget(unit);
        assert_eq!(lengths.expected(unit), None);
        lengths.learn(unit, 0, Sample::Late);
        assert_eq!(lengths.expected(unit), unsure(1));
    }

    #[test]
    fn samples_of_a_unit_alone_give_the_mean_and_others_do_not_spoil_it() {
        let lengths = empty();
        let unit = name(1, &[1]);
        lengths.learn(unit, 9000, Sample::Alone);
        assert_eq!(lengths.expected(unit), unsure(9000), "the overhead is not known");
        lengths.learn_overhead(0);
        lengths.learn(unit, 5000, Sample::Alone);
        assert_eq!(lengths.expected(unit), sure(5000));
        for _ in 0..200 {
            lengths.learn(unit, 4000, Sample::Alone);
            lengths.learn(unit, 6000, Sample::Alone);
            lengths.learn(unit, 20_000, Sample::Late);
            lengths.learn(unit, 20_000, Sample::Shared);
        }
        let known = lengths.expected(unit).expect("known");
        assert!(known.is_sure && (4800..=5200).contains(&known.ns), "{known:?}");
        let long = name(2, &[1]);
        lengths.learn(long, 5_000_000, Sample::Alone);
        (0..100).for_each(|_| lengths.learn(long, 9_000_000, Sample::Shared));
        assert_eq!(lengths.expected(long), sure(5_000_000));
        // Once it is another unit, that is seen: shorter at once, longer after a while.
        lengths.learn(unit, 100, Sample::Late);
        assert_eq!(lengths.expected(unit), unsure(100));
        lengths.learn(unit, 500, Sample::Alone);
        for _ in SURE..=DOUBTED {
            assert_eq!(lengths.expected(unit), sure(500));
            lengths.learn(unit, 700, Sample::Shared);
        }
        assert_eq!(lengths.expected(unit), unsure(700));
        // Longer by more than a slice: cut each time, or another unit.
        lengths.learn(unit, 50_000, Sample::Alone);
        (SURE..=DOUBTED).for_each(|_| lengths.learn(unit, 3_000_000, Sample::Shared));
        assert!(lengths.expected(unit).is_some_and(|it| !it.is_sure));
        // Others' slices do not lengthen a unit that always has some.
        (0..100).for_each(|_| lengths.learn(long, 5_100_000, Sample::Shared));
        assert_eq!(lengths.expected(long), sure(5_000_000));
    }

    #[test]
    fn beside_others_a_length_is_sure_once_nearly_all_agree_with_the_shortest() {
        let known_after = |samples: &mut dyn Iterator<Item = u64>| {
            let lengths = empty();
            lengths.learn_overhead(0);
            samples.for_each(|ns| lengths.learn(1, ns, Sample::Shared));
            lengths.expected(1).expect("known")
        };
        let sliced = |own_ns: u64| {
            move |index: u64| own_ns + index % 7 + u64::from(index * 791_900 % 2_000_000 < own_ns) * 2_000_000
        };
        for own_ns in [20_000, 200_000, 500_000] {
            let known = known_after(&mut (0..400).map(sliced(own_ns)));
            assert!(
                known.is_sure && known.ns.abs_diff(own_ns) < 1000,
                "{known:?} of {own_ns}"
            );
        }
        // Longer than slices, or of two lengths: nobody knows.
        let cut = |index: u64| 5_000_000 + index * 7919 % 3 * 2_000_000;
        assert!(!known_after(&mut (0..300).map(cut)).is_sure);
        assert!(!known_after(&mut (0..300).map(|index| 4_000_000 + index)).is_sure);
        let two = |index: u64| if index % 10 < 7 { 100_000 } else { 200_000 };
        assert!(!known_after(&mut (0..300).map(two)).is_sure);
        let far = |index: u64| if index.is_multiple_of(2) { 100_000 } else { 1_500_000 };
        assert!(!known_after(&mut (0..300).map(far)).is_sure);
        let any = |index: u64| 100_000 + index * 7919 % 200_000;
        assert!(!known_after(&mut (0..300).map(any)).is_sure);
    }

    #[test]
    fn the_overhead_is_taken_off_and_what_it_hides_is_not_known_for_sure() {
        let lengths = empty();
        assert!(!lengths.has_overhead());
        lengths.learn_overhead(2000);
        assert!(lengths.has_overhead());
        let (long, short) = (name(1, &[1]), name(2, &[1]));
        lengths.learn(long, 102_000, Sample::Alone);
        lengths.learn(short, 22_000, Sample::Alone);
        assert_eq!(
            (lengths.expected(long), lengths.expected(short)),
            (sure(100_000), unsure(20_000))
        );
    }

    #[test]
    fn a_full_set_makes_room_and_keeps_the_rest() {
        let lengths = empty();
        let same_set = |index: u64| (7 << 32) | (index + 1);
        for index in 0..4 {
            lengths.learn(same_set(index), 100 + index, Sample::Late);
        }
        for index in 0..4 {
            assert_eq!(lengths.expected(same_set(index)), unsure(100 + index));
        }
        lengths.learn(same_set(9), 900, Sample::Late);
        assert_eq!(lengths.expected(same_set(9)), unsure(900));
        let left = (0..4)
            .filter(|index| lengths.expected(same_set(*index)).is_some())
            .count();
        assert_eq!(left, 3);
    }
}
