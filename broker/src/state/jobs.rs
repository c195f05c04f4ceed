// SPDX-License-Identifier: Apache-2.0
//! The records of live jobs as last written, with look-ups by process.

use std::collections::BTreeMap;

use partage_policy::{Cgroup, JobRecord, Process};
use partage_protocol::units::{DeviceUuid, JobId};

/// The live jobs.
#[derive(Debug, Default)]
pub struct Jobs {
    records: BTreeMap<JobId, JobRecord>,
    /// First processes; of nested `run`s in one process the newest.
    by_first: BTreeMap<Process, JobId>,
    /// The terminals that jobs were started on: a job's end is told there when nothing of it is left to ask.
    terminals: BTreeMap<JobId, u64>,
    /// The control groups that jobs own.
    owned: BTreeMap<JobId, Cgroup>,
}

impl Jobs {
    /// Keeps a job's record, in place of the one before.
    pub fn save(&mut self, record: JobRecord) {
        let id = JobId(record.id);
        // Of a control group another process may have become the first.
        let before = self.records.get(&id).and_then(|old| old.first);
        if let Some(old) = before.filter(|old| record.first != Some(*old) && self.by_first.get(old) == Some(&id)) {
            self.by_first.remove(&old);
        }
        if let Some(first) = record.first {
            self.by_first.insert(first, id);
        }
        if let Some(group) = record.registration.as_ref().and_then(|known| known.cgroup.clone()) {
            self.owned.insert(id, group);
        }
        self.records.insert(id, record);
    }

    /// Forgets a job that ended. Answers its first process, if that is no newer job's.
    pub fn forget(&mut self, job: JobId) -> Option<Process> {
        self.terminals.remove(&job);
        self.owned.remove(&job);
        let first = self.records.remove(&job)?.first?;
        (self.by_first.get(&first) == Some(&job)).then(|| {
            self.by_first.remove(&first);
            first
        })
    }

    /// All of them.
    pub fn ids(&self) -> impl Iterator<Item = JobId> + '_ {
        self.records.keys().copied()
    }

    /// A job's record.
    #[must_use]
    pub fn get(&self, job: JobId) -> Option<&JobRecord> {
        self.records.get(&job)
    }

    /// Is no job live?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The job whose first process this is.
    #[must_use]
    pub fn of_first(&self, process: Process) -> Option<JobId> {
        self.by_first.get(&process).copied()
    }

    /// Does any job own a control group?
    #[must_use]
    pub fn own_cgroups(&self) -> bool {
        !self.owned.is_empty()
    }

    /// The jobs that own a control group which a process in these is at or below, the nearest group first. Of one group
    /// that several own (a container that was started anew while the last process of its earlier run is dying) the
    /// newest is the first.
    #[must_use]
    pub fn of_cgroups(&self, cgroups: &[Cgroup]) -> Vec<JobId> {
        let holds = |(_, group): &(&JobId, &Cgroup)| cgroups.iter().any(|other| group.holds(other));
        let mut found: Vec<(usize, JobId)> = self
            .owned
            .iter()
            .filter(holds)
            .map(|(job, group)| (group.path.len(), *job))
            .collect();
        found.sort_unstable_by(|one, other| other.cmp(one));
        found.into_iter().map(|(_, job)| job).collect()
    }

    /// A job's devices in slot order.
    #[must_use]
    pub fn devices(&self, job: JobId) -> Vec<DeviceUuid> {
        let placements = self.get(job).map_or(&[][..], |record| &record.devices);
        placements.iter().map(|placement| placement.device).collect()
    }

    /// The job was started on the terminal of this device number.
    pub fn set_terminal(&mut self, job: JobId, terminal: u64) {
        self.terminals.insert(job, terminal);
    }

    /// The terminal that the job was started on.
    #[must_use]
    pub fn terminal(&self, job: JobId) -> Option<u64> {
        self.terminals.get(&job).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::job_store::tests::record;

    #[test]
    fn the_nearest_owned_group_is_found_and_of_one_the_newest_owner() {
        let group = |path: &str| Cgroup {
            hierarchy: "pids".into(),
            path: path.into(),
        };
        let mut jobs = Jobs::default();
        for (id, path) in [(1, "/a"), (2, "/a/b"), (3, "/a/b"), (4, "/c")] {
            let mut record = record(id);
            record.first = Some(Process {
                pid: id as u32,
                start: 1,
            });
            record.registration = Some(partage_policy::Registration {
                cgroup: Some(group(path)),
                ..partage_policy::Registration::default()
            });
            jobs.save(record);
        }
        let of = |jobs: &Jobs, path: &str| -> Vec<u64> {
            let found = jobs.of_cgroups(&[group("/"), group(path)]);
            found.into_iter().map(|job| job.0).collect()
        };
        assert_eq!(of(&jobs, "/a/b/deeper"), [3, 2, 1]);
        assert_eq!(of(&jobs, "/a/bc"), [1]);
        assert_eq!(of(&jobs, "/d"), [0; 0]);
        jobs.forget(JobId(3));
        assert_eq!(of(&jobs, "/a/b"), [2, 1]);
    }

    #[test]
    fn a_process_that_follows_the_first_takes_its_place() {
        let mut jobs = Jobs::default();
        let first = record(1).first.expect("one");
        let next = Process { pid: 70, start: 2 };
        jobs.save(record(1));
        let mut followed = record(1);
        followed.first = Some(next);
        jobs.save(followed.clone());
        assert_eq!((jobs.of_first(first), jobs.of_first(next)), (None, Some(JobId(1))));
        // A newer job that began in the same process keeps it.
        let mut newer = record(2);
        newer.first = Some(next);
        jobs.save(newer);
        followed.first = Some(first);
        jobs.save(followed);
        assert_eq!(
            (jobs.of_first(first), jobs.of_first(next)),
            (Some(JobId(1)), Some(JobId(2)))
        );
    }

    #[test]
    fn of_nested_jobs_in_one_process_the_newest_is_found_and_its_end_gives_the_process_up_once() {
        let mut jobs = Jobs::default();
        let first = record(1).first.expect("one");
        jobs.save(record(1));
        jobs.set_terminal(JobId(1), 5);
        jobs.save(record(2));
        jobs.save(record(2));
        assert_eq!(jobs.of_first(first), Some(JobId(2)));
        assert_eq!(jobs.forget(JobId(1)), None, "a newer job's");
        assert_eq!((jobs.terminal(JobId(1)), jobs.get(JobId(1))), (None, None));
        assert_eq!(jobs.devices(JobId(2)).len(), 1);
        assert_eq!(jobs.forget(JobId(2)), Some(first));
        assert_eq!((jobs.forget(JobId(2)), jobs.of_first(first)), (None, None));
        assert!(jobs.is_empty() && jobs.devices(JobId(2)).is_empty());
    }
}
