// SPDX-License-Identifier: Apache-2.0
//! The sentences of events, of notes, of what jobs wait for and why they end, and of what a job's terminal is told.

use std::fmt::{Display, Formatter, Result};

use partage_protocol::summary::denied_times;
use partage_protocol::units::{DeviceUuid, JobId};

use super::{bytes, list, part, span};
use crate::books::{Books, Shortage, TIME_LIMIT_GRACE_NS};
use crate::notice::{Denied, Notice};
use crate::terms::Terms;

macro_rules! notice_table {
    ($each:ident) => {
        $each! {
/// What is told of what happened. It displays as its sentence.
pub(crate) Notice:
    // Of jobs: what they get and have.
    WouldStart(on: String, terms: Terms) ["would start now on {on}{}", terms_after(terms)];
    WouldWait(reason: String) ["would wait: {reason}"];
    Starts(job: JobId, on: String, terms: Terms) ["{job} starts on {on}{}", terms_after(terms)];
    Default(job: JobId, pid: u32) ["{job} is the default job of pid {pid}"];
    DefaultLimited(job: JobId, pid: u32, words: String, limit: u64)
        ["{job} is the default job of pid {pid}, limited by {words} to {}", bytes(limit)];
    Waits(job: JobId, reason: String) ["{job} {reason}"];
    WaitsNoMore(job: JobId) ["{job} waits no more"];
    GivenUp(job: JobId) ["{job} was given up while it waited"];
    Refused(job: JobId, why: String) ["{job}: {why}"];
    Renamed(job: JobId) ["{job} was given another name"];
    Limits(job: JobId, now: String, is_over: bool) ["{job} has {now} now{}",
        if *is_over { "; it uses more than that, so new allocations are denied" } else { "" }];
    LimitsByRules(job: JobId, now: String) ["{job} has {now} now, by the rules"];
    HasTerms(job: JobId, terms: Terms) ["{job} has {} now", terms_or_none(terms)];
    // Of one process, on each GPU.
    OwnLimits(job: JobId, pid: u32, limits: Vec<(Option<u64>, String)>)
        ["pid {pid} of {job} has {} now", own_limits(limits)];
    WasDenied(denied: Denied) ["{denied}"];
    // How they end, and why.
    StoppedBy(job: JobId, user: String) ["{job} is stopped by {user}"];
    TimeNear(job: JobId, left: u64, limit: u64)
        ["{job} ends in {}: its time limit of {} is nearly over", span(left), span(limit)];
    TimeOver(job: JobId, limit: u64) ["{job} has run for {}, its time limit: SIGTERM now, SIGKILL in {}",
        span(limit), span(&TIME_LIMIT_GRACE_NS)];
    Ended(job: JobId, how: String) ["{job} {how}"];
    EndedBy(job: JobId, how: String, why: String) ["{job} {how}: {why}"];
    HasEnded(job: JobId, left: Vec<(u32, String)>) ["{job} has ended{}", spared(left)];
    Resumed(job: JobId) ["{job} goes on: a process of it that was still to come is there"];
    NameWanted() ["its name was wanted and nothing of it runs"];
    PlaceWanted() ["its place was wanted and nothing of it runs"];
    IsRestored() ["it is restored and nothing of it runs"];
    LastProcessGone() ["its last process is gone"];
    ContainerGone() ["its container is gone"];
    WasStopped() ["it was stopped"];
    TimeLimit(limit: u64, words: String) ["its time limit of {} was over ({words})", span(limit)];
    // What they wait for.
    RunIsStopped()
        ["is stopped: it keeps its place, and others pass it until it goes on (fg, or kill -CONT)"];
    PromiseInUse(gpu: String) ["{gpu}: jobs without a promise use what was to be promised"];
    Leaving(jobs: Vec<JobId>) ["{} {} the GPU", list(jobs), if jobs.len() == 1 { "leaves" } else { "leave" }];
    RunMayAskAgain() ["this broker has just begun, and the run that it left for may ask again"];
    // Their way off their GPUs, and back.
    Idle(job: JobId, idle: u64)
        ["{job} did nothing with its GPU for {}: it leaves it until its next call", span(idle)];
    Leaves(victim: JobId, own: Class, job: JobId, class: Class)
        ["{victim} ({own}) leaves its GPU for {job} ({class}) and comes back by itself"];
    LeavesFor(job: JobId, class: Class)
        ["suspended for {job}, which has priority {class}; it comes back by itself"];
    GoesOn(job: JobId, why: String) ["{job} goes on: {why}"];
    Stuck(job: JobId, why: String) ["{}", stands(*job, why)];
    NotAway(job: JobId) ["{job} is not suspended"];
    RunsAgain(job: JobId) ["{job} runs again"];
    BroughtBack(job: JobId, is_here: bool)
        ["another program brought {job}, which was suspended, back to a GPU of this job: {}",
        match is_here {
            true => "there was room, and it runs there now",
            false => "there was no room, and it was sent away again",
        }];
    // Their time.
    TimeDrifts(job: JobId, text: String) ["{job}: {text}"];
    TimeAgrees(job: JobId, gpu: String) ["{job} and NVML agree again about the time of {gpu}"];
    NotDraining(job: JobId, gpu: String) ["{job} has work on {gpu} that does not end: others do not wait for it"];
    // Of processes.
    Attached(pid: u32, job: JobId) ["pid {pid} attached to {job}"];
    CameBack(pid: u32, job: JobId) ["pid {pid} of {job} came back"];
    Gone(pid: u32, job: JobId) ["pid {pid} of {job} is gone"];
    NotInLedger(client: ClientId, pid: u32) ["the ledger has no {client} for pid {pid}"];
    Full(job: JobId, most: usize) ["{job} has {most} clients already"];
    NoDescriptors(pid: u32) ["pid {pid} closed Partage's descriptors: it keeps its grant and cannot grow"];
    SharingOff(pid: u32, place: u64) ["sharing is off in pid {pid}: an invariant broke at place {place}"];
    ForeignNamespace(pid: u32)
        ["pid {pid} has a copy of the driver in a namespace of its own, which no limit reaches"];
    UnknownEntryPoint(pid: u32, version: u64)
        ["pid {pid} uses driver functions of CUDA {version} that Partage does not know: no limit reaches them"];
    Drifts(pid: u32, job: JobId, text: String) ["pid {pid} of {job}: {text}"];
    Agrees(pid: u32, job: JobId) ["pid {pid} of {job} and NVML agree again"];
    KilledFor(pid: u32, job: JobId, text: String) ["pid {pid} of {job} is killed: audit.drift = kill: {text}"];
    StrictKill(pid: u32, job: JobId) ["--strict killed pid {pid} of {job}: it used a GPU without Partage"];
    Unlimited(pid: u32, job: JobId, gpu: u32)
        ["pid {pid} of {job} uses GPU {gpu} without Partage: no limit holds for it"];
    Uses(pid: u32, used: Option<u64>, gpu: u32)
        ["pid {pid} uses {} of GPU {gpu}", used.as_ref().map_or("an unknown amount".to_owned(), bytes)];
    Busy(pid: u32, ppm: u32, gpu: u32, how: String)
        ["pid {pid} uses {} of the time of GPU {gpu}{how}, which cannot share it out", part(ppm)];
    Spared(pid: u32, uid: Option<u32>, gpu: u32)
        ["pid {pid} of {} uses GPU {gpu} without Partage and is not killed: a private broker ends processes of its own \
        user only", uid.map_or("an unknown user".to_owned(), |uid| format!("uid {uid}"))];
    Killed(pid: u32, gpu: u32)
        ["pid {pid} is killed: it uses GPU {gpu} without Partage (audit.unmanaged = kill)"];
    // Of devices.
    AllAdopted() ["every client of the broker before came back"];
    Adopted(late: usize) ["{late} clients did not come back yet and are counted with all they were granted"];
    Found(gpu: u32, model: String, total: u64) ["GPU {gpu} ({model}) has {}", bytes(total)];
    NotShown() ["the driver does not show it any more"];
    Lost(gpu: u32, why: String) ["GPU {gpu} is lost: {why}"];
    Drained(gpu: String, by: Option<u32>)
        ["{gpu} is drained{}: nothing is admitted on it", by.map_or(String::new(), |uid| format!(" by uid {uid}"))];
    Undrained(gpu: String) ["{gpu} takes jobs again"];
    NotDrained(gpu: String) ["{gpu} is not drained"];
    Sick(gpu: String, what: String) ["{gpu} is sick: it {what}. Nothing is admitted on it"];
    Well(gpu: String, by: Option<u32>)
        ["{gpu} is well again{}", by.map_or(String::new(), |uid| format!(", as uid {uid} says"))];
        }
    };
}

