// SPDX-License-Identifier: Apache-2.0
//! Descriptors that other processes send: taken, checked and closed off the event loop.
//!
//! To close a file can take as long as whoever sent it likes: a TCP connection with `SO_LINGER`, a file of a FUSE server
//! that does not answer `flush`. Descriptors also wait unread in a connection, and are closed with it. So the event loop
//! neither takes descriptors nor closes connections:
//!
//! ```text
//!   event loop ── order + connection (SCM_RIGHTS) ──► porter ── starts ──► workers ── close by ending
//!        ▲                                                                   │ pages of a client that came back
//!        └──────────────────── channel, one packet as bell ◄─────────────────┘
//! ```
//! Porter and workers have descriptor tables of their own (`unshare(CLONE_FILES)`), so that one that hangs holds neither
//! the broker's lock nor its sockets. The porter only ever drops descriptors that somebody else still holds. A worker
//! never closes what it was given: it ends, and a task that ends does not linger. One that hangs all the same counts
//! against its user, who has [`CHECKERS_PER_USER`].
//!
//! A container may refuse `unshare` ([`Table::Shared`]). Then all share the broker's table, and a worker closes what it
//! was given when its work is done. It still waits alone, but it may linger: what came with it waits behind it.
//!
//! Nothing here may log: the log's descriptor is another file in these tables.

use std::collections::{BTreeMap, VecDeque};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, Shutdown, SockFlag, SockType, recvmsg, sendmsg,
    shutdown, socketpair,
};
use partage_protocol::units::ClientId;

use super::socket::{self, Received};
use crate::error::Error;
use crate::peer::ConnectionId;
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
/// A worker's stack: it maps two files.
const STACK_BYTES: usize = 256 * 1024;
const ORDER_BYTES: usize = 32;
/// Pause while the event loop is between sending a connection and closing its own descriptor of it.
const HAND_OVER: Duration = Duration::from_micros(50);
/// What the broker says of itself where the system refuses tables.
const SHARED_NOTE: &str = "the system refuses `unshare` (a container's seccomp profile), so that a descriptor that somebody \
    sends and that takes long to close may delay the closing of other connections";

/// Whose descriptor table porter and workers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    /// Each its own.
    Own,
    /// All the broker's: the system gives no other.
    Shared,
}

/// What became of a connection that was given to [`Foreign::check`].
#[derive(Debug)]
pub struct Checked {
    /// Which.
    pub connection: ConnectionId,
    /// The pages that came with its packet.
    pub pages: Result<PagePair, PageError>,
}

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

/// One order as it travels.
#[derive(Clone, Copy, Debug)]
struct Order {
    /// Check the packet for this client; none closes.
    client: Option<ClientId>,
    connection: ConnectionId,
    uid: u32,
    /// Of a connection to be closed, its number among those.
    number: u64,
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
                // SAFETY: the number is the porter's end, in this thread's own table, where nobody else has it, or in the
                // shared one, where the starter gives it up.
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

    /// What to say of it to those who ask about the broker.
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
            // Waits for the porter, who waits for nobody but the scheduler.
            match sendmsg::<()>(self.porter.as_raw_fd(), &slices, &control, MsgFlags::MSG_NOSIGNAL, None) {
                Err(nix::Error::EINTR) => {}
                sent => return sent.is_ok(),
            }
        }
    }
}

impl Order {
    fn packet(self) -> [u8; ORDER_BYTES] {
        let mut packet = [0; ORDER_BYTES];
        packet[..8].copy_from_slice(&self.connection.0.to_le_bytes());
        packet[8..16].copy_from_slice(&self.client.map_or(0, |client| client.0).to_le_bytes());
        packet[16..24].copy_from_slice(&self.number.to_le_bytes());
        packet[24..28].copy_from_slice(&self.uid.to_le_bytes());
        packet
    }

