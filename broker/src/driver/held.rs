// SPDX-License-Identifier: Apache-2.0
//! New clients that wait until the devices are known, and requests of `run` that wait for a poll begun after them.

use partage_protocol::admin::RunRequest;
use partage_protocol::message::Hello;

use crate::peer::{ConnectionId, Peer};
use crate::registration::Registering;

/// Something that waits until the devices are known.
#[derive(Debug)]
pub enum Hold {
    /// A new client.
    Hello(Peer, Box<Hello>),
    /// A `run`.
    Run(Box<HeldRun>),
}

impl Hold {
    pub(super) fn connection(&self) -> ConnectionId {
        match self {
            Self::Hello(peer, _) => peer.connection,
            Self::Run(run) => run.peer.connection,
        }
    }
}

/// A `run` that waits until the devices are known.
#[derive(Debug)]
pub struct HeldRun {
    pub(super) peer: Peer,
    pub(super) request: RunRequest,
    /// Looks at the devices that were asked for earlier do not count.
    pub(super) seen_since_ns: u64,
    /// Another process than the peer's is the job's first.
    pub(super) registering: Option<Box<Registering>>,
}
