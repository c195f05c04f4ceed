// SPDX-License-Identifier: Apache-2.0
//! Regimes: when the jobs of a device overlap and when they take turns.
//!
//! Turns cost nothing and measure exactly when each job fills its turn, so they are taken when two jobs or more want the
//! device without pause; and always while memory must be swapped. Overlap fills gaps, so it is the rule for everything
//! else, the way out when turns leave the device idle, and the way out of every drain that does not end.

use crate::command::Regime;
use crate::config::Config;

const PPM: i64 = 1_000_000;
/// Time constant of the measured efficiency.
const EFFICIENCY_NS: i64 = 250_000_000;
/// Longest time for which turns that did not pay are not tried again.
const LONGEST_NS: u64 = 60_000_000_000;

/// What a regime is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence {
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
            efficiency_ppm: PPM,
        }
    }

    pub fn regime(&self) -> Regime {
        self.regime
    }

    /// Other jobs are there: turns may be tried again.
    pub fn forget(&mut self, config: &Config) {
        self.backoff_ns = config.hysteresis_ns;
        self.not_before_ns = self.not_before_ns.min(self.since_ns + config.hysteresis_ns);
    }

    /// Books an interval during which somebody wanted the device.
    pub fn book(&mut self, dt: u64, is_busy: bool) {
        let dt = i64::try_from(dt).unwrap_or(i64::MAX).min(EFFICIENCY_NS);
        let target = if is_busy { PPM } else { 0 };
        self.efficiency_ppm += (target - self.efficiency_ppm) * dt / (EFFICIENCY_NS + dt);
    }

    /// The other regime and why, if it is time.
    pub fn judge(&mut self, now: u64, evidence: &Evidence, config: &Config) -> Option<(Regime, &'static str)> {
        let held = now.saturating_sub(self.since_ns) >= config.hysteresis_ns;
        match self.regime {
            Regime::Overlap => {
                if now < self.not_before_ns || evidence.is_stuck {
                    None
                } else if self.is_forced {
                    self.change(Regime::Turns, now, "the device must be one job's alone")
                } else if evidence.proven >= 2 && evidence.unit_ns <= config.turns_unit_ns && !evidence.is_unmanaged {
                    self.change(Regime::Turns, now, "several jobs want the device without pause")
                } else {
                    None
                }
            }
            Regime::Turns if self.is_forced => None,
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
            Regime::Turns if held && self.efficiency_ppm < i64::from(config.turns_efficiency_ppm) => {
                self.backoff_ns = (self.backoff_ns * 2).min(LONGEST_NS);
                self.leave(now, "turns left the device idle")
            }
            Regime::Turns => None,
        }
    }

    /// A drain did not end.
    pub fn give_up(&mut self, now: u64) -> Option<(Regime, &'static str)> {
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
