// SPDX-License-Identifier: Apache-2.0
//! One connection: what it may hold and send before it is closed.
//!
//! ```text
//!   silent ── binary packet ──► client  (Hello first, then its messages; answers are small and bounded in number)
//!     │    ── JSON packets ───► command (one request; replies until the last)
//!     └─ too long silent, garbage, more than its bounds ──► closed
//! ```

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use partage_protocol::frame::{self, Assembler};

use super::socket::{self, Sent};
use crate::peer::Packet;

/// Longest request. A command line may be 2 MiB; what is shown of it is cut by the command line program.
pub const MAX_REQUEST: usize = 256 * 1024;
/// Unsent bytes at which a client that does not read is closed: some hundred answers.
const MAX_UNSENT_CLIENT: usize = 64 * 1024;
/// Unsent bytes at which a command that does not read is closed: the longest document and some. All commands of one
/// user may leave as much unread together.
pub const MAX_UNSENT_COMMAND: usize = frame::MAX_DOCUMENT + frame::MAX_DOCUMENT / 4;

/// What a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing whole came yet.
    Silent,
    /// Its first packet brought pages, which are being checked; nobody reads it meanwhile.
    Checking,
    /// A client's; messages are taken.
    Client,
    /// A command's whose request is being answered.
    Command,
    /// A command that gets every new event.
    Follower,
    /// To be closed when all is sent.
    Closing,
}

/// One accepted connection.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub socket: OwnedFd,
    /// The peer's pid at `connect`, 0 when it is not visible here.
    pub pid: u32,
    /// The peer's uid at `connect`.
    pub uid: u32,
    /// It came over `admin.sock`.
    pub is_admin: bool,
    /// The user whose events it is told in full.
    pub viewer: Option<u32>,
    /// What it is.
    pub role: Role,
    /// When it was accepted, or its check began: what is awaited of it is to come soon after.
    pub since_ns: u64,
    /// Of its unsent bytes, what is in the sum of its user.
    pub counted_unread: usize,
    assembler: Assembler,
    received: usize,
    unsent: VecDeque<(Packet, Vec<OwnedFd>)>,
    unsent_bytes: usize,
}

/// What became of a connection after sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// All is sent.
    Empty,
    /// More when it is writable.
    Waiting,
    /// Close it: gone, too slow, or finished.
    Finished,
}

impl Connection {
    /// A new silent connection.
    #[must_use]
    pub fn new(socket: OwnedFd, pid: u32, uid: u32, is_admin: bool, now_ns: u64) -> Self {
        Self {
            socket,
            pid,
            uid,
            is_admin,
            viewer: Some(uid),
            role: Role::Silent,
            since_ns: now_ns,
            counted_unread: 0,
            assembler: Assembler::default(),
            received: 0,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
        }
    }

    /// Takes a JSON packet; gives the request when it is whole.
    ///
    /// # Errors
    /// What the peer did wrong; close the connection.
    pub fn assemble(&mut self, packet: &[u8]) -> Result<Option<Vec<u8>>, String> {
        self.received += packet.len();
        if self.received > MAX_REQUEST {
            return Err(format!("request is longer than {MAX_REQUEST} bytes"));
        }
        self.assembler.push(packet).map_err(|error| error.to_string())
    }

    /// Queues a packet and sends what the peer takes.
    pub fn send(&mut self, packet: Vec<u8>, descriptors: Vec<OwnedFd>) -> Flow {
        self.unsent_bytes += packet.len();
        self.unsent.push_back((packet.into(), descriptors));
        self.flush()
    }

    /// Queues a document.
    pub fn send_document(&mut self, document: &[u8]) -> Flow {
        self.send_packets(frame::packets(document).map(Packet::from))
    }

    /// Queues packets that others may send too.
    pub fn send_packets(&mut self, packets: impl IntoIterator<Item = Packet>) -> Flow {
        for packet in packets {
            self.unsent_bytes += packet.len();
            self.unsent.push_back((packet, Vec::new()));
        }
        self.flush()
    }

    /// Bytes that wait for the peer to read.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Sends what the peer takes.
    pub fn flush(&mut self) -> Flow {
        while let Some((packet, descriptors)) = self.unsent.front() {
            match socket::send(self.socket.as_fd(), packet, descriptors) {
                Sent::Done => {
                    self.unsent_bytes -= packet.len();
                    self.unsent.pop_front();
                }
                Sent::Full => {
                    let bound = if self.role == Role::Client {
                        MAX_UNSENT_CLIENT
                    } else {
                        MAX_UNSENT_COMMAND
                    };
                    return if self.unsent_bytes > bound {
                        Flow::Finished
                    } else {
                        Flow::Waiting
                    };
                }
                Sent::Gone => return Flow::Finished,
            }
        }
        if self.role == Role::Closing {
            Flow::Finished
        } else {
            Flow::Empty
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;

    fn pair() -> (Connection, OwnedFd) {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("a pair");
        (Connection::new(ours, 1, 1, false, 0), theirs)
    }

    #[test]
    fn a_client_that_does_not_read_is_closed_within_its_bound() {
        let (mut connection, _theirs) = pair();
        connection.role = Role::Client;
        let mut flow = Flow::Empty;
        let mut rounds = 0;
        while flow != Flow::Finished {
            flow = connection.send(vec![0; 64], Vec::new());
            rounds += 1;
            assert!(rounds < 100_000, "never closed");
        }
        assert!(connection.unsent_bytes <= MAX_UNSENT_CLIENT + 64);
    }

    #[test]
    fn a_document_arrives_in_order_after_the_peer_reads_and_the_connection_then_ends() {
        let (mut connection, theirs) = pair();
        let document: Vec<u8> = (0..3_000_000u32).map(|i| b'a' + (i % 23) as u8).collect();
        connection.role = Role::Closing;
        assert_eq!(connection.send_document(&document), Flow::Waiting);
        let mut assembler = Assembler::default();
        let mut buffer = vec![0; partage_protocol::message::MAX_PACKET];
        let received = loop {
            match socket::receive(theirs.as_fd(), &mut buffer) {
                socket::Received::Packet(length, _) => {
                    if let Some(document) = assembler.push(&buffer[..length]).expect("a JSON packet") {
                        break document;
                    }
                }
                socket::Received::Nothing => {
                    connection.flush();
                }
                socket::Received::Closed => panic!("closed early"),
            }
        };
        assert!(received == document);
        assert_eq!(connection.flush(), Flow::Finished);
    }

    #[test]
    fn an_endless_request_is_refused() {
        let (mut connection, _theirs) = pair();
        let mut packet = b"PTGJ\0\0\0\0".to_vec();
        packet.resize(30_000, b' ');
        let refused = (0..20).find_map(|_| connection.assemble(&packet).err());
        assert!(refused.is_some_and(|why| why.contains("longer")));
    }
}
