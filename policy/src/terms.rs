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

use partage_protocol::admin::{ErrorView, RunRequest, TermsChange, TermsView};
use partage_protocol::size::{NONE, format_duration};
use partage_protocol::terms::{
    Class, DEFAULT_WEIGHT, TermError, WHOLE_PPM, cap_of, format_part, parse_cap, parse_class, parse_promise,
    parse_time_limit, parse_weight, ratio,
};
use partage_protocol::time_aliases::{TimeVariable, asked};
use serde::{Deserialize, Serialize};

use crate::caller::Caller;
use crate::refusal::{invalid, unusable_alias};

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

/// `--compute 30%: …`.
fn wrong(name: &str, why: &TermError) -> ErrorView {
    invalid(format!("{name}: {why}"), None)
}

impl Terms {
    /// Judges what `run` asks.
    ///
    /// # Errors
    /// `Invalid`, naming what is wrong.
    pub fn from_request(request: &RunRequest, is_on: impl Fn(TimeVariable) -> bool) -> Result<Self, ErrorView> {
        let written = |flag: &str, value: &str| {
            let twin = format!("PARTAGE_{}", flag[2..].replace('-', "_").to_ascii_uppercase());
            match request.from_variables.contains(&twin) {
                true => format!("{twin}={value}"),
                false => format!("{flag} {value}"),
            }
        };
        let mut terms = Self::default();
        let said = &mut terms.origin;
        if let Some(text) = &request.compute {
            terms.promise_ppm = parse_promise(text).map_err(|why| wrong("--compute", &why))?;
            said.promise = written("--compute", text);
        }
        if let Some(text) = &request.compute_max {
            terms.cap_ppm = parse_cap(text).map_err(|why| wrong("--compute-max", &why))?;
            said.cap = written("--compute-max", text);
        }
        if let Some(text) = &request.weight {
            terms.weight = parse_weight(text).map_err(|why| wrong("--weight", &why))?;
            said.weight = written("--weight", text);
        }
        if let Some(text) = &request.priority {
            terms.class = parse_class(text).map_err(|why| wrong("--priority", &why))?;
            said.class = written("--priority", text);
        }
        if let Some(limit_ns) = request.time_limit_ns {
            if limit_ns == 0 {
                return Err(invalid("--time-limit 0s is no time to run in".into(), None));
            }
            terms.time_limit_ns = Some(limit_ns);
            said.time_limit = written("--time-limit", &format_duration(limit_ns));
        }
        let is_silent = request.compute.is_none() && request.compute_max.is_none();
        let counts = |variable| match variable {
            TimeVariable::TaskPriority => request.priority.is_none() && is_on(variable),
            TimeVariable::SmLimit | TimeVariable::ActiveThreads => is_silent && is_on(variable),
        };
        let aliases = asked(&request.aliases, counts).map_err(|why| {
            let is_class = TimeVariable::of(why.name().as_bytes()) == Some(TimeVariable::TaskPriority);
            let instead = if is_class {
                "--priority CLASS"
            } else {
                "--compute-max PCT"
            };
            unusable_alias(&why, instead)
        })?;
        if let Some(cap) = aliases.cap {
            terms.cap_ppm = cap_of(cap.value);
            terms.origin.cap = cap.text;
        }
        if let Some(class) = aliases.class {
            terms.class = class.value;
            terms.origin.class = class.text;
        }
        terms.check_cap()?;
        Ok(terms)
    }

    /// Its cap from now on, which these words set.
    pub(crate) fn set_cap(&mut self, cap_ppm: Option<u32>, text: String) {
        self.cap_ppm = cap_ppm;
        self.origin.cap = text;
    }

    /// This class, which these words set, where it is a lower one.
    pub(crate) fn lower_class(&mut self, class: Class, text: String) {
        if class < self.class {
            self.class = class;
            self.origin.class = text;
        }
    }

    /// A promise within the cap.
    fn check_cap(&self) -> Result<(), ErrorView> {
        match self.cap_ppm {
            Some(cap) if self.promise_ppm > cap => Err(invalid(
                format!(
                    "a promise of {} is more than the cap of {}",
                    format_part(self.promise_ppm),
                    format_part(cap)
                ),
                Some("promise at most the cap: lower compute, or raise compute-max".into()),
            )),
            _ => Ok(()),
        }
    }

    /// These terms after `partage set`; `None` where the change says nothing about them.
    pub(crate) fn changed(&self, change: &TermsChange, caller: &Caller) -> Result<Option<Self>, ErrorView> {
        if change.is_empty() {
            return Ok(None);
        }
        let mut terms = self.clone();
        let written = |key: &str, value: &str| format!("partage set {key}={value} by {}", caller.user);
        if let Some(text) = &change.compute {
            terms.promise_ppm = match text.as_str() {
                NONE => 0,
                text => parse_promise(text).map_err(|why| wrong("compute", &why))?,
            };
            terms.origin.promise = written("compute", text);
        }
        if let Some(text) = &change.compute_max {
            terms.cap_ppm = match text.as_str() {
                NONE => None,
                text => parse_cap(text).map_err(|why| wrong("compute-max", &why))?,
            };
            terms.origin.cap = written("compute-max", text);
        }
        if let Some(text) = &change.weight {
            terms.weight = parse_weight(text).map_err(|why| wrong("weight", &why))?;
            terms.origin.weight = written("weight", text);
        }
        if let Some(text) = &change.priority {
            terms.class = parse_class(text).map_err(|why| wrong("priority", &why))?;
            terms.origin.class = written("priority", text);
        }
        if let Some(text) = &change.time_limit {
            terms.time_limit_ns = match text.as_str() {
                NONE => None,
                text => Some(parse_time_limit(text).map_err(|why| wrong("time-limit", &why))?),
            };
            terms.origin.time_limit = written("time-limit", text);
        }
        terms.check_cap()?;
        Ok(Some(terms))
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

    /// As the scheduler knows them.
    pub(crate) const fn on_a_device(&self, is_gang: bool) -> partage_scheduling::Terms {
        partage_scheduling::Terms {
            promise_ppm: self.promise_ppm,
            weight: self.weight,
            class: self.class,
            cap_ppm: self.cap_ppm,
            is_gang,
        }
    }

    /// As users see them. `started_unix_ns` is none while the job waits.
    pub(crate) fn view(&self, started_unix_ns: Option<u64>, sees: bool) -> TermsView {
        let from = |text: &String| if sees { text.clone() } else { String::new() };
        let ends_ns = |limit_ns| Some(started_unix_ns?.saturating_add(limit_ns));
        TermsView {
            promise: ratio(self.promise_ppm),
            cap: self.cap_ppm.map(ratio),
            weight: self.weight,
            priority: self.class.word().to_owned(),
            time_limit_ns: self.time_limit_ns,
            ends_ns: self.time_limit_ns.and_then(ends_ns),
            promise_from: from(&self.origin.promise),
            cap_from: from(&self.origin.cap),
            weight_from: from(&self.origin.weight),
            priority_from: from(&self.origin.class),
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
