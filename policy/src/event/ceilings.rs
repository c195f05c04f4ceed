// SPDX-License-Identifier: Apache-2.0
//! The numbers that a registration or a change names, as they are written.

use super::{Change, Run};
use crate::registration::Ceiling;

impl Run {
    /// The numbers that it names.
    pub(super) fn ceiling(&self) -> Ceiling {
        let request = &self.request;
        let time_limit = request.time_limit_ns;
        Ceiling {
            mem: request.mem.clone(),
            mem_request: request.mem_request.clone(),
            process_mem: request.process_mem.clone(),
            promise: request.compute.clone(),
            cap: request.compute_max.clone(),
            weight: request.weight.clone(),
            priority: request.priority.clone(),
            time_limit: time_limit.map(|ns| format!("{}ms", ns.div_ceil(1_000_000))),
        }
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
