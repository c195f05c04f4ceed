// SPDX-License-Identifier: Apache-2.0
//! A verdict as a client hears it: a denial for want of memory that a process still holds after its end is one of its
//! own.

use partage_protocol::message::{VERDICT_CARD_FULL, VERDICT_LIMIT, VERDICT_UNFREED};

use crate::job::Unfreed;

/// A verdict that goes with the numbers of the moment.
pub(crate) struct Said {
    /// One of `VERDICT_*`.
    pub(crate) verdict: u32,
    /// What is needed, in bytes, where that is said.
    pub(crate) needed: Option<u64>,
    /// Whose memory is in the way.
    pub(crate) unfreed: Option<Unfreed>,
}

impl Said {
    /// A verdict alone.
    pub(crate) const fn verdict(verdict: u32) -> Self {
        Self {
            verdict,
            needed: None,
            unfreed: None,
        }
    }

    /// A denial of the limit's or the card's is of whose memory is not free yet, where somebody's is not.
    pub(crate) fn denial(verdict: u32, needed: u64, unfreed: Option<Unfreed>) -> Self {
        let unfreed = unfreed.filter(|_| matches!(verdict, VERDICT_LIMIT | VERDICT_CARD_FULL));
        Self {
            verdict: unfreed.map_or(verdict, |_| VERDICT_UNFREED),
            needed: Some(needed),
            unfreed,
        }
    }
}
