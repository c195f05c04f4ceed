// SPDX-License-Identifier: Apache-2.0
//! What goes out: packets to clients, answers to commands, and which processes the server watches.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use partage_policy::{Process, Ticket};
use partage_protocol::admin::{ErrorCode, ErrorView, Reply};
use partage_protocol::message::Refused;
use partage_protocol::units::ClientId;
use tracing::debug;
use zerocopy::IntoBytes;

use super::Site;
use super::effect::Effect;
use crate::dispatcher::message::{Joined, Message};
use crate::host::pidfd::PidFd;
use crate::peer::ConnectionId;

impl Site {
    /// The dispatcher keeps a client's time on the devices that the client has now.
    pub(crate) fn join_dispatcher(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(id) else { return };
        if let Some(pages) = &client.pages {
            self.effects.push(Effect::Time(Message::Joined(Joined {
                client: id,
                job: client.job,
                pid: client.process.pid,
                devices: client.devices.clone(),
                pages: Arc::clone(pages),
            })));
        }
    }

    /// Sends `Refused`, after which the connection is of no use.
    pub(crate) fn refuse(&mut self, to: ConnectionId, code: u32, text: &str) {
        // Not for the usual log: a refused process may come again at once, for ever.
        debug!(connection = to.0, code, text, "refused");
        let mut refused = Refused {
            header: Refused::header(0),
            code,
            text_length: 0,
            text: [0; 240],
        };
        let end = (0..=text.len().min(refused.text.len()))
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        refused.text[..end].copy_from_slice(&text.as_bytes()[..end]);
        refused.text_length = end as u32;
        self.effects.push(Effect::Send {
            to,
            packet: refused.as_bytes().to_vec(),
            descriptors: Vec::new(),
        });
        self.effects.push(Effect::Close(to));
    }

    pub(crate) fn send(&mut self, client: ClientId, packet: Vec<u8>, descriptors: Vec<OwnedFd>) {
        if let Some(to) = self.clients.get(client).and_then(|client| client.connection) {
            self.effects.push(Effect::Send {
                to,
                packet,
                descriptors,
            });
        }
    }

    pub(crate) fn answer(&mut self, to: ConnectionId, reply: Reply) {
        self.effects.push(Effect::Document {
            to,
            reply: Box::new(reply),
            is_last: true,
        });
    }

    /// The last answer on a connection is this error.
    pub(crate) fn deny(&mut self, to: ConnectionId, code: ErrorCode, message: String, hint: Option<&str>) {
        self.answer(to, Reply::Error(error_view(code, message, hint)));
    }

    /// A command's last answer is this error.
    pub(crate) fn deny_ticket(&mut self, ticket: Ticket, code: ErrorCode, message: String, hint: Option<&str>) {
        self.answer_ticket(ticket, Reply::Error(error_view(code, message, hint)));
    }

    /// A command's last answer.
    pub(crate) fn answer_ticket(&mut self, ticket: Ticket, reply: Reply) {
        let to = ConnectionId(ticket.0);
        self.tickets.remove(&to);
        self.answer(to, reply);
    }

    /// Watches a process for its end; `false` when it is gone already.
    pub(crate) fn watch(&mut self, process: Process) -> bool {
        if self.watches.has(process) {
            return true;
        }
        let Some(pidfd) = PidFd::open(process.pid) else {
            return false;
        };
        // Looked at after the descriptor was opened: the same start time means that it is this process that is held.
        let is_it = self.processes.stat(process.pid).is_some_and(|stat| stat.id == process);
        if !is_it || pidfd.has_ended() {
            return false;
        }
        let id = self.watches.add(process, pidfd);
        self.effects.push(Effect::Watch(id));
        true
    }

    /// Ends a watch that neither a job nor a client needs any more.
    pub(crate) fn unwatch(&mut self, process: Process) {
        if self.jobs.of_first(process).is_none() && self.clients.of_process(process).is_empty() {
            self.watches.remove(process);
        }
    }
}

/// An error without holders.
pub(crate) fn error_view(code: ErrorCode, message: String, hint: Option<&str>) -> ErrorView {
    ErrorView {
        code,
        message,
        hint: hint.map(str::to_owned),
        holders: Vec::new(),
    }
}
