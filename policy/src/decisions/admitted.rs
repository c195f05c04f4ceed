// SPDX-License-Identifier: Apache-2.0
//! The sentences about an admitted job.

use partage_protocol::admin::{Admitted, Reply};
use partage_protocol::size::format_bytes;
use partage_protocol::units::JobId;

use super::Policy;
use crate::action::Action;
use crate::job::{JobRecord, Placement, Queued};
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
    /// `GPU 3 (H200), limit 35.2 GiB`, comma-separated.
    pub(crate) fn describe(&self, places: &[Placement]) -> String {
        let one = |place: &Placement| {
            let name = self.devices.get(&place.device).map_or_else(
                || place.device.to_string(),
                |device| format!("GPU {} ({})", device.seen.index, device.seen.model),
            );
            let mut limit = place.limit.map_or("whole card".to_owned(), |limit| {
                format!("limit {}", format_bytes(limit))
            });
            if let Some(alias) = place.origin.alias() {
                limit.push_str(&format!(" ({alias})"));
            }
            if let Some(each) = place.process {
                limit.push_str(&format!(", at most {} for each process", format_bytes(each)));
            }
            match place.request {
                request if Some(request) == place.limit => format!("{name}, {limit}"),
                0 => format!("{name}, {limit}, nothing promised"),
                request => format!("{name}, {limit}, promised {}", format_bytes(request)),
            }
        };
        places.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// Tells everybody of the admission.
    pub(crate) fn announce_admission<M: Machine>(&mut self, id: JobId, queued: &Queued, machine: &M) {
        let Some(job) = self.jobs.get(&id) else { return };
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

    /// What is said of a job that was admitted, without notes.
    pub(crate) fn admitted(&self, record: &JobRecord) -> Admitted {
        let slots = 0..record.devices.len();
        Admitted {
            job: JobId(record.id).to_string(),
            token: record.token.iter().map(|byte| format!("{byte:02x}")).collect(),
            devices: slots.map(|slot| self.slot_view(JobId(record.id), slot, 0, 0)).collect(),
            is_private: self.config.is_private,
            notes: Vec::new(),
            terms: record.terms.view(Some(record.started_unix_ns), true),
        }
    }
}
