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
    /// With a target: the totals that hold for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub totals: Vec<TotalView>,
    /// Names of the classes, sorted; empty where the question was about a job or user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
}

/// A total of a rule, and what those who share it have of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TotalView {
    /// The rule's name.
    pub rule: String,
    /// The file that says it.
    pub file: String,
    /// The line there, from 1 on.
    pub line: u64,
    /// `each_user.mem`.
    pub key: String,
    /// As it is written: `24GiB`.
    pub text: String,
    /// Of which GPU, `GPU-…`; none where all GPUs count together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Its index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Whose it is, of a total that each user has; none where all share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What is counted.
    pub unit: TotalUnit,
    /// At most so much.
    pub limit: u64,
    /// So much is used: memory in use, time promised, GPUs held, jobs that run.
    pub used: u64,
    /// So much counts when another job asks: of memory, what is promised where that is more than is used.
    pub held: u64,
}

/// What a total counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TotalUnit {
    /// Bytes.
    Bytes,
    /// Millionths of a GPU's time.
    Millionths,
    /// GPUs, or jobs.
    Count,
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
