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

use crate::books::seen::unmanaged::how_unmanaged;
use partage_protocol::units::DeviceUuid;

use super::Policy;
use crate::action::Action;
use crate::event::{Measurement, ProcessUse};
use crate::notice::{Figures, Notice};

impl Policy {
    /// Takes over what a look says of the time that processes of no job use.
    pub(crate) fn note_unmanaged_time(&mut self, measured: &Measurement, now_ns: u64) {
        let managed = self.managed_pids();
        let device = measured.device;
        let even = self.even_part(device);
        let Some(known) = self.books.devices.get_mut(&device) else {
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
            let how = how_unmanaged(broker.as_deref());
            let what = Notice::Busy(pid, part, index, how);
            self.publish_numbers("unmanaged-busy", (job, Some(pid)), what, Figures::Busy(device, part));
        }
        self.tell_unmanaged_load(device, now_ns);
    }

    /// Nothing is known of a device any more.
    pub(crate) fn forget_unmanaged_time(&mut self, device: DeviceUuid, now_ns: u64) {
        if let Some(known) = self.books.devices.get_mut(&device) {
            known.forget_unmanaged();
        }
        self.tell_unmanaged_load(device, now_ns);
    }

    fn tell_unmanaged_load(&mut self, device: DeviceUuid, now_ns: u64) {
        let Some(known) = self.books.devices.get_mut(&device) else {
            return;
        };
        let Some(load) = known.take_unmanaged_change(now_ns) else {
            return;
        };
        self.act(Action::ShowUnmanaged { device, load });
    }
}
