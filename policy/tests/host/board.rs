// SPDX-License-Identifier: Apache-2.0
//! The words of the host's clients: the broker's file and the clients' pages.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use partage_policy::{Machine, Reading};
use partage_protocol::job_ledger::{Shared, Words};
use partage_protocol::message::MAX_DEVICES;
use partage_protocol::units::ClientId;

/// L, G, U, settled, O, managed, started, finished and P of one slot.
#[derive(Default)]
pub struct Line(pub [AtomicU64; 9]);

/// Positions of the words.
pub const USED: usize = 2;
pub const OVERHEAD: usize = 4;
pub const MANAGED: usize = 5;
pub const STARTED: usize = 6;
pub const FINISHED: usize = 7;

#[derive(Default)]
pub struct Board {
    pub rows: BTreeMap<ClientId, [Line; MAX_DEVICES]>,
    /// Clients whose pages are not reachable.
    pub lost: Vec<ClientId>,
}

impl Machine for Board {
    type Word = AtomicU64;
    fn words(&self, client: ClientId, slot: usize) -> Option<Words<'_, AtomicU64>> {
        let Line([ledger, granted, used, settled, overhead, _, _, _, owed]) = self.rows.get(&client)?.get(slot)?;
        let shared = Shared { granted, used, settled };
        Some(Words {
            ledger,
            overhead,
            owed,
            shared: (!self.lost.contains(&client)).then_some(shared),
        })
    }

    fn reading(&self, client: ClientId, slot: usize) -> Option<Reading> {
        let value = |word| self.value(client, slot, word);
        (self.rows.contains_key(&client) && !self.lost.contains(&client)).then(|| Reading {
            used: value(USED),
            managed: value(MANAGED),
            started: value(STARTED),
            finished: value(FINISHED),
        })
    }
}

impl Board {
    pub fn set(&self, client: ClientId, slot: usize, word: usize, value: u64) {
        self.rows[&client][slot].0[word].store(value, Ordering::SeqCst);
    }

    pub fn value(&self, client: ClientId, slot: usize, word: usize) -> u64 {
        self.rows
            .get(&client)
            .map_or(0, |row| row[slot].0[word].load(Ordering::SeqCst))
    }

    pub fn copy(&self) -> Self {
        let copy = |line: &Line| {
            Line(std::array::from_fn(|word| {
                AtomicU64::new(line.0[word].load(Ordering::SeqCst))
            }))
        };
        let rows = self
            .rows
            .iter()
            .map(|(id, row)| (*id, std::array::from_fn(|slot| copy(&row[slot]))))
            .collect();
        Self {
            rows,
            lost: self.lost.clone(),
        }
    }
}

/// The host's words, and how often they were looked up.
pub struct Counted<'a> {
    board: &'a Board,
    pub looks: Cell<u64>,
}

impl<'a> Counted<'a> {
    pub fn new(board: &'a Board) -> Self {
        Self {
            board,
            looks: Cell::new(0),
        }
    }
}

impl Machine for Counted<'_> {
    type Word = AtomicU64;
    fn words(&self, client: ClientId, slot: usize) -> Option<Words<'_, AtomicU64>> {
        self.looks.set(self.looks.get() + 1);
        self.board.words(client, slot)
    }

    fn reading(&self, client: ClientId, slot: usize) -> Option<Reading> {
        self.board.reading(client, slot)
    }
}
