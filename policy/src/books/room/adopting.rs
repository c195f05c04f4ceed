// SPDX-License-Identifier: Apache-2.0
//! Clients of the broker before that are still awaited.

use crate::books::Books;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};

impl Books {
    /// Is a client of the broker before still awaited on this device?
    pub(crate) fn is_adopting(&self, device: DeviceUuid) -> bool {
        self.clients.awaited().iter().any(|client| {
            let job = self.clients.get(client).and_then(|client| self.jobs.get(&client.job));
            job.is_some_and(|job| job.slot_of(device).is_some())
        })
    }

    /// Is a client of this job still awaited?
    pub(crate) fn is_awaiting(&self, job: JobId) -> bool {
        let is_of_job = |client: &ClientId| self.clients.get(client).is_some_and(|client| client.job == job);
        self.clients.awaited().iter().any(is_of_job)
    }
}
