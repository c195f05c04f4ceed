// SPDX-License-Identifier: Apache-2.0
//! The pages of this process's own that stand for the shared ones while no broker has answered.
//!
//! Every word of them is used under the ledger's lock, because a late attach may carry it over to a shared page at any
//! moment ([`move_in`](super::own_use::move_in)); from then on its place is there.

use core::sync::atomic::Ordering;

use partage_protocol::page::{BrokerPage, ClientPage};

/// The own pages. All-zero memory is such pages.
pub struct OwnPages {
    /// Stands for the broker's page.
    pub broker: BrokerPage,
    /// Stands for the client's page.
    pub client: ClientPage,
}

impl OwnPages {
    /// What this process uses on a slot that no broker has numbered yet.
    pub fn used(&self, slot: usize) -> u64 {
        let line = self.client.devices.get(slot);
        line.map_or(0, |line| line.used.load(Ordering::Relaxed))
    }

    /// G of such a slot.
    pub fn granted(&self, slot: usize) -> u64 {
        let line = self.broker.devices.get(slot);
        line.map_or(0, |line| line.granted.load(Ordering::SeqCst))
    }

    /// Gives every slot a grant and a limit, before the phase becomes `Standalone`.
    pub fn begin(&self, granted: u64, limit: u64) {
        for line in &self.broker.devices {
            line.granted.store(granted, Ordering::Relaxed);
            line.limit.store(limit, Ordering::Relaxed);
        }
    }
}
