// SPDX-License-Identifier: Apache-2.0
//! The words of refusals: what failed, with the numbers, and what this caller may do.

use std::fmt::{Display, Formatter, Result};

use partage_protocol::admin::{ErrorCode, ErrorView};
use partage_protocol::message::MAX_DEVICES;
use partage_protocol::size::{Amount, format_bytes, format_duration, format_request, raised_limit};
use partage_protocol::terms::format_part;
use partage_protocol::units::JobId;

use super::notices::stands;
use crate::refusal::{Amiss, Gpus, Missed, NoRoom, Refusal, Stays, Why};
use crate::rules::NotAllowed;
use crate::terms::part;

const HOLDERS: &str = "partage status shows who holds what";

impl Refusal {
    /// The document that its caller gets.
    #[must_use]
    pub fn view(&self) -> ErrorView {
        let hint = self.0.hint();
        let holders = match &*self.0 {
            Why::NoRoom(why) => why.holders().iter().map(crate::holding::Holding::view).collect(),
            _ => Vec::new(),
        };
        ErrorView {
            code: self.0.code(),
            message: self.to_string(),
            hint: Some(hint).filter(|hint| !hint.is_empty()),
            holders,
        }
    }
}

impl From<Refusal> for ErrorView {
    fn from(why: Refusal) -> Self {
        why.view()
    }
}

impl Display for Refusal {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match &*self.0 {
            Why::Amiss(why) => why.fmt(out),
            Why::Missed(why) => why.fmt(out),
            Why::NoRoom(why) => why.fmt(out),
            Why::Stays(why) => why.fmt(out),
            Why::Rules(why) => why.fmt(out),
            Why::ToAdmin(why) => why.fmt(out),
        }
    }
}

impl Why {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Amiss(_) => ErrorCode::Invalid,
            Self::Missed(why) => why.code(),
            Self::NoRoom(why) => why.code(),
            Self::Stays(Stays::StoppedWaiting(_)) => ErrorCode::Internal,
            Self::Stays(_) => ErrorCode::Failed,
            Self::Rules(why) => why.code(),
            Self::ToAdmin(why) => why.0.code(),
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Amiss(why) => why.hint(),
            Self::Missed(why) => why.hint(),
            Self::NoRoom(why) => why.hint(),
            Self::Stays(why) => why.hint(),
            Self::Rules(why) => why.hint(),
            Self::ToAdmin(why) if why.0.code() == ErrorCode::NotAllowed => {
                "an administrator goes beyond a rule with --force".to_owned()
            }
            Self::ToAdmin(why) => why.0.hint(),
        }
    }
}

impl Display for Amiss {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::Value(before, why) => write!(out, "{before}{why}"),
            Self::Alias(why, _) => why.fmt(out),
            Self::TooLong(length, most) => {
                write!(out, "an amount of {length} characters is too long: at most {most}")
            }
            Self::Class(name, _) => write!(out, "annotation partage.dev/class: no class is called {name:?}"),
            Self::GpuCount(text) => {
                write!(out, "--gpu {text:?}: the number of devices must be 1 to {MAX_DEVICES}")
            }
            Self::GpuPart(text, part) => write!(out, "--gpu {text:?}: {part:?} is neither an index nor a UUID"),
            Self::GpuMany(count) => write!(out, "--gpu names {count} devices: at most {MAX_DEVICES}"),
            Self::GpuTwice(index) => write!(out, "--gpu names GPU {index} twice"),
            Self::NoGpu(text) => write!(out, "{text:?} is no GPU"),
            Self::Name(option, name) => write!(out, "{option}bad name {name:?}"),
            Self::NameIsId(option, name) => write!(out, "{option}{name:?} reads like a job id"),
            Self::NameTaken(job, name) => write!(out, "your job {job} is called {name:?} already"),
            Self::NoTime => out.write_str("--time-limit 0s is no time to run in"),
            Self::Token => out.write_str("a token has 64 hexadecimal digits"),
            Self::NothingToSet(_) => out.write_str("nothing to set"),
            Self::OnlyMem(..) => out.write_str("of one process alone only mem can be set"),
            Self::TimeOver(limit_ns, job, run_ns) => {
                let (limit, run) = (format_duration(*limit_ns), format_duration(*run_ns));
                write!(out, "time-limit={limit}: {job} has run for {run} already")
            }
            Self::UnknownDevice(device) => write!(out, "{device} is not known to this broker"),
            Self::RequestAbove(request, limit, gpu) => {
                let (request, limit) = (format_request(*request), format_bytes(*limit));
                write!(out, "mem-request={request} is more than the limit {limit} on GPU {gpu}")
            }
        }
    }
}

