// SPDX-License-Identifier: Apache-2.0
//! The event loop: sockets, descriptors and time on one side, the state driver on the other. One thread, and nothing in
//! it waits except `epoll_wait`.
//!
//! What one user or one connection can cost is bounded here: silent connections are closed after [`HELLO_NS`] and, when
//! one user has more than [`SILENT_PER_USER`], oldest first, so that a flood pushes out itself and a program that speaks
//! at once always gets in; a connection gets [`PACKETS_PER_TURN`] packets, then it is the next one's turn.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::time::{ClockId, clock_gettime};
use partage_protocol::admin::Reply;
use partage_protocol::frame;
use partage_protocol::message::{DecodeError, Hello, MAX_PACKET, ToBroker};
use partage_protocol::units::{ClientId, SECOND_NS};
use tracing::{debug, info, warn};

use crate::connection::{Connection, ConnectionId, Flow, MAX_UNSENT_COMMAND, Role};
use crate::directory::SocketDir;
use crate::error::Error;
use crate::foreign::Foreign;
use crate::host::gpu::Gpu;
use crate::host::nvml::Nvml;
use crate::host::pidfd::PidFd;
use crate::socket::{self, Waiting};
use crate::state_driver::{Effect, Now, Peer, StateDriver, WatchId};
use crate::timekeeper::Timekeeper;

/// A connection that said nothing whole for this long is closed.
pub const HELLO_NS: u64 = 10 * SECOND_NS;
/// Silent connections of one user; the oldest goes when another comes.
pub const SILENT_PER_USER: usize = 512;
/// Commands of one user that wait for replies or follow events.
const COMMANDS_PER_USER: usize = 2048;
/// Bytes of replies and events that one user's commands may leave unread together; beyond, the oldest of those connections
/// goes.
const UNREAD_PER_USER: usize = MAX_UNSENT_COMMAND;
/// Packets of one connection in one turn of the loop.
const PACKETS_PER_TURN: usize = 32;
/// Connections accepted in one turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Pause of accepting when no descriptor is left and nobody can be closed.
const ACCEPT_PAUSE_NS: u64 = SECOND_NS / 20;
/// Descriptors wanted: two for each client of a full ledger, and as many connections again.
const WANTED_DESCRIPTORS: u64 = 65536;

const TOKEN_CLIENT: u64 = 1;
const TOKEN_ADMIN: u64 = 2;
const TOKEN_SIGNAL: u64 = 3;
const TOKEN_GPU: u64 = 4;
const TOKEN_FOREIGN: u64 = 5;
/// Connections and watches count up from here; the lowest bit tells them apart.
const TOKEN_FIRST: u64 = 16;

/// The loop and what it watches.
pub struct Server {
    driver: StateDriver,
    gpu: Nvml,
    timekeeper: Timekeeper,
    epoll: Epoll,
    client_listener: OwnedFd,
    admin_listener: OwnedFd,
    signals: SignalFd,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Silent connections, oldest first.
    silent: BTreeSet<ConnectionId>,
    followers: BTreeSet<ConnectionId>,
    foreign: Foreign,
    /// What the connections said whose pages are being checked.
    checking: BTreeMap<ConnectionId, Box<Hello>>,
    /// What each user's commands leave unread, in bytes.
    unread: BTreeMap<u32, usize>,
    last_connection: u64,
    accept_again_ns: Option<u64>,
    is_leaving: bool,
}

/// The time now, by the machine's clocks: clients may be in another time namespace.
#[must_use]
pub fn now() -> Now {
    static AHEAD_NS: OnceLock<i64> = OnceLock::new();
    let ahead_ns = *AHEAD_NS.get_or_init(|| clock_offset_ns().unwrap_or(0));
    let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        let own = (time.tv_sec() as u64).saturating_mul(SECOND_NS) + time.tv_nsec() as u64;
        own.wrapping_sub(ahead_ns as u64)
    });
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now {
        ns: monotonic,
        unix_ns: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX),
    }
}

