// SPDX-License-Identifier: Apache-2.0
//! Does the driver take a map of all devices, for a process that sees one of them only? Tried on a child of ours
//! before the first job is moved: nobody has measured it on a GPU, and a refusal is to come before a job was touched.
//!
//! The child is a helper like this one, with one context. It ends with its socket, and so with its parent.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::library::{Driver, Refused};
use super::messages::{Answer, Ask, Call};
use crate::helper::process::{HelperCommand, be_wholly_the_user};

/// A cold driver takes seconds, a context less.
const PATIENCE: Duration = Duration::from_secs(30);
/// For work in flight, of which there is none.
const LOCK_MS: u32 = 10_000;

/// A child with a context.
struct Target {
    child: Child,
    socket: BufReader<UnixStream>,
}

impl Target {
    fn start(driver_file: Option<&Path>, device: &str, is_masked: bool) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("a process to try it on: {error}");
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        ours.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let own = HelperCommand::own("--checkpoint-helper", driver_file);
        let mut command = Command::new(&own.program);
        command.args(&own.arguments).stdin(Stdio::from(OwnedFd::from(theirs)));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.env_remove("CUDA_VISIBLE_DEVICES");
        if is_masked {
            command.env("CUDA_VISIBLE_DEVICES", device);
        }
        // SAFETY: between fork and exec it makes two system calls.
        unsafe { command.pre_exec(|| be_wholly_the_user().map(drop)) };
        let child = command.spawn().map_err(failed)?;
        let socket = BufReader::new(ours);
        let mut target = Self { child, socket };
        target.ask(&Ask::Context {
            uuid: device.to_owned(),
        })?;
        Ok(target)
    }

    fn ask(&mut self, ask: &Ask) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("a process to try it on does not answer: {error}");
        let mut line = serde_json::to_string(ask).map_err(|error| error.to_string())?;
        line.push('\n');
        self.socket.get_mut().write_all(line.as_bytes()).map_err(failed)?;
        line.clear();
        self.socket.read_line(&mut line).map_err(failed)?;
        match serde_json::from_str(&line) {
            Ok(Answer::Done) => Ok(()),
            Ok(other) => Err(format!("a process to try it on has no context: {other:?}")),
            Err(error) => Err(format!("a process to try it on ended: {error}")),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Moves a child off a device and back by a map of `all` devices, each to itself.
pub(super) fn try_map(
    driver: &Driver,
    driver_file: Option<&Path>,
    (device, is_masked, all): (&str, bool, &[String]),
) -> Answer {
    let target = match Target::start(driver_file, device, is_masked) {
        Ok(target) => target,
        Err(why) => return Answer::NoDriver(why),
    };
    let pid = i32::try_from(target.child.id()).unwrap_or(i32::MAX);
    let map = all.iter().map(|uuid| (uuid.clone(), uuid.clone())).collect();
    for call in [Call::Lock { timeout_ms: LOCK_MS }, Call::Checkpoint] {
        if let Err(refused) = driver.checkpoint(pid, &call) {
            return Answer::NoDriver(format!("a process to try it on cannot be checkpointed: {refused}"));
        }
    }
    match driver.checkpoint(pid, &Call::Restore { map }) {
        Ok(_) => Answer::Done,
        Err(Refused::Code(code)) => Answer::Code(code),
        Err(refused) => Answer::NoDriver(refused.to_string()),
    }
}
