// SPDX-License-Identifier: Apache-2.0
//! Performs the state driver's effects: packets, watches, messages to the dispatcher.

use nix::sys::epoll::{EpollEvent, EpollFlags};
use partage_protocol::admin::Reply;
use tracing::{debug, warn};

use super::connection::Role;
use super::event_loop::Server;
use super::token::Token;
use crate::clock::Now;
use crate::peer::ConnectionId;
use crate::site::effect::Effect;

impl Server {
    /// Does what the driver wants done; that may make it want more.
    pub(super) fn perform(&mut self, now: Now) {
        loop {
            let effects = self.driver.take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.perform_one(effect, now);
            }
        }
    }

    pub(super) fn perform_one(&mut self, effect: Effect, now: Now) {
        match effect {
            Effect::Send {
                to,
                packet,
                descriptors,
            } => {
                if let Some(connection) = self.connections.get_mut(&to) {
                    let flow = connection.send(packet, descriptors);
                    self.follow_flow(to, flow, now);
                }
            }
            Effect::Packets { to, packets } => {
                if let Some(connection) = self.connections.get_mut(&to) {
                    let flow = connection.send_packets(packets);
                    self.follow_flow(to, flow, now);
                }
            }
            Effect::Document { to, reply, is_last } => self.send_document(to, &reply, is_last, now),
            Effect::View(request) => {
                let to = request.to;
                if let Err(why) = self.views.add(*request) {
                    debug!(connection = to.0, why, "closed");
                    self.close(to, now);
                }
            }
            Effect::Events(uid, ask) => self.history.ask(uid, *ask),
            Effect::Follow { to, viewer, is_admin } => {
                self.set_role(to, Role::Follower);
                if let Some(connection) = self.connections.get_mut(&to) {
                    (connection.viewer, connection.is_admin) = (viewer, is_admin);
                    self.followers.insert(to);
                }
            }
            Effect::Close(to) => {
                self.set_role(to, Role::Closing);
                self.flush(to, now);
            }
            Effect::Watch(id) => {
                if let Some(fd) = self.driver.watched(id) {
                    let event = EpollEvent::new(EpollFlags::EPOLLIN, Token::Watch(id).number());
                    if let Err(error) = self.epoll.add(fd, event) {
                        warn!(%error, "a process cannot be watched");
                    }
                }
            }
            Effect::Publish(event) => {
                self.history.record(&event);
                for to in self.followers.clone() {
                    if let Some(connection) = self.connections.get_mut(&to) {
                        let packets = event.packets(connection.viewer, connection.is_admin);
                        let flow = connection.send_packets(packets.iter().cloned());
                        self.follow_flow(to, flow, now);
                    }
                }
            }
            Effect::AskHelper {
                job,
                user,
                ask,
                patience_ns,
            } => {
                let number = self.helpers.ask(user, job, ask, patience_ns);
                self.questions.insert(number, job);
            }
            Effect::Time(message) => self.dispatcher.tell(message),
            Effect::Exit => self.is_leaving = true,
        }
    }

    pub(super) fn send_document(&mut self, to: ConnectionId, reply: &Reply, is_last: bool, now: Now) {
        let Ok(document) = serde_json::to_vec(reply) else {
            return self.close(to, now);
        };
        if let Some(connection) = self.connections.get_mut(&to) {
            if is_last {
                connection.role = Role::Closing;
            }
            let flow = connection.send_document(&document);
            self.follow_flow(to, flow, now);
        }
    }
}
