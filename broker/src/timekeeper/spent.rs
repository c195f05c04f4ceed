// SPDX-License-Identifier: Apache-2.0
//! The device time that a client's work took, from the lengths of what has retired.
//!
//! The client knows by events how long its units take when they have the device for themselves, and says with each batch
//! what it gave to the device ([`Work`]). What has retired took that, whoever had slices in between, and however late the
//! broker or the client came: the one measure that neither a busy processor nor a neighbour changes. Batches of one lane
//! run one after the other. Where lanes run together the client has the GPU time their batches, and says what those took
//! together ([`SpanSum`]) once it has read its events. Until then they count for the part that the last ones did:
//!
//! ```text
//!   time = settled + (retired − what is settled) · what of the last settled work was its own
//! ```
//! Batches that were not timed (the first ones beside others, the legacy default stream, overlapping kernels, more at once
//! than there are events for) are judged by looks. Where n lanes ran, each counts for an n-th:
//!
//! ```text
//!   time += Σ over lanes: retired · mean of 1/n over the looks that found the lane running since it last retired
//! ```
//! While others have slices nothing of the client runs, for longer than it does: before anything of it retires only the last
//! time counts, between half and all of what the shortest batch takes: what is left of one where a slice ends. A look finds
//! a lane the more often the longer it runs. What no look finds counts as work like it did of late, which is a little too few
//! where streams begin and end. Nothing is said while a part of what retires is of units that are not known ([`VAGUE`]), and
//! until some time after.

use partage_protocol::gate::{LANES, Progress, SpanSum, TimePage, Work};

/// What retired is known if at most one part of so many is of units that are not.
const VAGUE: u64 = 64;
/// After something unknown retired, so much has to retire that is known, in nanoseconds.
const TRUST_NS: u64 = 2_000_000;
/// Of so much work, in nanoseconds, it is remembered what part was its own; and the longest time that a look speaks for.
const MEMORY_NS: u64 = 20_000_000;
/// Lanes that ran together do so again soon.
const TOGETHER_NS: u64 = 50_000_000;
/// A whole lane, in the unit of parts.
const WHOLE: u128 = 1 << 20;

/// What is known of one client on one device.
#[derive(Clone, Debug, Default)]
pub struct Spent {
    lanes: [Lane; LANES],
    /// The client was looked at before.
    is_known: bool,
    /// What had retired of work without a lane. `None`: some was under way.
    unlaned: Option<Work>,
    /// Lanes that ran at the last look.
    running: usize,
    last_ns: u64,
    /// When lanes were last seen to run together.
    together_ns: Option<u64>,
    /// Device time of what retired and is not timed, since the client is known.
    busy_ns: u64,
    /// What retired and was known since something was not.
    trusted_ns: u64,
    /// Batches that the GPU times.
    timed: Timed,
    /// What was answered last.
    told_ns: u64,
    /// What was its own of the work that retired of late, for what came and went between two looks: where nothing followed
    /// in its lane, and where something did.
    recent: [Parts; 2],
}

/// Batches that the GPU times.
#[derive(Clone, Debug, Default)]
struct Timed {
    /// What retired of them.
    retired_ns: u64,
    /// What of that is settled, and its time.
    settled: SpanSum,
    /// What the client said last.
    said: SpanSum,
    /// What part of the last settled work was the client's own.
    share: Parts,
}

#[derive(Clone, Copy, Debug)]
struct Lane {
    /// What had retired at the last look. `None`: nobody could say.
    done: Option<Work>,
    is_running: bool,
    /// The most that retired at once, of late.
    batch_ns: u64,
    /// Since it last retired, until anything of the client last did.
    parts: Parts,
    /// Since then.
    quiet: Parts,
}

/// What part of the time in which a lane ran, or of its work, was its own.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    ran_ns: u128,
    own: u128,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            // Nothing, before the first.
            done: Some(Work::default()),
            is_running: false,
            batch_ns: u64::MAX,
            parts: Parts::default(),
            quiet: Parts::default(),
        }
    }
}

impl Parts {
    fn add(&mut self, ns: u64, running: usize) {
        self.ran_ns += u128::from(ns);
        self.own += u128::from(ns) * WHOLE / running.max(1) as u128;
    }

    /// Takes over what another has.
    fn take(&mut self, other: &mut Self) {
        let other = std::mem::take(other);
        self.ran_ns += other.ran_ns;
        self.own += other.own;
    }

