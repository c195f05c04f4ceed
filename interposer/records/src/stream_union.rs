// SPDX-License-Identifier: Apache-2.0
//! The device time of streams that run together: the union of their batches, without the time of others.
//!
//! Events tell by the GPU's clock when a batch ended, and when it could begin. That clock goes on while others have slices.
//! How long a batch takes by itself is known. What is known of when the client had the device is kept in *stretches*, each
//! with the time that the client's work took in it; where that is less than the stretch is long, others had slices there.
//!
//! ```text
//!   GPU's clock    ├─ A ──────────┤  slice of others  ├─ A ──┤              ├──
//!                          ├─ B ──┤                   ├─ B ────────┤  idle
//!   B grows the union by                                     ├─────┤
//! ```
//! A batch that took its own length ran from its begin to its end. Of one that took a slice longer nobody says where that
//! lay, which mostly need not be known: when anything of the client runs, what of it has begun runs, too. A batch that began
//! as soon as it could, because it was queued behind another of its stream or others of the client ran then, grows the union
//! by its own time less what the others took from there to its end. One that was launched into an empty stream may have
//! begun later than it could: because its launch came late, or because others had the device. It ran until its end, so its
//! own time is followed back from there. So is that of a batch that would have been done long before, had it run with the
//! others of its client: it had to wait for them, because one of them filled the device.

use crate::length::SLICE_NS;

/// Stretches that are kept.
const STRETCHES: usize = 256;
/// So many are left when another batch comes: it adds one for each gap between them, and a few.
const BEFORE: usize = STRETCHES / 2 - 8;
/// What lies further back than this is forgotten if there is no room, in nanoseconds.
const MEMORY_NS: i64 = 100_000_000;
/// See [`SLICE_NS`].
const SLICE: i64 = SLICE_NS as i64;
/// What two events or two batches may lie apart for no reason, in nanoseconds.
const SLACK_NS: i64 = 2_000;
/// A queued batch is its own for all its time if it took at most one part of so many more than it is expected to.
const ALIKE: i64 = 16;

/// No moment is further from 0 and no time longer, in nanoseconds (36 years): sums of a few are numbers.
const FAR: i64 = 1 << 60;

/// A batch that has ended. Times are the GPU's clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The event in front of it.
    pub begin_ns: i64,
    /// The event behind it.
    pub end_ns: i64,
    /// What it is expected to take by itself.
    pub work_ns: u64,
    /// For so long after the first event, by the processor's clock, it may not have been launched yet. 0: it was launched
    /// while the one in front of it ran, and began with its first event.
    pub late_ns: u64,
    /// The event behind it may have come when it had ended.
    pub is_loose: bool,
    /// Nobody else's work was on the device meanwhile.
    pub is_unshared: bool,
}

/// From one moment of the GPU to another, and what the client's work took there.
#[derive(Clone, Copy, Default)]
struct Stretch {
    from: i64,
    to: i64,
    own: i64,
}

/// What the streams of one context did of late. All-zero memory is "nothing yet".
pub struct StreamUnion {
    /// In their order, apart from each other.
    stretches: [Stretch; STRETCHES],
    count: usize,
}

impl Default for StreamUnion {
    fn default() -> Self {
        Self {
            stretches: [Stretch::default(); STRETCHES],
            count: 0,
        }
    }
}

impl Stretch {
    fn length(&self) -> i64 {
        self.to - self.from
    }

    /// Others had no slice in it.
    fn is_whole(&self) -> bool {
        self.own >= self.length()
    }

    /// The part before a moment in it, and the part after that. Others' slices in it lie where there is room for them.
    fn split(self, at: i64) -> (Self, Self) {
        let (before, after) = (at - self.from, self.to - at);
        let missing = (before + after - self.own).max(0);
        let most = before.min(self.own);
        let least = (self.own - after).max(0).min(most);
        let slack = SLACK_NS.min(missing / 2);
        let own = match (before + slack >= missing, after + slack >= missing) {
            (true, false) => least,
            (false, true) => most,
            _ => least + (most - least) / 2,
        };
        let part = |from, to, own| Self { from, to, own };
        (part(self.from, at, own), part(at, self.to, self.own - own))
    }
}

/// What lies between two moments.
struct Found {
    /// The client's time in stretches, and in those without slices of others.
    covered: i64,
    sure: i64,
    /// Gaps between them in which no slice has room, and others.
    narrow: i64,
    wide: i64,
    /// The last gap, up to the later moment.
    last: i64,
}

