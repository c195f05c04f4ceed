// SPDX-License-Identifier: Apache-2.0
//! What the policy tells the broker to do.
//!
//! Actions are carried out in order. Grants are no actions: the policy changes the words themselves, through the
//! machine that [`Policy::step`](crate::Policy::step) is given, because an answer depends on what a racing client did.

use std::fmt::Display;

use partage_protocol::page::DeviceInfo;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};

use crate::caller::{Process, Ticket};
use crate::device::UnmanagedLoad;
use crate::heard::Heard;
use crate::job::{EndedJob, JobRecord};
use crate::notice::Numbers;
use crate::time::UserUsage;

/// A signal for all processes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a document to the command line.
    Reply {
        /// Where.
        ticket: Ticket,
        /// What.
        heard: Heard,
    },
    /// There is room for a job that is away: begin its passage back now, which claims the room. What it comes to is
    /// said by [`Event::Returned`](crate::Event::Returned).
    Come(JobId),
    /// A request of a higher class needs its memory, or it is idle: begin a suspend, as for a command. One that does
    /// not begin is said by [`Event::NotLeft`](crate::Event::NotLeft).
    Leave(JobId),
    /// The client is attached: its page says these devices in slot order; then send `Welcome`.
    Welcome {
        /// Who.
        client: ClientId,
        /// Its job.
        job: JobId,
        /// `WELCOME_*`.
        flags: u32,
        /// Slot 0 first.
        devices: Vec<DeviceInfo>,
    },
    /// The client is not attached: send `Refused` and drop its row and pages.
    Refuse {
        /// Who.
        client: ClientId,
        /// `REFUSED_*`.
        code: u32,
        /// One sentence.
        text: String,
    },
    /// Write the heads and limit words of a client's broker page.
    ShowPage {
        /// Whose page.
        client: ClientId,
        /// Clients of its job that hold memory.
        clients_in_job: u32,
        /// Limit words, slot 0 first.
        limits: Vec<u64>,
        /// What its process may hold at most beside these, slot 0 first; 0 for no limit of its own.
        process_limits: Vec<u64>,
    },
    /// Write the overhead words of a client's broker page.
    ShowOverheads {
        /// Whose page.
        client: ClientId,
        /// Bytes, slot 0 first.
        overheads: Vec<u64>,
    },
    /// Look at a device soon: somebody waits for what it shows.
    Look(DeviceUuid),
    /// Look whether processes have ended that nobody noticed yet, say so of each, and then [`crate::Event::Searched`].
    FindEnded {
        /// Whose question waits for that.
        client: ClientId,
        /// Whose processes.
        looked_at: Vec<ClientId>,
    },
    /// Answer an `Ask`, a `Usage` or a `Measure`; G is in the page already.
    Answer {
        /// Who.
        client: ClientId,
        /// As asked.
        sequence: u32,
        /// As asked.
        slot: u32,
        /// `VERDICT_*`.
        verdict: u32,
        /// G.
        granted: u64,
        /// The job's limit.
        limit: u64,
        /// The job's use.
        job_used: u64,
        /// Physically free, `u64::MAX` when unknown.
        physical_free: u64,
    },
    /// Tell the policy when this process is gone ([`Event::ProcessGone`](crate::Event::ProcessGone)).
    Watch {
        /// The job whose first process it is.
        job: JobId,
        /// The process.
        process: Process,
    },
    /// A device became sick, or well: write down which are sick.
    Health(DeviceUuid),
    /// Write the job's record, so that the next broker finds it.
    SaveJob(Box<JobRecord>),
    /// These are the job's terms of time on these devices from now on: it was admitted or adopted, or they changed. Its
    /// clients come with [`Action::Welcome`] and go with [`Action::ForgetClient`], the job with [`Action::ForgetJob`].
    ShowTerms {
        /// Whose.
        job: JobId,
        /// Its devices, slot 0 first.
        devices: Vec<DeviceUuid>,
        /// What it may have on each.
        terms: partage_scheduling::Terms,
    },
    /// Processes of no job use so much of a device's time from now on.
    ShowUnmanaged {
        /// Where.
        device: DeviceUuid,
        /// How much.
        load: UnmanagedLoad,
    },
    /// Jobs had more of a device's time than they were charged, or less, as NVML shows it.
    CorrectTime {
        /// Where.
        device: DeviceUuid,
        /// Whose, and by how much, in nanoseconds.
        charges: Vec<(JobId, i64)>,
        /// To be charged evenly over this time.
        over_ns: u64,
    },
    /// The job ended: remove its record.
    ForgetJob(JobId),
    /// Write down what is remembered of a job that ended, so that the next broker can tell of it; said again of the
    /// same job, it counts instead.
    RememberJob(Box<EndedJob>),
    /// Write down what users had of the GPUs, all of them, for the next broker.
    SaveUsage(Vec<UserUsage>),
    /// The client is gone: its ledger row (L is 0) and pages may be used again.
    ForgetClient(ClientId),
    /// Send a signal to every process of the job: the first one, its clients and their descendants. Those that are left
    /// out are said by [`Event::Spared`](crate::Event::Spared).
    SignalJob {
        /// Which.
        job: JobId,
        /// What.
        signal: Signal,
        /// Only to processes that this user could signal: below a job there may be another user's (`sudo`).
        by: u32,
    },
    /// SIGKILL one process that uses a device without being managed (`--strict`).
    KillUnmanaged {
        /// The job that is strict.
        job: JobId,
        /// The process; verify that it still descends from the job.
        pid: u32,
    },
    /// SIGKILL exactly this process, if it is still there.
    KillProcess(Process),
    /// Say a line on the terminal of the job's `run`, if it still has one.
    Tell {
        /// Whose.
        job: JobId,
        /// The line, without `partage:`.
        text: String,
    },
    /// Publish an event (`partage events`).
    Publish {
        /// As in `EventView::kind`.
        kind: &'static str,
        /// The job, where one is meant.
        job: Option<JobId>,
        /// The job's owner: a job that never ran is forgotten by the time that this is read.
        uid: Option<u32>,
        /// The process, where one is meant.
        pid: Option<u32>,
        /// A sentence with the numbers.
        text: String,
        /// The numbers by themselves.
        numbers: Box<Numbers>,
    },
}

impl Action {
    pub(crate) fn tell(job: JobId, what: impl Display) -> Self {
        let text = what.to_string();
        Self::Tell { job, text }
    }
}
