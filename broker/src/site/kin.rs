// SPDX-License-Identifier: Apache-2.0
//! Whose a process is: the job that the kernel's facts about it name.

use partage_policy::{Process, TargetQuery};
use partage_protocol::units::JobId;

use super::Site;
use crate::host::cgroups;
use crate::host::proc::{ancestors, namespace};
use crate::peer::Peer;

impl Site {
    /// The peer's process with its start time; none when it is gone or not visible.
    pub(crate) fn process_of(&self, peer: &Peer) -> Option<Process> {
        let pidfd = peer.pidfd.as_ref()?;
        let stat = self.processes.stat(peer.pid)?;
        // Still alive after the look: the number was not reused in between.
        (!pidfd.has_ended()).then_some(stat.id)
    }

    /// A process's paths in other hierarchies than the one that names its scope.
    pub(crate) fn other_cgroups(&self, pid: u32) -> Vec<String> {
        cgroups::others(self.processes.cgroup(pid).as_deref(), self.processes.cgroups(pid))
    }

    /// The job of a process: the one that owns the nearest control group that it is in, else the one by its parents,
    /// else the container's in whose pid namespace it is.
    pub(crate) fn job_by_kernel(&self, process: Process) -> Option<JobId> {
        self.job_by_cgroup(process)
            .or_else(|| self.job_by_ancestry(process))
            .or_else(|| self.job_by_pid_namespace(process))
    }

    /// The job that owns the nearest control group that a process is in.
    pub(crate) fn job_by_cgroup(&self, process: Process) -> Option<JobId> {
        if !self.jobs.own_cgroups() {
            return None;
        }
        let jobs = self.jobs.of_cgroups(&self.processes.cgroups(process.pid));
        let job = jobs.into_iter().find(|job| self.may_hold(*job, process.pid))?;
        // The number was not reused while its group was read.
        self.processes
            .stat(process.pid)
            .filter(|stat| stat.id == process)
            .map(|_| job)
    }

    /// May a registered job hold this process by its group or namespace? What a user registered holds that user's
    /// processes alone, and those of the user's namespaces.
    fn may_hold(&self, job: JobId, pid: u32) -> bool {
        let Some(record) = self.jobs.get(job) else { return false };
        let Some(registration) = &record.registration else {
            return false;
        };
        registration.is_by_root
            || self.processes.uid(pid) == Some(record.uid)
            || self.processes.is_in_namespace_of(pid, record.uid)
    }

    /// The first container's job that began in the pid namespace of a process, which is not the broker's: what came by
    /// `exec` has its parent outside, and may have left the control group or found none.
    fn job_by_pid_namespace(&self, process: Process) -> Option<JobId> {
        let theirs = namespace(process.pid).filter(|theirs| Some(theirs) != namespace(std::process::id()).as_ref())?;
        let is_now = |process: Process| self.processes.stat(process.pid).is_some_and(|stat| stat.id == process);
        let begins_there = |job: &JobId| {
            let first = self.jobs.get(*job).and_then(|record| record.first);
            first.is_some_and(|first| namespace(first.pid).as_ref() == Some(&theirs) && is_now(first))
        };
        let mut jobs = self.jobs.ids().filter(|job| self.is_containers(*job));
        jobs.find(|job| self.may_hold(*job, process.pid) && begins_there(job))
            .filter(|_| is_now(process))
    }

    /// Of a job that lives by a control group: the process there that began first, of those that are left.
    pub(crate) fn next_first(&self, job: JobId) -> Option<Process> {
        self.jobs.get(job)?.registration.as_ref()?.lived_by()?;
        let stats = self
            .processes
            .all()
            .into_iter()
            .filter_map(|pid| self.processes.stat(pid));
        let left = stats.filter(|stat| !stat.is_exiting && self.job_by_cgroup(stat.id) == Some(job));
        left.map(|stat| stat.id)
            .min_by_key(|process| (process.start, process.pid))
    }

    fn is_containers(&self, job: JobId) -> bool {
        let record = self.jobs.get(job);
        let registration = record.and_then(|record| record.registration.as_ref());
        registration.is_some_and(|one| one.cgroup.is_some() || !one.container.is_empty())
    }

    /// The job of the process itself, or of the nearest of its parents that has one.
    fn job_by_ancestry(&self, process: Process) -> Option<JobId> {
        let job_of = |process: &Process| {
            let of_first = self.jobs.of_first(*process);
            of_first.or_else(|| self.clients.job_of(*process))
        };
        let parents = || ancestors(&*self.processes, process.pid);
        job_of(&process).or_else(|| parents().iter().find_map(job_of))
    }

    /// For a pid, the job that it belongs to by its control group or its parents.
    pub(crate) fn target(&self, text: String) -> TargetQuery {
        let stat = text.parse::<u32>().ok().and_then(|pid| self.processes.stat(pid));
        TargetQuery {
            descends_from: stat.and_then(|stat| self.job_by_kernel(stat.id)),
            text,
        }
    }

    /// Names and gids of a process's groups, and of those that its user is in.
    pub(crate) fn groups_of(&mut self, pid: u32, uid: u32) -> Vec<String> {
        let gids = self.processes.groups(pid);
        self.users.groups(uid, &gids)
    }
}
