// SPDX-License-Identifier: Apache-2.0
//! Jobs that are saved again and again (`run --checkpoint-every`): when each is to be saved next.
//!
//! ```text
//!   start ── DUR ──► due ── it is here, and nothing is under way ──► saved, or not ── DUR ──► due …
//! ```
//! A new broker counts from the newest generation of the job that is in its folder, else from the job's start.

use std::collections::BTreeMap;

use partage_protocol::units::{JobId, SECOND_NS};

/// Between two looks at a job that is due, and is away or on its way.
const BUSY_POLL_NS: u64 = SECOND_NS / 4;

/// When each job is due.
#[derive(Debug, Default)]
pub(super) struct Periodic {
    due: BTreeMap<JobId, u64>,
    poll_ns: u64,
}

impl Periodic {
    /// A job may have come.
    pub(super) const fn hurry(&mut self) {
        self.poll_ns = 0;
    }

    /// No job can be saved now.
    pub(super) const fn put_off(&mut self, now_ns: u64) {
        self.poll_ns = now_ns + BUSY_POLL_NS;
    }

    /// When to poll next.
    pub(super) const fn poll_ns(&self) -> u64 {
        self.poll_ns
    }

    /// These are the jobs, with how often each is saved: answers those that are due. `age_ns` of a job that is new
    /// here: since when it goes on unsaved.
    pub(super) fn take_due(&mut self, jobs: &[(JobId, u64)], age_ns: impl Fn(JobId) -> u64, now_ns: u64) -> Vec<JobId> {
        self.due.retain(|job, _| jobs.iter().any(|(id, _)| id == job));
        for (job, every_ns) in jobs {
            let left_ns = || every_ns.saturating_sub(age_ns(*job));
            self.due.entry(*job).or_insert_with(|| now_ns.saturating_add(left_ns()));
        }
        let due = self.due.iter().filter(|(_, due_ns)| **due_ns <= now_ns);
        let due: Vec<JobId> = due.map(|(job, _)| *job).collect();
        self.poll_ns = match due.is_empty() {
            true => self.due.values().copied().min().unwrap_or(u64::MAX),
            false => now_ns + BUSY_POLL_NS,
        };
        due
    }

    /// A save of the job came to an end, or could not begin.
    pub(super) fn note_end(&mut self, job: JobId, every_ns: u64, now_ns: u64) {
        self.due.insert(job, now_ns.saturating_add(every_ns));
        self.hurry();
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
        assert!(periodic.take_due(&jobs, |_| 0, 50).is_empty());
        assert_eq!(periodic.poll_ns(), 150);
        assert_eq!(periodic.take_due(&jobs, |_| 0, 150), [one]);
        // While it is being saved it is looked at again, and begun again by nobody.
        assert_eq!(periodic.poll_ns(), 150 + BUSY_POLL_NS);
        periodic.note_end(one, 100, 400);
        assert!(periodic.take_due(&jobs, |_| 0, 400).is_empty());
        assert_eq!(periodic.poll_ns(), 500);
        // One that ended is forgotten.
        assert!(periodic.take_due(&jobs[1..], |_| 0, 600).is_empty());
        assert_eq!(periodic.poll_ns(), 1_050);
        assert!(periodic.take_due(&[], |_| 0, 700).is_empty());
        assert_eq!(periodic.poll_ns(), u64::MAX);
    }

    #[test]
    fn a_new_broker_goes_on_from_the_last_save() {
        let mut periodic = Periodic::default();
        let jobs = [(JobId(1), 100), (JobId(2), 100)];
        let age_ns = |job| if job == JobId(1) { 70 } else { 5_000 };
        assert_eq!(periodic.take_due(&jobs, age_ns, 50), [JobId(2)]);
        periodic.note_end(JobId(2), 100, 60);
        assert!(periodic.take_due(&jobs, age_ns, 60).is_empty());
        assert_eq!(periodic.poll_ns(), 80);
        assert_eq!(periodic.take_due(&jobs, age_ns, 80), [JobId(1)]);
    }
}
