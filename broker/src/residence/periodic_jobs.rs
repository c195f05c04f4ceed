// SPDX-License-Identifier: Apache-2.0
//! Saves the jobs of `run --checkpoint-every` that are due. What fails is an event, and the job is saved at the next
//! turn.

use std::path::Path;

use partage_policy::Residence;
use partage_protocol::snapshot::FILES_MAX;
use partage_protocol::units::{JobId, SECOND_NS};

use super::engine::Engine;
use super::facts::{residence_of, saved_every, waits_to_start};
use super::way::{Leaving, Purpose, SaveTo};
use super::written::is_being_written;
use crate::site::Site;
use crate::snapshot::files::Disk;
use crate::snapshot::folder::Folder;
use crate::snapshot::store::{self, Store};

impl Engine {
    /// Saves the jobs that are due.
    pub(super) fn tick_periodic(&mut self, site: &mut Site) {
        if site.now.ns < self.periodic.poll_ns() {
            return;
        }
        // What is due since before this broker began waits until its processes are back: a save that fails now would
        // have to wait for its next turn.
        if site.policy.is_adopting_any() || !site.devices.is_ready() {
            return self.periodic.put_off(site.now.ns);
        }
        let every = |job: &JobId| saved_every(site, *job).map(|saved| (*job, saved.every_ns.max(SECOND_NS)));
        // A snapshot that a broker before began is no generation yet: the next is counted from it once it is one.
        let is_unknown = |job: JobId| !self.ways.has(job) && !self.writings.has(job) && is_being_written(site, job);
        let (unknown, jobs): (Vec<_>, Vec<_>) = site
            .jobs
            .ids()
            .filter_map(|job| every(&job))
            .partition(|(job, _)| is_unknown(*job));
        let mut periodic = std::mem::take(&mut self.periodic);
        let due = periodic.take_due(&jobs, |job| unsaved_ns(site, job), site.now.ns);
        self.periodic = periodic;
        if !unknown.is_empty() {
            self.periodic.put_off(site.now.ns);
        }
        for job in due {
            let is_here = residence_of(site, job) == Residence::Here;
            let is_busy = self.ways.has(job) || self.writings.has(job);
            if is_here && !is_busy && !waits_to_start(site, job) {
                self.save_by_itself(site, job);
            }
        }
    }

    fn save_by_itself(&mut self, site: &mut Site, job: JobId) {
        let Some(saved) = saved_every(site, job) else { return };
        let to = SaveTo {
            folder: saved.out.clone().into(),
            is_to_stop: false,
            keep: saved.keep,
            criu: saved.criu.clone().map(Into::into),
            files_max: saved.files_max.unwrap_or(FILES_MAX),
            outside: saved.outside,
            is_periodic: true,
        };
        let me = nix::unistd::geteuid().as_raw();
        let checked = match site.policy.owner(job) == Some(me) {
            true => Folder::open(&to.folder).and_then(|_| store::is_writable(&to.folder)),
            false => Err(format!(
                "a job is saved by a broker of its own user alone (uid {me} here)"
            )),
        };
        let begun = checked.and_then(|()| {
            self.begin_to_save(site, job, to, Leaving::unasked(Purpose::Save))
                .map_err(|(_, why)| why)
        });
        if let Err(why) = begun {
            self.not_saved(site, job, &why);
        }
    }
}

/// For how long a job has gone on without being saved; what its folder cannot tell is not waited for.
fn unsaved_ns(site: &Site, job: JobId) -> u64 {
    let Some((record, saved)) = site.jobs.get(job).zip(saved_every(site, job)) else {
        return 0;
    };
    let newest = Store::new(Path::new(&saved.out), Disk).manifest(None);
    // The folder may hold what another job left there.
    let of_it = newest.ok().filter(|(_, found)| found.job.token == record.token_text());
    let saved_unix_ns = of_it.map(|(_, found)| found.made_unix_ns);
    // One that was restored was not here between its save and its start.
    let here_unix_ns = record.asked.restored_root.map(|_| record.started_unix_ns);
    let since = saved_unix_ns.max(here_unix_ns).unwrap_or(record.started_unix_ns);
    site.now.unix_ns.saturating_sub(since)
}
