// SPDX-License-Identifier: Apache-2.0
//! Incoming packets, the pages that come with them, and the role that the first packet gives the connection.

use std::os::fd::AsFd;

use nix::sys::epoll::{EpollEvent, EpollFlags};
use partage_protocol::frame;
use partage_protocol::message::{DecodeError, MAX_PACKET, ToBroker};
use partage_protocol::units::ClientId;
use tracing::debug;

use super::connection::{Connection, Role};
use super::event_loop::Server;
use super::limits::{COMMANDS_PER_USER, PACKETS_PER_TURN};
use super::socket::{self, Waiting};
use super::token::Token;
use crate::clock::Now;
use crate::host::pidfd::PidFd;
use crate::peer::{ConnectionId, Peer};

impl Server {
    pub(super) fn read(&mut self, id: ConnectionId, now: Now) {
        let mut buffer = [0; MAX_PACKET];
        for _ in 0..PACKETS_PER_TURN {
            let Some(connection) = self.connections.get(&id) else {
                return;
            };
            if connection.role == Role::Checking {
                return;
            }
            let taken = match socket::receive_plain(connection.socket.as_fd(), &mut buffer) {
                Waiting::Packet(length) => self.take_packet(id, &buffer[..length], now),
                Waiting::WithDescriptors(length) => self.check_pages(id, &buffer[..length], now),
                Waiting::Nothing => return,
                Waiting::Closed => return self.close(id, now),
            };
            if let Err(why) = taken {
                debug!(connection = id.0, why, "closed");
                return self.close(id, now);
            }
            self.perform(now);
        }
    }

    /// A packet that came with descriptors: only a client that comes back sends any, its pages, and first of all.
    pub(super) fn check_pages(&mut self, id: ConnectionId, packet: &[u8], now: Now) -> Result<(), String> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(());
        };
        let hello = match ToBroker::decode(packet) {
            Ok(ToBroker::Hello(hello)) if connection.role == Role::Silent && hello.client != 0 => hello,
            _ => return Err("descriptors that nobody asked for".to_owned()),
        };
        connection.since_ns = now.ns;
        // Not even its end is told meanwhile: it would be told again and again.
        let is_left = self.epoll.delete(&connection.socket).is_ok();
        let client = ClientId(hello.client);
        if !is_left
            || !self
                .foreign
                .check(id, connection.uid, client, connection.socket.as_fd())
        {
            return Err("its pages cannot be checked".to_owned());
        }
        self.checking.insert(id, Box::new(hello));
        self.set_role(id, Role::Checking);
        Ok(())
    }

    /// Goes on with the clients whose pages were checked.
    pub(super) fn take_checked(&mut self, now: Now) {
        for checked in self.foreign.checked() {
            let id = checked.connection;
            let (Some(hello), Some(connection)) = (self.checking.remove(&id), self.connections.get(&id)) else {
                continue;
            };
            let event = EpollEvent::new(EpollFlags::EPOLLIN, Token::Connection(id).number());
            if self.epoll.add(&connection.socket, event).is_err() {
                self.close(id, now);
                continue;
            }
            self.set_role(id, Role::Client);
            if let Some(peer) = self.peer(id) {
                self.driver.hello(peer, *hello, Some(checked.pages), now);
            }
            self.perform(now);
        }
    }

    pub(super) fn take_packet(&mut self, id: ConnectionId, packet: &[u8], now: Now) -> Result<(), String> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(());
        };
        match connection.role {
            Role::Closing | Role::Checking => Ok(()),
            Role::Command | Role::Follower => Err("a command spoke twice".to_owned()),
            Role::Silent if frame::is_json(packet) => {
                let Some(document) = connection.assemble(packet)? else {
                    return Ok(());
                };
                let uid = connection.uid;
                let is_command =
                    |other: &&Connection| other.uid == uid && matches!(other.role, Role::Command | Role::Follower);
                if self.connections.values().filter(is_command).count() >= COMMANDS_PER_USER {
                    return Err("too many commands of this user".to_owned());
                }
                self.set_role(id, Role::Command);
                if let Some(peer) = self.peer(id) {
                    self.driver.request(peer, &document, now);
                }
                Ok(())
            }
            Role::Silent => match ToBroker::decode(packet) {
                Ok(ToBroker::Hello(hello)) => {
                    self.set_role(id, Role::Client);
                    if let Some(peer) = self.peer(id) {
                        self.driver.hello(peer, hello, None, now);
                    }
                    Ok(())
                }
                Ok(_) => Err("spoke before its hello".to_owned()),
                Err(DecodeError::Major(major)) => {
                    self.set_role(id, Role::Client);
                    self.driver.foreign_major(id, major);
                    Ok(())
                }
                Err(error) => Err(format!("{error:?}")),
            },
            Role::Client => {
                let message = ToBroker::decode(packet).map_err(|error| format!("{error:?}"))?;
                self.driver.message(id, message, now).map_err(str::to_owned)
            }
        }
    }

    pub(super) fn set_role(&mut self, id: ConnectionId, role: Role) {
        self.silent.remove(&id);
        if let Some(connection) = self.connections.get_mut(&id) {
            if connection.role == Role::Silent && role != Role::Silent {
                // All that it may have to send with descriptors was sent.
                socket::refuse_descriptors(connection.socket.as_fd());
            }
            connection.role = role;
        }
    }

    pub(super) fn peer(&self, id: ConnectionId) -> Option<Peer> {
        let connection = self.connections.get(&id)?;
        Some(Peer {
            connection: id,
            pid: connection.pid,
            uid: connection.uid,
            is_admin: connection.is_admin,
            pidfd: PidFd::of_peer(connection.socket.as_fd(), connection.pid),
        })
    }
}
