// SPDX-License-Identifier: Apache-2.0
//! The words of `checkpoint` and `restore`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::on_full::OnFull;
use super::outside::Tcp;

/// Save a job in a folder, to restore it after a crash or reboot
#[derive(Args, Debug)]
#[command(
    after_help = "The job waits while it is saved, and goes on afterwards; with --stop it ends
once the snapshot is whole. What cannot be saved is refused before anything is
touched, or by CRIU, and the job goes on: docs/checkpoint.md. Needs CRIU 4.2 or
later (PARTAGE_CRIU names its program) and the right to run it.

TCP connections and unix sockets inside the job are saved. One out of the job
(a database, D-Bus, a notebook's server) is refused with its process, or with
--tcp close broken at the restore, as by a lost network.

Examples:
  partage checkpoint train --out /data/train
  partage checkpoint j3 --out /data/train --keep 5
  partage checkpoint train --out /data/train --stop
  partage checkpoint train --out /data/train --files-max 8GiB
  partage checkpoint train --out /data/train --tcp close"
)]
pub struct Checkpoint {
    /// Job id (j3), name, or the pid of one of its processes
    pub target: String,
    /// The snapshot's folder, yours alone; made where it is missing
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// How long work in flight may take to end, else the job goes on [default: 10s]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub drain_timeout: Option<String>,
    /// End the job once it is saved
    #[arg(long)]
    pub stop: bool,
    /// Connections out of the job: refuse (default), or close: a restored job finds them broken
    #[arg(long, value_name = "WHAT", hide_possible_values = true)]
    pub tcp: Option<Tcp>,
    /// Keep the last N generations [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub keep: Option<u64>,
    /// Copy files that the job writes in place, up to SIZE in all [default: 1GiB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub files_max: Option<String>,
}

/// What `restore` does with files that were changed since the snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Files {
    /// Back to what they were; what is replaced is kept.
    #[default]
    Cut,
    /// Left as they are.
    Keep,
    /// Nothing is restored.
    Refuse,
}

/// One exchange of `--gpu-map`, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuPair {
    /// A device of the snapshot.
    pub old: String,
    /// A device of this machine.
    pub new: String,
}

fn gpu_pair(text: &str) -> Result<GpuPair, String> {
    let pair = text.split_once('=').map(|(old, new)| (old.trim(), new.trim()));
    match pair.filter(|(old, new)| !old.is_empty() && !new.is_empty()) {
        Some((old, new)) => Ok(GpuPair {
            old: old.to_owned(),
            new: new.to_owned(),
        }),
        None => Err(format!("{text:?} is not OLD=NEW, as in 0=1")),
    }
}

/// Start a job again from what `checkpoint` saved
#[derive(Args, Debug)]
#[command(
    after_help = "The job is admitted like one of `run`, with the limits that it had, and gets the
GPUs that it had, or those of --gpu-map. `partage restore` stays its parent,
passes signals on and gives its exit status. A snapshot is only read, and can be
restored again; while a job that was restored from it lives, a second one is
refused. A restored job can be saved again; with --checkpoint-every the broker
does so by itself.

A file that the job writes becomes what it was when the job was saved: a log is
cut to that length, so that it reads like one run, and what was written since is
kept beside it as NAME.after-gen-N. With --files keep no file is changed.

OLD is a UUID of the snapshot or the number there (0 is the job's first GPU),
NEW an index or UUID of this machine. Both have the same model and memory.

Examples:
  partage restore /data/train
  partage restore /data/train --detach --checkpoint-every 30m
  partage restore /data/train --generation 3
  partage restore /data/train --gpu-map 0=1
  partage restore /data/train --detach"
)]
pub struct Restore {
    /// The snapshot's folder
    pub dir: PathBuf,
    /// Which generation [default: the newest]
    #[arg(long, value_name = "N")]
    pub generation: Option<u64>,
    /// Give the job GPU NEW of this machine in place of OLD of the snapshot
    #[arg(long, value_name = "OLD=NEW,...", value_delimiter = ',', value_parser = gpu_pair)]
    pub gpu_map: Vec<GpuPair>,
    /// Return once the job runs
    #[arg(long)]
    pub detach: bool,
    /// Give up after so long, and name the processes that are missing [default: 2m and 20s a GiB]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub timeout: Option<String>,
    /// Have the job saved again and again, so long after the last save
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub checkpoint_every: Option<String>,
    /// The folder for --checkpoint-every, yours alone [default: the one that is restored from]
    #[arg(long, value_name = "DIR", requires = "checkpoint_every")]
    pub checkpoint_out: Option<PathBuf>,
    /// With --checkpoint-every: copy files that the job writes in place, up to SIZE [default: 1GiB]
    #[arg(long, value_name = "SIZE", requires = "checkpoint_every", allow_hyphen_values = true)]
    pub files_max: Option<String>,
    /// Files changed since the save: cut them back (default), keep them, or refuse
    #[arg(long, value_name = "WHAT", hide_possible_values = true)]
    pub files: Option<Files>,
    /// Connections out of the job, when it is saved: refuse (default), or close
    #[arg(
        long,
        value_name = "WHAT",
        hide_possible_values = true,
        requires = "checkpoint_every"
    )]
    pub tcp: Option<Tcp>,
    /// If there is no room: wait (default), or fail with exit status 124
    #[arg(long, value_name = "WHAT", hide_possible_values = true)]
    pub on_full: Option<OnFull>,
    /// Give up waiting after this time, with exit status 124
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub wait_timeout: Option<String>,
}
