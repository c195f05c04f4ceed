// SPDX-License-Identifier: Apache-2.0
//! The numbers that a registration or a change names, as they are written.

use partage_protocol::size::{format_duration, parse_duration};

use super::{Change, Run};
use crate::registration::Ceiling;

impl Run {
    /// The numbers that it names.
    pub(super) fn ceiling(&self) -> Ceiling {
        let request = &self.request;
        Ceiling {
            mem: request.mem.clone(),
            mem_request: request.mem_request.clone(),
            process_mem: request.process_mem.clone(),
            promise: request.compute.clone(),
            cap: request.compute_max.clone(),
            weight: request.weight.clone(),
            priority: request.priority.clone(),
            time_limit: request.time_limit_ns.map(duration),
        }
    }
}

/// As people write it, where that says all of it.
fn duration(ns: u64) -> String {
    let text = format_duration(ns);
    match parse_duration(&text) {
        Ok(same) if same == ns => text,
        _ => format!("{}ms", ns.div_ceil(1_000_000)),
    }
}

impl Change {
    /// The numbers that it names.
    pub(crate) fn ceiling(&self) -> Ceiling {
        let terms = self.terms.clone();
        Ceiling {
            mem: self.mem.clone(),
            mem_request: self.mem_request.clone(),
            process_mem: self.process_mem.clone(),
            promise: terms.compute,
            cap: terms.compute_max,
            weight: terms.weight,
            priority: terms.priority,
            time_limit: terms.time_limit,
        }
    }
}
