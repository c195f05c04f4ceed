// SPDX-License-Identifier: Apache-2.0
//! A stop in progress, and a job's end.

use crate::caller::Ticket;

/// A stop in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stopping {
    pub tickets: Vec<Ticket>,
    pub kill_at_ns: u64,
    pub is_killed: bool,
    /// Why, for the job's end.
    pub reason: String,
    /// In whose name: 0 is root.
    pub by: u32,
    /// Processes of other users, which were left alone, and whose they are.
    pub spared: Vec<(u32, String)>,
}

/// A job's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub unix_ns: u64,
    pub reason: String,
}

impl Stopping {
    /// A stop that nobody waits for yet.
    pub(super) fn new(kill_at_ns: u64, reason: String, by: u32) -> Self {
        Self {
            tickets: Vec::new(),
            kill_at_ns,
            is_killed: false,
            reason,
            by,
            spared: Vec::new(),
        }
    }

    /// Another order to stop, or the first one.
    pub(super) fn join(&mut self, ticket: Option<Ticket>, kill_at_ns: u64, by: u32) {
        // Root's word is enough for all of it, whoever asked before.
        if by == 0 {
            self.by = 0;
        }
        self.tickets.extend(ticket);
        self.kill_at_ns = self.kill_at_ns.min(kill_at_ns);
    }

    /// Is its job to be killed now, and was not?
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        !self.is_killed && now_ns >= self.kill_at_ns
    }

    /// Its job is killed; answers in whose name.
    pub(super) fn kill(&mut self) -> u32 {
        self.is_killed = true;
        self.by
    }
}
