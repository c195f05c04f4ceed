// SPDX-License-Identifier: Apache-2.0
//! Regimes: when the jobs of a device overlap and when they take turns.
//!
//! Turns cost nothing and measure exactly when each job fills its turn, so they are taken when two jobs or more want
//! the device without pause; and always while memory must be swapped. Overlap fills gaps, so it is the rule for
//! everything else, the way out when turns leave the device idle, and the way out of every drain that does not end.

use partage_protocol::units::JobId;

use crate::command::Regime;
use crate::config::Config;

const PPM: i64 = 1_000_000;
/// Time constant of the measured efficiency.
const EFFICIENCY_NS: i64 = 100_000_000;
/// Longest time for which turns that did not pay are not tried again.
const LONGEST_REST_NS: u64 = 60_000_000_000;

/// What a regime is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence {
    /// Jobs with a client on the device.
    pub present: usize,
    /// Jobs that have wanted the device nearly all the time.
    pub saturated: usize,
    /// Of these, how many for long enough to begin turns.
    pub proven: usize,
    /// Longest unit of these.
    pub unit_ns: u64,
    /// A client does not drain.
    pub is_stuck: bool,
    /// Processes that nobody controls use the device.
    pub is_unmanaged: bool,
    /// A job that may have more on the device than its clients are allowed now, from a time when it was alone.
    pub deep: Option<JobId>,
}

/// The regime of a device and why it is not another.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    regime: Regime,
    since_ns: u64,
    pub is_forced: bool,
    /// Turns are not tried before.
    not_before_ns: u64,
    backoff_ns: u64,
    /// A drain did not end, with these jobs.
    has_failed: bool,
    efficiency_ppm: i64,
}

impl Rule {
    pub fn new(config: &Config) -> Self {
        Self {
            regime: Regime::Overlap,
            since_ns: 0,
            is_forced: false,
            not_before_ns: 0,
            backoff_ns: config.hysteresis_ns,
            has_failed: false,
            efficiency_ppm: PPM,
        }
    }

    pub fn regime(&self) -> Regime {
        self.regime
    }

    /// Other jobs are there: turns may be tried again.
    pub fn forget(&mut self, config: &Config) {
        self.has_failed = false;
        self.backoff_ns = config.hysteresis_ns;
        self.not_before_ns = self.not_before_ns.min(self.since_ns + config.hysteresis_ns);
    }

    /// Books an interval during which somebody wanted the device.
    pub fn book(&mut self, dt: u64, is_busy: bool) {
        let dt = i64::try_from(dt).unwrap_or(i64::MAX).min(EFFICIENCY_NS);
        let target = if is_busy { PPM } else { 0 };
        self.efficiency_ppm += (target - self.efficiency_ppm) * dt / (EFFICIENCY_NS + dt);
    }

    /// Whether jobs are to take turns, as soon as nothing is in flight that would make the first drain long.
    pub fn is_wanted(&self, now: u64, evidence: &Evidence, config: &Config) -> bool {
        let pays = evidence.proven >= 2 && evidence.unit_ns <= config.turns_unit_ns && !evidence.is_unmanaged;
        let may = now >= self.not_before_ns || (self.is_forced && !self.has_failed);
        self.regime == Regime::Overlap && may && !evidence.is_stuck && (self.is_forced || pays)
    }

    /// The other regime and why, if it is time.
    pub fn judge(&mut self, now: u64, evidence: &Evidence, config: &Config) -> Option<(Regime, &'static str)> {
        let held = now.saturating_sub(self.since_ns) >= config.hysteresis_ns;
        let is_proven = now.saturating_sub(self.since_ns) >= config.evidence_ns;
        match self.regime {
            Regime::Overlap if !self.is_wanted(now, evidence, config) => None,
            // The first time, what is in flight has to be drained anyway.
            Regime::Overlap if self.is_forced && (evidence.deep.is_none() || !self.has_failed) => {
                self.change(Regime::Turns, now, "the device must be one job's alone")
            }
            Regime::Overlap if !self.is_forced && evidence.deep.is_none() => {
                self.change(Regime::Turns, now, "several jobs want the device without pause")
            }
            Regime::Overlap => None,
            Regime::Turns if self.is_forced => None,
            Regime::Turns if evidence.present < 2 => self.leave(now, "one job is alone"),
            Regime::Turns if held && evidence.saturated < 2 => {
                self.backoff_ns = config.hysteresis_ns;
                self.leave(now, "fewer than two jobs want the device without pause")
            }
            Regime::Turns if held && evidence.is_unmanaged => {
                self.leave(now, "processes outside of our control use the device")
            }
            Regime::Turns if held && evidence.unit_ns > config.turns_unit_ns => {
                self.leave(now, "units are too long to wait for in turns")
            }
            Regime::Turns if is_proven && self.efficiency_ppm < i64::from(config.turns_efficiency_ppm) => {
                self.backoff_ns = (self.backoff_ns * 4).min(LONGEST_REST_NS);
                self.leave(now, "turns left the device idle")
            }
            Regime::Turns => None,
        }
    }

    /// A drain did not end.
    pub fn give_up(&mut self, now: u64) -> Option<(Regime, &'static str)> {
        self.has_failed = true;
        if !self.is_forced {
            self.backoff_ns = (self.backoff_ns * 2).min(LONGEST_REST_NS);
        }
        self.leave(now, "the device did not drain in time")
    }

    fn leave(&mut self, now: u64, why: &'static str) -> Option<(Regime, &'static str)> {
        self.not_before_ns = now + self.backoff_ns;
        self.change(Regime::Overlap, now, why)
    }

    fn change(&mut self, regime: Regime, now: u64, why: &'static str) -> Option<(Regime, &'static str)> {
        self.regime = regime;
        self.since_ns = now;
        self.efficiency_ppm = PPM;
        Some((regime, why))
    }
}
