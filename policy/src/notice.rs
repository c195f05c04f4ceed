// SPDX-License-Identifier: Apache-2.0
//! What is told of what happened, as facts. Each displays as its sentence, whose words are in `views/said/`.

use partage_protocol::summary::Summary;
use partage_protocol::terms::Class;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};

use crate::caller::Process;
use crate::job::{JobRecord, Reason, Unfreed};
use crate::terms::Terms;

/// Of a job.
pub(crate) enum OfJob {
    /// On what, and its terms.
    WouldStart(String, Terms),
    WouldWait(String),
    Starts(JobId, String, Terms),
    /// For a process, under the words of a limit.
    Default(JobId, u32, Option<(String, u64)>),
    Waits(JobId, String),
    WaitsNoMore(JobId),
    GivenUp(JobId),
    Refused(JobId, String),
    Renamed(JobId),
    /// What it has now, and whether it uses more.
    Limits(JobId, String, bool),
    LimitsByRules(JobId, String),
    Terms(JobId, Terms),
    /// Of one process: a limit for each GPU.
    OwnLimits(JobId, u32, Vec<(Option<u64>, String)>),
    Denied(Denied),
    Stopped(JobId, String),
    TimeNear(JobId, u64, u64),
    TimeOver(JobId, u64),
    Ended(JobId, Summary),
    EndedBy(JobId, Summary, String),
    /// With processes that were left alone.
    HasEnded(JobId, Vec<(u32, String)>),
    Resumed(JobId),
}

/// Of a job's way off its GPUs, and back.
pub(crate) enum OfWay {
    Idle(JobId, u64),
    /// A job and its class, for another one and its class.
    Leaves(JobId, Class, JobId, Class),
    LeavesFor(JobId, Class),
    GoesOn(JobId, String),
    Stuck(JobId, String),
    NotAway(JobId),
    Back(JobId),
    /// By another program; whether there was room.
    BroughtBack(JobId, bool),
    TimeDrifts(JobId, String),
    TimeAgrees(JobId, String),
    NotDraining(JobId, String),
}

/// Of a process, by its pid.
pub(crate) enum OfProcess {
    Attached(u32, JobId),
    CameBack(u32, JobId),
    Gone(u32, JobId),
    Unlisted(ClientId, u32),
    Full(JobId, usize),
    NoDescriptors(u32),
    SharingOff(u32, u64),
    ForeignNamespace(u32),
    UnknownEntryPoint(u32, u64),
    Drifts(u32, JobId, String),
    Agrees(u32, JobId),
    KilledFor(u32, JobId, String),
    StrictKill(u32, JobId),
    Unlimited(u32, JobId, u32),
    Uses(u32, Option<u64>, u32),
    /// So many millionths of a GPU's time, and how.
    Busy(u32, u32, u32, String),
    /// Whose it is, and the GPU.
    Spared(u32, Option<u32>, u32),
    Killed(u32, u32),
}

/// Of a device, or all.
pub(crate) enum OfDevice {
    /// So many clients of the broker before did not come back.
    Adopted(usize),
    Found(u32, String, u64),
    NotShown,
    Lost(u32, String),
    /// By whom.
    Drained(String, Option<u32>),
    /// Whether it was drained.
    Undrained(String, bool),
}

/// What a job in the queue waits for.
pub(crate) enum Awaits {
    /// Its `run` goes on.
    Going,
    /// What is promised on a GPU is not used by others.
    Unused(String),
    /// These leave.
    Leaving(Vec<JobId>),
    /// The run that it left for asks again.
    Run,
}

/// A denial, with the numbers of the moment.
pub(crate) struct Denied {
    pub job: JobId,
    pub asked: u64,
    pub gpu: Option<String>,
    pub slot: usize,
    pub reason: Reason,
    pub rule: Option<String>,
    pub unfreed: Option<Unfreed>,
    /// The process whose limit denied.
    pub pid: Option<u32>,
    pub used: u64,
    pub limit: u64,
    pub overhead: u64,
    pub count: u64,
}

/// The numbers of an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    /// The job as it was then, where its own are meant.
    pub(crate) record: Option<JobRecord>,
    pub(crate) figures: Figures,
}

/// Which numbers an event has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Figures {
    #[default]
    None,
    Used(DeviceUuid, Option<u64>),
    Busy(DeviceUuid, u32),
    /// What was asked, the limit, the use, the overhead in it, and the count of denials.
    Denial(Option<DeviceUuid>, [u64; 5]),
    Job,
    /// At this place in the queue.
    Waiting(u32),
    Ended(Summary),
    Process(Process),
}

impl Figures {
    /// Are they the job's own?
    pub(crate) const fn are_of_the_job(&self) -> bool {
        matches!(self, Self::Job | Self::Waiting(_) | Self::Ended(_) | Self::Process(_))
    }
}
