// SPDX-License-Identifier: Apache-2.0
//! Processes of jobs that are away, and that NVML shows all the same: another program restored them (the vendor's own
//! `cuda-checkpoint`). Their threads stand at our hold; their memory is where others were promised room.

use partage_policy::{Passage, Patience, Place, Process, Residence};
use partage_protocol::units::{DeviceUuid, JobId, SECOND_NS};

use super::engine::Engine;
use super::facts::processes_with_library;
use super::steps::owed;
use super::way::{Purpose, Way};
use crate::site::Site;

/// A driver that says *checkpointed* of a process that NVML shows is asked again after this.
const ASKED_AGAIN_NS: u64 = 10 * SECOND_NS;

impl Engine {
    /// A look at a device showed these processes.
    pub(crate) fn notice_restored(&mut self, site: &mut Site, device: DeviceUuid) {
        let shown = site.devices.shown_on(device).into_iter();
        let stats = shown.filter_map(|pid| site.processes.stat(pid));
        let found: Vec<(JobId, Process)> = stats
            .filter_map(|stat| Some((self.away_job_of(site, stat.id)?, stat.id)))
            .collect();
        for (job, process) in found {
            let is_asked = self
                .ways
                .behind
                .get(&job)
                .is_some_and(|until_ns| site.now.ns < *until_ns);
            if is_asked || self.ways.has(job) {
                continue;
            }
            self.ways.behind.insert(job, site.now.ns.saturating_add(ASKED_AGAIN_NS));
            self.take_restored(site, job, process);
        }
    }

    /// The job of a process, where it is away, has the process's memory in the host's, and nothing is under way.
    fn away_job_of(&self, site: &Site, process: Process) -> Option<JobId> {
        let clients = site.clients.of_process(process);
        let job = site.clients.get(*clients.first()?)?.job;
        let is_away = site.policy.residence(job)?.residence == Residence::Away;
        (is_away && !self.ways.has(job) && !owed(site, job, process, Place::Source).is_empty()).then_some(job)
    }

    fn take_restored(&mut self, site: &mut Site, job: JobId, process: Process) {
        let Some(mark) = site.policy.residence(job).cloned() else {
            return;
        };
        let (devices, processes) = (site.jobs.devices(job), processes_with_library(site, job));
        let passage = Passage::restored_behind(&mark, &devices, &processes, Patience::default());
        let purpose = Purpose::RestoredBehind(process.pid);
        self.ways
            .start(job, Way::passing(passage, purpose, processes, site.now.ns));
    }
}
