// SPDX-License-Identifier: Apache-2.0
//! The job's record: for the next broker, and of its end.

use partage_protocol::denied::Denied;
use partage_protocol::message::TOKEN_BYTES;
use partage_protocol::terms::Class;
use partage_protocol::units::DeviceUuid;
use serde::{Deserialize, Serialize};

use super::denial::Denial;
use crate::caller::Process;
use crate::origin::Origin;
use crate::registration::{Ceiling, Registration};
use crate::residence::{Mark, ResidenceRecord};
use crate::rules::{Asked, AskedMemory, AskedTerms, Facts, Memory, Said, Standing};
use crate::terms::Terms;

/// One device of a job as promised; part of the job's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// `GPU-…` or `MIG-…`.
    #[serde(with = "crate::uuid_text")]
    pub device: DeviceUuid,
    /// Never exceeded, in bytes; none is the whole card.
    pub limit: Option<u64>,
    /// Promised bytes.
    pub request: u64,
    /// What set the two.
    #[serde(default)]
    pub origin: Origin,
    /// What was asked here, before the rules; none in a record of a broker that knew none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<AskedMemory>,
    /// What each process may hold at most, in bytes; none is the job's limit alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u64>,
    /// Processes with a limit of their own instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<OwnLimit>,
}

/// What one process may hold of a device, which `partage set process:PID mem=…` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnLimit {
    /// Which process.
    pub process: Process,
    /// What was asked, before the rules; none within is the job's limit alone.
    pub asked: Said<Option<u64>>,
    /// What holds, in bytes.
    pub limit: Option<u64>,
    /// What set it.
    pub words: String,
}

impl Placement {
    /// What was asked here; of a broker that knew no rules, what it granted.
    pub(crate) fn asked(&self) -> AskedMemory {
        let granted = || AskedMemory {
            limit: self
                .limit
                .map(|limit| Said::soft(Some(limit), self.origin.limit.clone())),
            request: Some(Said::soft(self.request, self.origin.request.clone())),
            process: None,
        };
        self.asked.clone().unwrap_or_else(granted)
    }

    /// It has these numbers, which follow from what is asked.
    pub(crate) fn take(&mut self, memory: Memory, asked: AskedMemory) {
        self.limit = memory.limit;
        self.request = memory.request;
        self.process = memory.process;
        self.origin = Origin {
            limit: memory.limit_words,
            request: memory.request_words,
            process: memory.process_words,
        };
        self.asked = Some(asked.settled());
    }

    /// What this process may hold at most, beside the job's limit.
    #[must_use]
    pub fn process_limit(&self, process: Process) -> Option<u64> {
        let own = self.own.iter().find(|own| own.process == process);
        own.map_or(self.process, |own| own.limit)
    }

    /// Another limit, or none, which these words set. A promise that equals the limit follows it; where the limit is
    /// taken away, the promise stays, and what set the limit set the promise that followed it.
    pub(crate) fn set_limit(&mut self, limit: Option<u64>, text: &str) {
        let follows = self.request > 0 && self.limit == Some(self.request);
        match limit {
            Some(limit) => {
                let request = if follows { limit } else { self.request.min(limit) };
                if follows || request < self.request {
                    self.origin.request.clear();
                }
                self.request = request;
            }
            None if follows && self.origin.request.is_empty() => self.origin.request.clone_from(&self.origin.limit),
            None => {}
        }
        self.limit = limit;
        text.clone_into(&mut self.origin.limit);
    }

    /// Another promise, which these words set.
    pub(crate) fn set_request(&mut self, request: u64, text: &str) {
        self.request = request;
        text.clone_into(&mut self.origin.request);
    }
}

/// What the next broker must know of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The number in `j42`.
    pub id: u64,
    /// Owner.
    pub uid: u32,
    /// Owner's login name, or the uid in digits.
    pub user: String,
    /// `--name`.
    pub name: Option<String>,
    /// `--label`.
    pub labels: Vec<(String, String)>,
    /// The command.
    pub command: Vec<String>,
    /// First process; none for a default job.
    pub first: Option<Process>,
    /// What `PARTAGE_TOKEN` holds, as bytes.
    pub token: [u8; TOKEN_BYTES],
    /// Its cgroup, where the broker could read one.
    pub cgroup: Option<String>,
    /// Scope of a default job; none for a job of `run`.
    pub default_scope: Option<String>,
    /// What the environment of a default job's processes asks for: processes that ask for something else have a default
    /// job of their own. Empty where it asks for nothing.
    #[serde(default)]
    pub environment: String,
    /// `--strict`.
    pub is_strict: bool,
    /// Its user does not want to hear of its end.
    #[serde(default)]
    pub is_quiet: bool,
    /// Its devices, slot 0 first; empty while it waits.
    pub devices: Vec<Placement>,
    /// What it may have of their time; the usual for a job of a broker that knew none.
    #[serde(default)]
    pub terms: Terms,
    /// What was asked, and by whom, for the day on which the rules change.
    #[serde(default)]
    pub asked: Asked,
    /// Unix time of admission in nanoseconds; of the request while it waits.
    pub started_unix_ns: u64,
    /// Whether its memory is on its devices; here, for a job of a broker that knew nothing else.
    #[serde(default)]
    pub residence: ResidenceRecord,
    /// What was registered, where another process than the caller of `run` is its first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration: Option<Registration>,
}

