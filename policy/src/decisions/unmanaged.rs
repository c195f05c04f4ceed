// SPDX-License-Identifier: Apache-2.0
//! GPU processes of no job that use a device's *time*, by NVML's figure for each; the scheduler cannot divide that
//! time.
//!
//! ```text
//!          a look shows 5 % and more              2 s of looks without
//!   quiet ──────────────────────────► busy ──────────────────────────► quiet
//! ```
//! A process that merely holds a context or memory takes no time. Where the driver does not say how busy a process is
//! (MIG instances, some vGPU guests), it is taken to use none: a wrong name would be worse than none.
//!
//! The scheduler splits a device's time evenly among the clients that have work. It counts one more
//! ([`UnmanagedLoad::Crowding`]) while unmanaged processes together use at least half of an even part and the device
//! has no idle time: only then do they always have work. A process that idle time could have served did not stand in a
//! job's way; counting it all the same would let a job exceed its cap. While it is not counted its time is charged to
//! the jobs, which then get too little of a cap. A process that uses less, or may use some, is reported as
//! [`UnmanagedLoad::Felt`](crate::device::UnmanagedLoad::Felt): its slices are inside the lengths that jobs' events
//! measure.

use partage_protocol::terms::{WHOLE_PPM, format_part};
use partage_protocol::units::{DeviceUuid, JobId};

use super::Policy;
use crate::action::Action;
use crate::event::{Measurement, ProcessUse};
use crate::job::Job;

impl Policy {
    /// Takes over what a look says of the time that processes of no job use.
    pub(crate) fn note_unmanaged_time(&mut self, measured: &Measurement, now_ns: u64) {
        let managed = self.managed_pids();
        let device = measured.device;
        let even = self.even_part(device);
        let Some(known) = self.devices.get_mut(&device) else {
            return;
        };
        let index = known.seen.index;
        let is_unmanaged = |process: &&ProcessUse| !managed.contains_key(&process.pid);
        let here: Vec<&ProcessUse> = measured.processes.iter().filter(is_unmanaged).collect();
        let parts = measured.processes.iter().filter_map(|process| process.busy_ppm);
        let all = parts.fold(0, u32::saturating_add);
        let told = known.see_unmanaged(&here, (all, even), now_ns);
        for (pid, job, part) in told {
            let broker = self.other_broker(device, pid);
            let numbers = self.busy_on(device, part);
            let part = format_part(part);
            let how = how_unmanaged(broker.as_deref());
            let text = format!("pid {pid} uses {part} of the time of GPU {index}{how}, which cannot share it out");
            self.publish_numbers("unmanaged-busy", (job, Some(pid)), text, numbers);
        }
        self.tell_unmanaged_load(device, now_ns);
    }

    /// Nothing is known of a device any more.
    pub(crate) fn forget_unmanaged_time(&mut self, device: DeviceUuid, now_ns: u64) {
        if let Some(known) = self.devices.get_mut(&device) {
            known.forget_unmanaged();
        }
        self.tell_unmanaged_load(device, now_ns);
    }

    fn tell_unmanaged_load(&mut self, device: DeviceUuid, now_ns: u64) {
        let Some(known) = self.devices.get_mut(&device) else {
            return;
        };
        let Some(load) = known.take_unmanaged_change(now_ns) else {
            return;
        };
        self.act(Action::ShowUnmanaged { device, load });
    }

    /// What each of a device's jobs with a program, and an unmanaged process beside them, had if all wanted it always.
    fn even_part(&self, device: DeviceUuid) -> u32 {
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
        let measured = self.devices.get(&device)?.measured.as_ref()?;
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
    fn other_broker(&self, device: DeviceUuid, pid: u32) -> Option<String> {
        let measured = self.devices.get(&device)?.measured.as_ref()?;
        let process = measured.processes.iter().find(|process| process.pid == pid)?;
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
    fn unmanaged_pids(&self, device: DeviceUuid) -> Option<String> {
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

/// ` without Partage`, or whose broker manages it.
fn how_unmanaged(other_broker: Option<&str>) -> String {
    match other_broker {
        Some(owner) => format!(", managed by {owner}'s broker and not by this one"),
        None => " without Partage".to_owned(),
    }
}
