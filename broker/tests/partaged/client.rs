// SPDX-License-Identifier: Apache-2.0
//! A client as the interposer is one, in a process of its own: it attaches, charges through its pages, asks, holds the
//! simulated device's memory for what it charged, and comes back to the next broker.
//!
//! Commands come on standard input, one a line; each is answered by one line that begins with `@`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use partage_protocol::admin::Reply;

use crate::attached::Client;
use crate::rig::{Rig, own_program};

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
            ("can-connect", _) => client.can_connect(rest),
            ("can-write-grants", _) => client.can_write_grants().to_owned(),
            ("disconnect", _) => {
                client.wire = None;
                "ok".to_owned()
            }
            // A child that uses the device without attaching.
            ("stranger", [bytes]) => {
                let (child, input) = start_stranger(&client, *bytes);
                let pid = child.id();
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

/// A child that holds so many bytes of device 0, and its input, which keeps it alive.
fn start_stranger(client: &Client, bytes: u64) -> (Child, Option<ChildStdin>) {
    let mut command = own_program("client::client_process", None);
    let mut child = command
        .env("TEST_SOCKET", &client.socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    writeln!(child.stdin.as_mut().expect("piped"), "hold 0 {bytes}").expect("told");
    let input = child.stdin.take();
    (child, input)
}
