// SPDX-License-Identifier: Apache-2.0
//! The least limit that makes sense: a job whose limit is below what a context costs could not even begin.
//!
//! What a context costs on a device is known once one of the user's was measured there; until then nothing is refused.

use crate::books::Books;
use crate::device::Device;
use crate::refusal::{Refusal, Why};
use crate::request::RunSpec;

impl Books {
    /// # Errors
    /// `Impossible`, when on every device that the request could get its limit is below what a context of this user was
    /// measured to cost there.
    pub(crate) fn check_holds_a_context(&self, spec: &RunSpec, uid: u32) -> Result<(), Refusal> {
        let count = u32::try_from(spec.gpu.count(self.devices.len())).unwrap_or(1);
        // Which devices it would get is for placement to say; here it is enough that none would do.
        let short = |device: &Device| {
            let least = *device.learned.get(&uid)?;
            let amounts = spec
                .amounts(device.size(), &device.seen.uuid.to_string(), 0..count.max(1))
                .ok()?;
            let limit = amounts.limit.into_iter().chain(amounts.process).min();
            let limit = limit.filter(|limit| *limit < least)?;
            Some((device.seen.index, limit, least))
        };
        let found: Option<Vec<(u32, u64, u64)>> = self.devices.values().map(short).collect();
        match found.and_then(|found| found.into_iter().min_by_key(|(_, _, least)| *least)) {
            Some((gpu, limit, least)) => Err(Why::BelowContext(limit, least, gpu).into()),
            None => Ok(()),
        }
    }
}
