// SPDX-License-Identifier: Apache-2.0
//! What the state driver wants done outside it, as data: the server does it.

use std::os::fd::OwnedFd;

use partage_protocol::admin::Reply;
use partage_protocol::units::JobId;

use crate::dispatcher::message::Message;
use crate::helper::process::User;
use crate::history::Ask as AskEvents;
use crate::host::checkpoint::Ask;
use crate::peer::{ConnectionId, Packet};
use crate::views::ViewRequest;
use crate::watch::events::Recorded;

/// The number of a watched process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// What the server is to do.
#[derive(Debug)]
pub enum Effect {
    /// Send a packet, with descriptors.
    Send {
        /// The connection.
        to: ConnectionId,
        /// The packet.
        packet: Vec<u8>,
        /// The descriptors that go with it.
        descriptors: Vec<OwnedFd>,
    },
    /// Send a document; close afterwards if it is the last.
    Document {
        /// The connection.
        to: ConnectionId,
        /// The document.
        reply: Box<Reply>,
        /// Nothing follows.
        is_last: bool,
    },
    /// Have a view made, from a copy that is newer than this.
    View(Box<ViewRequest>),
    /// Have a page of events made, for a connection of this user.
    Events(u32, Box<AskEvents>),
    /// Send packets that others may be sent too.
    Packets {
        /// The connection.
        to: ConnectionId,
        /// The packets.
        packets: Vec<Packet>,
    },
    /// Send every new event there from now on.
    Follow {
        /// Where.
        to: ConnectionId,
        /// The user whose events are told in full; none for a caller who is no user outside its container.
        viewer: Option<u32>,
        /// Everybody's are: the caller is an administrator, and in no container.
        is_admin: bool,
    },
    /// Close when everything is sent.
    Close(ConnectionId),
    /// Say when the process behind a watch ends.
    Watch(WatchId),
    /// An event for the followers.
    Publish(Box<Recorded>),
    /// Have a checkpoint helper asked; the driver hears what becomes of it (`helper_answered`).
    AskHelper {
        /// The job that it is about.
        job: JobId,
        /// As whom.
        user: User,
        /// What.
        ask: Ask,
        /// From its turn on.
        patience_ns: u64,
    },
    /// A message for the dispatcher.
    Time(Message),
    /// End the broker.
    Exit,
}
