// SPDX-License-Identifier: Apache-2.0
//! Charges: what each client's work is taken to have occupied of the device between two observations.
//!
//! Samples say who had work that had not retired, not whose work ran. The device serves those who have work in turn and
//! evenly, so each of n busy clients is charged dt / n; the interval is split in the middle, its first half belongs to who
//! was busy at its beginning and its second half to who is busy at its end. While one client runs alone (always so in
//! Turns) this is exact up to half an interval at each end, without bias. Several streams of a client count once.
//!
//! Where the client's device time is known (`busy_ns`), it replaces what was charged since it was known last; it is taken
//! for at most the time for which the client was seen busy.

use crate::event::Observation;

/// What is remembered of a client between two observations of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    was_busy: bool,
    retired: Option<u64>,
    /// Last known device time.
    exact: Option<u64>,
    /// Charged from samples since.
    sampled: i64,
    /// Seen busy since, with an interval at each end.
    seen: i64,
}

/// How many clients were busy at both ends of an interval, uncontrolled processes included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    pub before: u32,
    pub after: u32,
}

impl Meter {
    /// Whether the client was busy at the last observation.
    pub fn was_busy(&self) -> bool {
        self.was_busy
    }

    /// Whether work retired since the last observation (false at the first).
    pub fn has_progressed(&self, seen: &Observation) -> bool {
        self.retired.is_some_and(|retired| retired != seen.retired)
    }

    /// The charge for the `dt` nanoseconds up to this observation; negative where too much was charged before.
    pub fn observe(&mut self, seen: &Observation, dt: u64, crowd: Crowd) -> i64 {
        let share = |is_busy: bool, crowd: u32| if is_busy { dt / 2 / u64::from(crowd.max(1)) } else { 0 };
        let mut charge = share(self.was_busy, crowd.before) + share(seen.is_busy, crowd.after);
        if !self.was_busy && !seen.is_busy && self.has_progressed(seen) {
            // It came and went between two looks: one unit, as far as it fits beside the others.
            charge = (dt / 2).min(seen.unit_ns) / u64::from(crowd.before.max(crowd.after) + 1);
        }
        let mut charge = signed(charge);
        self.sampled += charge;
        if self.was_busy || seen.is_busy || charge > 0 {
            self.seen += signed(dt);
        }
        if let Some(exact) = seen.busy_ns {
            match self.exact {
                Some(before) if exact > before => {
                    let known = signed(exact - before).min(self.seen + signed(dt));
                    charge += known - self.sampled;
                    (self.sampled, self.seen) = (0, 0);
                    self.exact = Some(exact);
                }
                Some(_) => {}
                None => {
                    (self.sampled, self.seen) = (0, 0);
                    self.exact = Some(exact);
                }
            }
        }
        self.was_busy = seen.is_busy;
        self.retired = Some(seen.retired);
        charge
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ClientKey;

    fn busy(is_busy: bool, busy_ns: Option<u64>) -> Observation {
        Observation {
            is_busy,
            busy_ns,
            ..Observation::idle(ClientKey(1))
        }
    }

    fn crowd(before: u32, after: u32) -> Crowd {
        Crowd { before, after }
    }

    #[test]
    fn busy_clients_split_an_interval_evenly() {
        let mut meter = Meter::default();
        assert_eq!(meter.observe(&busy(true, None), 0, crowd(0, 1)), 0);
        assert_eq!(meter.observe(&busy(true, None), 1000, crowd(1, 2)), 750);
        assert_eq!(meter.observe(&busy(true, None), 1000, crowd(4, 4)), 250);
        assert_eq!(meter.observe(&busy(false, None), 1000, crowd(1, 0)), 500);
        assert_eq!(meter.observe(&busy(false, None), 1000, crowd(0, 0)), 0);
    }

    #[test]
    fn a_burst_between_two_looks_costs_at_most_a_unit() {
        let mut meter = Meter::default();
        meter.observe(&busy(false, None), 0, crowd(0, 0));
        let mut seen = busy(false, None);
        (seen.retired, seen.unit_ns) = (1, 300);
        assert_eq!(meter.observe(&seen, 1000, crowd(0, 0)), 300);
        seen.retired = 2;
        assert_eq!(meter.observe(&seen, 1000, crowd(1, 1)), 150);
        assert_eq!(meter.observe(&seen, 1000, crowd(0, 0)), 0);
    }

    #[test]
    fn what_is_known_replaces_what_was_sampled() {
        let mut meter = Meter::default();
        meter.observe(&busy(true, Some(5_000)), 0, crowd(0, 1));
        let sampled = meter.observe(&busy(true, Some(5_000)), 1000, crowd(1, 1));
        let corrected = meter.observe(&busy(true, Some(5_900)), 1000, crowd(1, 1));
        assert_eq!((sampled, sampled + corrected), (1000, 900));
        // A figure beyond the time seen is not believed.
        let charge = meter.observe(&busy(true, Some(1_000_000)), 1000, crowd(1, 1));
        assert_eq!(charge, 2000);
    }
}
