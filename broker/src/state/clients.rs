// SPDX-License-Identifier: Apache-2.0
//! The clients by id: their ledger lines, pages, connections and processes; and the machine that the policy works on.
//!
//! ```text
//!   hello ──► attached ◄──────────► away (connection lost, or not yet back after a broker's restart)
//!                │ process ended or exec'd │
//!                ▼                         ▼
//!              dying: charged until a poll of the devices begun afterwards no longer shows the process
//!                │
//!                ▼ the policy forgets it; its line and pages are free
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use partage_policy::{Machine, Process, Reading};
use partage_protocol::job_ledger::{Shared, Words};
use partage_protocol::message::MAX_DEVICES;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};

use super::ledger::{Ledger, LineIndex};
use super::pages::PagePair;
use crate::peer::ConnectionId;

/// One client.
#[derive(Debug)]
pub struct Client {
    /// Its line in the ledger.
    pub line: LineIndex,
    /// Its pages; none until it hands them back to a new broker.
    pub pages: Option<Arc<PagePair>>,
    /// The descriptors that its `Welcome` carries.
    pub gift: Option<[OwnedFd; 2]>,
    /// Its process.
    pub process: Process,
    /// Where the process's program lay when it attached; another place means that it called `exec`.
    pub image: (u64, u64),
    /// Its user.
    pub uid: u32,
    /// Its job; 0 until the policy decided.
    pub job: JobId,
    /// The job's devices in slot order, as welcomed.
    pub devices: Vec<DeviceUuid>,
    /// It told which devices the driver shows to it: it does not use NVML alone.
    pub has_driver: bool,
    /// Its connection.
    pub connection: Option<ConnectionId>,
    /// It ended, and its memory may not be free yet.
    pub dying: Option<Dying>,
    /// Since when its connection is gone while the kernel hides its program from us: whether it called `exec` shows in
    /// what the devices show of it.
    pub doubt_since_ns: Option<u64>,
    /// A look at a device showed its process.
    pub was_shown: bool,
    /// It lets go of its pages, or has: it has once its connection ended.
    pub is_parked: bool,
}

/// An ended client that is still charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dying {
    /// When it was noticed; only looks asked for after it count.
    pub since_ns: u64,
    /// The process lives on under another program: its number in a look proves nothing.
    pub is_exec: bool,
}

/// All clients and the ledger file that their words lie in.
#[derive(Debug)]
pub struct Clients {
    /// The file.
    pub ledger: Ledger,
    map: BTreeMap<ClientId, Client>,
    by_process: BTreeMap<Process, BTreeSet<ClientId>>,
    by_connection: BTreeMap<ConnectionId, ClientId>,
}

