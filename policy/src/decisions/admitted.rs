// SPDX-License-Identifier: Apache-2.0
//! The sentences about an admitted job.

use partage_protocol::admin::{Admitted, Reply};
use partage_protocol::units::JobId;

use super::Policy;
use crate::action::Action;
use crate::job::Queued;
use crate::machine::Machine;
use crate::terms::Terms;

/// `, promise 30 %, cap 50 %`; empty for the usual terms.
pub(crate) fn terms_after(terms: &Terms) -> String {
    match terms.shown() {
        text if text.is_empty() => text,
        text => format!(", {text}"),
    }
}

impl Policy {
    /// Tells everybody of the admission.
    pub(crate) fn announce_admission<M: Machine>(&mut self, id: JobId, queued: &Queued, machine: &M) {
        let Some(job) = self.books.jobs.get(&id) else { return };
        let record = job.record.clone();
        let on = self.describe(&record.devices) + &terms_after(&record.terms);
        self.act(Action::SaveJob(Box::new(record.clone())));
        self.show_terms(id);
        if let Some(process) = record.first {
            self.act(Action::Watch { job: id, process });
        }
        let accounts = record
            .devices
            .iter()
            .filter_map(|place| self.account(place.device, machine));
        let reply = Reply::Admitted(Admitted {
            notes: accounts
                .filter_map(|account| account.overcommit_note())
                .chain(record.devices.iter().filter_map(|place| self.time_note(place.device)))
                .collect(),
            ..self.admitted(&record)
        });
        self.reply(queued.ticket, reply);
        let pid = record.first.map(|first| first.pid);
        let numbers = self.job_numbers(id);
        self.publish_numbers("job-admitted", (Some(id), pid), format!("{id} starts on {on}"), numbers);
    }
}
