// SPDX-License-Identifier: Apache-2.0
//! What is due, and when.

use crate::books::Books;
use crate::client::Presence;
use crate::job::{Job, JobState, STRICT_NS, Slot, State};
use crate::machine::{Machine, OnSlot};
use crate::residence::Residence;
use partage_protocol::units::SECOND_NS;

/// Time between the two signals.
pub const TIME_LIMIT_GRACE_NS: u64 = 10 * SECOND_NS;

/// How long before the end its user is told of it.
pub(crate) const TIME_WARNING_NS: u64 = 60 * SECOND_NS;

/// When a job's user is told that its time limit is near; none without one, and once that was said.
pub(crate) fn time_warning_at(job: &Job) -> Option<u64> {
    let at_ns = job.time_limit_at_ns.filter(|_| !job.is_time_warned)?;
    Some(at_ns.saturating_sub(TIME_WARNING_NS))
}

impl Books {
    /// When `Policy::expire` has something to do next.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let adoption = self.clients.wait_ends_ns();
        let undecided = self.undecided_due_ns();
        let mut due: Vec<u64> = adoption
            .into_iter()
            .chain(undecided)
            .chain(self.overheads.due_ns())
            .chain(self.returning_due_ns())
            .chain(self.swaps.due_ns())
            .collect();
        for job in self.jobs.values() {
            if let Some(queued) = job.life.queued() {
                due.extend(queued.deadline_ns);
                due.push(queued.next_reminder_ns);
            }
            due.extend(job.life.linger_until_ns());
            due.extend(job.life.forget_at_ns());
            if !job.state().may_end() {
                continue;
            }
            due.extend(job.time_limit_at_ns);
            due.extend(time_warning_at(job));
            let stopping = job.stopping.iter().filter(|stop| !stop.is_killed);
            due.extend(stopping.map(|stop| stop.kill_at_ns));
            if job.record.is_strict {
                let since = job.unmanaged.values();
                due.extend(since.map(|since_ns| since_ns.saturating_add(STRICT_NS)));
            }
        }
        due.into_iter().min()
    }

    /// The state that users see.
    pub(crate) fn state<M: Machine>(&self, job: &Job, machine: &M) -> JobState {
        match job.state() {
            State::Waiting => return JobState::Waiting,
            State::Lingering | State::Ended => return JobState::Ended,
            State::Running => {}
        }
        let is_dying = |id| {
            self.clients
                .get(id)
                .is_some_and(|client| client.presence == Presence::Dying)
        };
        if !job.is_first_alive && !job.clients.is_empty() && job.clients.iter().all(is_dying) {
            return JobState::Dying;
        }
        match job.residence() {
            Residence::Here => {}
            Residence::Leaving => return JobState::Suspending,
            Residence::Away => return JobState::Suspended,
            Residence::Coming => return JobState::Resuming,
            Residence::Moving => return JobState::Moving,
            Residence::Saving => return JobState::Saving,
            Residence::Poisoned => return JobState::Poisoned,
        }
        let is_over =
            |(slot, state): (usize, &Slot)| state.ledger.held_sum(&OnSlot { machine, slot }) > state.ledger.limit();
        if job.slots.iter().enumerate().any(is_over) {
            JobState::OverLimit
        } else if job.is_stopped {
            JobState::Stopped
        } else {
            JobState::Running
        }
    }
}
