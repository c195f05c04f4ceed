// SPDX-License-Identifier: Apache-2.0
//! An admitted job as its `run` hears of it.

use crate::books::Books;
use crate::job::{JobRecord, Placement};
use partage_protocol::admin::Admitted;
use partage_protocol::size::format_bytes;
use partage_protocol::units::JobId;

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
