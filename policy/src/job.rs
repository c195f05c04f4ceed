// SPDX-License-Identifier: Apache-2.0
//! A job and what is known of it; its life is a table of its own (`job/life.rs`).

use std::collections::{BTreeMap, BTreeSet};

use partage_protocol::admin::{DeniedView, STATES};
use partage_protocol::aliases::Variable;
use partage_protocol::job_ledger::JobLedger;
use partage_protocol::message::TOKEN_BYTES;
use partage_protocol::summary::{Summary, total};
use partage_protocol::units::{ClientId, DeviceUuid, JobId, SECOND_NS};
use serde::{Deserialize, Serialize};

use crate::denials::Denial;
use crate::event::Ticket;
use crate::request::RunSpec;
use crate::terms::Terms;

mod life;

pub(crate) use life::{Happening, Life, Next, State};

/// A job outlives its last process by this much, for a child that has not met the driver yet.
pub const LINGER_NS: u64 = 5 * SECOND_NS;
/// Ended jobs are shown this long.
pub const REMEMBER_NS: u64 = 24 * 3_600 * SECOND_NS;
/// Ended jobs that are remembered at most, the oldest forgotten first: a loop of short jobs must not fill the broker.
pub const REMEMBER_COUNT: usize = 1_000;

/// A process, told apart from later ones of the same pid by its start time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Process id in the broker's namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot (field 22 of /proc/PID/stat).
    pub start: u64,
}

/// One device of a job as promised; part of the job's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// `GPU-…` or `MIG-…`.
    #[serde(with = "uuid_text")]
    pub device: DeviceUuid,
    /// Never exceeded, in bytes; none is the whole card.
    pub limit: Option<u64>,
    /// Promised bytes.
    pub request: u64,
    /// What set the two.
    #[serde(default)]
    pub origin: Origin,
}

/// Which words set a job's numbers on a device, for `why`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// `--mem 25%`, `CUDA_DEVICE_MEMORY_LIMIT=1g`, …; empty without a limit.
    pub limit: String,
    /// Likewise; empty where the promise follows the limit, or nothing is promised.
    pub request: String,
}

impl Origin {
    /// The variable of another tool that set the limit, where one did.
    #[must_use]
    pub fn alias(&self) -> Option<&str> {
        Variable::of(self.limit.split('=').next()?.as_bytes()).map(|_| self.limit.as_str())
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
    /// Unix time of admission in nanoseconds; of the request while it waits.
    pub started_unix_ns: u64,
}

/// What `ps` calls the job's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// In the queue.
    Waiting,
    /// Admitted.
    Running,
    /// Admitted, and all its processes are stopped by a signal.
    Stopped,
    /// Holds more than its limit, which was lowered.
    OverLimit,
    /// Only clients that cannot die are left.
    Dying,
    /// Over.
    Ended,
}

impl JobState {
    /// The word that users see.
    #[must_use]
    pub const fn word(self) -> &'static str {
        // Their order is that of the variants.
        STATES[self as usize]
    }
}

/// A client as the policy sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its job.
    pub job: JobId,
    /// Its process.
    pub process: Process,
    /// Its connection and pages.
    pub presence: Presence,
    /// It has no share of the limit.
    pub is_nvml_only: bool,
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Connected.
    Attached,
    /// Alive without a connection; after a broker's restart, not yet back.
    Away,
    /// Killed and not gone.
    Dying,
}

impl Presence {
    /// The word that users see.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Attached => "attached",
            Self::Away => "away",
            Self::Dying => "dying",
        }
    }
}

/// A waiting job's place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Queued {
    pub ticket: Ticket,
    pub spec: RunSpec,
    pub mem_text: Option<String>,
    pub since_ns: u64,
    pub deadline_ns: Option<u64>,
    pub next_reminder_ns: u64,
    pub reason: String,
}