/// By how much the monotonic clock of this process's time namespace is ahead of the machine's.
fn clock_offset_ns() -> Option<i64> {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").ok()?;
    let words = offsets.lines().find_map(|line| line.strip_prefix("monotonic"))?;
    let (seconds, nanoseconds) = words.trim().split_once(char::is_whitespace)?;
    let seconds: i64 = seconds.parse().ok()?;
    let nanoseconds: i64 = nanoseconds.trim().parse().ok()?;
    // The offsets are those of the children, which may be born into another namespace.
    let is_same =
        std::fs::read_link("/proc/self/ns/time").ok()? == std::fs::read_link("/proc/self/ns/time_for_children").ok()?;
    is_same.then(|| seconds.saturating_mul(SECOND_NS as i64).saturating_add(nanoseconds))
}

/// Raises the limit of open descriptors as far as the hard limit lets. Answers the new limit.
pub fn raise_descriptor_limit() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 0;
    };
    let wanted = WANTED_DESCRIPTORS.min(hard).max(soft);
    if setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok() {
        wanted
    } else {
        soft
    }
}

impl Server {
    /// Listens. `driver` has adopted what an earlier broker left, so the first connection meets a whole state.
    ///
    /// # Errors
    /// [`Error`] when a socket cannot be made.
    pub fn new(mut driver: StateDriver, gpu: Nvml, directory: &SocketDir) -> Result<Self, Error> {
        let is_managed = directory.kind() == crate::directory::Kind::Managed;
        let (client_mode, admin_mode) = if is_managed { (0o666, 0o660) } else { (0o600, 0o600) };
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            mask.add(signal);
        }
        mask.thread_block().map_err(Error::system("block signals"))?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .map_err(Error::system("watch signals"))?;
        // Before anybody can connect.
        let foreign = Foreign::start()?;
        if let Some(note) = foreign.note() {
            warn!(note, "refused");
            driver.notes.push(note.to_owned());
        }
        let admin_listener = socket::listen(&directory.admin_socket(), admin_mode)?;
        // Its connections have it from there: no command sends descriptors.
        socket::refuse_descriptors(admin_listener.as_fd());
        if is_managed {
            give_to_group(&directory.admin_socket());
        }
        // Last: a starter that can connect here finds everything else ready.
        let client_listener = socket::listen(&directory.client_socket(), client_mode)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(Error::system("make an epoll set"))?;
        let add = |fd: std::os::fd::BorrowedFd<'_>, token| {
            epoll
                .add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token))
                .map_err(Error::system("watch a descriptor"))
        };
        add(client_listener.as_fd(), TOKEN_CLIENT)?;
        add(admin_listener.as_fd(), TOKEN_ADMIN)?;
        add(signals.as_fd(), TOKEN_SIGNAL)?;
        add(gpu.descriptor(), TOKEN_GPU)?;
        add(foreign.bell(), TOKEN_FOREIGN)?;
        Ok(Self {
            driver,
            gpu,
            timekeeper: Timekeeper::start()?,
            epoll,
            client_listener,
            admin_listener,
            signals,
            connections: BTreeMap::new(),
            silent: BTreeSet::new(),
            followers: BTreeSet::new(),
            foreign,
            checking: BTreeMap::new(),
            unread: BTreeMap::new(),
            last_connection: 0,
            accept_again_ns: None,
            is_leaving: false,
        })
    }

    /// Runs until told to leave.
    ///
    /// # Errors
    /// [`Error::System`] when epoll itself fails.
    pub fn run(mut self) -> Result<(), Error> {
        let mut events = [EpollEvent::empty(); 128];
        while !self.is_leaving {
            let time = now();
            self.turn(time);
            let timeout = self.timeout(time);
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(nix::Error::EINTR) => 0,
                Err(error) => return Err(Error::system("wait for events")(error)),
            };
            let time = now();
            for event in &events[..count] {
                self.handle(event.data(), event.events(), time);
            }
        }
        self.finish();
        Ok(())
    }

    /// What is due now, whether or not a descriptor said so.
    fn turn(&mut self, now: Now) {
        self.driver.tick(now);
        self.refresh_times(now);
        self.serve_devices(now);
        // An event may have asked for another look (a client died): ask at once, its answer is awaited.
        self.serve_devices(now);
        self.close_the_silent(now);
        if self.accept_again_ns.is_some_and(|at| now.ns >= at) {
            self.accept_again_ns = None;
            self.listen_for_connections(true);
        }
        self.perform(now);
    }

    fn serve_devices(&mut self, now: Now) {
        for look in self.driver.take_looks(now) {
            self.gpu.look(now.ns, look);
        }
        for event in self.gpu.events(now.ns) {
            self.driver.gpu(event, now);
        }
        // What the clients said was noted when the looks were announced: now they may begin.
        self.gpu.begin(now.ns);
    }

    fn refresh_times(&mut self, now: Now) {
        if self.driver.wants_times(now) {
            self.driver.times(self.timekeeper.published(), now);
        }
    }

    fn timeout(&self, now: Now) -> EpollTimeout {
        let silent = self.silent.first().and_then(|id| self.connections.get(id));
        let silent = silent.map_or(u64::MAX, |connection| connection.since_ns + HELLO_NS);
        let gpu = self.gpu.deadline_ns().unwrap_or(u64::MAX);
        let accept = self.accept_again_ns.unwrap_or(u64::MAX);
        let checking = self.checking.keys().filter_map(|id| self.connections.get(id));
        let checking = checking.fold(u64::MAX, |due, connection| due.min(connection.since_ns + HELLO_NS));
        let due = self.driver.deadline_ns().min(silent).min(checking).min(gpu).min(accept);
        // Rounded up: waking a millisecond early would spin until the time has come.
        let wait_ms = due.saturating_sub(now.ns).div_ceil(1_000_000).min(60_000);
        EpollTimeout::try_from(wait_ms as i32).unwrap_or(EpollTimeout::ZERO)
    }

    fn handle(&mut self, token: u64, flags: EpollFlags, now: Now) {
        match token {
            TOKEN_CLIENT => self.accept(false, now),
            TOKEN_ADMIN => self.accept(true, now),
            TOKEN_SIGNAL => self.take_signals(),
            // Its events are taken at the start of the turn.
            TOKEN_GPU => {}
            TOKEN_FOREIGN => self.take_checked(now),
            token if token % 2 == 0 => self.driver.ended(WatchId((token - TOKEN_FIRST) / 2), now),
            token => {
                let id = ConnectionId((token - TOKEN_FIRST) / 2);
                if flags.contains(EpollFlags::EPOLLOUT) {
                    self.flush(id, now);
                }
                if flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
                    self.read(id, now);
                }
            }
        }
        self.perform(now);
    }

    fn take_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo == Signal::SIGHUP as u32 {
                info!("SIGHUP: nothing to do; the configuration is read at the start");
            } else {
                info!(signal = signal.ssi_signo, "leaving on a signal");
                self.is_leaving = true;
            }
        }
    }

    fn accept(&mut self, is_admin: bool, now: Now) {
        for _ in 0..ACCEPTS_PER_TURN {
            let listener = if is_admin {
                &self.admin_listener
            } else {
                &self.client_listener
            };
            match socket::accept(listener.as_fd()) {
                Ok(fd) => self.add_connection(fd, is_admin, now),
                Err(nix::Error::EAGAIN) => return,
                Err(nix::Error::EMFILE | nix::Error::ENFILE) => {
                    if let Some(oldest) = self.silent.first().copied() {
                        self.close(oldest, now);
                        continue;
                    }
                    warn!("no descriptor left: connections wait");
                    self.listen_for_connections(false);
                    self.accept_again_ns = Some(now.ns + ACCEPT_PAUSE_NS);
                    return;
                }
                Err(_) => {}
            }
        }
    }

    fn listen_for_connections(&mut self, is_wanted: bool) {
        let flags = if is_wanted {
            EpollFlags::EPOLLIN
        } else {
            EpollFlags::empty()
        };
        for (fd, token) in [
            (&self.client_listener, TOKEN_CLIENT),
            (&self.admin_listener, TOKEN_ADMIN),
        ] {
            if let Err(error) = self.epoll.modify(fd, &mut EpollEvent::new(flags, token)) {
                warn!(%error, "listener cannot be changed");
            }
        }
    }

    fn add_connection(&mut self, fd: OwnedFd, is_admin: bool, now: Now) {
        self.last_connection += 1;
        let id = ConnectionId(self.last_connection);
        let Ok((pid, uid)) = socket::credentials(&fd) else {
            return self.foreign.close(id, 0, fd);
        };
        let of_user = self
            .silent
            .iter()
            .filter(|id| self.connections.get(id).is_some_and(|other| other.uid == uid));
        let of_user: Vec<ConnectionId> = of_user.copied().collect();
        if of_user.len() >= SILENT_PER_USER {
            self.close(of_user[0], now);
        }
        let event = EpollEvent::new(EpollFlags::EPOLLIN, TOKEN_FIRST + id.0 * 2 + 1);
        if self.epoll.add(&fd, event).is_err() {
            return self.foreign.close(id, uid, fd);
        }
        self.connections
            .insert(id, Connection::new(fd, pid, uid, is_admin, now.ns));
        self.silent.insert(id);
    }

    fn close_the_silent(&mut self, now: Now) {
        while let Some(id) = self.silent.first().copied() {
            match self.connections.get(&id) {
                Some(connection) if now.ns < connection.since_ns + HELLO_NS => break,
                _ => self.close(id, now),
            }
        }
        // The porter had no descriptor left for it, or its user's workers hang: nobody answers it.
        let is_late = |id: &&ConnectionId| {
            let connection = self.connections.get(id);
            connection.is_none_or(|connection| now.ns >= connection.since_ns + HELLO_NS)
        };
        for id in self.checking.keys().filter(is_late).copied().collect::<Vec<_>>() {
            debug!(connection = id.0, "closed: its pages were not checked in time");
            self.close(id, now);
        }
    }

    fn read(&mut self, id: ConnectionId, now: Now) {
        let mut buffer = [0; MAX_PACKET];
        for _ in 0..PACKETS_PER_TURN {
            let Some(connection) = self.connections.get(&id) else {
                return;
            };
            if connection.role == Role::Checking {
                return;
            }
            let taken = match socket::receive_plain(connection.socket.as_fd(), &mut buffer) {
                Waiting::Packet(length) => self.take_packet(id, &buffer[..length], now),
                Waiting::WithDescriptors(length) => self.check_pages(id, &buffer[..length], now),
                Waiting::Nothing => return,
                Waiting::Closed => return self.close(id, now),
            };
            if let Err(why) = taken {
                debug!(connection = id.0, why, "closed");
                return self.close(id, now);
            }
            self.perform(now);
        }
    }

    /// A packet that came with descriptors: only a client that comes back sends any, its pages, and first of all.
    fn check_pages(&mut self, id: ConnectionId, packet: &[u8], now: Now) -> Result<(), String> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(());
        };
        let hello = match ToBroker::decode(packet) {
            Ok(ToBroker::Hello(hello)) if connection.role == Role::Silent && hello.client != 0 => hello,
            _ => return Err("descriptors that nobody asked for".to_owned()),
        };
        connection.since_ns = now.ns;
        // Not even its end is told meanwhile: it would be told again and again.
        let is_left = self.epoll.delete(&connection.socket).is_ok();
        let client = ClientId(hello.client);
        if !is_left
            || !self
                .foreign
                .check(id, connection.uid, client, connection.socket.as_fd())
        {
            return Err("its pages cannot be checked".to_owned());
        }
        self.checking.insert(id, Box::new(hello));
        self.set_role(id, Role::Checking);
        Ok(())
    }

    /// Goes on with the clients whose pages were checked.
    fn take_checked(&mut self, now: Now) {
        for checked in self.foreign.checked() {
            let id = checked.connection;
            let (Some(hello), Some(connection)) = (self.checking.remove(&id), self.connections.get(&id)) else {
                continue;
            };
            let event = EpollEvent::new(EpollFlags::EPOLLIN, TOKEN_FIRST + id.0 * 2 + 1);
            if self.epoll.add(&connection.socket, event).is_err() {
                self.close(id, now);
                continue;
            }
            self.set_role(id, Role::Client);
            if let Some(peer) = self.peer(id) {
                self.driver.hello(peer, *hello, Some(checked.pages), now);
            }
            self.perform(now);
        }
    }

    fn take_packet(&mut self, id: ConnectionId, packet: &[u8], now: Now) -> Result<(), String> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(());
        };
        match connection.role {
            Role::Closing | Role::Checking => Ok(()),
            Role::Command | Role::Follower => Err("a command spoke twice".to_owned()),
            Role::Silent if frame::is_json(packet) => {
                let Some(document) = connection.assemble(packet)? else {
                    return Ok(());
                };
                let uid = connection.uid;
                let is_command =
                    |other: &&Connection| other.uid == uid && matches!(other.role, Role::Command | Role::Follower);
                if self.connections.values().filter(is_command).count() >= COMMANDS_PER_USER {
                    return Err("too many commands of this user".to_owned());
                }
                self.set_role(id, Role::Command);
                // It may be about what was measured, and nothing else need have happened for long.
                self.refresh_times(now);
                if let Some(peer) = self.peer(id) {
                    self.driver.request(peer, &document, now);
                }
                Ok(())
            }
            Role::Silent => match ToBroker::decode(packet) {
                Ok(ToBroker::Hello(hello)) => {
                    self.set_role(id, Role::Client);
                    if let Some(peer) = self.peer(id) {
                        self.driver.hello(peer, hello, None, now);
                    }
                    Ok(())
                }
                Ok(_) => Err("spoke before its hello".to_owned()),
                Err(DecodeError::Major(major)) => {
                    self.set_role(id, Role::Client);
                    self.driver.foreign_major(id, major);
                    Ok(())
                }
                Err(error) => Err(format!("{error:?}")),
            },
            Role::Client => {
                let message = ToBroker::decode(packet).map_err(|error| format!("{error:?}"))?;
                self.driver.message(id, message, now).map_err(str::to_owned)
            }
        }
    }

    fn set_role(&mut self, id: ConnectionId, role: Role) {
        self.silent.remove(&id);
        if let Some(connection) = self.connections.get_mut(&id) {
            if connection.role == Role::Silent && role != Role::Silent {
                // All that it may have to send with descriptors was sent.
                socket::refuse_descriptors(connection.socket.as_fd());
            }
            connection.role = role;
        }
    }

    fn peer(&self, id: ConnectionId) -> Option<Peer> {
        let connection = self.connections.get(&id)?;
        Some(Peer {
            connection: id,
            pid: connection.pid,
            uid: connection.uid,
            is_admin: connection.is_admin,
            pidfd: PidFd::of_peer(connection.socket.as_fd(), connection.pid),
        })
    }

    fn close(&mut self, id: ConnectionId, now: Now) {
        self.silent.remove(&id);
        self.followers.remove(&id);
        let is_checking = self.checking.remove(&id).is_some();
        if let Some(connection) = self.connections.remove(&id) {
            if !is_checking {
                // Closing would take it out too late: the porter has it open for a moment.
                let _ = self.epoll.delete(&connection.socket);
            }
            self.count_unread(connection.uid, connection.counted_unread, 0);
            self.foreign.close(id, connection.uid, connection.socket);
            self.driver.closed(id, now);
        }
    }

    fn flush(&mut self, id: ConnectionId, now: Now) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let flow = connection.flush();
            self.follow_flow(id, flow, now);
        }
    }

    fn follow_flow(&mut self, id: ConnectionId, flow: Flow, now: Now) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let uid = connection.uid;
        let unread = match connection.role {
            Role::Client => 0,
            _ => connection.unsent_bytes(),
        };
        let counted = std::mem::replace(&mut connection.counted_unread, unread);
        self.count_unread(uid, counted, unread);
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let flags = match flow {
            Flow::Empty => EpollFlags::EPOLLIN,
            // One that is being closed is not read any more: what it says is of no use.
            Flow::Waiting if connection.role == Role::Closing => EpollFlags::EPOLLOUT,
            Flow::Waiting => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
            Flow::Finished => return self.close(id, now),
        };
        let mut event = EpollEvent::new(flags, TOKEN_FIRST + id.0 * 2 + 1);
        if self.epoll.modify(&connection.socket, &mut event).is_err() {
            self.close(id, now);
        }
        if flow == Flow::Waiting {
            self.bound_unread(uid, now);
        }
    }

    /// Of one connection of this user, so much was unread and now is.
    fn count_unread(&mut self, uid: u32, was: usize, is: usize) {
        let sum = self.unread.get(&uid).copied().unwrap_or(0).saturating_sub(was) + is;
        if sum == 0 {
            self.unread.remove(&uid);
        } else {
            self.unread.insert(uid, sum);
        }
    }

    /// Closes the oldest of a user's commands that do not read, as long as together they leave too much unread. One alone
    /// is bounded by itself.
    fn bound_unread(&mut self, uid: u32, now: Now) {
        // Asked for each event and follower: only what is too much is worth a walk through all connections.
        if self.unread.get(&uid).is_none_or(|sum| *sum <= UNREAD_PER_USER) {
            return;
        }
        let is_theirs = |connection: &Connection| connection.uid == uid && connection.role != Role::Client;
        let theirs = self.connections.iter().filter(|(_, connection)| is_theirs(connection));
        let mut unread: Vec<(ConnectionId, usize)> = theirs
            .map(|(id, connection)| (*id, connection.unsent_bytes()))
            .filter(|(_, bytes)| *bytes > 0)
            .collect();
        let mut sum: usize = unread.iter().map(|(_, bytes)| bytes).sum();
        unread.pop();
        for (id, bytes) in unread {
            if sum <= UNREAD_PER_USER {
                return;
            }
            sum -= bytes;
            debug!(
                connection = id.0,
                uid, "closed: its user's commands leave too much unread"
            );
            self.close(id, now);
        }
    }

    /// Does what the driver wants done; that may make it want more.
    fn perform(&mut self, now: Now) {
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

    fn perform_one(&mut self, effect: Effect, now: Now) {
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
            Effect::Follow(to) => {
                self.set_role(to, Role::Follower);
                if self.connections.contains_key(&to) {
                    self.followers.insert(to);
                }
            }
            Effect::Close(to) => {
                self.set_role(to, Role::Closing);
                self.flush(to, now);
            }
            Effect::Watch(id) => {
                if let Some(fd) = self.driver.watched(id) {
                    let event = EpollEvent::new(EpollFlags::EPOLLIN, TOKEN_FIRST + id.0 * 2);
                    if let Err(error) = self.epoll.add(fd, event) {
                        warn!(%error, "a process cannot be watched");
                    }
                }
            }
            Effect::Publish(event) => {
                for to in self.followers.clone() {
                    if let Some(connection) = self.connections.get_mut(&to) {
                        let packets = event.packets(connection.uid, connection.is_admin);
                        let flow = connection.send_packets(packets.iter().cloned());
                        self.follow_flow(to, flow, now);
                    }
                }
            }
            Effect::Time(message) => self.timekeeper.tell(message),
            Effect::Exit => self.is_leaving = true,
        }
    }

    fn send_document(&mut self, to: ConnectionId, reply: &Reply, is_last: bool, now: Now) {
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

    /// Lets go of everything but the sockets, which end with the process: to close a connection here could wait for
    /// whoever left descriptors in it. State, jobs and clients stay for the next broker.
    fn finish(mut self) {
        for connection in self.connections.values_mut() {
            connection.flush();
        }
        std::mem::forget((
            self.connections,
            self.client_listener,
            self.admin_listener,
            self.foreign,
        ));
    }
}

/// Lets the group `partage`, where there is one, reach the administrators' socket.
fn give_to_group(path: &std::path::Path) {
    if let Ok(Some(group)) = nix::unistd::Group::from_name("partage")
        && let Err(error) = nix::unistd::chown(path, None, Some(group.gid))
    {
        warn!(%error, "the group partage does not get the administrators' socket");
    }
}
