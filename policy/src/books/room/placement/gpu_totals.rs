// SPDX-License-Identifier: Apache-2.0
//! Totals of GPUs and jobs where devices are chosen for a request.

use super::{Candidate, Unplaced};
use crate::books::Books;
use crate::request::RunSpec;

impl Unplaced {
    /// A total of GPUs or jobs has no room. Nothing of a device is claimed for that.
    pub(super) fn by_total(reason: String, possible: &[Candidate<'_>]) -> Self {
        let devices = possible.iter().map(|candidate| candidate.device.seen.uuid);
        Self::NoRoom {
            reason,
            shortages: devices.map(|device| (device, (false, false))).collect(),
            wishes: Vec::new(),
        }
    }
}

impl Books {
    /// The first `count` that totals of GPUs allow.
    pub(super) fn within_gpu_totals<'a, 'b>(
        &self,
        spec: &RunSpec,
        free: Vec<(usize, &'b Candidate<'a>)>,
        count: usize,
        possible: &[Candidate<'_>],
    ) -> Result<Vec<(usize, &'b Candidate<'a>)>, Unplaced> {
        let totals = self.gpu_totals(&spec.totals, None);
        let (mut chosen, mut devices) = (Vec::new(), Vec::new());
        let mut full = None;
        for (order, candidate) in free {
            let device = candidate.device.seen.uuid;
            match totals.iter().find(|total| !total.allows(device, &devices)) {
                Some(total) => full = Some(total),
                None if chosen.len() < count => {
                    devices.push(device);
                    chosen.push((order, candidate));
                }
                None => break,
            }
        }
        match full {
            Some(total) if chosen.len() < count => Err(Unplaced::by_total(total.text(self), possible)),
            _ => Ok(chosen),
        }
    }
}
