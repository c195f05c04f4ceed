// SPDX-License-Identifier: Apache-2.0
//! The words of `suspend`, `resume`, `migrate`, `drain` and `undrain`.

use clap::Args;

use super::on_full::OnFull;

/// Move a job's GPU memory to host memory, and let its threads wait
#[derive(Args, Debug)]
#[command(
    after_help = "The job's processes stay, but they wait at their next GPU call. Its GPU memory
and what it was promised are free for other jobs, its host memory grows by as
much, and its time limit stands still. Needs driver 570 or later. What cannot be
suspended is refused before anything is touched: docs/suspend.md.

Examples:
  partage suspend train
  partage suspend train --drain-timeout 1m
  partage resume train"
)]
pub struct Suspend {
    /// Job id (j3), name, or the pid of one of its processes
    pub target: String,
    /// How long work in flight may take to end, else the job goes on [default: 10s]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub drain_timeout: Option<String>,
}

/// Bring a suspended job back onto its GPUs
#[derive(Args, Debug)]
#[command(after_help = "Waits in the queue until there is room, like `run`.

Examples:
  partage resume j3
  partage resume train --wait-timeout 10m
  partage resume train --on-full fail")]
pub struct Resume {
    /// Job id (j3), name, or the pid of one of its processes
    pub target: String,
    /// If there is no room: wait (default), or fail with exit status 1
    #[arg(long, value_name = "WHAT", hide_possible_values = true)]
    pub on_full: Option<OnFull>,
    /// Give up waiting after this time, with exit status 1
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub wait_timeout: Option<String>,
}

/// Move a running job to another GPU of this node
#[derive(Args, Debug)]
#[command(
    after_help = "The job's threads wait at their next GPU call while its GPU memory goes to the
other GPU by way of host memory. The program keeps its addresses, and its GPU
keeps its number. Needs driver 580 or later, a GPU of the same model and memory,
and room there. If the driver refuses, the job goes on where it was:
docs/suspend.md.

Examples:
  partage migrate train --to 1 --dry-run     say what would happen
  partage migrate train --to 1
  partage migrate j3 --from 0 --to GPU-8a1e  one GPU of a job with several"
)]
pub struct Migrate {
    /// Job id (j3), name, or the pid of one of its processes
    pub target: String,
    /// The GPU that the job gets: index or UUID
    #[arg(long, value_name = "GPU")]
    pub to: String,
    /// The GPU that it leaves, for a job with several
    #[arg(long, value_name = "GPU")]
    pub from: Option<String>,
    /// How long work in flight may take to end, else the job goes on [default: 10s]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub drain_timeout: Option<String>,
    /// Say what would happen, and touch nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Admit nothing on a GPU any more, and move its jobs to other GPUs
#[derive(Args, Debug)]
#[command(
    after_help = "Each job of the GPU is moved to a GPU of the same model and memory with room,
one after the other, as `partage migrate` would. Jobs that cannot move go on
where they are, and are named with the reason (exit status 1). The GPU admits
nothing until `partage undrain`, also under the next broker.
For administrators.

Examples:
  partage drain 0
  partage undrain 0"
)]
pub struct Drain {
    /// The GPU: index or UUID
    pub gpu: String,
    /// How long work in flight of each job may take to end, else it stays [default: 10s]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub drain_timeout: Option<String>,
}

/// Let jobs on a drained GPU again
#[derive(Args, Debug)]
pub struct Undrain {
    /// The GPU: index or UUID
    pub gpu: String,
}
