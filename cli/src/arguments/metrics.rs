// SPDX-License-Identifier: Apache-2.0
//! The words of `metrics`.

use clap::Args;
use partage_metrics::JobLabel;

/// Print the numbers of GPUs and jobs for Prometheus and its like
#[derive(Args, Debug)]
#[command(
    after_help = "The same that the broker serves where [metrics] listen is configured. To have
node_exporter read it, from cron:
  partage metrics > /var/lib/node_exporter/.p.tmp &&
    mv /var/lib/node_exporter/.p.tmp /var/lib/node_exporter/partage.prom

Labels that name somebody are left out unless they are listed: name, user,
container, namespace, pod, pod_uid, engine. docs/metrics.md has every metric.

Examples:
  partage metrics
  partage metrics --labels user,container"
)]
pub struct Metrics {
    /// Labels that name somebody and are written all the same; several with commas
    #[arg(long, value_name = "LABEL", value_delimiter = ',', value_parser = label)]
    pub labels: Vec<JobLabel>,
}

fn label(text: &str) -> Result<JobLabel, String> {
    let known = JobLabel::ALL.map(JobLabel::word).join(", ");
    JobLabel::called(text).ok_or_else(|| format!("there are {known}"))
}