impl StreamUnion {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Takes in a batch, and answers by how much, in nanoseconds, the union grows.
    pub fn add(&mut self, batch: Batch) -> u64 {
        let work = batch.work_ns.min(FAR as u64) as i64;
        let late = batch.late_ns.min(FAR as u64) as i64;
        let [begin, end] = [batch.begin_ns, batch.end_ns].map(|ns| ns.clamp(-FAR, FAR));
        let took = end - begin;
        if took <= 0 || work <= 0 {
            return 0;
        }
        let over = took - work;
        let is_queued = late == 0;
        // What ended before its second event came is followed back from where it ended if it began at once.
        let is_early = batch.is_loose && (0..=SLICE).contains(&over);
        let end = if is_early { end - over } else { end };
        let is_exact = over <= 0 || is_queued && over <= work / ALIKE;
        // Without others' slices what is too long is its launch that came late, or a wait for others of its own client.
        let began = begin + late.min(over.max(0));
        let ran_at_once = || self.ran_until(begin) > begin + late;
        let is_cut = over > SLICE && !batch.is_unshared && (is_queued || ran_at_once());
        self.make_room(end);
        self.split_at(end);
        let grown = if is_exact {
            self.cover(begin, end)
        } else if batch.is_unshared && (is_queued || over > SLICE) {
            self.cover(began, end)
        } else if is_cut {
            self.split_at(begin);
            let found = self.find(begin, end);
            // Had it run with them, it would have been done. (The length of a shorter one tells: samples undo it.)
            let has_waited = work >= SLICE && found.sure >= work && found.last >= work - work / ALIKE;
            if has_waited {
                self.follow(begin, end, work)
            } else {
                self.fill(begin, end, work - found.covered, &found)
            }
        } else {
            self.follow(begin, end, work)
        };
        grown.max(0).unsigned_abs()
    }

    #[inline(never)]
    fn get(&self, index: usize) -> Option<Stretch> {
        self.stretches.get(index).filter(|_| index < self.count).copied()
    }

    /// The first stretch that ends after a moment.
    #[inline(never)]
    fn first_after(&self, at: i64) -> usize {
        let kept = self.stretches.get(..self.count).unwrap_or_default();
        kept.partition_point(|stretch| stretch.to <= at)
    }

    /// The first stretch that begins at a moment or later.
    #[inline(never)]
    fn first_from(&self, at: i64) -> usize {
        let kept = self.stretches.get(..self.count).unwrap_or_default();
        kept.partition_point(|stretch| stretch.from < at)
    }

    /// So that no stretch has this moment in it.
    #[inline(never)]
    fn split_at(&mut self, at: i64) {
        let index = self.first_after(at);
        if let Some(stretch) = self.get(index).filter(|stretch| stretch.from < at) {
            let (before, after) = stretch.split(at);
            if let Some(place) = self.stretches.get_mut(index) {
                *place = after;
            }
            self.insert(before);
        }
    }

    /// If the client had the device at a moment, until when it is sure to have had it.
    fn ran_until(&self, at: i64) -> i64 {
        let stretch = self.get(self.first_after(at)).filter(|stretch| stretch.from <= at);
        stretch.filter(Stretch::is_whole).map_or(at, |stretch| stretch.to)
    }

    /// The gap that begins at a moment or in the stretch there, up to an end, and where to go on.
    #[inline(never)]
    fn gap_at(&self, at: i64, end: i64) -> (Stretch, Option<Stretch>) {
        let next = self.get(self.first_after(at)).filter(|next| next.from < end);
        let to = next.map_or(end, |next| next.from).max(at);
        (Stretch { from: at, to, own: 0 }, next)
    }

    #[inline(never)]
    fn find(&self, begin: i64, end: i64) -> Found {
        let mut found = Found {
            covered: 0,
            sure: 0,
            narrow: 0,
            wide: 0,
            last: 0,
        };
        let mut at = begin;
        while at < end {
            let (gap, next) = self.gap_at(at, end);
            found.last = gap.length();
            let sum = if found.last > SLICE {
                &mut found.wide
            } else {
                &mut found.narrow
            };
            *sum += found.last;
            let Some(next) = next else { return found };
            found.covered += next.own;
            if next.is_whole() {
                found.sure += next.own;
            }
            at = next.to;
        }
        found.last = 0;
        found
    }

