// SPDX-License-Identifier: Apache-2.0
//! Charges: the device time that each client is taken to have used between two samples.
//!
//! ```text
//!   sampled   a client counts at a sample if it has work that has not retired, n clients do:
//!             s = dt/2 · [counts at the first sample] / n there + dt/2 · [counts at the second] / n there
//!   known     when work of known length retires:
//!             charge = that time − what was sampled of this client since work of it last retired
//!   the rest  what a known client was sampled for and did not use goes to clients of unknown length:
//!             charge += (sampled − known) / n for each of the n that counted since work of the known one last retired
//! ```
//! While one client counts at a time (always so in Turns) the first rule alone is exact up to half an interval at each
//! end, without bias. Where several do, the device gives them slices, which no sample sees; lengths do not care.
//!
//! Time that the device takes to switch is charged to the clients of unknown length, or, while charges come from
//! samples, to every client that counts: 1 % of the time with slices of 2 ms and switches of 20 µs.

use crate::DeviceTime;

/// So much of the time for which a client counted, and nothing was known, is left for what becomes known later: where
/// its streams run beside each other, a part of their work retires in one sample and the rest in the next. Nanoseconds.
const CARRIED_NS: i64 = 100_000_000;

/// What is remembered of a client between two samples of a device.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// It counted at the sample before the last, and counts at the last.
    counted: bool,
    counts: bool,
    /// Last known device time.
    exact: Option<u64>,
    /// It has not risen since it became known: a part of what retires next may have been charged before.
    is_fresh: bool,
    /// Charged from samples since it last rose, in so much time.
    sampled: i64,
    passed: u64,
    /// Time for which the client counted, at either end, and nothing known was charged yet.
    seen: i64,
}

/// How many clients counted at both ends of an interval, uncontrolled processes included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crowd {
    /// At the sample before the last.
    pub before: u32,
    /// At the last one.
    pub after: u32,
}

/// What a client is charged for an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Negative where too much was charged before.
    pub ns: i64,
    /// What the client was sampled for and did not use; negative where it used more.
    pub left_ns: i64,
    /// In the last so many nanoseconds.
    pub passed_ns: u64,
}

impl Meter {
    /// Whether the client counts at the last sample.
    pub fn counts(&self) -> bool {
        self.counts
    }

    /// What retired since the last sample is no measure: it is charged as it was sampled.
    pub fn begin_anew(&mut self) {
        self.exact = None;
    }

    /// Takes over a sample. `is_busy`: work of the client has not retired.
    pub fn sample(&mut self, is_busy: bool) {
        self.counted = core::mem::replace(&mut self.counts, is_busy);
    }

