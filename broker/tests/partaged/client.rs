// SPDX-License-Identifier: Apache-2.0
//! A client as the interposer is one, in a process of its own: it attaches, charges through its pages, asks, holds the
//! simulated device's memory for what it charged, and comes back to the next broker.
//!
//! Commands come on standard input, one a line; each is answered by one line that begins with `@`.

use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use partage_machine::Machine;
use partage_protocol::admin::{Reply, Request};
use partage_protocol::message::{
    Answer, Ask, ENVIRONMENT_BYTES, Hello, MEASURE_AFTER, MEASURE_BEFORE, Measure, ToClient, VERDICT_GRANTED,
    VERDICT_RETRY, Welcome,
};
use partage_protocol::page::{BrokerPage, ClientPage, PAGE_BYTES};
use partage_protocol::reservation::{AskAnswer, ClientWords, Denial, refund, reserve};
use zerocopy::IntoBytes;

use crate::rig::{Rig, Wire, own_program};

/// Such a process, from the outside.
pub struct ClientProcess {
    pub child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl ClientProcess {
    pub fn start(rig: &Rig) -> Self {
        Self::start_as(rig, None)
    }

    pub fn start_as(rig: &Rig, uid: Option<u32>) -> Self {
        let mut command = own_program("client::client_process", uid.map(|uid| (rig, uid)));
        Self::spawn(command.env("TEST_SOCKET", rig.client_socket()), rig)
    }

    /// As a child of another client, without its token.
    fn spawn(command: &mut Command, rig: &Rig) -> Self {
        let mut child = command
            .env("PARTAGE_SIM_DIR", rig.machine_folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, input, output }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives a command without waiting.
    pub fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").expect("the client listens");
    }

    /// The answer to the oldest command that has none yet.
    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let count = self.output.read_line(&mut line).expect("the client speaks");
            assert!(count > 0, "the client process ended");
            // The test harness prints lines of its own.
            if let Some((_, answer)) = line.split_once('@') {
                return answer.trim_end().to_owned();
            }
        }
    }

    pub fn call(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer()
    }

    /// Asks for a job whose first process this becomes. Answers its last reply.
    pub fn run(&mut self, request: &str) -> Reply {
        let answer = self.call(&format!("run {request}"));
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// Begins a job and attaches to it. Answers the job's id.
    pub fn run_and_attach(&mut self, request: &str) -> String {
        let job = match self.run(request) {
            Reply::Admitted(admitted) => admitted.job,
            other => panic!("{other:?}"),
        };
        assert_eq!(self.call("attach"), format!("attached {job}"));
        job
    }

    /// Another process that has this one's token, and is no relative of it.
    pub fn sibling(&mut self, rig: &Rig) -> Self {
        let token = self.call("token");
        let mut sibling = Self::start(rig);
        assert_eq!(sibling.call(&format!("join {token}")), "ok");
        sibling
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("reaped");
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Pages {
    id: u64,
    broker: NonNull<BrokerPage>,
    client: NonNull<ClientPage>,
    descriptors: [OwnedFd; 2],
}

impl Pages {
    fn map(id: u64, descriptors: [OwnedFd; 2]) -> Self {
        let length = NonZeroUsize::new(PAGE_BYTES).expect("not zero");
        let map = |fd: &OwnedFd, protection| {
            // SAFETY: a fresh shared mapping of a whole page file.
            unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, fd, 0) }.expect("mapped")
        };
        let writable = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        Self {
            id,
            broker: map(&descriptors[0], ProtFlags::PROT_READ).cast(),
            client: map(&descriptors[1], writable).cast(),
            descriptors,
        }
    }

    fn words(&self, slot: usize) -> ClientWords<'static, std::sync::atomic::AtomicU64> {
        // SAFETY: mapped until the process ends, made of atomics only.
        let (broker, client) = unsafe { (&*self.broker.as_ptr(), &*self.client.as_ptr()) };
        ClientWords {
            used: &client.devices[slot].used,
            granted: &broker.devices[slot].granted,
            settled: &client.devices[slot].settled,
        }
    }
}