    /// Forgets all but about the last so many nanoseconds.
    fn keep_last(&mut self, ns: u64) {
        let ns = u128::from(ns);
        if self.ran_ns > ns.saturating_mul(2) {
            self.own = self.own / self.ran_ns * ns;
            self.ran_ns = ns;
        }
    }

    /// So much of the work that retired was its own.
    fn learn(&mut self, ns: u64, own_ns: u64) {
        self.ran_ns += u128::from(ns);
        self.own += u128::from(own_ns) * WHOLE;
        if self.ran_ns > u128::from(MEMORY_NS) {
            (self.ran_ns, self.own) = (self.ran_ns / 2, self.own / 2);
        }
    }

    fn of(&self, ns: u64) -> Option<u64> {
        let own = u128::from(ns).checked_mul(self.own)? / (self.ran_ns * WHOLE).max(1);
        (self.ran_ns > 0).then(|| u64::try_from(own).unwrap_or(ns).min(ns))
    }
}

impl Timed {
    /// So much retired. `guess_ns` would it have taken as far as looks tell.
    fn retire(&mut self, ns: u64, guess_ns: u64) {
        self.retired_ns = self.retired_ns.saturating_add(ns);
        if self.share.ran_ns == 0 {
            self.share.learn(ns, guess_ns);
        }
    }

    /// The client says more. The numbers are its own: they may be anything.
    fn settle(&mut self, said: SpanSum) {
        let timed_ns = said.timed_ns.saturating_sub(self.said.timed_ns);
        let own_ns = said.own_ns.saturating_sub(self.said.own_ns);
        self.said = said;
        let timed_ns = timed_ns.min(self.retired_ns.saturating_sub(self.settled.timed_ns));
        // Batches that wait for each other take longer than each by itself.
        let own_ns = own_ns.min(timed_ns.saturating_mul(LANES as u64));
        if timed_ns > 0 {
            self.share.learn(timed_ns, own_ns);
        }
        self.settled.timed_ns = self.settled.timed_ns.saturating_add(timed_ns);
        self.settled.own_ns = self.settled.own_ns.saturating_add(own_ns);
    }

    /// The time of all that retired.
    fn own_ns(&self) -> u64 {
        let ahead_ns = self.retired_ns.saturating_sub(self.settled.timed_ns);
        let own_ns = self.share.of(ahead_ns).unwrap_or(ahead_ns);
        self.settled.own_ns.saturating_add(own_ns)
    }
}

impl Spent {
    /// Looks at the client's page. `is_alone`: nobody else had work on the device since the last look. Answers the device
    /// time that its work took since it is known, if that is known of all that has retired of late.
    pub fn look(&mut self, page: &TimePage, is_alone: bool, now: u64) -> Option<u64> {
        // First: what is settled retired before.
        let settled = page.spans.read();
        let unlaned = page.done_unlaned();
        let mut seen = [Progress::default(); LANES];
        let mut used = 0;
        for (seen, progress) in seen.iter_mut().zip(page.progress()) {
            *seen = progress;
            used += 1;
        }
        self.book(&seen[..used], unlaned, settled, is_alone, now)
    }

    /// Whether that is of lanes that ran together, of late.
    pub fn is_rough(&self) -> bool {
        let since = self.together_ns.map(|at| self.last_ns.saturating_sub(at));
        since.is_some_and(|since| since < TOGETHER_NS)
    }