impl Amiss {
    fn hint(&self) -> String {
        let hint = match self {
            Self::Alias(_, instead) => return format!("unset it, or say it yourself: {instead}"),
            Self::Class(_, known) if known.is_empty() => "none is configured: leave the annotation out",
            Self::Class(_, known) => return format!("choose one of: {}", known.join(", ")),
            Self::GpuCount(_) | Self::GpuPart(..) | Self::GpuMany(_) => {
                "--gpu takes auto, auto:N, all, an index, a UUID, or a list such as 0,1"
            }
            Self::NoGpu(_) => "a GPU's index or UUID, as partage status lists them",
            Self::Name(..) => "use a letter, then up to 63 letters, digits, '.', '_' or '-'",
            Self::NameIsId(..) => "choose another name",
            Self::NameTaken(job, _) => return format!("choose another name, or: partage stop {job}"),
            Self::NothingToSet(job) => {
                return format!("partage set {job} mem=8GiB, mem-request=4GiB, compute=30%, weight=300, …");
            }
            Self::OnlyMem(pid, job) => {
                return format!("partage set process:{pid} mem=4GiB; all else is the job's: partage set {job} …");
            }
            Self::TimeOver(_, job, _) => return format!("to end it: partage stop {job}"),
            Self::UnknownDevice(_) => "partage status lists the GPUs",
            Self::RequestAbove(..) => "a promise cannot exceed the limit: raise mem too, or lower mem-request",
            Self::Value(..) | Self::TooLong(..) | Self::GpuTwice(_) | Self::NoTime | Self::Token => "",
        };
        hint.to_owned()
    }
}

impl Display for Missed {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::NoPid(text) => write!(out, "{text:?} is no process id"),
            Self::ProcessAlone(text) => write!(out, "{text:?} is for partage set {text} mem=SIZE alone"),
            Self::Kind(kind) => write!(out, "this broker knows no {kind:?} targets"),
            Self::Ended(jobs) => write!(out, "{} has ended", list(jobs)),
            Self::EndedMeanwhile(job) => write!(out, "{job} has ended"),
            Self::Unknown(job) => write!(out, "{job} is unknown"),
            Self::NoJob(text) => write!(out, "no job called {text:?}"),
            Self::NotAttached(pid) => write!(out, "no process {pid:?} has attached"),
            Self::Several(text, jobs) => write!(out, "{text:?} is {} jobs: {}", jobs.len(), jobs.join(", ")),
            Self::Inside(job) => {
                write!(
                    out,
                    "this is inside {job}, a container's job: from there nothing is changed"
                )
            }
            Self::InsideRestored(job) => write!(
                out,
                "this is inside {job}, a container's job, which a restored job cannot join"
            ),
            Self::Belongs(job, user, _) => write!(out, "{job} belongs to {user}"),
            Self::Anothers(job) => write!(out, "{job} is another user's"),
            Self::NotOn(job, gpu, gpus) => write!(out, "{job} is not on {gpu}, but on {}", gpus.join(", ")),
            Self::WithoutGpu(job) => write!(out, "{job} has no GPU"),
            Self::SeveralGpus(job, gpus) => write!(out, "{job} has several GPUs: {}", gpus.join(", ")),
        }
    }
}

