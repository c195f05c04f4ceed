// SPDX-License-Identifier: Apache-2.0
//! The words of `top`.

use clap::Args;

/// Watch GPUs and jobs, refreshed every second
#[derive(Args, Debug)]
#[command(
    after_help = "Keys: ? shows them all. Arrows choose a job; w says why it is slow, e sets its
limits, z suspends it, r resumes it, x stops it (each asks first); o sorts by
the next column, / filters, t groups by user, q leaves.

A terminal needs 60 columns. Columns that have no room leave; the line of the
chosen job has them all. A pipe gets one frame, as with --once. With --json one
document is written every second, and with --once a single one.

Columns for --sort: job, name, user, state, gpu, used, limit, promised, asked,
share, got, 60s, waited, held, denied, container, engine, command.

Examples:
  partage top
  partage top --once --sort got --filter user=alice
  partage top --json | jq -c '.jobs[] | {job, got_1s}'"
)]
pub struct Top {
    /// Print one frame as text (or one document), and end
    #[arg(long)]
    pub once: bool,
    /// Sort the jobs by this column: numbers from the greatest, words from A
    #[arg(long, value_name = "COLUMN")]
    pub sort: Option<String>,
    /// Show jobs that have this text in a column, or user=NAME, state=STATE, label=KEY as in `ps`
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Group the jobs by user
    #[arg(long)]
    pub tree: bool,
}
