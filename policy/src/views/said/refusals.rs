// SPDX-License-Identifier: Apache-2.0
//! The words of refusals: what failed, with the numbers, and what this caller may do.

use std::fmt::{Display, Formatter, Result};

use partage_protocol::admin::ErrorCode::{
    self, Ambiguous, Failed, Impossible, Internal, Invalid, NoDevice, NoDriver, NoRoom, NoTarget,
};
use partage_protocol::admin::ErrorView;
use partage_protocol::message::MAX_DEVICES;
use partage_protocol::size::{Amount, format_request, raised_limit};
use partage_protocol::units::JobId;

use super::notices::{spared, stands};
use super::{bytes, list, part, span};
use crate::holding::Holding;
use crate::refusal::{Gpus, Refusal, Why};
use crate::residence::{Obstacle, Residence, Tie};
use crate::rules::NotAllowed;
use crate::terms;

// A row: its facts, the code, what failed, and what its caller may do.
macro_rules! refusal_table {
    ($each:ident) => {
        $each! {
/// Why something is refused.
pub(crate) Why:
    // What was asked makes no sense.
    // What stands before a value that cannot be read.
    Value(before: String, why: String) = Invalid ["{before}{why}"];
    Alias(why: AliasError, instead: &'static str) = Invalid ["{why}"] ["unset it, or say it yourself: {instead}"];
    TooLong(length: usize, most: usize) = Invalid
        ["an amount of {length} characters is too long: at most {most}"];
    Class(name: String, known: Vec<String>) = Invalid ["annotation partage.dev/class: no class is called {name:?}"]
        ["{}", one_of(known, "choose one of", "none is configured: leave the annotation out")];
    GpuCount(text: String) = Invalid ["--gpu {text:?}: the number of devices must be 1 to {MAX_DEVICES}"] ["{GPU}"];
    GpuPart(text: String, part: String) = Invalid ["--gpu {text:?}: {part:?} is neither an index nor a UUID"] ["{GPU}"];
    GpuMany(count: usize) = Invalid ["--gpu names {count} devices: at most {MAX_DEVICES}"] ["{GPU}"];
    GpuTwice(gpu: u32) = Invalid ["--gpu names GPU {gpu} twice"];
    NoGpu(text: String) = Invalid ["{text:?} is no GPU"] ["a GPU's index or UUID, as partage status lists them"];
    Name(option: String, name: String) = Invalid ["{option}bad name {name:?}"]
        ["use a letter, then up to 63 letters, digits, '.', '_' or '-'"];
    NameIsId(option: String, name: String) = Invalid ["{option}{name:?} reads like a job id"] ["choose another name"];
    NameTaken(job: JobId, name: String) = Invalid ["your job {job} is called {name:?} already"]
        ["choose another name, or: partage stop {job}"];
    NoTimeToRun() = Invalid ["--time-limit 0s is no time to run in"];
    Token() = Invalid ["a token has 64 hexadecimal digits"];
    NothingToSet(job: JobId) = Invalid ["nothing to set"]
        ["partage set {job} mem=8GiB, mem-request=4GiB, compute=30%, weight=300, …"];
    OnlyMem(pid: String, job: JobId) = Invalid ["of one process alone only mem can be set"]
        ["partage set process:{pid} mem=4GiB; all else is the job's: partage set {job} …"];
    TimeOver(limit: u64, job: JobId, run: u64) = Invalid
        ["time-limit={}: {job} has run for {} already", span(limit), span(run)] ["to end it: partage stop {job}"];
    UnknownDevice(device: DeviceUuid) = Invalid ["{device} is not known to this broker"]
        ["partage status lists the GPUs"];
    RequestAbove(request: Amount, limit: u64, gpu: u32) = Invalid
        ["mem-request={} is more than the limit {} on GPU {gpu}", format_request(*request), bytes(limit)]
        ["a promise cannot exceed the limit: raise mem too, or lower mem-request"];

    // Whoever is meant is not there, or not the caller's to change.
    NoPid(text: String) = Invalid ["{text:?} is no process id"] ["a target is a pid, j42 or a name"];
    ProcessAlone(text: String) = Invalid ["{text:?} is for partage set {text} mem=SIZE alone"]
        ["name the job: by its id, its name, or the pid alone"];
    TargetKind(kind: String) = Invalid ["this broker knows no {kind:?} targets"]
        ["a target is a pid, j42, a name, alice/train, @alice, container:ID, cgroup:PATH or slurm:4711"];
    Ended(jobs: Vec<JobId>) = NoTarget ["{} has ended", list(jobs)] ["partage ps -a lists ended jobs"];
    EndedMeanwhile(job: JobId) = NoTarget ["{job} has ended"];
    Unknown(job: JobId) = Invalid ["{job} is unknown"];
    NoJob(text: String) = NoTarget ["no job called {text:?}"] ["partage ps lists them"];
    NotAttached(pid: String) = NoTarget ["no process {pid:?} has attached"]
        ["partage ps lists them; a process attaches when it first uses a GPU"];
    Several(text: String, jobs: Vec<String>) = Ambiguous ["{text:?} is {} jobs: {}", jobs.len(), list(jobs)]
        ["name one by its id"];
    Inside(job: JobId) = (ErrorCode::NotAllowed)
        ["this is inside {job}, which was registered: from there nothing is changed"]
        ["ask outside its container or control group"];
    InsideRestored(job: JobId) = Invalid ["this is inside {job}, which was registered and a restored job cannot join"]
        ["restore it outside its container or control group"];
    Belongs(job: JobId, user: String) = (ErrorCode::NotAllowed) ["{job} belongs to {user}"]
        ["ask its owner or an administrator"];
    // The caller is root, without the socket that root of the host has.
    BelongsOutside(job: JobId, user: String) = (ErrorCode::NotAllowed) ["{job} belongs to {user}"]
        ["change it outside the container, where admin.sock of the broker's folder is"];
    Anothers(job: JobId) = Invalid ["{job} is another user's"];
    NotOn(job: JobId, gpu: String, gpus: Vec<String>) = Invalid ["{job} is not on {gpu}, but on {}", list(gpus)];
    WithoutGpu(job: JobId) = Invalid ["{job} has no GPU"];
    SeveralGpus(job: JobId, gpus: Vec<String>) = Invalid ["{job} has several GPUs: {}", list(gpus)]
        ["say which one it leaves: --from GPU"];

    // There is no GPU for it, or none with so much.
    NoDriver(why: String) = NoDriver ["no NVIDIA driver here ({why})"] ["try: partage sim -- partage run …"];
    BrokenDriver(why: String) = NoDriver ["the NVIDIA driver does not answer: {why}"] ["partage doctor"];
    NoDevice() = NoDriver ["the driver shows no device"] ["partage doctor"];
    NoneOpen(all: Gpus) = NoDevice ["none of {all} can be opened where this command runs"]
        ["give the container a GPU, e.g. --device nvidia.com/gpu=0"];
    NoneVisible(text: String, all: Gpus) = NoDevice ["CUDA_VISIBLE_DEVICES={text:?} leaves none of {all}"]
        ["unset CUDA_VISIBLE_DEVICES or name a device that exists"];
    Excluded(gpu: u32, text: String) = NoDevice ["--gpu {gpu} is excluded by CUDA_VISIBLE_DEVICES={text:?}"]
        ["unset CUDA_VISIBLE_DEVICES or name a device in it"];
    TooFew(needed: usize, found: usize, gpus: Gpus) = NoDevice
        ["you asked for {needed} GPUs and {found} can be used: {gpus}"] ["ask for fewer GPUs"];
    Lost(gpu: String, why: String) = NoDevice ["{gpu} is lost: {why}"]
        ["choose another GPU (partage status lists them)"];
    NoSuchGpu(gpu: String, all: Gpus) = NoDevice
        ["no GPU {gpu} here; there {} {all}", if all.0.len() == 1 { "is" } else { "are" }]
        ["partage status lists them"];
    ManyUuids(gpu: String) = NoDevice ["{gpu} is the beginning of several UUIDs"] ["write more of the UUID"];
    // What some GPUs have, and the most that one has.
    NeverFits(asked: u64, offers: Vec<(u32, u64)>, most: u64) = Impossible
        ["{} per device can never fit: {} for jobs", bytes(asked), offered(offers)]
        ["ask for at most {}, or 100%", bytes(most)];
    BelowContext(limit: u64, least: u64, gpu: u32) = Impossible
        ["the limit of {} is below what a CUDA context alone takes on GPU {gpu}: {}", bytes(limit), bytes(least)]
        ["ask for more: --mem {}", Amount::Bytes(raised_limit(*least, 1))];
    TooLarge(key: String, gpu: u32, total: u64, usable: u64) = Impossible ["GPU {gpu} has {} in all", bytes(total)]
        ["at most {key}={}, or 100%", bytes(usable).replace(' ', "")];
    TakesNoPromise(gpu: u32) = NoRoom ["GPU {gpu} takes no new promises at the moment"]
        ["try again in some seconds (partage status shows the GPU's state)"];
    NoPromise(asked: u64, job: JobId, gpu: String, left: u64, holders: Vec<Holding>) = NoRoom
        ["{} cannot be promised to {job}: {gpu} has {} left for it", bytes(asked), bytes(left)]
        ["nothing was changed; {HOLDERS}"];
    // The total that leaves no more.
    NoPromiseInTotal(asked: u64, job: JobId, gpu: String, left: u64, total: String, holders: Vec<Holding>) = NoRoom
        ["{} cannot be promised to {job}: the {total} leaves {} on {gpu}", bytes(asked), bytes(left)]
        ["nothing was changed; {HOLDERS}"];
    NoTime(asked: u32, job: JobId, gpu: String, left: u64, holders: Vec<Holding>) = NoRoom
        ["{} cannot be promised to {job}: {gpu} has {} of its time left for it", part(asked), terms::part(*left)]
        ["nothing was changed; {PROMISES}"];
    NoTimeInTotal(asked: u32, job: JobId, why: String) = NoRoom
        ["{} cannot be promised to {job}: the {why}", part(asked)] ["nothing was changed; {PROMISES}"];
    // It was not to wait; whether it might have.
    NoRoom(short: String, may_wait: bool, holders: Vec<Holding>) = NoRoom ["{short}"]
        ["{HOLDERS}{}", if *may_wait { "; without --on-full fail it would wait" } else { "" }];
    NoRoomWithin(waited: u64, short: String, holders: Vec<Holding>) = NoRoom
        ["no room within {}: {short}", span(waited)] ["{HOLDERS}"];
    StaysAway(job: JobId, short: String, holders: Vec<Holding>) = NoRoom ["{job} stays suspended: {short}"]
        ["{HOLDERS}"];
    StaysAwayAfter(waited: u64, job: JobId, short: String, holders: Vec<Holding>) = NoRoom
        ["{job} stays suspended: no room within {}: {short}", span(waited)] ["{HOLDERS}"];
    Stays(text: String, holders: Vec<Holding>) = Failed ["{text}"] ["{HOLDERS}"];

    // A job stays where or what it is.
    LivesAlready(job: JobId) = Failed ["{job} lives, which was saved in this snapshot or restored from it"]
        ["one of them can live at a time: partage stop {job}"];
    // What is short on each GPU like its own.
    StaysOn(short: Vec<String>) = Failed ["{}", short.join("; ")] ["once there is room: partage drain again"];
    NoOtherGpu(gpu: String) = Failed ["no other GPU here is like {gpu}"] ["once there is room: partage drain again"];
    TargetLost(gpu: String, why: String) = Failed ["{gpu} is lost: {why}"]
        ["choose another GPU (partage status lists them)"];
    NotStarted(job: JobId) = Failed ["{job} waits in the queue to start: it is not suspended"] ["partage why {job}"];
    Poisoned(job: JobId) = Failed ["the driver lost a process of {job}, which can never run again"]
        ["partage why {job}; to end it: partage stop {job}"];
    OnItsWay(job: JobId, residence: Residence) = Failed ["{job} is {} now", residence.word()]
        ["once that is over: partage resume {job}"];
    Stuck(job: JobId, why: String) = Failed ["{}", stands(*job, why)] ["partage why {job}"];
    Never(job: JobId, text: String) = Failed ["{text}"] ["partage why {job}"];
    StillComing(job: JobId) = Failed ["{job} is still coming back"] ["partage why {job}"];
    GoesOn(job: JobId, left: Vec<(u32, String)>) = Failed ["{job} goes on{}", spared(left)]
        ["its user, or root, ends it"];
    StoppedWaiting(job: JobId) = Internal ["{job} was stopped while it waited for room"];

    // What the rules do not allow, or what contradicts itself under them.
    Rules(why: NotAllowed) = (why.code()) ["{why}"] ["{}", why.hint().unwrap_or_default()];
    // The same to an administrator.
    Forcible(why: Refusal) = (why.0.code()) ["{why}"] ["an administrator goes beyond a rule with --force"];
        }
    };
}

macro_rules! not_allowed_table {
    ($each:ident) => {
        $each! {
/// Why a judgement is a refusal. The words are those that the caller wrote.
pub NotAllowed:
    /// A number (`--mem 20GiB`), the rule that allows less, and the most that may be asked, as it is written: `16GiB`.
    Above(words: String, rule: String, most: String) = (ErrorCode::NotAllowed)
        ["{words} is not allowed here: the {rule} holds"] ["ask for at most {most}, or ask an administrator"];
    /// A promise of memory above the limit that goes with it.
    RequestAboveLimit(request: String, limit: String) = Invalid ["{request} is more than the limit {limit}"]
        ["a promise cannot exceed the limit: raise --mem or lower --mem-request"];
    /// A promise of time above the cap that goes with it, in millionths.
    PromiseAboveCap(promise: u32, cap: u32) = Invalid
        ["a promise of {} is more than the cap of {}", part(promise), part(cap)]
        ["promise at most the cap: lower compute, or raise compute-max"];
    /// A preset that there is not, and those that there are.
    UnknownPreset(name: String, known: Vec<String>) = Invalid ["no class is called {name:?} here"]
        ["{}", one_of(known, "there are", "none is configured: leave out --class")];
    /// A preset that a rule does not allow.
    PresetNotAllowed(name: String, rule: String) = (ErrorCode::NotAllowed)
        ["class {name} is not allowed here: the {rule} holds"] ["name another class, or none"];
    /// `GPU 3`, which a rule does not allow.
    GpuNotAllowed(gpu: String, rule: String) = (ErrorCode::NotAllowed)
        ["{gpu} is not allowed here: the {rule} holds"] ["name another GPU, or none"];
    /// A rule leaves such jobs nothing.
    Barred(rule: String) = (ErrorCode::NotAllowed)
        ["no job of this user may use a GPU here: the {rule} holds"] ["ask an administrator"];
    /// Only administrators go beyond the rules.
    Force() = (ErrorCode::NotAllowed) ["--force is for administrators"] ["leave it out, or ask an administrator"];
        }
    };
}

macro_rules! obstacle_table {
    ($each:ident) => {
        $each! {
/// What is in the way. It displays as why, and [`Obstacle::remedy`] is what to do.
#[allow(missing_docs, reason = "the sentences say what each is")]
pub Obstacle:
    NotHere(job: JobId, residence: Residence) ["{job} is {} now", residence.word()] ["{}", once_here(*job, *residence)];
    DriverTooOld(level: u32, needed: u32) ["the driver is {level}, and this needs {needed} or later"]
        ["install driver {needed} or later"];
    Mig(uuid: String) ["{uuid} is in MIG mode, where the driver cannot checkpoint"]
        ["use whole GPUs for jobs that are to be suspended"];
    Mps() ["MPS shares the GPU, and the driver cannot checkpoint its clients"]
        ["stop the MPS daemon (echo quit | nvidia-cuda-mps-control), and start the job again"];
    OtherUser(pid: u32, uid: u32, owner: u32) ["pid {pid} runs as uid {uid}, and the job belongs to uid {owner}"]
        ["start the whole job as one user"];
    NotOwner(uid: u32) ["this broker cannot act for uid {uid}"] ["use a managed broker, which root starts"];
    Stopped(pid: u32) ["pid {pid} is stopped, and the driver would wait for it without end"]
        ["let it go on first: kill -CONT {pid}"];
    Unreachable(pid: u32)
        ["pid {pid} turned Partage off or closed what it shares with the broker, so its threads cannot be held"]
        ["start the job again; partage why says what happened"];
    Disconnected(pid: u32) ["pid {pid} has no connection to the broker at the moment"]
        ["try again in a few seconds; partage why says if it does not come back"];
    NoLibrary(pid: u32) ["pid {pid} uses the GPU without Partage, so its threads cannot be held"]
        ["start it with partage run, or end it"];
    Uncounted(pid: u32)
        ["pid {pid} had more threads inside driver calls at a time than Partage can tell apart, so they cannot be held"]
        ["start it again, with fewer threads that use the GPU (384 at a time)"];
    Tied(pid: u32, ties: Vec<Tie>) ["pid {pid} has {}, which the driver cannot save", and(ties)]
        ["end that process first, or start the job without that feature"];
    HostMemory(needed: u64, available: u64)
        ["the job's memory would take {} of host memory, and {} are available", bytes(needed), bytes(available)]
        ["free host memory, or suspend a smaller job"];
    Cgroup(path: String, needed: u64, left: u64, limit: u64)
        ["the job's memory would take {} of host memory, and its memory cgroup {path} has {} left of {}",
        bytes(needed), bytes(left), bytes(limit)]
        ["raise its limit (memory.max) by {} at least", bytes(&needed.saturating_sub(*left))];
    OwnDevice() ["the job has that GPU already"] ["choose another GPU (partage status lists them)"];
    Hidden(pid: u32, node: String) ["pid {pid} does not see that GPU: its container has no {node}"]
        ["choose a GPU of its container, or start the container with that GPU too"];
    OtherModel(from: String, to: String) ["a job on a {from} cannot go on on a {to}"] ["choose another {from}"];
    OtherSize(from: u64, to: u64) ["the job's GPU has {} in all, and that one {}", bytes(from), bytes(to)]
        ["choose a GPU with as much memory"];
        }
    };
}

fn once_here(job: JobId, residence: Residence) -> String {
    match residence {
        Residence::Away => format!("to bring it back: partage resume {job}"),
        Residence::Poisoned => format!("to end it: partage stop {job}"),
        _ => format!("wait until that is over (partage ps {job})"),
    }
}

fn and(ties: &[Tie]) -> String {
    ties.iter().map(|tie| tie.text()).collect::<Vec<_>>().join(" and ")
}

const HOLDERS: &str = "partage status shows who holds what";
const PROMISES: &str = "partage ps shows who was promised what";
const GPU: &str = "--gpu takes auto, auto:N, all, an index, a UUID, or a list such as 0,1";

macro_rules! hint {
    () => {
        None
    };
    ($($say:tt)+) => {
        Some(format!($($say)+))
    };
}

macro_rules! codes {
    ($(#[$doc:meta])* $vis:vis $name:ident:
     $( $(#[$note:meta])* $row:ident($($fact:ident: $of:ty),*) = $code:tt [$($say:tt)*] $([$($hint:tt)*])?; )*) => {
        #[allow(unused_variables)] // Some facts are the sentence's alone.
        impl $name {
            pub(crate) fn code(&self) -> ErrorCode {
                match self {
                    $( Self::$row($($fact),*) => $code, )*
                }
            }
        }
    };
}

macro_rules! hints {
    ($(#[$doc:meta])* $vis:vis $name:ident:
     $( $(#[$note:meta])* $row:ident($($fact:ident: $of:ty),*) $(= $code:tt)? [$($say:tt)*] $([$($hint:tt)*])?; )*) => {
        #[allow(unused_variables)] // Some facts are the sentence's alone.
        impl $name {
            fn hint(&self) -> Option<String> {
                match self {
                    $( Self::$row($($fact),*) => hint!($($($hint)*)?), )*
                }
            }
        }
    };
}

refusal_table!(sentences);
refusal_table!(codes);
refusal_table!(hints);
not_allowed_table!(sentences);
not_allowed_table!(codes);
not_allowed_table!(hints);
obstacle_table!(sentences);
obstacle_table!(hints);

impl Obstacle {
    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        self.hint().unwrap_or_default()
    }
}

impl Refusal {
    /// The document that its caller gets.
    #[must_use]
    pub fn view(&self) -> ErrorView {
        ErrorView {
            code: self.0.code(),
            message: self.to_string(),
            hint: self.0.hint(),
            holders: self.0.holders().iter().map(Holding::view).collect(),
        }
    }

    /// To an administrator, who may go beyond a rule.
    pub(crate) fn for_admin(self) -> Self {
        match self.0.code() {
            ErrorCode::NotAllowed => Why::Forcible(self).into(),
            _ => self,
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
        self.0.fmt(out)
    }
}

impl Display for Gpus {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        const MOST: usize = 8;
        let named = self.0.iter().take(MOST).map(u32::to_string);
        let more = self.0.len().saturating_sub(MOST);
        let more = (more > 0).then(|| format!("{more} more"));
        write!(out, "GPU {}", list(&named.chain(more).collect::<Vec<_>>()))
    }
}

fn offered(offers: &[(u32, u64)]) -> String {
    let offer = |(gpu, usable): &(u32, u64)| format!("GPU {gpu} has {}", bytes(usable));
    list(&offers.iter().map(offer).collect::<Vec<_>>())
}

fn one_of(known: &[String], some: &str, none: &str) -> String {
    match known {
        [] => none.to_owned(),
        known => format!("{some}: {}", known.join(", ")),
    }
}