/// One of the counters around an operation.
#[derive(Clone, Copy)]
enum Counter {
    Started,
    Finished,
}

struct Client {
    socket: PathBuf,
    token: [u8; 32],
    wire: Option<Wire>,
    pages: Option<Pages>,
    seat: Option<(Machine, usize)>,
    sequence: u32,
    contexts: u32,
}

impl Client {
    fn hello(&mut self) -> String {
        let Ok(wire) = Wire::connect(&self.socket) else {
            return "no broker".to_owned();
        };
        let hello = Hello {
            header: Hello::header(0),
            token: self.token,
            client: self.pages.as_ref().map_or(0, |pages| pages.id),
            environment_limit: 0,
            pid: std::process::id(),
            flags: 0,
            environment_length: 0,
            reserved: 0,
            environment: [0; ENVIRONMENT_BYTES],
        };
        let pages = self.pages.as_ref();
        let fds: Vec<&OwnedFd> = pages.map_or(Vec::new(), |pages| pages.descriptors.iter().collect());
        if wire.send(hello.as_bytes(), &fds).is_err() {
            return "no broker".to_owned();
        }
        let Some((packet, descriptors)) = wire.receive() else {
            return "no broker".to_owned();
        };
        match ToClient::decode(&packet) {
            Ok(ToClient::Welcome(Welcome { client, job, .. })) => {
                if let Ok(fds) = <[OwnedFd; 2]>::try_from(descriptors) {
                    self.pages = Some(Pages::map(client, fds));
                }
                self.wire = Some(wire);
                format!("attached j{job}")
            }
            Ok(ToClient::Refused(refused)) => {
                let text = &refused.text[..refused.text_length as usize];
                format!("refused {} {}", refused.code, String::from_utf8_lossy(text))
            }
            other => panic!("{other:?}"),
        }
    }

    /// One ask; comes back to the next broker when this one is gone.
    fn ask(&mut self, slot: u32, wanted: u64, request: u64) -> AskAnswer {
        for _ in 0..2000 {
            self.sequence += 1;
            let ask = Ask {
                header: Ask::header(self.sequence),
                slot,
                reserved: 0,
                wanted,
                request,
            };
            let wire = self.wire.as_ref();
            let is_sent = wire.is_some_and(|wire| wire.send(ask.as_bytes(), &[]).is_ok());
            if is_sent && let Some((packet, _)) = wire.and_then(Wire::receive) {
                let Ok(ToClient::Answer(Answer { header, verdict, .. })) = ToClient::decode(&packet) else {
                    panic!("not an answer");
                };
                assert_eq!(header.sequence, self.sequence);
                return match verdict {
                    VERDICT_GRANTED => AskAnswer::Granted,
                    VERDICT_RETRY => AskAnswer::Retry,
                    1 => AskAnswer::Denied(Denial::Limit),
                    2 => AskAnswer::Denied(Denial::CardFull),
                    _ => AskAnswer::Denied(Denial::Invalid),
                };
            }
            self.wire = None;
            std::thread::sleep(std::time::Duration::from_millis(2));
            self.hello();
        }
        AskAnswer::Denied(Denial::NoBroker)
    }

    fn count(&self, slot: usize, counter: Counter) {
        let Some(pages) = &self.pages else { return };
        // SAFETY: mapped until the process ends, made of atomics only.
        let line = unsafe { &(*pages.client.as_ptr()).devices[slot] };
        let word = match counter {
            Counter::Started => &line.started,
            Counter::Finished => &line.finished,
        };
        word.fetch_add(1, Ordering::SeqCst);
    }

    /// Charges, then takes the memory from the simulated device, as a hook calls the driver.
    fn reserve(&mut self, slot: usize, bytes: u64) -> String {
        self.count(slot, Counter::Started);
        let result = self.reserve_counted(slot, bytes);
        self.count(slot, Counter::Finished);
        result
    }

    fn reserve_counted(&mut self, slot: usize, bytes: u64) -> String {
        let words = self.pages.as_ref().expect("attached").words(slot);
        match reserve(&words, bytes, |wanted| self.ask(slot as u32, wanted, bytes)) {
            Ok(()) => match self.hold(slot, bytes) {
                true => "ok".to_owned(),
                false => {
                    refund(words.used, bytes).expect("charged");
                    "device full".to_owned()
                }
            },
            Err(denial) => format!("{denial:?}"),
        }
    }