impl Missed {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Inside(_) | Self::Belongs(..) => ErrorCode::NotAllowed,
            Self::Ended(_) | Self::EndedMeanwhile(_) | Self::NoJob(_) | Self::NotAttached(_) => ErrorCode::NoTarget,
            Self::Several(..) => ErrorCode::Ambiguous,
            _ => ErrorCode::Invalid,
        }
    }

    fn hint(&self) -> String {
        let hint = match self {
            Self::NoPid(_) => "a target is a pid, j42 or a name",
            Self::ProcessAlone(_) => "name the job: by its id, its name, or the pid alone",
            Self::Kind(_) => "a target is a pid, j42, a name, alice/train, @alice, container:ID or cgroup:PATH",
            Self::Ended(_) => "partage ps -a lists ended jobs",
            Self::NoJob(_) => "partage ps lists them",
            Self::NotAttached(_) => "partage ps lists them; a process attaches when it first uses a GPU",
            Self::Several(..) => "name one by its id",
            Self::Inside(_) => "ask outside the container",
            Self::InsideRestored(_) => "restore it outside the container",
            // Root, without the socket that root of the host has.
            Self::Belongs(_, _, true) => "change it outside the container, where admin.sock of the broker's folder is",
            Self::Belongs(..) => "ask its owner or an administrator",
            Self::SeveralGpus(..) => "say which one it leaves: --from GPU",
            Self::EndedMeanwhile(_) | Self::Unknown(_) | Self::Anothers(_) | Self::NotOn(..) | Self::WithoutGpu(_) => {
                ""
            }
        };
        hint.to_owned()
    }
}

fn list(jobs: &[JobId]) -> String {
    jobs.iter().map(JobId::to_string).collect::<Vec<_>>().join(", ")
}

impl Display for Gpus {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        const MOST: usize = 8;
        let named = self.0.iter().take(MOST).map(u32::to_string);
        let more = self.0.len().saturating_sub(MOST);
        let more = (more > 0).then(|| format!("{more} more"));
        write!(out, "GPU {}", named.chain(more).collect::<Vec<_>>().join(", "))
    }
}

/// ` within 10s: `, and what is short.
fn waited(short: &str, waited_ns: Option<u64>) -> String {
    waited_ns.map_or_else(
        || short.to_owned(),
        |ns| format!("no room within {}: {short}", format_duration(ns)),
    )
}

impl Display for NoRoom {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::NoDriver(why) => write!(out, "no NVIDIA driver here ({why})"),
            Self::BrokenDriver(why) => write!(out, "the NVIDIA driver does not answer: {why}"),
            Self::NoDevice => out.write_str("the driver shows no device"),
            Self::NoneOpen(all) => write!(out, "none of {all} can be opened where this command runs"),
            Self::NoneVisible(text, all) => write!(out, "CUDA_VISIBLE_DEVICES={text:?} leaves none of {all}"),
            Self::Excluded(gpu, text) => write!(out, "--gpu {gpu} is excluded by CUDA_VISIBLE_DEVICES={text:?}"),
            Self::TooFew(needed, found, gpus) => {
                write!(out, "you asked for {needed} GPUs and {found} can be used: {gpus}")
            }
            Self::Lost(gpu, why) => write!(out, "{gpu} is lost: {why}"),
            Self::Nowhere(gpu, all) => {
                let is = if all.0.len() == 1 { "is" } else { "are" };
                write!(out, "no GPU {gpu} here; there {is} {all}")
            }
            Self::ManyUuids(gpu) => write!(out, "{gpu} is the beginning of several UUIDs"),
            Self::NeverFits(asked, offers, _) => {
                let offer = |(gpu, usable): &(u32, u64)| format!("GPU {gpu} has {}", format_bytes(*usable));
                let offers: Vec<String> = offers.iter().map(offer).collect();
                let asked = format_bytes(*asked);
                write!(out, "{asked} per device can never fit: {} for jobs", offers.join(", "))
            }
            Self::BelowContext(limit, least, gpu) => {
                let (limit, least) = (format_bytes(*limit), format_bytes(*least));
                write!(
                    out,
                    "the limit of {limit} is below what a CUDA context alone takes on GPU {gpu}: {least}"
                )
            }
            Self::Size(_, gpu, total, _) => write!(out, "GPU {gpu} has {} in all", format_bytes(*total)),
            Self::Closed(gpu) => write!(out, "GPU {gpu} takes no new promises at the moment"),
            Self::Promise(asked, job, (gpu, left), total, _) => {
                let (asked, left) = (format_bytes(*asked), format_bytes(*left));
                match total {
                    Some(words) => write!(
                        out,
                        "{asked} cannot be promised to {job}: the {words} leaves {left} on {gpu}"
                    ),
                    None => write!(out, "{asked} cannot be promised to {job}: {gpu} has {left} left for it"),
                }
            }
            Self::Time(ppm, job, (gpu, left), _) => {
                let (promise, left) = (format_part(*ppm), part(*left));
                write!(
                    out,
                    "{promise} cannot be promised to {job}: {gpu} has {left} of its time left for it"
                )
            }
            Self::TimeTotal(ppm, job, why) => {
                write!(out, "{} cannot be promised to {job}: the {why}", format_part(*ppm))
            }
            Self::Now(short, waited_ns, ..) => out.write_str(&waited(short, *waited_ns)),
            Self::Back(job, short, waited_ns, _) => {
                write!(out, "{job} stays suspended: {}", waited(short, *waited_ns))
            }
            Self::There(stays, _) => out.write_str(stays),
        }
    }
}