impl JobRecord {
    /// The token in hexadecimal digits.
    #[must_use]
    pub fn token_text(&self) -> String {
        self.token.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What the rules go by. Of a broker that knew none, what else is recorded.
    pub(crate) fn facts(&self) -> Facts {
        let recorded = || Facts {
            uid: self.uid,
            user: self.user.clone(),
            cgroup: self.cgroup.clone().unwrap_or_default(),
            ..Facts::default()
        };
        Facts {
            scope: self.default_scope.clone(),
            ..self.asked.facts.clone().unwrap_or_else(recorded)
        }
    }

    /// What was asked of devices' time.
    pub(crate) fn asked_terms(&self) -> AskedTerms {
        let granted = || AskedTerms::of_granted(&self.terms);
        self.asked.terms.clone().unwrap_or_else(granted)
    }

    /// What is asked of devices' time from now on.
    pub(crate) fn set_asked_terms(&mut self, asked: AskedTerms) {
        self.asked.terms = Some(asked.settled());
    }

    /// What an administrator forced beyond the rules, as it was written; each once.
    pub(crate) fn forced(&self) -> Vec<String> {
        let terms = self.asked.terms.iter().flat_map(AskedTerms::forced);
        let places = self.devices.iter().filter_map(|place| place.asked.as_ref());
        let own = self.devices.iter().flat_map(|place| &place.own);
        let own = own.filter(|own| own.asked.standing == Standing::Forced);
        let mut words: Vec<String> = terms
            .chain(places.flat_map(AskedMemory::forced))
            .chain(own.map(|own| own.asked.words.as_str()))
            .map(str::to_owned)
            .collect();
        words.sort();
        words.dedup();
        words
    }

    /// It is admitted to these places; answers when it asked. Of no places: it waits, and asked then.
    pub(crate) fn begin(&mut self, places: &[Placement], unix_ns: u64) -> u64 {
        self.set_devices(places);
        let asked = std::mem::replace(&mut self.started_unix_ns, unix_ns);
        self.residence.note_queued(unix_ns.saturating_sub(asked));
        asked
    }

    /// The user database knows more of its user. Answers whether that is news.
    pub(crate) fn learn_user(&mut self, user: &str, groups: &[String]) -> bool {
        let mut facts = self.facts();
        let is_news = facts.learn(user, groups);
        if is_news {
            self.user.clone_from(&facts.user);
            self.asked.take_facts(facts);
        }
        is_news
    }

    /// The most that its owner may raise its numbers to, from now on.
    pub(crate) fn set_ceiling(&mut self, ceiling: Ceiling) {
        let facts = self.facts().with_ceiling(ceiling);
        self.asked.take_facts(facts);
    }

    /// The process that it lives by from now on.
    pub(crate) fn set_first(&mut self, first: Process) {
        self.first = Some(first);
    }

    /// Its name from now on.
    pub(crate) fn set_name(&mut self, name: Option<String>) {
        self.name = name;
    }

    /// Strict from now on, or not.
    pub(crate) fn set_strict(&mut self, is_strict: bool) {
        self.is_strict = is_strict;
    }

    /// Its terms of time from now on.
    pub(crate) fn set_terms(&mut self, terms: Terms) {
        self.terms = terms;
    }

    /// Its places from now on.
    pub(crate) fn set_devices(&mut self, places: &[Placement]) {
        self.devices = places.to_vec();
    }

    /// May it be suspended for a job of a higher class?
    #[must_use]
    pub fn is_preemptible(&self) -> bool {
        self.asked.preemptible.unwrap_or(self.terms.class == Class::Low)
    }

    /// Where its memory is from now on; `used` is what it holds, by slot.
    pub(crate) fn set_mark(&mut self, mark: Mark, unix_ns: u64) {
        let exchanged = mark.target.filter(|_| mark.is_placed);
        if let Some(target) = exchanged
            && let Some(place) = self.devices.get_mut(target.slot)
        {
            place.device = target.device;
        }
        let mark = if exchanged.is_some() { mark.placed() } else { mark };
        self.residence.set_mark(mark, unix_ns);
    }

    /// For how long it was admitted and here, up to this instant of Unix time, in nanoseconds.
    #[must_use]
    pub fn run_ns(&self, unix_ns: u64) -> u64 {
        let since = unix_ns.saturating_sub(self.started_unix_ns);
        since.saturating_sub(self.residence.absent_ns(unix_ns))
    }
}

/// What is remembered of a job that ended, by this broker and the next ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedJob {
    /// The job as it was.
    pub job: JobRecord,
    /// Unix time of its end in nanoseconds.
    pub ended_unix_ns: u64,
    /// Why it ended.
    pub reason: String,
    /// In the order of its devices.
    pub slots: Vec<EndedSlot>,
    /// As the job's notes.
    pub notes: Vec<String>,
    /// Exit code of its first process, where it was seen.
    #[serde(default)]
    pub exit_code: Option<u32>,
    /// Its time limit ended it.
    #[serde(default)]
    pub is_over_time: bool,
    /// Processes of it that used a GPU without Partage.
    #[serde(default)]
    pub strangers_seen: u64,
}

/// One device of an [`EndedJob`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedSlot {
    /// Highest use seen.
    pub peak: u64,
    /// Denials by reason.
    pub denied: Denied,
    /// The last one.
    pub last_denial: Option<Denial>,
    /// Index of the device then.
    #[serde(default)]
    pub index: Option<u32>,
    /// Its model.
    #[serde(default)]
    pub model: String,
}
