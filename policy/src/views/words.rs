// SPDX-License-Identifier: Apache-2.0
//! Words of states in documents: of jobs, and of the scheduler.

use partage_protocol::admin::STATES;
use partage_scheduling::{Regime, TimeState};

use crate::job::JobState;

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
