// SPDX-License-Identifier: Apache-2.0
//! The event loop's side: sends orders to the porter and receives its results.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, Shutdown, SockFlag, SockType, sendmsg, shutdown, socketpair,
};
use partage_protocol::units::ClientId;

use super::order::Order;
pub use super::porter::Checked;
use super::porter::Porter;
use super::worker::{Table, own_or_shared_table};
use crate::error::Error;
use crate::peer::ConnectionId;

/// What the broker says of itself where the system refuses tables.
const SHARED_NOTE: &str = "the system refuses `unshare` (a container's seccomp profile), so that a descriptor that \
    somebody sends and that takes long to close may delay the closing of other connections";

/// The event loop's side.
#[derive(Debug)]
pub struct Foreign {
    porter: OwnedFd,
    checked: Receiver<Checked>,
    /// Connections given away to be closed, counted.
    given: AtomicU64,
    /// Of these, whose descriptor here is closed.
    dropped: Arc<AtomicU64>,
    table: Table,
}

impl Foreign {
    /// Starts the porter. Precondition: no foreign descriptor is open yet.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no thread, descriptor or table to give.
    pub fn start() -> Result<Self, Error> {
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(Error::system("make the porter's socket"))?;
        let (sender, checked) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let number = theirs.as_raw_fd();
        let mut theirs = Some(theirs);
        let dropped = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&dropped);
        let thread = std::thread::Builder::new().name("porter".to_owned()).spawn(move || {
            let table = own_or_shared_table(&[number]);
            let _ = ready.send(table);
            if let Ok(table) = table {
                // SAFETY: the number is the porter's end, in this thread's own table, where nobody else has it, or in
                // the shared one, where the starter gives it up.
                let orders = unsafe { OwnedFd::from_raw_fd(number) };
                Porter::new(table, orders, sender, seen).run();
            }
        });
        thread.map_err(|error| Error::System {
            what: "start the porter",
            source: error,
        })?;
        let lost = || Err(nix::Error::ESRCH);
        let table = is_ready
            .recv()
            .unwrap_or_else(|_| lost())
            .map_err(Error::system("give the porter a table of its own"))?;
        if table == Table::Shared {
            // The porter's now.
            std::mem::forget(theirs.take());
        }
        Ok(Self {
            porter: ours,
            checked,
            given: AtomicU64::new(0),
            dropped,
            table,
        })
    }

    /// A sentence about the porter for commands that ask about the broker.
    #[must_use]
    pub fn note(&self) -> Option<&'static str> {
        (self.table == Table::Shared).then_some(SHARED_NOTE)
    }

    /// Readable when [`Foreign::checked`] has something to say.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.porter.as_fd()
    }

    /// Takes the packet that waits in `socket` with its descriptors: are they the pages of `client`? Answered by
    /// [`Foreign::checked`]; until then nobody else reads the socket.
    pub fn check(&self, connection: ConnectionId, uid: u32, client: ClientId, socket: BorrowedFd<'_>) -> bool {
        let order = Order {
            client: Some(client),
            connection,
            uid,
            number: 0,
        };
        self.send(order, socket)
    }

    /// Closes a connection, and with it what nobody read.
    pub fn close(&self, connection: ConnectionId, uid: u32, socket: OwnedFd) {
        // The peer learns at once; and nothing new comes in that would have to be closed.
        let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
        let number = self.given.fetch_add(1, Ordering::Relaxed) + 1;
        let order = Order {
            client: None,
            connection,
            uid,
            number,
        };
        // Without a porter (no memory for a packet) the loop's own close is what is left.
        self.send(order, socket.as_fd());
        drop(socket);
        // Only now may the porter's side be the last.
        self.dropped.store(number, Ordering::Release);
    }

    /// The connections that were checked since.
    pub fn checked(&self) -> Vec<Checked> {
        let mut byte = [0; 1];
        let flags = MsgFlags::MSG_DONTWAIT;
        while nix::sys::socket::recv(self.porter.as_raw_fd(), &mut byte, flags).is_ok_and(|count| count > 0) {}
        self.checked.try_iter().collect()
    }

    fn send(&self, order: Order, socket: BorrowedFd<'_>) -> bool {
        let packet = order.packet();
        let rights = [socket.as_raw_fd()];
        let control = [ControlMessage::ScmRights(&rights)];
        let slices = [IoSlice::new(&packet)];
        loop {
            // Waits for the porter, which waits for the scheduler alone.
            match sendmsg::<()>(self.porter.as_raw_fd(), &slices, &control, MsgFlags::MSG_NOSIGNAL, None) {
                Err(nix::Error::EINTR) => {}
                sent => return sent.is_ok(),
            }
        }
    }
}