impl NoRoom {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NoDriver(_) | Self::BrokenDriver(_) | Self::NoDevice => ErrorCode::NoDriver,
            Self::NeverFits(..) | Self::BelowContext(..) | Self::Size(..) => ErrorCode::Impossible,
            Self::Closed(_) | Self::Promise(..) | Self::Time(..) | Self::TimeTotal(..) => ErrorCode::NoRoom,
            Self::Now(..) | Self::Back(..) => ErrorCode::NoRoom,
            Self::There(..) => ErrorCode::Failed,
            _ => ErrorCode::NoDevice,
        }
    }

    fn hint(&self) -> String {
        let hint = match self {
            Self::NoDriver(_) => "try: partage sim -- partage run …",
            Self::BrokenDriver(_) | Self::NoDevice => "partage doctor",
            Self::NoneOpen(_) => "give the container a GPU, e.g. --device nvidia.com/gpu=0",
            Self::NoneVisible(..) => "unset CUDA_VISIBLE_DEVICES or name a device that exists",
            Self::Excluded(..) => "unset CUDA_VISIBLE_DEVICES or name a device in it",
            Self::TooFew(..) => "ask for fewer GPUs",
            Self::Lost(..) => "choose another GPU (partage status lists them)",
            Self::Nowhere(..) => "partage status lists them",
            Self::ManyUuids(_) => "write more of the UUID",
            Self::NeverFits(_, _, most) => return format!("ask for at most {}, or 100%", format_bytes(*most)),
            Self::BelowContext(_, least, _) => {
                return format!("ask for more: --mem {}", Amount::Bytes(raised_limit(*least, 1)));
            }
            Self::Size(key, _, _, usable) => {
                return format!("at most {key}={}, or 100%", format_bytes(*usable).replace(' ', ""));
            }
            Self::Closed(_) => "try again in some seconds (partage status shows the GPU's state)",
            Self::Promise(..) => return format!("nothing was changed; {HOLDERS}"),
            Self::Time(..) | Self::TimeTotal(..) => "nothing was changed; partage ps shows who was promised what",
            Self::Now(_, _, true, _) => return format!("{HOLDERS}; without --on-full fail it would wait"),
            Self::Now(..) | Self::Back(..) | Self::There(..) => HOLDERS,
        };
        hint.to_owned()
    }

    fn holders(&self) -> &[crate::holding::Holding] {
        match self {
            Self::Promise(.., holders) | Self::Time(.., holders) | Self::Now(.., holders) => holders,
            Self::Back(.., holders) | Self::There(_, holders) => holders,
            _ => &[],
        }
    }
}