/// One device of a live job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub ledger: JobLedger,
    pub peak: u64,
    pub denied: DeniedView,
    pub last_denial: Option<Denial>,
    /// The limit was set below use, which has not fallen since.
    pub is_lowered: bool,
    /// The highest limit that it ever had: nothing beyond was ever granted.
    pub highest_limit: u64,
    /// Index and model of its device when the job ended.
    pub was: Option<(u32, String)>,
}

impl Slot {
    pub(crate) fn new(ledger: JobLedger) -> Self {
        Self {
            highest_limit: ledger.limit(),
            ledger,
            peak: 0,
            denied: DeniedView::default(),
            last_denial: None,
            is_lowered: false,
            was: None,
        }
    }
}

/// A stop in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stopping {
    pub tickets: Vec<Ticket>,
    pub kill_at_ns: u64,
    pub is_killed: bool,
    /// Why, for the job's end.
    pub reason: String,
}

/// Everything about one job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    pub record: JobRecord,
    pub life: Life,
    pub slots: Vec<Slot>,
    pub clients: BTreeSet<ClientId>,
    pub is_first_alive: bool,
    /// A broker before admitted it, by its own rules.
    pub is_adopted: bool,
    /// All its known processes are stopped by a signal.
    pub is_stopped: bool,
    /// Exit code of its first process, as a shell has it.
    pub exit_code: Option<u32>,
    pub stopping: Option<Stopping>,
    /// When its time limit is over; none without one, and once it was acted on.
    pub time_limit_at_ns: Option<u64>,
    pub denied: DeniedView,
    /// Sentences worth a user's attention, without repetition.
    pub notes: Vec<String>,
    /// Unmanaged descendants by pid, and when each was first seen.
    pub strangers: BTreeMap<u32, u64>,
    /// How many there ever were.
    pub strangers_seen: u64,
    /// When and why it ended; of a job that lingers, when its last process was gone.
    pub end: Option<End>,
}

/// A job's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub unix_ns: u64,
    pub reason: String,
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
    pub denied: DeniedView,
    /// The last one.
    pub last_denial: Option<Denial>,
    /// Index of the device then.
    #[serde(default)]
    pub index: Option<u32>,
    /// Its model.
    #[serde(default)]
    pub model: String,
}

impl Job {
    pub(crate) fn new(record: JobRecord, life: Life) -> Self {
        let is_first_alive = record.first.is_some();
        Self {
            record,
            life,
            slots: Vec::new(),
            clients: BTreeSet::new(),
            is_first_alive,
            is_adopted: false,
            is_stopped: false,
            exit_code: None,
            stopping: None,
            time_limit_at_ns: None,
            denied: DeniedView::default(),
            notes: Vec::new(),
            strangers: BTreeMap::new(),
            strangers_seen: 0,
            end: None,
        }
    }

    /// What is to be remembered of it. Precondition: it ended.
    pub(crate) fn remembered(&self) -> Option<EndedJob> {
        let end = self.end.as_ref()?;
        let slot = |slot: &Slot| EndedSlot {
            peak: slot.peak,
            denied: slot.denied,
            last_denial: slot.last_denial.clone(),
            index: slot.was.as_ref().map(|(index, _)| *index),
            model: slot.was.as_ref().map(|(_, model)| model.clone()).unwrap_or_default(),
        };
        let mut job = self.record.clone();
        // It opens nothing any more, and is nobody's business in a file that stays.
        job.token = [0; TOKEN_BYTES];
        Some(EndedJob {
            job,
            ended_unix_ns: end.unix_ns,
            reason: end.reason.clone(),
            slots: self.slots.iter().map(slot).collect(),
            notes: self.notes.clone(),
            exit_code: self.exit_code,
            strangers_seen: self.strangers_seen,
        })
    }

