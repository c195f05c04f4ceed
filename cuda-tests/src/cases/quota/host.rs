// SPDX-License-Identifier: Apache-2.0
//! A host whose broker reads a configuration that `partage quota` changes.

use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use serde_json::Value;

use crate::artefacts::built;
use crate::rig::Rig;

/// Nothing is timed by it; it only turns a hang into a failure.
pub const SOON: Duration = Duration::from_secs(60);
/// By hand, beside quotas: it stays.
const BASE: &str = "schema = 1\n\n[class.small]\nmem = \"1GiB\"\n";

/// A host's broker that reads a configuration; it ends with this.
pub struct Host<'a> {
    rig: &'a Rig,
    broker: Child,
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        let _ = self.broker.kill();
        let _ = self.broker.wait();
    }
}

impl<'a> Host<'a> {
    /// Starts it, or says why this machine cannot.
    pub fn start(rig: &'a Rig) -> Option<Self> {
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            println!("SKIPPED: only root may change quotas");
            return None;
        }
        std::fs::write(rig.dir.join("partage.toml"), BASE).expect("writable");
        Some(Self {
            rig,
            broker: broker(rig),
        })
    }

    /// The next broker, after this one was killed.
    pub fn restart(&mut self) {
        let _ = self.broker.kill();
        let _ = self.broker.wait();
        self.broker = broker(self.rig);
    }

    /// The exit code of a command, and what it said.
    pub fn say(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.rig.output(self.rig.partage(arguments));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    #[track_caller]
    pub fn done(&self, arguments: &[&str]) -> String {
        let (code, text) = self.say(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {text}");
        text
    }

    pub fn file(&self) -> PathBuf {
        self.rig.dir.join("conf.d/90-quota.toml")
    }

    pub fn text(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap_or_default()
    }

    /// The changes of the audit log.
    pub fn changes(&self) -> Vec<Value> {
        let output = self.rig.output(self.rig.partage(&["events", "--audit", "--json"]));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let documents = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("a document"));
        documents.map(|document| document["change"].clone()).collect()
    }
}

fn broker(rig: &Rig) -> Child {
    let mut command = rig.command(built("partaged"));
    command
        .arg("--managed")
        .arg("--config")
        .arg(rig.dir.join("partage.toml"));
    command.arg("--socket-dir").arg(rig.socket_dir());
    let broker = command.spawn().expect("the broker starts");
    rig.eventually(SOON, "the broker answers", || {
        rig.output(rig.partage(&["broker", "status"])).status.success()
    });
    broker
}
