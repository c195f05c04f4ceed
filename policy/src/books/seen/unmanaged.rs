// SPDX-License-Identifier: Apache-2.0
//! Time that processes of no job use.

use crate::books::Books;
use crate::event::ProcessUse;
use crate::job::Job;
use partage_protocol::terms::{WHOLE_PPM, format_part};
use partage_protocol::units::{DeviceUuid, JobId};

/// ` without Partage`, or whose broker manages it.
pub(crate) fn how_unmanaged(other_broker: Option<&str>) -> String {
    match other_broker {
        Some(owner) => format!(", managed by {owner}'s broker and not by this one"),
        None => " without Partage".to_owned(),
    }
}

impl Books {
    /// What each of a device's jobs with a program, and an unmanaged process beside them, had if all wanted it always.
    pub(crate) fn even_part(&self, device: DeviceUuid) -> u32 {
        let is_here =
            |job: &&Job| job.state().may_get_time() && !job.clients.is_empty() && job.slot_of(device).is_some();
        let count = self.jobs.values().filter(is_here).count();
        WHOLE_PPM / u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1).max(1)
    }

    /// The processes of no job that were busy on a device of late, the busiest first, with their newest figures.
    pub(crate) fn busy_unmanaged(&self, device: DeviceUuid) -> Vec<(u32, u32)> {
        let known = self.devices.get(&device).into_iter();
        let mut busy: Vec<(u32, u32)> = known.flat_map(|known| known.unmanaged.busy()).collect();
        busy.sort_by_key(|(pid, part)| (std::cmp::Reverse(*part), *pid));
        busy
    }

    /// The part of a device's time that processes of no job use; none where the driver does not say it of one of them.
    pub(crate) fn unmanaged_part(&self, device: DeviceUuid) -> Option<u32> {
        self.devices.get(&device)?.unmanaged.part_ppm()
    }

    /// The part of a device's time that NVML shows for the programs of a job; none where it says nothing.
    pub(crate) fn shown_part(&self, job: JobId, device: DeviceUuid) -> Option<u32> {
        let managed = self.managed_pids();
        let measured = self.measured(device)?;
        let of_job = |process: &&ProcessUse| managed.get(&process.pid) == Some(&job);
        let mut parts = measured
            .processes
            .iter()
            .filter(of_job)
            .map(|process| process.busy_ppm)
            .peekable();
        parts.peek()?;
        parts.try_fold(0, |sum: u32, part| Some(sum.saturating_add(part?).min(WHOLE_PPM)))
    }

    /// The user whose private broker manages an unmanaged process, where that is known.
    pub(crate) fn other_broker(&self, device: DeviceUuid, pid: u32) -> Option<String> {
        let process = self.processes_on(device).iter().find(|process| process.pid == pid)?;
        process.other_broker.clone()
    }

    /// Is this the broker of one user?
    pub(crate) fn is_private_broker(&self) -> bool {
        self.config.is_private
    }

    /// The user whose private broker manages all the busy unmanaged processes of a device.
    pub(crate) fn busy_other_broker(&self, device: DeviceUuid) -> Option<String> {
        let busy = self.busy_unmanaged(device);
        let mut owners = busy.iter().map(|(pid, _)| self.other_broker(device, *pid));
        let first = owners.next()??;
        owners.all(|owner| owner.as_ref() == Some(&first)).then_some(first)
    }

    /// `pid 77 uses 48 % of its time without Partage`; nothing where nobody of no job is busy.
    pub(crate) fn unmanaged_text(&self, device: DeviceUuid) -> Option<String> {
        let how = how_unmanaged(self.busy_other_broker(device).as_deref());
        Some(self.unmanaged_pids(device)? + &how)
    }

    /// `pid 77 uses 48 % of its time`.
    pub(crate) fn unmanaged_pids(&self, device: DeviceUuid) -> Option<String> {
        let busy = self.busy_unmanaged(device);
        let sum = busy.iter().fold(0, |sum: u32, (_, part)| sum.saturating_add(*part));
        let sum = format_part(sum.min(WHOLE_PPM));
        let pids: Vec<String> = busy.iter().take(4).map(|(pid, _)| pid.to_string()).collect();
        match (pids.as_slice(), busy.len()) {
            ([], _) => None,
            ([pid], _) => Some(format!("pid {pid} uses {sum} of its time")),
            (pids, count) => {
                let more = if count > pids.len() { " and others" } else { "" };
                Some(format!("pids {}{more} use {sum} of its time", pids.join(", ")))
            }
        }
    }
}
