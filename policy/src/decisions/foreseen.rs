// SPDX-License-Identifier: Apache-2.0
//! What a program of `run --lazy` is shown by NVML before it uses a GPU: the devices that its job would have now.
//!
//! Nothing is promised, and nobody waits: what the job gets at its first use is decided then.

use partage_protocol::units::JobId;

use super::Policy;
use crate::books::room::placement::Unplaced;
use crate::caller::Ticket;
use crate::heard::Word;
use crate::machine::Machine;
use crate::request::RunSpec;

impl Policy {
    /// Answers with the devices of the job that lives with the request's token, else with those that it would have.
    pub(super) fn foresee<M: Machine>(
        &mut self,
        ticket: Ticket,
        (spec, living): (&RunSpec, Option<JobId>),
        before: usize,
        machine: &M,
    ) {
        let of_job = living
            .and_then(|id| self.books.jobs.get(&id))
            .map(|job| &job.record.devices);
        let of_job = of_job.map(|places| places.iter().map(|place| (place.device, place.limit)).collect());
        let found = of_job.map_or_else(|| self.would_have(spec, before, machine), Ok);
        match found {
            Ok(places) => {
                let devices = places.into_iter().map(|place| self.foreseen(place)).collect();
                self.tell(ticket, Word::Foreseen(devices));
            }
            Err(Unplaced::Refused(why)) => self.refuse(ticket, why),
            Err(Unplaced::NoRoom { .. }) => {}
        }
    }
}
