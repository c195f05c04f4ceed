// SPDX-License-Identifier: Apache-2.0
//! Charges: what each client's work is taken to have occupied of the device between two observations.
//!
//! Samples say who had work that had not retired, not whose work ran. The device serves those who have work in turn and
//! evenly, so each of n busy clients is charged dt / n; the interval is split in the middle, its first half belongs to who
//! was busy at its beginning and its second half to who is busy at its end. While one client runs alone (always so in
//! Turns) this is exact up to half an interval at each end, without bias. Several streams of a client count once. A device
//! on which nobody had work is looked at seldom: there a unit that is still on it counts from when its client says that it
//! came.
//!
//! Who comes while others run waits for the end of their slice. Where the client's units are short this shows: nothing of
//! it retires. Until something does (or for two slices) the time is the others'; the unit that then retires was its own
//! from its beginning, whatever was charged to whom meanwhile, and so is the rest of half a slice, as long as nothing of
//! the others retires: from there on an even split is as often too little as too much.
//!
//! Where the device time of what has retired is known (`busy_ns`), it replaces what was charged since it was known last (but
//! see [`Crowd::is_known`]); it
//! is taken for at most the time for which the client was seen busy so far. What retires first after it was not known is
//! left as it was charged.
//!
//! Who is only sampled beside others whose time is known is charged what they leave: what one of them had less than its
//! samples say the sampled ones had more, slice by slice. What the device took to switch is nobody's (`efficiency`): while
//! always the same number of clients has work, each has slices as often as the others, and what is missing in what one had
//! went there.

use crate::efficiency::{Compared, Efficiency, Rounds};
use crate::event::Observation;

/// Units no longer than this show by what retires whether their client's work runs.
pub(crate) const SHORT_NS: u64 = 1_000_000;

/// So much of the time for which a client was seen busy, and nothing was known, is left for what becomes known later: where
/// its streams run beside each other, a part of their work retires in one look and the rest in the next. Nanoseconds.
const CARRIED_NS: i64 = 100_000_000;

/// What is remembered of a client between two observations of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    is_busy: bool,
    /// It is taken to run at times: it was busy, and not only waiting for the slices of others, at the last observation
    /// and at the one before.
    counts: bool,
    counted: bool,
    /// When it came while others ran, until its first work retires.
    arrived_ns: Option<u64>,
    /// Its first slice lasts until then.
    leads_ns: Option<u64>,
    progressed: bool,
    /// One unit that was its own although the time was charged to others.
    first_ns: u64,
    looked_ns: u64,
    retired: Option<u64>,
    /// Last known device time.
    exact: Option<u64>,
    /// It has not risen since it became known: of what retires next a part may have been charged before.
    is_fresh: bool,
    /// Charged from samples since.
    sampled: i64,
    /// The same, less what the device took to switch.
    worth: i64,
    /// For how long it was there since, and of that beside clients that are only sampled.
    passed: i64,
    beside: i64,
    /// Since one of its slices began, while as many count at each look as at that one.
    rounds: Option<Rounds>,
    /// For how long nothing of it retired, while its time is known.
    still_ns: u64,
    /// Seen busy, with an interval at each end, for which nothing known was charged yet.
    seen: i64,
}

/// How many clients counted at both ends of an interval, uncontrolled processes included.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crowd {
    pub before: u32,
    pub after: u32,
    /// Nobody was there before, and somebody is for so long (see `Device::since`).
    pub since_ns: Option<u64>,
    /// What was within the interval the own time of clients that were not seen as busy.
    pub first_ns: u64,
    /// What is known of the time of retired work replaces samples.
    pub is_known: bool,
    /// What a sampled time was of work, where others had work, too.
    pub efficiency: Efficiency,
    /// Somebody whose time is only sampled was busy at one end.
    pub has_sampled: bool,
    /// The device's own slice.
    pub slice_ns: u64,
}

impl Crowd {
    /// As many count at the end as at the beginning, more than one, and all of them were seen.
    fn is_steady(&self) -> bool {
        self.before == self.after && self.after > 1 && self.first_ns == 0
    }

    /// What of an interval belongs to who counted at its beginning, and to who counts at its end.
    fn parts(&self, dt: u64) -> [u64; 2] {
        self.since_ns.map_or([dt / 2; 2], |since| [0, since.min(dt)])
    }
}

/// What a client is charged for an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    /// Negative where too much was charged before.
    pub ns: i64,
    /// Of what was sampled beside clients that are only sampled, what it did not have, and no switch, but they. Nanoseconds;
    /// negative where it had more.
    pub left_ns: i64,
    /// Its work in whole rounds beside always as many others.
    pub compared: Option<Compared>,
}