notice_table!(sentences);

macro_rules! shortage_table {
    ($each:ident) => {
        $each! {
/// A device without room for a job that wants to be there.
pub Shortage:
    /// No such job, device or slot, or nothing is given on the device now.
    Closed(gpu: String) ["{gpu} takes no jobs at the moment"];
    /// An administrator drained it: a sentence with the way out.
    Drained(text: String) ["{text}"];
    /// Bytes that the job needs there, and what is left for it.
    Memory(gpu: String, needed: u64, left: u64)
        ["the job needs {} on {gpu}, which has {} left for it", bytes(needed), bytes(left)];
    /// A total of several jobs has no room for it: which, its numbers, and who holds them.
    Total(text: String) ["the {text}"];
    /// A command that waits since before asks for it first, for this job.
    Behind(gpu: String, first: JobId) ["{gpu} goes to {first} first, which asked earlier"];
    /// Millionths that the job was promised.
    Time(gpu: String, promised_ppm: u32)
        ["the job was promised {} of the time of {gpu}, which others were promised meanwhile", part(promised_ppm)];
        }
    };
}

shortage_table!(sentences);

impl Display for Denied {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let asked = Some(&self.asked).filter(|asked| **asked > 0);
        let gpu = self.gpu.clone();
        write!(
            out,
            "{} was denied {} on {} ({}{}): {} uses {} of {}{}; {} so far",
            self.job,
            asked.map_or("an allocation".to_owned(), bytes),
            gpu.unwrap_or_else(|| format!("its device {}", self.slot)),
            self.rule.as_deref().unwrap_or(self.reason.because()),
            self.unfreed
                .map_or(String::new(), |unfreed| format!(", and {}", unfreed.text())),
            self.pid.map_or("it".to_owned(), |pid| format!("pid {pid}")),
            bytes(&self.used),
            bytes(&self.limit),
            match self.overhead {
                0 => String::new(),
                overhead => format!(", {} of it overhead", bytes(&overhead)),
            },
            denied_times(self.count)
        )
    }
}

