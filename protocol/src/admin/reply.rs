// SPDX-License-Identifier: Apache-2.0
//! What the broker answers a command.

use serde::{Deserialize, Serialize};

use super::config::ConfigView;
use super::event::EventView;
use super::failure::ErrorView;
use super::status_views::{QueueView, StatusView};
use super::views::{Holder, JobDeviceView, JobView, TermsView, UnmanagedView, WhyView};

/// What the broker answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    /// The job waits; sent at once and every minute.
    Waiting(Waiting),
    /// The job may start.
    Admitted(Admitted),
    /// Answer to `Ps`.
    Ps {
        /// The jobs, oldest first.
        jobs: Vec<JobView>,
        /// GPU processes that no job owns; with the first page.
        unmanaged: Vec<UnmanagedView>,
        /// There are jobs after these: ask again with `after`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        more: bool,
    },
    /// Answer to `Status`.
    Status(StatusView),
    /// Answer to `Queue`.
    Queue(QueueView),
    /// Answer to `Run` and `Register` inside a container that is a job: what starts there is of that job.
    Inside(Box<JobView>),
    /// Answer to `Metrics`.
    Metrics {
        /// In Prometheus' text format.
        text: String,
        /// Series of jobs that are in a sum alone.
        dropped: u64,
    },
    /// Answer to `Get` and `Set`.
    Job(JobView),
    /// Answer to `Why`.
    Why(WhyView),
    /// Answer to `ShowConfig`.
    Config(ConfigView),
    /// Answer to `Migrate` with `dry_run`.
    Move(MoveView),
    /// Answer to `Drain`.
    Drained(DrainView),
    /// Answer to a `Run` with `dry_run` and a `token`: what NVML shows a program of `run --lazy` before it uses a GPU.
    Foreseen {
        /// The job's devices in job order.
        devices: Vec<ForeseenDevice>,
    },
    /// A page of events that are kept, the oldest first.
    Events {
        /// As far as the caller may see them.
        events: Vec<EventView>,
        /// There may be more after this number: ask again with it as `after`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        more: Option<u64>,
    },
    /// One event.
    Event(EventView),
    /// Done; nothing more to say.
    Done {
        /// A sentence for the terminal.
        message: String,
    },
    /// Not done.
    Error(ErrorView),
}

/// One device that a job would have. The library finds each by its beginning: `uuid` stays the first field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeseenDevice {
    /// `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// Its index.
    pub index: Option<u32>,
    /// Its whole memory.
    pub total_bytes: u64,
    /// What of it the job may use.
    pub limit_bytes: u64,
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// Place in the queue, 1 is next.
    pub position: u32,
    /// Sentence with the numbers.
    pub reason: String,
    /// Who holds what it waits for.
    pub holders: Vec<Holder>,
}

/// What a move would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveView {
    /// `j42`.
    pub job: String,
    /// The device that it leaves, `GPU-…`.
    pub from: String,
    /// Its index.
    pub from_index: Option<u32>,
    /// The device that it gets, `GPU-…`.
    pub to: String,
    /// Its index.
    pub to_index: Option<u32>,
    /// Bytes that are moved by way of host memory.
    pub bytes: u64,
    /// For how long its threads are expected to wait, in nanoseconds.
    pub pause_ns: u64,
    /// That is from this job's last way off its devices; otherwise from published figures.
    pub is_measured: bool,
    /// The steps in order, in words.
    pub steps: Vec<String>,
}

/// What became of the jobs of a device that is drained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DrainView {
    /// The device, `GPU-…`.
    pub gpu: String,
    /// Its index.
    pub gpu_index: Option<u32>,
    /// It takes no jobs; not so where it was undrained before it was empty.
    pub is_drained: bool,
    /// Jobs that were moved off.
    pub moved: Vec<MovedView>,
    /// Jobs that stay.
    pub staying: Vec<StayingView>,
}

/// A job that was moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MovedView {
    /// `j42`.
    pub job: String,
    /// Where it is now, `GPU-…`.
    pub to: String,
    /// Its index.
    pub to_index: Option<u32>,
}

/// A job that could not be moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StayingView {
    /// `j42`.
    pub job: String,
    /// Why.
    pub why: String,
    /// What to do.
    pub hint: Option<String>,
}

/// An admitted job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Admitted {
    /// `j42`.
    pub job: String,
    /// 64 hexadecimal digits, for `PARTAGE_TOKEN`.
    pub token: String,
    /// The devices in job order.
    pub devices: Vec<JobDeviceView>,
    /// The broker serves one user only: its promises hold among that user's jobs.
    pub is_private: bool,
    /// What its promise is worth where that is less than usual (overcommitted devices).
    #[serde(default)]
    pub notes: Vec<String>,
    /// Its terms of device time.
    #[serde(default)]
    pub terms: TermsView,
    /// The process that it lives by: of a registration that found its job there another than was named. 0: unknown.
    #[serde(default)]
    pub pid: u32,
}