    fn book(
        &mut self,
        seen: &[Progress],
        unlaned: Option<Work>,
        settled: Option<SpanSum>,
        is_alone: bool,
        now: u64,
    ) -> Option<u64> {
        let was_known = std::mem::replace(&mut self.is_known, true);
        let retired_unlaned = unlaned.zip(std::mem::replace(&mut self.unlaned, unlaned));
        let mut retired = retired_unlaned.map(|(now, before)| now.since(before));
        let mut new = [None; LANES];
        for ((new, lane), progress) in new.iter_mut().zip(&mut self.lanes).zip(seen) {
            let done = progress.done.zip(std::mem::replace(&mut lane.done, progress.done));
            *new = done.filter(|_| was_known).map(|(now, before)| now.since(before));
            retired = retired.zip(*new).map(|(sum, new)| sum.plus(new));
        }
        let half = now.saturating_sub(self.last_ns).min(MEMORY_NS) / 2;
        self.last_ns = now;
        let before = self.running;
        self.running = seen.iter().filter(|progress| progress.is_running).count();
        if self.running > 1 {
            self.together_ns = Some(now);
        }
        let running = self.lanes.iter().filter(|lane| lane.is_running);
        let shortest = running.map(|lane| lane.batch_ns).min().unwrap_or(u64::MAX);
        let is_own = is_alone || new.iter().flatten().any(|new| new.ns > 0);
        let mut own_ns = 0_u64;
        for ((lane, progress), new) in self.lanes.iter_mut().zip(seen).zip(new) {
            // Half the time since the last look was as that one found it, the other half as this one does.
            if lane.is_running {
                lane.quiet.add(half, before);
            }
            if is_own {
                lane.parts.take(&mut lane.quiet);
            } else {
                lane.quiet.keep_last(shortest / 2);
            }
            if let Some(new) = new.filter(|new| new.ns > 0) {
                let recent = &mut self.recent[usize::from(progress.is_running)];
                let own = match lane.parts.of(new.ns) {
                    Some(own) => {
                        recent.learn(new.ns, own);
                        own
                    }
                    None => recent.of(new.ns).unwrap_or(new.ns),
                };
                let timed_ns = new.timed_ns.min(new.ns);
                let part = |ns: u64| (u128::from(own) * u128::from(ns) / u128::from(new.ns)) as u64;
                own_ns = own_ns.saturating_add(part(new.ns - timed_ns));
                if timed_ns > 0 {
                    self.timed.retire(timed_ns, part(timed_ns));
                }
                let faded = if lane.batch_ns == u64::MAX {
                    0
                } else {
                    lane.batch_ns - lane.batch_ns / 8
                };
                lane.batch_ns = new.ns.max(faded);
                lane.parts = Parts::default();
            }
            if progress.is_running {
                lane.quiet.add(half, self.running);
            }
            lane.is_running = progress.is_running;
        }
        self.busy_ns = self.busy_ns.saturating_add(own_ns);
        if let Some(settled) = settled {
            self.timed.settle(settled);
        }
        // What turns out to be less than it seemed is made up for by what comes.
        let busy_ns = self.busy_ns.saturating_add(self.timed.own_ns());
        self.told_ns = self.told_ns.max(busy_ns);
        // The numbers are the client's: they may be anything.
        match retired {
            Some(retired) if retired.vague_ns <= retired.ns / VAGUE => {
                self.trusted_ns = self.trusted_ns.saturating_add(retired.ns);
            }
            _ => self.trusted_ns = 0,
        }
        (self.trusted_ns >= TRUST_NS).then_some(self.told_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[derive(Default)]
    struct Case {
        spent: Spent,
        now: u64,
        done: [Work; 4],
        is_alone: bool,
        is_timed: bool,
        settled: SpanSum,
    }

    impl Case {
        fn new() -> Self {
            let mut case = Self {
                is_alone: true,
                ..Self::default()
            };
            assert_eq!(
                case.look([0; 4], 0, [false; 4]),
                None,
                "nothing is known before the second look"
            );
            case
        }

        /// A tenth of a millisecond later so much has retired in each lane, and those run.
        fn look(&mut self, ns: [u64; 4], vague_ns: u64, is_running: [bool; 4]) -> Option<u64> {
            self.now += MS / 10;
            for (done, ns) in self.done.iter_mut().zip(ns) {
                *done = done.plus(Work {
                    ns,
                    vague_ns: vague_ns.min(ns),
                    units: u64::from(ns > 0),
                    timed_ns: if self.is_timed { ns } else { 0 },
                });
            }
            self.show(is_running)
        }

        fn show(&mut self, is_running: [bool; 4]) -> Option<u64> {
            let seen: Vec<Progress> = self
                .done
                .iter()
                .zip(is_running)
                .map(|(done, is_running)| Progress {
                    done: Some(*done),
                    is_running,
                })
                .collect();
            self.spent.book(
                &seen,
                Some(Work::default()),
                Some(self.settled),
                self.is_alone,
                self.now,
            )
        }

        fn one(&mut self, ns: u64, vague_ns: u64) -> Option<u64> {
            self.look([ns, 0, 0, 0], vague_ns, [true, false, false, false])
        }
    }

    #[test]
    fn what_one_lane_retires_is_what_it_took() {
        let mut case = Case::new();
        for _ in 0..20 {
            case.one(MS / 8, 0);
        }
        assert_eq!(case.one(0, 0), Some(20 * MS / 8));
        assert_eq!(case.look([7, 0, 0, 0], 0, [false; 4]), Some(20 * MS / 8 + 7));
    }

    #[test]
    fn lanes_that_run_together_took_the_time_once() {
        let mut case = Case::new();
        for _ in 0..1_000 {
            case.look([MS / 10; 4], 0, [true; 4]);
        }
        let busy = case.look([0; 4], 0, [true; 4]).expect("known");
        assert!((99 * MS..=101 * MS).contains(&busy), "{busy}");
        // One after the other each counts for itself at once.
        case.look([MS / 10; 4], 0, [true, false, false, false]);
        let busy = case.one(0, 0).expect("known");
        for _ in 0..1_000 {
            case.one(MS / 10, 0);
        }
        assert_eq!(case.one(0, 0), Some(busy + 100 * MS));
    }

    #[test]
    fn what_events_tell_of_lanes_that_run_together_is_what_they_took() {
        let mut case = Case::new();
        case.is_timed = true;
        // Two lanes, of which looks find both running; events tell that they ran one after the other half of the time.
        for _ in 0..100 {
            case.look([MS / 10, MS / 10, 0, 0], 0, [true, true, false, false]);
            case.settled.timed_ns += MS / 5;
            case.settled.own_ns += MS * 3 / 20;
        }
        let is_near = |busy: Option<u64>, ns: u64| busy.is_some_and(|busy| busy.abs_diff(ns) < 1_000);
        let busy = case.look([0; 4], 0, [true, true, false, false]);
        assert!(is_near(busy, 15 * MS), "{busy:?}");
        // What is not settled yet counts for as much.
        let busy = case.look([MS / 10, MS / 10, 0, 0], 0, [true, true, false, false]);
        assert!(is_near(busy, 15 * MS + MS * 3 / 20), "{busy:?}");
        // It turns out to be less, and is made up for.
        case.settled.timed_ns += MS / 5;
        case.settled.own_ns += MS / 10;
        assert_eq!(case.look([0; 4], 0, [true; 4]), busy);
        case.look([MS / 10, 0, 0, 0], 0, [true; 4]);
        case.settled.timed_ns += MS / 10;
        case.settled.own_ns += MS / 10;
        let busy = case.look([0; 4], 0, [true; 4]);
        assert!(is_near(busy, 15 * MS + MS / 5), "{busy:?}");
    }

    #[test]
    fn a_client_that_tells_too_much_is_believed_what_retired() {
        let mut case = Case::new();
        case.is_timed = true;
        case.settled = SpanSum {
            timed_ns: u64::MAX,
            own_ns: u64::MAX,
        };
        for _ in 0..30 {
            case.one(MS / 10, 0);
        }
        assert_eq!(case.one(0, 0), Some(29 * MS / 10 + LANES as u64 * MS / 10));
    }

    #[test]
    fn what_is_not_known_says_nothing_until_enough_is() {
        let mut case = Case::new();
        for _ in 0..30 {
            case.one(MS / 10, 0);
        }
        assert!(case.one(0, 0).is_some());
        assert_eq!(case.one(MS, MS / 10), None);
        for _ in 0..19 {
            assert_eq!(case.one(MS / 10, 0), None);
        }
        assert!(case.one(MS / 10, 0).is_some());
        // A queue that is too long to tell.
        case.now += 1;
        let unclear = [Progress {
            done: None,
            is_running: true,
        }];
        assert_eq!(
            case.spent.book(&unclear, Some(Work::default()), None, true, case.now),
            None
        );
        assert_eq!(case.one(MS, 0), None);
        for _ in 0..3 {
            case.one(MS, 0);
        }
        assert!(case.one(0, 0).is_some());
        // Work without a lane.
        assert_eq!(case.spent.book(&[], None, None, true, case.now + 1), None);
    }

    /// A long kernel after many short ones, beside a shorter one of another stream: most of it runs alone.
    #[test]
    fn a_long_kernel_after_short_ones_counts_for_all_its_time() {
        let mut case = Case::new();
        for _ in 0..40 {
            case.look([MS / 10, 0, 0, 0], 0, [true, false, false, false]);
        }
        let before = case
            .look([MS / 10, 0, 0, 0], 0, [true, false, false, false])
            .expect("known");
        for _ in 0..10 {
            case.look([0; 4], 0, [true, true, false, false]);
        }
        case.look([0, MS, 0, 0], 0, [true, false, false, false]);
        for _ in 0..88 {
            case.look([0; 4], 0, [true, false, false, false]);
        }
        let took = case.look([10 * MS, 0, 0, 0], 0, [false; 4]).expect("known") - before;
        assert!((9_900_000..=10_100_000).contains(&took), "{took}");
    }

    #[test]
    fn streams_that_run_together_are_told_from_others() {
        let mut case = Case::new();
        case.look([1, 1, 0, 0], 0, [true, false, false, false]);
        assert!(!case.spent.is_rough());
        case.look([1, 1, 0, 0], 0, [true, true, false, false]);
        assert!(case.spent.is_rough());
        for _ in 0..499 {
            case.one(1, 0);
        }
        assert!(case.spent.is_rough());
        case.one(1, 0);
        assert!(!case.spent.is_rough());
    }

    #[test]
    fn numbers_that_cannot_be_break_nothing() {
        let mut case = Case::new();
        for ns in [u64::MAX, 1, u64::MAX / 2, 0, u64::MAX] {
            case.look([ns; 4], 0, [ns % 3 == 0; 4]);
        }
        assert!(case.one(u64::MAX, 0).is_some_and(|busy| busy > MS));
        case.now = 0;
        case.one(MS, 0);
    }

    /// A small random source.
    struct Random(u64);

    impl Random {
        fn between(&mut self, least: u64, most: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            least + (self.0 >> 33) % (most - least + 1)
        }
    }

    /// A stream on a device that runs those of a client beside each other: when each of its units begins and ends.
    fn units(random: &mut Random, turns: u64, unit_ns: u64, gap_ns: u64) -> Vec<(u64, u64)> {
        let mut units = Vec::new();
        for turn in 0..turns {
            // A turn of 4 ms in every 10 ms; streams begin and end as their launches come.
            let mut at = turn * 10 * MS + random.between(0, 300_000);
            while at < turn * 10 * MS + 4 * MS {
                units.push((at, at + unit_ns));
                at += unit_ns + random.between(0, gap_ns);
            }
        }
        units
    }

    /// `others` have slices of 2 ms, too.
    fn error_ppm(seed: u64, streams: usize, (unit_ns, gap_ns): (u64, u64), looks_ns: (u64, u64), others: u64) -> u64 {
        const SLICE: u64 = 2 * MS;
        const TURNS: u64 = 400;
        let mut random = Random(seed);
        let lanes: Vec<_> = (0..streams)
            .map(|_| units(&mut random, TURNS, unit_ns, gap_ns))
            .collect();
        let mut all: Vec<(u64, u64)> = lanes.iter().flatten().copied().collect();
        all.sort_unstable();
        let mut reached = 0;
        let union: u64 = all
            .iter()
            .map(|&(begin, end)| {
                let own = end.saturating_sub(begin.max(reached));
                reached = reached.max(end);
                own
            })
            .sum();
        let mut case = Case::new();
        (case.now, case.is_alone) = (0, others == 0);
        let device = |now: u64| {
            let round = SLICE * (1 + others);
            now / round * SLICE + (now % round).min(SLICE)
        };
        while device(case.now) < TURNS * 10 * MS {
            case.now += random.between(looks_ns.0, looks_ns.1);
            let mut is_running = [false; 4];
            for (lane, units) in lanes.iter().enumerate() {
                let ended = units.partition_point(|unit| unit.1 <= device(case.now));
                case.done[lane] = Work {
                    ns: ended as u64 * unit_ns,
                    vague_ns: 0,
                    units: ended as u64,
                    timed_ns: 0,
                };
                is_running[lane] = units.get(ended).is_some_and(|unit| unit.0 <= device(case.now));
            }
            case.show(is_running);
        }
        let busy = case.show([false; 4]).expect("known");
        busy.abs_diff(union) * 1_000_000 / union
    }

    /// Four seconds of the device, of which its streams have two fifths.
    #[test]
    fn streams_beside_each_other_are_charged_what_they_took_together() {
        const LENGTHS: [(u64, u64); 5] = [
            (20_000, 2_000),
            (200_000, 0),
            (200_000, 20_000),
            (500_000, 100_000),
            (MS, 0),
        ];
        // Looks as often as they are to be, and as late as a busy machine makes them.
        // While others have slices it is less sure when whose streams stood still.
        for (others, looks, most_ppm) in [
            (0, (50_000, 150_000), 5_000),
            (0, (100_000, 500_000), 10_000),
            (1, (50_000, 150_000), 20_000),
            (3, (50_000, 150_000), 20_000),
            (3, (100_000, 500_000), 30_000),
        ] {
            for lengths in LENGTHS {
                for (streams, seed) in [1, 2, 4].into_iter().zip(1..) {
                    let error = error_ppm(seed, streams, lengths, looks, others);
                    let most_ppm = if streams == 1 { 0 } else { most_ppm };
                    assert!(
                        error <= most_ppm,
                        "{streams} streams of {lengths:?} ns, looks {looks:?}, {others} others: {error} ppm"
                    );
                }
            }
        }
    }
}