/// `, promise 30 %, cap 50 %`; empty for the usual terms.
fn terms_after(terms: &Terms) -> String {
    match terms.shown() {
        text if text.is_empty() => text,
        text => format!(", {text}"),
    }
}

fn terms_or_none(terms: &Terms) -> String {
    match terms.shown() {
        text if text.is_empty() => "no promise and no cap, usual weight and priority".to_owned(),
        text => text,
    }
}

fn own_limits(limits: &[(Option<u64>, String)]) -> String {
    let each = |(limit, gpu): &(Option<u64>, String)| match limit {
        Some(limit) => format!("at most {} on {gpu}", bytes(limit)),
        None => format!("no limit of its own on {gpu}"),
    };
    list(&limits.iter().map(each).collect::<Vec<_>>())
}

/// `: pid 7 of root was not signalled, …`; nothing where all were.
pub(super) fn spared(processes: &[(u32, String)]) -> String {
    let each = processes.iter().map(|(pid, user)| format!("pid {pid} of {user}"));
    let all = list(&each.collect::<Vec<_>>());
    match processes.len() {
        0 => String::new(),
        1 => format!(": {all} was not signalled, which is another user's"),
        _ => format!(": {all} were not signalled, which are other users'"),
    }
}

/// What is said of a job whose memory stands on its way.
#[must_use]
pub fn stands(id: JobId, why: &str) -> String {
    format!("{id} stands on its way: {why}; it goes on by itself once that is over")
}

impl Books {
    /// What `undrain` says.
    #[must_use]
    pub fn undrained_text(&self, device: DeviceUuid, did_not_take_jobs: bool) -> String {
        let gpu = self.gpu(device);
        let what = if did_not_take_jobs {
            Notice::Undrained
        } else {
            Notice::NotDrained
        };
        what(gpu).to_string()
    }
}
