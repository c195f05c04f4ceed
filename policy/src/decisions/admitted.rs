// SPDX-License-Identifier: Apache-2.0
//! What is done, and who hears of it, once a job is admitted.

use partage_protocol::units::JobId;

use super::Policy;
use crate::action::Action;
use crate::heard::Word;
use crate::job::Queued;
use crate::machine::Machine;
use crate::notice::{Figures, OfJob};

impl Policy {
    /// Tells everybody of the admission.
    pub(crate) fn announce_admission<M: Machine>(&mut self, id: JobId, queued: &Queued, machine: &M) {
        let Some(job) = self.books.jobs.get(&id) else { return };
        let record = job.record.clone();
        let what = OfJob::Starts(id, self.describe(&record.devices), record.terms.clone());
        self.act(Action::SaveJob(Box::new(record.clone())));
        self.show_terms(id);
        if let Some(process) = record.first {
            self.act(Action::Watch { job: id, process });
        }
        let devices = || record.devices.iter().map(|place| place.device);
        let accounts = devices().filter_map(|device| self.account(device, machine));
        let notes = accounts.filter_map(|account| account.overcommit_note());
        let notes = notes
            .chain(devices().filter_map(|device| self.time_note(device)))
            .collect();
        let pid = record.first.map(|first| first.pid);
        self.tell(queued.ticket, Word::Admitted(Box::new(record), notes));
        self.publish_numbers("job-admitted", (Some(id), pid), what, Figures::Job);
    }
}
