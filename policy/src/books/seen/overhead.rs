// SPDX-License-Identifier: Apache-2.0
//! Memory that the driver holds beyond what calls asked for.

use crate::books::Books;
use crate::client::Presence;
use crate::device::Member;
use crate::job::Job;
use partage_protocol::units::DeviceUuid;
use partage_protocol::units::JobId;
use std::collections::BTreeMap;

impl Books {
    /// Clients of live jobs on a device, by pid. Those whose process ended are left out: what they hold is charged as
    /// it stands until it is gone. So are those of jobs that are not here: NVML cannot show what they have.
    pub(crate) fn members_on(&self, device: DeviceUuid) -> BTreeMap<u32, Vec<Member>> {
        let mut by_pid: BTreeMap<u32, Vec<Member>> = BTreeMap::new();
        let is_audited = |job: &&Job| job.state().holds_memory() && job.residence().is_audited();
        for job in self.jobs.values().filter(is_audited) {
            let Some(slot) = job.slot_of(device) else { continue };
            for client in &job.clients {
                let Some(known) = self.clients.get(client) else {
                    continue;
                };
                if known.presence != Presence::Dying {
                    let member = Member {
                        job: job.id(),
                        client: *client,
                        slot,
                    };
                    by_pid.entry(known.process.pid).or_default().push(member);
                }
            }
        }
        by_pid
    }

    /// What a job's owner should know of how its overhead is measured.
    pub(crate) fn overhead_notes(&self, job: &Job) -> Vec<String> {
        let mut notes = Vec::new();
        for client in &job.clients {
            let Some(pid) = self.clients.get(client).map(|client| client.process.pid) else {
                continue;
            };
            for (slot, _) in job.slots.iter().enumerate() {
                let Some(state) = self.overheads.get(*client, slot) else {
                    continue;
                };
                if state.is_unmeasured() {
                    notes.push(format!(
                        "pid {pid}: overhead is not measured on device {slot}, because NVML shows no memory for the \
                         process"
                    ));
                } else if state.is_unaudited() {
                    notes.push(format!(
                        "pid {pid} is unaudited on device {slot}: it allocated whenever the device was looked at"
                    ));
                }
            }
        }
        notes
    }

    /// What a context of the job's user has cost on a device.
    pub(crate) fn learned_of(&self, job: JobId, device: DeviceUuid) -> u64 {
        let uid = self.jobs.get(&job).map_or(0, |job| job.record.uid);
        let known = self.devices.get(&device);
        known.and_then(|device| device.learned.get(&uid)).copied().unwrap_or(0)
    }
}
