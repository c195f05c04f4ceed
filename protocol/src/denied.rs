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
}
