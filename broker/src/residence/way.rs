// SPDX-License-Identifier: Apache-2.0
//! What is under way with each job's memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::process::Child;

use partage_policy::{
    Answer, Caller, Emptying, Exchange, Passage, Patience, Place, Process, Residence, Stage, Step, Ticket,
};
use partage_protocol::snapshot::Outside;
use partage_protocol::units::{DeviceUuid, JobId};

/// Everything that is under way.
#[derive(Debug, Default)]
pub(super) struct Ways {
    pub(super) by_job: BTreeMap<JobId, Way>,
    /// Jobs whose hold is closed, by this broker.
    pub(super) closed: BTreeMap<JobId, Closed>,
    /// Processes that ended and of which the passages have not heard.
    pub(super) gone: Vec<(JobId, Process)>,
    /// What can go on: the policy has heard what it was told by then.
    pub(super) ready: VecDeque<Turn>,
    /// Jobs that were told to come back while something else was under way with them.
    pub(super) to_come: BTreeSet<JobId>,
    /// What was said last of a return that is tried again and again.
    pub(super) said: BTreeMap<JobId, String>,
    /// Whether the driver takes maps: of processes that see all devices (`false`), of others (`true`).
    pub(super) maps: BTreeMap<bool, bool>,
    /// Devices that are being emptied.
    pub(super) drains: BTreeMap<DeviceUuid, Drain>,
    /// Moves that came to something, of which the drains have not heard.
    pub(super) ended_moves: Vec<EndedMove>,
    /// Jobs whose record could not be written last.
    pub(super) unwritten: BTreeSet<JobId>,
    /// Commands that wait until all processes of a job that is restored said hello.
    pub(super) expecting: BTreeMap<JobId, Expecting>,
    /// Until when each of those processes has to, in this broker's time.
    pub(super) restores: BTreeMap<JobId, u64>,
    /// When a job that is away and that NVML shows may be asked about again.
    pub(super) behind: BTreeMap<JobId, u64>,
}

/// Something that can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The way of a job.
    Job(JobId),
    /// A device of which a command said whether it is to take jobs.
    Drain(DeviceUuid),
    /// A device of whose moves one ended.
    Drained(DeviceUuid),
}

/// A device that is being emptied.
#[derive(Debug, Default)]
pub(super) struct Drain {
    pub tickets: Vec<Ticket>,
    /// Of the moves that begin from now on, as the last command said.
    pub patience: Patience,
    pub jobs: Emptying,
}

/// What a move came to, for whoever drains one of its devices.
#[derive(Debug)]
pub(super) struct EndedMove {
    pub job: JobId,
    pub exchange: Exchange,
    pub result: MoveResult,
}

/// Where a job is now; or why it stays, and what to do. None: it ended.
pub(super) type MoveResult = Option<Result<DeviceUuid, (String, Option<String>)>>;

/// How a hold is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    Soft,
    Hard,
    /// Hard, and NVML's calls wait, too: the job is being saved.
    Parked,
}

/// Why a passage was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Suspend,
    Resume,
    Save,
    Move(Exchange),
    /// Another program restored this process of a job that is away.
    RestoredBehind(u32),
    /// Nobody asked: it goes on with what a job's record says.
    Recover(Residence),
}

/// Where a job is saved, as its command said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SaveTo {
    pub folder: PathBuf,
    pub is_to_stop: bool,
    pub keep: u64,
    pub criu: Option<PathBuf>,
    /// What is copied of files that are written in place, in bytes.
    pub files_max: u64,
    pub outside: Outside,
    /// Nobody asked for this one: the job is saved again and again.
    pub is_periodic: bool,
}

/// A command that waits for a restored job.
#[derive(Debug)]
pub(super) struct Expecting {
    pub ticket: Ticket,
    pub caller: Caller,
}

/// How a way off the devices is to be gone.
#[derive(Debug)]
pub(super) struct Leaving {
    pub purpose: Purpose,
    /// Commands that wait for its end.
    pub tickets: Vec<Ticket>,
    pub patience: Patience,
}