impl Meter {
    /// Whether it is charged for the half interval before the last observation.
    pub fn counts(&self) -> bool {
        self.counts
    }

    /// Whether work retired since the last observation (false at the first).
    pub fn has_progressed(&self, seen: &Observation) -> bool {
        self.retired.is_some_and(|retired| retired != seen.retired)
    }

    /// Takes over an observation, and says whether the client counts among those whose work runs. `is_crowded`: others
    /// have work, too.
    pub fn look(&mut self, seen: &Observation, now: u64, is_crowded: bool, slice_ns: u64) {
        let progressed = self.has_progressed(seen);
        self.progressed = progressed;
        self.counted = self.counts;
        self.first_ns = 0;
        if seen.is_busy && !self.is_busy && is_crowded && (1..=SHORT_NS).contains(&seen.unit_ns) && !progressed {
            self.arrived_ns = Some(now);
        }
        if let Some(arrived) = self.arrived_ns {
            if progressed {
                self.first_ns = seen.unit_ns.min(now.saturating_sub(arrived));
                self.leads_ns = Some(now + (slice_ns / 2).saturating_sub(seen.unit_ns));
            }
            if progressed || !seen.is_busy || !is_crowded || now.saturating_sub(arrived) >= 2 * slice_ns {
                self.arrived_ns = None;
            }
        } else if !self.is_busy && !seen.is_busy && progressed {
            // It came and went between two looks.
            self.first_ns = seen.unit_ns.min(now.saturating_sub(self.looked_ns));
        }
        if !seen.is_busy || !is_crowded || self.leads_ns.is_some_and(|until| now >= until) {
            self.leads_ns = None;
        }
        self.looked_ns = now;
        self.is_busy = seen.is_busy;
        self.counts = seen.is_busy && self.arrived_ns.is_none();
        self.retired = Some(seen.retired);
    }

    /// How many of the ends of the last interval it is charged for.
    pub fn ends(&self) -> i64 {
        i64::from(self.counted) + i64::from(self.counts)
    }

    /// Whether its first slice lasts.
    pub fn leads(&self) -> bool {
        self.leads_ns.is_some()
    }

    /// Another leads: this client's work does not run, unless something of it retired now, which ends the other's slice
    /// (false).
    pub fn yields(&mut self, has_just_begun: bool) -> bool {
        if self.progressed && !has_just_begun {
            return false;
        }
        self.counts = false;
        true
    }

    /// Its first slice is over before its time.
    pub fn follow(&mut self) {
        self.leads_ns = None;
    }

    /// Whether it began to lead at the last observation.
    pub fn has_just_begun(&self) -> bool {
        self.leads_ns.is_some() && self.first_ns > 0
    }

    /// What was not seen as its own and is its own all the same: the unit that has now retired, however many looks ago it
    /// began.
    pub fn first_ns(&self) -> u64 {
        self.first_ns
    }

