// SPDX-License-Identifier: Apache-2.0
//! A job and what is known of it; its life is a table of its own (`job/life.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use partage_protocol::admin::{DeniedView, STATES};
use partage_protocol::message::TOKEN_BYTES;
use partage_protocol::summary::{Summary, total};
use partage_protocol::units::{ClientId, DeviceUuid, JobId, SECOND_NS};

use crate::caller::Ticket;

mod changes;
mod denial;
mod life;
mod queued;
mod record;
mod slot;

pub use changes::STRICT_NS;
pub use denial::{Denial, Held, Reason};
pub(crate) use life::{Happening, Life, Next, State};
pub(crate) use queued::Queued;
pub use record::{EndedJob, EndedSlot, JobRecord, Origin, Placement};
pub(crate) use slot::Slot;

/// A job outlives its last process by this much, for a child that has not met the driver yet.
pub const LINGER_NS: u64 = 5 * SECOND_NS;
/// Ended jobs are shown this long.
pub const REMEMBER_NS: u64 = 24 * 3_600 * SECOND_NS;
/// Ended jobs that are remembered at most, the oldest forgotten first: a loop of short jobs must not fill the broker.
pub const REMEMBER_COUNT: usize = 1_000;

/// What `ps` calls the job's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// In the queue.
    Waiting,
    /// Admitted.
    Running,
    /// Admitted, and all its processes are stopped by a signal.
    Stopped,
    /// Holds more than its limit, which was lowered.
    OverLimit,
    /// Only clients that cannot die are left.
    Dying,
    /// Over.
    Ended,
}

impl JobState {
    /// The word that users see.
    #[must_use]
    pub const fn word(self) -> &'static str {
        // Their order is that of the variants.
        STATES[self as usize]
    }
}

/// A stop in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stopping {
    pub tickets: Vec<Ticket>,
    pub kill_at_ns: u64,
    pub is_killed: bool,
    /// Why, for the job's end.
    pub reason: String,
}

/// A job. Everybody reads what is known of it; what changes it is a method.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job(Facts);

/// What is known of a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Facts {
    pub record: JobRecord,
    pub life: Life,
    pub slots: Vec<Slot>,
    pub clients: BTreeSet<ClientId>,
    pub is_first_alive: bool,
    /// A broker before admitted it, by its own rules.
    pub is_adopted: bool,
    /// All its known processes are stopped by a signal.
    pub is_stopped: bool,
    /// Exit code of its first process, as a shell has it.
    pub exit_code: Option<u32>,
    pub stopping: Option<Stopping>,
    /// When its time limit is over; none without one, and once it was acted on.
    pub time_limit_at_ns: Option<u64>,
    pub denied: DeniedView,
    /// Sentences worth a user's attention, without repetition.
    pub notes: Vec<String>,
    /// Unmanaged descendants by pid, and when each was first seen.
    pub unmanaged: BTreeMap<u32, u64>,
    /// How many there ever were.
    pub strangers_seen: u64,
    /// When and why it ended; of a job that lingers, when its last process was gone.
    pub end: Option<End>,
}

impl Deref for Job {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.0
    }
}

/// A job's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub unix_ns: u64,
    pub reason: String,
}

impl Job {
    pub(crate) fn new(record: JobRecord, life: Life) -> Self {
        let is_first_alive = record.first.is_some();
        Self(Facts {
            record,
            life,
            slots: Vec::new(),
            clients: BTreeSet::new(),
            is_first_alive,
            is_adopted: false,
            is_stopped: false,
            exit_code: None,
            stopping: None,
            time_limit_at_ns: None,
            denied: DeniedView::default(),
            notes: Vec::new(),
            unmanaged: BTreeMap::new(),
            strangers_seen: 0,
            end: None,
        })
    }

    /// A job that another broker admitted, with a slot for each of its devices.
    pub(crate) fn adopted(record: JobRecord, slots: Vec<Slot>, time_limit_at_ns: Option<u64>) -> Self {
        let mut job = Self::new(record, Life::running());
        job.0.is_adopted = true;
        job.0.slots = slots;
        job.0.time_limit_at_ns = time_limit_at_ns;
        job
    }

