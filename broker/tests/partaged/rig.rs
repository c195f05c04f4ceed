// SPDX-License-Identifier: Apache-2.0
//! A broker in a folder of its own, on a simulated machine or without a driver, and the command line's side of it.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr};
use partage_broker::server::socket::Received;
use partage_broker::testing::Scratch;
use partage_machine::Machine;
use partage_machine::spec::Spec;
use partage_protocol::admin::{EventView, EventsRequest, Reply, Request};
use partage_protocol::frame;
use partage_protocol::message::MAX_PACKET;

/// Nothing here takes longer unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A broker's surroundings; everything ends with it.
pub struct Rig {
    pub folder: Scratch,
    pub machine: Option<Machine>,
    broker: Option<Child>,
    managed: bool,
}

/// The simulated NVML. Cargo builds no library for a test that only loads it, so this asks for it.
fn nvml_library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(build_nvml_library).clone()
}

fn build_nvml_library() -> PathBuf {
    let exe = std::env::current_exe().expect("the kernel knows this program");
    let folder = exe.parent().and_then(Path::parent).expect("target/debug/deps/x");
    let target = folder.parent().expect("target");
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build
        .args(["build", "--quiet", "-p", "partage-sim-nvml", "--target-dir"])
        .arg(target);
    if folder.ends_with("release") {
        build.arg("--release");
    }
    let status = build
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo runs");
    assert!(status.success(), "partage-sim-nvml was not built");
    folder.join("libpartage_sim_nvml.so")
}

impl Rig {
    /// A private broker on a machine of `devices` devices of `bytes` each.
    pub fn new(devices: usize, bytes: u64) -> Self {
        let mut rig = Self::without_broker(false);
        rig.install(devices, bytes);
        rig.start();
        rig
    }

    /// The same, with contexts that cost something.
    pub fn with_contexts(devices: usize, bytes: u64, context_bytes: u64) -> Self {
        let mut rig = Self::without_broker(false);
        rig.install_with(devices, bytes, context_bytes);
        rig.start();
        rig
    }

    /// A private broker where no driver is.
    pub fn without_driver() -> Self {
        let mut rig = Self::without_broker(false);
        rig.start();
        rig
    }

    fn without_broker(managed: bool) -> Self {
        partage_machine::signals::pass_none_on();
        Self {
            folder: Scratch::new("rig"),
            machine: None,
            broker: None,
            managed,
        }
    }

    /// A managed broker that other users may meet.
    pub fn managed(devices: usize, bytes: u64) -> Self {
        let mut rig = Self::without_broker(true);
        rig.install(devices, bytes);
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(rig.folder.path(), std::fs::Permissions::from_mode(0o755)).expect("opened up");
        rig.start();
        rig
    }

    /// A managed broker with this configuration.
    pub fn configured(devices: usize, bytes: u64, text: &str) -> Self {
        let mut rig = Self::without_broker(true);
        rig.install(devices, bytes);
        std::fs::write(rig.folder.path().join("partage.toml"), text).expect("written");
        rig.start();
        rig
    }

    /// The machine's driver appears. Its contexts are free, so that what clients charge is all that counts.
    pub fn install(&mut self, devices: usize, bytes: u64) {
        self.install_with(devices, bytes, 0);
    }

    fn install_with(&mut self, devices: usize, bytes: u64, context_bytes: u64) {
        let folder = self.folder.path().join("machine");
        let mut spec = Spec::new(devices, "h200", Some(bytes));
        for device in &mut spec.devices {
            device.context_bytes = Some(context_bytes);
        }
        let machine = Machine::create(&folder, &spec).expect("a machine");
        let library = nvml_library();
        Machine::link_libraries(&folder, &library, &library).expect("linked");
        self.machine = Some(machine);
    }

    pub fn socket_dir(&self) -> PathBuf {
        self.folder.path().join("broker")
    }