    /// One `Measure`. Answers the verdict.
    fn measure(&mut self, slot: usize, stage: u32) -> u32 {
        self.sequence += 1;
        let measure = Measure {
            header: Measure::header(self.sequence),
            slot: slot as u32,
            stage,
        };
        let wire = self.wire.as_ref().expect("attached");
        wire.send(measure.as_bytes(), &[]).expect("sent");
        let (packet, _) = wire.receive().expect("answered");
        match ToClient::decode(&packet) {
            Ok(ToClient::Answer(answer)) if answer.header.sequence == self.sequence => answer.verdict,
            other => panic!("{other:?}"),
        }
    }

    /// Makes a context as a hook does: announced, made, measured, and destroyed again where it may not stay.
    fn context(&mut self, slot: usize) -> String {
        let before = self.measure(slot, MEASURE_BEFORE);
        if before != VERDICT_GRANTED {
            return format!("refused {before}");
        }
        let (machine, seat) = self.seat();
        if machine.open_context(seat, slot).is_err() {
            return "device full".to_owned();
        }
        let after = self.measure(slot, MEASURE_AFTER);
        if after == VERDICT_GRANTED {
            self.contexts |= 1 << slot;
            return "ok".to_owned();
        }
        let (machine, seat) = self.seat();
        machine.close_context(seat, slot);
        assert_eq!(self.measure(slot, MEASURE_AFTER), VERDICT_GRANTED);
        format!("destroyed {after}")
    }

    fn seat(&mut self) -> (&Machine, usize) {
        let (machine, seat) = self.seat.get_or_insert_with(|| {
            let machine = Machine::from_environment().expect("a machine").expect("opened");
            let seat = machine.take_seat().expect("a seat");
            (machine, seat)
        });
        (machine, *seat)
    }

    /// Takes memory of the simulated device; the first time on each it opens a context, which is what NVML lists.
    fn hold(&mut self, device: usize, bytes: u64) -> bool {
        let has_context = self.contexts & (1 << device) != 0;
        self.contexts |= 1 << device;
        let (machine, seat) = self.seat();
        if !has_context && machine.open_context(seat, device).is_err() {
            return false;
        }
        machine.reserve(seat, device, bytes).is_ok()
    }

    fn free(&mut self, slot: usize, bytes: u64) -> String {
        self.count(slot, Counter::Started);
        let (machine, seat) = self.seat();
        machine.release(seat, slot, bytes);
        let words = self.pages.as_ref().expect("attached").words(slot);
        let result = refund(words.used, bytes).map_or("underflow".to_owned(), |_| "ok".to_owned());
        self.count(slot, Counter::Finished);
        result
    }

    /// Writes a word of its page, as a client that lies.
    fn write(&mut self, word: &str, slot: usize, value: u64) -> String {
        let pages = self.pages.as_ref().expect("attached");
        // SAFETY: mapped until the process ends, made of atomics only.
        let line = unsafe { &(*pages.client.as_ptr()).devices[slot] };
        let word = match word {
            "used" => &line.used,
            "managed" => &line.managed,
            "started" => &line.started,
            "finished" => &line.finished,
            other => panic!("{other}"),
        };
        word.store(value, Ordering::SeqCst);
        "ok".to_owned()
    }

    /// Takes and gives back pseudo-random amounts up to `most`; answers how often each came out.
    fn hammer(&mut self, rounds: u64, most: u64, mut seed: u64) -> String {
        let (mut held, mut done, mut denied) = (Vec::new(), 0u64, 0u64);
        for _ in 0..rounds {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            if seed >> 63 == 0 && !held.is_empty() {
                self.free(0, held.swap_remove((seed >> 33) as usize % held.len()));
                continue;
            }
            let bytes = (seed >> 16) % most + 1;
            match self.reserve(0, bytes).as_str() {
                "ok" => {
                    held.push(bytes);
                    done += 1;
                }
                "Limit" => denied += 1,
                other => return format!("failed {other}"),
            }
        }
        for bytes in held {
            self.free(0, bytes);
        }
        format!("hammered {} {}", done > 0, denied > 0)
    }