    /// What is to be remembered of it. Precondition: it ended.
    pub(crate) fn remembered(&self) -> Option<EndedJob> {
        let end = self.end.as_ref()?;
        let mut job = self.record.clone();
        // It opens nothing any more, and is nobody's business in a file that stays.
        job.token = [0; TOKEN_BYTES];
        Some(EndedJob {
            job,
            ended_unix_ns: end.unix_ns,
            reason: end.reason.clone(),
            slots: self.slots.iter().map(Slot::to_remember).collect(),
            notes: self.notes.clone(),
            exit_code: self.exit_code,
            strangers_seen: self.strangers_seen,
        })
    }

    /// A job that ended under an earlier broker.
    pub(crate) fn from_remembered(ended: EndedJob, forget_at_ns: u64) -> Self {
        let mut job = Self::new(ended.job, Life::ended(forget_at_ns));
        let facts = &mut job.0;
        facts.is_first_alive = false;
        facts.notes = ended.notes;
        facts.exit_code = ended.exit_code;
        facts.strangers_seen = ended.strangers_seen;
        facts.end = Some(End {
            unix_ns: ended.ended_unix_ns,
            reason: ended.reason,
        });
        for slot in ended.slots {
            let denied = &mut facts.denied;
            denied.limit = denied.limit.saturating_add(slot.denied.limit);
            denied.card_full = denied.card_full.saturating_add(slot.denied.card_full);
            denied.no_broker = denied.no_broker.saturating_add(slot.denied.no_broker);
            denied.overhead = denied.overhead.saturating_add(slot.denied.overhead);
            facts.slots.push(Slot::remembered(slot));
        }
        job
    }

    /// Takes over what is remembered of this same job, which had announced its end. Precondition: it has its slots.
    pub(crate) fn take_up(&mut self, was: Self) {
        let (facts, was) = (&mut self.0, was.0);
        facts.is_first_alive = false;
        facts.exit_code = was.exit_code;
        facts.denied = was.denied;
        facts.notes = was.notes;
        facts.strangers_seen = was.strangers_seen;
        facts.end = was.end;
        for (slot, was) in facts.slots.iter_mut().zip(was.slots) {
            slot.take_up(was);
        }
    }

    pub(crate) fn id(&self) -> JobId {
        JobId(self.record.id)
    }

    /// Where it is in its life; what that means is asked of the state.
    pub(crate) const fn state(&self) -> State {
        self.0.life.state()
    }

    /// No process of it is left; a late child may still come.
    pub(crate) fn is_lingering(&self) -> bool {
        self.state() == State::Lingering
    }

    /// Does this token, of a process of this user, mean the job?
    pub(crate) fn is_meant_by(&self, token: [u8; TOKEN_BYTES], uid: u32) -> bool {
        self.record.token == token && self.record.uid == uid
    }

    /// The slot of a device.
    pub(crate) fn slot_of(&self, device: DeviceUuid) -> Option<usize> {
        self.record
            .devices
            .iter()
            .position(|placement| placement.device == device)
    }

    /// What is said of it once it ended.
    pub(crate) fn summary(&self) -> Summary {
        let end_ns = self.end.as_ref().map_or(0, |end| end.unix_ns);
        let places = self.record.devices.iter().zip(&self.slots);
        let peaks = places.map(|(place, slot)| {
            let gpu = slot
                .was
                .as_ref()
                .map_or_else(|| place.device.to_string(), |(index, _)| format!("GPU {index}"));
            (gpu, slot.peak, place.limit)
        });
        Summary {
            exit_code: self.exit_code,
            ran_ns: end_ns.saturating_sub(self.record.started_unix_ns),
            peaks: peaks.collect(),
            denied: total(&self.denied),
            unlimited: self.strangers_seen,
        }
    }

    /// Says of several processes together what no process's own note says: those are dropped when there are many.
    pub(crate) fn unmanaged_note(&self) -> Option<String> {
        let count = self.strangers_seen;
        (count > 1).then(|| format!("{count} processes of it used a GPU without Partage: no limit held for them"))
    }

    /// Adds a note once, the newest last; a program that provokes endless different ones pushes out the oldest. Answers
    /// whether it is new.
    pub(crate) fn note(&mut self, text: String) -> bool {
        const NOTES: usize = 20;
        let is_new = !self.notes.contains(&text);
        if is_new {
            self.0.notes.push(text);
            if self.notes.len() > NOTES {
                self.0.notes.remove(0);
            }
        }
        is_new
    }
}
