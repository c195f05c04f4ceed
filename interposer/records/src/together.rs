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
//! Whenever anything of the client runs, everything of it that has begun runs. So a batch that began as soon as it could,
//! because it was queued behind another, grows the union by its own time less what the others took from there to its end.
//! One that was launched into an empty stream may have begun later than it could: because its launch came late, or because
//! others had the device. It ran until its end, so its own time is followed back from there. The union does not depend on
//! the order in which batches are taken in.

/// Stretches that are told apart. Of more, those with the least between them become one.
const STRETCHES: usize = 64;
/// What lies further back than this is forgotten if there is no room, in nanoseconds.
const MEMORY_NS: i64 = 100_000_000;
/// Others' slices are longer than this, in nanoseconds (the GPU's own are 2 ms).
const SLICE_NS: i64 = 1_000_000;
/// What two events or two batches may lie apart for no reason, in nanoseconds.
const SLACK_NS: i64 = 2_000;
/// A queued batch is its own for all its time if it took at most one part of so many more than it is expected to.
const ALIKE: i64 = 16;

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
}

/// From one moment of the GPU to another, and what the client's work took there.
#[derive(Clone, Copy, Default)]
struct Stretch {
    from: i64,
    to: i64,
    own: i64,
}

/// What the streams of one context did of late. All-zero memory is "nothing yet".
pub struct Together {
    /// In their order, apart from each other.
    stretches: [Stretch; STRETCHES],
    count: usize,
}

impl Default for Together {
    fn default() -> Self {
        Self {
            stretches: [Stretch::default(); STRETCHES],
            count: 0,
        }
    }
}

impl Stretch {
    /// Others had no slice in it.
    fn is_whole(&self) -> bool {
        self.own >= self.to.saturating_sub(self.from)
    }

    /// The part before a moment in it, and the part after that. Others' slices in it lie where there is room for them.
    fn split(self, at: i64) -> (Self, Self) {
        let (before, after) = (at.saturating_sub(self.from), self.to.saturating_sub(at));
        let missing = before.saturating_add(after).saturating_sub(self.own).max(0);
        let most = before.min(self.own);
        let least = self.own.saturating_sub(after).max(0).min(most);
        let slack = SLACK_NS.min(missing / 2);
        let own = match (
            before.saturating_add(slack) >= missing,
            after.saturating_add(slack) >= missing,
        ) {
            (true, false) => least,
            (false, true) => most,
            _ => least.saturating_add((most - least) / 2),
        };
        let part = |from, to, own| Self { from, to, own };
        (
            part(self.from, at, own),
            part(at, self.to, self.own.saturating_sub(own)),
        )
    }
}

impl Together {
    /// Takes in a batch, and answers by how much, in nanoseconds, the union grows.
    pub fn add(&mut self, batch: Batch) -> u64 {
        let (begin, end) = (batch.begin_ns, batch.end_ns);
        let took = end.saturating_sub(begin);
        let work = i64::try_from(batch.work_ns).unwrap_or(i64::MAX);
        if took <= 0 || work <= 0 {
            return 0;
        }
        let over = took.saturating_sub(work);
        let is_queued = batch.late_ns == 0;
        let at_once =
            is_queued || over > SLICE_NS && self.ran_until(begin) > begin.saturating_add_unsigned(batch.late_ns);
        // What ended before its second event came is followed back from where it ended if it began at once.
        let end = if batch.is_loose && (0..=SLICE_NS).contains(&over) {
            end.saturating_sub(over)
        } else {
            end
        };
        self.split_at(end);
        let grown = if at_once && over > SLICE_NS {
            self.split_at(begin);
            self.fill(begin, end, work)
        } else if over <= 0 || is_queued && over <= work / ALIKE {
            self.follow(begin, end, took)
        } else {
            self.follow(begin, end, work)
        };
        grown.unsigned_abs()
    }

    fn get(&self, index: usize) -> Option<Stretch> {
        self.stretches.get(index).filter(|_| index < self.count).copied()
    }

    /// The first stretch that ends after a moment.
    fn first_after(&self, at: i64) -> usize {
        let mut index = 0;
        while self.get(index).is_some_and(|stretch| stretch.to <= at) {
            index += 1;
        }
        index
    }

    /// The first stretch that begins at a moment or later.
    fn first_from(&self, at: i64) -> usize {
        let mut index = 0;
        while self.get(index).is_some_and(|stretch| stretch.from < at) {
            index += 1;
        }
        index
    }

    /// So that no stretch has this moment in it.
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

    /// Work that ended, followed back from its end for as long as it took: it ran wherever anything else did, and between.
    fn follow(&mut self, begin: i64, end: i64, work: i64) -> i64 {
        let (mut at, mut left, mut grown) = (end, work, 0_i64);
        while left > 0 && at > begin {
            // The last stretch that begins before this moment: none has it in it.
            let last = self.first_from(at).checked_sub(1).and_then(|index| self.get(index));
            let until = last.map_or(begin, |last| last.to.max(begin));
            let own = at.saturating_sub(until).min(left);
            let (from, to) = (at.saturating_sub(own), at);
            self.insert(Stretch { from, to, own });
            (left, grown) = (left.saturating_sub(own), grown.saturating_add(own));
            let Some(last) = last else { break };
            left = left.saturating_sub(last.own);
            at = last.from;
        }
        grown
    }

