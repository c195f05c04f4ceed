// SPDX-License-Identifier: Apache-2.0
//! Saves the jobs of `run --checkpoint-every` that are due. What fails is an event, and the job is saved at the next
//! turn.

use std::path::Path;

use partage_policy::Residence;
use partage_protocol::snapshot::SavedEvery;
use partage_protocol::units::{JobId, SECOND_NS};

use super::way::{Leaving, Purpose, SaveTo};
use crate::clock::Now;
use crate::driver::state_driver::StateDriver;
use crate::snapshot::files::Disk;
use crate::snapshot::folder::Folder;
use crate::snapshot::store::{self, Store};

impl StateDriver {
    /// Saves the jobs that are due.
    pub(in crate::driver) fn tick_periodic(&mut self, now: Now) {
        if now.ns < self.ways.periodic.poll_ns() {
            return;
        }
        // What is due since before this broker began waits until its processes are back: a save that fails now would
        // have to wait for its next turn.
        if self.policy.is_adopting_any() || !self.devices.is_ready() {
            return self.ways.periodic.put_off(now.ns);
        }
        let every = |job: &JobId| {
            self.saved_every(*job)
                .map(|saved| (*job, saved.every_ns.max(SECOND_NS)))
        };
        let jobs: Vec<(JobId, u64)> = self.jobs.ids().filter_map(|job| every(&job)).collect();
        let mut periodic = std::mem::take(&mut self.ways.periodic);
        let due = periodic.take_due(&jobs, |job| self.unsaved_ns(job, now), now.ns);
        self.ways.periodic = periodic;
        for job in due {
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
        self.ways.periodic.poll_ns()
    }

    fn saved_every(&self, job: JobId) -> Option<&SavedEvery> {
        self.jobs.get(job)?.asked.saved.as_ref()
    }

    /// For how long a job has gone on without being saved; what its folder cannot tell is not waited for.
    fn unsaved_ns(&self, job: JobId, now: Now) -> u64 {
        let Some((record, saved)) = self.jobs.get(job).zip(self.saved_every(job)) else {
            return 0;
        };
        let newest = Store::new(Path::new(&saved.out), Disk).manifest(None);
        // The folder may hold what another job left there.
        let of_it = newest.ok().filter(|(_, found)| found.job.token == record.token_text());
        let saved_unix_ns = of_it.map(|(_, found)| found.made_unix_ns);
        // One that was restored was not here between its save and its start.
        let here_unix_ns = record.asked.restored_root.map(|_| record.started_unix_ns);
        let since = saved_unix_ns.max(here_unix_ns).unwrap_or(record.started_unix_ns);
        now.unix_ns.saturating_sub(since)
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
        let me = nix::unistd::geteuid().as_raw();
        let checked = match self.policy.owner(job) == Some(me) {
            true => Folder::open(&to.folder).and_then(|_| store::is_writable(&to.folder)),
            false => Err(format!(
                "a job is saved by a broker of its own user alone (uid {me} here)"
            )),
        };
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
        if let Some(every_ns) = self.saved_every(job).map(|saved| saved.every_ns.max(SECOND_NS)) {
            self.ways.periodic.note_end(job, every_ns, now.ns);
        }
    }
}
