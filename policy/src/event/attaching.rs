// SPDX-License-Identifier: Apache-2.0
//! A process that attaches, and what says to which job it belongs.

use partage_protocol::message::TOKEN_BYTES;
use partage_protocol::units::{ClientId, JobId};

use crate::caller::Process;
use crate::rules::Facts;

/// How an attaching process may belong to a job, strongest evidence first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// By cgroup, or by ancestry from the job's first process or another client.
    pub by_kernel: Option<JobId>,
    /// The token in its environment; counts for the job's own uid only.
    pub token: Option<[u8; TOKEN_BYTES]>,
    /// Its container or login scope: processes of one uid and scope that belong to no job share a default job.
    pub scope: String,
    /// The limit that its environment carries; 0 without one. It can only lower.
    pub environment_limit: u64,
    /// For a process that was put into no job: other tools' variables that limit it and `CUDA_VISIBLE_DEVICES`. Where
    /// there is one, they say more than `environment_limit`, which is the lowest of them.
    pub environment: Vec<(String, String)>,
    /// There were more of them than a message holds.
    pub is_environment_cut: bool,
    /// Names of its groups, and their gids in digits.
    pub groups: Vec<String>,
    /// Its control group.
    pub cgroup: String,
    /// Its paths in other hierarchies, where they are others.
    pub other_cgroups: Vec<String>,
    /// The name of its program's file.
    pub program: String,
    /// The GPUs that it may open: bit N for the node `/dev/nvidiaN`. 0: not known.
    pub nodes: u32,
}

/// An attaching client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attaching {
    /// The id under which the broker made its ledger row and pages (words all zero).
    pub client: ClientId,
    /// Its process.
    pub process: Process,
    /// Its uid, from the kernel.
    pub uid: u32,
    /// Login name, or the uid in digits.
    pub user: String,
    /// Unix time in nanoseconds, for a default job that begins with it.
    pub unix_ns: u64,
    /// A token for a default job that begins with it.
    pub fresh_token: [u8; TOKEN_BYTES],
    /// Where it belongs.
    pub membership: Membership,
}

impl Attaching {
    /// Its facts as a process without `run`, for the rules.
    pub(crate) fn facts(&self) -> Facts {
        Facts {
            uid: self.uid,
            user: self.user.clone(),
            groups: self.membership.groups.clone(),
            cgroup: self.membership.cgroup.clone(),
            other_cgroups: self.membership.other_cgroups.clone(),
            program: self.membership.program.clone(),
            scope: Some(self.membership.scope.clone()),
            ..Facts::default()
        }
    }
}