    /// Work that ran from one moment to another, with others' slices in between: wherever anything else did, in each gap
    /// too short for a slice, and for the rest of its time in the others.
    fn fill(&mut self, begin: i64, end: i64, work: i64) -> i64 {
        let mut left = work;
        let mut wide = 0_i64;
        let mut at = begin;
        let gap_at = |together: &Self, at: i64| {
            let next = together.get(together.first_after(at)).filter(|next| next.from < end);
            (next.map_or(end, |next| next.from), next)
        };
        while at < end {
            let (until, next) = gap_at(self, at);
            let gap = until.saturating_sub(at);
            if gap > SLICE_NS {
                wide = wide.saturating_add(gap);
            } else {
                left = left.saturating_sub(gap);
            }
            left = left.saturating_sub(next.map_or(0, |next| next.own));
            at = next.map_or(end, |next| next.to);
        }
        let (in_wide, mut grown) = (left.clamp(0, wide), 0_i64);
        at = begin;
        while at < end {
            let (until, next) = gap_at(self, at);
            let gap = until.saturating_sub(at);
            let part = i128::from(gap) * i128::from(in_wide) / i128::from(wide.max(1));
            let own = if gap > SLICE_NS { part as i64 } else { gap };
            if gap > 0 {
                let (from, to) = (at, until);
                self.insert(Stretch { from, to, own });
                grown = grown.saturating_add(own);
            }
            at = next.map_or(end, |next| next.to);
        }
        grown
    }

    /// Puts a stretch where there is none.
    fn insert(&mut self, new: Stretch) {
        if new.to <= new.from {
            return;
        }
        if self.count >= STRETCHES {
            self.make_room(new.to);
        }
        let index = self.first_after(new.from);
        // It continues the one before where neither has others' slices in it.
        if let Some(before) = index.checked_sub(1).and_then(|index| self.stretches.get_mut(index))
            && before.to == new.from
            && before.is_whole()
            && new.is_whole()
        {
            before.to = new.to;
            before.own = before.own.saturating_add(new.own);
            return;
        }
        if self.count < STRETCHES {
            self.count += 1;
            if let Some(rest) = self.stretches.get_mut(index..self.count) {
                rest.rotate_right(1);
            }
            if let Some(place) = self.stretches.get_mut(index) {
                *place = new;
            }
        }
    }

    /// Forgets the oldest stretch, or makes one of two.
    fn make_room(&mut self, now: i64) {
        let gap = |index: usize| {
            let (this, next) = (self.get(index)?, self.get(index + 1)?);
            Some(next.from.saturating_sub(this.to))
        };
        let is_old = self
            .get(0)
            .is_some_and(|first| first.to < now.saturating_sub(MEMORY_NS));
        let index = (0..self.count)
            .filter(|_| !is_old)
            .filter_map(|index| Some((gap(index)?, index)))
            .min();
        let index = index.map_or(0, |(_, index)| index);
        if !is_old && let (Some(this), Some(next)) = (self.get(index), self.get(index + 1)) {
            let merged = Stretch {
                from: this.from,
                to: next.to,
                own: this.own.saturating_add(next.own),
            };
            if let Some(place) = self.stretches.get_mut(index + 1) {
                *place = merged;
            }
        }
        if let Some(rest) = self.stretches.get_mut(index..self.count) {
            rest.rotate_left(1);
            self.count -= 1;
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
        }
    }

    #[test]
    fn one_after_the_other_each_counts_for_itself() {
        let mut all = Together::default();
        assert_eq!(all.add(batch(0, MS, MS)), MS as u64);
        assert_eq!(all.add(batch(MS, 2 * MS, MS)), MS as u64);
        assert_eq!(all.add(batch(9 * MS, 10 * MS, MS)), MS as u64);
    }

    #[test]
    fn what_lies_in_another_counts_for_nothing() {
        let mut all = Together::default();
        assert_eq!(all.add(batch(0, MS, MS)), MS as u64);
        assert_eq!(all.add(batch(MS / 4, MS / 2, MS / 4)), 0);
        assert_eq!(all.add(batch(MS / 2, 3 * MS / 2, MS)), MS as u64 / 2);
    }

    #[test]
    fn the_slices_of_others_count_for_nothing() {
        let mut all = Together::default();
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
        let mut all = Together::default();
        let late = Batch {
            late_ns: 1,
            ..batch(0, 3 * MS, MS)
        };
        assert_eq!(all.add(late), MS as u64);
        // It ran in the last millisecond.
        assert_eq!(all.add(batch(MS, 2 * MS, MS)), MS as u64);
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
        let mut together = Together::default();
        let mut told = 0;
        for (event, begun, ended, is_queued) in &all {
            told += together.add(Batch {
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
            (any::<i64>(), any::<i64>(), any::<u64>(), any::<u64>(), any::<bool>()), 0..200,
        )) {
            let mut all = Together::default();
            for (begin_ns, end_ns, work_ns, late_ns, is_loose) in batches {
                all.add(Batch { begin_ns, end_ns, work_ns, late_ns, is_loose });
            }
        }
    }
}