impl Display for Stays {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::Lives(job) => write!(out, "{job} lives, which was saved in this snapshot or restored from it"),
            Self::Drained(short) => out.write_str(&short.join("; ")),
            Self::Alone(gpu) => write!(out, "no other GPU here is like {gpu}"),
            Self::TargetLost(gpu, why) => write!(out, "{gpu} is lost: {why}"),
            Self::Waiting(job) => write!(out, "{job} waits in the queue to start: it is not suspended"),
            Self::Poisoned(job) => write!(out, "the driver lost a process of {job}, which can never run again"),
            Self::OnItsWay(job, residence) => write!(out, "{job} is {} now", residence.word()),
            Self::Stuck(job, why) => out.write_str(&stands(*job, why)),
            Self::Never(_, text) => out.write_str(text),
            Self::Coming(job) => write!(out, "{job} is still coming back"),
            Self::Spared(job, spared) => write!(out, "{job} goes on{}", super::notices::spared(spared)),
            Self::StoppedWaiting(job) => write!(out, "{job} was stopped while it waited for room"),
        }
    }
}

impl Stays {
    fn hint(&self) -> String {
        match self {
            Self::Lives(job) => format!("one of them can live at a time: partage stop {job}"),
            Self::Drained(_) | Self::Alone(_) => "once there is room: partage drain again".to_owned(),
            Self::TargetLost(..) => "choose another GPU (partage status lists them)".to_owned(),
            Self::Poisoned(job) => format!("partage why {job}; to end it: partage stop {job}"),
            Self::OnItsWay(job, _) => format!("once that is over: partage resume {job}"),
            Self::Waiting(job) | Self::Stuck(job, _) | Self::Never(job, _) | Self::Coming(job) => {
                format!("partage why {job}")
            }
            Self::Spared(..) => "its user, or root, ends it".to_owned(),
            Self::StoppedWaiting(_) => String::new(),
        }
    }
}

impl Display for NotAllowed {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::Above { words, rule, .. } => write!(out, "{words} is not allowed here: the {rule} holds"),
            Self::RequestAboveLimit { request, limit } => write!(out, "{request} is more than the limit {limit}"),
            Self::PromiseAboveCap { promise_ppm, cap_ppm } => {
                let (promise, cap) = (format_part(*promise_ppm), format_part(*cap_ppm));
                write!(out, "a promise of {promise} is more than the cap of {cap}")
            }
            Self::Barred { rule } => write!(out, "no job of this user may use a GPU here: the {rule} holds"),
            Self::Force => out.write_str("--force is for administrators"),
            Self::UnknownPreset { name, .. } => write!(out, "no class is called {name:?} here"),
            Self::PresetNotAllowed { name, rule } => write!(out, "class {name} is not allowed here: the {rule} holds"),
            Self::GpuNotAllowed { gpu, rule } => write!(out, "{gpu} is not allowed here: the {rule} holds"),
        }
    }
}

impl NotAllowed {
    fn code(&self) -> ErrorCode {
        match self {
            Self::RequestAboveLimit { .. } | Self::PromiseAboveCap { .. } | Self::UnknownPreset { .. } => {
                ErrorCode::Invalid
            }
            _ => ErrorCode::NotAllowed,
        }
    }

    fn hint(&self) -> String {
        let hint = match self {
            Self::Above { most, .. } => return format!("ask for at most {most}, or ask an administrator"),
            Self::RequestAboveLimit { .. } => "a promise cannot exceed the limit: raise --mem or lower --mem-request",
            Self::PromiseAboveCap { .. } => "promise at most the cap: lower compute, or raise compute-max",
            Self::Barred { .. } => "ask an administrator",
            Self::Force => "leave it out, or ask an administrator",
            Self::UnknownPreset { known, .. } if known.is_empty() => "none is configured: leave out --class",
            Self::UnknownPreset { known, .. } => return format!("there are: {}", known.join(", ")),
            Self::PresetNotAllowed { .. } => "name another class, or none",
            Self::GpuNotAllowed { .. } => "name another GPU, or none",
        };
        hint.to_owned()
    }
}