    /// Work that ran from one moment to another, all the time.
    fn cover(&mut self, begin: i64, end: i64) -> i64 {
        self.split_at(begin);
        let covered = self.find(begin, end).covered;
        let (from, to) = (self.first_from(begin), self.first_from(end));
        self.remove(from, to.saturating_sub(from));
        let own = end - begin;
        self.insert(Stretch {
            from: begin,
            to: end,
            own,
        });
        own - covered
    }

    /// Work that ended, followed back from its end for as long as it took: it ran wherever anything else did, and between.
    #[inline(never)]
    fn follow(&mut self, begin: i64, end: i64, work: i64) -> i64 {
        let (mut at, mut left, mut grown) = (end, work, 0_i64);
        while left > 0 && at > begin {
            // The last stretch that begins before this moment: none has it in it.
            let last = self.first_from(at).checked_sub(1).and_then(|index| self.get(index));
            let until = last.map_or(begin, |last| last.to.max(begin));
            let own = (at - until).max(0).min(left);
            let (from, to) = (at - own, at);
            self.insert(Stretch { from, to, own });
            (left, grown) = (left - own, grown + own);
            let Some(last) = last else { break };
            left -= last.own;
            at = last.from;
        }
        grown
    }

    /// Work with others' slices in it, of which so much is left beside what else ran between two moments: in each gap too
    /// short for a slice, and for the rest of its time in the others.
    fn fill(&mut self, begin: i64, end: i64, left: i64, found: &Found) -> i64 {
        let mut in_narrow = left.min(found.narrow);
        let mut in_wide = (left - in_narrow).min(found.wide);
        let (mut at, mut grown) = (begin, 0);
        while at < end {
            let (gap, next) = self.gap_at(at, end);
            let length = gap.length();
            let left = if length > SLICE { &mut in_wide } else { &mut in_narrow };
            let own = length.min(*left).max(0);
            *left -= own;
            self.insert(Stretch { own, ..gap });
            grown += own;
            at = next.map_or(end, |next| next.to);
        }
        grown
    }

    /// Puts a stretch where there is none.
    #[inline(never)]
    fn insert(&mut self, new: Stretch) {
        if new.to <= new.from {
            return;
        }
        let index = self.first_after(new.from);
        // It continues the one before where neither has others' slices in it.
        if let Some(before) = index.checked_sub(1).and_then(|index| self.stretches.get_mut(index))
            && before.to == new.from
            && before.is_whole()
            && new.is_whole()
        {
            before.to = new.to;
            before.own += new.own;
            return;
        }
        if self.count < STRETCHES {
            for to in (index + 1..=self.count).rev() {
                self.copy(to - 1, to);
            }
            self.count += 1;
            if let Some(place) = self.stretches.get_mut(index) {
                *place = new;
            }
        }
    }

    /// Forgets the oldest stretches, or makes one of two, until there are few enough.
    fn make_room(&mut self, now: i64) {
        while self.count > BEFORE {
            let is_old = |first: Stretch| first.to < now - MEMORY_NS;
            let gap = |index: usize| {
                let (this, next) = (self.get(index)?, self.get(index + 1)?);
                Some((next.from - this.to, index))
            };
            // Of the older half: what comes next lies among the others.
            let narrowest = (0..self.count / 2).filter_map(gap).min();
            let index = match narrowest {
                Some((_, index)) if !self.get(0).is_some_and(is_old) => index,
                _ => 0,
            };
            if let (Some(this), Some(next)) = (self.get(index), self.get(index + 1))
                && !is_old(this)
                && let Some(place) = self.stretches.get_mut(index + 1)
            {
                place.from = this.from;
                place.own = this.own + next.own;
            }
            self.remove(index, 1);
        }
    }

    /// Takes so many stretches out.
    #[inline(never)]
    fn remove(&mut self, index: usize, gone: usize) {
        let gone = gone.min(self.count.saturating_sub(index));
        for from in index + gone..self.count {
            self.copy(from, from - gone);
        }
        self.count -= gone;
    }

