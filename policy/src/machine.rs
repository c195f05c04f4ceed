// SPDX-License-Identifier: Apache-2.0
//! Access to the clients' reservation words, the only state outside the policy that it touches.

use partage_protocol::job_ledger::{Pages, Words};
use partage_protocol::reservation::Word;
use partage_protocol::units::ClientId;

/// Where clients' reservation words are: the broker's ledger file and pages, or a model.
pub trait Machine {
    /// The word type.
    type Word: Word;
    /// The words of a client on a slot; `None` only for a client without a ledger row.
    fn words(&self, client: ClientId, slot: usize) -> Option<Words<'_, Self::Word>>;
    /// What the client's page says of a slot now; `None` while its pages are not reachable.
    fn reading(&self, client: ClientId, slot: usize) -> Option<Reading>;
}

/// One slot of a machine, as a job's ledger wants it.
pub(crate) struct OnSlot<'a, M> {
    pub machine: &'a M,
    pub slot: usize,
}

impl<M: Machine> Pages for OnSlot<'_, M> {
    type Word = M::Word;
    fn words(&self, client: ClientId) -> Option<Words<'_, M::Word>> {
        self.machine.words(client, self.slot)
    }
}

/// What a client's page says of one slot at an instant: hints, like all that a client writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reading {
    /// **U**.
    pub used: u64,
    /// The part of it that need not be on the device.
    pub managed: u64,
    /// Operations that began.
    pub started: u64,
    /// Operations that ended.
    pub finished: u64,
}

impl Reading {
    /// Is no operation between its driver call and its entry in the ledger?
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.started == self.finished
    }

    /// Bytes that the driver should hold for it: no more than it was granted, less what need not be on the device.
    #[must_use]
    pub fn charged(&self, ledger: u64) -> u64 {
        self.used.min(ledger).saturating_sub(self.managed)
    }
}

/// **O** of a client on a slot, as the broker's file has it.
pub(crate) fn overhead_of<M: Machine>(machine: &M, client: ClientId, slot: usize) -> u64 {
    machine.words(client, slot).map_or(0, |words| words.overhead.load())
}