    /// The charge for the `dt` nanoseconds up to this observation.
    pub fn charge(&mut self, seen: &Observation, dt: u64, crowd: &Crowd) -> Charge {
        let share = |counts: bool, n: u32, part: u64| if counts { part / u64::from(n.max(1)) } else { 0 };
        let [first, second] = crowd.parts(dt);
        let parts = [(self.counted, crowd.before, first), (self.counts, crowd.after, second)];
        let counted = u64::from(self.counted) + u64::from(self.counts);
        // What others had within the interval is not his who was seen.
        let taken = signed(crowd.first_ns * counted / u64::from((crowd.before + crowd.after).max(1)));
        let own = signed(self.first_ns) - taken;
        let sum = |worth: &dyn Fn(i64) -> i64| -> i64 {
            let parts = parts.map(|(counts, n, part)| (signed(share(counts, n, part)), n));
            parts
                .iter()
                .map(|&(part, n)| if n > 1 { worth(part) } else { part })
                .sum()
        };
        let (sampled, worth) = (own + sum(&|part| part), own + sum(&|part| crowd.efficiency.of(part)));
        let is_there = self.counted || self.counts || sampled > 0 || self.is_busy;
        if is_there {
            self.seen += signed(dt);
        }
        let is_steady = counted == 2 && crowd.is_steady();
        if !is_steady {
            self.rounds = None;
        }
        let Some(exact) = seen.busy_ns else {
            (self.exact, self.rounds) = (None, None);
            return Charge {
                ns: worth,
                ..Charge::default()
            };
        };
        self.still_ns = self.still_ns.saturating_add(dt);
        self.sampled += sampled;
        self.worth += worth;
        if is_there {
            self.passed += signed(dt);
            self.beside += if crowd.has_sampled { signed(dt) } else { 0 };
        }
        let mut charge = Charge {
            ns: sampled,
            ..Charge::default()
        };
        let Some(before) = self.exact else {
            (self.exact, self.is_fresh) = (Some(exact), true);
            return charge;
        };
        if exact <= before {
            return charge;
        }
        let still_ns = std::mem::take(&mut self.still_ns);
        let [sampled_ns, worth_ns, passed_ns, beside_ns] =
            [&mut self.sampled, &mut self.worth, &mut self.passed, &mut self.beside].map(std::mem::take);
        self.exact = Some(exact);
        if std::mem::take(&mut self.is_fresh) {
            self.seen = 0;
            return charge;
        }
        let most = self.seen + signed(dt);
        let known_ns = signed(exact - before).min(most);
        // It took longer than alone, and had work all the while (or no rounds are kept): others had slices, and now it has
        // another.
        let is_next = signed(still_ns) > known_ns + signed(crowd.slice_ns / 4 * 3);
        if known_ns == most || seen.is_rough || !is_steady {
            self.rounds = None;
        } else if let Some(rounds) = &mut self.rounds {
            charge.compared = rounds.add(Compared { known_ns, sampled_ns }, is_next);
        } else if is_next {
            self.rounds = Some(Rounds::new(known_ns));
        }
        if crowd.is_known {
            charge.ns += known_ns - sampled_ns;
            charge.left_ns = part(worth_ns - known_ns, beside_ns, passed_ns);
            self.seen = (self.seen - known_ns).clamp(0, CARRIED_NS);
        } else {
            self.seen = 0;
        }
        charge
    }
}

