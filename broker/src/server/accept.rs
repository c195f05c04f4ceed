// SPDX-License-Identifier: Apache-2.0
//! New connections, and silent ones.

use std::os::fd::{AsFd, OwnedFd};

use nix::sys::epoll::{EpollEvent, EpollFlags};
use tracing::{debug, warn};

use super::connection::Connection;
use super::event_loop::Server;
use super::limits::{ACCEPT_PAUSE_NS, ACCEPTS_PER_TURN, HELLO_NS, SILENT_PER_USER};
use super::socket;
use super::token::Token;
use crate::clock::Now;
use crate::peer::ConnectionId;

impl Server {
    pub(super) fn accept(&mut self, is_admin: bool, now: Now) {
        for _ in 0..ACCEPTS_PER_TURN {
            let listener = if is_admin {
                &self.admin_listener
            } else {
                &self.client_listener
            };
            match socket::accept(listener.as_fd()) {
                Ok(fd) => self.add_connection(fd, is_admin, now),
                Err(nix::Error::EAGAIN) => return,
                Err(nix::Error::EMFILE | nix::Error::ENFILE) => {
                    if let Some(oldest) = self.silent.first().copied() {
                        self.close(oldest, now);
                        continue;
                    }
                    warn!("no descriptor left: connections wait");
                    self.listen_for_connections(false);
                    self.accept_again_ns = Some(now.ns + ACCEPT_PAUSE_NS);
                    return;
                }
                Err(_) => {}
            }
        }
    }

    pub(super) fn listen_for_connections(&mut self, is_wanted: bool) {
        let flags = if is_wanted {
            EpollFlags::EPOLLIN
        } else {
            EpollFlags::empty()
        };
        for (fd, token) in [
            (&self.client_listener, Token::Client.number()),
            (&self.admin_listener, Token::Admin.number()),
        ] {
            if let Err(error) = self.epoll.modify(fd, &mut EpollEvent::new(flags, token)) {
                warn!(%error, "listener cannot be changed");
            }
        }
    }

    pub(super) fn add_connection(&mut self, fd: OwnedFd, is_admin: bool, now: Now) {
        self.last_connection += 1;
        let id = ConnectionId(self.last_connection);
        let Ok((pid, uid)) = socket::credentials(&fd) else {
            return self.foreign.close(id, 0, fd);
        };
        let of_user = self
            .silent
            .iter()
            .filter(|id| self.connections.get(id).is_some_and(|other| other.uid == uid));
        let of_user: Vec<ConnectionId> = of_user.copied().collect();
        if of_user.len() >= SILENT_PER_USER {
            self.close(of_user[0], now);
        }
        let event = EpollEvent::new(EpollFlags::EPOLLIN, Token::Connection(id).number());
        if self.epoll.add(&fd, event).is_err() {
            return self.foreign.close(id, uid, fd);
        }
        self.connections
            .insert(id, Connection::new(fd, pid, uid, is_admin, now.ns));
        self.silent.insert(id);
    }

    pub(super) fn close_the_silent(&mut self, now: Now) {
        while let Some(id) = self.silent.first().copied() {
            match self.connections.get(&id) {
                Some(connection) if now.ns < connection.since_ns + HELLO_NS => break,
                _ => self.close(id, now),
            }
        }
        // The porter had no descriptor left for it, or its user's workers hang: nobody answers it.
        let is_late = |id: &&ConnectionId| {
            let connection = self.connections.get(id);
            connection.is_none_or(|connection| now.ns >= connection.since_ns + HELLO_NS)
        };
        for id in self.checking.keys().filter(is_late).copied().collect::<Vec<_>>() {
            debug!(connection = id.0, "closed: its pages were not checked in time");
            self.close(id, now);
        }
    }
}
