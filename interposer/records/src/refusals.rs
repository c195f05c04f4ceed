// SPDX-License-Identifier: Apache-2.0
//! Which refused allocations are failures: one that a caching allocator meets, frees its cache for and asks again with
//! success is none.
//!
//! ```text
//!              refused                 refused: say it
//!   Nothing ────────────► Pending ──────────────────────► Said ─┐ refused: say it
//!      ▲    ◄────────────    │ end of the process: say it   │ ◄─┘
//!      │     granted:        ▼                              │
//!      │     recovered                          granted     │
//!      └────────────────────────────────────────────────────┘
//! ```
//! The broker counts every answer that denies, also one that the program never sees because room was made and the
//! question was asked once more. How many answers are open is counted here, so that a recovery takes back as many.

/// Where a process stands with its refusals, in one word: 0 while nothing is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals(u32);

const PENDING: u32 = 1;
const SAID: u32 = 2;
const PHASE: u32 = 3;
const ANSWER: u32 = 4;

impl Refusals {
    /// What a word says.
    #[must_use]
    pub const fn of(word: u32) -> Self {
        Self(word)
    }

    /// The word.
    #[must_use]
    pub const fn word(self) -> u32 {
        self.0
    }

    /// The broker denied something, whether or not the program is going to see it.
    #[must_use]
    pub const fn answered(self) -> Self {
        match self.0.checked_add(ANSWER) {
            Some(word) => Self(word),
            None => self,
        }
    }

    /// The program sees a refusal. Is it to be said now?
    #[must_use]
    pub const fn refused(self) -> (Self, bool) {
        let answers = self.0 & !PHASE;
        match self.0 & PHASE {
            PENDING | SAID => (Self(answers | SAID), true),
            _ => (Self(answers | PENDING), false),
        }
    }

    /// The program gets memory: answers that it recovered from.
    #[must_use]
    pub const fn granted(self) -> (Self, u32) {
        match self.0 & PHASE {
            SAID => (Self(0), 0),
            _ => (Self(0), self.0 / ANSWER),
        }
    }

    /// Was the last refusal neither recovered from nor said?
    #[must_use]
    pub const fn is_pending(self) -> bool {
        self.0 & PHASE == PENDING
    }
}