/// So much of `ns` as `of`, which is no more, is of `all`.
fn part(ns: i64, of: i64, all: i64) -> i64 {
    i64::try_from(i128::from(ns) * i128::from(of) / i128::from(all.max(1))).unwrap_or(0)
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ClientKey;

    const SLICE_NS: u64 = 2_000_000;

    struct Case {
        meter: Meter,
        now: u64,
        seen: Observation,
        since_ns: Option<u64>,
        is_known: bool,
        efficiency: Efficiency,
        has_sampled: bool,
    }

    impl Case {
        fn new(unit_ns: u64) -> Self {
            let mut seen = Observation::idle(ClientKey(1));
            seen.unit_ns = unit_ns;
            Self {
                meter: Meter::default(),
                now: 0,
                seen,
                since_ns: None,
                is_known: true,
                efficiency: Efficiency::default(),
                has_sampled: false,
            }
        }

        /// Nanoseconds charged after `dt` beside so many others (before, after).
        fn look(&mut self, is_busy: bool, retires: bool, dt: u64, others: (u32, u32)) -> i64 {
            self.charge(is_busy, retires, dt, others).ns
        }

        fn charge(&mut self, is_busy: bool, retires: bool, dt: u64, others: (u32, u32)) -> Charge {
            self.now += dt;
            self.seen.is_busy = is_busy;
            self.seen.retired += u64::from(retires);
            let before = others.0 + u32::from(self.meter.counts());
            self.meter.look(&self.seen, self.now, others.1 > 0, SLICE_NS);
            let crowd = Crowd {
                before,
                after: others.1 + u32::from(self.meter.counts()),
                since_ns: self.since_ns,
                first_ns: self.meter.first_ns(),
                is_known: self.is_known,
                efficiency: self.efficiency,
                has_sampled: self.has_sampled,
                slice_ns: SLICE_NS,
            };
            self.meter.charge(&self.seen, dt, &crowd)
        }
    }

    #[test]
    fn busy_clients_split_an_interval_evenly() {
        let mut case = Case::new(0);
        assert_eq!(case.look(true, false, 0, (0, 0)), 0);
        assert_eq!(case.look(true, true, 1000, (0, 1)), 750);
        assert_eq!(case.look(true, true, 1000, (3, 3)), 250);
        assert_eq!(case.look(false, true, 1000, (0, 0)), 500);
        assert_eq!(case.look(false, false, 1000, (0, 0)), 0);
    }

    #[test]
    fn who_comes_to_an_idle_device_is_charged_from_then_on() {
        let mut case = Case::new(0);
        case.look(false, false, 0, (0, 0));
        case.since_ns = Some(200);
        assert_eq!(case.look(true, false, 10_000, (0, 1)), 100);
        case.since_ns = None;
        assert_eq!(case.look(true, false, 1_000, (1, 1)), 500);
        // No longer than since the last look.
        let mut case = Case::new(0);
        case.look(false, false, 0, (0, 0));
        case.since_ns = Some(u64::MAX);
        assert_eq!(case.look(true, false, 10_000, (0, 0)), 10_000);
    }

    #[test]
    fn a_burst_between_two_looks_costs_at_most_a_unit() {
        let mut case = Case::new(300);
        case.look(false, false, 0, (0, 0));
        assert_eq!(case.look(false, true, 1000, (0, 0)), 300);
        assert_eq!(case.look(false, true, 1000, (1, 1)), 300);
        assert_eq!(case.look(false, false, 1000, (0, 0)), 0);
    }

    #[test]
    fn short_units_cost_nothing_before_the_first_retires() {
        let mut case = Case::new(20_000);
        case.look(false, false, 0, (1, 1));
        assert_eq!(case.look(true, false, 100_000, (1, 1)), 0);
        assert_eq!(case.look(true, false, 100_000, (1, 1)), 0);
        let first = case.look(true, true, 100_000, (1, 1));
        assert!((20_000..=45_000).contains(&first), "{first}");
        assert_eq!(case.look(true, true, 100_000, (1, 1)), 50_000);
        // Not for ever: what never retires is charged after two slices.
        let mut case = Case::new(20_000);
        case.look(false, false, 0, (1, 1));
        let charges: Vec<i64> = (0..60).map(|_| case.look(true, false, 100_000, (1, 1))).collect();
        assert_eq!((charges[39], charges[59]), (0, 50_000));
    }

    #[test]
    fn a_unit_that_lasts_for_several_looks_is_charged_whole_to_him_whose_it_was() {
        let mut case = Case::new(1_000_000);
        case.look(false, false, 0, (1, 1));
        let charges: Vec<i64> = (0..8).map(|at| case.look(at < 7, at == 7, 200_000, (1, 1))).collect();
        assert_eq!(charges, [0, 0, 0, 0, 0, 0, 0, 1_000_000]);
        // No longer than it was there for.
        let mut case = Case::new(1_000_000);
        case.look(false, false, 0, (1, 1));
        case.look(true, false, 200_000, (1, 1));
        case.look(true, false, 200_000, (1, 1));
        assert_eq!(case.look(false, true, 200_000, (1, 1)), 400_000);
        // The other gives it back.
        let mut other = Case::new(200_000);
        other.look(true, true, 0, (0, 0));
        other.seen.retired += 1;
        other.now += 200_000;
        other.meter.look(&other.seen, other.now, true, 2_000_000);
        let crowd = Crowd {
            before: 1,
            after: 1,
            since_ns: None,
            first_ns: 1_000_000,
            is_known: true,
            efficiency: Efficiency::default(),
            has_sampled: false,
            slice_ns: SLICE_NS,
        };
        assert_eq!(other.meter.charge(&other.seen, 200_000, &crowd).ns, -800_000);
    }

    #[test]
    fn what_is_known_replaces_what_was_sampled() {
        let mut case = Case::new(0);
        case.seen.busy_ns = Some(4_500);
        case.look(true, false, 0, (0, 0));
        // What retires first was charged before it was known, in part.
        case.seen.busy_ns = Some(5_000);
        assert_eq!(case.look(true, false, 700, (0, 0)), 700);
        let sampled = case.look(true, false, 1000, (0, 0));
        case.seen.busy_ns = Some(5_900);
        let corrected = case.look(true, false, 1000, (0, 0));
        assert_eq!((sampled, sampled + corrected), (1000, 900));
        // A figure beyond the time seen so far, of which 900 are charged, is not believed.
        case.seen.busy_ns = Some(1_000_000);
        assert_eq!(case.look(true, false, 1000, (0, 0)), 3100);
    }

    /// As if it was sampled beside another, of whom slices of 2 ms are known, 20 µs apart.
    #[test]
    fn what_samples_are_worth_is_told_by_steady_slices_only() {
        let compared = |others: fn(u64) -> u32| {
            let mut case = Case::new(0);
            let (mut busy, mut found) = (0, Vec::new());
            for look in 0..505u64 {
                let at = look * 200_000;
                busy = at / 4_040_000 * 2_000_000 + (at % 4_040_000).min(2_000_000);
                case.seen.busy_ns = Some(busy);
                let n = others(look);
                found.extend(case.charge(true, true, 200_000, (n, n)).compared);
            }
            (
                busy,
                found.iter().fold(Compared::default(), |mut sum, more| {
                    sum.add(*more);
                    sum
                }),
            )
        };
        let (busy, sum) = compared(|_| 1);
        assert!(sum.known_ns >= signed(busy) * 3 / 4, "{sum:?} of {busy}");
        let ppm = sum.known_ns * 1_000_000 / sum.sampled_ns;
        assert!((985_000..=995_000).contains(&ppm), "{ppm}");
        // The other pauses in each second slice, or is not there.
        assert_eq!(compared(|look| u32::from(look % 20 < 18)).1, Compared::default());
        assert_eq!(compared(|_| 0).1, Compared::default());
    }

    #[test]
    fn who_is_only_sampled_is_charged_what_samples_are_worth_beside_others() {
        let mut case = Case::new(0);
        case.efficiency.learn(
            Compared {
                known_ns: 99_000_000,
                sampled_ns: 100_000_000,
            },
            0,
        );
        case.look(true, false, 0, (1, 1));
        assert_eq!(case.look(true, false, 2_000, (1, 1)), 990);
        assert_eq!(case.look(true, false, 2_000, (0, 0)), 2_000);
        // What is known needs no help, until it is.
        case.seen.busy_ns = Some(0);
        assert_eq!(case.look(true, false, 2_000, (1, 1)), 1_000);
    }

    #[test]
    fn what_is_known_is_left_where_others_are_only_sampled() {
        let mut case = Case::new(0);
        case.is_known = false;
        case.seen.busy_ns = Some(0);
        case.look(true, false, 0, (1, 1));
        for busy in [100, 200, 300] {
            case.seen.busy_ns = Some(busy);
            assert_eq!(case.look(true, true, 1_000, (1, 1)), 500);
        }
        // Nothing of that time is made up for.
        case.is_known = true;
        case.seen.busy_ns = Some(10_000);
        assert_eq!(case.look(true, true, 1_000, (1, 1)), 2_000);
    }

    #[test]
    fn what_one_did_not_have_is_left_to_who_was_there_all_the_while() {
        let left = |beside: usize, busy: u64| {
            let mut case = Case::new(0);
            case.seen.busy_ns = Some(0);
            case.charge(true, false, 0, (1, 1));
            case.seen.busy_ns = Some(1);
            case.charge(true, true, 2_000, (1, 1));
            for look in 1..=10 {
                case.has_sampled = look > 10 - beside;
                case.seen.busy_ns = Some(if look < 10 { 1 } else { busy });
                let charge = case.charge(true, look == 10, 2_000, (1, 1));
                if look == 10 {
                    return charge.left_ns;
                }
            }
            unreachable!()
        };
        assert_eq!(left(10, 7_001), 3_000);
        assert_eq!(left(1, 7_001), 300);
        assert_eq!(left(0, 7_001), 0);
        assert_eq!(left(10, 15_001), -5_000);
    }

    #[test]
    fn what_looks_divided_among_streams_says_nothing_about_samples() {
        for is_rough in [false, true] {
            let mut case = Case::new(0);
            let mut found = 0;
            case.seen.is_rough = is_rough;
            for look in 0..200_u64 {
                // Ten looks of work, ten of nothing.
                case.seen.busy_ns = Some((look / 20 * 10 + (look % 20).min(10)) * 198_000);
                found += usize::from(case.charge(true, true, 200_000, (1, 1)).compared.is_some());
            }
            assert_eq!(found > 0, !is_rough, "{found}");
        }
    }

    #[test]
    fn time_seen_long_ago_makes_no_figure_right() {
        let mut case = Case::new(0);
        case.seen.busy_ns = Some(0);
        case.look(true, false, 0, (0, 0));
        for busy in [1, 2] {
            case.seen.busy_ns = Some(busy);
            case.look(true, false, 1_000_000_000, (1, 1));
        }
        case.seen.busy_ns = Some(u64::MAX);
        assert_eq!(case.look(true, false, 1000, (1, 1)), CARRIED_NS + 2000);
    }

    /// Streams beside each other retire what they did in the same time one after the other.
    #[test]
    fn what_retires_right_after_something_else_is_believed() {
        let mut case = Case::new(0);
        let (mut busy, mut charged) = (0, 0);
        case.seen.busy_ns = Some(busy);
        case.look(true, false, 0, (0, 0));
        for round in 1..=200 {
            for (after, retired) in [(500, 125), (20, 375), (80, 0)] {
                busy += retired;
                case.seen.busy_ns = Some(busy);
                charged += case.look(true, false, after, (1, 1));
            }
            let own = 500 * round;
            assert!(charged.abs_diff(own) <= 600, "{charged} of {own}");
        }
    }
}
