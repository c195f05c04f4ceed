// SPDX-License-Identifier: Apache-2.0
//! What is asked of a job, before any rule: kept in its record, so that a loosened rule gives it back.

use partage_protocol::snapshot::SavedEvery;
use partage_protocol::terms::{Class, DEFAULT_WEIGHT, cap_of};
use partage_protocol::time_aliases::TimeAsked;
use serde::{Deserialize, Serialize};

use crate::registration::{Ceiling, Lowered};
use crate::terms::Terms;

/// What becomes of a number above what is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// It is refused: an option, or `partage set`, that was not yet accepted.
    Firm,
    /// It is lowered: a variable, another tool's number, and whatever was accepted before.
    #[default]
    Soft,
    /// It holds all the same: an administrator's `partage set --force`.
    Forced,
}

/// A number that somebody asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said<T> {
    /// What it means.
    pub value: T,
    /// The words: `--mem 25%`, `PARTAGE_MEM=25%`.
    pub words: String,
    /// What becomes of it above what is allowed.
    #[serde(default)]
    pub standing: Standing,
    /// An administrator said it: `[time] max_class` does not bind it.
    #[serde(default)]
    pub is_by_admin: bool,
}

impl<T> Said<T> {
    /// It was accepted: from now on it is lowered where it is too much, and not refused.
    pub(crate) fn settle(&mut self) {
        if self.standing == Standing::Firm {
            self.standing = Standing::Soft;
        }
    }

    /// Something that is refused where it is too much.
    pub(crate) fn firm(value: T, words: impl Into<String>) -> Self {
        Self {
            standing: Standing::Firm,
            ..Self::soft(value, words)
        }
    }

    /// The same words about another value.
    pub(crate) fn map<V>(self, change: impl FnOnce(T) -> V) -> Said<V> {
        Said {
            value: change(self.value),
            words: self.words,
            standing: self.standing,
            is_by_admin: self.is_by_admin,
        }
    }

    /// Something that is lowered where it is too much.
    pub(crate) fn soft(value: T, words: impl Into<String>) -> Self {
        Self {
            value,
            words: words.into(),
            standing: Standing::Soft,
            is_by_admin: false,
        }
    }
}

/// What is asked of the memory of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AskedMemory {
    /// Limit in bytes; none within is the whole card.
    pub limit: Option<Said<Option<u64>>>,
    /// Promise in bytes; without one it follows the preset, else the limit that is asked.
    pub request: Option<Said<u64>>,
    /// Limit of each process in bytes; none within is the job's limit alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Said<Option<u64>>>,
}

impl AskedMemory {
    /// This limit is asked from now on.
    pub(crate) fn set_limit(&mut self, limit: Said<Option<u64>>) {
        self.limit = Some(limit);
    }

    /// This promise is asked from now on.
    pub(crate) fn set_request(&mut self, request: Said<u64>) {
        self.request = Some(request);
    }

    /// This limit of each process is asked from now on.
    pub(crate) fn set_process(&mut self, limit: Said<Option<u64>>) {
        self.process = Some(limit);
    }

    /// It was accepted.
    pub(crate) fn settled(mut self) -> Self {
        for limit in [&mut self.limit, &mut self.process].into_iter().flatten() {
            limit.settle();
        }
        if let Some(request) = &mut self.request {
            request.settle();
        }
        self
    }

    /// The words of what an administrator forced.
    pub(crate) fn forced(&self) -> impl Iterator<Item = &str> {
        let limits = self.limit.iter().chain(&self.process);
        let limit = limits.map(|said| (said.standing, said.words.as_str()));
        let request = self.request.iter().map(|said| (said.standing, said.words.as_str()));
        forced(limit.chain(request))
    }
}

/// What is asked of devices' time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AskedTerms {
    /// Promised part, in millionths.
    pub promise: Option<Said<u32>>,
    /// Part never exceeded, in millionths; none within is no cap.
    pub cap: Option<Said<Option<u32>>>,
    /// Weight.
    pub weight: Option<Said<u32>>,
    /// Priority.
    pub priority: Option<Said<Class>>,
    /// How long it may run, in nanoseconds; none within is for ever.
    pub time_limit: Option<Said<Option<u64>>>,
}

impl AskedTerms {
    /// This promise is asked from now on.
    pub(crate) fn set_promise(&mut self, promise: Said<u32>) {
        self.promise = Some(promise);
    }

    /// This cap is asked from now on.
    pub(crate) fn set_cap(&mut self, cap: Said<Option<u32>>) {
        self.cap = Some(cap);
    }

    /// This weight is asked from now on.
    pub(crate) fn set_weight(&mut self, weight: Said<u32>) {
        self.weight = Some(weight);
    }

    /// This priority is asked from now on.
    pub(crate) fn set_priority(&mut self, priority: Said<Class>) {
        self.priority = Some(priority);
    }

    /// This time limit is asked from now on.
    pub(crate) fn set_time_limit(&mut self, time_limit: Said<Option<u64>>) {
        self.time_limit = Some(time_limit);
    }

    /// What other tools' variables say, where they count.
    pub(crate) fn take_aliases(&mut self, aliases: TimeAsked) {
        if let Some(cap) = aliases.cap {
            self.cap = Some(Said::soft(cap_of(cap.value), cap.text));
        }
        if let Some(class) = aliases.class {
            self.priority = Some(Said::soft(class.value, class.text));
        }
    }

    /// The same, of a program that nobody asked for: a variable of its environment can only lower its priority.
    pub(crate) fn take_lowering_aliases(&mut self, aliases: TimeAsked) {
        let class = aliases.class.filter(|class| class.value < Class::default());
        self.take_aliases(TimeAsked { class, ..aliases });
    }

