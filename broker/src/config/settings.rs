// SPDX-License-Identifier: Apache-2.0
//! The checked configuration, as numbers.

use std::collections::BTreeMap;

use partage_policy::{Audit, Split};
use partage_protocol::size::Amount;
use partage_protocol::terms::Class;
use partage_protocol::units::{MIB, SECOND_NS};

use super::metrics::MetricsSettings;
use super::notify::NotifySettings;
use crate::kind::Kind;

/// The file that makes a host managed.
pub const SYSTEM_FILE: &str = "/etc/partage/partage.toml";

/// What becomes of the jobs of a device that is sick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSick {
    /// They stay.
    #[default]
    Keep,
    /// They move off, as by `partage drain`.
    Drain,
}

impl OnSick {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Keep, Self::Drain];

    /// As the file has it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Drain => "drain",
        }
    }
}

/// The checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What becomes of the jobs of a device that is sick.
    pub on_sick: OnSick,
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
    /// What a monitoring system is told, and where.
    pub metrics: MetricsSettings,
    /// Which program is told of events.
    pub notify: NotifySettings,
    /// What the policy is told, but for what [`for_policy`](Self::for_policy) sets.
    pub policy: partage_policy::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            on_sick: OnSick::default(),
            reserves: BTreeMap::new(),
            log_level: "info".to_owned(),
            log_size: 8 * MIB,
            poll_ns: SECOND_NS / 2,
            clients_per_user: 4096,
            metrics: MetricsSettings::default(),
            notify: NotifySettings::default(),
            policy: partage_policy::Config {
                max_class: Class::Normal,
                split: Split::User,
                ..partage_policy::Config::default()
            },
        }
    }
}

impl Config {
    /// The highest class that everybody may ask for. A private broker's user decides alone.
    #[must_use]
    pub fn class_rule(&self, kind: Kind) -> Class {
        match kind {
            Kind::Private => Class::Realtime,
            Kind::Managed => self.policy.max_class,
        }
    }

    /// What the policy is told. A private broker has one user: device time is not split among users.
    #[must_use]
    pub fn for_policy(&self, kind: Kind, first_job: u64) -> partage_policy::Config {
        let is_private = kind == Kind::Private;
        let split = if is_private { Split::Job } else { self.policy.split };
        let uid = nix::unistd::geteuid().as_raw();
        partage_policy::Config {
            is_private,
            first_job,
            max_class: self.class_rule(kind),
            split,
            audit: Audit {
                uid,
                ..self.policy.audit
            },
            ..self.policy.clone()
        }
    }

    /// `2 classes and 1 rule`.
    #[must_use]
    pub fn counts(&self) -> String {
        let classes = match self.policy.rules.presets.len() {
            1 => "1 class".to_owned(),
            count => format!("{count} classes"),
        };
        match self.policy.rules.rules.len() {
            1 => format!("{classes} and 1 rule"),
            count => format!("{classes} and {count} rules"),
        }
    }

    /// Takes what changes while the broker runs. Answers the tables and keys in which the new one says something else
    /// that counts only from the next start.
    pub(crate) fn take(&mut self, new: Self) -> Vec<&'static str> {
        let later = [
            ("[gpu] reserve", self.reserves != new.reserves),
            (
                "[admission] overcommit",
                self.policy.overcommit_millionths != new.policy.overcommit_millionths,
            ),
            (
                "[admission] compute_overcommit",
                self.policy.compute_overcommit_millionths != new.policy.compute_overcommit_millionths,
            ),
            ("[broker] log_level", self.log_level != new.log_level),
            ("[broker] log_size", self.log_size != new.log_size),
            ("[broker] poll", self.poll_ns != new.poll_ns),
            ("[metrics]", self.metrics != new.metrics),
            ("[notify]", self.notify != new.notify),
        ];
        self.on_sick = new.on_sick;
        self.clients_per_user = new.clients_per_user;
        self.policy.take(new.policy);
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
