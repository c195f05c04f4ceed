// SPDX-License-Identifier: Apache-2.0
//! What a job is to have, as a user wrote it: for `run`, and for `set`.

use serde::{Deserialize, Serialize};

use crate::snapshot::{Needs, SavedEvery};

/// What `partage run` asks. Amounts travel as the user wrote them, checked by the command line and again by the broker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunRequest {
    /// Limit per device: `8GiB`, `25%`; none is the whole card and no promise.
    pub mem: Option<String>,
    /// Promise per device; defaults to `mem`.
    pub mem_request: Option<String>,
    /// Where `mem` was written: `--mem` (the default) or `PARTAGE_MEM`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_from: Option<String>,
    /// Where `mem_request` was written: `--mem-request` (the default) or `PARTAGE_MEM_REQUEST`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_request_from: Option<String>,
    /// Limit of each process per device: `4GiB`, `10%`; none is the job's limit alone. `from_variables` names its twin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_mem: Option<String>,
    /// Promised part of each device's time: `30%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute: Option<String>,
    /// Part of each device's time that is never exceeded: `50%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_max: Option<String>,
    /// Weight beyond promises: `1` to `10000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// `low`, `normal`, `high`, `realtime`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// How long the job may run from its admission on, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit_ns: Option<u64>,
    /// Which of these terms came from variables and not from options: `PARTAGE_COMPUTE`, `PARTAGE_WEIGHT`, …
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from_variables: Vec<String>,
    /// Other tools' variables of the caller (see [`crate::aliases`], [`crate::time_aliases`]); those of memory count
    /// where neither `mem` nor `mem_request` is given, caps where neither `compute` nor `compute_max` is, the class
    /// where no `priority` is; and none that the configuration switches off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<(String, String)>,
    /// The class of the configuration whose numbers it starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// `auto`, `auto:N`, `all`, `2`, `0,1`, `GPU-…`.
    pub gpu: Option<String>,
    /// `CUDA_VISIBLE_DEVICES` of the caller: narrows the candidates.
    pub visible_devices: Option<String>,
    /// The GPUs that the caller may open, in a container: bit N for the node `/dev/nvidiaN`. 0: each.
    #[serde(skip_serializing_if = "is_zero")]
    pub nodes: u32,
    /// The job's name.
    pub name: Option<String>,
    /// Labels `key=value`.
    pub labels: Vec<(String, String)>,
    /// Wait in the queue (`true`) or fail when there is no room.
    pub wait: bool,
    /// Longest wait in nanoseconds.
    pub wait_timeout_ns: Option<u64>,
    /// Kill what uses a GPU without being managed.
    pub strict: bool,
    /// It may be suspended for a job of a higher class, or not; by its own class where that is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    /// It leaves its devices when it did nothing with them for so long, in nanoseconds, until its next call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_release_ns: Option<u64>,
    /// It is saved again and again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved: Option<SavedEvery>,
    /// Say what would happen, admit nothing.
    pub dry_run: bool,
    /// Nothing is to be said on the job's terminal when it ends.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub quiet: bool,
    /// What the caller chose for `PARTAGE_TOKEN`, 64 hexadecimal digits: a `run --lazy`, for which every process of it
    /// asks at its first use of a GPU. All requests of a user with one token are one job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// A `restore`, and what it needs: no living job may have the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restored: Option<Box<Needs>>,
    /// The command, shown only to the job's owner and administrators.
    pub command: Vec<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(nodes: &u32) -> bool {
    *nodes == 0
}

/// Changes of a job's terms of device time, as the user wrote them; what is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TermsChange {
    /// `30%`, or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute: Option<String>,
    /// `50%`, or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_max: Option<String>,
    /// `1` to `10000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// `low`, `normal`, `high`, `realtime`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// `2h`, counted from the admission, or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<String>,
}

/// The most that a job may have, as whoever registers it wrote it; what is not named has no most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AtMost {
    /// Memory on each device: `10GiB`, `25%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem: Option<String>,
    /// Promised memory on each device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_request: Option<String>,
    /// Memory of each process on each device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_mem: Option<String>,
    /// Device time, and how long it may run.
    #[serde(skip_serializing_if = "TermsChange::is_empty")]
    pub terms: TermsChange,
}

impl AtMost {
    /// Nothing is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl TermsChange {
    /// Nothing is to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