impl Clients {
    /// No clients yet.
    #[must_use]
    pub fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            map: BTreeMap::new(),
            by_process: BTreeMap::new(),
            by_connection: BTreeMap::new(),
        }
    }

    /// A client.
    #[must_use]
    pub fn get(&self, client: ClientId) -> Option<&Client> {
        self.map.get(&client)
    }

    /// A client, to be changed.
    pub fn get_mut(&mut self, client: ClientId) -> Option<&mut Client> {
        self.map.get_mut(&client)
    }

    /// Adds a client whose ledger line exists.
    pub fn insert(&mut self, id: ClientId, client: Client) {
        self.by_process.entry(client.process).or_default().insert(id);
        if let Some(connection) = client.connection {
            self.by_connection.insert(connection, id);
        }
        self.map.insert(id, client);
    }

    /// Forgets a client and frees its line. Answers it.
    pub fn remove(&mut self, id: ClientId) -> Option<Client> {
        let client = self.map.remove(&id)?;
        if let Some(ids) = self.by_process.get_mut(&client.process) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_process.remove(&client.process);
            }
        }
        if let Some(connection) = client.connection {
            self.by_connection.remove(&connection);
        }
        self.ledger.remove(client.line);
        Some(client)
    }

    /// All clients.
    pub fn iter(&self) -> impl Iterator<Item = (ClientId, &Client)> {
        self.map.iter().map(|(id, client)| (*id, client))
    }

    /// The clients of which this holds.
    pub fn of_which(&self, holds: impl Fn(&Client) -> bool) -> Vec<ClientId> {
        let found = self.map.iter().filter(|(_, client)| holds(client));
        found.map(|(id, _)| *id).collect()
    }

    /// Clients of a job.
    #[must_use]
    pub fn of_job(&self, job: JobId) -> Vec<ClientId> {
        self.of_which(|client| client.job == job)
    }

    /// Clients of a job that are not dying.
    pub fn alive_of(&self, job: JobId) -> impl Iterator<Item = (ClientId, &Client)> {
        let is_alive = move |client: &Client| client.job == job && client.dying.is_none();
        self.iter().filter(move |(_, client)| is_alive(client))
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.map.len()
    }

    /// Clients of a process.
    pub fn of_process(&self, process: Process) -> Vec<ClientId> {
        self.by_process.get(&process).into_iter().flatten().copied().collect()
    }

    /// A look at a device showed this process.
    pub fn note_shown(&mut self, process: Process) {
        for id in self.by_process.get(&process).into_iter().flatten() {
            if let Some(client) = self.map.get_mut(id) {
                client.was_shown = true;
            }
        }
    }

    /// The client of a connection.
    #[must_use]
    pub fn of_connection(&self, connection: ConnectionId) -> Option<ClientId> {
        self.by_connection.get(&connection).copied()
    }

    /// Gives a client another connection, or none. Answers the one it had.
    pub fn connect(&mut self, id: ClientId, connection: Option<ConnectionId>) -> Option<ConnectionId> {
        let client = self.map.get_mut(&id)?;
        let old = std::mem::replace(&mut client.connection, connection);
        if connection.is_some() {
            client.doubt_since_ns = None;
        }
        if let Some(old) = old {
            self.by_connection.remove(&old);
        }
        if let Some(new) = connection {
            self.by_connection.insert(new, id);
        }
        old
    }

    /// A client lets go of its pages: it has once its connection ended.
    pub fn note_parked(&mut self, id: ClientId) {
        if let Some(client) = self.map.get_mut(&id) {
            client.is_parked = true;
        }
    }

    /// The job of a process that attached to one.
    #[must_use]
    pub fn job_of(&self, process: Process) -> Option<JobId> {
        let ids = self.by_process.get(&process)?;
        ids.iter()
            .filter_map(|id| self.map.get(id))
            .map(|client| client.job)
            .find(|job| job.0 != 0)
    }

    /// What the counters of all clients add up to: another sum means that one of them allocates or frees.
    #[must_use]
    pub fn moves(&self) -> u64 {
        let lines = self.map.values().filter_map(|client| client.pages.as_ref());
        let lines = lines.flat_map(|pages| &pages.client().devices);
        lines.fold(0, |sum: u64, line| {
            let words = [&line.started, &line.finished, &line.used];
            words
                .iter()
                .fold(sum, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
        })
    }

    /// The pages of a client that has them mapped.
    #[must_use]
    pub fn pages(&self, client: ClientId) -> Option<&PagePair> {
        self.map.get(&client)?.pages.as_deref()
    }
}

impl Machine for Clients {
    type Word = AtomicU64;

    fn words(&self, client: ClientId, slot: usize) -> Option<Words<'_, AtomicU64>> {
        let client = self.map.get(&client).filter(|_| slot < MAX_DEVICES)?;
        Some(Words {
            ledger: self.ledger.word(client.line, slot),
            overhead: self.ledger.overhead(client.line, slot),
            owed: self.ledger.owed(client.line, slot),
            shared: client.pages.as_ref().map(|pages| Shared {
                granted: pages.granted(slot),
                used: &pages.client().devices[slot].used,
                settled: &pages.client().devices[slot].settled,
            }),
        })
    }

    fn reading(&self, client: ClientId, slot: usize) -> Option<Reading> {
        let line = self.pages(client)?.client().devices.get(slot)?;
        // The counters around the amounts: a client that is between the two is not quiet, whatever the amounts were.
        let finished = line.finished.load(Ordering::SeqCst);
        let (used, managed) = (line.used.load(Ordering::SeqCst), line.managed.load(Ordering::SeqCst));
        let started = line.started.load(Ordering::SeqCst);
        Some(Reading {
            used,
            managed,
            started,
            finished,
        })
    }
}
