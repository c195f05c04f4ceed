// SPDX-License-Identifier: Apache-2.0
//! The state that the policy owns, and how words and time reach it.

use std::collections::{BTreeMap, VecDeque};

use partage_protocol::job_ledger::{Pages, Words};
use partage_protocol::reservation::Word;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};

use crate::command::{Action, Command};
use crate::device::Device;
use crate::event::{DriverState, Event};
use crate::job::{Client, Job};

/// Where clients' reservation words are: the broker's ledger file and pages, or a model.
pub trait Machine {
    /// The word type.
    type Word: Word;
    /// The words of a client on a slot; `None` only for a client without a ledger row.
    fn words(&self, client: ClientId, slot: usize) -> Option<Words<'_, Self::Word>>;
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

/// What does not change while the broker runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Serves one user: its promises hold among that user's jobs.
    pub is_private: bool,
    /// The next job's number, where no adoption says more; 1 on a fresh host.
    pub first_job: u64,
}

/// All jobs, devices and clients, and every decision about them.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) config: Config,
    pub(crate) driver: DriverState,
    pub(crate) devices: BTreeMap<DeviceUuid, Device>,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) queue: VecDeque<JobId>,
    pub(crate) clients: BTreeMap<ClientId, Client>,
    pub(crate) next_job: u64,
    /// Filled during a step.
    pub(crate) out: Vec<Command>,
}
