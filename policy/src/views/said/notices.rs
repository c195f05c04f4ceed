// SPDX-License-Identifier: Apache-2.0
//! The sentences of events, of notes, and of what a job's terminal is told.

use std::fmt::{Display, Formatter, Result};

use partage_protocol::size::{format_bytes, format_duration};
use partage_protocol::summary::denied_times;
use partage_protocol::terms::format_part;
use partage_protocol::units::{DeviceUuid, JobId};

use crate::books::{Books, TIME_LIMIT_GRACE_NS};
use crate::notice::{Denied, OfDevice, OfJob, OfProcess, OfWay};
use crate::terms::Terms;

/// `, promise 30 %, cap 50 %`; empty for the usual terms.
fn terms_after(terms: &Terms) -> String {
    match terms.shown() {
        text if text.is_empty() => text,
        text => format!(", {text}"),
    }
}

/// `: pid 7 of root was not signalled, …`; nothing where all were.
pub(super) fn spared(processes: &[(u32, String)]) -> String {
    let each = processes.iter().map(|(pid, user)| format!("pid {pid} of {user}"));
    let all = each.collect::<Vec<_>>().join(", ");
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
    pub fn undrained_text(&self, device: DeviceUuid, was_drained: bool) -> String {
        OfDevice::Undrained(self.gpu(device), was_drained).to_string()
    }
}

impl Display for OfJob {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::WouldStart(on, terms) => write!(out, "would start now on {on}{}", terms_after(terms)),
            Self::WouldWait(reason) => write!(out, "would wait: {reason}"),
            Self::Starts(job, on, terms) => write!(out, "{job} starts on {on}{}", terms_after(terms)),
            Self::Default(job, pid, None) => write!(out, "{job} is the default job of pid {pid}"),
            Self::Default(job, pid, Some((limit, bytes))) => {
                let most = format_bytes(*bytes);
                write!(
                    out,
                    "{job} is the default job of pid {pid}, limited by {limit} to {most}"
                )
            }
            Self::Waits(job, reason) => write!(out, "{job} {reason}"),
            Self::WaitsNoMore(job) => write!(out, "{job} waits no more"),
            Self::GivenUp(job) => write!(out, "{job} was given up while it waited"),
            Self::Refused(job, why) => write!(out, "{job}: {why}"),
            Self::Renamed(job) => write!(out, "{job} was given another name"),
            Self::Limits(job, now, false) => write!(out, "{job} has {now} now"),
            Self::Limits(job, now, true) => write!(
                out,
                "{job} has {now} now; it uses more than that, so new allocations are denied"
            ),
            Self::LimitsByRules(job, now) => write!(out, "{job} has {now} now, by the rules"),
            Self::Terms(job, terms) => match terms.shown() {
                text if text.is_empty() => {
                    write!(out, "{job} has no promise and no cap, usual weight and priority now")
                }
                text => write!(out, "{job} has {text} now"),
            },
            Self::OwnLimits(job, pid, limits) => {
                let each = limits.iter().map(|(limit, gpu)| match limit {
                    Some(limit) => format!("at most {} on {gpu}", format_bytes(*limit)),
                    None => format!("no limit of its own on {gpu}"),
                });
                let all = each.collect::<Vec<_>>().join(", ");
                write!(out, "pid {pid} of {job} has {all} now")
            }
            Self::Denied(denied) => denied.fmt(out),
            Self::Stopped(job, user) => write!(out, "{job} is stopped by {user}"),
            Self::TimeNear(job, left_ns, limit_ns) => {
                let (left, limit) = (format_duration(*left_ns), format_duration(*limit_ns));
                write!(out, "{job} ends in {left}: its time limit of {limit} is nearly over")
            }
            Self::TimeOver(job, limit_ns) => {
                let (limit, grace) = (format_duration(*limit_ns), format_duration(TIME_LIMIT_GRACE_NS));
                write!(
                    out,
                    "{job} has run for {limit}, its time limit: SIGTERM now, SIGKILL in {grace}"
                )
            }
            Self::Ended(job, summary) => write!(out, "{job} {}", summary.sentence()),
            Self::EndedBy(job, summary, why) => write!(out, "{job} {}: {why}", summary.sentence()),
            Self::HasEnded(job, left) => write!(out, "{job} has ended{}", spared(left)),
            Self::Resumed(job) => write!(out, "{job} goes on: a process of it that was still to come is there"),
        }
    }
}

impl Display for Denied {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let (job, slot) = (self.job, self.slot);
        let what = match self.asked {
            0 => "an allocation".to_owned(),
            asked => format_bytes(asked),
        };
        let gpu = self.gpu.clone().unwrap_or_else(|| format!("its device {slot}"));
        let because = self.rule.as_deref().unwrap_or(self.reason.because());
        let unfreed = self.unfreed.map(|unfreed| format!(", and {}", unfreed.text()));
        let who = self.pid.map_or_else(|| "it".to_owned(), |pid| format!("pid {pid}"));
        let (used, limit) = (format_bytes(self.used), format_bytes(self.limit));
        let overhead = match self.overhead {
            0 => String::new(),
            bytes => format!(", {} of it overhead", format_bytes(bytes)),
        };
        write!(
            out,
            "{job} was denied {what} on {gpu} ({because}{}): {who} uses {used} of {limit}{overhead}; {} so far",
            unfreed.unwrap_or_default(),
            denied_times(self.count)
        )
    }
}

