// SPDX-License-Identifier: Apache-2.0
//! The job of a process that came without `run`.

use crate::books::Books;
use crate::books::room::placement::visible;
use crate::device::{Device, DeviceState};
use crate::event::{Attaching, Membership};
use crate::job::{Job, JobRecord, Placement};
use crate::origin::Origin;
use crate::rules::{AskedMemory, AskedTerms, Judge, Per, Said, TotalId};
use partage_protocol::aliases::{Asked as Aliases, Variable, asked};
use partage_protocol::message::MAX_DEVICES;
use partage_protocol::size::format_bytes;
use partage_protocol::terms::format_part;
use partage_protocol::time_aliases::{self, TimeVariable};
use partage_protocol::units::{DeviceUuid, JobId};

pub(crate) const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

pub(crate) fn says_anything(environment: &[(String, String)]) -> bool {
    let counts = |(name, value): &(String, String)| Variable::of(name.as_bytes()).is_some() && !value.is_empty();
    environment.iter().any(counts)
}

/// The limit where variables cannot be read: a limit of 0 would read as none.
pub(crate) const NOTHING: u64 = 1;

/// What an environment asks for.
pub(crate) enum Environment {
    /// Nothing.
    Silent,
    /// This limit on every device, and the words that set it.
    Everywhere(u64, String),
    /// This, device by device, where the program sees these (`CUDA_VISIBLE_DEVICES`).
    ByDevice(Aliases, Option<String>),
    /// Something that cannot be followed: why.
    Unreadable(String),
}

/// The cap where variables cannot be read, in millionths.
pub(crate) const UNREADABLE_CAP_PPM: u32 = 10_000;

/// Tells environments apart. As it was written and not as it was understood: another broker's configuration or another
/// list of devices may understand it otherwise, and the job stays what it was.
pub(crate) fn key(membership: &Membership) -> String {
    if membership.is_environment_cut {
        return "cut".into();
    }
    let is_time = |name: &str| TimeVariable::of(name.as_bytes()).is_some();
    let says_time = membership
        .environment
        .iter()
        .any(|(name, value)| is_time(name) && !value.is_empty());
    if says_anything(&membership.environment) || says_time {
        let mut entries: Vec<String> = membership
            .environment
            .iter()
            .filter(|(name, _)| name == VISIBLE || is_time(name) || Variable::of(name.as_bytes()).is_some())
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        entries.sort();
        return entries.join(" ");
    }
    match membership.environment_limit {
        0 => String::new(),
        limit => format!("PARTAGE_MEM_BYTES={limit}"),
    }
}

impl Books {
    /// The live default job that a process shares.
    pub(crate) fn default_job_of(&self, attaching: &Attaching) -> Option<JobId> {
        let scope = &attaching.membership.scope;
        let key = self.key_of(&attaching.membership);
        let facts = attaching.facts();
        let per = self.config.rules.per(&facts);
        let is_in_scope = |record: &JobRecord| record.default_scope.as_ref() == Some(scope);
        let is_for_it = |record: &JobRecord| match per {
            Per::Scope => is_in_scope(record),
            Per::User => record.default_scope.is_some(),
            Per::Process => false,
        };
        let is_it = |job: &&Job| {
            job.state().takes_processes()
                && job.record.uid == attaching.uid
                && is_for_it(&job.record)
                && job.record.environment == key
                && self.config.rules.treat_alike(&facts, &job.record.facts())
        };
        // Of several, which other rules left behind, the one of its scope.
        let own = self.jobs.values().filter(is_it);
        own.min_by_key(|job| !is_in_scope(&job.record)).map(Job::id)
    }

    /// What a default job of this process is known by: what its variables ask for, and the GPUs that it cannot open.
    pub(crate) fn key_of(&self, membership: &Membership) -> String {
        let mut key = key(membership);
        let away = self
            .devices
            .values()
            .filter(|device| !device.seen.is_among(membership.nodes));
        for device in away {
            key.push_str(" -");
            key.push_str(&device.seen.uuid.to_string());
        }
        key
    }

    /// What other tools' variables ask of time for a default job. A cap that cannot be read is a small one, never none.
    /// A promise would need room, which a process that attaches does not wait for: the preset's is not given.
    pub(crate) fn default_terms(&self, membership: &Membership) -> (AskedTerms, Option<String>) {
        let mut terms = AskedTerms {
            promise: Some(Said::soft(0, "")),
            ..AskedTerms::default()
        };
        match time_aliases::asked(&membership.environment, |variable| self.config.is_time_on(variable)) {
            Ok(asked) => {
                terms.take_lowering_aliases(asked);
                (terms, None)
            }
            Err(why) => {
                terms.set_cap(Said::soft(Some(UNREADABLE_CAP_PPM), why.text.clone()));
                let cap = format_part(UNREADABLE_CAP_PPM);
                let note = format!("{why}; what it allows cannot be known, so the cap is {cap}: mend or unset it");
                (terms, Some(note))
            }
        }
    }

