// SPDX-License-Identifier: Apache-2.0
//! Merges the files, in order, into the configuration, and checks each key.

use std::path::{Path, PathBuf};

use partage_policy::{Order, Response, Split};
use partage_protocol::aliases::Family;
use partage_protocol::size::{Amount, parse_amount, parse_duration};
use partage_protocol::terms::parse_class;
use partage_protocol::time_aliases::TimeVariable;
use partage_protocol::units::SECOND_NS;

use super::error::ConfigError;
use super::file::{AdmissionTable, AliasTable, AuditTable, BrokerTable, File, GpuTables};
use super::guard;
use super::log_filter::log_filter;
use super::rules::{self, Names};
use super::settings::{Config, OnSick};
use super::source::{Source, one_of};

impl Config {
    /// The file and its drop-ins, which root or the broker's user alone may change; the defaults where there is no
    /// file.
    ///
    /// # Errors
    /// [`ConfigError`] for the first thing that does not hold.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let mut files = Vec::new();
        // A link to nowhere, or a file that may not be seen, is there and cannot be read: rules never vanish unsaid.
        if !path.symlink_metadata().is_err_and(|why| is_missing(&why)) {
            files.push(path.to_owned());
        }
        let folder = path.with_file_name("conf.d");
        guard::folder(&folder)?;
        files.extend(drop_ins(&folder)?);
        let text = |path: &PathBuf| Ok((path.clone(), guard::read(path)?));
        let texts: Vec<(PathBuf, String)> = files.iter().map(text).collect::<Result<_, _>>()?;
        Self::merged(&texts)
    }

    /// These files, in this order.
    ///
    /// # Errors
    /// [`ConfigError`] for the first thing that does not hold.
    pub fn read(files: &[PathBuf]) -> Result<Self, ConfigError> {
        let read = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).map_err(|why| ConfigError::Read {
                path: path.clone(),
                why,
            })?;
            Ok((path.clone(), text))
        };
        let texts: Vec<(PathBuf, String)> = files.iter().map(read).collect::<Result<_, _>>()?;
        Self::merged(&texts)
    }

    /// The files' texts, in this order.
    pub(super) fn merged(texts: &[(PathBuf, String)]) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let mut names = Names::default();
        for (path, text) in texts {
            config.merge(Source { path, text }, &mut names)?;
        }
        names.check(texts, &config.policy.rules)?;
        Ok(config)
    }

    fn merge(&mut self, source: Source<'_>, names: &mut Names) -> Result<(), ConfigError> {
        let file: File = toml::from_str(source.text).map_err(|error| source.syntax(&error))?;
        match &file.schema {
            Some(schema) if *schema.get_ref() == 1 => {}
            Some(other) => {
                let why = format!("{} is not known here; this version reads 1", other.get_ref());
                return Err(source.wrong(other.span(), "schema", why));
            }
            None => return Err(source.wrong(0..0, "schema", "missing; write `schema = 1` first")),
        }
        self.merge_gpus(file.gpu, source)?;
        self.merge_admission(&file.admission, source)?;
        if let Some(text) = file.time.max_class {
            self.policy.max_class = source.read("time.max_class", &text, parse_class)?;
        }
        if let Some(text) = &file.time.split {
            self.policy.split = one_of(source, "time.split", text, (&Split::ALL, Split::word))?;
        }
        self.merge_queue(&file.admission, source)?;
        self.merge_audit(file.audit, source)?;
        self.merge_aliases(&file.aliases);
        self.merge_broker(file.broker, source)?;
        self.metrics.merge(file.metrics, source)?;
        self.notify.merge(file.notify, source)?;
        let index = names.next_file();
        rules::merge_presets(&mut self.policy.rules, file.class, source)?;
        for rule in file.rule {
            let rule = rules::read_rule(rule, source, (index, names))?;
            self.policy.rules.rules.push(rule);
        }
        Ok(())
    }

    fn merge_gpus(&mut self, gpus: GpuTables, source: Source<'_>) -> Result<(), ConfigError> {
        if let Some(text) = &gpus.on_sick {
            self.on_sick = one_of(source, "gpu.on_sick", text, (&OnSick::ALL, OnSick::word))?;
        }
        for (gpu, table) in gpus.of {
            let (span, gpu) = (gpu.span(), gpu.into_inner());
            let key = format!("gpu.\"{gpu}\".reserve");
            if !is_gpu_name(&gpu) {
                return Err(source.wrong(span, &key, "a device is `*`, an index or a UUID (`GPU-…`, `MIG-…`)"));
            }
            if let Some(text) = table.reserve {
                let amount = source.read(&key, &text, parse_amount)?;
                self.reserves.insert(gpu, amount);
            }
        }
        Ok(())
    }

    fn merge_admission(&mut self, table: &AdmissionTable, source: Source<'_>) -> Result<(), ConfigError> {
        let compute = &mut self.policy.compute_overcommit_millionths;
        for (key, ratio, place) in [
            ("overcommit", &table.overcommit, &mut self.policy.overcommit_millionths),
            ("compute_overcommit", &table.compute_overcommit, compute),
        ] {
            let Some(written) = ratio else { continue };
            let ratio = *written.get_ref();
            // A ratio below 1 would be a reserve, which has a key of its own for memory and no use for time.
            if !(1.0..=16.0).contains(&ratio) {
                let why = format!("{ratio} is not between 1.0 (promise what there is) and 16.0");
                return Err(source.wrong(written.span(), &format!("admission.{key}"), why));
            }
            *place = (ratio * partage_policy::Config::ALL_ONCE as f64).round() as u64;
        }
        Ok(())
    }

    fn merge_queue(&mut self, table: &AdmissionTable, source: Source<'_>) -> Result<(), ConfigError> {
        if let Some(text) = &table.order {
            self.policy.queue.order = one_of(source, "admission.order", text, (&Order::ALL, Order::word))?;
        }
        let (minute, day) = (60 * SECOND_NS, 86_400 * SECOND_NS);
        for (key, text, most_ns, place) in [
            (
                "admission.half_life",
                &table.half_life,
                30 * day,
                &mut self.policy.queue.half_life_ns,
            ),
            (
                "admission.max_wait",
                &table.max_wait,
                365 * day,
                &mut self.policy.queue.max_wait_ns,
            ),
        ] {
            let Some(text) = text else { continue };
            let ns = source.read(key, text, parse_duration)?;
            if !(minute..=most_ns).contains(&ns) {
                return Err(source.wrong(text.span(), key, format!("between 1m and {}d", most_ns / day)));
            }
            *place = ns;
        }
        Ok(())
    }

    fn merge_audit(&mut self, table: AuditTable, source: Source<'_>) -> Result<(), ConfigError> {
        let audit = &mut self.policy.audit;
        for (key, text, place) in [
            ("drift", table.drift, &mut audit.drift),
            ("unmanaged", table.unmanaged, &mut audit.unmanaged),
        ] {
            let Some(text) = text else { continue };
            *place = one_of(source, &format!("audit.{key}"), &text, (&Response::ALL, Response::word))?;
        }
        if let Some(text) = table.tolerance {
            let key = "audit.tolerance";
            audit.tolerance = match source.read(key, &text, parse_amount)? {
                Amount::Bytes(bytes) => bytes,
                _ => return Err(source.wrong(text.span(), key, "as bytes, such as 64MiB")),
            };
        }
        Ok(())
    }

    fn merge_aliases(&mut self, table: &AliasTable) {
        for family in Family::ALL {
            let is_on = match family {
                Family::Nvidia => table.nvidia_gpu_memory,
                Family::Device => table.cuda_device_memory_limit,
                Family::Pinned => table.cuda_mps_pinned_device_mem_limit,
            };
            switch(&mut self.policy.aliases_off, family, is_on);
        }
        for variable in TimeVariable::ALL {
            let is_on = match variable {
                TimeVariable::SmLimit => table.cuda_device_sm_limit,
                TimeVariable::ActiveThreads => table.cuda_mps_active_thread_percentage,
                TimeVariable::TaskPriority => table.cuda_task_priority,
            };
            switch(&mut self.policy.time_aliases_off, variable, is_on);
        }
    }

    fn merge_broker(&mut self, table: BrokerTable, source: Source<'_>) -> Result<(), ConfigError> {
        if let Some(level) = table.log_level {
            source.read("broker.log_level", &level, log_filter)?;
            self.log_level = level.into_inner();
        }
        if let Some(text) = table.log_size {
            let key = "broker.log_size";
            self.log_size = match source.read(key, &text, parse_amount)? {
                Amount::Bytes(bytes) if bytes >= 64 << 10 => bytes,
                _ => return Err(source.wrong(text.span(), key, "at least 64KiB, as bytes")),
            };
        }
        if let Some(text) = table.poll {
            let poll_ns = source.read("broker.poll", &text, parse_duration)?;
            // Faster looks cost the driver's lock; slower ones break the bound within which a rogue process is found.
            if !(SECOND_NS / 20..=SECOND_NS).contains(&poll_ns) {
                return Err(source.wrong(text.span(), "broker.poll", "between 50ms and 1s"));
            }
            self.poll_ns = poll_ns;
        }
        if let Some(clients) = table.clients_per_user {
            if *clients.get_ref() == 0 {
                return Err(source.wrong(clients.span(), "broker.clients_per_user", "at least 1"));
            }
            self.clients_per_user = clients.into_inner();
        }
        Ok(())
    }
}

/// Takes what is on out of the list of what is off, or puts it there; a key that is not written changes nothing.
fn switch<T: PartialEq>(off: &mut Vec<T>, which: T, is_on: Option<bool>) {
    let Some(is_on) = is_on else { return };
    off.retain(|other| *other != which);
    if !is_on {
        off.push(which);
    }
}

/// The files of a folder that count, in the order of their names; none where there is no folder.
fn drop_ins(folder: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let list = || -> std::io::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(folder)?;
        entries.map(|entry| Ok(entry?.path())).collect()
    };
    let mut found = match list() {
        Ok(found) => found,
        Err(why) if is_missing(&why) => Vec::new(),
        Err(why) => {
            let path = folder.to_owned();
            return Err(ConfigError::Read { path, why });
        }
    };
    found.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    found.sort();
    Ok(found)
}

fn is_missing(why: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn is_gpu_name(name: &str) -> bool {
    name == "*" || name.parse::<u32>().is_ok() || name.starts_with("GPU-") || name.starts_with("MIG-")
}
