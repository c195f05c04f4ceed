// SPDX-License-Identifier: Apache-2.0
//! Where a job's memory is: the states, what can turn them, and the state that follows, as one table.
//!
//! ```text
//!            Leave               Left              Come
//!   Here ────────────► Leaving ────────► Away ────────────► Coming ──┐
//!    │ ▲                 │  ▲                                ▲ │ │   │ Opened
//!    │ │                 │  └────────────── NoRoom ──────────┼─┘ │   ▼
//!    │ │                 └───────────────── Back ────────────┤   │  Here
//!    │ └── Opened ── Moving ──────────────── Back ───────────┤   │ Poisoned
//!    ├── Move ────────►  ├ NoRoom ► Leaving                  │   ▼
//!    └── Save ────────► Saving ───────────── Back ───────────┘  Poisoned ── Left ► Away
//! ```
//! *Back* is every way home that is no `resume`: a step failed, or a save has its snapshot. Whatever state has no
//! process left is *Opened* in the end: a process of the job that waits at its `cuInit` may begin.

use serde::{Deserialize, Serialize};

use crate::worded::worded;

worded! {
    /// Where a job's memory is.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Residence(word) {
        /// On its devices.
        #[default]
        Here = "running",
        /// On its way off them.
        Leaving = "suspending",
        /// Off them, in the processes' own memory.
        Away = "suspended",
        /// On its way back.
        Coming = "resuming",
        /// On its way to another device.
        Moving = "moving",
        /// Off them for as long as a snapshot takes.
        Saving = "saving",
        /// A restore failed: a process of it can never run again.
        Poisoned = "poisoned",
    }
}

/// What turns a residence into another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is to leave.
    Leave,
    /// It is to come back, and has room.
    Come,
    /// It is to move.
    Move,
    /// It is to be saved.
    Save,
    /// All of it has left.
    Left,
    /// It goes home instead, or is done elsewhere.
    Back,
    /// Its room is not there: it leaves again.
    NoRoom,
    /// The driver lost a process of it, in a restore or, as it says itself, before.
    Poisoned,
    /// It runs.
    Opened,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another state.
    To(Residence),
    /// It is so already: nothing is to do.
    Already,
    /// That cannot happen in this state.
    Impossible,
}

const COLUMNS: usize = 9;
const NO: Next = Next::Impossible;
const SAME: Next = Next::Already;
const HERE: Next = Next::To(Residence::Here);
const LEAV: Next = Next::To(Residence::Leaving);
const AWAY: Next = Next::To(Residence::Away);
const COME: Next = Next::To(Residence::Coming);
const MOVE: Next = Next::To(Residence::Moving);
const SAVE: Next = Next::To(Residence::Saving);
const POIS: Next = Next::To(Residence::Poisoned);

/// The state that follows, by state (rows) and turn (columns), both in the order of their variants.
#[rustfmt::skip]
const TABLE: [[Next; COLUMNS]; 7] = [
    //            Leave Come  Move  Save  Left  Back  NoRoom Poisoned Opened
    /* Here     */ [LEAV, SAME, MOVE, SAVE, NO,   NO,   NO,    NO,      SAME],
    /* Leaving  */ [SAME, NO,   NO,   NO,   AWAY, COME, NO,    POIS,    NO],
    /* Away     */ [SAME, COME, NO,   NO,   SAME, NO,   NO,    POIS,    HERE],
    /* Coming   */ [NO,   SAME, NO,   NO,   NO,   SAME, LEAV,  POIS,    HERE],
    /* Moving   */ [NO,   NO,   SAME, NO,   NO,   COME, LEAV,  POIS,    HERE],
    /* Saving   */ [NO,   NO,   NO,   SAME, NO,   COME, NO,    POIS,    NO],
    /* Poisoned */ [NO,   NO,   NO,   NO,   AWAY, NO,   SAME,  SAME,    HERE],
];

impl Residence {
    /// What follows when that happens in this state.
    pub(crate) const fn after(self, turn: Turn) -> Next {
        TABLE[self as usize][turn as usize]
    }

    /// Its promises of memory and time are kept for it; those of a job that is away are free.
    #[must_use]
    pub const fn keeps_promises(self) -> bool {
        !matches!(self, Self::Away | Self::Poisoned)
    }

    /// What NVML shows of it can be held against what it claims: nothing is under way.
    pub(crate) const fn is_audited(self) -> bool {
        matches!(self, Self::Here)
    }

    /// Room is kept for what it has to get back, beyond its words in the ledger.
    pub(crate) const fn claims_bytes(self) -> bool {
        matches!(self, Self::Coming | Self::Saving)
    }
}

#[cfg(test)]
mod tests;
