// SPDX-License-Identifier: Apache-2.0
//! How clients end: by their process's end (pidfd), by `exec`, or not at all.
//!
//! A client stays charged until the driver has freed its memory: until a poll of its devices, begun after its end, no
//! longer shows the process. Without a driver the kernel's report of the end suffices, because the process has closed
//! its files by then. A closed connection alone proves nothing.
//!
//! No pidfd reports an `exec`. The broker compares where the process's code and stack begin (`/proc/PID/stat`) with
//! what it noted at the attach, twice: when the client's connection closes, as an `exec` closes it, and when the same
//! process says hello again. If the places differ, the client has ended. The process lives on under its pid, so here
//! any poll counts that was begun after the `exec` was noticed, whatever it shows; and the hello of the new program
//! ends the old client's charge at once (`policy/src/decisions/attaching.rs`).

use std::os::fd::BorrowedFd;

use partage_policy::{Event, Process};
use partage_protocol::units::{ClientId, SECOND_NS};

use super::state_driver::StateDriver;
use crate::site::effect::WatchId;
use crate::state::clients::{Client, Dying};

/// How long a client whose program is hidden has for coming back before the devices are asked about it: a library that
/// lost its connection tries again within a fraction of this.
const DOUBT_NS: u64 = SECOND_NS;

impl StateDriver {
    /// The descriptor of a watch that still stands.
    #[must_use]
    pub fn watched(&self, id: WatchId) -> Option<BorrowedFd<'_>> {
        self.site.watches.descriptor(id)
    }

    /// A watched process ended.
    pub(super) fn take_end(&mut self, id: WatchId) {
        let Some((process, pidfd)) = self.site.watches.take_ended(id) else {
            return;
        };
        if let Some(code) = pidfd.exit_code(process) {
            self.site.tell(Event::Exited { process, code });
        }
        self.process_gone(process);
    }

    /// Processes end, and whoever waited for that asks at once: perhaps before the loop has come to their descriptors,
    /// or while the kernel still takes them down. Tells of those clients' ends.
    pub(super) fn find_ended(&mut self, clients: &[ClientId]) {
        for id in clients {
            let Some(client) = self.site.clients.get(*id).filter(|client| client.dying.is_none()) else {
                continue;
            };
            let process = client.process;
            if let Some(watch) = self.site.watches.of_ended(process) {
                self.take_end(watch);
                continue;
            }
            let stat = self.site.processes.stat(process.pid).filter(|stat| stat.id == process);
            if stat.is_some_and(|stat| stat.is_exiting) {
                self.site.tell(Event::ClientDying(*id));
            }
        }
    }

    /// Likewise of every process that is watched: a `run` comes, and is judged by what is there.
    pub(super) fn find_all_ended(&mut self) {
        for watch in self.site.watches.ended() {
            self.take_end(watch);
        }
    }

    /// A watched process ended, or was found to be gone.
    pub(super) fn process_gone(&mut self, process: Process) {
        self.engine.note_gone(&self.site, process);
        for client in self.site.clients.of_process(process) {
            self.dying(client, false);
        }
        if let Some(job) = self.site.jobs.of_first(process) {
            if let Some(process) = self.site.next_first(job) {
                self.site.tell(Event::Follows { job, process });
            }
            self.site.tell(Event::ProcessGone(process));
        }
        self.settle_deaths();
    }

    /// The connection of a client closed while its pidfd says nothing yet.
    pub(super) fn client_lost_connection(&mut self, id: ClientId) {
        let Some(client) = self.site.clients.get(id) else {
            return;
        };
        let (process, image) = (client.process, client.image);
        if client.dying.is_some() {
            return;
        }
        match self.site.processes.stat(process.pid).filter(|stat| stat.id == process) {
            None => self.process_gone(process),
            Some(stat) if stat.is_exiting => {
                // On its way out, perhaps for long (a driver call that cannot be interrupted): charged, and not coming
                // back. The pidfd will say when it is gone.
                self.site.tell(Event::ClientDying(id));
            }
            Some(stat) if is_other_program(image, stat.image) => {
                self.dying(id, true);
                self.settle_deaths();
            }
            Some(stat) => {
                if is_hidden(image) || is_hidden(stat.image) {
                    if let Some(client) = self.site.clients.get_mut(id) {
                        client.doubt_since_ns = Some(self.site.now.ns);
                    }
                    self.site.devices.look_now();
                }
                self.site.tell(Event::ClientAway(id));
            }
        }
    }

    /// A client whose program we may not see, and that has not come back, is gone when no device shows its process any
    /// more: `exec` frees what it held. One that lives on without its connection is shown, and stays charged. Where its
    /// process was never shown (a driver that names no processes), that it is not shown says nothing: its end will.
    fn settle_doubts(&mut self) {
        let is_gone = |client: &Client| {
            client.doubt_since_ns.is_some_and(|since_ns| {
                let patience_ns = since_ns.saturating_add(DOUBT_NS);
                let pid = Some(client.process.pid);
                client.dying.is_none()
                    && client.was_shown
                    && self.site.now.ns >= patience_ns
                    && self.site.devices.is_gone_since(patience_ns, pid, &client.devices)
            })
        };
        for id in self.site.clients.of_which(is_gone) {
            self.dying(id, true);
        }
    }

    /// Ends the clients that this process was before it called `exec`.
    pub(super) fn notice_exec(&mut self, process: Process) {
        let Some(stat) = self.site.processes.stat(process.pid).filter(|stat| stat.id == process) else {
            return;
        };
        for id in self.site.clients.of_process(process) {
            let client = self.site.clients.get(id);
            if client.is_some_and(|client| is_other_program(client.image, stat.image)) {
                self.dying(id, true);
            }
        }
        self.settle_deaths();
    }

    fn dying(&mut self, id: ClientId, is_exec: bool) {
        let Some(client) = self.site.clients.get_mut(id) else {
            return;
        };
        if client.dying.is_some_and(|dying| dying.is_exec == is_exec) {
            return;
        }
        client.dying = Some(Dying {
            since_ns: self.site.now.ns,
            is_exec,
        });
        self.site.devices.look_now();
        self.site.tell(Event::ClientDying(id));
    }

    /// Tells the policy about the ended clients whose memory is free.
    pub(super) fn settle_deaths(&mut self) {
        self.settle_doubts();
        let is_free = |client: &Client| {
            client.dying.is_some_and(|dying| {
                let pid = (!dying.is_exec).then_some(client.process.pid);
                self.site.devices.is_gone_since(dying.since_ns, pid, &client.devices)
            })
        };
        for id in self.site.clients.of_which(is_free) {
            self.site.tell(Event::ClientGone(id));
        }
    }

    pub(super) fn is_anything_dying(&self) -> bool {
        self.site.clients.iter().any(|(_, client)| client.dying.is_some())
    }
}

/// Did the program change, as far as the broker may see?
fn is_other_program(then: (u64, u64), now: (u64, u64)) -> bool {
    then != now && !is_hidden(then) && !is_hidden(now)
}

/// No program begins its stack at zero: that is what the kernel shows to a reader without rights.
fn is_hidden((_, stack): (u64, u64)) -> bool {
    stack == 0
}
