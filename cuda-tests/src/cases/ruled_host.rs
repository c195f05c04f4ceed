// SPDX-License-Identifier: Apache-2.0
//! A host's broker with rules, for the cases about them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use crate::artefacts::built;
use crate::client::Client;
use crate::rig::{MIB, Rig};

/// Nothing is timed by it; it only turns a hang into a failure.
pub const SOON: Duration = Duration::from_secs(60);

/// A host's broker with rules; it ends with this.
pub struct Host<'a> {
    rig: &'a Rig,
    /// Its process.
    pub broker: Child,
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        let _ = self.broker.kill();
        let _ = self.broker.wait();
    }
}

impl<'a> Host<'a> {
    /// Starts it with this configuration.
    pub fn start(rig: &'a Rig, text: &str) -> Self {
        std::fs::write(config(rig), text).expect("writable");
        let broker = broker(rig);
        Self { rig, broker }
    }

    /// The same, whose helpers write the driver's calls to a file.
    pub fn traced(rig: &'a Rig, text: &str, trace: &Path) -> Self {
        std::fs::write(config(rig), text).expect("writable");
        let mut command = command(rig);
        command.env("PARTAGE_SIM_TRACE", trace);
        let broker = started(rig, command);
        Self { rig, broker }
    }

    /// The broker is killed, and another one takes its place.
    pub fn again(mut self) -> Self {
        let _ = self.broker.kill();
        let _ = self.broker.wait();
        self.broker = broker(self.rig);
        self
    }

    /// Another configuration; answers whether the broker took it.
    pub fn reload(&self, text: &str) -> bool {
        std::fs::write(config(self.rig), text).expect("writable");
        let output = self.rig.output(self.rig.partage(&["config", "reload"]));
        match output.status.code() {
            Some(0) => true,
            Some(2) => false,
            other => panic!("{other:?}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

/// Its file.
pub fn config(rig: &Rig) -> PathBuf {
    rig.dir.join("partage.toml")
}

/// The broker, or the next one.
pub fn broker(rig: &Rig) -> Child {
    started(rig, command(rig))
}

/// The broker with this configuration, not started yet.
pub fn command(rig: &Rig) -> Command {
    let mut command = rig.command(built("partaged"));
    command.arg("--managed").arg("--config").arg(config(rig));
    command.arg("--socket-dir").arg(rig.socket_dir());
    command
}

fn started(rig: &Rig, mut command: Command) -> Child {
    let broker = command.spawn().expect("the broker starts");
    rig.eventually(SOON, "the broker answers, and has looked for its devices", || {
        let driver = rig.json(&["status"])["broker"]["driver"].clone();
        // Before that `set` refuses what names a device (`broker_view` in the broker). Without a broker there is none.
        driver
            .as_str()
            .is_some_and(|driver| !driver.contains("not looked for yet"))
    });
    broker
}

/// What the driver holds for a process on all devices.
pub fn held(rig: &Rig, pid: u32) -> u64 {
    let machine = partage_machine::Machine::open(&rig.sim_dir()).expect("the machine is there");
    let occupants = (0..2).flat_map(|device| machine.occupants(device));
    occupants
        .filter(|occupant| occupant.pid == pid)
        .map(|occupant| occupant.used)
        .sum()
}

/// All take memory in turns until nobody gets any more. What the driver then holds for them, in bytes.
pub fn exhausted(rig: &Rig, clients: &mut [Client]) -> u64 {
    let mut count = 0;
    for part in [256 * MIB, 32 * MIB, MIB] {
        while clients.iter_mut().fold(false, |any, client| {
            count += 1;
            any | (client.say(&format!("alloc {part} a{count}")) == "alloc 0")
        }) {
            assert!(count < 10_000, "they get without end");
        }
    }
    clients.iter().map(|client| held(rig, client.pid())).sum()
}

/// A program with the library and without `run`.
pub fn bare(rig: &Rig, variables: &[(&str, &str)]) -> Client {
    Client::start(bare_command(rig, variables))
}

/// The same, to be started.
pub fn bare_command(rig: &Rig, variables: &[(&str, &str)]) -> Command {
    let mut command = rig.command(crate::artefacts::client());
    command.arg("dlopen").env("LD_PRELOAD", built("libpartage.so"));
    command.envs(variables.iter().copied());
    command
}

/// The exit code of a command, and what it said.
pub fn said(rig: &Rig, arguments: &[&str]) -> (Option<i32>, String) {
    let output = rig.output(rig.partage(arguments));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}
