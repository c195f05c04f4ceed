// SPDX-License-Identifier: Apache-2.0
//! The tables and keys of the file as written. An unknown key is an error.

use std::collections::BTreeMap;
use std::fmt::Formatter;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::rule_tables::{ClassTable, RuleTable};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) schema: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) gpu: GpuTables,
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

/// `[gpu]`: keys about all devices, and a table for each name of some.
#[derive(Default)]
pub(super) struct GpuTables {
    pub(super) on_sick: Option<Spanned<String>>,
    pub(super) of: BTreeMap<Spanned<String>, GpuTable>,
}

impl<'de> Deserialize<'de> for GpuTables {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Tables;

        impl<'de> Visitor<'de> for Tables {
            type Value = GpuTables;

            fn expecting(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
                out.write_str("on_sick, or tables as [gpu.\"*\"]")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<GpuTables, M::Error> {
                let mut found = GpuTables::default();
                while let Some(key) = map.next_key::<Spanned<String>>()? {
                    match key.get_ref().as_str() {
                        "on_sick" => found.on_sick = Some(map.next_value()?),
                        _ => drop(found.of.insert(key, map.next_value()?)),
                    }
                }
                Ok(found)
            }
        }

        input.deserialize_map(Tables)
    }
}

#[derive(Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table of some GPUs, such as [gpu.\"*\"] or [gpu.0]"
)]
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
