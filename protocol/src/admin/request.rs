// SPDX-License-Identifier: Apache-2.0
//! What a command asks the broker.

use serde::{Deserialize, Serialize};

use super::event::EventView;
use crate::request::{AtMost, RunRequest, TermsChange};
use crate::snapshot::{Outside, RestoreRequest};

/// What a caller asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Admit a job whose first process is the caller; answered by `Waiting`* then `Admitted` or `Error`.
    Run(Box<RunRequest>),
    /// Admits a job whose first process is another one than the caller's, such as a container's; answered by `Admitted`
    /// or `Error`, never by `Waiting`.
    Register(Box<RegisterRequest>),
    /// The jobs the caller may see.
    Ps {
        /// Ended jobs of the last 24 hours too.
        all: bool,
        /// Only jobs after this one (`j42`): the last of a page that was not the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    },
    /// Devices, commitments, queue and broker.
    Status,
    /// Who waits, in order.
    Queue,
    /// Changes a live job.
    Set {
        /// Who (see design: TARGET); `process:PID` for the `mem` of one process alone.
        target: String,
        /// New limit, as the user wrote it; `none` for the whole card.
        mem: Option<String>,
        /// New name, or `none`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// New promise, as the user wrote it; `none` or `0` for none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mem_request: Option<String>,
        /// New limit of each process, as the user wrote it, or `none`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process_mem: Option<String>,
        /// New terms of device time.
        #[serde(default, skip_serializing_if = "TermsChange::is_empty")]
        terms: TermsChange,
        /// Beyond the rules of the configuration; for administrators.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// GPUs and jobs as a text for a monitoring system; answered by `Metrics`.
    Metrics(MetricsRequest),
    /// One job's numbers.
    Get {
        /// Who.
        target: String,
    },
    /// What happened to one job and the rule behind each of its numbers; answers for ended jobs too.
    Why {
        /// Who.
        target: String,
    },
    /// Ends a job: SIGTERM to its processes, SIGKILL after the grace.
    Stop {
        /// Who.
        target: String,
        /// Nanoseconds between the two signals.
        grace_ns: u64,
    },
    /// Takes a job's memory off its devices; answered once it is off, or by the reason.
    Suspend {
        /// Who.
        target: String,
        /// How long work in flight may take to end, in nanoseconds, within
        /// [`DRAIN_TIMEOUT_NS`](crate::terms::DRAIN_TIMEOUT_NS).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        drain_timeout_ns: Option<u64>,
    },
    /// Brings a suspended job's memory back; answered by `Waiting`* and, once it runs, `Done`.
    Resume {
        /// Who.
        target: String,
        /// Wait in the queue (`true`) or fail when there is no room.
        wait: bool,
        /// Longest wait in nanoseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_timeout_ns: Option<u64>,
    },
    /// Saves a job in a folder; answered once the snapshot is whole, or by the reason.
    Checkpoint {
        /// Who.
        target: String,
        /// The folder, an absolute path.
        out: String,
        /// The job ends once it is saved.
        stop: bool,
        /// How many generations to keep.
        keep: u64,
        /// The caller's CRIU; counts where the caller is the broker's own user.
        criu: Option<String>,
        /// What is copied of files that are written in place, in bytes; none:
        /// [`FILES_MAX`](crate::snapshot::FILES_MAX).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        files_max: Option<u64>,
        /// How long work in flight may take to end, in nanoseconds, within
        /// [`DRAIN_TIMEOUT_NS`](crate::terms::DRAIN_TIMEOUT_NS).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        drain_timeout_ns: Option<u64>,
        /// What is to become of connections to outside.
        #[serde(default, skip_serializing_if = "Outside::is_default")]
        outside: Outside,
    },
    /// The caller's job, which was admitted just now, is about to be restored; answered by `Done` before it may be.
    Restore(Box<RestoreRequest>),
    /// Moves a job to another device of the node; answered once it runs there, or by the reason.
    Migrate {
        /// Who.
        target: String,
        /// The device that it gets: index or UUID.
        to: String,
        /// The device that it leaves, for a job with several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// Say what would happen, touch nothing; answered by `Move`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dry_run: bool,
        /// How long work in flight may take to end, in nanoseconds, within
        /// [`DRAIN_TIMEOUT_NS`](crate::terms::DRAIN_TIMEOUT_NS).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        drain_timeout_ns: Option<u64>,
    },
    /// Admits nothing on a device any more and moves its jobs off; for administrators. Answered by `Drained` once each
    /// job was tried.
    Drain {
        /// Index or UUID.
        gpu: String,
        /// How long work in flight may take to end, in nanoseconds, within
        /// [`DRAIN_TIMEOUT_NS`](crate::terms::DRAIN_TIMEOUT_NS).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        drain_timeout_ns: Option<u64>,
    },
    /// Ends that.
    Undrain {
        /// Index or UUID.
        gpu: String,
    },
    /// Events that are kept, a page of them, answered by `Events`; with `follow` instead the newest and each new one,
    /// as `Event` each.
    Events(EventsRequest),
    /// Ends the broker; its jobs go on and the next broker adopts them. Refused while a job is being saved.
    StopBroker,
    /// Reads the configuration again; for administrators.
    ReloadConfig,
    /// The configuration that holds.
    ShowConfig {
        /// Only what is about this job or user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
    },
}

/// What a monitoring system is to read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsRequest {
    /// Labels of jobs that name somebody and are written all the same: `user`.
    pub labels: Vec<String>,
    /// Series of jobs beyond which the smallest jobs are summed; none: as many as usual.
    pub most_series: Option<u64>,
    /// Series that earlier answers summed.
    pub dropped_before: u64,
}

