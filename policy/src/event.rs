// SPDX-License-Identifier: Apache-2.0
//! What the broker tells the policy.
//!
//! Every event is a fact or a request and carries all that its decision needs; the policy makes no call of its own.
//! Bytes are `u64`, times nanoseconds of the broker's monotonic clock unless a field says Unix time.

mod attaching;
mod ceilings;

use std::collections::{BTreeMap, BTreeSet};

use partage_protocol::message::TOKEN_BYTES;
use partage_protocol::request::{RunRequest, TermsChange};
use partage_protocol::units::{ClientId, DeviceUuid, JobId};

use crate::caller::{Caller, Process, Ticket};
use crate::config::Config;
use crate::drain_mark::DrainMark;
use crate::job::{EndedJob, JobRecord};
use crate::registration::{Lowered, Registration};
use crate::residence::{Mark, Save};
use crate::rules::{Said, Standing};
use crate::sick::SickMark;
use crate::telemetry::Telemetry;
use crate::time::{JobTime, UserUsage};

pub use attaching::{Attaching, Membership};

/// Whether there is a driver to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverState {
    /// NVML answers.
    Ok,
    /// No driver on this machine; the text says how that was found.
    Missing(String),
    /// Driver and library do not match, or NVML fails otherwise.
    Broken(String),
}

/// A device as enumeration shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSeen {
    /// Its identity everywhere.
    pub uuid: DeviceUuid,
    /// `nvidia-smi`'s number (PCI order).
    pub index: u32,
    /// Model name.
    pub model: String,
    /// Whole memory in bytes.
    pub total_bytes: u64,
    /// It has no memory of its own: this is the host's.
    pub is_unified: bool,
    /// Configured reserve plus what the driver keeps for itself; `usable` is total minus this. Of unified memory what
    /// is to stay available to the host.
    pub reserve_bytes: u64,
    /// The number of its node (`/dev/nvidia3`), where the driver tells.
    pub minor: Option<u32>,
}

impl DeviceSeen {
    /// The reserve, as far as the driver counts it as in use. What is kept for the host is in use by nobody.
    pub(crate) const fn reserve_in_use(&self) -> u64 {
        if self.is_unified { 0 } else { self.reserve_bytes }
    }

    /// Can a process open it that may open these `nodes`: bit N for `/dev/nvidiaN`, or 0 where that is not known?
    #[must_use]
    pub fn is_among(&self, nodes: u32) -> bool {
        let bit = |minor: u32| nodes.checked_shr(minor).is_none_or(|rest| rest & 1 != 0);
        nodes == 0 || self.minor.is_none_or(bit)
    }
}

/// One process in a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessUse {
    /// Process id in the broker's namespace.
    pub pid: u32,
    /// Owner, where /proc tells.
    pub uid: Option<u32>,
    /// The user whose private broker manages it, where that is another broker than the one that measures.
    pub other_broker: Option<String>,
    /// Bytes on the device; none where NVML does not say.
    pub bytes: Option<u64>,
    /// The job that this process descends from by cgroup or ancestry, attached or not.
    pub descends_from: Option<JobId>,
    /// When it started (as in [`Process`]), where /proc tells.
    pub start: Option<u64>,
    /// It draws and does not compute.
    pub is_graphics_only: bool,
    /// The part of the last second or so in which the device worked for it; none where NVML does not say.
    pub busy_ppm: Option<u32>,
}

/// What NVML shows of one device at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// The device.
    pub device: DeviceUuid,
    /// In use by everybody, in bytes; of unified memory also by the host.
    pub used_bytes: u64,
    /// Free as the driver sees it, in bytes.
    pub free_bytes: u64,
    /// The compute processes.
    pub processes: Vec<ProcessUse>,
    /// How it does.
    pub telemetry: Telemetry,
}

