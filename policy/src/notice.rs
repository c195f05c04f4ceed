// SPDX-License-Identifier: Apache-2.0
//! What is told of what happened, as facts. Each is a row of the table in `views/said/notices.rs`, which has its words.

use partage_protocol::summary::Summary;
use partage_protocol::terms::Class;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};

use crate::caller::Process;
use crate::job::{JobRecord, Reason, Unfreed};
use crate::terms::Terms;

notice_table!(facts);

/// A denial, with the numbers of the moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Denied {
    pub job: JobId,
    /// 0 where nobody knows.
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
