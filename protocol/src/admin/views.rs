// SPDX-License-Identifier: Apache-2.0
//! What users are shown, as documents: jobs, clients and events.

use serde::{Deserialize, Serialize};

use crate::denied::Denied;
use crate::message::NO_INDEX;
use crate::terms::{Class, DEFAULT_WEIGHT};

/// Value of `schema` in every document that a user sees.
pub const SCHEMA: &str = "partage/v1";

/// What a job's state may be.
pub const STATES: [&str; 12] = [
    "waiting",
    "running",
    "stopped",
    "over limit",
    "dying",
    "ended",
    "suspending",
    "suspended",
    "resuming",
    "moving",
    "saving",
    "poisoned",
];

/// Somebody who holds device memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// `j42`, or `pid 1234` for an unmanaged process.
    pub who: String,
    /// Device index; [`NO_INDEX`], in documents null, where it has none.
    #[serde(with = "device_index")]
    pub gpu: u32,
    /// The greater of promised and used, in bytes; 0 where only time is short.
    pub bytes: u64,
    /// The part of the device's time that is promised to it, 0-1, where time is short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<f64>,
}

impl Holder {
    /// `GPU 3`, or words for a device that has no index.
    #[must_use]
    pub fn gpu(&self) -> String {
        match self.gpu {
            NO_INDEX => "a GPU that is not here now".to_owned(),
            index => format!("GPU {index}"),
        }
    }
}

/// What a job may have of the time of each of its devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TermsView {
    /// Promised part, 0-1; 0 for none.
    pub promise: f64,
    /// Part never exceeded, 0-1; none where there is no cap.
    pub cap: Option<f64>,
    /// Weight beside other jobs without a promise.
    pub weight: u32,
    /// `low`, `normal`, `high`, `realtime`.
    pub priority: String,
    /// How long it may run, in nanoseconds.
    pub time_limit_ns: Option<u64>,
    /// Unix time at which it is ended, in nanoseconds; none while it waits.
    pub ends_ns: Option<u64>,
    /// What set the promise, such as `--compute 30%`; empty where nothing did, and for callers who may not see it.
    pub promise_from: String,
    /// Likewise the cap.
    pub cap_from: String,
    /// Likewise the weight.
    pub weight_from: String,
    /// Likewise the priority.
    pub priority_from: String,
}

impl Default for TermsView {
    fn default() -> Self {
        Self {
            promise: 0.0,
            cap: None,
            weight: DEFAULT_WEIGHT,
            priority: Class::default().word().to_owned(),
            time_limit_ns: None,
            ends_ns: None,
            promise_from: String::new(),
            cap_from: String::new(),
            weight_from: String::new(),
            priority_from: String::new(),
        }
    }
}

/// What a job got of a device's time, as measured. Parts are 0-1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeView {
    /// What was asked: its promise; 0 for none.
    pub asked: f64,
    /// What it may have now: its share among those that want the device, within its cap.
    #[serde(default)]
    pub share: f64,
    /// What it got in the last second.
    pub got_1s: f64,
    /// What it got in the last minute.
    pub got_60s: f64,
    /// Nanoseconds of the device's time that it was charged while it was measured: while it shared its GPU or had a
    /// cap.
    pub used_ns: u64,
    /// Nanoseconds that it wanted the device and stood at its closed gate, since it came.
    pub waited_ns: u64,
    /// Of these, in the last minute.
    pub waited_60s_ns: u64,
    /// `open`, `waiting`, `capped`, `idle`, `not draining`.
    pub state: String,
    /// What held it back of late: `cap`, a job (`j41`), `unmanaged`; none where nothing did.
    pub held_by: Option<String>,
    /// The job that holds it back has a higher priority.
    pub is_held_by_priority: bool,
    /// Its longest recent piece of work that cannot be interrupted, in nanoseconds; 0 unknown.
    pub unit_ns: u64,
    /// `overlap` or `turns`.
    pub regime: String,
}

impl TimeView {
    /// It wants the device now, or got some of it in the last second.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        self.state != "idle" || self.got_1s > 0.0
    }
}

