// SPDX-License-Identifier: Apache-2.0
//! The words and pages of all clients as they were at one moment.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use partage_policy::{Machine, Reading};
use partage_protocol::job_ledger::{Shared, Words};
use partage_protocol::reservation::Word;
use partage_protocol::units::ClientId;

/// One slot of one client.
#[derive(Debug)]
struct FrozenSlot {
    ledger: AtomicU64,
    overhead: AtomicU64,
    owed: AtomicU64,
    /// G, U and the settled asks; none while the client's pages are not reachable.
    shared: Option<[AtomicU64; 3]>,
    reading: Option<Reading>,
}

/// A machine that stands still: plain values that no client writes to. Its words are atomic because the policy asks
/// for words; nobody changes them.
#[derive(Debug, Default)]
pub struct Frozen(BTreeMap<ClientId, Vec<FrozenSlot>>);

impl Frozen {
    /// A copy of these clients' words, each on so many slots.
    pub fn of<M: Machine>(machine: &M, clients: impl Iterator<Item = (ClientId, usize)>) -> Self {
        let slots_of = |(client, slots): (ClientId, usize)| {
            let slots = (0..slots).map_while(|slot| FrozenSlot::of(machine, client, slot));
            (client, slots.collect())
        };
        Self(clients.map(slots_of).collect())
    }

    fn slot(&self, client: ClientId, slot: usize) -> Option<&FrozenSlot> {
        self.0.get(&client)?.get(slot)
    }
}

impl FrozenSlot {
    fn of<M: Machine>(machine: &M, client: ClientId, slot: usize) -> Option<Self> {
        let copied = |word: &M::Word| AtomicU64::new(word.load());
        let words = machine.words(client, slot)?;
        let shared = words
            .shared
            .map(|shared| [shared.granted, shared.used, shared.settled].map(copied));
        Some(Self {
            ledger: copied(words.ledger),
            overhead: copied(words.overhead),
            owed: copied(words.owed),
            shared,
            reading: machine.reading(client, slot),
        })
    }
}

impl Machine for Frozen {
    type Word = AtomicU64;

    fn words(&self, client: ClientId, slot: usize) -> Option<Words<'_, AtomicU64>> {
        let slot = self.slot(client, slot)?;
        let shared = slot
            .shared
            .as_ref()
            .map(|[granted, used, settled]| Shared { granted, used, settled });
        Some(Words {
            ledger: &slot.ledger,
            overhead: &slot.overhead,
            owed: &slot.owed,
            shared,
        })
    }

    fn reading(&self, client: ClientId, slot: usize) -> Option<Reading> {
        self.slot(client, slot)?.reading
    }
}