    fn of_packet(packet: [u8; ORDER_BYTES]) -> Self {
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

/// A connection whose packet is to be checked.
struct Check {
    connection: ConnectionId,
    client: ClientId,
    socket: OwnedFd,
}

/// The thread that starts workers.
struct Porter {
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
    fn new(table: Table, orders: OwnedFd, checked: Sender<Checked>, dropped: Arc<AtomicU64>) -> Self {
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
    fn run(mut self) {
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

/// `Ok(None)` when none waits, `Err` when the broker's end is closed.
fn receive_order(orders: BorrowedFd<'_>) -> Result<Option<(Order, OwnedFd)>, ()> {
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

/// Takes the packet and its descriptors, which stay open in `taken`, and maps the pages.
fn take_pages(socket: RawFd, client: ClientId, taken: &mut Vec<OwnedFd>) -> Result<PagePair, PageError> {
    let mut buffer = vec![0; partage_protocol::message::MAX_PACKET];
    // SAFETY: the connection is open until the work is done: in this thread's own table, or the porter's or the channel's
    // until the thread asks for it.
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

/// A worker that does not end before it is released.
struct Worker {
    number: libc::pid_t,
    table: Table,
    released: Sender<Vec<OwnedFd>>,
}

impl Worker {
    /// Lets it end, and with it `descriptors`: the worker is the last to close them.
    fn release(self, descriptors: Vec<OwnedFd>) {
        match self.table {
            // Its own of them are still open.
            Table::Own => drop(descriptors),
            // A worker that is not there has panicked; then they are closed here.
            Table::Shared => drop(self.released.send(descriptors)),
        }
    }
}

/// Starts a thread and does `work` there. Only `keep` is open in its table, if it has one of its own.
fn start_worker(table: Table, keep: Vec<RawFd>, work: impl FnOnce() + Send + 'static) -> Option<Worker> {
    let (released, is_released) = mpsc::channel();
    let (ready, is_ready) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("porter's".to_owned())
        .stack_size(STACK_BYTES);
    let started = thread.spawn(move || {
        let is_ready = table == Table::Shared || own_table(&keep).is_ok();
        let _ = ready.send(is_ready.then(|| nix::unistd::gettid().as_raw()));
        if is_ready {
            work();
            // With a table of its own an error, since nobody sends: the other end is dropped. Else what is to be closed.
            drop(is_released.recv());
        }
    });
    started.ok()?;
    let number = is_ready.recv().ok().flatten()?;
    Some(Worker {
        number,
        table,
        released,
    })
}

/// As [`own_table`], where the system lets us.
fn own_or_shared_table(keep: &[RawFd]) -> Result<Table, nix::Error> {
    match own_table(keep) {
        Ok(()) => Ok(Table::Own),
        // Only `unshare` answers these.
        Err(nix::Error::EPERM | nix::Error::ENOSYS) => Ok(Table::Shared),
        Err(error) => Err(error),
    }
}

/// Gives the calling thread a table of its own and closes there all but `keep`. The caller's caller holds what is
/// closed, so that nothing is closed for good.
fn own_table(keep: &[RawFd]) -> Result<(), nix::Error> {
    unshare(CloneFlags::CLONE_FILES)?;
    let entries = std::fs::read_dir("/proc/thread-self/fd").map_err(|_| nix::Error::ENOENT)?;
    let numbers: Vec<RawFd> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|number| !keep.contains(number)) {
        // SAFETY: this table is this thread's alone, and no value in this thread owns any of these numbers. The
        // listing's own number is closed already, which is an error without effect.
        unsafe { libc::close(number) };
    }
    Ok(())
}

/// Is this thread of ours still there, with whatever it has open?
fn is_alive(thread: libc::pid_t) -> bool {
    std::path::Path::new(&format!("/proc/self/task/{thread}")).exists()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::testing::refuse_call;

    fn connection() -> (OwnedFd, OwnedFd) {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("a pair")
    }

    fn pipe() -> (OwnedFd, OwnedFd) {
        nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe")
    }

    fn send(connection: &OwnedFd, descriptor: OwnedFd) {
        let rights = [descriptor.as_raw_fd()];
        let control = [ControlMessage::ScmRights(&rights)];
        let slices = [IoSlice::new(b"x")];
        sendmsg::<()>(connection.as_raw_fd(), &slices, &control, MsgFlags::empty(), None).expect("sent");
    }

    /// What it has to send is not taken, and its last close waits an hour for that.
    fn lingering(listener: &TcpListener) -> OwnedFd {
        let mut stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let linger = libc::linger {
            l_onoff: 1,
            l_linger: 3600,
        };
        nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &linger).expect("told");
        stream.set_nonblocking(true).expect("told");
        while stream.write(&[0; 65536]).is_ok() {}
        stream.into()
    }

    /// Each read of `end` waits until the other end is closed by all.
    fn wait_until_closed(end: OwnedFd) {
        assert_eq!(File::from(end).read(&mut [0]).expect("a pipe"), 0);
    }

    fn close_and_check_without_waiting(foreign: &Foreign) {
        let (ours, theirs) = connection();
        let (read, write) = pipe();
        send(&theirs, write);
        assert!(foreign.check(ConnectionId(1), 0, ClientId(7), ours.as_fd()));
        let checked = loop {
            let _ = poll(&mut [PollFd::new(foreign.bell(), PollFlags::POLLIN)], PollTimeout::NONE);
            if let Some(checked) = foreign.checked().pop() {
                break checked;
            }
        };
        assert_eq!(checked.connection, ConnectionId(1));
        assert!(checked.pages.is_err());
        wait_until_closed(read);

        let (read, write) = pipe();
        send(&theirs, write);
        foreign.close(ConnectionId(1), 0, ours);
        wait_until_closed(read);

        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback device");
        let (ours, theirs) = connection();
        send(&theirs, lingering(&listener));
        foreign.close(ConnectionId(2), 0, ours);
    }

    #[test]
    fn where_the_system_refuses_tables_foreign_descriptors_are_closed_off_the_loop_all_the_same() {
        let thread = std::thread::spawn(|| {
            let usual = Foreign::start().expect("started");
            close_and_check_without_waiting(&usual);
            refuse_call(libc::SYS_unshare, libc::CLONE_FILES as u32);
            let foreign = Foreign::start().expect("a container's broker starts too");
            assert!(foreign.note().is_some_and(|note| note.contains("unshare")));
            close_and_check_without_waiting(&foreign);
        });
        assert!(thread.join().is_ok());
    }
}
