// SPDX-License-Identifier: Apache-2.0
//! An administrator's rules about jobs: what is asked, what is allowed, and what follows.
//!
//! *Preset*: numbers to start from under a name (`[class.NAME]` in the file, `--class NAME`). *Rule*: whom it matches
//! (by [`Facts`] from the kernel), the preset of jobs that name none, and the most that a job may have (`max`).
//! *Asked*: what options, variables, other tools and `partage set` say of a job ([`Asked`], [`AskedMemory`],
//! [`AskedTerms`]).
//!
//! One sentence of precedence: asked is the option, else its variable, else another tool's variable, else the preset
//! that is named, else the preset of the first matching rule that has one, else nothing; allowed is the strictest `max`
//! of all matching rules. What is said firmly (an option, `partage set`) and is above that is refused; everything else
//! above it is lowered to it. The function is [`Judge`]: rules, facts and the preset's name make one, and it turns what
//! is asked into numbers with the words behind each, or a refusal.
//!
//! *Total*: the most that several jobs may have together ([`Total`]). No job may have more than a total that it shares,
//! so a total is a `max` of each of its jobs, too. A preset that a rule gives to processes without `run` is a total of
//! their jobs: of those in one login scope or container, of one user's, or of each process alone ([`Per`]).
//!
//! Invariants: nothing that is asked raises a number above a rule, but what an administrator forced; another rule never
//! raises a number above one; the order of rules changes the preset of jobs that name none, and nothing else.

mod asked;
mod judge;
mod lines;
mod matching;
mod refused;
mod totals;

use std::collections::BTreeMap;
use std::fmt;

use partage_protocol::size::Amount;
use partage_protocol::terms::Class;

use crate::gpu_name::GpuName;
use crate::worded::worded;

pub use asked::{Asked, AskedMemory, AskedTerms, Facts, Said, Standing};
pub use judge::{CardSize, Judge, Memory};
pub use matching::{Match, Pattern};
pub use refused::NotAllowed;
pub(crate) use totals::{Sharing, TotalId};

/// Where something is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The file.
    pub file: String,
    /// The line, from 1 on.
    pub line: usize,
}

impl fmt::Display for At {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.file, self.line)
    }
}

/// A value of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written<T> {
    /// What it means.
    pub value: T,
    /// As it is written: `16GiB`.
    pub text: String,
    /// Where.
    pub at: At,
}

/// Numbers to start from, under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub at: At,
    /// Limit of memory on each GPU.
    pub mem: Option<Written<Amount>>,
    /// Promise of memory on each GPU; without one the limit is promised.
    pub mem_request: Option<Written<Amount>>,
    /// Limit of each process's memory on each GPU.
    pub process_mem: Option<Written<Amount>>,
    /// Promised part of each GPU's time, in millionths.
    pub compute_promise: Option<Written<u32>>,
    /// Part of each GPU's time that is never exceeded, in millionths; the whole is no cap.
    pub compute_max: Option<Written<u32>>,
    /// Weight beside other jobs.
    pub weight: Option<Written<u32>>,
    /// Priority.
    pub priority: Option<Written<Class>>,
    /// How long a job may run, in nanoseconds.
    pub time_limit: Option<Written<u64>>,
}

/// The most that a job may have. Amounts are per GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Max {
    /// Limit of memory.
    pub mem: Option<Written<Amount>>,
    /// Limit of each process's memory.
    pub process_mem: Option<Written<Amount>>,
    /// Promise of time, in millionths.
    pub compute_promise: Option<Written<u32>>,
    /// Cap of time, in millionths.
    pub compute_max: Option<Written<u32>>,
    /// Weight.
    pub weight: Option<Written<u32>>,
    /// Priority.
    pub priority: Option<Written<Class>>,
    /// How many GPUs.
    pub gpus: Option<Written<usize>>,
    /// How long it may run, in nanoseconds.
    pub time_limit: Option<Written<u64>>,
}

/// The most that several jobs may have together. Amounts are per GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Memory: Σ L + Σ O of the jobs.
    pub mem: Option<Written<Amount>>,
    /// Promised time, in millionths.
    pub compute_promise: Option<Written<u32>>,
    /// How many GPUs they are on.
    pub gpus: Option<Written<usize>>,
    /// How many of them run.
    pub jobs: Option<Written<usize>>,
}

impl Total {
    /// It says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

worded! {
    /// Whom a preset is for, of processes that came without `run`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Per(word) {
        /// All in one login scope or container, whatever their environment or uid.
        #[default]
        Scope = "scope",
        /// All of one user.
        User = "user",
        /// Each process with its descendants.
        Process = "process",
    }
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Its name, which no other rule has.
    pub name: String,
    /// Where it begins.
    pub at: At,
    /// Whose jobs it is about.
    pub matching: Match,
    /// The preset of jobs that name none.
    pub preset: Option<String>,
    /// Whom the preset is for, of processes without `run`.
    pub per: Per,
    /// The presets that jobs may name; any where there is no list.
    pub presets: Option<Written<Vec<String>>>,
    /// The GPUs that jobs may use; any where there is no list.
    pub gpu: Option<Written<Vec<GpuName>>>,
    /// The most that a job may have.
    pub max: Max,
    /// The most that all jobs of one user that match may have together.
    pub each_user: Total,
    /// The most that all jobs that match may have together.
    pub together: Total,
    /// Processes of jobs that use a GPU without Partage are killed, as with `--strict`.
    pub is_strict: bool,
    /// May processes have memory while no broker answers? Said of users or groups, or of everybody.
    pub without_broker: Option<WithoutBroker>,
}

worded! {
    /// What processes may do while no broker answers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum WithoutBroker(word) {
        /// They have memory, without a limit.
        Open = "open",
        /// They wait.
        Closed = "closed",
    }
}

/// All presets and rules, the rules in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Presets by name. Every name that a rule gives is among them.
    pub presets: BTreeMap<String, Preset>,
    /// The rules.
    pub rules: Vec<Rule>,
}

impl Rules {
    /// The rules that are about a job with these facts, in their order.
    pub fn matching(&self, facts: &Facts) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| rule.matching.holds(facts))
    }

    /// The rule that gives jobs with these facts a preset where they name none.
    pub(crate) fn default_rule(&self, facts: &Facts) -> Option<&Rule> {
        self.matching(facts).find(|rule| rule.preset.is_some())
    }

    /// The preset that a job names.
    pub(crate) fn named<'a>(&self, name: &'a str, facts: &Facts) -> Result<&'a str, NotAllowed>
    where
        Self: 'a,
    {
        if !self.presets.contains_key(name) {
            return Err(NotAllowed::UnknownPreset(
                name.to_owned(),
                self.presets.keys().cloned().collect(),
            ));
        }
        for rule in self.matching(facts) {
            if let Some(list) = rule
                .presets
                .as_ref()
                .filter(|list| !list.value.iter().any(|other| other == name))
            {
                let rule = format!("rule {}, classes = {} ({})", rule.name, list.text, list.at);
                return Err(NotAllowed::PresetNotAllowed(name.to_owned(), rule));
            }
        }
        Ok(name)
    }

    /// Does any rule ask for a group?
    #[must_use]
    pub fn match_groups(&self) -> bool {
        self.rules.iter().any(|rule| rule.matching.group.is_some())
    }

    /// Do the same rules match both? Then processes of both can share a default job.
    #[must_use]
    pub fn treat_alike(&self, one: &Facts, other: &Facts) -> bool {
        self.rules
            .iter()
            .all(|rule| rule.matching.holds(one) == rule.matching.holds(other))
    }
}