    /// A job that ended under an earlier broker.
    pub(crate) fn from_remembered(ended: EndedJob, forget_at_ns: u64) -> Self {
        let mut job = Self::new(ended.job, Life::ended(forget_at_ns));
        job.is_first_alive = false;
        job.notes = ended.notes;
        job.exit_code = ended.exit_code;
        job.strangers_seen = ended.strangers_seen;
        job.end = Some(End {
            unix_ns: ended.ended_unix_ns,
            reason: ended.reason,
        });
        for slot in ended.slots {
            let mut place = Slot::new(JobLedger::new(0, 0));
            job.denied.limit = job.denied.limit.saturating_add(slot.denied.limit);
            job.denied.card_full = job.denied.card_full.saturating_add(slot.denied.card_full);
            job.denied.no_broker = job.denied.no_broker.saturating_add(slot.denied.no_broker);
            job.denied.overhead = job.denied.overhead.saturating_add(slot.denied.overhead);
            place.peak = slot.peak;
            place.denied = slot.denied;
            place.last_denial = slot.last_denial;
            place.was = slot.index.map(|index| (index, slot.model));
            job.slots.push(place);
        }
        job
    }

    /// Takes over what is remembered of this same job, which had announced its end. Precondition: it has its slots.
    pub(crate) fn take_up(&mut self, was: Self) {
        self.is_first_alive = false;
        self.exit_code = was.exit_code;
        self.denied = was.denied;
        self.notes = was.notes;
        self.strangers_seen = was.strangers_seen;
        self.end = was.end;
        for (slot, was) in self.slots.iter_mut().zip(was.slots) {
            let ledger = std::mem::replace(&mut slot.ledger, JobLedger::new(0, 0));
            let highest_limit = slot.highest_limit;
            *slot = Slot {
                ledger,
                highest_limit,
                ..was
            };
        }
    }

    pub(crate) fn id(&self) -> JobId {
        JobId(self.record.id)
    }

    /// Where it is in its life; what that means is asked of the state.
    pub(crate) const fn state(&self) -> State {
        self.life.state()
    }

    /// No process of it is left; a late child may still come.
    pub(crate) fn is_lingering(&self) -> bool {
        self.state() == State::Lingering
    }

    /// Does this token, of a process of this user, mean the job?
    pub(crate) fn is_meant_by(&self, token: [u8; TOKEN_BYTES], uid: u32) -> bool {
        self.record.token == token && self.record.uid == uid
    }

    /// The slot of a device.
    pub(crate) fn slot_of(&self, device: DeviceUuid) -> Option<usize> {
        self.record
            .devices
            .iter()
            .position(|placement| placement.device == device)
    }

    /// What is said of it once it ended.
    pub(crate) fn summary(&self) -> Summary {
        let end_ns = self.end.as_ref().map_or(0, |end| end.unix_ns);
        let places = self.record.devices.iter().zip(&self.slots);
        let peaks = places.map(|(place, slot)| {
            let gpu = slot
                .was
                .as_ref()
                .map_or_else(|| place.device.to_string(), |(index, _)| format!("GPU {index}"));
            (gpu, slot.peak, place.limit)
        });
        Summary {
            exit_code: self.exit_code,
            ran_ns: end_ns.saturating_sub(self.record.started_unix_ns),
            peaks: peaks.collect(),
            denied: total(&self.denied),
            unlimited: self.strangers_seen,
        }
    }

    /// Says of several processes together what no process's own note says: those are dropped when there are many.
    pub(crate) fn strangers_note(&self) -> Option<String> {
        let count = self.strangers_seen;
        (count > 1).then(|| format!("{count} processes of it used a GPU without Partage: no limit held for them"))
    }

    /// Adds a note once, the newest last; a program that provokes endless different ones pushes out the oldest. Answers
    /// whether it is new.
    pub(crate) fn note(&mut self, text: String) -> bool {
        const NOTES: usize = 20;
        let is_new = !self.notes.contains(&text);
        if is_new {
            self.notes.push(text);
            if self.notes.len() > NOTES {
                self.notes.remove(0);
            }
        }
        is_new
    }
}

mod uuid_text {
    //! UUIDs in records are written as people know them.
    use partage_protocol::units::DeviceUuid;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(uuid: &DeviceUuid, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(uuid)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<DeviceUuid, D::Error> {
        let text = String::deserialize(input)?;
        DeviceUuid::parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no device UUID")))
    }
}
