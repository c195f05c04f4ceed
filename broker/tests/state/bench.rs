// SPDX-License-Identifier: Apache-2.0
//! A state driver, its devices, and what it wants done, without a loop.

use std::cell::Cell;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};

use partage_broker::clock::Now;
use partage_broker::config::Config;
use partage_broker::driver::state_driver::{Parts, StateDriver};
use partage_broker::host::fake::FakeGpu;
use partage_broker::host::gpu::Gpu;
use partage_broker::host::pidfd::PidFd;
use partage_broker::host::proc::{Proc, Processes, Stat};
use partage_broker::kind::Kind;
use partage_broker::peer::ConnectionId;
use partage_broker::peer::Peer;
use partage_broker::site::effect::{Effect, WatchId};
use partage_broker::state::directory::SocketDir;
use partage_broker::testing::Scratch;
use partage_broker::views::ViewRequest;
use partage_protocol::admin::{JobView, Reply, StatusView};
use partage_protocol::message::{ENVIRONMENT_BYTES, Hello, Measure, ToBroker, ToClient};
use partage_protocol::units::{GIB, SECOND_NS};

/// Tokens that are no secret, and unlike each other as real ones are.
fn unlike() -> [u8; 32] {
    static DRAWN: AtomicU8 = AtomicU8::new(1);
    [DRAWN.fetch_add(1, Ordering::Relaxed); 32]
}

/// A state driver, its devices, and what it wanted done.
pub struct Bench {
    pub driver: StateDriver,
    pub gpu: FakeGpu,
    pub now: Now,
    pub connections: u64,
    pub effects: Vec<Effect>,
    pub watches: Vec<WatchId>,
    /// Of the last client that attached.
    pub client: Option<ConnectionId>,
    _folder: Scratch,
}

pub struct Sleeper(pub Child);