/// One job on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobDeviceView {
    /// `nvidia-smi`'s index; [`NO_INDEX`], in documents null, for a device that the broker does not know (any more).
    #[serde(with = "device_index")]
    pub index: u32,
    /// `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// Model name.
    pub model: String,
    /// Limit in bytes; none is the whole card.
    pub limit_bytes: Option<u64>,
    /// Promised bytes.
    pub request_bytes: u64,
    /// Used bytes: what the clients charged, and the overhead of their processes.
    pub used_bytes: u64,
    /// Highest use seen.
    pub peak_bytes: u64,
    /// Granted to clients (the ledger's sum), at least `used_bytes`.
    pub granted_bytes: u64,
    /// Denials here by reason.
    #[serde(default)]
    pub denied: Denied,
    /// What set the limit, such as `--mem 25%` or `CUDA_DEVICE_MEMORY_LIMIT=1g`; empty without a limit, and for callers
    /// who may not see it.
    #[serde(default)]
    pub limit_from: String,
    /// What set the promise; empty where it follows the limit, and as above.
    #[serde(default)]
    pub request_from: String,
    /// What each of its processes may hold at most, in bytes; none is the job's limit alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_limit_bytes: Option<u64>,
    /// What set that, as above.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub process_limit_from: String,
    /// Of `used_bytes`, what the driver holds beyond the clients' charges, as measured: contexts, modules, rounding.
    #[serde(default)]
    pub overhead_bytes: u64,
    /// Of `used_bytes`, managed memory, which need not be on the device.
    #[serde(default)]
    pub managed_bytes: u64,
    /// What it got of the device's time; none where nothing is measured at the moment.
    #[serde(default)]
    pub time: Option<TimeView>,
}

impl JobDeviceView {
    /// `GPU 3`, or the device's UUID where it has no index.
    #[must_use]
    pub fn gpu(&self) -> String {
        match self.index {
            NO_INDEX => format!("{} (not here now)", self.uuid),
            index => format!("GPU {index}"),
        }
    }

    /// Its index, or its UUID where it has none: for lists.
    #[must_use]
    pub fn place(&self) -> String {
        match self.index {
            NO_INDEX => self.uuid.clone(),
            index => index.to_string(),
        }
    }
}

mod device_index {
    //! A device without an index has none in documents, not a number that looks like one.
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::message::NO_INDEX;

    // The signature is serde's.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub(super) fn serialize<S: Serializer>(index: &u32, out: S) -> Result<S::Ok, S::Error> {
        Some(*index).filter(|index| *index != NO_INDEX).serialize(out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<u32, D::Error> {
        Ok(Option::<u32>::deserialize(input)?.unwrap_or(NO_INDEX))
    }
}

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// `j42`.
    pub job: String,
    /// Name given with `--name`.
    pub name: Option<String>,
    /// Owner's login name, or the uid in digits.
    pub user: String,
    /// Owner's uid.
    pub uid: u32,
    /// One of [`STATES`].
    pub state: String,
    /// First process, 0 for a default-class job.
    pub pid: u32,
    /// The command; empty for callers who may not see it.
    pub command: Vec<String>,
    /// Labels.
    pub labels: Vec<(String, String)>,
    /// Per device.
    pub devices: Vec<JobDeviceView>,
    /// Attached clients.
    pub clients: Vec<ClientView>,
    /// Denials by reason.
    pub denied: Denied,
    /// Unix time of admission in nanoseconds.
    pub started_ns: u64,
    /// Started with `--strict`.
    pub is_strict: bool,
    /// Sentences worth a user's attention (unmanaged child, pages lost, …), worst first.
    pub notes: Vec<String>,
    /// Unix time of its end in nanoseconds; none while it lives.
    #[serde(default)]
    pub ended_ns: Option<u64>,
    /// Its terms of device time.
    #[serde(default)]
    pub terms: TermsView,
    /// Why it ended.
    #[serde(default)]
    pub end_reason: Option<String>,
    /// Its time limit ends it, or did.
    #[serde(default)]
    pub is_over_time: bool,
    /// Exit code of its first process, 128 and the number of the signal where one ended it; none while it lives, and
    /// where nobody saw it end.
    #[serde(default)]
    pub exit_code: Option<u32>,
    /// How many processes of it used a GPU without Partage, as far as a look at NVML found them there.
    #[serde(default)]
    pub unlimited: u64,
    /// The container whose first process it began with; none for other jobs, and for callers who may not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerView>,
    /// The engine's job that it is; none for other jobs, and for callers who may not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineView>,
    /// How long it waited in the queue before it started; up to now of one that waits.
    #[serde(default)]
    pub queued_ns: u64,
    /// How often all of its memory left its devices.
    #[serde(default)]
    pub suspends: u64,
    /// How long it was in each state since it started: `running`, `suspended`, and the others of a job that has memory.
    #[serde(default)]
    pub residence: Vec<ResidenceView>,
    /// Its last checkpoint; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointView>,
}

