// SPDX-License-Identifier: Apache-2.0
//! Why a command is refused, as facts. The words are in `views/said/refusals.rs`.

use std::fmt::Display;

use partage_protocol::aliases::AliasError;
use partage_protocol::size::Amount;
use partage_protocol::units::{DeviceUuid, JobId};

use crate::holding::Holding;
use crate::residence::Residence;
use crate::rules::NotAllowed;

/// A refusal. It displays as its sentence, and becomes the document that its caller gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal(pub(crate) Box<Why>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Why {
    Amiss(Amiss),
    Missed(Missed),
    NoRoom(NoRoom),
    Stays(Stays),
    /// What the rules do not allow, or what contradicts itself under them.
    Rules(NotAllowed),
    /// The same to an administrator, who may go beyond a rule.
    ToAdmin(Refusal),
}

/// What was asked makes no sense.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Amiss {
    /// What stands before a value that cannot be read, and why it cannot.
    Value(String, String),
    /// Another tool's variable that cannot be followed, and the option that makes it count for nothing.
    Alias(AliasError, &'static str),
    /// An amount of so many characters, and how many it may have.
    TooLong(usize, usize),
    /// A class that an annotation names, and those that there are.
    Class(String, Vec<String>),
    GpuCount(String),
    /// `--gpu`, and the part of it that is no GPU.
    GpuPart(String, String),
    GpuMany(usize),
    GpuTwice(u32),
    NoGpu(String),
    /// The option, and a name that is none, or an id.
    Name(String, String),
    NameIsId(String, String),
    NameTaken(JobId, String),
    NoTime,
    Token,
    NothingToSet(JobId),
    /// Of a process, by what its user called it, and its job.
    OnlyMem(String, JobId),
    /// A time limit of a job that has run for longer.
    TimeOver(u64, JobId, u64),
    UnknownDevice(DeviceUuid),
    /// A promise, and the limit on the GPU with that index.
    RequestAbove(Amount, u64, u32),
}

/// Whoever is meant is not there, or not the caller's to change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Missed {
    NoPid(String),
    ProcessAlone(String),
    Kind(String),
    Ended(Vec<JobId>),
    EndedMeanwhile(JobId),
    Unknown(JobId),
    NoJob(String),
    NotAttached(String),
    /// The target, and the jobs that it means.
    Several(String, Vec<String>),
    Inside(JobId),
    InsideRestored(JobId),
    /// Whose it is, and whether the caller may see into it.
    Belongs(JobId, String, bool),
    Anothers(JobId),
    /// A GPU that is not a job's, and those that are.
    NotOn(JobId, String, Vec<String>),
    WithoutGpu(JobId),
    SeveralGpus(JobId, Vec<String>),
}

/// Indices of GPUs, as a sentence lists them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gpus(pub(crate) Vec<u32>);

/// There is no GPU for it, or none with so much.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NoRoom {
    NoDriver(String),
    BrokenDriver(String),
    NoDevice,
    NoneOpen(Gpus),
    /// `CUDA_VISIBLE_DEVICES`, and what there is.
    NoneVisible(String, Gpus),
    Excluded(u32, String),
    /// So many were asked for, and these can be used.
    TooFew(usize, usize, Gpus),
    Lost(String, String),
    Nowhere(String, Gpus),
    ManyUuids(String),
    /// Bytes that were asked for, what some GPUs have, and the most that one has.
    NeverFits(u64, Vec<(u32, u64)>, u64),
    /// A limit, what a context takes, and where.
    BelowContext(u64, u64, u32),
    /// A key, its GPU, and of that the whole and the usable memory.
    Size(String, u32, u64, u64),
    Closed(u32),
    /// Bytes for a job, the GPU, what is left there, the total that leaves no more, and who holds it.
    Promise(u64, JobId, (String, u64), Option<String>, Vec<Holding>),
    /// Millionths of time likewise.
    Time(u32, JobId, (String, u64), Vec<Holding>),
    TimeTotal(u32, JobId, String),
    /// What is short, for how long it was waited for, and whether it might have waited.
    Now(String, Option<u64>, bool, Vec<Holding>),
    /// Likewise for a job that was to come back.
    Back(JobId, String, Option<u64>, Vec<Holding>),
    /// Likewise for one that was to move.
    There(String, Vec<Holding>),
}

/// A job stays where or what it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stays {
    Lives(JobId),
    /// What is short on each GPU like its own.
    Drained(Vec<String>),
    /// No GPU is like this one.
    Alone(String),
    TargetLost(String, String),
    Waiting(JobId),
    Poisoned(JobId),
    OnItsWay(JobId, Residence),
    Stuck(JobId, String),
    Never(JobId, String),
    Coming(JobId),
    /// It goes on, with processes that were left alone.
    Spared(JobId, Vec<(u32, String)>),
    StoppedWaiting(JobId),
}

macro_rules! into_refusal {
    ($($kind:ident $of:ty),*) => {$(
        impl From<$of> for Refusal {
            fn from(why: $of) -> Self {
                Self(Box::new(Why::$kind(why)))
            }
        }
    )*};
}

into_refusal!(Amiss Amiss, Missed Missed, NoRoom NoRoom, Stays Stays, Rules NotAllowed);

impl Refusal {
    /// Is a promise refused that could be made if there were room?
    pub(crate) fn is_of_a_promise(&self) -> bool {
        use NoRoom::{Closed, Promise, Time, TimeTotal};
        matches!(
            &*self.0,
            Why::NoRoom(Closed(..) | Promise(..) | Time(..) | TimeTotal(..))
        )
    }
}

/// A value that cannot be read, and what stands before it.
pub(crate) fn unreadable<E: Display>(before: impl Into<String>) -> impl FnOnce(E) -> Refusal {
    move |why| Amiss::Value(before.into(), why.to_string()).into()
}
