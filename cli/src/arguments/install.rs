// SPDX-License-Identifier: Apache-2.0
//! The words of `install` and `uninstall`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Install Partage for every user of this host, and start its broker
#[derive(Args, Debug)]
#[command(
    after_help = "Puts programs and library below /usr/local, the service partaged into systemd,
a commented /etc/partage/partage.toml (yours stays if it is there) and the group
partage, whose members are administrators. Then it starts the broker and shows
with a job of user nobody that other users' jobs are bound by it. Run again it
changes what is old or missing, and nothing else. If a step fails, the steps
before it are undone.

With --system-preload programs that start without `partage run` are under the
rules too, whatever their environment. The file is first tried in a copy of
/etc: each program of root's in /bin, /sbin, /usr/bin, ... must load with it
without a word. Then it is written, a few are run, and if one fails it is taken
back.

Examples:
  sudo partage install
  partage install --root /tmp/stage          for a package"
)]
pub struct Install {
    /// Put the files below DIR; start nothing and make no group
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Start the broker: yes (default), or no
    #[arg(long, value_name = "WHEN", hide_possible_values = true)]
    pub start: Option<StartNow>,
    /// Also have each program of this host load the library (/etc/ld.so.preload)
    #[arg(long)]
    pub system_preload: bool,
}

/// Whether the broker is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StartNow {
    /// Now.
    Yes,
    /// By the administrator.
    No,
}

/// Remove what `partage install` put here, and stop its broker
#[derive(Args, Debug)]
#[command(
    after_help = "/etc/partage stays. While it is there, `partage run` starts no private brokers.
Running jobs go on under their limits."
)]
pub struct Uninstall {
    /// Remove the files below DIR
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Only take the library out of /etc/ld.so.preload
    #[arg(long)]
    pub system_preload: bool,
}
