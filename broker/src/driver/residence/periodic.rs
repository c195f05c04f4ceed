// SPDX-License-Identifier: Apache-2.0
//! Jobs that are saved again and again (`run --checkpoint-every`): when each is to be saved next.
//!
//! ```text
//!   seen ── DUR ──► due ── it is here, and nothing is under way ──► saved, or not ── DUR ──► due …
//! ```
//! A new broker counts from when it sees the job. What fails is an event, and the job is saved at the next turn.

use std::collections::BTreeMap;

use partage_policy::Residence;
use partage_protocol::admin::SavedEvery;
use partage_protocol::units::{JobId, SECOND_NS};

use super::way::{Leaving, Purpose, SaveTo};
use crate::clock::Now;
use crate::driver::state_driver::StateDriver;
use crate::snapshot::store;

/// Between two looks at a job that is due, and is away or on its way.
const BUSY_LOOK_NS: u64 = SECOND_NS / 4;

/// When each job is due.
#[derive(Debug, Default)]
pub(super) struct Periodic {
    due: BTreeMap<JobId, u64>,
    look_ns: u64,
}

impl Periodic {
    /// A job may have come.
    pub(super) const fn hurry(&mut self) {
        self.look_ns = 0;
    }

    /// When to look next.
    pub(super) const fn look_ns(&self) -> u64 {
        self.look_ns
    }

    /// These are the jobs, with how often each is saved: answers those that are due.
    pub(super) fn take_due(&mut self, jobs: &[(JobId, u64)], now_ns: u64) -> Vec<JobId> {
        self.due.retain(|job, _| jobs.iter().any(|(id, _)| id == job));
        for (job, every_ns) in jobs {
            self.due.entry(*job).or_insert_with(|| now_ns.saturating_add(*every_ns));
        }
        let due = self.due.iter().filter(|(_, due_ns)| **due_ns <= now_ns);
        let due: Vec<JobId> = due.map(|(job, _)| *job).collect();
        self.look_ns = match due.is_empty() {
            true => self.due.values().copied().min().unwrap_or(u64::MAX),
            false => now_ns + BUSY_LOOK_NS,
        };
        due
    }

    /// A save of the job came to an end, or could not begin.
    pub(super) fn note_end(&mut self, job: JobId, every_ns: u64, now_ns: u64) {
        self.due.insert(job, now_ns.saturating_add(every_ns));
        self.hurry();
    }
}

impl StateDriver {
    /// Saves the jobs that are due.
    pub(in crate::driver) fn tick_periodic(&mut self, now: Now) {
        if now.ns < self.ways.periodic.look_ns() {
            return;
        }
        let every = |job: &JobId| self.saved_every(*job).map(|saved| (*job, saved.every_ns));
        let jobs: Vec<(JobId, u64)> = self.jobs.ids().filter_map(|job| every(&job)).collect();
        for job in self.ways.periodic.take_due(&jobs, now.ns) {
            let is_here = self
                .policy
                .residence(job)
                .is_none_or(|mark| mark.residence == Residence::Here);
            if is_here && !self.ways.has(job) && !self.waits_to_start(job) {
                self.save_by_itself(job, now);
            }
        }
    }

    /// When [`tick_periodic`](Self::tick_periodic) has something to do, at the latest.
    pub(in crate::driver) const fn periodic_due_ns(&self) -> u64 {
        self.ways.periodic.look_ns()
    }

    fn saved_every(&self, job: JobId) -> Option<&SavedEvery> {
        self.jobs.get(job)?.asked.saved.as_ref()
    }

    fn save_by_itself(&mut self, job: JobId, now: Now) {
        let Some(saved) = self.saved_every(job) else { return };
        let to = SaveTo {
            folder: saved.out.clone().into(),
            is_to_stop: false,
            keep: saved.keep,
            criu: saved.criu.clone().map(Into::into),
            is_periodic: true,
        };
        let checked = store::own_folder(&to.folder, false).and_then(|()| store::is_writable(&to.folder));
        let begun = checked.and_then(|()| {
            self.begin_to_save(job, to, Leaving::unasked(Purpose::Save), now)
                .map_err(|(_, why)| why)
        });
        if let Err(why) = begun {
            self.not_saved(job, &why, now);
        }
    }

    /// A save that nobody asked for could not begin.
    pub(super) fn not_saved(&mut self, job: JobId, why: &str, now: Now) {
        let text = format!("{job} goes on, and is not saved: {why}");
        self.publish(now, "save-failed", Some(job), None, text);
        self.note_save_end(job, now);
    }

    /// The next one is counted from here.
    pub(super) fn note_save_end(&mut self, job: JobId, now: Now) {
        if let Some(every_ns) = self.saved_every(job).map(|saved| saved.every_ns) {
            self.ways.periodic.note_end(job, every_ns, now.ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_save_is_counted_from_the_end_of_the_last() {
        let mut periodic = Periodic::default();
        let (one, two) = (JobId(1), JobId(2));
        let jobs = [(one, 100), (two, 1_000)];
        assert!(periodic.take_due(&jobs, 50).is_empty());
        assert_eq!(periodic.look_ns(), 150);
        assert_eq!(periodic.take_due(&jobs, 150), [one]);
        // While it is being saved it is looked at again, and begun again by nobody.
        assert_eq!(periodic.look_ns(), 150 + BUSY_LOOK_NS);
        periodic.note_end(one, 100, 400);
        assert!(periodic.take_due(&jobs, 400).is_empty());
        assert_eq!(periodic.look_ns(), 500);
        // One that ended is forgotten.
        assert!(periodic.take_due(&jobs[1..], 600).is_empty());
        assert_eq!(periodic.look_ns(), 1_050);
        assert!(periodic.take_due(&[], 700).is_empty());
        assert_eq!(periodic.look_ns(), u64::MAX);
    }
}
