// SPDX-License-Identifier: Apache-2.0
//! Words of states in documents: of jobs, and of the scheduler; and the terms of a job.

use partage_protocol::admin::{STATES, TermsView};
use partage_protocol::terms::ratio;
use partage_scheduling::{Regime, TimeState};

use crate::job::JobState;
use crate::terms::Terms;

impl JobState {
    /// The word that users see.
    #[must_use]
    pub const fn word(self) -> &'static str {
        // Their order is that of the variants.
        STATES[self as usize]
    }
}

/// The word that users see.
pub(crate) const fn state_word(state: TimeState) -> &'static str {
    match state {
        TimeState::Open => "open",
        TimeState::Waiting => "waiting",
        TimeState::Capped => "capped",
        TimeState::Idle => "idle",
        TimeState::NotDraining => "not draining",
    }
}

/// The word that users see.
pub(crate) const fn regime_word(regime: Regime) -> &'static str {
    match regime {
        Regime::Overlap => "overlap",
        Regime::Turns => "turns",
    }
}

impl Terms {
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
