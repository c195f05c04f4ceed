// SPDX-License-Identifier: Apache-2.0
//! A job's terms of device time: as asked, as a device can promise them, and which caller may ask for them.
//!
//! *Promise*, *cap*, *weight*, *class* and *time limit* as in [`partage_protocol::terms`]; parts are millionths of a
//! device's time ("ppm") and hold on each of the job's devices. Nothing here measures or schedules: the terms are kept,
//! admitted, shown ([`Action::ShowTerms`](crate::Action::ShowTerms)) and changed.
//!
//! Invariants: on every device Σ promises of live jobs ≤ 1,000,000 × `compute_overcommit`, unless a broker before
//! allowed more; a promise is at most its job's cap; on a managed host only an administrator gives a class above
//! `max_class`.

use partage_protocol::size::format_duration;
use partage_protocol::terms::{Class, DEFAULT_WEIGHT, WHOLE_PPM, format_part};
use serde::{Deserialize, Serialize};

/// What a job may have of the time of each of its devices; part of its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Terms {
    /// Promised part; 0 for none.
    pub promise_ppm: u32,
    /// Part never exceeded.
    pub cap_ppm: Option<u32>,
    /// Weight beside other jobs without a promise.
    pub weight: u32,
    /// Whose work goes first.
    pub class: Class,
    /// How long the job may run from its admission on.
    pub time_limit_ns: Option<u64>,
    /// What set them.
    pub origin: TermsOrigin,
}

/// Which words set a job's terms, for `why`; each empty where nothing did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TermsOrigin {
    /// `--compute 30%`, …
    pub promise: String,
    /// `CUDA_DEVICE_SM_LIMIT=50`, …
    pub cap: String,
    /// `--weight 300`, …
    pub weight: String,
    /// `PARTAGE_PRIORITY=low`, …
    pub class: String,
    /// `--time-limit 1h`, …
    pub time_limit: String,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            promise_ppm: 0,
            cap_ppm: None,
            weight: DEFAULT_WEIGHT,
            class: Class::default(),
            time_limit_ns: None,
            origin: TermsOrigin::default(),
        }
    }
}

impl Terms {
    /// The promise of other terms.
    pub(crate) fn keep_promise_of(&mut self, other: &Self) {
        self.promise_ppm = other.promise_ppm;
        self.origin.promise.clone_from(&other.origin.promise);
    }

    /// The time limit of other terms.
    pub(crate) fn keep_time_limit_of(&mut self, other: &Self) {
        self.time_limit_ns = other.time_limit_ns;
        self.origin.time_limit.clone_from(&other.origin.time_limit);
    }

    /// Are the numbers the same, whatever set them?
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        let origin = TermsOrigin::default;
        let numbers = |terms: &Self| Self {
            origin: origin(),
            ..terms.clone()
        };
        numbers(self) == numbers(other)
    }

    /// `promise 30 %, cap 50 %, weight 300, priority low`: what differs from the usual; empty where nothing does.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut parts = Vec::new();
        if self.promise_ppm > 0 {
            parts.push(format!("promise {}", format_part(self.promise_ppm)));
        }
        if let Some(cap) = self.cap_ppm {
            parts.push(format!("cap {}", format_part(cap)));
        }
        if self.weight != DEFAULT_WEIGHT {
            parts.push(format!("weight {}", self.weight));
        }
        if self.class != Class::default() {
            parts.push(format!("priority {}", self.class));
        }
        if let Some(limit_ns) = self.time_limit_ns {
            parts.push(format!("at most {}", format_duration(limit_ns)));
        }
        parts.join(", ")
    }

    /// As the scheduler knows them; `user` is whose other jobs it shares one part of the time with, if any.
    pub(crate) const fn on_a_device(&self, user: Option<u32>, is_gang: bool) -> partage_scheduling::Terms {
        partage_scheduling::Terms {
            promise_ppm: self.promise_ppm,
            weight: self.weight,
            class: self.class,
            user,
            cap_ppm: self.cap_ppm,
            is_gang,
        }
    }
}

/// Millionths for people; more than the whole where the configuration overcommits.
pub(crate) fn part(ppm: u64) -> String {
    let whole = u64::from(WHOLE_PPM);
    match u32::try_from(ppm) {
        Ok(ppm) if ppm <= WHOLE_PPM => format_part(ppm),
        _ => format!("{} %", ppm.saturating_mul(100) / whole),
    }
}
