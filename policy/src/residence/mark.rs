// SPDX-License-Identifier: Apache-2.0
//! What a job's record says of its residence, for the next broker.

use serde::{Deserialize, Serialize};

use super::place::Target;
use super::stage::Stage;
use super::state::Residence;
use crate::caller::Process;

/// What the reservation words of the job's clients say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InBooks {
    /// L holds its memory, P is 0.
    #[default]
    Here,
    /// P holds it, L is 0.
    Left,
    /// L and P do.
    Coming,
}

/// Where a passage was when it was last written down. Written before the first step of each stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Mark {
    /// Where the job's memory is.
    pub residence: Residence,
    /// The stage that begins; none where nothing is under way.
    pub stage: Option<Stage>,
    /// What the books said before that stage.
    pub books: InBooks,
    /// The device that one of the job's is exchanged for, until the exchange is made.
    pub target: Option<Target>,
    /// Its room at the target is claimed.
    pub holds_target: bool,
    /// Processes whose memory, or its copy, is of the target.
    pub on_target: Vec<Process>,
    /// Processes that can never run again.
    pub poisoned: Vec<Process>,
    /// The libraries have nothing of a broker's, or are about to give it up.
    pub is_parked: bool,
    /// The save ends the job.
    pub is_to_stop: bool,
    /// A dump may have left the processes stopped.
    pub are_stopped: bool,
    /// From here on the job has the target in the place of the device that it replaces; said once, with `target`.
    pub is_placed: bool,
}

/// A checkpoint of a job that is whole on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Save {
    /// When it was, in nanoseconds since 1970.
    pub made_unix_ns: u64,
    /// What it has on disk.
    pub bytes: u64,
    /// How long it took, from its beginning on.
    pub took_ns: u64,
}

/// A job's residence as its record has it: the mark, and what the policy keeps beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResidenceRecord {
    /// As the passage said it last.
    pub mark: Mark,
    /// Unix time in nanoseconds at which it was last no longer here; 0 while it is.
    pub since_unix_ns: u64,
    /// Nanoseconds for which it was not here before that: its time limit does not count them.
    pub paused_ns: u64,
    /// The number of the job for which it leaves or left; it comes back without a command. None once it is back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_for: Option<u64>,
    /// It leaves or left because it was idle, and comes back at its next call.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub left_idle: bool,
    /// Its last checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved: Option<Save>,
    /// For how long it waited in the queue before it was here at all.
    pub queued_ns: u64,
    /// How often all of it left.
    pub suspends: u64,
    /// Unix time in nanoseconds at which it came to where it is now; 0 while it is here.
    pub entered_unix_ns: u64,
    /// For how long it was in each state but *here*, up to then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spent_ns: Vec<(Residence, u64)>,
}

impl ResidenceRecord {
    /// A checkpoint of it is whole.
    pub(crate) fn note_saved(&mut self, save: Save) {
        self.saved = Some(save);
    }

    /// It waited so long in the queue, in nanoseconds.
    pub(crate) fn note_queued(&mut self, queued_ns: u64) {
        self.queued_ns = queued_ns;
    }

    /// Where the job's memory is.
    #[must_use]
    pub const fn residence(&self) -> Residence {
        self.mark.residence
    }

    /// It leaves for the job of this number.
    pub(crate) const fn leave_for(&mut self, job: u64) {
        self.left_for = Some(job);
    }

    /// It leaves because it is idle.
    pub(crate) const fn leave_idle(&mut self) {
        self.left_idle = true;
    }

    /// It leaves no more, or stays away until a command brings it back.
    pub(crate) const fn forget_leaving(&mut self) {
        self.left_for = None;
        self.left_idle = false;
    }

    /// It was told to leave by the policy, and no command keeps it away.
    pub(crate) const fn left_by_itself(&self) -> bool {
        self.left_for.is_some() || self.left_idle
    }

    /// For how long it was not here, up to this instant of Unix time, in nanoseconds.
    #[must_use]
    pub fn absent_ns(&self, unix_ns: u64) -> u64 {
        let now = match self.mark.residence {
            Residence::Here => 0,
            _ => unix_ns.saturating_sub(self.since_unix_ns),
        };
        self.paused_ns.saturating_add(now)
    }

    /// For how long it was in each state but *here*, up to this instant of Unix time.
    #[must_use]
    pub fn spent_ns(&self, unix_ns: u64) -> Vec<(Residence, u64)> {
        let mut spent = self.spent_ns.clone();
        let now = self.mark.residence;
        if now != Residence::Here && self.entered_unix_ns > 0 {
            let more = unix_ns.saturating_sub(self.entered_unix_ns);
            match spent.iter_mut().find(|(state, _)| *state == now) {
                Some((_, known)) => *known = known.saturating_add(more),
                None => spent.push((now, more)),
            }
        }
        spent
    }

    /// Another mark, at this instant of Unix time.
    pub(crate) fn set_mark(&mut self, mark: Mark, unix_ns: u64) {
        if mark.residence == Residence::Here {
            self.paused_ns = self.absent_ns(unix_ns);
            self.since_unix_ns = 0;
            self.forget_leaving();
        } else if self.mark.residence == Residence::Here {
            self.since_unix_ns = unix_ns;
        }
        if mark.residence != self.mark.residence {
            self.spent_ns = self.spent_ns(unix_ns);
            self.entered_unix_ns = if mark.residence == Residence::Here { 0 } else { unix_ns };
            self.suspends += u64::from(mark.residence == Residence::Away);
        }
        self.mark = mark;
    }
}

impl Mark {
    /// Threads of it may still be in the driver, and are served as ever: its hold closes, and nothing has left.
    #[must_use]
    pub const fn is_closing(&self) -> bool {
        matches!(
            self.residence,
            Residence::Leaving | Residence::Moving | Residence::Saving
        ) && matches!(
            self.stage,
            Some(Stage::HoldSoft | Stage::Barrier | Stage::NobodyInside | Stage::Lock | Stage::RoomAsk)
        )
    }

    /// The same once the job has the target in its record.
    #[must_use]
    pub(crate) fn placed(self) -> Self {
        Self {
            target: None,
            holds_target: false,
            on_target: Vec::new(),
            is_placed: false,
            ..self
        }
    }
}