impl Display for OfWay {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::Idle(job, for_ns) => {
                let idle = format_duration(*for_ns);
                write!(
                    out,
                    "{job} did nothing with its GPU for {idle}: it leaves it until its next call"
                )
            }
            Self::Leaves(victim, own, job, class) => {
                write!(
                    out,
                    "{victim} ({own}) leaves its GPU for {job} ({class}) and comes back by itself"
                )
            }
            Self::LeavesFor(job, class) => {
                write!(
                    out,
                    "suspended for {job}, which has priority {class}; it comes back by itself"
                )
            }
            Self::GoesOn(job, why) => write!(out, "{job} goes on: {why}"),
            Self::Stuck(job, why) => out.write_str(&stands(*job, why)),
            Self::NotAway(job) => write!(out, "{job} is not suspended"),
            Self::Back(job) => write!(out, "{job} runs again"),
            Self::BroughtBack(job, is_here) => {
                let end = match is_here {
                    true => "there was room, and it runs there now",
                    false => "there was no room, and it was sent away again",
                };
                write!(
                    out,
                    "another program brought {job}, which was suspended, back to a GPU of this job: {end}"
                )
            }
            Self::TimeDrifts(job, text) => write!(out, "{job}: {text}"),
            Self::TimeAgrees(job, gpu) => write!(out, "{job} and NVML agree again about the time of {gpu}"),
            Self::NotDraining(job, gpu) => {
                write!(
                    out,
                    "{job} has work on {gpu} that does not end: others do not wait for it"
                )
            }
        }
    }
}

impl Display for OfProcess {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::Attached(pid, job) => write!(out, "pid {pid} attached to {job}"),
            Self::CameBack(pid, job) => write!(out, "pid {pid} of {job} came back"),
            Self::Gone(pid, job) => write!(out, "pid {pid} of {job} is gone"),
            Self::Unlisted(client, pid) => write!(out, "the ledger has no {client} for pid {pid}"),
            Self::Full(job, most) => write!(out, "{job} has {most} clients already"),
            Self::NoDescriptors(pid) => {
                write!(
                    out,
                    "pid {pid} closed Partage's descriptors: it keeps its grant and cannot grow"
                )
            }
            Self::SharingOff(pid, place) => {
                write!(out, "sharing is off in pid {pid}: an invariant broke at place {place}")
            }
            Self::ForeignNamespace(pid) => write!(
                out,
                "pid {pid} has a copy of the driver in a namespace of its own, which no limit reaches"
            ),
            Self::UnknownEntryPoint(pid, version) => write!(
                out,
                "pid {pid} uses driver functions of CUDA {version} that Partage does not know: no limit reaches them"
            ),
            Self::Drifts(pid, job, text) => write!(out, "pid {pid} of {job}: {text}"),
            Self::Agrees(pid, job) => write!(out, "pid {pid} of {job} and NVML agree again"),
            Self::KilledFor(pid, job, text) => {
                write!(out, "pid {pid} of {job} is killed: audit.drift = kill: {text}")
            }
            Self::StrictKill(pid, job) => {
                write!(out, "--strict killed pid {pid} of {job}: it used a GPU without Partage")
            }
            Self::Unlimited(pid, job, gpu) => {
                write!(
                    out,
                    "pid {pid} of {job} uses GPU {gpu} without Partage: no limit holds for it"
                )
            }
            Self::Uses(pid, bytes, gpu) => {
                let used = bytes.map_or("an unknown amount".to_owned(), format_bytes);
                write!(out, "pid {pid} uses {used} of GPU {gpu}")
            }
            Self::Busy(pid, ppm, gpu, how) => {
                let part = format_part(*ppm);
                write!(
                    out,
                    "pid {pid} uses {part} of the time of GPU {gpu}{how}, which cannot share it out"
                )
            }
            Self::Spared(pid, uid, gpu) => {
                let whose = uid.map_or("an unknown user".to_owned(), |uid| format!("uid {uid}"));
                write!(
                    out,
                    "pid {pid} of {whose} uses GPU {gpu} without Partage and is not killed: a private broker ends \
                     processes of its own user only"
                )
            }
            Self::Killed(pid, gpu) => {
                write!(
                    out,
                    "pid {pid} is killed: it uses GPU {gpu} without Partage (audit.unmanaged = kill)"
                )
            }
        }
    }
}

impl Display for OfDevice {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::Adopted(0) => out.write_str("every client of the broker before came back"),
            Self::Adopted(late) => write!(
                out,
                "{late} clients did not come back yet and are counted with all they were granted"
            ),
            Self::Found(gpu, model, bytes) => write!(out, "GPU {gpu} ({model}) has {}", format_bytes(*bytes)),
            Self::NotShown => out.write_str("the driver does not show it any more"),
            Self::Lost(gpu, why) => write!(out, "GPU {gpu} is lost: {why}"),
            Self::Drained(gpu, by) => {
                let by = by.map_or_else(String::new, |uid| format!(" by uid {uid}"));
                write!(out, "{gpu} is drained{by}: nothing is admitted on it")
            }
            Self::Undrained(gpu, true) => write!(out, "{gpu} takes jobs again"),
            Self::Undrained(gpu, false) => write!(out, "{gpu} is not drained"),
        }
    }
}