/// Which events are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventsRequest {
    /// Keep the connection open, and tell each new event. The other fields but `after` count for pages alone.
    pub follow: bool,
    /// Only events after the one with this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Only events of this moment and later, in nanoseconds of Unix time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// Only events before this moment, in nanoseconds of Unix time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ns: Option<u64>,
    /// Only events of this user's jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Only events of this job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Only events of these kinds; none: of every kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
}

impl EventsRequest {
    /// Is this event one of them? Whether the caller may see it is another question.
    #[must_use]
    pub fn wants(&self, event: &EventView) -> bool {
        self.after.is_none_or(|after| event.number > after)
            && self.since_ns.is_none_or(|since_ns| event.time_ns >= since_ns)
            && self.until_ns.is_none_or(|until_ns| event.time_ns < until_ns)
            && (self.uid.is_none() || self.uid == event.uid)
            && (self.job.is_none() || self.job == event.job)
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
    }
}

/// A process that begins a job without asking for it itself: the first one of a container or of an engine's job, before
/// a program of its user runs. Root may register any; others a process of their own uid, or of a user namespace that
/// they own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegisterRequest {
    /// The process, as the broker's pid namespace numbers it.
    pub pid: u32,
    /// The control group that the job owns; the process must be in it. Without one the process's own is taken, where
    /// it is another than the caller's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// The container's id; without one it is read from the control group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The container's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// The GPUs that the container has, by the numbers of their nodes (`/dev/nvidia3`); with these, `run.gpu` is not
    /// asked. Without, `run.gpu` may be `all`, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<u32>,
    /// The most memory on each GPU, of whoever started the container: `1GiB`. It only lowers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_mem: Option<String>,
    /// Likewise the part of each GPU's time that is never exceeded: `30%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_compute: Option<String>,
    /// Likewise a class, whose numbers are the most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_class: Option<String>,
    /// The most that the job may have, whoever sets its numbers later. It only lowers.
    #[serde(skip_serializing_if = "AtMost::is_empty")]
    pub at_most: AtMost,
    /// The engine that registers it, and its own id of the job there: `slurm:4711`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// What the engine gave the job, in the engine's words: `shard:5 of 10`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_words: Option<String>,
    /// What is asked, as for `Run`. It does not wait.
    pub run: RunRequest,
}

impl Request {
    /// Whom it is about, where it names one.
    pub fn target_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Set { target, .. }
            | Self::Get { target }
            | Self::Why { target }
            | Self::Stop { target, .. }
            | Self::Suspend { target, .. }
            | Self::Resume { target, .. }
            | Self::Checkpoint { target, .. }
            | Self::Migrate { target, .. } => Some(target),
            _ => None,
        }
    }
}
