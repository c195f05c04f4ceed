// SPDX-License-Identifier: Apache-2.0
//! What enumeration and polls show of devices, and what follows for their jobs.

use crate::action::Action;
use crate::device::Seen;
use std::collections::BTreeSet;

use partage_protocol::units::{DeviceUuid, JobId};

use super::Policy;
use crate::device::{Device, DeviceState};
use crate::event::{DeviceSeen, DriverState, Measurement};
use crate::job::Job;
use crate::machine::{Machine, OnSlot};
use crate::notice::{Figures, Notice};
use crate::residence::Residence;
use crate::sick::DeviceNews;

impl Policy {
    pub(crate) fn see_devices<M: Machine>(
        &mut self,
        driver: DriverState,
        found: Vec<DeviceSeen>,
        machine: &M,
        now_ns: u64,
    ) {
        self.books.note_driver(driver);
        let present: BTreeSet<DeviceUuid> = found.iter().map(|seen| seen.uuid).collect();
        for seen in found {
            let uuid = seen.uuid;
            match self.books.devices.get_mut(&uuid) {
                Some(known) if known.state != DeviceState::Lost => known.see(seen),
                lost => {
                    let usable_before = lost.map_or(0, |lost| lost.most_usable);
                    let what = Notice::Found(seen.index, seen.model.clone(), seen.total_bytes);
                    let mut device = Device::new(seen);
                    device.note_usable(usable_before);
                    self.books.devices.insert(uuid, device);
                    self.publish("device-found", None, None, what);
                }
            }
            self.share_headroom(uuid, machine, now_ns);
        }
        let missing: Vec<DeviceUuid> = self
            .books
            .devices
            .keys()
            .filter(|uuid| !present.contains(uuid))
            .copied()
            .collect();
        for device in missing {
            self.lose_device(device, Notice::NotShown().to_string(), machine, now_ns);
        }
    }

    pub(crate) fn lose_device<M: Machine>(&mut self, device: DeviceUuid, why: String, machine: &M, now_ns: u64) {
        let Some(known) = self
            .books
            .devices
            .get_mut(&device)
            .filter(|known| known.state != DeviceState::Lost)
        else {
            return;
        };
        known.lose(&why);
        let what = Notice::Lost(known.seen.index, why);
        for job in self
            .books
            .jobs
            .values_mut()
            .filter(|job| job.state().holds_memory() && job.slot_of(device).is_some())
        {
            job.note(&what);
        }
        self.publish("device-lost", None, None, what);
        self.forget_unmanaged_time(device, now_ns);
        // Nobody waits for a device that does not answer.
        for waiting in self.books.overheads.take_waiting_on(device) {
            self.finish_measuring(&waiting, Seen::Nothing, machine, now_ns);
        }
    }

    pub(crate) fn measure<M: Machine>(&mut self, measured: Measurement, machine: &M, now_ns: u64) {
        let device = measured.device;
        self.note_unmanaged(&measured, now_ns);
        self.note_unmanaged_time(&measured, now_ns);
        let has_failed = measured.telemetry.has_remap_failed;
        if has_failed.is_some() || self.books.health.contains_key(&device) {
            self.hear_of_device(device, DeviceNews::Remapping(has_failed), now_ns);
        }
        let known = self.books.devices.get_mut(&device);
        if !known.is_some_and(|known| known.take(measured)) {
            return;
        }
        self.note_shown_time(device);
        self.count_unmeasured(device, now_ns);
        self.take_overheads(device, machine, now_ns);
        self.answer_unmanaged(device, now_ns);
        let jobs: Vec<JobId> = self
            .books
            .jobs
            .values()
            .filter(|job| job.state().holds_memory() && job.slot_of(device).is_some())
            .map(Job::id)
            .collect();
        for job in jobs {
            self.note_peaks(job, machine);
            self.bar_drifting(job, machine, now_ns);
            self.follow_falling_use(job, machine, now_ns);
        }
        self.share_headroom(device, machine, now_ns);
    }

    /// A job over its limit gives up what it freed.
    fn follow_falling_use<M: Machine>(&mut self, job: JobId, machine: &M, now_ns: u64) {
        // The words of a job that is not here change with its passage alone.
        let Some(job) = self
            .books
            .jobs
            .get_mut(&job)
            .filter(|job| job.residence() == Residence::Here)
        else {
            return;
        };
        for (slot, state) in job.slots_mut() {
            state.follow_falling_use(&OnSlot { machine, slot }, now_ns);
        }
    }

    /// Names every process that uses the device without being managed, once.
    fn note_unmanaged(&mut self, measured: &Measurement, now_ns: u64) {
        let managed = self.managed_pids();
        let unmanaged: Vec<_> = measured
            .processes
            .iter()
            .filter(|process| !managed.contains_key(&process.pid))
            .cloned()
            .collect();
        for process in &unmanaged {
            let job = process
                .descends_from
                .filter(|id| self.books.jobs.get(id).is_some_and(|job| job.state().takes_processes()));
            let Some(known) = self.books.devices.get_mut(&measured.device) else {
                return;
            };
            let is_new = known.announce(process.pid);
            let index = known.seen.index;
            let Some(id) = job else {
                if is_new {
                    let what = Notice::Uses(process.pid, process.bytes, index);
                    let used = Figures::Used(measured.device, process.bytes);
                    self.publish_numbers("unmanaged", (None, Some(process.pid)), what, used);
                }
                continue;
            };
            let Some(state) = self.books.jobs.get_mut(&id) else {
                continue;
            };
            if state.see_unmanaged(process.pid, now_ns) {
                let pid = process.pid;
                let what = Notice::Unlimited(pid, id, index);
                state.note(&what);
                self.act(Action::tell(id, &what));
                let used = Figures::Used(measured.device, process.bytes);
                self.publish_numbers("unmanaged", (Some(id), Some(pid)), what, used);
            }
        }
        self.forget_unmanaged(measured);
    }

    /// Drops unmanaged processes that no device shows any more.
    fn forget_unmanaged(&mut self, measured: &Measurement) {
        let mut shown: BTreeSet<u32> = measured.processes.iter().map(|process| process.pid).collect();
        let others = self
            .books
            .devices
            .values()
            .filter(|device| device.seen.uuid != measured.device);
        shown.extend(
            others
                .filter_map(|device| device.measured.as_ref())
                .flat_map(|m| &m.processes)
                .map(|p| p.pid),
        );
        for job in self.books.jobs.values_mut() {
            job.keep_unmanaged(&shown);
        }
        if let Some(device) = self.books.devices.get_mut(&measured.device) {
            device.keep_announced(&shown);
        }
    }
}
