// SPDX-License-Identifier: Apache-2.0
//! The porter: takes the event loop's orders and starts workers for them.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::MsgFlags;
use partage_protocol::units::ClientId;

use super::order::{Order, receive_order};
use super::worker::{Table, is_alive, start_worker};
use crate::peer::ConnectionId;
use crate::server::socket::{self, Received};
use crate::state::pages::{PageError, PagePair};

/// Workers of one user that may be checking, or hang in closing what they checked.
const CHECKERS_PER_USER: usize = 2;
/// Connections of one user that wait to be checked; the oldest is refused when another comes.
const CHECKS_PER_USER: usize = 256;
/// Workers that close connections. One of them hangs only where a file's last close hangs in a task that ends.
const CLOSERS: usize = 16;
/// Orders that the porter takes before it starts workers.
const ORDERS_AT_ONCE: usize = 64;
/// Pause before what could not be started is tried again.
const RETRY_MS: u16 = 20;
/// Pause while the event loop is between sending a connection and closing its own descriptor of it.
const HAND_OVER: Duration = Duration::from_micros(50);

/// What became of a connection that was given to [`Foreign::check`].
#[derive(Debug)]
pub struct Checked {
    /// The connection.
    pub connection: ConnectionId,
    /// The pages that came with its packet.
    pub pages: Result<PagePair, PageError>,
}

/// A connection whose packet is to be checked.
struct Check {
    connection: ConnectionId,
    client: ClientId,
    socket: OwnedFd,
}

/// The thread that starts workers.
pub(super) struct Porter {
    table: Table,
    orders: OwnedFd,
    checked: Sender<Checked>,
    to_close: Vec<OwnedFd>,
    /// The newest of them, and what the event loop says of its own descriptors.
    newest: u64,
    dropped: Arc<AtomicU64>,
    to_check: BTreeMap<u32, VecDeque<Check>>,
    /// Workers by the kernel's number, which is there until the last descriptor is closed.
    closers: Vec<libc::pid_t>,
    checkers: BTreeMap<u32, Vec<libc::pid_t>>,
}

impl Porter {
    pub(super) fn new(table: Table, orders: OwnedFd, checked: Sender<Checked>, dropped: Arc<AtomicU64>) -> Self {
        Self {
            table,
            orders,
            checked,
            to_close: Vec::new(),
            newest: 0,
            dropped,
            to_check: BTreeMap::new(),
            closers: Vec::new(),
            checkers: BTreeMap::new(),
        }
    }

    /// Until the broker's end closes.
    pub(super) fn run(mut self) {
        loop {
            let is_idle = self.to_close.is_empty() && self.to_check.is_empty();
            let timeout = if is_idle {
                PollTimeout::NONE
            } else {
                PollTimeout::from(RETRY_MS)
            };
            let _ = poll(&mut [PollFd::new(self.orders.as_fd(), PollFlags::POLLIN)], timeout);
            for _ in 0..ORDERS_AT_ONCE {
                match receive_order(self.orders.as_fd()) {
                    Ok(Some((order, socket))) => self.take(order, socket),
                    Ok(None) => break,
                    // Ends with what is unread: a task that ends does not linger.
                    Err(()) => return std::mem::forget(self),
                }
            }
            self.start_closer();
            self.start_checkers();
        }
    }

    fn take(&mut self, order: Order, socket: OwnedFd) {
        let Some(client) = order.client else {
            self.newest = order.number;
            return self.to_close.push(socket);
        };
        let waiting = self.to_check.entry(order.uid).or_default();
        waiting.push_back(Check {
            connection: order.connection,
            client,
            socket,
        });
        if waiting.len() > CHECKS_PER_USER
            && let Some(oldest) = waiting.pop_front()
        {
            let pages = Err(PageError::Foreign("cannot be checked: too many of this user's wait"));
            tell(&self.checked, self.orders.as_raw_fd(), oldest.connection, pages);
            self.to_close.push(oldest.socket);
        }
    }

    fn start_closer(&mut self) {
        self.closers.retain(|worker| is_alive(*worker));
        if self.to_close.is_empty() || self.closers.len() >= CLOSERS {
            return;
        }
        // What the loop still has open would be closed for good there. It is about to close it.
        while self.dropped.load(Ordering::Acquire) < self.newest {
            std::thread::sleep(HAND_OVER);
        }
        let numbers = self.to_close.iter().map(AsRawFd::as_raw_fd).collect();
        if let Some(worker) = start_worker(self.table, numbers, || {}) {
            self.closers.push(worker.number);
            worker.release(std::mem::take(&mut self.to_close));
        }
    }

    fn start_checkers(&mut self) {
        for workers in self.checkers.values_mut() {
            workers.retain(|worker| is_alive(*worker));
        }
        self.checkers.retain(|_, workers| !workers.is_empty());
        for (uid, waiting) in std::mem::take(&mut self.to_check) {
            let workers = self.checkers.entry(uid).or_default();
            let bell = self.orders.as_raw_fd();
            let sender = self.checked.clone();
            let numbers = waiting
                .iter()
                .map(|check| check.socket.as_raw_fd())
                .chain([bell])
                .collect();
            let checks: Vec<_> = waiting
                .iter()
                .map(|check| (check.connection, check.client, check.socket.as_raw_fd()))
                .collect();
            let table = self.table;
            let work = move || {
                let mut taken = Vec::new();
                for (connection, client, socket) in checks {
                    tell(&sender, bell, connection, take_pages(socket, client, &mut taken));
                }
                if table == Table::Own {
                    // Closed by this thread's end: see the head of this file.
                    std::mem::forget(taken);
                }
            };
            let worker = (workers.len() < CHECKERS_PER_USER)
                .then(|| start_worker(table, numbers, work))
                .flatten();
            match worker {
                Some(worker) => {
                    workers.push(worker.number);
                    worker.release(waiting.into_iter().map(|check| check.socket).collect());
                }
                None => drop(self.to_check.insert(uid, waiting)),
            }
        }
    }
}

/// Takes the packet and its descriptors, which stay open in `taken`, and maps the pages.
fn take_pages(socket: RawFd, client: ClientId, taken: &mut Vec<OwnedFd>) -> Result<PagePair, PageError> {
    let mut buffer = vec![0; partage_protocol::message::MAX_PACKET];
    // SAFETY: the connection is open until the work is done: in this thread's own table, or the porter's or the
    // channel's until the thread asks for it.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    let Received::Packet(_, descriptors) = socket::receive(socket, &mut buffer) else {
        return Err(PageError::Foreign("did not come"));
    };
    let first = taken.len();
    taken.extend(descriptors);
    let [broker, own] = &taken[first..] else {
        return Err(PageError::Foreign("is not one of two descriptors"));
    };
    PagePair::take_back([broker.as_fd(), own.as_fd()], client)
}

fn tell(sender: &Sender<Checked>, bell: RawFd, connection: ConnectionId, pages: Result<PagePair, PageError>) {
    let _ = sender.send(Checked { connection, pages });
    // A full queue rings already.
    let _ = nix::sys::socket::send(bell, &[0], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
}
