// SPDX-License-Identifier: Apache-2.0
//! A conversation with the demo's CUDA program, a line at a time (demo-client/src/main.rs has the words).

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::failure::reason;
use crate::failure::{Failure, Outcome};
use crate::launch::installed;

use super::ending;

/// Far longer than any answer takes: a first context on a large machine takes seconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a program may take to end once its input has.
const FAREWELL: Duration = Duration::from_secs(5);

/// This program's file.
///
/// # Errors
/// The kernel does not say.
pub fn partage() -> Outcome<PathBuf> {
    std::env::current_exe().map_err(|error| {
        let message = format!("this program's file is not known: {}", reason(&error));
        Failure::failed(message)
    })
}

/// What the demo runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The GPU's model.
    pub model: String,
    /// Does the driver suspend programs?
    pub can_suspend: bool,
}

/// A running client; ended when dropped.
pub struct Program {
    name: String,
    child: Child,
    unread: Vec<u8>,
}

impl Program {
    /// What a client finds here that is under no limit.
    ///
    /// # Errors
    /// The client is missing, or finds no GPU that it could use.
    pub fn probe() -> Outcome<Machine> {
        let client = installed::find(installed::DEMO_CLIENT)?;
        let (mut program, model) = Self::start("the probe", Command::new(client).stderr(Stdio::null()))?;
        let can_suspend = program.ask("can-suspend")? == "yes";
        Ok(Machine { model, can_suspend })
    }

    /// Starts a client by a command that ends in its path; gives the GPU's model too.
    ///
    /// # Errors
    /// It does not start, or has no GPU.
    pub fn start(name: &str, command: &mut Command) -> Outcome<(Self, String)> {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let child = spawned.map_err(|error| Failure::failed(format!("cannot start {name}: {error}")))?;
        let mut program = Self {
            name: name.to_owned(),
            child,
            unread: Vec::new(),
        };
        let line = program.hear()?;
        match line.strip_prefix("ready ") {
            Some(model) => Ok((program, model.to_owned())),
            None => {
                let why = line.strip_prefix("failed ").unwrap_or(&line);
                Err(Failure::failed(why))
            }
        }
    }

    /// Its answer to a line.
    ///
    /// # Errors
    /// It ended, or does not answer.
    pub fn ask(&mut self, line: &str) -> Outcome<String> {
        let input = self.child.stdin.as_mut();
        let written = input.map(|input| writeln!(input, "{line}").and_then(|()| input.flush()));
        match written {
            Some(Ok(())) => self.hear(),
            _ => Err(self.gone()),
        }
    }

    fn hear(&mut self) -> Outcome<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            ending::goes_on()?;
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let silent = || {
                let message = format!("{} did not answer within {} s", self.name, PATIENCE.as_secs());
                Failure::failed(message)
            };
            let Some(output) = self.child.stdout.as_mut() else {
                return Err(self.gone());
            };
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) => return Err(silent()),
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(_) => return Err(self.gone()),
            }
            let mut part = [0; 512];
            match output.read(&mut part) {
                Ok(count) if count > 0 => self.unread.extend_from_slice(&part[..count]),
                _ => return Err(self.gone()),
            }
        }
    }

    fn gone(&self) -> Failure {
        Failure::failed(format!("{} ended too early", self.name))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + FAREWELL;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() >= deadline {
                let _ = self.child.kill().and_then(|()| self.child.wait().map(drop));
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
