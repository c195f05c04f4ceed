// SPDX-License-Identifier: Apache-2.0
//! The words of a client, and where they are.

use crate::reservation::Word;
use crate::units::ClientId;

/// The words of one client on the job's device.
pub struct Words<'a, W> {
    /// **L** in the broker's file.
    pub ledger: &'a W,
    /// **O** in the broker's file.
    pub overhead: &'a W,
    /// **P** in the broker's file: 0, or what has to be had again before the client's memory comes back.
    pub owed: &'a W,
    /// The shared words; none when the pages are not (or no longer) reachable: such a member keeps its L as it is.
    pub shared: Option<Shared<'a, W>>,
}

impl<W: Word> Words<'_, W> {
    /// What the client uses, in bytes: min(U, L), or L where its pages are lost, + O. U beyond L is a charge that is
    /// being undone or a client's lie; neither holds memory that the driver was allowed to give.
    pub fn used(&self) -> u64 {
        let ledger = self.ledger.load();
        let charged = self
            .shared
            .as_ref()
            .map_or(ledger, |shared| shared.used.load().min(ledger));
        charged.saturating_add(self.overhead.load())
    }
}

/// The words in the two pages.
pub struct Shared<'a, W> {
    /// **G**.
    pub granted: &'a W,
    /// **U**.
    pub used: &'a W,
    /// Granted asks that the client has used or given up.
    pub settled: &'a W,
}

/// Where a client's words are.
pub trait Pages {
    /// The machine's atomic word, or a model's.
    type Word: Word;
    /// The words of a member; `None` only for a client that is not one.
    fn words(&self, client: ClientId) -> Option<Words<'_, Self::Word>>;
}
