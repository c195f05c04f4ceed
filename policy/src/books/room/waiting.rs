// SPDX-License-Identifier: Apache-2.0
//! Who waits, what is reserved for those that wait, and what each was told.

use crate::books::Books;
use crate::books::room::claims::Claims;
use crate::books::room::placement::Unplaced;
use crate::books::room::survey::Survey;
use crate::caller::Process;
use crate::job::Job;
use crate::machine::Machine;
use crate::registration::Registration;
use partage_protocol::message::TOKEN_BYTES;
use partage_protocol::units::JobId;

impl Books {
    /// Does a job with this token wait or live?
    pub(crate) fn has_token(&self, token: [u8; TOKEN_BYTES], uid: u32) -> bool {
        let is_it = |job: &Job| job.state().takes_name() && job.is_meant_by(token, uid);
        self.jobs.values().any(is_it)
    }

    /// The living job with this token.
    pub(crate) fn living_job(&self, token: [u8; TOKEN_BYTES], uid: u32) -> Option<JobId> {
        let is_it = |job: &&Job| job.state().takes_processes() && job.is_meant_by(token, uid);
        self.jobs.values().find(is_it).map(Job::id)
    }

    /// The living job that this process was registered for.
    pub(crate) fn begun_with(&self, process: Process) -> Option<JobId> {
        let is_it = |job: &&Job| {
            let is_registered = job.record.registration.is_some() && job.record.first == Some(process);
            is_registered && job.is_first_alive && job.state().takes_processes()
        };
        self.jobs.values().find(is_it).map(Job::id)
    }

    /// The living job that lives by the group of this registration; of a user's own, that user's.
    pub(crate) fn living_by(&self, registration: &Registration, uid: u32) -> Option<JobId> {
        let is_it = |job: &&Job| {
            let known = job.record.registration.as_ref();
            let is_same = known.is_some_and(|known| registration.finds(known));
            is_same && (registration.is_by_root || job.record.uid == uid) && job.state().takes_processes()
        };
        self.jobs.values().find(is_it).map(Job::id)
    }

    /// What the first so many in the queue keep from later requests.
    pub(crate) fn claims<M: Machine>(&self, before: usize, survey: &Survey, machine: &M) -> Claims {
        let mut claimed = Claims::default();
        for id in self.queue.iter().take(before).filter(|id| !self.is_passed(**id)) {
            let Some(job) = self.jobs.get(id) else { continue };
            let Some(queued) = job.life.queued() else {
                if self.is_returning(*id) {
                    claimed.add(*id, self.return_wishes(job, machine));
                }
                continue;
            };
            if let Err(Unplaced::NoRoom { wishes, .. }) = self.place(&queued.spec, &claimed, survey, machine) {
                claimed.add(*id, wishes);
            }
        }
        claimed
    }

    /// A stopped `run` could not start its program: it keeps its place, and others pass it.
    pub(crate) fn is_passed(&self, id: JobId) -> bool {
        let is_patient = |job: &&Job| job.life.queued().is_some_and(|queued| queued.spec.wait);
        let job = self.jobs.get(&id).filter(is_patient);
        job.is_some_and(|job| job.is_stopped)
    }

    /// Does a waiting job hear now what it waits for, be it as a reminder or as a refusal?
    pub(crate) fn is_told(&self, id: JobId, now_ns: u64) -> bool {
        let Some(queued) = self.jobs.get(&id).and_then(|job| job.life.queued()) else {
            return false;
        };
        !queued.spec.wait || queued.ran_out(now_ns) || now_ns >= queued.next_reminder_ns
    }
}
