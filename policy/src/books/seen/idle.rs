// SPDX-License-Identifier: Apache-2.0
//! Jobs that do nothing.

use crate::books::Books;
use crate::job::Job;
use crate::job::State;
use crate::residence::Residence;
use partage_protocol::units::JobId;

/// Can it be told to leave as it is?
pub(crate) fn can_leave(job: &Job) -> bool {
    let is_running = job.state() == State::Running && job.residence() == Residence::Here;
    let is_free = job.stopping.is_none() && !job.is_stopped && !job.record.residence.left_by_itself();
    is_running && is_free
}

impl Books {
    /// The jobs that leave when they are idle, and whether each left for that reason and is away.
    pub fn leave_when_idle(&self) -> impl Iterator<Item = (JobId, bool)> + '_ {
        let is_meant = |job: &&Job| job.state().holds_memory() && job.record.asked.idle_release_ns.is_some();
        let all = self.jobs.values().filter(is_meant);
        all.map(|job| {
            let is_away = job.residence() == Residence::Away && job.record.residence.left_idle;
            (job.id(), is_away)
        })
    }

    /// Does NVML show a device at work for it?
    pub(crate) fn is_at_work(&self, job: &Job) -> bool {
        let processes = self.processes(job.id());
        let of_job = |pid: u32| processes.iter().any(|process| process.pid == pid);
        job.record.devices.iter().any(|place| {
            let shown = self.processes_on(place.device).iter();
            let mut busy = shown.filter(|shown| shown.busy_ppm.unwrap_or(0) > 0);
            busy.any(|shown| of_job(shown.pid))
        })
    }
}
