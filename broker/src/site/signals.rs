// SPDX-License-Identifier: Apache-2.0
//! Signals to the processes of a job, and a line on its terminal.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use partage_policy::{Event, JobRecord, Process, Signal};
use partage_protocol::shown::shown;
use partage_protocol::units::JobId;
use tracing::{info, warn};

use super::Site;
use crate::host::pidfd::PidFd;
use crate::host::proc::with_descendants;
use crate::host::terminal;

impl Site {
    /// Signals the job's first process, its clients, what is in a control group of its own, and all their descendants.
    /// Those that the user `by` could not signal are left alone, and named.
    pub(crate) fn signal_job(&mut self, job: JobId, signal: Signal, by: u32) {
        let number = match signal {
            Signal::Terminate => libc::SIGTERM,
            Signal::Kill => libc::SIGKILL,
        };
        let spared = self.signal_all(job, number, by);
        if spared.is_empty() {
            return;
        }
        let named = |pid: u32| Some((pid, self.users.name(self.processes.uid(pid)?)));
        let processes: Vec<(u32, String)> = spared.into_iter().filter_map(named).collect();
        let text: Vec<String> = processes
            .iter()
            .map(|(pid, user)| format!("pid {pid} of {user}"))
            .collect();
        let text = format!("{job} is signalled, and not {}: another user's", text.join(", "));
        self.publish("signal-spared", Some(job), None, text);
        self.tell(Event::Spared { job, processes });
    }

    /// The processes in the control group that a job owns, and in no nearer one of another job.
    fn in_own_cgroup(&self, job: JobId) -> BTreeSet<u32> {
        let owns = |job| {
            let record: Option<&JobRecord> = self.jobs.get(job);
            let registration = record.and_then(|record| record.registration.as_ref());
            registration.is_some_and(|registration| registration.cgroup.is_some())
        };
        if !owns(job) {
            return BTreeSet::new();
        }
        let is_its = |pid: &u32| {
            let stat = self.processes.stat(*pid);
            stat.is_some_and(|stat| self.job_by_cgroup(stat.id) == Some(job))
        };
        self.processes.all().into_iter().filter(is_its).collect()
    }

    /// The same with any signal. Answers which processes of other users it left out; root's word leaves none out.
    pub(crate) fn signal_all(&mut self, job: JobId, number: libc::c_int, by: u32) -> Vec<u32> {
        let first = self.jobs.get(job).and_then(|record| record.first);
        let clients = self.clients.iter().filter(|(_, client)| client.job == job);
        let known: BTreeSet<Process> = clients.map(|(_, client)| client.process).chain(first).collect();
        let alive = known
            .iter()
            .filter(|process| self.is_alive(**process))
            .map(|process| process.pid);
        let alive: BTreeSet<u32> = alive.chain(self.in_own_cgroup(job)).collect();
        let me = std::process::id();
        let (mut sent, mut spared) = (0, Vec::new());
        for pid in with_descendants(&*self.processes, &alive) {
            if pid <= 1 || pid == me {
                continue;
            }
            if by != 0 && !self.processes.may_be_signalled_by(pid, by) {
                spared.push(pid);
            } else if self.signal_one(pid, number) {
                sent += 1;
            }
        }
        info!(%job, signal = number, sent, ?spared, "signalled a job");
        spared
    }

    fn is_alive(&self, process: Process) -> bool {
        self.processes.stat(process.pid).is_some_and(|stat| stat.id == process)
    }

    /// Kills one process if it is of this job now, held by descriptor so that no other can be hit.
    /// One that the job's owner could not kill is left alone, whoever wanted the job strict: `sudo` may have begun it.
    pub(crate) fn kill_unmanaged(&mut self, job: JobId, pid: u32) {
        let Some(held) = PidFd::open(pid) else { return };
        let stat = self.processes.stat(pid);
        let is_of_job = stat.is_some_and(|stat| self.job_by_kernel(stat.id) == Some(job));
        let owner = self.policy.owner(job).unwrap_or_default();
        if is_of_job && owner != 0 && !self.processes.may_be_signalled_by(pid, owner) {
            let text = format!("pid {pid} of {job} goes on: it is another user's");
            self.publish("kill-failed", Some(job), Some(pid), text);
        } else if is_of_job && pid != std::process::id() {
            let was_there = held.signal(libc::SIGKILL);
            info!(%job, pid, was_there, "killed a process that used a device without being managed");
        }
    }

    /// Kills exactly this process, held by descriptor so that no other can be hit.
    pub(crate) fn kill_process(&mut self, process: Process) {
        let pid = process.pid;
        if pid <= 1 || pid == std::process::id() {
            return;
        }
        // It may be gone already, which is as good.
        let Some(held) = PidFd::open(pid) else { return };
        if !self.is_alive(process) || held.signal(libc::SIGKILL) {
            return;
        }
        if !held.has_ended() {
            let text = format!("pid {pid} could not be killed: the broker's user may not");
            self.publish("kill-failed", None, Some(pid), text);
        }
    }

    fn signal_one(&self, pid: u32, signal: libc::c_int) -> bool {
        let before = self.processes.stat(pid);
        let Some(held) = PidFd::open(pid) else { return false };
        // The same process before and after: it is the one that was found to descend from the job.
        before.is_some()
            && before.map(|stat| stat.id) == self.processes.stat(pid).map(|stat| stat.id)
            && held.signal(signal)
            // A stopped process takes SIGTERM only once it goes on.
            && (signal != libc::SIGTERM || held.signal(libc::SIGCONT))
    }

    /// Writes a line to the terminal that the job's first process was started on, if that is still its owner's.
    pub(crate) fn say_on_terminal(&mut self, job: JobId, text: &str) {
        let Some(record) = self.jobs.get(job) else { return };
        let alive = record
            .first
            .and_then(|first| self.processes.stat(first.pid).filter(|stat| stat.id == first));
        let own = alive.filter(|stat| stat.terminal != 0);
        // One that has ended has no terminal any more; the one that it was started on may still be its owner's.
        let (found, number) = match own {
            Some(stat) => (terminal::of(stat.id.pid, stat.terminal), stat.terminal),
            None => {
                let Some(number) = self.jobs.terminal(job) else { return };
                (terminal::here(number), number)
            }
        };
        let Some(mut terminal) = found else { return };
        let is_theirs = terminal.metadata().is_ok_and(|facts| {
            facts.file_type().is_char_device() && facts.rdev() == number && facts.uid() == record.uid
        });
        if !is_theirs {
            return;
        }
        let text = shown(text);
        // From the line's beginning: a prompt may stand there already.
        if let Err(error) = terminal.write_all(format!("\rpartage: {text}\r\n").as_bytes()) {
            warn!(%job, %error, "a line could not be said on the job's terminal");
        }
    }
}
