// SPDX-License-Identifier: Apache-2.0
//! Words of the scheduler's states in documents.

use partage_scheduling::{Regime, TimeState};

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