/// A checkpoint of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointView {
    /// What it has on disk.
    pub bytes: u64,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// How long ago it was made, in nanoseconds.
    pub age_ns: u64,
}

/// For how long a job was in one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResidenceView {
    /// One of [`STATES`].
    pub state: String,
    /// Nanoseconds.
    pub spent_ns: u64,
}

/// A job of an engine, as the engine knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineView {
    /// The engine and its id of the job: `slurm:4711`. It is a target.
    pub id: String,
    /// What the engine gave the job, in its words: `shard:5 of 10`; none where it told nothing.
    pub words: Option<String>,
}

/// What was registered: a container, or a control group that is none's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerView {
    /// Its id, as its runtime has it; empty for a process that was registered and is in none.
    pub id: String,
    /// Its name, where the runtime told one.
    pub name: Option<String>,
    /// The control group whose processes are of the job; none where it has none of its own.
    pub cgroup: Option<String>,
}

/// One job, explained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhyView {
    /// Its numbers.
    pub job: JobView,
    /// The explanation, worst first.
    pub sentences: Vec<String>,
    /// The last denial on each device that has one, the newest first; empty for callers who may not see it.
    pub denials: Vec<DenialView>,
    /// What slows it down on each device that it uses, where that is known; empty for callers who may not see it.
    #[serde(default)]
    pub causes: Vec<CauseView>,
}

/// What slows a job down on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseView {
    /// Device index; [`NO_INDEX`], in documents null, where it has none.
    #[serde(with = "device_index")]
    pub gpu: u32,
    /// `cap`, `neighbour`, `priority`, `unmanaged`, `not-draining` (its own work does not end), `program` (it gives the
    /// device too little to do), `none`; `sick-gpu`, `thermal` and `power` of the device itself.
    pub cause: String,
    /// Who: a job (`j41`), or processes of no job (`pid 1234`); empty otherwise.
    pub by: Vec<String>,
}

/// An allocation that was denied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DenialView {
    /// Unix time in nanoseconds.
    pub time_ns: u64,
    /// Device index; [`NO_INDEX`], in documents null, where it has none.
    #[serde(with = "device_index")]
    pub gpu: u32,
    /// Who asked.
    pub pid: u32,
    /// Bytes of the allocation.
    pub asked_bytes: u64,
    /// The job's limit then; the process's for `process limit`.
    pub limit_bytes: u64,
    /// The job's use then; the process's for `process limit`.
    pub used_bytes: u64,
    /// `limit`, `process limit`, `card full`, `no broker`, `overhead`, or `rule NAME` for a total of several jobs.
    pub reason: String,
    /// Who held the device, or the total, then; for `card full` and totals only.
    pub holders: Vec<Holder>,
    /// The process that had ended and whose memory was not free yet: without that there was room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfreed: Option<UnfreedView>,
}

/// Memory of a process that has ended, which the driver has not freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfreedView {
    /// The process.
    pub pid: u32,
    /// What it holds.
    pub bytes: u64,
}

/// One client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientView {
    /// Process id in the broker's namespace.
    pub pid: u32,
    /// `attached`, `away` (no connection, still alive), `dying`.
    pub state: String,
    /// Used bytes per slot, overhead included.
    pub used_bytes: Vec<u64>,
    /// Of them, measured overhead per slot.
    #[serde(default)]
    pub overhead_bytes: Vec<u64>,
}

/// A GPU process that we see and do not control.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnmanagedView {
    /// Process id.
    pub pid: u32,
    /// Owner's uid where /proc tells.
    pub uid: Option<u32>,
    /// Device index.
    pub gpu: u32,
    /// Bytes as NVML shows.
    pub used_bytes: u64,
    /// The job it descends from, if any.
    pub job: Option<String>,
    /// Owner's login name where /proc tells.
    pub user: Option<String>,
    /// Its program's name, for its owner and administrators.
    pub command: Option<String>,
    /// The user whose private broker manages it, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_broker: Option<String>,
    /// The part of the last second or so in which the device worked for it; none where NVML does not say.
    pub busy: Option<f64>,
}
