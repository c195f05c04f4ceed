// SPDX-License-Identifier: Apache-2.0
//! What devices show against what clients mark of time.

use crate::books::Books;
use crate::event::ProcessUse;
use crate::job::Job;
use crate::time::TOLERANCE_PPM;
use partage_protocol::terms::format_part;
use partage_protocol::units::{DeviceUuid, JobId};

impl Books {
    pub(crate) fn time_drift_text(&self, job: JobId, device: DeviceUuid) -> Option<String> {
        let drift = self.times.get(&(job, device))?.audit.drift()?;
        let gpu = self.gpu(device);
        Some(format!(
            "NVML shows {gpu} at work for it for {} of the time, and its own marks for {}: it goes past Partage, its \
             kernels take longer than when they were timed, or it has work from before it was measured; the \
             difference is charged to it",
            format_part(drift.shown_ppm / 10_000 * 10_000),
            format_part(drift.charged_ppm / 10_000 * 10_000)
        ))
    }

    /// What a job's owner should know of it.
    pub(crate) fn time_drift_notes(&self, job: &Job) -> Vec<String> {
        let devices = job.record.devices.iter().map(|place| place.device);
        devices
            .filter_map(|device| self.time_drift_text(job.id(), device))
            .collect()
    }

    /// The processes of a job for which NVML shows the device at work.
    pub(crate) fn busy_pids(&self, job: JobId, device: DeviceUuid) -> Vec<u32> {
        let managed = self.managed_pids();
        let measured = self.measured(device);
        let is_meant = |process: &&ProcessUse| {
            managed.get(&process.pid) == Some(&job) && process.busy_ppm.is_some_and(|part| part > TOLERANCE_PPM)
        };
        let processes = measured.into_iter().flat_map(|measured| &measured.processes);
        processes.filter(is_meant).map(|process| process.pid).collect()
    }
}
