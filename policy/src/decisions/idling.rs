// SPDX-License-Identifier: Apache-2.0
//! Idle jobs of `--idle-release` leave their devices, and come back at their next call.
//!
//! ```text
//!   nothing done for DUR ──► Action::Leave ──► away ── a thread stands at the hold: Event::Wanted ──► in the queue
//! ```
//! The broker looks at the clients' pages and says for how long nothing was done (no launch, no allocation or free, no
//! thread in the driver); NVML says whether the device still works for the job. One that is wanted again before it was
//! away for DUR has to be idle for twice as long the next time, so that a call every DUR does not move its memory each
//! time.

use partage_protocol::units::JobId;

use super::Policy;
use crate::action::Action;
use crate::books::seen::idle::can_leave;
use crate::job::Job;
use crate::machine::Machine;
use crate::notice::Notice;
use crate::residence::Residence;

impl Policy {
    /// A job did nothing with its devices for so long.
    pub(crate) fn take_quiet<M: Machine>(&mut self, id: JobId, quiet_ns: u64, machine: &M, now_ns: u64) {
        let Some(job) = self
            .books
            .jobs
            .get(&id)
            .filter(|job| can_leave(job) && !job.clients.is_empty())
        else {
            return;
        };
        let Some(idle_ns) = job.record.asked.idle_release_ns else {
            return;
        };
        let run_ns = job.record.run_ns(self.unix_ns(now_ns));
        let rested_ns = self
            .books
            .swaps
            .earliest_ns(id, (self.returning_bytes(id, machine), run_ns), now_ns);
        if quiet_ns < self.books.swaps.patience_ns(id, idle_ns) || rested_ns > now_ns || self.is_at_work(job) {
            return;
        }
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
        job.record_mut().residence.leave_idle();
        let record = job.record.clone();
        self.act(Action::SaveJob(Box::new(record)));
        self.publish("job-idle", Some(id), None, Notice::Idle(id, quiet_ns));
        self.act(Action::Leave(id));
    }

    /// A thread of a job that left because it was idle wants to go on.
    pub(crate) fn take_wanted(&mut self, id: JobId, now_ns: u64) {
        let is_meant = |job: &&Job| job.residence() == Residence::Away && job.record.residence.left_idle;
        let Some(job) = self.books.jobs.get(&id).filter(is_meant) else {
            return;
        };
        if self.books.returning.contains_key(&id) {
            return;
        }
        let idle_ns = job.record.asked.idle_release_ns.unwrap_or(0);
        self.books.swaps.note_wanted(id, idle_ns, now_ns);
        self.come_back(id, now_ns);
    }
}