    fn set_token(&mut self, text: &str) {
        for (byte, digits) in self.token.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).expect("digits");
            *byte = u8::from_str_radix(digits, 16).expect("digits");
        }
    }

    fn run(&mut self, request: &str) -> String {
        let request: Request = serde_json::from_str(request).expect("a request");
        let wire = Wire::connect(&self.socket).expect("connected");
        wire.request(&request);
        loop {
            match wire.reply() {
                Some(Reply::Waiting(waiting)) => println!("@waiting {}", waiting.reason),
                Some(reply) => {
                    if let Reply::Admitted(admitted) = &reply {
                        self.set_token(&admitted.token);
                    }
                    return serde_json::to_string(&reply).expect("encodes");
                }
                None => return "closed".to_owned(),
            }
        }
    }
}

#[test]
#[ignore = "a client process that other tests start"]
fn client_process() {
    let Some(socket) = std::env::var_os("TEST_SOCKET") else {
        return;
    };
    let mut client = Client {
        socket: socket.into(),
        token: [0; 32],
        wire: None,
        pages: None,
        seat: None,
        sequence: 0,
        contexts: 0,
    };
    let mut children = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("text");
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let numbers: Vec<u64> = rest.split(' ').filter_map(|number| number.parse().ok()).collect();
        let answer = match (verb, numbers.as_slice()) {
            ("run", _) => client.run(rest),
            ("attach", _) => client.hello(),
            ("reserve", [slot, bytes]) => client.reserve(*slot as usize, *bytes),
            ("free", [slot, bytes]) => client.free(*slot as usize, *bytes),
            ("hammer", [rounds, most, seed]) => client.hammer(*rounds, *most, *seed),
            ("context", [slot]) => client.context(*slot as usize),
            ("measure", [slot, stage]) => client.measure(*slot as usize, *stage as u32).to_string(),
            ("lie", [slot, value]) => {
                let word = rest.rsplit(' ').next().expect("a word").to_owned();
                client.write(&word, *slot as usize, *value)
            }
            ("hold", [device, bytes]) => client.hold(*device as usize, *bytes).to_string(),
            ("token", _) => client.token.iter().map(|byte| format!("{byte:02x}")).collect(),
            ("join", _) => {
                client.set_token(rest);
                "ok".to_owned()
            }
            ("can-connect", _) => {
                let folder = client
                    .socket
                    .parent()
                    .and_then(std::path::Path::parent)
                    .expect("a folder");
                Wire::connect(&folder.join(rest)).map_or_else(|error| format!("{error:?}"), |_| "yes".to_owned())
            }
            ("can-write-grants", _) => {
                let fd = std::os::fd::AsRawFd::as_raw_fd(&client.pages.as_ref().expect("attached").descriptors[0]);
                let opened = std::fs::OpenOptions::new()
                    .write(true)
                    .open(format!("/proc/self/fd/{fd}"));
                if opened.is_ok() {
                    "yes".to_owned()
                } else {
                    "no".to_owned()
                }
            }
            ("disconnect", _) => {
                client.wire = None;
                "ok".to_owned()
            }
            // A child that uses the device without attaching.
            ("stranger", [bytes]) => {
                let mut command = own_program("client::client_process", None);
                let mut child = command
                    .env("TEST_SOCKET", &client.socket)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .spawn()
                    .expect("starts");
                writeln!(child.stdin.as_mut().expect("piped"), "hold 0 {bytes}").expect("told");
                let pid = child.id();
                let input = child.stdin.take();
                children.push((child, input));
                pid.to_string()
            }
            ("wait-child", _) => {
                // Its input stays open: it would end by itself otherwise.
                let (mut child, _input) = children.pop().expect("a child");
                format!("{}", child.wait().expect("reaped"))
            }
            ("exec", _) => {
                println!("@exec");
                let error = Command::new("sleep").arg("600").exec();
                format!("{error}")
            }
            other => panic!("{other:?}"),
        };
        println!("@{answer}");
    }
}
