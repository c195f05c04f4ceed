// SPDX-License-Identifier: Apache-2.0
//! The event loop: sockets, descriptors and time on one side, the state driver on the other. One thread, and nothing in
//! it waits except `epoll_wait`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use partage_protocol::message::Hello;
use partage_protocol::units::{JobId, SECOND_NS};
use tracing::{info, warn};

use super::connection::Connection;
use super::foreign::Foreign;
use super::given::Given;
use super::limits::HELLO_NS;
use super::socket::{self};
use super::token::Token;
use crate::clock::Now;
use crate::clock::now;
use crate::dispatcher::thread::DispatcherThread;
use crate::driver::state_driver::StateDriver;
use crate::error::Error;
use crate::history::History;
use crate::host::checkpoint::{CheckpointHelpers, Number};
use crate::host::gpu::{Gpu, GpuEvent};
use crate::host::nvml::Nvml;
use crate::host::proc::{Proc, Processes};
use crate::host::user_database::UserHelper;
use crate::peer::ConnectionId;
use crate::site::effect::Effect;
use crate::state::directory::SocketDir;
use crate::views::{Answer, Views};
use crate::watch::audit_log::Author;
use crate::watch::watchdog::Watchdog;

/// So long the broker stays for views that were asked for before its end: with 1,000 clients each takes milliseconds.
const LAST_VIEWS_NS: u64 = SECOND_NS / 5;

/// The loop and what it watches.
pub struct Server {
    pub(super) driver: StateDriver,
    pub(super) gpu: Nvml,
    pub(super) helpers: CheckpointHelpers,
    pub(super) user_helper: UserHelper,
    /// The job that each question to a helper is about.
    pub(super) questions: BTreeMap<Number, JobId>,
    pub(super) dispatcher: DispatcherThread,
    pub(super) views: Views,
    pub(super) history: History,
    pub(super) epoll: Epoll,
    pub(super) client_listener: OwnedFd,
    pub(super) admin_listener: OwnedFd,
    pub(super) signals: SignalFd,
    pub(super) connections: BTreeMap<ConnectionId, Connection>,
    /// Silent connections, oldest first.
    pub(super) silent: BTreeSet<ConnectionId>,
    pub(super) followers: BTreeSet<ConnectionId>,
    pub(super) foreign: Foreign,
    /// What the connections said whose pages are being checked.
    pub(super) checking: BTreeMap<ConnectionId, Box<Hello>>,
    /// What each user's commands leave unread, in bytes.
    pub(super) unread: BTreeMap<u32, usize>,
    pub(super) last_connection: u64,
    pub(super) accept_again_ns: Option<u64>,
    pub(super) is_leaving: bool,
}

