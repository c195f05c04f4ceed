// SPDX-License-Identifier: Apache-2.0
//! What a manifest says of sockets, of the first process's parent and of processors.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A thread that may use some processors alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoundThread {
    /// Its number, as the processes number themselves.
    pub thread: u32,
    /// The processors.
    pub processors: Vec<u32>,
}

/// What becomes of a tree's sockets at a restore. Connections inside the tree are saved with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SavedSockets {
    /// TCP connections come back closed, all of them.
    #[serde(skip_serializing_if = "is_false")]
    pub is_tcp_closed: bool,
    /// Some send messages to a name of the machine's.
    #[serde(skip_serializing_if = "is_false")]
    pub is_named: bool,
    /// Unix sockets that come back closed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<SavedSocket>,
    /// TCP connections that are ended before the first instruction, by both addresses, the tree's first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<(SocketAddr, SocketAddr)>,
    /// Where TCP sockets listen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listening: Vec<SocketAddr>,
    /// Unix sockets in whose place come the standard streams of whoever restores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<u64>,
}

impl SavedSockets {
    /// Is there nothing to say?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A socket that comes back closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedSocket {
    /// Its number in the images.
    pub inode: u64,
    /// What it carries: bytes, single messages, or messages in order.
    pub carries: Carries,
}

/// What a socket carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carries {
    /// Bytes (`SOCK_STREAM`).
    #[default]
    Bytes,
    /// Single messages (`SOCK_DGRAM`).
    Messages,
    /// Messages in order (`SOCK_SEQPACKET`).
    Packets,
}

/// What is to become of connections to outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outside {
    /// They keep the job from being saved.
    #[default]
    Refuse,
    /// A restored process finds them closed.
    Close,
}

impl Outside {
    /// Is it what happens where nobody says anything?
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// For serde.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub(super) fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !*value
}