impl Sleeper {
    pub fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().expect("sleep runs"))
    }

    /// One that ignores SIGTERM.
    pub fn deaf() -> Self {
        let script = "trap '' TERM; echo; exec sleep 600";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh runs");
        let mut ready = [0];
        let stdout = child.stdout.as_mut().expect("piped");
        stdout.read_exact(&mut ready).expect("it is deaf now");
        Self(child)
    }

    /// The signal that it dies of.
    pub fn signal(&mut self) -> Option<i32> {
        self.0.wait().expect("reaped").signal()
    }

    pub fn is_alive(&mut self) -> bool {
        self.0.try_wait().expect("asked").is_none()
    }

    pub fn kill(&mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("reaped");
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The machine's processes, as a broker with fewer rights may see them, and how often one of them was looked at.
#[derive(Default)]
pub struct ProcessTable {
    /// No program's place is shown.
    pub are_programs_hidden: bool,
    /// The process whose looks are counted, and the count.
    pub counted: Option<(u32, Rc<Cell<u32>>)>,
}

impl ProcessTable {
    /// As a broker without rights sees the processes.
    pub fn hidden() -> Self {
        Self {
            are_programs_hidden: true,
            ..Self::default()
        }
    }
}

impl Processes for ProcessTable {
    fn stat(&self, pid: u32) -> Option<Stat> {
        if let Some((_, looks)) = self.counted.as_ref().filter(|(counted, _)| *counted == pid) {
            looks.set(looks.get() + 1);
        }
        let stat = Proc.stat(pid)?;
        let image = if self.are_programs_hidden { (0, 0) } else { stat.image };
        Some(Stat { image, ..stat })
    }

    fn uid(&self, pid: u32) -> Option<u32> {
        Proc.uid(pid)
    }

    fn name(&self, pid: u32) -> Option<String> {
        Proc.name(pid)
    }

    fn program(&self, pid: u32) -> Option<String> {
        Proc.program(pid)
    }

    fn gid(&self, _: u32) -> Option<u32> {
        None
    }
    fn groups(&self, pid: u32) -> Vec<u32> {
        Proc.groups(pid)
    }

    fn cgroup(&self, pid: u32) -> Option<String> {
        Proc.cgroup(pid)
    }

    fn all(&self) -> Vec<u32> {
        Proc.all()
    }

    fn has_thread(&self, pid: u32, name: &str) -> bool {
        Proc.has_thread(pid, name)
    }

    fn private_brokers(&self) -> std::collections::BTreeSet<u32> {
        Proc.private_brokers()
    }
}

impl Bench {
    pub fn new(gpu: FakeGpu) -> Self {
        Self::seeing(gpu, ProcessTable::default())
    }

    pub fn seeing(gpu: FakeGpu, processes: ProcessTable) -> Self {
        let folder = Scratch::new("state");
        let directory = SocketDir::prepare(&folder.path().join("d"), Kind::Private).expect("prepared");
        let parts = Parts {
            directory,
            config: Config::default(),
            config_file: None,
            processes: Box::new(processes),
            random: unlike,
            notes: Vec::new(),
            services: std::sync::Arc::default(),
            first_event: 1,
            idle_exit_ns: Some(60 * SECOND_NS),
        };
        let now = Now {
            ns: SECOND_NS,
            unix_ns: SECOND_NS,
        };
        let mut bench = Self {
            driver: StateDriver::start(parts, now).expect("started"),
            gpu,
            now,
            connections: 0,
            effects: Vec::new(),
            watches: Vec::new(),
            client: None,
            _folder: folder,
        };
        bench.turn();
        bench
    }

    /// One turn of the loop: processes that ended, looks that are due, time.
    pub fn turn(&mut self) {
        for watch in self.watches.clone() {
            self.driver.ended(watch, self.now);
        }
        self.driver.tick(self.now);
        for _ in 0..4 {
            for look in self.driver.take_looks(self.now) {
                self.gpu.look(self.now.ns, look);
            }
            for event in self.gpu.events(self.now.ns) {
                self.driver.gpu(event, self.now);
            }
            self.gpu.begin(self.now.ns);
        }
        self.take_effects();
    }

    fn take_effects(&mut self) {
        for effect in self.driver.take_effects() {
            match effect {
                Effect::Watch(id) => self.watches.push(id),
                Effect::View(request) => self.answer(&request),
                other => self.effects.push(other),
            }
        }
    }

    /// Makes a view from a copy, as the worker does.
    fn answer(&mut self, request: &ViewRequest) {
        let (published, found) = self.driver.published(self.now).find_stopped(&Proc);
        self.driver.found_stopped(&found, self.now);
        self.effects.push(Effect::Document {
            to: request.to,
            reply: Box::new(published.answer(request, &Proc)),
            is_last: true,
        });
    }

    pub fn pass(&mut self, ns: u64) {
        self.now.ns += ns;
        self.now.unix_ns += ns;
        self.turn();
    }

    pub fn peer(&mut self, pid: u32) -> Peer {
        self.connections += 1;
        Peer {
            connection: ConnectionId(self.connections),
            pid,
            uid: nix::unistd::geteuid().as_raw(),
            is_admin: false,
            pidfd: PidFd::open(pid),
        }
    }

    pub fn ask(&mut self, pid: u32, request: &str) -> Option<Reply> {
        let peer = self.peer(pid);
        let connection = peer.connection;
        self.driver.request(peer, request.as_bytes(), self.now);
        self.take_effects();
        self.pass(1);
        self.take_reply(connection)
    }

    pub fn take_reply(&mut self, connection: ConnectionId) -> Option<Reply> {
        let place = self
            .effects
            .iter()
            .position(|effect| matches!(effect, Effect::Document { to, .. } if *to == connection))?;
        match self.effects.remove(place) {
            Effect::Document { reply, .. } => Some(*reply),
            _ => None,
        }
    }

    pub fn hello(&mut self, pid: u32) -> ConnectionId {
        let peer = self.peer(pid);
        let connection = peer.connection;
        let hello = Hello {
            header: Hello::header(0),
            token: [0; 32],
            client: 0,
            environment_limit: 0,
            pid,
            flags: 0,
            environment_length: 0,
            nodes: 0,
            environment: [0; ENVIRONMENT_BYTES],
        };
        self.driver.hello(peer, hello, None, self.now);
        self.client = Some(connection);
        self.turn();
        connection
    }

    /// A client's `Measure` on slot 0.
    pub fn measure(&mut self, connection: ConnectionId, stage: u32) {
        let header = Measure::header(1);
        let measure = ToBroker::Measure(Measure { header, slot: 0, stage });
        self.driver.message(connection, measure, self.now).expect("a client's");
    }

    /// The binary packet that was sent to a connection, if one was.
    pub fn packet(&self, connection: ConnectionId) -> Option<ToClient> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Send { to, packet, .. } if *to == connection => ToClient::decode(packet).ok(),
            _ => None,
        })
    }

    /// A job of 8 GiB with one client, which uses 5 GiB of device 0.
    pub fn job(&mut self, sleeper: &Sleeper) -> String {
        let pid = sleeper.0.id();
        let job = match self.ask(pid, r#"{"verb":"run","mem":"8GiB","gpu":"0"}"#) {
            Some(Reply::Admitted(admitted)) => admitted.job,
            other => panic!("{other:?}"),
        };
        let connection = self.hello(pid);
        assert!(matches!(self.packet(connection), Some(ToClient::Welcome(_))));
        self.gpu.set_use(0, pid, 5 * GIB);
        job
    }

    pub fn view(&mut self, job: &str) -> JobView {
        match self.ask(std::process::id(), &format!(r#"{{"verb":"get","target":"{job}"}}"#)) {
            Some(Reply::Job(view)) => view,
            other => panic!("{other:?}"),
        }
    }

    pub fn status(&mut self) -> StatusView {
        match self.ask(std::process::id(), r#"{"verb":"status"}"#) {
            Some(Reply::Status(status)) => status,
            other => panic!("{other:?}"),
        }
    }
}
