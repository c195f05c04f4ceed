// SPDX-License-Identifier: Apache-2.0
//! What one process of a job may hold of a device.

use super::{CardSize, Judge, Said, within};
use crate::rules::NotAllowed;

impl Judge {
    /// The limit of each process on a device of this size, and what set it. Without one the job's limit alone holds.
    ///
    /// # Errors
    /// [`NotAllowed::Above`] where something firm is above a rule.
    pub fn process_limit(
        &self,
        asked: Option<&Said<Option<u64>>>,
        size: CardSize,
    ) -> Result<(Option<u64>, String), NotAllowed> {
        const NONE: u64 = u64::MAX;
        let usable = size.usable;
        let start = self.preset.as_ref().and_then(|preset| {
            let written = preset.process_mem.as_ref()?;
            let bytes = written.value.on(usable).min(usable);
            self.said(preset, "process_mem", &preset.process_mem, bytes)
        });
        let wanted = asked.map(|said| said.with(said.value.unwrap_or(NONE))).or(start);
        let caps = self.caps.process_mem.iter().map(|cap| cap.with(cap.value.on(usable)));
        let cap = caps
            .filter(|cap| cap.value < size.total)
            .min_by(|one, other| one.stricter(other));
        let limit = within(wanted, Said::soft(NONE, ""), cap.as_ref())?;
        Ok((Some(limit.value).filter(|limit| *limit != NONE), limit.words))
    }
}
