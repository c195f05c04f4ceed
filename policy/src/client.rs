// SPDX-License-Identifier: Apache-2.0
//! Clients: the processes of jobs that attached, and those that a new broker waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use partage_protocol::units::{ClientId, JobId};

use crate::caller::Process;
use crate::worded::worded;

/// A client as the policy sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its job.
    pub job: JobId,
    /// Its process.
    pub process: Process,
    /// Its connection and pages.
    pub presence: Presence,
    /// The GPUs that it may open: bit N for the node `/dev/nvidiaN`. 0: not known.
    pub nodes: u32,
}

worded! {
    /// Where a client is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Presence(word) {
        /// Connected.
        Attached = "attached",
        /// Alive without a connection; after a broker's restart, not yet back.
        Away = "away",
        /// Killed and not gone.
        Dying = "dying",
    }
}

/// Every client that is not gone, and which of them a new broker still waits for. Everybody reads them; what changes
/// them is a method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clients {
    by_id: BTreeMap<ClientId, Client>,
    /// Clients of the broker before that have not come back.
    awaited: BTreeSet<ClientId>,
    /// When they are no longer waited for; none once that is over.
    wait_until_ns: Option<u64>,
    /// Clients whose process ends or has ended, and since when: what they hold counts until the driver has freed it.
    dying: BTreeMap<ClientId, u64>,
}

impl Deref for Clients {
    type Target = BTreeMap<ClientId, Client>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}

impl Clients {
    /// A process attached.
    pub(crate) fn add(&mut self, id: ClientId, client: Client) {
        self.by_id.insert(id, client);
    }

    /// The ledger of the broker before names a client: it is awaited.
    pub(crate) fn expect(&mut self, id: ClientId, job: JobId, process: Process) {
        let client = Client {
            job,
            process,
            presence: Presence::Away,
            nodes: 0,
        };
        self.by_id.insert(id, client);
        self.awaited.insert(id);
    }

    /// Those of the broker before are waited for until then.
    pub(crate) fn wait_until(&mut self, until_ns: u64) {
        self.wait_until_ns = Some(until_ns);
    }

    /// A client of the broker before is back, if that is its process; answers what it is.
    pub(crate) fn come_back(&mut self, id: ClientId, process: Process) -> Option<&Client> {
        let client = self.by_id.get_mut(&id).filter(|client| client.process == process)?;
        client.presence = Presence::Attached;
        self.awaited.remove(&id);
        self.dying.remove(&id);
        Some(client)
    }

    /// Its connection closed, or its process ends.
    pub(crate) fn set_presence(&mut self, id: ClientId, presence: Presence, now_ns: u64) {
        // A dying client's connection closes too; it stays dying.
        let living = self.by_id.get_mut(&id);
        if let Some(client) = living.filter(|client| client.presence != Presence::Dying) {
            client.presence = presence;
            if presence == Presence::Dying {
                self.dying.insert(id, now_ns);
            }
        }
    }

    /// Clients whose process ends or has ended.
    pub(crate) fn dying(&self) -> BTreeSet<ClientId> {
        self.dying.keys().copied().collect()
    }

    /// Those of them whose end was seen after this.
    pub(crate) fn dying_since(&self, since_ns: u64) -> BTreeSet<ClientId> {
        let recent = self.dying.iter().filter(|(_, dying_ns)| **dying_ns >= since_ns);
        recent.map(|(client, _)| *client).collect()
    }

    /// Does any process end?
    pub(crate) fn is_any_dying(&self) -> bool {
        !self.dying.is_empty()
    }

    /// Its process is gone.
    pub(crate) fn forget(&mut self, id: ClientId) {
        self.by_id.remove(&id);
        self.awaited.remove(&id);
        self.dying.remove(&id);
    }

    /// Clients of the broker before that have not come back.
    pub(crate) const fn awaited(&self) -> &BTreeSet<ClientId> {
        &self.awaited
    }

    /// When the wait for them ends; at once with nobody left to wait for, and never where none goes on.
    pub(crate) fn wait_ends_ns(&self) -> Option<u64> {
        self.wait_until_ns
            .map(|until| if self.awaited.is_empty() { 0 } else { until })
    }

    /// Ends the wait if it is over; answers how many did not come back.
    pub(crate) fn end_wait(&mut self, now_ns: u64) -> Option<usize> {
        self.wait_ends_ns().filter(|ends| now_ns >= *ends)?;
        self.wait_until_ns = None;
        let late = self.awaited.len();
        self.awaited.clear();
        Some(late)
    }

    /// What a test breaks on purpose: a client that is awaited and not there, or the reverse.
    #[cfg(test)]
    pub(crate) fn break_awaited(&mut self, id: ClientId) {
        self.awaited.insert(id);
    }

    /// What a test breaks on purpose.
    #[cfg(test)]
    pub(crate) fn break_removed(&mut self, id: ClientId) {
        self.by_id.remove(&id);
    }
}
