// SPDX-License-Identifier: Apache-2.0
//! The state driver with devices that misbehave as real ones do: memory that outlives its process, hangs, late drivers.
//! Time is the test's; processes are real (`sleep`).

use std::cell::Cell;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};

use partage_broker::config::Config;
use partage_broker::connection::ConnectionId;
use partage_broker::directory::{Kind, SocketDir};
use partage_broker::host::fake::FakeGpu;
use partage_broker::host::gpu::{Driver, Gpu, GpuEvent};
use partage_broker::host::pidfd::PidFd;
use partage_broker::host::proc::{Proc, Processes, Stat};
use partage_broker::state_driver::{Effect, Now, Parts, Peer, StateDriver, WatchId};
use partage_broker::testing::Scratch;
use partage_broker::timekeeper::Message;
use partage_policy::{Cause, JobTime, Regime, TimeState, UnmanagedLoad};
use partage_protocol::admin::{JobView, Reply, StatusView};
use partage_protocol::message::{
    ENVIRONMENT_BYTES, Hello, MEASURE_AFTER, Measure, ToBroker, ToClient, VERDICT_GRANTED,
};
use partage_protocol::units::{GIB, SECOND_NS};
use partage_scheduling::{Class, Terms};

/// Tokens that are no secret, and unlike each other as real ones are.
fn unlike() -> [u8; 32] {
    static DRAWN: AtomicU8 = AtomicU8::new(1);
    [DRAWN.fetch_add(1, Ordering::Relaxed); 32]
}

/// A state driver, its devices, and what it wanted done.
struct Bench {
    driver: StateDriver,
    gpu: FakeGpu,
    now: Now,
    connections: u64,
    effects: Vec<Effect>,
    watches: Vec<WatchId>,
    /// Of the last client that attached.
    client: Option<ConnectionId>,
    _folder: Scratch,
}

struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().expect("sleep runs"))
    }

    /// One that ignores SIGTERM.
    fn deaf() -> Self {
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
    fn signal(&mut self) -> Option<i32> {
        self.0.wait().expect("reaped").signal()
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().expect("asked").is_none()
    }

    fn kill(&mut self) {
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

/// The machine's processes as a broker without rights sees them: no program's place is shown.
struct Hidden;

impl Processes for Hidden {
    fn stat(&self, pid: u32) -> Option<Stat> {
        let stat = Proc.stat(pid)?;
        Some(Stat { image: (0, 0), ..stat })
    }

    fn uid(&self, pid: u32) -> Option<u32> {
        Proc.uid(pid)
    }

    fn name(&self, pid: u32) -> Option<String> {
        Proc.name(pid)
    }

    fn cgroup(&self, pid: u32) -> Option<String> {
        Proc.cgroup(pid)
    }

    fn all(&self) -> Vec<u32> {
        Proc.all()
    }
}

/// The machine's processes, and how often one of them was looked at.
struct Counted {
    pid: u32,
    looks: Rc<Cell<u32>>,
}

impl Processes for Counted {
    fn stat(&self, pid: u32) -> Option<Stat> {
        self.looks.set(self.looks.get() + u32::from(pid == self.pid));
        Proc.stat(pid)
    }

    fn uid(&self, pid: u32) -> Option<u32> {
        Proc.uid(pid)
    }

    fn name(&self, pid: u32) -> Option<String> {
        Proc.name(pid)
    }

    fn cgroup(&self, pid: u32) -> Option<String> {
        Proc.cgroup(pid)
    }

    fn all(&self) -> Vec<u32> {
        Proc.all()
    }
}

impl Bench {
    fn new(gpu: FakeGpu) -> Self {
        Self::seeing(gpu, Box::new(Proc))
    }

    fn seeing(gpu: FakeGpu, processes: Box<dyn Processes>) -> Self {
        let folder = Scratch::new("state");
        let directory = SocketDir::prepare(&folder.path().join("d"), Kind::Private).expect("prepared");
        let parts = Parts {
            directory,
            config: Config::default(),
            processes,
            random: unlike,
            notes: Vec::new(),
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
    fn turn(&mut self) {
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
        for effect in self.driver.take_effects() {
            match effect {
                Effect::Watch(id) => self.watches.push(id),
                other => self.effects.push(other),
            }
        }
    }

    fn pass(&mut self, ns: u64) {
        self.now.ns += ns;
        self.now.unix_ns += ns;
        self.turn();
    }

    fn peer(&mut self, pid: u32) -> Peer {
        self.connections += 1;
        Peer {
            connection: ConnectionId(self.connections),
            pid,
            uid: nix::unistd::geteuid().as_raw(),
            is_admin: false,
            pidfd: PidFd::open(pid),
        }
    }

    fn ask(&mut self, pid: u32, request: &str) -> Option<Reply> {
        let peer = self.peer(pid);
        let connection = peer.connection;
        self.driver.request(peer, request.as_bytes(), self.now);
        self.pass(1);
        self.take_reply(connection)
    }

    fn take_reply(&mut self, connection: ConnectionId) -> Option<Reply> {
        let place = self
            .effects
            .iter()
            .position(|effect| matches!(effect, Effect::Document { to, .. } if *to == connection))?;
        match self.effects.remove(place) {
            Effect::Document { reply, .. } => Some(*reply),
            _ => None,
        }
    }

    fn hello(&mut self, pid: u32) -> ConnectionId {
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
            reserved: 0,
            environment: [0; ENVIRONMENT_BYTES],
        };
        self.driver.hello(peer, hello, None, self.now);
        self.client = Some(connection);
        self.turn();
        connection
    }

    /// A client's `Measure` on slot 0.
    fn measure(&mut self, connection: ConnectionId, stage: u32) {
        let header = Measure::header(1);
        let measure = ToBroker::Measure(Measure { header, slot: 0, stage });
        self.driver.message(connection, measure, self.now).expect("a client's");
    }

    /// The binary packet that was sent to a connection, if one was.
    fn packet(&self, connection: ConnectionId) -> Option<ToClient> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Send { to, packet, .. } if *to == connection => ToClient::decode(packet).ok(),
            _ => None,
        })
    }

    /// A job of 8 GiB with one client, which uses 5 GiB of device 0.
    fn job(&mut self, sleeper: &Sleeper) -> String {
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

    fn view(&mut self, job: &str) -> JobView {
        match self.ask(std::process::id(), &format!(r#"{{"verb":"get","target":"{job}"}}"#)) {
            Some(Reply::Job(view)) => view,
            other => panic!("{other:?}"),
        }
    }

    fn status(&mut self) -> StatusView {
        match self.ask(std::process::id(), r#"{"verb":"status"}"#) {
            Some(Reply::Status(status)) => status,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_dead_client_stays_charged_until_the_device_shows_its_memory_freed() {
    let mut bench = Bench::new(FakeGpu::with_devices(1, 16 * GIB));
    let mut sleeper = Sleeper::start();
    let pid = sleeper.0.id();
    let job = bench.job(&sleeper);
    sleeper.kill();
    bench.turn();
    // The driver has not let go yet: charged, and shown as dying.
    for _ in 0..40 {
        bench.pass(SECOND_NS / 4);
    }
    let view = bench.view(&job);
    assert_eq!(
        (view.state.as_str(), view.clients[0].state.as_str()),
        ("dying", "dying")
    );
    assert_eq!(view.devices[0].granted_bytes, 8 * GIB);
    let refused = bench.ask(std::process::id(), r#"{"verb":"run","mem":"12GiB"}"#);
    assert!(matches!(refused, Some(Reply::Error(_))), "{refused:?}");

    bench.gpu.set_use(0, pid, 0);
    bench.pass(SECOND_NS / 20);
    assert!(
        bench.view(&job).clients.is_empty(),
        "free within one look of a dying client"
    );
    bench.pass(6 * SECOND_NS);
    assert_eq!(bench.view(&job).state, "ended");
    assert_eq!(bench.status().devices[0].committed_bytes, 0);
}

#[test]
fn a_client_whose_program_is_hidden_is_judged_by_what_the_device_shows_of_it() {
    let mut bench = Bench::seeing(FakeGpu::with_devices(1, 16 * GIB), Box::new(Hidden));
    let sleeper = Sleeper::start();
    let pid = sleeper.0.id();
    let job = bench.job(&sleeper);
    bench.pass(SECOND_NS);
    // It closed the descriptors that it does not know. Its memory is there, and so is its charge.
    let connection = bench.client.expect("attached");
    bench.driver.closed(connection, bench.now);
    for _ in 0..10 {
        bench.pass(SECOND_NS);
    }
    let view = bench.view(&job);
    assert_eq!((view.clients.len(), view.devices[0].granted_bytes), (1, 8 * GIB));
    // It became another program by exec: the driver freed what it held.
    bench.gpu.set_use(0, pid, 0);
    for _ in 0..3 {
        bench.pass(SECOND_NS);
    }
    let view = bench.view(&job);
    assert_eq!((view.clients.len(), view.devices[0].granted_bytes), (0, 0));
    assert_eq!(view.state, "running", "its process lives");
}

#[test]
fn a_hidden_client_that_is_away_stays_charged_where_nothing_shows_that_it_is_gone() {
    // A driver that names no processes, as in a container of its own: nothing ever showed this one.
    let mut bench = Bench::seeing(FakeGpu::with_devices(1, 16 * GIB), Box::new(Hidden));
    let sleeper = Sleeper::start();
    let job = bench.job(&sleeper);
    bench.gpu.set_use(0, sleeper.0.id(), 0);
    bench.pass(SECOND_NS);
    let connection = bench.client.expect("attached");
    bench.driver.closed(connection, bench.now);
    for _ in 0..10 {
        bench.pass(SECOND_NS);
    }
    let view = bench.view(&job);
    assert_eq!((view.clients.len(), view.devices[0].granted_bytes), (1, 8 * GIB));

    // A client that was shown has its second for coming back, also where the driver has just failed.
    let mut bench = Bench::seeing(FakeGpu::with_devices(1, 16 * GIB), Box::new(Hidden));
    let job = bench.job(&sleeper);
    bench.pass(SECOND_NS);
    let connection = bench.client.expect("attached");
    let failed = GpuEvent::Driver(Driver::Failed("gone".into()));
    bench.driver.closed(connection, bench.now);
    bench.driver.gpu(failed, bench.now);
    assert_eq!(bench.view(&job).clients.len(), 1);
}

#[test]
fn the_end_of_one_process_is_not_subtracted_from_a_look_that_no_longer_saw_it() {
    let mut bench = Bench::new(FakeGpu::with_devices(1, 16 * GIB));
    let mut sleeper = Sleeper::start();
    let pid = sleeper.0.id();
    bench.job(&sleeper);
    let stranger = Sleeper::start();
    bench.gpu.set_use(0, stranger.0.id(), 4 * GIB);
    bench.pass(SECOND_NS);
    let before = bench.status().devices[0].used_bytes;
    sleeper.kill();
    bench.gpu.set_use(0, pid, 0);
    for _ in 0..20 {
        bench.pass(SECOND_NS / 100);
        let used = bench.status().devices[0].used_bytes;
        assert!(used == before || used == before - 5 * GIB, "{used} of {before}");
    }
    assert_eq!(bench.status().devices[0].used_bytes, before - 5 * GIB);
}

#[test]
fn a_hung_device_is_lost_delays_no_one_else_and_comes_back() {
    let mut bench = Bench::new(FakeGpu::with_devices(2, 16 * GIB));
    let mut sleeper = Sleeper::start();
    bench.job(&sleeper);
    bench.gpu.set_hung(0, true);
    bench.pass(SECOND_NS);
    let states: Vec<String> = bench.status().devices.into_iter().map(|device| device.state).collect();
    assert!(states[0].starts_with("lost") && states[1] == "ok", "{states:?}");
    let other = Sleeper::start();
    let reply = bench.ask(other.0.id(), r#"{"verb":"run","mem":"8GiB"}"#);
    let Some(Reply::Admitted(admitted)) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(admitted.devices[0].index, 1);
    // A client of the lost device that ends is not waited for.
    sleeper.kill();
    bench.pass(SECOND_NS);
    assert_eq!(bench.status().broker.clients, 0);

    bench.gpu.set_use(0, sleeper.0.id(), 0);
    bench.gpu.set_hung(0, false);
    bench.pass(SECOND_NS);
    assert!(bench.status().devices.iter().all(|device| device.state == "ok"));
}

#[test]
fn a_slow_device_keeps_nobody_waiting_on_another() {
    let mut bench = Bench::new(FakeGpu::with_devices(2, 16 * GIB));
    let holder = Sleeper::start();
    bench.job(&holder);
    bench.gpu.set_slow(0, 1000);
    bench.pass(SECOND_NS);
    // A run goes to the other device at once, and one for the slow device waits instead of being judged by old numbers.
    let other = Sleeper::start();
    match bench.ask(other.0.id(), r#"{"verb":"run","mem":"4GiB"}"#) {
        Some(Reply::Admitted(admitted)) => assert_eq!(admitted.devices[0].index, 1),
        reply => panic!("{reply:?}"),
    }
    match bench.ask(std::process::id(), r#"{"verb":"run","mem":"1GiB","gpu":"0"}"#) {
        Some(Reply::Error(error)) => assert!(error.message.contains("takes long to answer"), "{}", error.message),
        reply => panic!("{reply:?}"),
    }
    assert_eq!(bench.status().devices[0].state, "ok", "slow is not lost");
    bench.gpu.set_slow(0, 0);
    for _ in 0..300 {
        bench.pass(SECOND_NS / 10);
    }
    let third = Sleeper::start();
    let reply = bench.ask(third.0.id(), r#"{"verb":"run","mem":"1GiB","gpu":"0"}"#);
    assert!(matches!(reply, Some(Reply::Admitted(_))), "{reply:?}");
}

#[test]
fn a_measurement_of_a_device_that_says_nothing_is_answered_all_the_same() {
    for is_lost in [false, true] {
        let mut bench = Bench::new(FakeGpu::with_devices(2, 16 * GIB));
        let sleeper = Sleeper::start();
        bench.job(&sleeper);
        let connection = bench.client.expect("attached");
        if is_lost {
            bench.gpu.set_hung(0, true);
        } else {
            bench.gpu.set_slow(0, 1_000_000);
        }
        bench.effects.clear();
        bench.measure(connection, MEASURE_AFTER);
        bench.pass(SECOND_NS);
        if !is_lost {
            assert!(bench.packet(connection).is_none(), "a look may still come");
            bench.pass(SECOND_NS);
        }
        let Some(ToClient::Answer(answer)) = bench.packet(connection) else {
            panic!("within two seconds")
        };
        assert_eq!(answer.verdict, VERDICT_GRANTED);
    }
}

#[test]
fn overhead_on_one_device_is_measured_while_another_is_slow() {
    let mut bench = Bench::new(FakeGpu::with_devices(2, 16 * GIB));
    let sleeper = Sleeper::start();
    let job = bench.job(&sleeper);
    let connection = bench.client.expect("attached");
    bench.gpu.set_slow(1, 1_000_000);
    bench.pass(SECOND_NS);
    bench.gpu.set_use(0, sleeper.0.id(), 7 * GIB);
    bench.effects.clear();
    bench.measure(connection, MEASURE_AFTER);
    bench.pass(SECOND_NS / 50);
    let Some(ToClient::Answer(answer)) = bench.packet(connection) else {
        panic!("by the next look")
    };
    assert_eq!((answer.verdict, answer.job_used), (VERDICT_GRANTED, 7 * GIB));
    assert_eq!(bench.view(&job).devices[0].overhead_bytes, 7 * GIB);
}

#[test]
fn what_comes_before_the_devices_are_known_is_answered_when_they_are() {
    // A driver that says nothing at first.
    let mut bench = Bench::new(FakeGpu::default());
    let sleeper = Sleeper::start();
    let peer = bench.peer(sleeper.0.id());
    let run = peer.connection;
    bench.driver.request(peer, br#"{"verb":"run","mem":"8GiB"}"#, bench.now);
    let other = Sleeper::start();
    let hello = bench.hello(other.0.id());
    let gone = Sleeper::start();
    let closed = bench.hello(gone.0.id());
    bench.driver.closed(closed, bench.now);
    bench.turn();
    assert!(bench.take_reply(run).is_none() && bench.packet(hello).is_none());

    bench.gpu.install(FakeGpu::with_devices(1, 16 * GIB));
    bench.pass(SECOND_NS);
    bench.pass(SECOND_NS);
    assert!(matches!(bench.take_reply(run), Some(Reply::Admitted(_))));
    assert!(matches!(bench.packet(hello), Some(ToClient::Welcome(_))));
    assert!(bench.packet(closed).is_none());
    assert_eq!(bench.status().broker.clients, 1);
}

#[test]
fn without_a_driver_the_answer_comes_at_once_and_an_idle_broker_leaves_on_time() {
    let mut bench = Bench::new(FakeGpu::without_driver());
    let sleeper = Sleeper::start();
    let reply = bench.ask(sleeper.0.id(), r#"{"verb":"run","wait":true}"#);
    assert!(matches!(reply, Some(Reply::Error(_))), "{reply:?}");
    let connection = bench.hello(sleeper.0.id());
    assert!(matches!(bench.packet(connection), Some(ToClient::Refused(_))));
    let is_leaving = |bench: &Bench| bench.effects.iter().any(|effect| matches!(effect, Effect::Exit));
    bench.pass(58 * SECOND_NS);
    assert!(!is_leaving(&bench));
    bench.pass(3 * SECOND_NS);
    assert!(is_leaving(&bench));
}

#[test]
fn the_timekeeper_hears_terms_and_what_it_measured_is_shown() {
    let mut bench = Bench::new(FakeGpu::with_devices(2, 16 * GIB));
    let sleeper = Sleeper::start();
    let request = r#"{"verb":"run","gpu":"0,1","compute":"30%","compute_max":"50%","weight":"7","priority":"high"}"#;
    let job = match bench.ask(sleeper.0.id(), request) {
        Some(Reply::Admitted(admitted)) => admitted.job,
        other => panic!("{other:?}"),
    };
    let told = |bench: &Bench| {
        let terms = bench.effects.iter().rev().find_map(|effect| match effect {
            Effect::Time(Message::Terms { job, devices, terms }) => Some((*job, devices.clone(), *terms)),
            _ => None,
        });
        terms.expect("told")
    };
    let (id, devices, terms) = told(&bench);
    let expected = Terms {
        promise_ppm: 300_000,
        weight: 7,
        class: Class::High,
        cap_ppm: Some(500_000),
        is_gang: true,
    };
    assert_eq!((id.to_string(), devices.len(), terms), (job.clone(), 2, expected));
    let set = format!(r#"{{"verb":"set","target":"{job}","terms":{{"compute":"none","weight":"9"}}}}"#);
    assert!(matches!(bench.ask(sleeper.0.id(), &set), Some(Reply::Job(_))));
    assert_eq!((told(&bench).2.promise_ppm, told(&bench).2.weight), (0, 9));

    let time = JobTime {
        job: id,
        device: devices[0],
        asked_ppm: 500_000,
        got_1s_ppm: 250_000,
        got_60s_ppm: 400_000,
        used_ns: 5,
        corrected_ns: 0,
        waited_ns: 3,
        state: TimeState::Capped,
        waits_for: Cause::Cap,
        wanted_60s_ppm: 1_000_000,
        unit_ns: 4,
        regime: Regime::Turns,
        is_not_draining: false,
        stretch: 0,
    };
    assert!(bench.driver.wants_times(bench.now));
    bench.driver.times(vec![time], bench.now);
    assert!(!bench.driver.wants_times(bench.now), "once a second");
    let view = bench.view(&job);
    let time = view.devices[0].time.clone().expect("measured");
    assert_eq!(
        (time.share, time.got_1s, time.got_60s, time.used_ns, time.unit_ns),
        (0.5, 0.25, 0.4, 5, 4)
    );
    assert_eq!(
        (time.state.as_str(), time.held_by.as_deref(), time.regime.as_str()),
        ("capped", Some("cap"), "turns")
    );
    assert!(view.devices[1].time.is_none());
    bench.pass(SECOND_NS);
    bench.driver.times(Vec::new(), bench.now);
    assert!(bench.view(&job).devices[0].time.is_none(), "measured no more");
}

#[test]
fn the_timekeeper_hears_of_strangers_that_use_time_and_of_their_rest() {
    let mut bench = Bench::new(FakeGpu::with_devices(1, 16 * GIB));
    let (sleeper, stranger) = (Sleeper::start(), Sleeper::start());
    let reply = bench.ask(sleeper.0.id(), r#"{"verb":"run","mem":"1GiB"}"#);
    assert!(matches!(reply, Some(Reply::Admitted(_))), "{reply:?}");
    let told = |bench: &Bench| {
        let told = bench.effects.iter().filter_map(|effect| match effect {
            Effect::Time(Message::Unmanaged(_, strangers)) => Some(*strangers),
            _ => None,
        });
        told.collect::<Vec<UnmanagedLoad>>()
    };
    let pid = stranger.0.id();
    bench.gpu.set_use(0, pid, GIB);
    bench.pass(SECOND_NS);
    assert_eq!(told(&bench), [], "memory alone is no time");
    bench.gpu.set_busy(0, pid, 60);
    bench.pass(SECOND_NS);
    assert_eq!(told(&bench), [UnmanagedLoad::Felt], "there is idle time for the job");
    bench.gpu.set_busy(0, pid, 95);
    bench.pass(SECOND_NS);
    assert_eq!(told(&bench), [UnmanagedLoad::Felt, UnmanagedLoad::Crowding]);
    let Some(Reply::Ps { unmanaged, .. }) = bench.ask(sleeper.0.id(), r#"{"verb":"ps","all":false}"#) else {
        panic!("ps answers")
    };
    assert_eq!((unmanaged[0].pid, unmanaged[0].busy), (pid, Some(0.95)));
    bench.gpu.set_busy(0, pid, 0);
    bench.pass(SECOND_NS);
    assert_eq!(told(&bench).len(), 2, "a pause");
    bench.pass(SECOND_NS);
    bench.pass(SECOND_NS);
    assert_eq!(told(&bench)[2..], [UnmanagedLoad::Quiet]);
}

#[test]
fn a_time_limit_ends_real_processes_with_a_grace_for_those_that_are_deaf() {
    let mut bench = Bench::new(FakeGpu::with_devices(1, 16 * GIB));
    let (mut polite, mut deaf) = (Sleeper::start(), Sleeper::deaf());
    let mut job = |sleeper: &Sleeper, seconds: u64| {
        let limit_ns = seconds * SECOND_NS;
        let request = format!(r#"{{"verb":"run","time_limit_ns":{limit_ns},"compute":"30%"}}"#);
        match bench.ask(sleeper.0.id(), &request) {
            Some(Reply::Admitted(admitted)) => admitted.job,
            other => panic!("{other:?}"),
        }
    };
    let (polite_job, deaf_job) = (job(&polite, 60), job(&deaf, 90));
    assert_eq!(bench.view(&polite_job).terms.time_limit_ns, Some(60 * SECOND_NS));
    assert_eq!(bench.view(&polite_job).terms.promise, 0.3);
    bench.pass(59 * SECOND_NS);
    assert!(polite.is_alive());
    bench.pass(SECOND_NS);
    assert_eq!(polite.signal(), Some(libc::SIGTERM));
    bench.turn();
    let view = bench.view(&polite_job);
    assert_eq!(
        view.end_reason.as_deref(),
        Some("its time limit of 60s was over (--time-limit 60s)")
    );
    bench.pass(30 * SECOND_NS);
    bench.pass(9 * SECOND_NS);
    assert!(deaf.is_alive() && bench.view(&deaf_job).state == "running");
    bench.pass(SECOND_NS);
    assert_eq!(deaf.signal(), Some(libc::SIGKILL));
    bench.turn();
    assert_eq!(bench.view(&deaf_job).state, "ended");
}

#[test]
fn who_waits_is_looked_at_every_tenth_of_a_second_however_much_happens() {
    let (holder, waiter, other) = (Sleeper::start(), Sleeper::start(), Sleeper::start());
    let looks = Rc::new(Cell::new(0));
    let counted = Counted {
        pid: waiter.0.id(),
        looks: Rc::clone(&looks),
    };
    let mut bench = Bench::seeing(FakeGpu::with_devices(1, 16 * GIB), Box::new(counted));
    bench.ask(holder.0.id(), r#"{"verb":"run","mem":"16GiB"}"#);
    bench.ask(waiter.0.id(), r#"{"verb":"run","mem":"8GiB","wait":true}"#);
    bench.pass(SECOND_NS);
    let mut ask_often = || {
        looks.set(0);
        for _ in 0..50 {
            bench.ask(other.0.id(), r#"{"verb":"run","mem":"17GiB"}"#);
        }
        let found = looks.get();
        bench.pass(SECOND_NS / 10);
        found
    };
    assert!(ask_often() <= 1);
    assert!(ask_often() <= 1);
}

#[test]
fn a_broker_with_a_job_does_not_leave() {
    let mut bench = Bench::new(FakeGpu::with_devices(1, 16 * GIB));
    let sleeper = Sleeper::start();
    bench.job(&sleeper);
    for _ in 0..10 {
        bench.pass(60 * SECOND_NS);
    }
    assert!(!bench.effects.iter().any(|effect| matches!(effect, Effect::Exit)));
    assert_eq!(bench.status().broker.jobs, 1);
}
