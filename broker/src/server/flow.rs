// SPDX-License-Identifier: Apache-2.0
//! Outgoing packets: what happens when a peer does not read them, and when its connection is closed.

use nix::sys::epoll::{EpollEvent, EpollFlags};
use tracing::debug;

use super::connection::{Connection, Flow, Role};
use super::event_loop::Server;
use super::limits::UNREAD_PER_USER;
use super::token::Token;
use crate::clock::Now;
use crate::peer::ConnectionId;

impl Server {
    pub(super) fn close(&mut self, id: ConnectionId, now: Now) {
        self.silent.remove(&id);
        self.followers.remove(&id);
        let is_checking = self.checking.remove(&id).is_some();
        if let Some(connection) = self.connections.remove(&id) {
            self.views.forget(connection.uid, id);
            self.history.forget(connection.uid, id);
            if !is_checking {
                // Closing would take it out too late: the porter has it open for a moment.
                let _ = self.epoll.delete(&connection.socket);
            }
            self.count_unread(connection.uid, connection.counted_unread, 0);
            self.foreign.close(id, connection.uid, connection.socket);
            self.driver.closed(id, now);
        }
    }

    pub(super) fn flush(&mut self, id: ConnectionId, now: Now) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let flow = connection.flush();
            self.follow_flow(id, flow, now);
        }
    }

    pub(super) fn follow_flow(&mut self, id: ConnectionId, flow: Flow, now: Now) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let uid = connection.uid;
        let unread = match connection.role {
            Role::Client => 0,
            _ => connection.unsent_bytes(),
        };
        let counted = std::mem::replace(&mut connection.counted_unread, unread);
        self.count_unread(uid, counted, unread);
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let flags = match flow {
            Flow::Empty => EpollFlags::EPOLLIN,
            // One that is being closed is not read any more: what it says is of no use.
            Flow::Waiting if connection.role == Role::Closing => EpollFlags::EPOLLOUT,
            Flow::Waiting => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
            Flow::Finished => return self.close(id, now),
        };
        let mut event = EpollEvent::new(flags, Token::Connection(id).number());
        if self.epoll.modify(&connection.socket, &mut event).is_err() {
            self.close(id, now);
        }
        if flow == Flow::Waiting {
            self.bound_unread(uid, now);
        }
    }

    /// Of one connection of this user, so much was unread and now is.
    pub(super) fn count_unread(&mut self, uid: u32, was: usize, is: usize) {
        let sum = self.unread.get(&uid).copied().unwrap_or(0).saturating_sub(was) + is;
        if sum == 0 {
            self.unread.remove(&uid);
        } else {
            self.unread.insert(uid, sum);
        }
    }

    /// Closes the oldest of a user's commands that do not read, as long as together they leave too much unread. One
    /// alone is bounded by itself.
    pub(super) fn bound_unread(&mut self, uid: u32, now: Now) {
        // Asked for each event and follower: only what is too much is worth a walk through all connections.
        if self.unread.get(&uid).is_none_or(|sum| *sum <= UNREAD_PER_USER) {
            return;
        }
        let is_theirs = |connection: &Connection| connection.uid == uid && connection.role != Role::Client;
        let theirs = self.connections.iter().filter(|(_, connection)| is_theirs(connection));
        let mut unread: Vec<(ConnectionId, usize)> = theirs
            .map(|(id, connection)| (*id, connection.unsent_bytes()))
            .filter(|(_, bytes)| *bytes > 0)
            .collect();
        let mut sum: usize = unread.iter().map(|(_, bytes)| bytes).sum();
        unread.pop();
        for (id, bytes) in unread {
            if sum <= UNREAD_PER_USER {
                return;
            }
            sum -= bytes;
            debug!(
                connection = id.0,
                uid, "closed: its user's commands leave too much unread"
            );
            self.close(id, now);
        }
    }
}
