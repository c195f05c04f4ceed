// SPDX-License-Identifier: Apache-2.0
//! `/etc/partage/partage.toml` and `conf.d/*.toml` beside it: read, merged, checked, turned into numbers.
//!
//! ```toml
//! schema = 1
//! [gpu."*"]              # or an index, or a UUID (its beginning is enough)
//! reserve = "512MiB"     # kept out of what jobs can share; at least what the driver keeps for itself
//! [admission]
//! overcommit = 1.0       # how much of a device may be promised; above 1 a promise may be denied as "card full"
//! compute_overcommit = 1.0   # how much of a device's time may be promised
//! [time]
//! max_class = "normal"   # the highest priority that everybody may ask for
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
//! ```
//! Drop-ins are merged in the order of their names, a later value wins. An unknown key is an error with the nearest
//! known one: a misspelt limit must not be silently none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use partage_policy::{Audit, Response};
use partage_protocol::aliases::Family;
use partage_protocol::size::{Amount, parse_amount, parse_duration};
use partage_protocol::terms::{Class, parse_class};
use partage_protocol::time_aliases::TimeVariable;
use partage_protocol::units::{MIB, SECOND_NS};
use serde::Deserialize;

use crate::kind::Kind;

/// The file that makes a host managed.
pub const SYSTEM_FILE: &str = "/etc/partage/partage.toml";

/// What a file says wrongly.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{}: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: std::io::Error,
    },
    /// It is not what was expected; with line and column.
    #[error("{}: {why}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        why: String,
    },
    /// A value does not hold.
    #[error("{}: {key}: {why}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key, with its table.
        key: String,
        /// What is wrong.
        why: String,
    },
}