    fn copy(&mut self, from: usize, to: usize) {
        if let Some(stretch) = self.stretches.get(from).copied()
            && let Some(place) = self.stretches.get_mut(to)
        {
            *place = stretch;
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    use super::*;

    const US: i64 = 1_000;
    const MS: i64 = 1_000_000;

    fn batch(begin_ns: i64, end_ns: i64, work_ns: i64) -> Batch {
        Batch {
            begin_ns,
            end_ns,
            work_ns: work_ns.unsigned_abs(),
            late_ns: 0,
            is_loose: false,
            is_unshared: false,
        }
    }

    #[test]
    fn one_after_the_other_each_counts_for_itself() {
        let mut all = StreamUnion::default();
        assert_eq!(all.add(batch(0, MS, MS)), MS as u64);
        assert_eq!(all.add(batch(MS, 2 * MS, MS)), MS as u64);
        assert_eq!(all.add(batch(9 * MS, 10 * MS, MS)), MS as u64);
    }

    #[test]
    fn what_lies_in_another_counts_for_nothing() {
        let mut all = StreamUnion::default();
        assert_eq!(all.add(batch(0, MS, MS)), MS as u64);
        assert_eq!(all.add(batch(MS / 4, MS / 2, MS / 4)), 0);
        assert_eq!(all.add(batch(MS / 2, 3 * MS / 2, MS)), MS as u64 / 2);
    }

    #[test]
    fn the_slices_of_others_count_for_nothing() {
        let mut all = StreamUnion::default();
        // A begins, B begins, 6 ms of others, both end.
        assert_eq!(all.add(batch(0, 7 * MS, MS)), MS as u64);
        assert_eq!(all.add(batch(300 * US, 7 * MS + 300 * US, MS)), 300 * US as u64);
        // C began after those slices.
        assert_eq!(
            all.add(batch(6 * MS + 800 * US, 7 * MS + 800 * US, MS)),
            500 * US as u64
        );
    }

    #[test]
    fn what_was_launched_late_began_late() {
        let mut all = StreamUnion::default();
        let late = Batch {
            late_ns: 1,
            ..batch(0, 3 * MS, MS)
        };
        assert_eq!(all.add(late), MS as u64);
        // It ran in the last millisecond.
        assert_eq!(all.add(batch(MS, 2 * MS, MS)), MS as u64);
    }

    #[test]
    fn a_long_batch_covers_any_number_of_gaps_between_short_ones() {
        let mut all = StreamUnion::default();
        let short: u64 = (0..1_000)
            .map(|index| all.add(batch(index * 100 * US, index * 100 * US + 50 * US, 50 * US)))
            .sum();
        assert_eq!(short, 50 * MS as u64);
        assert_eq!(all.add(batch(0, 100 * MS, 100 * MS)), 50 * MS as u64);
        assert_eq!(all.add(batch(0, 100 * MS, 100 * MS)), 0);
    }

    /// Each fills the device, so that the next has to wait, longer than a slice of others would take.
    #[test]
    fn batches_that_wait_for_each_other_count_for_all_their_time() {
        for is_unshared in [false, true] {
            let mut all = StreamUnion::default();
            let wait = |begin: i64, end: i64| Batch {
                is_unshared,
                ..batch(begin * MS, end * MS, 5 * MS)
            };
            assert_eq!(all.add(wait(0, 5)), 5 * MS as u64);
            for turn in 0..10 {
                assert_eq!(all.add(wait(turn * 5, turn * 5 + 10)), 5 * MS as u64);
            }
        }
    }

    /// Nobody else was there: the two took twice as long because they shared the multiprocessors.
    #[test]
    fn what_takes_longer_alone_on_the_device_has_nothing_of_others_in_it() {
        let mut all = StreamUnion::default();
        let slowed = Batch {
            is_unshared: true,
            ..batch(0, 10 * MS, 5 * MS)
        };
        assert_eq!(all.add(slowed), 10 * MS as u64);
        assert_eq!(all.add(slowed), 0);
    }

    /// A device in whose time slices of this client and of others follow each other.
    struct Device {
        /// Begin on the GPU's clock, begin on the client's, of each of its slices.
        slices: Vec<(i64, i64)>,
    }

    impl Device {
        fn new(slices: &[(u16, u16)]) -> Self {
            let (mut gpu, mut own) = (0, 0);
            let slices = slices
                .iter()
                .map(|(ours, others)| {
                    let slice = (gpu, own);
                    gpu += i64::from(*ours) * US + i64::from(*others) * US;
                    own += i64::from(*ours) * US;
                    slice
                })
                .collect();
            Self { slices }
        }

        /// The GPU's clock at a moment of the client's. What ends with a slice ends before the next.
        fn gpu(&self, own: i64) -> i64 {
            let next = self.slices.partition_point(|slice| slice.1 < own);
            let (gpu, begin) = self.slices[next.max(1) - 1];
            gpu + own - begin
        }

        /// The client's clock at a moment of the GPU's.
        fn own(&self, gpu: i64) -> i64 {
            let next = self.slices.partition_point(|slice| slice.0 <= gpu);
            let (begin, own) = self.slices[next.max(1) - 1];
            let end = self.slices.get(next).map_or(i64::MAX, |slice| slice.1);
            (own + gpu - begin).min(end)
        }
    }

    /// Answers what the union is, and what is told of it, of streams of (gap, length) in microseconds. Gaps are the
    /// program's, which goes on while others have slices.
    fn unions(device: &Device, streams: &[Vec<(u16, u16)>]) -> (i64, i64) {
        let mut all = Vec::new();
        for batches in streams {
            let mut ended = 0;
            for (gap, length) in batches {
                let launched = device.gpu(ended) + i64::from(*gap) * US;
                let begun = device.own(launched).max(ended);
                let event = if *gap == 0 { device.gpu(ended) } else { launched };
                ended = begun + i64::from(*length) * US;
                all.push((event, begun, ended, *gap == 0));
            }
        }
        all.sort_unstable_by_key(|batch| batch.2);
        let mut union_of = StreamUnion::default();
        let mut told = 0;
        for (event, begun, ended, is_queued) in &all {
            told += union_of.add(Batch {
                late_ns: u64::from(!is_queued),
                ..batch(*event, device.gpu(*ended), ended - begun)
            }) as i64;
        }
        all.sort_unstable_by_key(|batch| batch.1);
        let (mut reached, mut union) = (0, 0);
        for (_, begun, ended, ..) in all {
            union += (ended - reached.max(begun)).max(0);
            reached = reached.max(ended);
        }
        (union, told)
    }

    fn streams() -> impl Strategy<Value = Vec<Vec<(u16, u16)>>> {
        let gap = prop_oneof![2 => Just(0_u16), 1 => 0..500_u16];
        let stream = (100..900_u16).prop_flat_map(move |length| {
            proptest::collection::vec((gap.clone(), length - length / 4..length + length / 4), 50..100)
        });
        proptest::collection::vec(stream, 1..5)
    }

    /// The client's and others', in microseconds.
    fn slices() -> impl Strategy<Value = Vec<(u16, u16)>> {
        proptest::collection::vec((1_000..3_000_u16, 1_500..20_000_u16), 200)
    }

    /// Where a slice began is not known of each batch: single programs of some milliseconds are off, their sum is not.
    #[test]
    fn beside_others_it_is_on_the_whole() {
        let mut runner = TestRunner::deterministic();
        let (mut off, mut all) = (0, 0);
        for _ in 0..200 {
            let mut any = |strategy: BoxedStrategy<_>| strategy.new_tree(&mut runner).expect("a value").current();
            let (streams, slices) = any((streams(), slices()).boxed());
            let (union, told) = unions(&Device::new(&slices), &streams);
            (off, all) = (off + told - union, all + union);
        }
        assert!(off.abs() <= all / 500, "{off} of {all} ns");
    }

    proptest! {
        #[test]
        fn alone_it_is_the_union(streams in streams()) {
            let device = Device::new(&[(u16::MAX, 0)]);
            let (union, told) = unions(&device, &streams);
            prop_assert_eq!(union, told);
        }

        #[test]
        fn beside_others_it_nearly_is(
            streams in streams(),
            slices in slices(),
        ) {
            let device = Device::new(&slices);
            let (union, told) = unions(&device, &streams);
            prop_assert!((union - told).abs() <= union / 25, "{} of {}", told, union);
        }

        #[test]
        fn no_numbers_break_it(batches in proptest::collection::vec(
            (number(), number(), number(), number(), any::<bool>(), any::<bool>()), 0..400,
        )) {
            let mut all = StreamUnion::default();
            for (begin_ns, end_ns, work_ns, late_ns, is_loose, is_unshared) in batches {
                let (work_ns, late_ns) = (work_ns.unsigned_abs(), late_ns.unsigned_abs());
                let grown = all.add(Batch { begin_ns, end_ns, work_ns, late_ns, is_loose, is_unshared });
                prop_assert!(grown <= end_ns.saturating_sub(begin_ns).max(0).unsigned_abs());
                let kept = &all.stretches[..all.count];
                for stretch in kept {
                    prop_assert!(stretch.from < stretch.to && (0..=stretch.length()).contains(&stretch.own));
                }
                prop_assert!(kept.windows(2).all(|pair| pair[0].to <= pair[1].from));
            }
        }
    }

    /// Any, but mostly some hundreds of milliseconds.
    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![1 => any::<i64>(), 9 => 0..400 * MS, 9 => 0..3 * MS]
    }
}
