// SPDX-License-Identifier: Apache-2.0
//! A job and what is known of it; its life is a table of its own (`job/life.rs`).

use partage_protocol::message::TOKEN_BYTES;
use partage_protocol::reservation::Word;
use partage_protocol::summary::Summary;
use partage_protocol::units::{DeviceUuid, JobId};

use crate::machine::Machine;
use crate::residence::{Residence, Target};

mod denial;
mod facts;
mod fair;
mod life;
mod numbered;
mod queued;
mod record;
mod slot;
mod stop;
mod swaps;

pub use denial::{Denial, Held, Reason, Unfreed};
pub(crate) use denial::{Short, both};
#[cfg(test)]
pub(crate) use facts::Facts;
pub(crate) use facts::Job;
pub use facts::STRICT_NS;
pub(crate) use fair::{Claimant, next_of};
pub(crate) use life::{Happening, Life, Next, State};
pub use life::{LINGER_NS, REMEMBER_NS};
pub(crate) use numbered::Jobs;
pub(crate) use queued::{Queue, Queued, Returning, Wait};
pub use record::{EndedJob, EndedSlot, JobRecord, OwnLimit, Placement};
pub(crate) use slot::Slot;
pub(crate) use stop::End;
pub(crate) use swaps::Swaps;

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
    /// Its memory leaves its devices.
    Suspending,
    /// Its memory is away.
    Suspended,
    /// Its memory comes back.
    Resuming,
    /// It moves to another device.
    Moving,
    /// It is being saved.
    Saving,
    /// The driver lost a process of it.
    Poisoned,
}

impl Job {
    /// What is to be remembered of it. Precondition: it ended.
    pub(crate) fn remembered(&self) -> Option<EndedJob> {
        let end = self.end.as_ref()?;
        Some(EndedJob {
            // Its token opens nothing any more, and is nobody's business in a file that stays.
            job: JobRecord {
                token: [0; TOKEN_BYTES],
                ..self.record.clone()
            },
            ended_unix_ns: end.unix_ns,
            reason: end.reason.clone(),
            slots: self.slots.iter().map(Slot::to_remember).collect(),
            notes: self.notes.clone(),
            exit_code: self.exit_code,
            is_over_time: self.is_over_time,
            strangers_seen: self.strangers_seen,
        })
    }

    pub(crate) fn id(&self) -> JobId {
        JobId(self.record.id)
    }

    /// Where it is in its life; what that means is asked of the state.
    pub(crate) fn state(&self) -> State {
        self.life.state()
    }

    /// Where its memory is.
    pub(crate) fn residence(&self) -> Residence {
        self.record.residence.residence()
    }

    /// What is promised to it is kept for it now: an away job's is free.
    pub(crate) fn keeps_promises(&self) -> bool {
        self.state().counts_as_promised() && self.residence().keeps_promises()
    }

    /// What it is promised of a device's time, where it is, or moves to.
    pub(crate) fn time_promise(&self, device: DeviceUuid) -> Option<u32> {
        let is_claimed = || self.claimed_target().is_some_and(|target| target.device == device);
        let ppm = self.record.terms.promise_ppm;
        let has_one = ppm > 0 && self.keeps_promises() && (self.slot_of(device).is_some() || is_claimed());
        has_one.then_some(ppm)
    }

    /// The device that it moves to, once it has room there.
    pub(crate) fn claimed_target(&self) -> Option<Target> {
        let mark = &self.record.residence.mark;
        mark.target.filter(|_| mark.holds_target)
    }

    /// Bytes that its processes have to get back on a slot, or hold there: for each client the greater of the two, as
    /// its words say it. So what a process that died had is nobody's any more, whatever the passage is at.
    pub(crate) fn returning_bytes<M: Machine>(&self, slot: usize, machine: &M) -> u64 {
        let words = self.clients.iter().filter_map(|client| machine.words(*client, slot));
        words.fold(0, |sum: u64, words| {
            sum.saturating_add(words.owed.load().max(words.used()))
        })
    }

    /// The same on all slots.
    pub(crate) fn all_returning_bytes<M: Machine>(&self, machine: &M) -> u64 {
        let slots = 0..self.slots.len();
        slots.fold(0, |sum: u64, slot| {
            sum.saturating_add(self.returning_bytes(slot, machine))
        })
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
            is_over_time: self.is_over_time,
            ran_ns: end_ns.saturating_sub(self.record.started_unix_ns),
            peaks: peaks.collect(),
            denied: self.denied.failed(),
            unlimited: self.strangers_seen,
        }
    }

    /// Says of several processes together what no process's own note says: those are dropped when there are many.
    pub(crate) fn unmanaged_note(&self) -> Option<String> {
        let count = self.strangers_seen;
        (count > 1).then(|| format!("{count} processes of it used a GPU without Partage: no limit held for them"))
    }
}