    /// What a broker that knew no rules granted, as if it had been asked.
    pub(crate) fn of_granted(terms: &Terms) -> Self {
        let said = &terms.origin;
        let priority = Said {
            // Whoever gave it could.
            is_by_admin: true,
            ..Said::soft(terms.class, said.class.clone())
        };
        Self {
            promise: Some(Said::soft(terms.promise_ppm, said.promise.clone())),
            cap: terms.cap_ppm.map(|cap| Said::soft(Some(cap), said.cap.clone())),
            weight: Some(Said::soft(terms.weight, said.weight.clone())).filter(|said| said.value != DEFAULT_WEIGHT),
            priority: Some(priority).filter(|said| said.value != Class::default()),
            time_limit: terms
                .time_limit_ns
                .map(|limit| Said::soft(Some(limit), said.time_limit.clone())),
        }
    }

    /// The same with the promise that was granted.
    pub(crate) fn with_promise_of(&self, granted: &Terms) -> Self {
        let promise = Said::soft(granted.promise_ppm, granted.origin.promise.clone());
        Self {
            promise: Some(promise),
            ..self.clone()
        }
    }

    /// They were accepted.
    pub(crate) fn settled(mut self) -> Self {
        let Self {
            promise,
            cap,
            weight,
            priority,
            time_limit,
        } = &mut self;
        promise.iter_mut().for_each(Said::settle);
        cap.iter_mut().for_each(Said::settle);
        weight.iter_mut().for_each(Said::settle);
        priority.iter_mut().for_each(Said::settle);
        time_limit.iter_mut().for_each(Said::settle);
        self
    }

    /// The words of what an administrator forced.
    pub(crate) fn forced(&self) -> impl Iterator<Item = &str> {
        let numbers = self
            .promise
            .iter()
            .chain(&self.weight)
            .map(|said| (said.standing, said.words.as_str()));
        let cap = self.cap.iter().map(|said| (said.standing, said.words.as_str()));
        let priority = self.priority.iter().map(|said| (said.standing, said.words.as_str()));
        let time = self.time_limit.iter().map(|said| (said.standing, said.words.as_str()));
        forced(numbers.chain(cap).chain(priority).chain(time))
    }
}

fn forced<'a>(said: impl Iterator<Item = (Standing, &'a str)>) -> impl Iterator<Item = &'a str> {
    said.filter(|(standing, _)| *standing == Standing::Forced)
        .map(|(_, words)| words)
}

/// What the kernel says of the process that a job began with, and what root registered. No environment is among it,
/// and no label that a user gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Its uid.
    pub uid: u32,
    /// Login name, or the uid in digits.
    pub user: String,
    /// Names of its groups, and their gids in digits.
    pub groups: Vec<String>,
    /// Its control group's path.
    pub cgroup: String,
    /// Its paths in other hierarchies, where they are others (cgroup v1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_cgroups: Vec<String>,
    /// The name of its program's file.
    pub program: String,
    /// An administrator asked for the job: `[time] max_class` does not bind it.
    pub is_admin: bool,
    /// The login scope or container of a process without `run`; none for a job of `run`. The job's record has it once,
    /// as `default_scope`.
    #[serde(skip)]
    pub scope: Option<String>,
    /// Labels that root registered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<(String, String)>,
    /// The id of its container, as root registered it; empty without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// The container's name, likewise.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container_name: String,
    /// The most that whoever started the container wrote beside it, or whoever registered the job.
    #[serde(skip_serializing_if = "Lowered::is_empty")]
    pub lowered: Lowered,
    /// The most that root registered; none for a job that root did not register.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Ceiling>,
    /// The engine's job for which root registered it, and what the engine gave that, in its words; empty without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub engine: String,
}

impl Asked {
    /// The user database knows more: these facts count from now on.
    pub(crate) fn take_facts(&mut self, facts: Facts) {
        self.facts = Some(facts);
    }
}

impl Facts {
    /// ` for slurm:4711 (shard:5 of 10)`; empty without an engine.
    pub(crate) fn for_engine(&self) -> String {
        match self.engine.as_str() {
            "" => String::new(),
            engine => format!(" for {engine}"),
        }
    }

    /// Under this ceiling.
    pub(crate) fn with_ceiling(self, ceiling: Ceiling) -> Self {
        let ceiling = Some(ceiling);
        Self { ceiling, ..self }
    }

    /// Somebody wrote this beside the job.
    pub(crate) fn with_lowered(self, lowered: Lowered) -> Self {
        Self { lowered, ..self }
    }

    /// The user database knows more of its user. Answers whether that is news. Nothing is taken away: a process keeps
    /// the groups that it began with, and digits are no news of a name.
    pub(crate) fn learn(&mut self, user: &str, groups: &[String]) -> bool {
        let is_named = self.user != user && user != self.uid.to_string();
        if is_named {
            user.clone_into(&mut self.user);
        }
        let known = self.groups.len();
        for group in groups {
            if !self.groups.contains(group) {
                self.groups.push(group.clone());
            }
        }
        is_named || self.groups.len() > known
    }
}

/// What a job's record keeps beside its numbers, for the day on which the rules change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// The preset that was named.
    pub preset: Option<String>,
    /// Terms of time. None in a record of a broker that knew no rules: what it granted counts as asked.
    pub terms: Option<AskedTerms>,
    /// Facts. None likewise.
    pub facts: Option<Facts>,
    /// Whether it may be suspended for a job of a higher class; by its own class where that was not said.
    pub preemptible: Option<bool>,
    /// It leaves its devices when it did nothing with them for so long, in nanoseconds.
    pub idle_release_ns: Option<u64>,
    /// It is saved again and again.
    pub saved: Option<SavedEvery>,
    /// The first process of a tree that was restored, by its number in the pid namespace that `restore` makes.
    pub restored_root: Option<u32>,
}
