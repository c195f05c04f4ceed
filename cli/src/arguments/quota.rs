// SPDX-License-Identifier: Apache-2.0
//! The words of `partage quota`.

use clap::{Args, Subcommand};

/// Limit what users and groups may have on this host
#[derive(Args, Debug)]
#[command(
    after_help = "A quota is a rule in conf.d/90-quota.toml beside the host's configuration. It is
checked before it is written, and holds at once: running jobs are judged anew,
and none is ended. partage events --audit shows who changed what.

A plain key bounds all jobs of SUBJECT together: mem, compute, gpus, jobs; 0
bars it (mem, gpus, jobs). each-user.mem and so on bound the jobs of each user
of a group, or of everybody, together. each-job.KEY bounds each job alone: mem,
process-mem, compute, compute-max, weight, priority, gpus, time-limit (of these
process-mem, priority and time-limit need no prefix). class is for jobs that
name none. Memory and time are per GPU. docs/configuration.md explains each.

Examples:
  sudo partage quota set user:alice mem=24GiB gpus=1
  sudo partage quota set group:students each-user.mem=8GiB time-limit=24h
  sudo partage quota set group:guests each-job.compute-max=20%
  sudo partage quota set user:mallory jobs=0
  sudo partage quota unset user:alice gpus
  partage quota list"
)]
pub struct Quota {
    #[command(subcommand)]
    pub action: QuotaAction,
}

/// What to do with quotas.
#[derive(Clone, Debug, Subcommand)]
pub enum QuotaAction {
    /// Show the quotas
    List,
    /// Set limits of a user, a group or everybody (root)
    Set {
        /// user:NAME, group:NAME or '*'
        subject: String,
        /// What to limit, and to what
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Take limits away, all of them without a KEY (root)
    Unset {
        /// user:NAME, group:NAME or '*'
        subject: String,
        /// What not to limit any more
        #[arg(value_name = "KEY")]
        keys: Vec<String>,
    },
}
