// SPDX-License-Identifier: Apache-2.0
//! The other end of a connection: its number, its process as the kernel names it, and the packets for it.

use std::sync::Arc;

use crate::host::pidfd::PidFd;

/// A packet that several connections may wait to send.
pub type Packet = Arc<[u8]>;

/// A connection's number, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// The process at the other end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Which connection.
    pub connection: ConnectionId,
    /// Its pid, 0 when it is not visible here.
    pub pid: u32,
    /// Its uid.
    pub uid: u32,
    /// It came over `admin.sock`.
    pub is_admin: bool,
    /// The process; none when it is gone.
    pub pidfd: Option<PidFd>,
}