impl Leaving {
    /// Nobody waits for its end.
    pub(super) fn unasked(purpose: Purpose) -> Self {
        Self {
            purpose,
            tickets: Vec::new(),
            patience: Patience::default(),
        }
    }

    /// A command waits for its end.
    pub(super) fn asked(purpose: Purpose, (ticket, patience): (Ticket, Patience)) -> Self {
        let tickets = vec![ticket];
        Self {
            purpose,
            tickets,
            patience,
        }
    }
}

/// One job's.
#[derive(Debug)]
pub(super) struct Way {
    pub phase: Phase,
    pub purpose: Purpose,
    /// Commands that wait for the end of a suspend or a move.
    pub tickets: Vec<Ticket>,
    /// How long it waits for what it waits for.
    pub patience: Patience,
    /// The processes that it is about.
    pub processes: Vec<Process>,
    pub began_ns: u64,
    /// A process may be checkpointed.
    pub has_left: bool,
    /// What a step that failed found, in more words than its code has.
    pub why: Option<String>,
    /// How long each stage took, in order.
    pub took: Vec<(Stage, u64)>,
    /// Where it is saved, if it is and this broker began it.
    pub save_to: Option<SaveTo>,
    /// The process that has it dumped, where this broker began it.
    pub dumping: Option<Child>,
    /// CRIU has all of it, and its files are not whole yet.
    pub is_being_written: bool,
    /// For how long the job stood, where that is less than its snapshot took.
    pub stood_ns: Option<u64>,
    /// The snapshot's generation, and the bytes of its files.
    pub saved: Option<(u64, u64)>,
    /// A drain does not wait for it any more.
    pub is_given_up: bool,
}

/// How far.
#[derive(Debug)]
pub(super) enum Phase {
    /// What lingers where it is to go is asked to give way, before anything is touched.
    Clearing,
    /// A helper tries whether the driver takes a map, before anything is touched; then the processes are asked.
    Trying { left: Vec<Process> },
    /// Each process is asked for its state before anything is touched; the first is being asked.
    Asking { left: Vec<Process>, found: Vec<Process> },
    /// A passage, with the step under way.
    Passing { passage: Box<Passage>, step: Option<Begun> },
}

/// A step under way.
#[derive(Debug)]
pub(super) struct Begun {
    pub step: Step,
    pub since_ns: u64,
    /// When it was looked at last.
    pub looked_ns: u64,
    pub wait: Waiting,
}

/// A step's beginning.
pub(super) enum Beginning {
    Answered(Answer),
    Waits(Waiting),
}

/// What a step waits for.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A helper's answer.
    Helper,
    /// The policy, which was told what the job's record is to say.
    Written,
    /// The books: what lingers at a target gives way first, and clients of the broker before may be awaited.
    Books { place: Place },
    /// No thread of the job is in the driver.
    Inside { until_ns: u64 },
    /// NVML shows none of these processes.
    Clear { processes: Vec<Process>, until_ns: u64 },
    /// NVML shows room for a process.
    Room {
        process: Process,
        place: Place,
        until_ns: u64,
    },
    /// A helper allocates on one device after the other; what is left besides the one under way.
    Proof { left: Vec<(DeviceUuid, u64)> },
    /// NVML shows on which device a process is.
    Place { process: Process, until_ns: u64 },
    /// The driver's word about processes that came after the passage was begun; the first is being asked.
    Newcomers { left: Vec<Process> },
    /// All clients let go of their pages.
    Parked { until_ns: u64 },
    /// All clients came back.
    Unparked { until_ns: u64 },
    /// The process that has it dumped ended.
    Dumped,
    /// All its processes ended.
    Ended { until_ns: u64 },
    /// Time.
    Time { until_ns: u64 },
}

impl Waiting {
    /// Is it over when the policy has heard what it was told?
    pub(super) const fn is_for_policy(&self) -> bool {
        matches!(self, Self::Written | Self::Books { .. })
    }
}