impl Measurement {
    /// What it saw of a process is no longer there: `bytes` at least, where it lists the process.
    pub(crate) fn forget_process(&mut self, pid: u32, bytes: u64) {
        let is_it = |process: &&ProcessUse| process.pid == pid;
        if !self.processes.iter().any(|process| is_it(&process)) {
            return;
        }
        let listed = self.processes.iter().filter(is_it);
        let listed: u64 = listed.filter_map(|process| process.bytes).sum();
        self.processes.retain(|process| process.pid != pid);
        self.used_bytes = self.used_bytes.saturating_sub(listed.max(bytes));
    }
}

/// A client that the ledger file knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerClient {
    /// Its id.
    pub client: ClientId,
    /// Its job.
    pub job: JobId,
    /// Its process.
    pub process: Process,
}

/// What an earlier broker left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adoption {
    /// Live jobs.
    pub jobs: Vec<JobRecord>,
    /// Clients with an entry in the ledger, whether their processes live or not.
    pub clients: Vec<LedgerClient>,
    /// Jobs get numbers from here on.
    pub next_job: u64,
    /// Jobs that ended, within the last day.
    pub ended: Vec<EndedJob>,
    /// What users had of the GPUs.
    pub usage: Vec<UserUsage>,
    /// Devices that take no job.
    pub drained: BTreeMap<DeviceUuid, DrainMark>,
    /// Devices that were sick.
    pub sick: BTreeMap<DeviceUuid, SickMark>,
}

/// `partage run`'s request as the broker received it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Where replies go.
    pub ticket: Ticket,
    /// Who; its process becomes the job's first.
    pub caller: Caller,
    /// What, as written; judged here again.
    pub request: RunRequest,
    /// Random, for `PARTAGE_TOKEN`.
    pub token: [u8; TOKEN_BYTES],
    /// The caller's cgroup, where the broker can read one.
    pub cgroup: Option<String>,
    /// The caller's paths in other hierarchies, where they are others.
    pub other_cgroups: Vec<String>,
    /// Names of the caller's groups, and their gids in digits.
    pub groups: Vec<String>,
    /// Unix time in nanoseconds.
    pub unix_ns: u64,
    /// The caller asked for another process than its own: whose, and what only lowers. Then `caller` has that process
    /// and its user.
    pub registered: Option<(Registration, Lowered)>,
}

/// What `partage set` changes, as written; what is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// New limit.
    pub mem: Option<String>,
    /// New promise.
    pub mem_request: Option<String>,
    /// New limit of each process.
    pub process_mem: Option<String>,
    /// New name.
    pub name: Option<String>,
    /// New terms of time.
    pub terms: TermsChange,
    /// Beyond the rules: for administrators.
    pub is_forced: bool,
}

impl Change {
    /// A new value with its words.
    pub(crate) fn said<T>(&self, key: &str, text: &str, value: T, caller: &Caller) -> Said<T> {
        let force = if self.is_forced { " --force" } else { "" };
        Said {
            standing: if self.is_forced {
                Standing::Forced
            } else {
                Standing::Firm
            },
            is_by_admin: caller.is_admin,
            ..Said::soft(value, format!("partage set {key}={text}{force} by {}", caller.user))
        }
    }
}

/// A target as a caller wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetQuery {
    /// `j42`, `1234`, `train`, `alice/train`, `@alice`, `cgroup:/…`.
    pub text: String,
    /// For a pid: the job that it descends from as the broker finds it; the policy knows first processes and clients.
    pub descends_from: Option<JobId>,
}

/// What the return of a job came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Return {
    /// It is back: in words.
    Back(String),
    /// It has no room now: what is short.
    NoRoom(String),
    /// It will not come: why.
    Never(String),
    /// Nothing is left of it.
    Ended,
}

