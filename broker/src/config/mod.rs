// SPDX-License-Identifier: Apache-2.0
//! `/etc/partage/partage.toml` and `conf.d/*.toml` beside it: read, merged, checked, turned into numbers.
//!
//! ```toml
//! schema = 1
//! [gpu]
//! on_sick = "keep"       # the jobs of a GPU that is sick: keep, or drain
//! [gpu."*"]              # or an index, or a UUID (its beginning is enough)
//! reserve = "512MiB"     # kept out of what jobs can share; at least what the driver keeps for itself
//! [admission]
//! overcommit = 1.0       # how much of a device may be promised; above 1 a promise may be denied as "card full"
//! compute_overcommit = 1.0   # how much of a device's time may be promised
//! order = "arrival"      # which waiting job is next: arrival or fair
//! half_life = "1h"       # fair: GPU time that a user had counts half after so long
//! max_wait = "24h"       # fair: who waited for so long is before all others
//! [time]
//! max_class = "normal"   # the highest priority that everybody may ask for
//! split = "user"         # unpromised time: among users first, or among jobs
//! [audit]                # clients that contradict NVML, GPU processes of no job: report, deny-new or kill
//! drift = "report"
//! unmanaged = "report"
//! tolerance = "64MiB"    # by how much a client and NVML may differ
//! [aliases]              # other tools' variables that ask for memory or time; all are on
//! nvidia_gpu_memory = true
//! cuda_device_memory_limit = true
//! cuda_mps_pinned_device_mem_limit = true
//! cuda_device_sm_limit = true
//! cuda_mps_active_thread_percentage = true
//! cuda_task_priority = true
//! [broker]
//! log_level = "info"
//! log_size = "8MiB"
//! poll = "500ms"         # pause between two looks at the devices while jobs live
//! clients_per_user = 4096
//! [metrics]              # for a monitoring system; off unless it says where to listen
//! listen = "127.0.0.1:9811"
//! labels = ["user"]      # what names somebody and is told all the same
//! token_file = "/etc/partage/metrics.token"
//! most_series = 50000
//! [notify]               # a program that is told of events, as JSON on its standard input
//! exec = ["/usr/bin/logger", "-t", "gpus"]
//! kinds = ["device-lost", "unmanaged"]   # of these kinds alone
//! [class.small]          # numbers to start from, under a name
//! mem = "8GiB"
//! [[rule]]               # whom it is about, and the most that their jobs may have
//! name = "students"
//! match = { group = "students" }
//! class = "small"
//! max = { mem = "16GiB" }
//! ```
//! Drop-ins are merged in the order of their names, a later value wins; rules are added in that order. An unknown key
//! is an error with the nearest known one: a misspelt limit must not be silently none. What a version cannot enforce
//! yet is an error too.

mod error;
mod file;
mod guard;
mod log_filter;
mod merge;
mod metrics;
mod nearest;
mod notify;
mod rule_tables;
mod rules;
mod settings;
mod source;
#[cfg(test)]
mod tests;
mod unknown_groups;

pub use error::ConfigError;
pub(crate) use guard::judge_program;
pub(crate) use guard::read as read_guarded;
pub use log_filter::log_filter;
pub use metrics::{Listen, MetricsSettings};
pub use notify::NotifySettings;
pub use settings::{Config, OnSick, SYSTEM_FILE};
pub use unknown_groups::unknown_groups;
