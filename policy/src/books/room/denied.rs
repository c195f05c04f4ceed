// SPDX-License-Identifier: Apache-2.0
//! Who has the memory that a denied request would have needed.

use crate::books::Books;
use crate::device::DeviceAccount;
use crate::job::Reason;
use crate::machine::Machine;
use partage_protocol::units::{DeviceUuid, JobId};

impl Books {
    /// Whose memory was in the way: everybody's on the device, or that of the jobs that share a total, and its words.
    pub(crate) fn in_the_way<M: Machine>(
        &self,
        job: JobId,
        device: Option<DeviceUuid>,
        reason: Reason,
        machine: &M,
    ) -> (Option<DeviceAccount>, Option<String>) {
        let bound = device.filter(|_| reason == Reason::Total);
        if let Some(bound) = bound.and_then(|device| self.tightest_bound(job, device, machine)) {
            return (Some(bound.account), Some(bound.words));
        }
        let of_card = device.filter(|_| reason.is_of_card());
        (of_card.and_then(|device| self.account(device, machine)), None)
    }
}
