// SPDX-License-Identifier: Apache-2.0
//! What waiting requests keep for themselves of the devices that they could use: nobody who asked later may delay them.
//!
//! Memory and time are queues of their own. A waiting request keeps the memory and the time that it asks for, on each
//! device that it could use; a later one gets what is left beside all of that, so that whatever an earlier one lacks comes
//! to it first:
//!
//! ```text
//!   passes  ⇔  it asks for no time,   or its promise ≤ time left − Σ time kept
//!         and  nobody keeps memory,   or all that it may come to use ≤ memory left − Σ memory kept
//! ```
//! What a job uses beyond its promise keeps memory from others as much as a promise does: beside a request for memory a
//! later one counts with its limit, and without a limit with the whole card.

use partage_protocol::units::{DeviceUuid, JobId};

/// What a request asks of one device that it could use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub device: DeviceUuid,
    pub bytes: u64,
    pub ppm: u64,
}

/// The wishes of waiting requests, the earliest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(Vec<(JobId, Wish)>);

impl Claims {
    /// A request waits, and wishes this.
    pub(crate) fn add(&mut self, job: JobId, wishes: Vec<Wish>) {
        self.0.extend(wishes.into_iter().map(|wish| (job, wish)));
    }

    /// Whom a later request would delay. `most` is all that it may come to use of the device, and all of its time that it
    /// is promised; `left` is what can be promised there.
    pub(crate) fn passed_by(&self, most: Wish, left: Wish) -> Option<JobId> {
        let here = || self.0.iter().filter(|(_, wish)| wish.device == most.device);
        let delayed = |amount: fn(&Wish) -> u64| {
            let mut wanting = here().filter(|(_, wish)| amount(wish) > 0).peekable();
            let first = wanting.peek()?.0;
            let kept = wanting.fold(0, |sum: u64, (_, wish)| sum.saturating_add(amount(wish)));
            let is_beside = amount(&most) <= amount(&left).saturating_sub(kept);
            (amount(&most) > 0 && !is_beside).then_some(first)
        };
        delayed(|wish| wish.bytes).or_else(|| delayed(|wish| wish.ppm))
    }
}