/// Something that happened or is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// First of all after a restart: the jobs and clients of the broker before.
    Adopt(Adoption),
    /// The devices as enumerated now; devices that are missing from the list become lost.
    Devices {
        /// Whether the list can be trusted.
        driver: DriverState,
        /// All devices.
        found: Vec<DeviceSeen>,
    },
    /// A look at the device takes long: nothing is admitted there until it has come.
    DeviceSlow(DeviceUuid),
    /// A device hangs or fell off the bus.
    DeviceLost {
        /// Which.
        device: DeviceUuid,
        /// A sentence.
        why: String,
    },
    /// A look at the device begins after this; its [`Event::Measured`] is the next one of the device.
    Asking(DeviceUuid),
    /// NVML's numbers for one device.
    Measured(Measurement),
    /// `partage run`.
    Run(Box<Run>),
    /// The connection behind a ticket closed before its last reply.
    TicketGone(Ticket),
    /// `partage set`.
    Set {
        /// Where the reply goes.
        ticket: Ticket,
        /// Who asks.
        caller: Caller,
        /// Which job.
        target: TargetQuery,
        /// What.
        change: Box<Change>,
    },
    /// `partage stop`.
    Stop {
        /// Where the reply goes (when the job has ended).
        ticket: Ticket,
        /// Who asks.
        caller: Caller,
        /// Which job.
        target: TargetQuery,
        /// Time between SIGTERM and SIGKILL.
        grace_ns: u64,
    },
    /// A new client; its words are zero and reachable.
    Attach(Box<Attaching>),
    /// A client that the ledger knows came back with its pages, which are mapped again.
    Reattach {
        /// The client.
        client: ClientId,
        /// The process that presents them.
        process: Process,
        /// The program closed the page descriptors: it keeps its grant and cannot grow.
        are_pages_lost: bool,
    },
    /// The client's connection closed while its process lives.
    ClientAway(ClientId),
    /// A client wants its use on a slot to become `wanted`.
    Ask {
        /// Who.
        client: ClientId,
        /// The device's place in the job.
        slot: usize,
        /// Use after the allocation, in bytes.
        wanted: u64,
        /// Bytes of the allocation itself.
        request: u64,
        /// Repeated in the answer.
        sequence: u32,
    },
    /// A client wants to know its job's use on a slot.
    Usage {
        /// Who.
        client: ClientId,
        /// The device's place in the job.
        slot: usize,
        /// Repeated in the answer.
        sequence: u32,
    },
    /// A client wants its overhead on a slot considered (`Measure` of the protocol).
    Measure {
        /// Who.
        client: ClientId,
        /// The device's place in the job.
        slot: usize,
        /// `MEASURE_*`.
        stage: u32,
        /// Repeated in the answer.
        sequence: u32,
    },
    /// The client's process was killed or exits, but is not gone or its memory is not yet freed.
    ClientDying(ClientId),
    /// The processes were looked at that [`crate::Action::FindEnded`] named for this client's question; those that have
    /// ended were told of before.
    Searched(ClientId),
    /// The client's process is gone and the driver has freed its memory.
    ClientGone(ClientId),
    /// A process that a [`Watch`](crate::Action::Watch) named is gone (or never was).
    ProcessGone(Process),
    /// A job that lives by a control group lost the process that was its first: this one is left there.
    Follows {
        /// Which job.
        job: JobId,
        /// Its first from now on, to be watched.
        process: Process,
    },
    /// How a watched process ended, where the kernel told: its code, or 128 and the number of the signal. Comes before
    /// [`Event::ProcessGone`].
    Exited {
        /// Which.
        process: Process,
        /// As a shell has it.
        code: u32,
    },
    /// A client noticed something (`NOTICE_*` of the protocol).
    Notice {
        /// Who.
        client: ClientId,
        /// `NOTICE_*`.
        what: u32,
        /// The device's place in the job, where one is meant.
        slot: usize,
        /// Its number.
        value: u64,
    },
    /// What jobs got of their devices' time: everything that is measured now, once a second while anything is. Who is
    /// not in it is not measured any more.
    Time(Vec<JobTime>),
    /// All known processes of these jobs are stopped by a signal (Ctrl-Z), and of no other ones.
    Stopped(BTreeSet<JobId>),
    /// The configuration was read anew: every job is judged by these rules from now on.
    Rules(Box<Config>),
    /// The user database answered: what it knows of a user beyond what jobs began with.
    UserKnown {
        /// Which user.
        uid: u32,
        /// Login name, or the uid in digits.
        user: String,
        /// Names of the user's groups, and their gids in digits.
        groups: Vec<String>,
    },
    /// A command wants a job back on its devices.
    Resume {
        /// Where the answer goes.
        ticket: Ticket,
        /// The caller.
        caller: Caller,
        /// Which job.
        target: TargetQuery,
        /// It waits for room, and does not fail at once.
        is_patient: bool,
        /// For so long at most, in nanoseconds.
        timeout_ns: Option<u64>,
    },
    /// A way of a job's memory ended, so that commands may wait for its return in vain or no longer.
    Returned {
        /// Which job.
        job: JobId,
        /// What it came to.
        end: Return,
    },
    /// A job's memory stands on its way and is tried again without end: no driver answers, or a process is stopped.
    Stuck {
        /// Which job.
        job: JobId,
        /// On what.
        why: String,
    },
    /// Processes of a job that was signalled did not get it: whoever it is stopped for may not signal their user's.
    Spared {
        /// Which job.
        job: JobId,
        /// Their numbers and users.
        processes: Vec<(u32, String)>,
    },
    /// Processes of a job are restored: from a snapshot, or by another program while it was away.
    Restored {
        /// Which job.
        job: JobId,
        /// What became of it or its files, for those who may see the job: a sentence each.
        texts: Vec<String>,
        /// By another program: it was taken in, or else sent away again.
        behind: Option<bool>,
    },
    /// A job has this checkpoint.
    Saved(JobId, Save),
    /// A job that was told to leave ([`Action::Leave`](crate::Action::Leave)) does not begin to.
    NotLeft {
        /// Which job.
        job: JobId,
        /// Why.
        why: String,
    },
    /// A job that leaves when it is idle did nothing with its devices for so long.
    Quiet {
        /// Which job.
        job: JobId,
        /// For how long, in nanoseconds.
        for_ns: u64,
    },
    /// A thread of a job that left because it was idle wants to go on.
    Wanted(JobId),
    /// A command wants a job suspended until another command brings it back.
    Stays(JobId),
    /// The driver told of these errors of a device, the oldest first.
    Xids {
        /// Which.
        device: DeviceUuid,
        /// Their numbers.
        xids: Vec<u32>,
    },
    /// An administrator says that a device is well again.
    Heal {
        /// Which.
        device: DeviceUuid,
        /// By whose word.
        uid: u32,
    },
    /// A device takes no job any more, or jobs again.
    Drain {
        /// Which.
        device: DeviceUuid,
        /// No job any more, and by whose word; none: jobs again.
        mark: Option<DrainMark>,
    },
    /// A job that is to move there lacks room: jobs of which nothing runs any more give up what they hold.
    MakeRoom(DeviceUuid),
    /// A passage of a job says where it is ([`Step::Write`](crate::Step::Write)); answered by
    /// [`Action::SaveJob`](crate::Action::SaveJob).
    Residence {
        /// Which job.
        job: JobId,
        /// What is true from now on.
        mark: Box<Mark>,
    },
    /// Time passed: due at [`Policy::next_deadline`](crate::Policy::next_deadline).
    Tick,
}

impl Event {
    /// May a waiting request have its place after it? What changes nobody's room, and clients can send at will, does
    /// not look at the queue.
    #[must_use]
    pub const fn may_admit(&self) -> bool {
        !matches!(
            self,
            Self::Ask { .. }
                | Self::Usage { .. }
                | Self::Measure { .. }
                | Self::Time(_)
                | Self::Asking(_)
                | Self::Notice { .. }
                | Self::Exited { .. }
                | Self::Quiet { .. }
                | Self::ClientAway(_)
                | Self::ClientDying(_)
                | Self::Searched(_)
        )
    }
}