    /// The charge for the `dt` nanoseconds up to the last sample, at which `time` was known of the client.
    pub fn charge(&mut self, time: DeviceTime, dt: u64, crowd: Crowd) -> Charge {
        let share = |counts: bool, n: u32| if counts { dt / 2 / u64::from(n.max(1)) } else { 0 };
        let sampled = signed(share(self.counted, crowd.before) + share(self.counts, crowd.after));
        let charge = Charge {
            ns: sampled,
            ..Charge::default()
        };
        if time.is_estimate {
            self.exact = None;
            return charge;
        }
        let exact = time.ns;
        self.sampled += sampled;
        // Others that came before this client had work are no part of it.
        self.passed = if self.sampled == 0 {
            0
        } else {
            self.passed.saturating_add(dt)
        };
        if self.counted || self.counts {
            self.seen += signed(dt);
        }
        let Some(before) = self.exact.replace(exact) else {
            (self.is_fresh, self.sampled, self.passed, self.seen) = (true, 0, 0, 0);
            return charge;
        };
        if exact <= before {
            return charge;
        }
        let (sampled, passed) = (core::mem::take(&mut self.sampled), core::mem::take(&mut self.passed));
        if core::mem::take(&mut self.is_fresh) {
            self.seen = 0;
            return charge;
        }
        let known = signed(exact - before).min(self.seen + signed(dt));
        self.seen = (self.seen - known).clamp(0, CARRIED_NS);
        Charge {
            ns: charge.ns + known - sampled,
            left_ns: sampled - known,
            passed_ns: passed,
        }
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: DeviceTime = DeviceTime {
        ns: 0,
        is_estimate: false,
    };

    /// One client beside so many others at each end of an interval.
    struct Case {
        meter: Meter,
        time: DeviceTime,
    }

    impl Case {
        fn new(time: DeviceTime) -> Self {
            Self {
                meter: Meter::default(),
                time,
            }
        }

        fn charge(&mut self, is_busy: bool, dt: u64, others: (u32, u32)) -> Charge {
            let before = others.0 + u32::from(self.meter.counts());
            self.meter.sample(is_busy);
            let after = others.1 + u32::from(self.meter.counts());
            self.meter.charge(self.time, dt, Crowd { before, after })
        }
    }

    #[test]
    fn busy_clients_split_an_interval_evenly() {
        let mut case = Case::new(DeviceTime::UNKNOWN);
        let mut charge = |is_busy, dt, others| case.charge(is_busy, dt, others).ns;
        assert_eq!(charge(true, 0, (0, 0)), 0);
        assert_eq!(charge(true, 1000, (0, 1)), 750);
        assert_eq!(charge(true, 1000, (3, 3)), 250);
        assert_eq!(charge(false, 1000, (0, 0)), 500);
        assert_eq!(charge(false, 1000, (0, 0)), 0);
    }

    #[test]
    fn what_is_known_replaces_what_was_sampled_and_says_what_is_left() {
        let mut case = Case::new(KNOWN);
        case.charge(true, 0, (1, 1));
        // The first that retires may have been charged before.
        case.time.ns += 7;
        assert_eq!(
            case.charge(true, 1000, (1, 1)),
            Charge {
                ns: 500,
                ..Charge::default()
            }
        );
        assert_eq!(case.charge(true, 1000, (1, 1)).ns, 500);
        case.time.ns += 300;
        assert_eq!(
            case.charge(true, 1000, (1, 1)),
            Charge {
                ns: 500 + 300 - 1000,
                left_ns: 700,
                passed_ns: 2000
            }
        );
        case.time.ns += 900;
        assert_eq!(
            case.charge(true, 1000, (1, 1)),
            Charge {
                ns: 900,
                left_ns: -400,
                passed_ns: 1000
            }
        );
        // What it came to have without being sampled is its own, too.
        case.charge(false, 1000, (1, 1));
        case.time.ns += 200;
        case.charge(false, 1000, (1, 1));
        case.time.ns += 200;
        assert_eq!(case.charge(false, 1000, (1, 1)).ns, 200);
        case.time = DeviceTime::UNKNOWN;
        assert_eq!(case.charge(true, 1000, (1, 1)).ns, 250);
    }

    #[test]
    fn no_figure_is_more_than_the_time_that_was_seen() {
        let mut case = Case::new(KNOWN);
        for ns in [0, 1, 2] {
            case.time.ns = ns;
            case.charge(true, 1_000_000_000, (1, 1));
        }
        case.time.ns = u64::MAX;
        assert_eq!(case.charge(true, 1000, (1, 1)).ns, CARRIED_NS + 2000);
    }

    /// Streams beside each other retire what they did in the same time one after the other.
    #[test]
    fn what_retires_right_after_something_else_is_believed() {
        let mut case = Case::new(KNOWN);
        case.charge(true, 0, (1, 1));
        let mut charged = 0;
        for round in 1..=200 {
            for (after, retired) in [(500, 125), (20, 375), (80, 0)] {
                case.time.ns += retired;
                charged += case.charge(true, after, (1, 1)).ns;
            }
            let own = 500 * round;
            assert!(charged.abs_diff(own) <= 600, "{charged} of {own}");
        }
    }
}
