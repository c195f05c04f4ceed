// SPDX-License-Identifier: Apache-2.0
//! How clients end: by their process's end (pidfd), by `exec`, or not at all.
//!
//! A client stays charged until the driver has freed its memory: until a look at its devices that was asked for after
//! the end no longer shows the process. Without a driver to ask, the kernel's word that the process is gone suffices:
//! it has closed its files by then. A connection's end alone proves nothing.

use partage_policy::{Event, Process};
use partage_protocol::units::{ClientId, SECOND_NS};

use crate::clients::Dying;
use crate::state_driver::{Now, StateDriver};

/// Pause between looks while an ended client's memory may still be held: the quota is to be whole within a second of
/// the driver having freed it.
pub const DYING_LOOK_NS: u64 = SECOND_NS / 20;

impl StateDriver {
    /// A watched process ended, or was found to be gone.
    pub(crate) fn process_gone(&mut self, process: Process, now: Now) {
        for client in self.clients.of_process(process) {
            self.dying(client, false, now);
        }
        if self.first.contains_key(&process) {
            self.step(now, Event::ProcessGone(process));
        }
        self.settle_deaths(now);
    }

    /// The connection of a client closed while its pidfd says nothing yet.
    pub(crate) fn client_lost_connection(&mut self, id: ClientId, now: Now) {
        let Some(client) = self.clients.get(id) else { return };
        let (process, image) = (client.process, client.image);
        if client.dying.is_some() {
            return;
        }
        match self.processes.stat(process.pid).filter(|stat| stat.id == process) {
            None => self.process_gone(process, now),
            Some(stat) if stat.is_exiting => {
                // On its way out, perhaps for long (a driver call that cannot be interrupted): charged, and not coming
                // back. The pidfd will say when it is gone.
                self.step(now, Event::ClientDying(id));
            }
            Some(stat) if is_other_program(image, stat.image) => {
                self.dying(id, true, now);
                self.settle_deaths(now);
            }
            Some(_) => self.step(now, Event::ClientAway(id)),
        }
    }

    /// Ends the clients that this process was before it called `exec`.
    pub(crate) fn notice_exec(&mut self, process: Process, now: Now) {
        let Some(stat) = self.processes.stat(process.pid).filter(|stat| stat.id == process) else {
            return;
        };
        for id in self.clients.of_process(process) {
            let is_other = self
                .clients
                .get(id)
                .is_some_and(|client| is_other_program(client.image, stat.image));
            if is_other {
                self.dying(id, true, now);
            }
        }
        self.settle_deaths(now);
    }

    fn dying(&mut self, id: ClientId, is_exec: bool, now: Now) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.dying.is_some_and(|dying| dying.is_exec == is_exec) {
            return;
        }
        client.dying = Some(Dying {
            since_ns: now.ns,
            is_exec,
        });
        self.devices.look_now();
        self.step(now, Event::ClientDying(id));
    }

    /// Tells the policy about the ended clients whose memory is free.
    pub(crate) fn settle_deaths(&mut self, now: Now) {
        let free: Vec<ClientId> = self
            .clients
            .iter()
            .filter(|(_, client)| {
                client.dying.is_some_and(|dying| {
                    let pid = (!dying.is_exec).then_some(client.process.pid);
                    self.devices.is_gone_since(dying.since_ns, pid, &client.devices)
                })
            })
            .map(|(id, _)| id)
            .collect();
        for id in free {
            self.step(now, Event::ClientGone(id));
        }
    }

    pub(crate) fn is_anything_dying(&self) -> bool {
        self.clients.iter().any(|(_, client)| client.dying.is_some())
    }
}

/// Did the program change? Zeros are what the kernel shows to those who may not look.
fn is_other_program(then: (u64, u64), now: (u64, u64)) -> bool {
    then != now && then != (0, 0) && now != (0, 0)
}
