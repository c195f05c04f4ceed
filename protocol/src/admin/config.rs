// SPDX-License-Identifier: Apache-2.0
//! The configuration that holds, as users are shown it.

use serde::{Deserialize, Serialize};

/// Which configuration holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadingView {
    /// The main file.
    pub file: String,
    /// 1 is the one that the broker started with; each reload that is taken counts.
    pub generation: u64,
    /// Unix time in nanoseconds at which it was read.
    pub read_ns: u64,
    /// Why the last reload changed nothing, with file, line and column; none where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Answer to `config show`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigView {
    /// Which one; none for a private broker.
    pub reading: Option<ReadingView>,
    /// Classes and rules in words, in the order in which they count.
    pub lines: Vec<String>,
    /// Names of the classes, sorted; empty where the question was about a job or user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
}

/// What the broker does about clients that contradict NVML and about GPU processes of no job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditView {
    /// `report`, `deny-new`, `kill`.
    pub drift: String,
    /// The same words.
    pub unmanaged: String,
    /// Bytes by which a client and NVML may differ.
    pub tolerance_bytes: u64,
}
