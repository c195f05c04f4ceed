// SPDX-License-Identifier: Apache-2.0
//! The tables and keys of the file as written. An unknown key is an error.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::rule_tables::{ClassTable, RuleTable};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) schema: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) gpu: BTreeMap<Spanned<String>, GpuTable>,
    #[serde(default)]
    pub(super) admission: AdmissionTable,
    #[serde(default)]
    pub(super) audit: AuditTable,
    #[serde(default)]
    pub(super) time: TimeTable,
    #[serde(default)]
    pub(super) aliases: AliasTable,
    #[serde(default)]
    pub(super) broker: BrokerTable,
    #[serde(default)]
    pub(super) metrics: MetricsTable,
    #[serde(default)]
    pub(super) notify: NotifyTable,
    #[serde(default)]
    pub(super) class: BTreeMap<Spanned<String>, ClassTable>,
    #[serde(default)]
    pub(super) rule: Vec<Spanned<RuleTable>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AdmissionTable {
    pub(super) overcommit: Option<Spanned<f64>>,
    pub(super) compute_overcommit: Option<Spanned<f64>>,
    pub(super) order: Option<Spanned<String>>,
    pub(super) half_life: Option<Spanned<String>>,
    pub(super) max_wait: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TimeTable {
    pub(super) max_class: Option<Spanned<String>>,
    pub(super) split: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditTable {
    pub(super) drift: Option<Spanned<String>>,
    pub(super) unmanaged: Option<Spanned<String>>,
    pub(super) tolerance: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AliasTable {
    pub(super) nvidia_gpu_memory: Option<bool>,
    pub(super) cuda_device_memory_limit: Option<bool>,
    pub(super) cuda_mps_pinned_device_mem_limit: Option<bool>,
    pub(super) cuda_device_sm_limit: Option<bool>,
    pub(super) cuda_mps_active_thread_percentage: Option<bool>,
    pub(super) cuda_task_priority: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GpuTable {
    pub(super) reserve: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BrokerTable {
    pub(super) log_level: Option<Spanned<String>>,
    pub(super) log_size: Option<Spanned<String>>,
    pub(super) poll: Option<Spanned<String>>,
    pub(super) clients_per_user: Option<Spanned<usize>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MetricsTable {
    pub(super) listen: Option<Spanned<String>>,
    pub(super) labels: Option<Vec<Spanned<String>>>,
    pub(super) token_file: Option<Spanned<String>>,
    pub(super) most_series: Option<Spanned<usize>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NotifyTable {
    pub(super) exec: Option<Spanned<Vec<String>>>,
    pub(super) kinds: Option<Vec<Spanned<String>>>,
}
