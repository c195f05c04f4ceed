// SPDX-License-Identifier: Apache-2.0
//! The broker's checkpoint helper, asked as the broker asks it: a JSON line on a socket, and one back.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::Case;
use crate::artefacts::built;
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "checkpoint_helper::a_process_stands_while_its_helper_has_locked_it",
            locked,
        ),
        Case::new(
            "checkpoint_helper::a_process_that_is_gone_or_stopped_is_not_called",
            not_called,
        ),
        Case::new("checkpoint_helper::room_is_proved_and_given_back", room),
    ]
}

/// A helper and our end of its socket.
struct Helper {
    child: Child,
    socket: BufReader<UnixStream>,
}

impl Helper {
    fn start(rig: &Rig) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        let mut command = rig.command(built("partaged"));
        command
            .arg("--checkpoint-helper")
            .stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = command.spawn().expect("it starts");
        // The command has the other end, and would keep it open.
        drop(command);
        let mut helper = Self {
            child,
            socket: BufReader::new(ours),
        };
        let version = helper.ask(&json!("open"))["ready"].as_i64();
        assert!(version.is_some_and(|version| version >= 12_080), "{version:?}");
        helper
    }

    fn ask(&mut self, what: &Value) -> Value {
        self.tell(what);
        self.answer()
    }

    fn tell(&mut self, what: &Value) {
        writeln!(self.socket.get_mut(), "{what}").expect("it listens");
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.socket.read_line(&mut line).expect("it answers in time");
        serde_json::from_str(&line).expect("a line of JSON")
    }

    fn call(&mut self, pid: u32, call: &Value) -> Value {
        let target = json!({"pid": pid, "start": start_of(pid)});
        self.ask(&json!({"call": {"target": target, "call": call}}))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Its work ends with the socket; one that hangs does not hold up the case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// When a process began, as its stat says.
fn start_of(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields = stat.rsplit_once(") ").expect("a name in parentheses").1;
    fields.split(' ').nth(19).expect("a field").parse().expect("a number")
}

fn locked(rig: &Rig) {
    let mut helper = Helper::start(rig);
    assert!(
        helper.ask(&json!("open"))["ready"].is_i64(),
        "it is open, and says so again"
    );
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    let pid = client.pid();
    assert_eq!(helper.call(pid, &json!("state")), json!({"state": "running"}));
    assert_eq!(
        helper.call(pid, &json!("unlock")),
        json!({"code": 401}),
        "it is not locked"
    );
    assert_eq!(
        helper.call(pid, &json!({"lock": {"timeout_ms": 10_000}})),
        json!("done")
    );
    assert_eq!(helper.call(pid, &json!("state")), json!({"state": "locked"}));
    assert_eq!(
        helper.call(pid, &json!({"lock": {"timeout_ms": 10_000}})),
        json!({"code": 401})
    );
    client.tell(&format!("alloc {MIB} while_locked"));
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(client.try_answer(), None, "a locked process allocates nothing");
    // Another helper may end what one began.
    drop(helper);
    let mut next = Helper::start(rig);
    assert_eq!(next.call(pid, &json!("unlock")), json!("done"));
    assert_eq!(client.answer(), "alloc 0");
    assert_eq!(next.call(pid, &json!("state")), json!({"state": "running"}));
}

fn not_called(rig: &Rig) {
    let mut helper = Helper::start(rig);
    // Never had a driver.
    let mut sleeper = Command::new("/bin/sleep").arg("600").spawn().expect("it starts");
    assert_eq!(helper.call(sleeper.id(), &json!("state")), json!({"code": 3}));
    let pid = sleeper.id();
    let other = json!({"pid": pid, "start": start_of(pid) + 1});
    assert_eq!(
        helper.ask(&json!({"call": {"target": other, "call": "state"}})),
        json!("gone")
    );
    sleeper.kill().expect("our own");
    // A zombie until it is waited for.
    let target = json!({"pid": pid, "start": start_of(pid)});
    rig.eventually(Duration::from_secs(10), "it has ended", || {
        helper.ask(&json!({"call": {"target": target, "call": "state"}})) == json!("gone")
    });
    sleeper.wait().expect("our own");
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.signal(libc::SIGSTOP);
    assert_eq!(helper.call(client.pid(), &json!("state")), json!("stopped"));
    let lock = json!({"lock": {"timeout_ms": 1000}});
    assert_eq!(helper.call(client.pid(), &lock), json!("stopped"));
    client.signal(libc::SIGCONT);
    rig.eventually(Duration::from_secs(10), "it goes on", || {
        helper.call(client.pid(), &json!("state")) == json!({"state": "running"})
    });
    client.expect(&format!("alloc {MIB} after"), "alloc 0");
}

fn room(rig: &Rig) {
    let mut bare = rig.bare_client("dlopen");
    bare.ready();
    let uuid = bare.say("uuid 0").trim_start_matches("uuid 0 ").to_owned();
    let mut helper = Helper::start(rig);
    let mut ask = |uuid: &str, bytes: u64| helper.ask(&json!({"room": {"uuid": uuid, "bytes": bytes}}));
    let free_before = bare.numbers("info")[1];
    assert_eq!(ask(&uuid, 512 * MIB), json!("done"));
    assert_eq!(ask(&uuid, 2048 * GIB), json!({"code": 2}), "more than there is");
    assert_eq!(ask("GPU-00000000-0000-0000-0000-000000000000", 1), json!({"code": 100}));
    assert!(
        ask("zero", 1)["no-driver"]
            .as_str()
            .is_some_and(|why| why.contains("`zero`"))
    );
    // A real driver may have kept a little for itself, not what was asked for.
    let free_after = bare.numbers("info")[1];
    assert!(
        free_after + 64 * MIB >= free_before,
        "{free_before} before, {free_after} after"
    );
}
