// SPDX-License-Identifier: Apache-2.0
//! GPU processes of no job that use a device's *time*, by what NVML shows of each: nobody can share that out.
//!
//! ```text
//!          a look shows 5 % and more              2 s of looks without
//!   quiet ──────────────────────────► busy ──────────────────────────► quiet
//! ```
//! Merely holding a context or memory takes no time. Where the driver does not say how busy a process is (MIG instances,
//! some vGPU guests) nobody is taken to be: a wrong name would be worse than none.
//!
//! Whoever shares the device out splits the time of everybody who has work evenly, and is told to count one more while the
//! strangers together use at least half of an even part and nothing of the device is idle: then they always have work. Whom
//! a device with idle time could have served at once did not stand in a job's way all the time: counted all the same, he
//! would let a cap be exceeded. Not counted, his time is charged to the jobs, which then have too little of a cap. Whoever
//! uses any time to speak of, or may, is told of as well: what a job's events tell has his slices in it.

use partage_protocol::terms::{WHOLE_PPM, format_part};
use partage_protocol::units::{DeviceUuid, JobId};

use super::Policy;
use crate::command::Action;
use crate::device::Strangers;
use crate::event::{Measurement, ProcessUse};
use crate::job::Job;

impl Policy {
    /// Takes over what a look says of the time that processes of no job use.
    pub(crate) fn note_strangers_time(&mut self, measured: &Measurement, now_ns: u64) {
        let managed = self.managed_pids();
        let device = measured.device;
        let even = self.even_part(device);
        let Some(known) = self.devices.get_mut(&device) else {
            return;
        };
        let index = known.seen.index;
        let is_stranger = |process: &&ProcessUse| !managed.contains_key(&process.pid);
        let here: Vec<&ProcessUse> = measured.processes.iter().filter(is_stranger).collect();
        let parts = measured.processes.iter().filter_map(|process| process.busy_ppm);
        let all = parts.fold(0, u32::saturating_add);
        let told = known.see_unmanaged(&here, (all, even), now_ns);
        for (pid, job, part) in told {
            let part = format_part(part);
            let text =
                format!("pid {pid} uses {part} of the time of GPU {index} without Partage, which cannot share it out");
            self.publish("unmanaged-busy", job, Some(pid), text);
        }
        self.show_crowd(device, now_ns);
    }

    /// Nothing is known of a device any more.
    pub(crate) fn forget_strangers_time(&mut self, device: DeviceUuid, now_ns: u64) {
        if let Some(known) = self.devices.get_mut(&device) {
            known.forget_unmanaged();
        }
        self.show_crowd(device, now_ns);
    }

    fn show_crowd(&mut self, device: DeviceUuid, now_ns: u64) {
        let Some(known) = self.devices.get_mut(&device) else {
            return;
        };
        let Some(strangers) = known.take_unmanaged_change(now_ns) else {
            return;
        };
        let reason = match strangers {
            Strangers::Quiet => "processes of no job use the device's time no longer",
            Strangers::Crowding => "processes of no job use the device's time",
            Strangers::Felt => "processes of no job may use some of the device's time",
        };
        self.command(Action::ShowUnmanaged { device, strangers }, reason);
    }

    /// What each of a device's jobs with a program, and a stranger beside them, had if all wanted it always.
    fn even_part(&self, device: DeviceUuid) -> u32 {
        let is_here =
            |job: &&Job| job.state().may_get_time() && !job.clients.is_empty() && job.slot_of(device).is_some();
        let count = self.jobs.values().filter(is_here).count();
        WHOLE_PPM / u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1).max(1)
    }

    /// The processes of no job that were busy on a device of late, the busiest first, with their newest figures.
    pub(crate) fn busy_strangers(&self, device: DeviceUuid) -> Vec<(u32, u32)> {
        let known = self.devices.get(&device).into_iter();
        let mut busy: Vec<(u32, u32)> = known.flat_map(|known| known.unmanaged.busy()).collect();
        busy.sort_by_key(|(pid, part)| (std::cmp::Reverse(*part), *pid));
        busy
    }

    /// The part of a device's time that processes of no job use; none where the driver does not say it of one of them.
    pub(crate) fn strangers_part(&self, device: DeviceUuid) -> Option<u32> {
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

    /// `pid 77 uses 48 % of its time`; nothing where nobody of no job is busy.
    pub(crate) fn strangers_text(&self, device: DeviceUuid) -> Option<String> {
        let busy = self.busy_strangers(device);
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
