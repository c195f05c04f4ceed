// SPDX-License-Identifier: Apache-2.0
//! What waiting requests reserve on the devices that they could use, so that no later request delays them.
//!
//! Memory and time have separate queues. A waiting request keeps the memory and the time that it asks for, on each
//! device that it could use; a later one gets what is left beside all of that, so that whatever an earlier one lacks
//! comes to it first:
//!
//! ```text
//!   passes  ⇔  it asks for no time,   or its promise ≤ time left − Σ time kept
//!         and  nobody keeps memory,   or all that it may come to use ≤ memory left − Σ memory kept
//! ```
//! A job's use beyond its promise takes memory from others like a promise. So while a request for memory waits, a later
//! one counts with its limit; without a limit, with the whole card.

use std::collections::BTreeMap;

use partage_protocol::units::{DeviceUuid, JobId};

/// What a request asks of one device that it could use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub device: DeviceUuid,
    pub bytes: u64,
    pub ppm: u64,
}

/// What is kept of one thing, and the earliest request that keeps some.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    first: Option<JobId>,
    sum: u64,
}

/// The wishes of waiting requests, by device: memory, and time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(BTreeMap<DeviceUuid, [Kept; 2]>);

impl Claims {
    /// A request waits, and wishes this; those before it were added before.
    pub(crate) fn add(&mut self, job: JobId, wishes: Vec<Wish>) {
        for wish in wishes {
            let kept = self.0.entry(wish.device).or_default();
            for (kept, amount) in kept.iter_mut().zip([wish.bytes, wish.ppm]) {
                if amount > 0 {
                    kept.first.get_or_insert(job);
                    kept.sum = kept.sum.saturating_add(amount);
                }
            }
        }
    }

    /// Whom a later request would delay. `most` is all that it may come to use of the device, and all of its time that
    /// it is promised; `left` is what can be promised there.
    pub(crate) fn passed_by(&self, most: Wish, left: Wish) -> Option<JobId> {
        let [bytes, ppm] = self.0.get(&most.device)?;
        let delayed = |kept: &Kept, most: u64, left: u64| {
            let is_beside = most <= left.saturating_sub(kept.sum);
            kept.first.filter(|_| most > 0 && !is_beside)
        };
        delayed(bytes, most.bytes, left.bytes).or_else(|| delayed(ppm, most.ppm, left.ppm))
    }
}
