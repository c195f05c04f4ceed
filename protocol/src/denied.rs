// SPDX-License-Identifier: Apache-2.0
//! How often a job was denied memory.

use serde::{Deserialize, Serialize};

/// Denials by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denied {
    /// The job's limit.
    pub limit: u64,
    /// The card was full.
    pub card_full: u64,
    /// No broker answered.
    pub no_broker: u64,
    /// A context or module was not let in, because with it the job would exceed its limit or the card's room.
    #[serde(default)]
    pub overhead: u64,
    /// The limit of the process that asked.
    #[serde(default)]
    pub process_limit: u64,
    /// A total that several jobs share.
    #[serde(default)]
    pub total: u64,
    /// Of all these, those after which the program got memory before it was denied again: no failures.
    #[serde(default)]
    pub recovered: u64,
}

impl Denied {
    /// Denials by reason, in words: every count but [`Self::recovered`].
    #[must_use]
    pub fn by_reason(&self) -> [(&'static str, u64); 6] {
        let Self {
            limit,
            card_full,
            no_broker,
            overhead,
            process_limit,
            total,
            recovered: _,
        } = *self;
        [
            ("limit", limit),
            ("card full", card_full),
            ("no broker", no_broker),
            ("overhead", overhead),
            ("process limit", process_limit),
            ("total", total),
        ]
    }

    /// Denials of every reason.
    #[must_use]
    pub fn all(&self) -> u64 {
        let counts = self.by_reason().into_iter();
        counts.map(|(_, count)| count).fold(0, u64::saturating_add)
    }

    /// Those that the program did not recover from.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.all().saturating_sub(self.recovered)
    }

    /// `, 2 of them recovered from`; empty where none was.
    #[must_use]
    pub fn recovered_text(&self) -> String {
        match self.recovered {
            0 => String::new(),
            count => format!(", {count} of them recovered from"),
        }
    }

    /// So many more were no failure.
    pub fn recover(&mut self, times: u64) {
        self.recovered = self.recovered.saturating_add(times).min(self.all());
    }
}
