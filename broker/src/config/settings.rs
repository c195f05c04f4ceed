// SPDX-License-Identifier: Apache-2.0
//! The checked configuration, as numbers.

use std::collections::BTreeMap;

use partage_policy::{Audit, QueueRules, Rules, Split};
use partage_protocol::aliases::Family;
use partage_protocol::size::Amount;
use partage_protocol::terms::Class;
use partage_protocol::time_aliases::TimeVariable;
use partage_protocol::units::{MIB, SECOND_NS};

use crate::kind::Kind;

/// The file that makes a host managed.
pub const SYSTEM_FILE: &str = "/etc/partage/partage.toml";

/// The checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Reserve by `*`, index or UUID prefix.
    pub(super) reserves: BTreeMap<String, Amount>,
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
    /// How device time that is not promised is split on a managed host.
    pub split: Split,
    /// Which waiting job is next.
    pub queue: QueueRules,
    /// Presets and rules.
    pub rules: Rules,
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
            split: Split::User,
            queue: QueueRules::default(),
            rules: Rules::default(),
        }
    }
}

impl Config {
    /// The highest class that everybody may ask for. A private broker's user decides alone.
    #[must_use]
    pub fn class_rule(&self, kind: Kind) -> Class {
        match kind {
            Kind::Private => Class::Realtime,
            Kind::Managed => self.max_class,
        }
    }

    /// How device time that is not promised is split: a private broker has one user.
    #[must_use]
    pub fn split_rule(&self, kind: Kind) -> Split {
        match kind {
            Kind::Private => Split::Job,
            Kind::Managed => self.split,
        }
    }

    /// `2 classes and 1 rule`.
    #[must_use]
    pub fn counts(&self) -> String {
        let classes = match self.rules.presets.len() {
            1 => "1 class".to_owned(),
            count => format!("{count} classes"),
        };
        match self.rules.rules.len() {
            1 => format!("{classes} and 1 rule"),
            count => format!("{classes} and {count} rules"),
        }
    }

    /// Takes what changes while the broker runs. Answers the tables and keys in which the new one says something else
    /// that counts only from the next start.
    pub(crate) fn take(&mut self, new: Self) -> Vec<&'static str> {
        let later = [
            ("[gpu]", self.reserves != new.reserves),
            (
                "[admission] overcommit",
                self.overcommit_millionths != new.overcommit_millionths,
            ),
            (
                "[admission] compute_overcommit",
                self.compute_overcommit_millionths != new.compute_overcommit_millionths,
            ),
            ("[broker] log_level", self.log_level != new.log_level),
            ("[broker] log_size", self.log_size != new.log_size),
            ("[broker] poll", self.poll_ns != new.poll_ns),
        ];
        self.clients_per_user = new.clients_per_user;
        self.max_class = new.max_class;
        self.aliases_off = new.aliases_off;
        self.time_aliases_off = new.time_aliases_off;
        self.audit = new.audit;
        self.split = new.split;
        self.queue = new.queue;
        self.rules = new.rules;
        later
            .into_iter()
            .filter(|(_, is_other)| *is_other)
            .map(|(key, _)| key)
            .collect()
    }

    /// What jobs cannot share on a device, in bytes: the most specific configured reserve, and at least what the driver
    /// keeps for itself.
    #[must_use]
    pub fn reserve(&self, index: u32, uuid: &str, total: u64, kept_by_driver: u64) -> u64 {
        let configured = self.configured_reserve(index, uuid);
        let configured = configured.map_or(0, |amount| amount.on(total));
        configured.max(kept_by_driver).min(total)
    }

    /// The same of a device that uses the host's memory: what is to stay available to the host.
    #[must_use]
    pub fn host_reserve(&self, index: u32, uuid: &str, total: u64, default: u64) -> u64 {
        let configured = self.configured_reserve(index, uuid);
        configured.map_or(default, |amount| amount.on(total)).min(total)
    }

    /// The most specific configured reserve.
    fn configured_reserve(&self, index: u32, uuid: &str) -> Option<&Amount> {
        let by_uuid = self
            .reserves
            .iter()
            .filter(|(name, _)| name.contains('-') && uuid.starts_with(name.as_str()));
        by_uuid
            .max_by_key(|(name, _)| name.len())
            .map(|(_, amount)| amount)
            .or_else(|| self.reserves.get(&index.to_string()))
            .or_else(|| self.reserves.get("*"))
    }
}