/// The checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Reserve by `*`, index or UUID prefix.
    reserves: BTreeMap<String, Amount>,
    /// Tracing filter.
    pub log_level: String,
    /// Bytes at which a new log file is begun.
    pub log_size: u64,
    /// Nanoseconds between two looks at the devices while jobs live.
    pub poll_ns: u64,
    /// Most clients of one user; more are refused.
    pub clients_per_user: usize,
    /// How much of what jobs can share on a device may be promised, in millionths of it.
    pub overcommit_millionths: u64,
    /// How much of a device's time may be promised, in millionths of it.
    pub compute_overcommit_millionths: u64,
    /// The highest class that everybody may ask for on a managed host.
    pub max_class: Class,
    /// Other tools' memory variables that count for nothing.
    pub aliases_off: Vec<Family>,
    /// Their variables about time that count for nothing.
    pub time_aliases_off: Vec<TimeVariable>,
    /// What the auditor does.
    pub audit: Audit,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reserves: BTreeMap::new(),
            log_level: "info".to_owned(),
            log_size: 8 * MIB,
            poll_ns: SECOND_NS / 2,
            clients_per_user: 4096,
            overcommit_millionths: partage_policy::Config::ALL_ONCE,
            compute_overcommit_millionths: partage_policy::Config::ALL_ONCE,
            max_class: Class::Normal,
            aliases_off: Vec::new(),
            time_aliases_off: Vec::new(),
            audit: Audit::default(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: Option<u32>,
    #[serde(default)]
    gpu: BTreeMap<String, GpuTable>,
    #[serde(default)]
    admission: AdmissionTable,
    #[serde(default)]
    audit: AuditTable,
    #[serde(default)]
    time: TimeTable,
    #[serde(default)]
    aliases: AliasTable,
    #[serde(default)]
    broker: BrokerTable,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdmissionTable {
    overcommit: Option<f64>,
    compute_overcommit: Option<f64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeTable {
    max_class: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditTable {
    drift: Option<String>,
    unmanaged: Option<String>,
    tolerance: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AliasTable {
    nvidia_gpu_memory: Option<bool>,
    cuda_device_memory_limit: Option<bool>,
    cuda_mps_pinned_device_mem_limit: Option<bool>,
    cuda_device_sm_limit: Option<bool>,
    cuda_mps_active_thread_percentage: Option<bool>,
    cuda_task_priority: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuTable {
    reserve: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BrokerTable {
    log_level: Option<String>,
    log_size: Option<String>,
    poll: Option<String>,
    clients_per_user: Option<usize>,
}

impl Config {
    /// The file and its drop-ins; the defaults where there is no file.
    ///
    /// # Errors
    /// [`ConfigError`] for the first thing that does not hold.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        if path.exists() {
            config.merge(path)?;
        }
        let folder = path.with_file_name("conf.d");
        let mut drop_ins: Vec<PathBuf> = std::fs::read_dir(&folder)
            .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
            .unwrap_or_default();
        drop_ins.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
        drop_ins.sort();
        for drop_in in drop_ins {
            config.merge(&drop_in)?;
        }
        Ok(config)
    }

    fn merge(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|why| ConfigError::Read {
            path: path.to_owned(),
            why,
        })?;
        let file: File = toml::from_str(&text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            why: with_nearest(&error.to_string()),
        })?;
        let wrong = |key: &str, why: String| ConfigError::Value {
            path: path.to_owned(),
            key: key.to_owned(),
            why,
        };
        match file.schema {
            Some(1) => {}
            Some(other) => {
                return Err(wrong(
                    "schema",
                    format!("{other} is not known here; this version reads 1"),
                ));
            }
            None => return Err(wrong("schema", "missing; write `schema = 1` first".to_owned())),
        }
        for (gpu, table) in file.gpu {
            let key = format!("gpu.\"{gpu}\".reserve");
            if !is_gpu_name(&gpu) {
                return Err(wrong(
                    &key,
                    "a device is `*`, an index or a UUID (`GPU-…`, `MIG-…`)".to_owned(),
                ));
            }
            if let Some(text) = table.reserve {
                let amount = parse_amount(&text).map_err(|error| wrong(&key, error.to_string()))?;
                self.reserves.insert(gpu, amount);
            }
        }
        for (key, ratio, place) in [
            ("overcommit", file.admission.overcommit, &mut self.overcommit_millionths),
            (
                "compute_overcommit",
                file.admission.compute_overcommit,
                &mut self.compute_overcommit_millionths,
            ),
        ] {
            let Some(ratio) = ratio else { continue };
            // A ratio below 1 would be a reserve, which has a key of its own for memory and no use for time.
            if !(1.0..=16.0).contains(&ratio) {
                return Err(wrong(
                    &format!("admission.{key}"),
                    format!("{ratio} is not between 1.0 (promise what there is) and 16.0"),
                ));
            }
            *place = (ratio * partage_policy::Config::ALL_ONCE as f64).round() as u64;
        }
        if let Some(text) = file.time.max_class {
            self.max_class = parse_class(&text).map_err(|error| wrong("time.max_class", error.to_string()))?;
        }
        for (key, text) in [("drift", file.audit.drift), ("unmanaged", file.audit.unmanaged)] {
            let Some(text) = text else { continue };
            let known = Response::ALL.into_iter().find(|response| response.word() == text);
            let response = known.ok_or_else(|| {
                let why = format!("{text:?} is not one of report, deny-new, kill");
                wrong(&format!("audit.{key}"), why)
            })?;
            match key {
                "drift" => self.audit.drift = response,
                _ => self.audit.unmanaged = response,
            }
        }
        if let Some(text) = file.audit.tolerance {
            self.audit.tolerance = match parse_amount(&text) {
                Ok(Amount::Bytes(bytes)) => bytes,
                Ok(_) => return Err(wrong("audit.tolerance", "as bytes, such as 64MiB".to_owned())),
                Err(error) => return Err(wrong("audit.tolerance", error.to_string())),
            };
        }
        for family in Family::ALL {
            let is_on = match family {
                Family::Nvidia => file.aliases.nvidia_gpu_memory,
                Family::Device => file.aliases.cuda_device_memory_limit,
                Family::Pinned => file.aliases.cuda_mps_pinned_device_mem_limit,
            };
            if let Some(is_on) = is_on {
                self.aliases_off.retain(|off| *off != family);
                if !is_on {
                    self.aliases_off.push(family);
                }
            }
        }
        for variable in TimeVariable::ALL {
            let is_on = match variable {
                TimeVariable::SmLimit => file.aliases.cuda_device_sm_limit,
                TimeVariable::ActiveThreads => file.aliases.cuda_mps_active_thread_percentage,
                TimeVariable::TaskPriority => file.aliases.cuda_task_priority,
            };
            if let Some(is_on) = is_on {
                self.time_aliases_off.retain(|off| *off != variable);
                if !is_on {
                    self.time_aliases_off.push(variable);
                }
            }
        }
        let broker = file.broker;
        if let Some(level) = broker.log_level {
            tracing_subscriber::EnvFilter::try_new(&level)
                .map_err(|error| wrong("broker.log_level", error.to_string()))?;
            self.log_level = level;
        }
        if let Some(text) = broker.log_size {
            self.log_size = match parse_amount(&text) {
                Ok(Amount::Bytes(bytes)) if bytes >= 64 << 10 => bytes,
                Ok(_) => return Err(wrong("broker.log_size", "at least 64KiB, as bytes".to_owned())),
                Err(error) => return Err(wrong("broker.log_size", error.to_string())),
            };
        }
        if let Some(text) = broker.poll {
            let poll_ns = parse_duration(&text).map_err(|error| wrong("broker.poll", error.to_string()))?;
            // Faster looks cost the driver's lock; slower ones break the bound within which a rogue process is found.
            if !(SECOND_NS / 20..=SECOND_NS).contains(&poll_ns) {
                return Err(wrong("broker.poll", "between 50ms and 1s".to_owned()));
            }
            self.poll_ns = poll_ns;
        }
        if let Some(clients) = broker.clients_per_user {
            if clients == 0 {
                return Err(wrong("broker.clients_per_user", "at least 1".to_owned()));
            }
            self.clients_per_user = clients;
        }
        Ok(())
    }

    /// The highest class that everybody may ask for. A private broker's user decides alone.
    #[must_use]
    pub fn class_rule(&self, kind: Kind) -> Class {
        match kind {
            Kind::Private => Class::Realtime,
            Kind::Managed => self.max_class,
        }
    }

    /// What jobs cannot share on a device, in bytes: the most specific configured reserve, and at least what the driver
    /// keeps for itself.
    #[must_use]
    pub fn reserve(&self, index: u32, uuid: &str, total: u64, kept_by_driver: u64) -> u64 {
        let by_uuid = self
            .reserves
            .iter()
            .filter(|(name, _)| name.contains('-') && uuid.starts_with(name.as_str()));
        let configured = by_uuid
            .max_by_key(|(name, _)| name.len())
            .map(|(_, amount)| amount)
            .or_else(|| self.reserves.get(&index.to_string()))
            .or_else(|| self.reserves.get("*"));
        configured
            .map_or(0, |amount| amount.on(total))
            .max(kept_by_driver)
            .min(total)
    }
}

fn is_gpu_name(name: &str) -> bool {
    name == "*" || name.parse::<u32>().is_ok() || name.starts_with("GPU-") || name.starts_with("MIG-")
}

/// Adds `did you mean` to serde's message about an unknown key, which names the known ones in backquotes.
fn with_nearest(message: &str) -> String {
    let Some((_, rest)) = message.split_once("unknown field ") else {
        return message.to_owned();
    };
    let mut names = rest.split('`').skip(1).step_by(2);
    let Some(written) = names.next() else {
        return message.to_owned();
    };
    match names.map(|name| (distance(written, name), name)).min() {
        Some((distance, nearest)) if distance <= 3 => format!("{message}did you mean `{nearest}`?\n"),
        _ => message.to_owned(),
    }
}

/// Edits that turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn load(main: &str, drop_in: Option<&str>) -> Result<Config, ConfigError> {
        let scratch = Scratch::new("config");
        let path = scratch.path().join("partage.toml");
        std::fs::write(&path, main).expect("written");
        if let Some(text) = drop_in {
            std::fs::create_dir(scratch.path().join("conf.d")).expect("made");
            std::fs::write(scratch.path().join("conf.d/10-site.toml"), text).expect("written");
        }
        Config::load(&path)
    }

    #[test]
    fn a_later_file_wins_and_the_most_specific_reserve_counts() {
        let main = "schema = 1\n[gpu.\"*\"]\nreserve=\"1GiB\"\n[gpu.1]\nreserve=\"10%\"\n[broker]\npoll=\"100ms\"\n";
        let site = "schema = 1\n[gpu.\"GPU-ab\"]\nreserve=\"2GiB\"\n[broker]\npoll=\"200ms\"\n";
        let config = load(main, Some(site)).expect("valid");
        assert_eq!(config.poll_ns, SECOND_NS / 5);
        assert_eq!(config.reserve(0, "GPU-x", 10 << 30, 0), 1 << 30);
        assert_eq!(config.reserve(1, "GPU-x", 10 << 30, 0), 1 << 30);
        assert_eq!(config.reserve(1, "GPU-abc", 10 << 30, 0), 2 << 30);
        assert_eq!(
            config.reserve(0, "GPU-x", 10 << 30, 3 << 30),
            3 << 30,
            "never less than the driver keeps"
        );
    }

    #[test]
    fn mistakes_are_named_with_their_place_and_the_nearest_key() {
        let message = |text: &str| load(text, None).expect_err("wrong").to_string();
        let unknown = message("schema = 1\n[gpu.0]\nreserv = \"1GiB\"\n");
        assert!(
            unknown.contains("line 3") && unknown.contains("did you mean `reserve`"),
            "{unknown}"
        );
        assert!(message("[broker]\n").contains("schema = 1"));
        assert!(message("schema = 2\n").contains("schema"));
        assert!(message("schema = 1\n[gpu.0]\nreserve = \"8\"\n").contains("gpu.\"0\".reserve"));
        assert!(message("schema = 1\n[gpu.x]\nreserve = \"8GiB\"\n").contains("UUID"));
        assert!(message("schema = 1\n[broker]\npoll = \"10s\"\n").contains("50ms"));
        let audit = message("schema = 1\n[audit]\ndrift = \"murder\"\n");
        assert!(audit.contains("audit.drift") && audit.contains("deny-new"), "{audit}");
        assert!(message("schema = 1\n[audit]\ntolerance = \"5%\"\n").contains("audit.tolerance"));
    }

    #[test]
    fn overcommit_and_aliases_are_read_and_a_later_file_wins() {
        let main = "schema = 1\n[admission]\novercommit = 1.3\n[aliases]\nnvidia_gpu_memory = false\n\
                    cuda_device_memory_limit = false\n";
        let site = "schema = 1\n[aliases]\ncuda_device_memory_limit = true\n";
        let config = load(main, Some(site)).expect("valid");
        assert_eq!(config.overcommit_millionths, 1_300_000);
        assert_eq!(config.aliases_off, [Family::Nvidia]);
        let message = |text: &str| load(text, None).expect_err("wrong").to_string();
        for bad in ["0.9", "0", "-1", "17", "nan", "\"1.5\""] {
            let text = message(&format!("schema = 1\n[admission]\novercommit = {bad}\n"));
            assert!(text.contains("overcommit") || text.contains("line 3"), "{text}");
        }
        let unknown = message("schema = 1\n[aliases]\nnvidia_gpu_memori = true\n");
        assert!(unknown.contains("did you mean `nvidia_gpu_memory`"), "{unknown}");
        // The file's keys are the families' own.
        for family in Family::ALL {
            let config = load(&format!("schema = 1\n[aliases]\n{} = false\n", family.key()), None);
            assert_eq!(config.expect("valid").aliases_off, [family]);
        }
    }

    #[test]
    fn rules_about_time_are_read_and_a_later_file_wins() {
        let main = "schema = 1\n[admission]\ncompute_overcommit = 1.5\n[time]\nmax_class = \"high\"\n\
                    [aliases]\ncuda_task_priority = false\n";
        let config = load(main, Some("schema = 1\n[time]\nmax_class = \"low\"\n")).expect("valid");
        assert_eq!(config.compute_overcommit_millionths, 1_500_000);
        assert_eq!(
            config.overcommit_millionths,
            partage_policy::Config::ALL_ONCE,
            "memory is another matter"
        );
        assert_eq!(config.class_rule(Kind::Managed), Class::Low);
        assert_eq!(config.class_rule(Kind::Private), Class::Realtime);
        assert_eq!(Config::default().class_rule(Kind::Managed), Class::Normal);
        assert_eq!(config.time_aliases_off, [TimeVariable::TaskPriority]);
        let message = |text: &str| load(text, None).expect_err("wrong").to_string();
        let class = message("schema = 1\n[time]\nmax_class = \"urgent\"\n");
        assert!(
            class.contains("time.max_class") && class.contains("realtime"),
            "{class}"
        );
        assert!(message("schema = 1\n[admission]\ncompute_overcommit = 0.5\n").contains("compute_overcommit"));
        assert!(message("schema = 1\n[time]\nmax_clas = \"low\"\n").contains("did you mean `max_class`"));
        // The file's keys are the variables' own.
        for variable in TimeVariable::ALL {
            let config = load(&format!("schema = 1\n[aliases]\n{} = false\n", variable.key()), None);
            assert_eq!(config.expect("valid").time_aliases_off, [variable]);
        }
    }

    #[test]
    fn the_page_about_the_configuration_shows_every_default() {
        let page = include_str!("../../docs/configuration.md");
        let example = page
            .split("```toml\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next())
            .expect("an example");
        let mut config = load(example, None).expect("valid");
        assert_eq!(config.reserve(0, "GPU-x", 10 << 30, 0), 512 * MIB);
        config.reserves.clear();
        assert_eq!(config, Config::default());
    }

    #[test]
    fn the_auditor_is_told_what_to_do() {
        let main = "schema = 1\n[audit]\ndrift = \"deny-new\"\ntolerance = \"1MiB\"\n";
        let config = load(main, Some("schema = 1\n[audit]\nunmanaged = \"kill\"\n")).expect("valid");
        let audit = config.audit;
        assert_eq!(
            (audit.drift, audit.unmanaged, audit.tolerance),
            (Response::DenyNew, Response::Kill, MIB)
        );
    }

    #[test]
    fn no_file_gives_the_defaults() {
        let config = Config::load(Path::new("/nonexistent/partage.toml")).expect("defaults");
        assert_eq!(config, Config::default());
    }
}
