// SPDX-License-Identifier: Apache-2.0
//! The documents of what commands are told.

use std::fmt::{Display, Formatter, Result};

use partage_protocol::admin::{Admitted, ForeseenDevice, Holder, Reply, Waiting};
use partage_protocol::size::format_bytes;
use partage_protocol::terms::ratio;
use partage_protocol::units::JobId;

use crate::books::Books;
use crate::books::room::foreseen::Foreseen;
use crate::heard::{Heard, Word};
use crate::holding::{Holding, Who};
use crate::job::{JobRecord, Placement};
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
        pid: record.first.map_or(0, |first| first.pid),
    }
}

impl Books {
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
}

impl Display for Who {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::Job(job) => job.fmt(out),
            Self::Process(pid) => write!(out, "pid {pid}"),
            Self::Host => out.write_str("the host"),
            Self::Hidden => out.write_str("processes not visible"),
        }
    }
}

impl Holding {
    /// As callers get it.
    pub(crate) fn view(&self) -> Holder {
        Holder {
            who: self.who.to_string(),
            gpu: self.gpu,
            bytes: self.bytes,
            compute: self.ppm.map(ratio),
        }
    }
}