    pub fn machine_folder(&self) -> PathBuf {
        self.folder.path().join("machine")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_partaged"));
        command.arg(if self.managed { "--managed" } else { "--private" });
        // There only where a test wrote one.
        command.arg("--config").arg(self.folder.path().join("partage.toml"));
        command.args(["--log-level", "debug", "--socket-dir"]);
        command.arg(self.socket_dir());
        command.env("PARTAGE_SIM_DIR", self.machine_folder());
        // The tests may run inside one.
        command.env("PARTAGE_PID_NAMESPACE", "any");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// A machine whose broker is still to be started.
    pub fn stopped(devices: usize, bytes: u64) -> Self {
        let mut rig = Self::without_broker(false);
        rig.install(devices, bytes);
        rig
    }

    /// Starts a broker from a shell's script, which gets program and arguments, and waits until it answers.
    pub fn start_in_shell(&mut self, script: &str) {
        let direct = self.command();
        let mut shell = Command::new("bash");
        shell
            .args(["-c", script])
            .arg(direct.get_program())
            .args(direct.get_args());
        for (name, value) in direct.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        shell.stdin(Stdio::null()).stdout(Stdio::null());
        self.wait_for(shell);
    }

    /// Starts a broker and waits until it answers.
    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    pub fn start_with(&mut self, arguments: &[&str]) {
        let mut command = self.command();
        command.args(arguments);
        self.wait_for(command);
    }

    fn wait_for(&mut self, mut command: Command) {
        assert!(self.broker.is_none());
        self.broker = Some(command.spawn().expect("partaged starts"));
        let deadline = Instant::now() + PATIENCE;
        // A killed broker's socket still takes connections while a helper that it was starting has not called exec.
        while !self.answers() {
            assert!(Instant::now() < deadline, "partaged does not listen");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn answers(&self) -> bool {
        let Ok(wire) = Wire::connect(&self.client_socket()) else {
            return false;
        };
        let document = serde_json::to_vec(&Request::Status).expect("encodes");
        let is_sent = frame::packets(&document).all(|packet| wire.send(&packet, &[]).is_ok());
        is_sent && wire.receive().is_some()
    }

    /// Runs a second broker in the same folder to its end.
    pub fn start_another(&self) -> std::process::ExitStatus {
        self.command().status().expect("partaged runs")
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut broker) = self.broker.take() {
            broker.kill().expect("killed");
            broker.wait().expect("reaped");
        }
    }

    /// Waits until the broker has left by itself.
    pub fn wait_for_exit(&mut self) -> std::process::ExitStatus {
        let mut broker = self.broker.take().expect("runs");
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = broker.try_wait().expect("waited") {
                return status;
            }
            assert!(Instant::now() < deadline, "the broker does not leave");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn client_socket(&self) -> PathBuf {
        self.socket_dir().join("client/client.sock")
    }

    /// Asks on `client.sock` from this process.
    pub fn ask(&self, request: &Request) -> Reply {
        ask(&self.client_socket(), request)
    }

    pub fn status(&self) -> partage_protocol::admin::StatusView {
        match self.ask(&Request::Status) {
            Reply::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }

    /// Asks until the status is as wanted.
    pub fn wait_for_status(&self, what: &str, is_it: impl Fn(&partage_protocol::admin::StatusView) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if is_it(&status) {
                return;
            }
            assert!(Instant::now() < deadline, "never {what}: {status:#?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn job(&self, job: &str) -> partage_protocol::admin::JobView {
        let target = job.to_owned();
        match self.ask(&Request::Get { target }) {
            Reply::Job(job) => job,
            other => panic!("{other:?}"),
        }
    }

    /// Follows the events from now on (those before are read over).
    pub fn follow(&self) -> Followed {
        let wire = Wire::connect(&self.client_socket()).expect("connected");
        wire.request(&Request::Events(EventsRequest {
            follow: true,
            ..EventsRequest::default()
        }));
        Followed { wire }
    }

    pub fn log(&self) -> String {
        let log = std::fs::read_to_string(self.socket_dir().join("log/partaged.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the broker's log\n{}", self.log());
        }
        self.kill();
    }
}

/// Events as they come.
pub struct Followed {
    wire: Wire,
}

impl Followed {
    /// The next event of this kind; all before it are read over.
    pub fn wait_for(&self, kind: &str) -> EventView {
        loop {
            match self.wire.reply() {
                Some(Reply::Event(event)) if event.kind == kind => return event,
                Some(_) => {}
                None => panic!("the broker closed before {kind:?}"),
            }
        }
    }
}

/// One request, its last reply.
pub fn ask(socket: &Path, request: &Request) -> Reply {
    let wire = Wire::connect(socket).expect("connected");
    wire.request(request);
    loop {
        match wire.reply() {
            Some(Reply::Waiting(_) | Reply::Event(_)) => {}
            Some(reply) => return reply,
            None => panic!("closed without a reply to {request:?}"),
        }
    }
}

/// One connection, blocking with a bound.
pub struct Wire {
    pub fd: OwnedFd,
}

impl Wire {
    pub fn connect(path: &Path) -> Result<Self, nix::Error> {
        let fd = socket::socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        socket::connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self { fd })
    }

    pub fn request(&self, request: &Request) {
        let document = serde_json::to_vec(request).expect("encodes");
        for packet in frame::packets(&document) {
            self.send(&packet, &[]).expect("sent");
        }
    }

    /// The next document; `None` when the broker closed.
    pub fn reply(&self) -> Option<Reply> {
        let mut assembler = frame::Assembler::default();
        loop {
            let (packet, _) = self.receive()?;
            if let Some(document) = assembler.push(&packet).expect("a JSON packet") {
                return Some(serde_json::from_slice(&document).expect("a reply"));
            }
        }
    }

    pub fn send(&self, packet: &[u8], descriptors: &[&OwnedFd]) -> Result<usize, nix::Error> {
        let raw: Vec<i32> = descriptors.iter().map(|fd| fd.as_raw_fd()).collect();
        let rights = [socket::ControlMessage::ScmRights(&raw)];
        let control: &[_] = if raw.is_empty() { &[] } else { &rights };
        let flags = MsgFlags::MSG_NOSIGNAL;
        socket::sendmsg::<()>(self.fd.as_raw_fd(), &[IoSlice::new(packet)], control, flags, None)
    }

    /// The next packet; `None` when the broker closed.
    ///
    /// # Panics
    /// When none comes for [`PATIENCE`].
    pub fn receive(&self) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let mut buffer = vec![0; MAX_PACKET];
        let mut polled = [nix::poll::PollFd::new(self.fd.as_fd(), nix::poll::PollFlags::POLLIN)];
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).as_millis() as u16;
            assert!(left > 0, "no answer from the broker");
            let _ = nix::poll::poll(&mut polled, left);
            match partage_broker::server::socket::receive(self.fd.as_fd(), &mut buffer) {
                Received::Packet(length, descriptors) => {
                    buffer.truncate(length);
                    return Some((buffer, descriptors));
                }
                Received::Nothing => {}
                Received::Closed => return None,
            }
        }
    }
}

/// The program that this test binary is, as another process; as `somebody` else. That one is given a copy in the rig's
/// folder: the build may lie below a home folder that is shut to others.
pub fn own_program(test: &str, somebody: Option<(&Rig, u32)>) -> Command {
    let mut program = std::env::current_exe().expect("the kernel knows this program");
    if let Some((rig, _)) = somebody {
        let copy = rig.folder.path().join("own-program");
        if !copy.exists() {
            // By way of a child: what is open for writing here could not be executed while another thread starts
            // something.
            let status = Command::new("/bin/cp").arg(&program).arg(&copy).status();
            assert!(status.is_ok_and(|status| status.success()), "copied");
        }
        program = copy;
    }
    let mut command = Command::new(program);
    command.args(["--exact", test, "--ignored", "--nocapture", "--quiet"]);
    if let Some((_, uid)) = somebody {
        command.uid(uid).gid(uid);
    }
    command
}
