// SPDX-License-Identifier: Apache-2.0
//! The words of `partage config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Check, show or reload the host's configuration
#[derive(Args, Debug)]
#[command(
    after_help = "A managed broker reads /etc/partage/partage.toml and conf.d/*.toml beside it.
A reload takes the new rules in one step and keeps the old ones if anything is
wrong; running jobs are judged anew, and none is ended.

Examples:
  partage config check                       before a reload
  partage config check new.toml
  partage config show --for alice            the rules about a user
  sudo partage config reload"
)]
pub struct Config {
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// What to do with the configuration.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigAction {
    /// Read FILEs (default: the host's) and say what is wrong with them, or that nothing is
    Check {
        /// Files that are read in this order as one configuration
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Show the classes and rules that hold now
    Show {
        /// Only those about this user or job
        #[arg(long = "for", value_name = "USER|JOB")]
        target: Option<String>,
    },
    /// Make the broker read the configuration again (administrators)
    Reload,
}