impl Phase {
    /// The first of these is being asked.
    pub(super) const fn asking(left: Vec<Process>) -> Self {
        let found = Vec::new();
        Self::Asking { left, found }
    }
}

impl Way {
    /// What it is said to be doing; before anything is touched, what it is about to.
    pub(super) const fn under_way(&self, residence: Residence) -> Residence {
        match (residence, self.purpose) {
            (Residence::Here, Purpose::Suspend) => Residence::Leaving,
            (Residence::Here, Purpose::Move(_)) => Residence::Moving,
            (Residence::Here, Purpose::Save) => Residence::Saving,
            (Residence::Here, _) => Residence::Coming,
            (other, _) => other,
        }
    }

    pub(super) fn new(phase: Phase, leaving: Leaving, now_ns: u64) -> Self {
        Self {
            phase,
            purpose: leaving.purpose,
            tickets: leaving.tickets,
            patience: leaving.patience,
            processes: Vec::new(),
            began_ns: now_ns,
            has_left: false,
            why: None,
            took: Vec::new(),
            save_to: None,
            dumping: None,
            is_being_written: false,
            stood_ns: None,
            saved: None,
            is_given_up: false,
        }
    }

    /// A passage that has just begun.
    pub(super) fn passing(passage: Passage, purpose: Purpose, processes: Vec<Process>, now_ns: u64) -> Self {
        let phase = Phase::Passing {
            passage: Box::new(passage),
            step: None,
        };
        Self {
            processes,
            ..Self::new(phase, Leaving::unasked(purpose), now_ns)
        }
    }

    /// Notes what a stage took; of one that comes several times (one for each process), the sum.
    pub(super) fn note_stage(&mut self, stage: Stage, ns: u64) {
        match self.took.iter_mut().find(|(other, _)| *other == stage) {
            Some((_, sum)) => *sum = sum.saturating_add(ns),
            None => self.took.push((stage, ns)),
        }
    }
}

impl Ways {
    /// Is anything under way with a job's memory?
    #[must_use]
    pub(super) fn has(&self, job: JobId) -> bool {
        self.by_job.contains_key(&job)
    }

    /// The jobs whose memory goes into host memory, for good or on its way to another device.
    pub(super) fn leaving(&self) -> impl Iterator<Item = JobId> + '_ {
        let is_leaving = |way: &Way| matches!(way.purpose, Purpose::Suspend | Purpose::Move(_) | Purpose::Save);
        let leaving = self.by_job.iter().filter(move |(_, way)| is_leaving(way));
        leaving.map(|(job, _)| *job)
    }

    /// A move came to this, for whoever drains one of its devices.
    pub(super) fn note_ended_move(&mut self, job: JobId, exchange: Exchange, result: MoveResult) {
        let devices = [exchange.from, exchange.target.device];
        if devices.iter().any(|device| self.drains.contains_key(device)) {
            self.ended_moves.push(EndedMove { job, exchange, result });
        }
    }

    /// A way that can go on.
    pub(super) fn start(&mut self, job: JobId, way: Way) {
        self.by_job.insert(job, way);
        self.hurry(Turn::Job(job));
    }

    /// It can go on.
    pub(super) fn hurry(&mut self, turn: Turn) {
        if !self.ready.contains(&turn) {
            self.ready.push_back(turn);
        }
    }

    /// Notes something of a device that is being emptied.
    pub(super) fn of_drain(&mut self, device: DeviceUuid, note: impl FnOnce(&mut Emptying)) {
        if let Some(drain) = self.drains.get_mut(&device) {
            note(&mut drain.jobs);
        }
    }

    /// A job is forgotten.
    pub(super) fn forget(&mut self, job: JobId) {
        self.closed.remove(&job);
        self.unwritten.remove(&job);
        self.to_come.remove(&job);
        self.expecting.remove(&job);
        self.said.remove(&job);
        self.behind.remove(&job);
    }
}
