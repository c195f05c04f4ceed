// SPDX-License-Identifier: Apache-2.0
//! The documents of what commands are told.

use partage_protocol::admin::{Admitted, ForeseenDevice, Reply, Waiting};
use partage_protocol::units::JobId;

use crate::books::Books;
use crate::books::room::foreseen::Foreseen;
use crate::heard::{Heard, Word};
use crate::holding::Holding;
use crate::job::JobRecord;
use crate::machine::Machine;

impl Heard {
    /// The document that the command gets.
    pub fn reply<M: Machine>(self, books: &Books, machine: &M) -> Reply {
        match self.0 {
            Word::Waiting(position, reason, holders) => Reply::Waiting(Waiting {
                position,
                reason,
                holders: holders.iter().map(Holding::view).collect(),
            }),
            Word::Admitted(record, notes) => Reply::Admitted(admitted(books, &record, notes)),
            Word::Done(message) => Reply::Done { message },
            Word::Job(seen) => Reply::Job(books.view(&seen.0, &seen.1, machine)),
            Word::Inside(seen) => Reply::Inside(Box::new(books.view(&seen.0, &seen.1, machine))),
            Word::Foreseen(devices) => Reply::Foreseen {
                devices: devices.iter().map(foreseen).collect(),
            },
            Word::Refused(why) => Reply::Error(why.view()),
        }
    }
}

fn foreseen(device: &Foreseen) -> ForeseenDevice {
    ForeseenDevice {
        uuid: device.device.to_string(),
        index: device.index,
        total_bytes: device.total_bytes,
        limit_bytes: device.limit_bytes,
    }
}

fn admitted(books: &Books, record: &JobRecord, notes: Vec<String>) -> Admitted {
    let slots = 0..record.devices.len();
    Admitted {
        job: JobId(record.id).to_string(),
        token: record.token.iter().map(|byte| format!("{byte:02x}")).collect(),
        devices: slots
            .map(|slot| books.slot_view(JobId(record.id), slot, 0, 0))
            .collect(),
        is_private: books.config.is_private,
        notes,
        terms: record.terms.view(Some(record.started_unix_ns), true),
    }
}
