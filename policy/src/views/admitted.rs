// SPDX-License-Identifier: Apache-2.0
//! An admitted job as its `run` hears of it.

use crate::books::Books;
use crate::job::Placement;
use partage_protocol::size::format_bytes;

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