    /// Every device that the rules allow with what the environment and they leave of it, and what is worth a note.
    pub(crate) fn default_places(
        &self,
        membership: &Membership,
        totals: &[TotalId],
        judge: &Judge,
    ) -> Result<(Vec<Placement>, Option<String>), String> {
        // One that is barred begins all the same, without memory: a process that is refused has no limit at all.
        let is_barred = judge.bars().is_err();
        if let Some(why) = self.jobs_obstacle(totals).filter(|_| !is_barred) {
            return Err(format!("no job begins for it: the {why}"));
        }
        let mut devices: Vec<&Device> = self
            .devices
            .values()
            .filter(|device| device.state != DeviceState::Lost)
            .collect();
        if devices.is_empty() {
            return Err("the broker sees no device".into());
        }
        devices.retain(|device| device.seen.is_among(membership.nodes));
        if devices.is_empty() {
            return Err("it can open no GPU that the broker sees".into());
        }
        devices.retain(|device| !self.takes_no_job(device.seen.uuid));
        if devices.is_empty() {
            return Err("every GPU is drained or sick".into());
        }
        devices.sort_by_key(|device| device.seen.index);
        let (limits, note) = self.default_limits(membership, &devices);
        let mut places = Vec::new();
        let mut refused = None;
        for (device, (limit, origin)) in devices.iter().zip(limits) {
            let (index, uuid) = (device.seen.index, device.seen.uuid);
            if let Err(why) = judge.gpu(index, &uuid.to_string()) {
                refused = Some(why);
                continue;
            }
            let asked = AskedMemory {
                // It only lowers.
                limit: limit.map(|limit| Said::soft(Some(limit.min(device.seen.total_bytes)), origin)),
                request: Some(Said::soft(0, "")),
                process: None,
            };
            let memory = judge.memory(&asked, device.size()).map_err(|why| why.to_string())?;
            let mut place = Placement {
                device: uuid,
                limit: None,
                request: 0,
                origin: Origin::default(),
                asked: None,
                process: None,
                own: Vec::new(),
            };
            place.take(memory, asked);
            places.push(place);
        }
        if !is_barred {
            self.keep_within_gpu_totals(totals, &mut places)?;
        }
        let most = if is_barred { MAX_DEVICES } else { judge.most_gpus() };
        places.truncate(MAX_DEVICES.min(most));
        match refused {
            Some(why) if places.is_empty() => Err(why.to_string()),
            _ => Ok((places, note)),
        }
    }

    pub(crate) fn default_limits(
        &self,
        membership: &Membership,
        devices: &[&Device],
    ) -> (Vec<(Option<u64>, String)>, Option<String>) {
        let everywhere = |limit: Option<u64>, origin: &str| vec![(limit, origin.to_owned()); devices.len()];
        let (asked, visible_text) = match self.environment(membership) {
            Environment::Silent => return (everywhere(None, ""), None),
            Environment::Everywhere(limit, origin) => return (everywhere(Some(limit), &origin), None),
            Environment::Unreadable(why) => {
                let note = format!("{why}; its limit cannot be known, so every allocation is denied: mend or unset it");
                return (everywhere(Some(NOTHING), &why), Some(note));
            }
            Environment::ByDevice(asked, visible_text) => (asked, visible_text),
        };
        let seen = match &visible_text {
            Some(text) => visible(text, devices),
            None => devices.to_vec(),
        };
        let uuids: Vec<String> = seen.iter().map(|device| device.seen.uuid.to_string()).collect();
        if let Err(why) = asked.check_devices(&uuids) {
            let lowest = asked.lowest().map_or(NOTHING, |said| said.bytes);
            let note = format!("{why}; its lowest limit, {}, holds on every GPU", format_bytes(lowest));
            return (everywhere(Some(lowest), &why.text), Some(note));
        }
        let place_of = |device: DeviceUuid| seen.iter().position(|other| other.seen.uuid == device);
        let limit = |device: &&Device| {
            let slot = place_of(device.seen.uuid).and_then(|place| u32::try_from(place).ok());
            let said = asked.limit(slot, &device.seen.uuid.to_string());
            (
                said.map(|said| said.bytes),
                said.map(|said| said.text.clone()).unwrap_or_default(),
            )
        };
        (devices.iter().map(limit).collect(), None)
    }

    pub(crate) fn environment(&self, membership: &Membership) -> Environment {
        if membership.is_environment_cut {
            return Environment::Unreadable("the variables that limit this process are too long".into());
        }
        if !says_anything(&membership.environment) {
            let limit = membership.environment_limit;
            let origin = || format!("PARTAGE_MEM_BYTES={limit}");
            return match limit {
                0 => Environment::Silent,
                _ => Environment::Everywhere(limit, origin()),
            };
        }
        match asked(&membership.environment, |family| self.config.is_on(family)) {
            Ok(None) => Environment::Silent,
            Ok(Some(asked)) => {
                let visible = membership.environment.iter().find(|(name, _)| name == VISIBLE);
                Environment::ByDevice(asked, visible.map(|(_, value)| value.clone()))
            }
            Err(why) => Environment::Unreadable(why.to_string()),
        }
    }
}