impl Server {
    /// Listens, at the sockets that were `given` or at its own. `driver` has adopted what an earlier broker left, so
    /// the first connection meets a whole state.
    ///
    /// # Errors
    /// [`Error`] when a socket cannot be made.
    pub fn new(
        mut driver: StateDriver,
        gpu: Nvml,
        (helpers, user_helper): (CheckpointHelpers, UserHelper),
        history: History,
        directory: &SocketDir,
        given: Option<Given>,
    ) -> Result<Self, Error> {
        let mask = block_signals()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .map_err(Error::system("watch signals"))?;
        // Before anybody can connect.
        let foreign = Foreign::start()?;
        if let Some(note) = foreign.note() {
            warn!(note, "refused");
            driver.note(note.to_owned());
        }
        let (client_listener, admin_listener) = listeners(&mut driver, directory, given)?;
        // Its connections have it from there: no command sends descriptors.
        socket::refuse_descriptors(admin_listener.as_fd());
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(Error::system("make an epoll set"))?;
        let add = |fd: std::os::fd::BorrowedFd<'_>, token| {
            epoll
                .add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token))
                .map_err(Error::system("watch a descriptor"))
        };
        add(client_listener.as_fd(), Token::Client.number())?;
        add(admin_listener.as_fd(), Token::Admin.number())?;
        add(signals.as_fd(), Token::Signal.number())?;
        add(gpu.descriptor(), Token::Gpu.number())?;
        add(helpers.descriptor(), Token::Checkpoint.number())?;
        add(user_helper.descriptor(), Token::Users.number())?;
        add(foreign.bell(), Token::Foreign.number())?;
        let dispatcher = DispatcherThread::start()?;
        add(dispatcher.descriptor(), Token::Dispatcher.number())?;
        let views = Views::start()?;
        add(views.bell(), Token::Views.number())?;
        add(history.bell(), Token::History.number())?;
        Ok(Self {
            driver,
            gpu,
            helpers,
            user_helper,
            questions: BTreeMap::new(),
            dispatcher,
            views,
            history,
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

    /// Runs until told to leave; each turn may be a sign of life for the service manager.
    ///
    /// # Errors
    /// [`Error::System`] when epoll itself fails.
    pub fn run(mut self, mut watchdog: Option<Watchdog>) -> Result<(), Error> {
        let mut events = [EpollEvent::empty(); 128];
        let mut woke_ns = now().ns;
        while !self.is_leaving {
            let time = now();
            self.turn(time);
            self.driver.services().note_turn(woke_ns, now().ns);
            let mut due_ns = u64::MAX;
            if let Some(watchdog) = &mut watchdog {
                watchdog.turned(time.ns);
                due_ns = watchdog.due_ns();
            }
            let timeout = self.timeout(time, due_ns);
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(nix::Error::EINTR) => 0,
                Err(error) => return Err(Error::system("wait for events")(error)),
            };
            let time = now();
            woke_ns = time.ns;
            for event in &events[..count] {
                self.handle(event.data(), event.events(), time);
            }
        }
        self.finish();
        Ok(())
    }

    /// What is due now, whether or not a descriptor said so.
    fn turn(&mut self, now: Now) {
        self.take_outcomes(now);
        self.serve_users(now);
        self.driver.tick(now);
        self.serve_devices(now);
        // An event may have asked for another look (a client died): ask at once, its answer is awaited.
        self.serve_devices(now);
        self.close_the_silent(now);
        if self.accept_again_ns.is_some_and(|at| now.ns >= at) {
            self.accept_again_ns = None;
            self.listen_for_connections(true);
        }
        self.perform(now);
        // Last: all views that were asked for in one turn share one copy.
        self.views.serve(|| self.driver.published(now));
    }

    fn serve_devices(&mut self, now: Now) {
        for look in self.driver.take_looks(now) {
            self.gpu.look(now.ns, look);
        }
        for mut event in self.gpu.events(now.ns) {
            if let GpuEvent::Sample { sample, .. } = &mut event {
                // Nobody's job: they, or a child of theirs, hold a context for as long as a proof takes.
                let is_child = |pid| Proc.stat(pid).is_some_and(|stat| self.helpers.is_own(stat.parent));
                let is_own = |pid| self.helpers.is_own(pid) || is_child(pid);
                sample.processes.retain(|process| !is_own(process.pid));
            }
            self.driver.gpu(event, now);
        }
        // What the clients said was noted when the looks were announced: now they may begin.
        self.gpu.begin(now.ns);
    }

    /// What the checkpoint helpers answered, and what can begin.
    fn take_outcomes(&mut self, now: Now) {
        for (number, outcome) in self.helpers.outcomes(now.ns) {
            if let Some(job) = self.questions.remove(&number) {
                self.driver.helper_answered(job, outcome, now);
            }
        }
    }

    /// What the user database is to be asked, and what it answered.
    fn serve_users(&mut self, now: Now) {
        for ask in self.driver.take_user_asks(now) {
            self.user_helper.ask(ask);
        }
        for event in self.user_helper.events(now.ns) {
            self.driver.user_event(event, now);
        }
    }

    fn timeout(&self, now: Now, due_ns: u64) -> EpollTimeout {
        let silent = self.silent.first().and_then(|id| self.connections.get(id));
        let silent = silent.map_or(u64::MAX, |connection| connection.since_ns + HELLO_NS);
        let gpu = self.gpu.deadline_ns().unwrap_or(u64::MAX);
        let gpu = gpu.min(self.helpers.deadline_ns().unwrap_or(u64::MAX));
        let users = self.user_helper.deadline_ns().unwrap_or(u64::MAX);
        let accept = self.accept_again_ns.unwrap_or(u64::MAX);
        let checking = self.checking.keys().filter_map(|id| self.connections.get(id));
        let checking = checking.fold(u64::MAX, |due, connection| due.min(connection.since_ns + HELLO_NS));
        let due = self.driver.deadline_ns().min(silent).min(checking).min(gpu).min(users);
        let due = due.min(accept).min(due_ns);
        // Rounded up: waking a millisecond early would spin until the time has come.
        let wait_ms = due.saturating_sub(now.ns).div_ceil(1_000_000).min(60_000);
        EpollTimeout::try_from(wait_ms as i32).unwrap_or(EpollTimeout::ZERO)
    }

    fn handle(&mut self, token: u64, flags: EpollFlags, now: Now) {
        match Token::of_number(token) {
            Some(Token::Client) => self.accept(false, now),
            Some(Token::Admin) => self.accept(true, now),
            Some(Token::Signal) => self.take_signals(now),
            // Its events are taken at the start of the turn.
            Some(Token::Gpu | Token::Checkpoint | Token::Users) | None => {}
            Some(Token::Foreign) => self.take_checked(now),
            Some(Token::Dispatcher) => self.take_reports(now),
            Some(Token::Views) => {
                for answer in self.views.answers() {
                    match answer {
                        Answer::Stopped(found) => self.driver.found_stopped(&found, now),
                        Answer::View { to, packets } => {
                            self.perform_one(Effect::Packets { to, packets }, now);
                            self.perform_one(Effect::Close(to), now);
                        }
                    }
                }
            }
            Some(Token::History) => {
                for (to, packets) in self.history.pages() {
                    self.perform_one(Effect::Packets { to, packets }, now);
                    self.perform_one(Effect::Close(to), now);
                }
            }
            Some(Token::Watch(id)) => self.driver.ended(id, now),
            Some(Token::Connection(id)) => {
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

    /// What the dispatcher reported.
    fn take_reports(&mut self, now: Now) {
        for report in self.dispatcher.reports() {
            self.driver.report(report, now);
        }
    }

    fn take_signals(&mut self, now: Now) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo == Signal::SIGHUP as u32 {
                // What it says is in the log, in `status` and with the service manager.
                let by = Author {
                    uid: signal.ssi_uid,
                    pid: signal.ssi_pid,
                };
                let _ = self.driver.reload(Some(by), now);
            } else {
                info!(signal = signal.ssi_signo, "leaving on a signal");
                self.is_leaving = true;
            }
        }
    }

    /// Lets go of everything but the sockets, which end with the process: to close a connection here could wait for
    /// the sender of descriptors in it. State, jobs and clients stay for the next broker.
    fn finish(mut self) {
        let until_ns = now().ns.saturating_add(LAST_VIEWS_NS);
        while self.views.are_awaited() && now().ns < until_ns {
            let time = now();
            self.views.serve(|| self.driver.published(time));
            self.views.wait();
            self.handle(Token::Views.number(), EpollFlags::EPOLLIN, time);
        }
        for connection in self.connections.values_mut() {
            connection.flush();
        }
        self.history.finish();
        std::mem::forget((
            self.connections,
            self.client_listener,
            self.admin_listener,
            self.foreign,
        ));
    }
}

/// Keeps the signals that the loop reads from this thread and from those that it starts: one that is sent to a thread
/// that does not block it ends the broker.
///
/// # Errors
/// [`Error::System`] when the system refuses.
pub fn block_signals() -> Result<SigSet, Error> {
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        mask.add(signal);
    }
    mask.thread_block().map_err(Error::system("block signals"))?;
    Ok(mask)
}

/// Where clients and administrators come in.
fn listeners(
    driver: &mut StateDriver,
    directory: &SocketDir,
    given: Option<Given>,
) -> Result<(OwnedFd, OwnedFd), Error> {
    if let Some(given) = given {
        return Ok((given.client, given.admin));
    }
    let is_managed = directory.kind() == crate::kind::Kind::Managed;
    // A private broker's folder is shut to other users. Where its user mounts `client/` into a container, the
    // container's users come through, and the kernel says whose they are.
    let admin_mode = if is_managed { 0o660 } else { 0o600 };
    if is_managed {
        socket::wait_until_free(&directory.client_socket())?;
    }
    let admin = socket::listen(&directory.admin_socket(), admin_mode)?;
    driver.share_admin_socket();
    // Last: a starter that can connect here finds everything else ready.
    let client = socket::listen(&directory.client_socket(), 0o666)?;
    Ok((client, admin))
}
