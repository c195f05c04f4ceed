// SPDX-License-Identifier: Apache-2.0
//! The numbers of a job that `run`, `register` and the hook ask alike.

use clap::Args;

/// What a job may have: numbers that are asked alike wherever a job begins.
#[derive(Args, Clone, Debug, Default)]
pub struct Amounts {
    /// Memory limit per GPU for the whole job, promised to it
    #[arg(short, long, value_name = "SIZE|PCT", allow_hyphen_values = true)]
    pub mem: Option<String>,
    /// Memory promised per GPU, if less than the limit, or none
    #[arg(long, value_name = "SIZE|PCT", allow_hyphen_values = true)]
    pub mem_request: Option<String>,
    /// Memory limit per GPU for each of its processes
    #[arg(long, value_name = "SIZE|PCT", allow_hyphen_values = true)]
    pub process_mem: Option<String>,
    /// Promised share of each GPU's time for the whole job
    #[arg(short, long, value_name = "PCT", allow_hyphen_values = true)]
    pub compute: Option<String>,
    /// Cap on each GPU's time, even if the GPU is idle
    #[arg(long, value_name = "PCT", allow_hyphen_values = true)]
    pub compute_max: Option<String>,
    /// Weight among jobs without -c, 1 to 10000 (default 100)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub weight: Option<String>,
    /// Priority: low, normal (default), high or realtime
    #[arg(long, value_name = "PRIORITY")]
    pub priority: Option<String>,
    /// End the job after this time: SIGTERM, and SIGKILL 10 s later
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub time_limit: Option<String>,
}
