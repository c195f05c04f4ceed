// SPDX-License-Identifier: Apache-2.0
//! One order of the event loop, as it travels to the porter with its connection.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use partage_protocol::units::ClientId;

use crate::peer::ConnectionId;

const ORDER_BYTES: usize = 32;

/// One order as it travels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// Check the packet for this client; none closes.
    pub(super) client: Option<ClientId>,
    pub(super) connection: ConnectionId,
    pub(super) uid: u32,
    /// Of a connection to be closed, its number among those.
    pub(super) number: u64,
}

impl Order {
    pub(super) fn packet(self) -> [u8; ORDER_BYTES] {
        let mut packet = [0; ORDER_BYTES];
        packet[..8].copy_from_slice(&self.connection.0.to_le_bytes());
        packet[8..16].copy_from_slice(&self.client.map_or(0, |client| client.0).to_le_bytes());
        packet[16..24].copy_from_slice(&self.number.to_le_bytes());
        packet[24..28].copy_from_slice(&self.uid.to_le_bytes());
        packet
    }

    pub(super) fn of_packet(packet: [u8; ORDER_BYTES]) -> Self {
        let word = |at: usize| packet[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let client = word(8);
        Self {
            client: (client != 0).then_some(ClientId(client)),
            connection: ConnectionId(word(0)),
            uid: word(24) as u32,
            number: word(16),
        }
    }
}

/// `Ok(None)` when none waits, `Err` when the broker's end is closed.
pub(super) fn receive_order(orders: BorrowedFd<'_>) -> Result<Option<(Order, OwnedFd)>, ()> {
    let mut packet = [0; ORDER_BYTES];
    let mut control = nix::cmsg_space!([RawFd; 1]);
    let mut slices = [IoSliceMut::new(&mut packet)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = match recvmsg::<()>(orders.as_raw_fd(), &mut slices, Some(&mut control), flags) {
        Ok(message) if message.bytes == ORDER_BYTES => message,
        Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(None),
        _ => return Err(()),
    };
    let mut rights = message
        .cmsgs()
        .into_iter()
        .flatten()
        .filter_map(|message| match message {
            ControlMessageOwned::ScmRights(numbers) => numbers.first().copied(),
            _ => None,
        });
    let Some(number) = rights.next() else { return Ok(None) };
    // SAFETY: the kernel just put this descriptor into this thread's table; nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    drop(rights);
    Ok(Some((Order::of_packet(packet), socket)))
}
