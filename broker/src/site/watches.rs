// SPDX-License-Identifier: Apache-2.0
//! Processes that are watched for their end, each held by descriptor.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use partage_policy::Process;

use super::effect::WatchId;
use crate::host::pidfd::PidFd;

/// The watches that stand.
#[derive(Debug, Default)]
pub struct Watches {
    by_id: BTreeMap<WatchId, (Process, PidFd)>,
    of_process: BTreeMap<Process, WatchId>,
    last: u64,
}

impl Watches {
    /// Is the process watched?
    #[must_use]
    pub fn has(&self, process: Process) -> bool {
        self.of_process.contains_key(&process)
    }

    /// Watches a process that is held by `pidfd`. Answers the watch's number, which is never used twice.
    pub fn add(&mut self, process: Process, pidfd: PidFd) -> WatchId {
        self.last += 1;
        let id = WatchId(self.last);
        self.by_id.insert(id, (process, pidfd));
        self.of_process.insert(process, id);
        id
    }

    /// Ends the watch of a process. Closing the descriptor takes it out of the server's set.
    pub fn remove(&mut self, process: Process) {
        if let Some(id) = self.of_process.remove(&process) {
            self.by_id.remove(&id);
        }
    }

    /// The descriptor of a watch that still stands.
    #[must_use]
    pub fn descriptor(&self, id: WatchId) -> Option<BorrowedFd<'_>> {
        self.by_id.get(&id).map(|(_, pidfd)| pidfd.as_fd())
    }

    /// The watch of a process, if that has ended.
    #[must_use]
    pub fn of_ended(&self, process: Process) -> Option<WatchId> {
        let id = self.of_process.get(&process)?;
        let has_ended = |(_, pidfd): &&(Process, PidFd)| pidfd.has_ended();
        self.by_id.get(id).filter(has_ended).map(|_| *id)
    }

    /// The watches of all processes that have ended.
    #[must_use]
    pub fn ended(&self) -> Vec<WatchId> {
        let (ids, fds): (Vec<WatchId>, Vec<&PidFd>) = self.by_id.iter().map(|(id, (_, pidfd))| (*id, pidfd)).unzip();
        let ended = PidFd::ended_of(&fds);
        ids.into_iter()
            .zip(ended)
            .filter(|(_, has_ended)| *has_ended)
            .map(|(id, _)| id)
            .collect()
    }

    /// Takes the watch of a process that has ended; `None` while it lives.
    pub fn take_ended(&mut self, id: WatchId) -> Option<(Process, PidFd)> {
        let (process, pidfd) = self.by_id.remove(&id)?;
        if !pidfd.has_ended() {
            self.by_id.insert(id, (process, pidfd));
            return None;
        }
        self.of_process.remove(&process);
        Some((process, pidfd))
    }
}
